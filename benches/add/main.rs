//! `make bench`: compares the plugin with a minimal process that only enters the netns and sends the same rules
//! (`Floor`), and with the commands that Istio's plugin runs.
//!
//! Measures whole processes from spawn to exit, interleaved in a random order, each in a new netns, while another
//! programmed netns exists. A subject without the expected rules is an error; a missed target is not.

#![expect(clippy::disallowed_methods, reason = "starts programs in namespaces, reads recordings, holds the clock")]
#![expect(clippy::print_stdout, reason = "its report")]

mod agent;
mod case;
mod commands;
mod daemon;
mod measure;
mod netns;
mod options;
mod pod;
mod report;
mod run;
mod subject;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use case::{Case, Recording};
use options::Options;
use report::Report;
use subject::{Programs, Stage, Subject};
use test_servers::{Api, Authority, Script};
use test_support::shuffle::Shuffle;

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let installed = tempfile::tempdir()?;
    let programs = Programs::installed(installed.path())?;
    netns::isolate()?;
    let recordings_dir = recordings_dir();
    let recordings = Case::ALL.map(|case| Recording::read(&recordings_dir, case));
    let recordings = recordings.into_iter().collect::<Result<Vec<_>>>()?;
    let surroundings = Case::ALL.iter().map(|case| Surroundings::new(*case)).collect::<Result<Vec<_>>>()?;
    let agent = daemon::Agent::start()?;
    let agent_dir = agent.run_dir();
    let stages: Vec<Stage<'_>> = (surroundings.iter().zip(&recordings))
        .map(|(around, recording)| Stage {
            case: around.case,
            programs: &programs,
            recording,
            agent_dir: &agent_dir,
            canned_dir: around.agent.path(),
            api_dir: around.api.path(),
        })
        .collect();

    // The kernel patches the calls of netfilter hooks into its code (static keys) once any netns has rules. Another netns with rules keeps
    // this out of the measured runs, as for every pod on a node except the first.
    let other_pod = stages[0].prepare(Subject::Restore)?;
    other_pod.run().context("the pod that lives throughout")?;
    let peaks = verified(&stages)?;
    netns::settle()?;

    let mut shuffle = Shuffle::new();
    let alone = measure::alone(&stages, options.runs, &mut shuffle)?;
    let rounds = measure::at_once(&stages, 4 * options.runs, &mut shuffle)?;
    drop(other_pod);

    let report = Report {
        recordings: recordings_dir,
        cases: Case::ALL.to_vec(),
        alone: report::figures(&alone),
        rates: report::rates(&rounds),
        peaks,
        binary: std::fs::metadata(&programs.plugin)?.len(),
    };
    if options.json {
        println!("{:#}", report.json());
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

/// Returns the directory of the recorded rules: `PERF_DIR`, by default `../shared/perf`; if it has no recordings, the
/// repository's `tests/data/bench`.
fn recordings_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let given = std::env::var_os("PERF_DIR").map_or_else(|| root.join("../shared/perf"), PathBuf::from);
    if given.join("batch").is_dir() { given } else { root.join("tests/data/bench") }
}

/// Runs each subject once, fails if the number of its rules is not the expected one, and returns the peaks of memory.
fn verified(stages: &[Stage<'_>]) -> Result<BTreeMap<(usize, Subject), u64>> {
    let mut peaks = BTreeMap::new();
    for (at, stage) in stages.iter().enumerate() {
        for subject in Subject::ALL {
            stage.verify(subject)?;
            peaks.insert((at, subject), stage.peak(subject)?);
        }
    }
    Ok(peaks)
}

/// The doubles of the agent and of the API server for one case, which serve until the bench ends.
struct Surroundings {
    case: Case,
    agent: TempDir,
    api: TempDir,
    _server: Api,
}

impl Surroundings {
    fn new(case: Case) -> Result<Self> {
        // The run directory is on a tmpfs, as `/var/run` is on a node.
        let agent = tempfile::tempdir_in("/run")?;
        agent::start(agent.path(), &pod::facts(case)?)?;
        let authority = Authority::new();
        let server = Api::start(&authority, vec![Script::respond(200, pod::object(case).to_string())]);
        let api = test_servers::run_dir(server.address, Some(&authority.pem));
        Ok(Self { case, agent, api, _server: server })
    }
}
