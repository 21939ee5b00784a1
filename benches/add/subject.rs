//! The measured subjects and their programs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::case::{self, Case, Recording};
use crate::netns::PodNetns;
use crate::run::{self, Laid, Start, Step, Taken};
use crate::{commands, pod};

/// A measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The plugin's ADD with `install-cni`, which serves the lookup and receives the log lines.
    Add,
    /// ADD with a double of the agent that sends a precomputed response and has no log socket.
    AddCanned,
    /// A process that only enters the netns and sends the recorded batch.
    Floor,
    /// `iptables-nft-restore`, once for each family.
    Restore,
    /// All commands that Istio's plugin runs for a pod, without its lookup.
    Commands,
    /// ADD without an agent, with the API server as fallback.
    AddByApi,
    /// ADD in a netns that already has the rules.
    AddAgain,
    /// DEL.
    Del,
    /// VERSION.
    Version,
}

impl Subject {
    pub(crate) const ALL: [Self; 9] = [
        Self::Add,
        Self::AddCanned,
        Self::Floor,
        Self::Restore,
        Self::Commands,
        Self::AddByApi,
        Self::AddAgain,
        Self::Del,
        Self::Version,
    ];
    /// The subjects whose rate is measured.
    pub(crate) const PARALLEL: [Self; 5] = [Self::Add, Self::AddCanned, Self::Floor, Self::Restore, Self::Commands];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD, install-cni and its log",
            Self::AddCanned => "ADD, precomputed response, no log",
            Self::Floor => "floor: start, setns, batch",
            Self::Restore => "iptables-nft-restore alone",
            Self::Commands => "Istio's commands, no lookup",
            Self::AddByApi => "ADD, API server over TLS",
            Self::AddAgain => "ADD again, same netns",
            Self::Del => "DEL",
            Self::Version => "VERSION",
        }
    }

    /// Returns the subject's key in the JSON report.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::AddCanned => "add_canned",
            Self::Floor => "floor",
            Self::Restore => "restore",
            Self::Commands => "commands",
            Self::AddByApi => "add_by_api",
            Self::AddAgain => "add_again",
            Self::Del => "del",
            Self::Version => "version",
        }
    }

    /// Whether the subject programs the case's rules.
    fn programs_rules(self) -> bool {
        !matches!(self, Self::Del | Self::Version)
    }

    fn start(self) -> Start {
        match self {
            Self::Restore | Self::Commands => Start::Inside,
            _ => Start::Outside,
        }
    }
}

/// The paths of the static programs: the plugin, `bench_floor` and `bench_peak`.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) plugin: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) peak: PathBuf,
}

impl Programs {
    /// Copies the programs from the target directory that the bench itself was built into, as an installer copies the plugin. Without the
    /// copy, runs would take longer: the page cache holds a file that the linker wrote as single pages, each of which costs a page fault.
    pub(crate) fn installed(to: &Path) -> Result<Self> {
        let own = std::env::current_exe()?;
        let target = own.ancestors().nth(3).context("the bench is not in a target directory")?;
        let built = target.join(format!("{}-unknown-linux-musl/plugin", std::env::consts::ARCH));
        let install = |name: &str| -> Result<PathBuf> {
            let from = built.join(name);
            let to = to.join(from.file_name().context("a program has a name")?);
            std::fs::copy(&from, &to).with_context(|| format!("{}: make programs", from.display()))?;
            Ok(to)
        };
        Ok(Self { plugin: install("istio-cni")?, floor: install("bench_floor")?, peak: install("bench_peak")? })
    }
}

/// A run of a subject that is ready to start: its netns and its programs.
pub(crate) struct Prepared {
    netns: PodNetns,
    start: Start,
    steps: Vec<Step>,
}

impl Prepared {
    /// Executes the run.
    pub(crate) fn run(&self) -> Result<Taken> {
        run::run(&self.netns, self.start, &self.steps)
    }

    /// Converts the run to one of several concurrent runs, and writes its input into the new directory `dir`.
    pub(crate) fn among_others(self, dir: PathBuf) -> Result<AmongOthers> {
        Ok(AmongOthers { netns: self.netns, start: self.start, steps: Laid::out(self.steps, dir)? })
    }
}

/// One of several concurrent runs, ready to start.
pub(crate) struct AmongOthers {
    netns: PodNetns,
    start: Start,
    steps: Laid,
}

impl AmongOthers {
    /// Executes the run on the calling thread, which may stay in the pod's netns.
    pub(crate) fn run(&self) -> Result<()> {
        if self.start == Start::Inside {
            self.netns.enter()?;
        }
        self.steps.run()
    }
}

/// The inputs of all runs for one pod: programs, recorded rules and run directories.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) case: Case,
    pub(crate) programs: &'a Programs,
    pub(crate) recording: &'a Recording,
    /// The run directory with the sockets of `install-cni`.
    pub(crate) agent_dir: &'a Path,
    /// A run directory with the socket of the agent's double only.
    pub(crate) canned_dir: &'a Path,
    /// A run directory with a kubeconfig and no socket.
    pub(crate) api_dir: &'a Path,
}

impl Stage<'_> {
    /// Prepares a run in a new netns.
    pub(crate) fn prepare(&self, subject: Subject) -> Result<Prepared> {
        let netns = PodNetns::new(self.case.dual_stack())?;
        if subject == Subject::AddAgain {
            run::run(&netns, Start::Outside, &self.steps(Subject::Add, &netns))?;
        }
        Ok(Prepared { start: subject.start(), steps: self.steps(subject, &netns), netns })
    }

    /// Runs the subject once and checks the number of its rules.
    pub(crate) fn verify(&self, subject: Subject) -> Result<()> {
        let prepared = self.prepare(subject)?;
        let verified = prepared
            .run()
            .and_then(|_| if subject.programs_rules() { case::verify(self.case, &prepared.netns) } else { Ok(()) });
        verified.with_context(|| format!("{} ({})", subject.name(), self.case.name()))
    }

    /// Runs the subject's programs and returns the highest peak resident memory among them, in KiB.
    pub(crate) fn peak(&self, subject: Subject) -> Result<u64> {
        let Prepared { netns, start, steps } = self.prepare(subject)?;
        let peaks = steps.iter().map(|step| run::peak(&self.programs.peak, &netns, start, step));
        peaks.collect::<Result<Vec<u64>>>().map(|peaks| peaks.into_iter().max().unwrap_or_default())
    }

    fn steps(&self, subject: Subject, netns: &PodNetns) -> Vec<Step> {
        let call = |verb, run_dir| vec![pod::call(&self.programs.plugin, verb, self.case, run_dir, netns)];
        match subject {
            Subject::Add | Subject::AddAgain => call("ADD", self.agent_dir),
            Subject::AddCanned => call("ADD", self.canned_dir),
            Subject::AddByApi => call("ADD", self.api_dir),
            Subject::Del => call("DEL", self.agent_dir),
            Subject::Version => call("VERSION", self.agent_dir),
            Subject::Restore => commands::restores(self.case, self.recording),
            Subject::Commands => commands::istio(self.case, self.recording),
            Subject::Floor => vec![Step {
                program: self.programs.floor.clone(),
                args: vec![netns.path().into()],
                stdin: self.recording.batch.clone(),
                ..Step::default()
            }],
        }
    }
}
