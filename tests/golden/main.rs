//! Compares rendered rules with Istio's expected outputs, and with this project's where Istio has none.
//!
//! Enumerates the golden files under `CORPUS_DIR` (default `../shared/corpus`) and finds each case's configuration by
//! its name. The same runner checks a larger corpus; a file without a known configuration fails.

#![expect(clippy::disallowed_methods, reason = "reads the corpus")]

mod capture;
mod own;
mod plugin;

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use test_support::tier;

/// The entries of the corpus and the suites that read them.
const READERS: [(&str, &str); 12] = [
    ("iptables", "golden"),
    ("nftables", "golden"),
    ("plugin", "golden"),
    ("conflist", "conflists"),
    ("conflist-e2e", "conflists"),
    ("settings", "inject"),
    ("kube-inject", "inject"),
    ("webhook", "inject"),
    ("webhook-legacy", "inject"),
    ("chart.json", "manifests"),
    ("ambient-iptables", "none: ambient mode is not supported"),
    ("ambient-nftables", "none: ambient mode is not supported"),
];

fn main() {
    let args = Arguments::from_args();
    let corpus = tier::corpus_directory();
    let mut trials = own::trials();
    for (folder, ending, check) in [
        ("iptables", ".golden", capture::iptables as Check),
        ("nftables", ".golden", capture::nftables),
        ("plugin", ".txt.golden", plugin::check),
    ] {
        trials.extend(folder_trials(&corpus, folder, ending, check));
    }
    let missing = (!corpus.is_dir()).then(|| format!("{} does not exist", corpus.display()));
    trials.push(tier::trial("corpus", "corpus/each_entry_has_a_reader", missing, move || has_readers(&corpus)));
    libtest_mimic::run(&args, trials).exit();
}

/// Fails for an entry that no suite reads.
fn has_readers(corpus: &Path) -> Result<(), Failed> {
    for entry in std::fs::read_dir(corpus)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !READERS.iter().any(|(known, _)| *known == name) {
            return Err(format!("no suite reads {name} of the corpus: add it to READERS, with its suite").into());
        }
    }
    Ok(())
}

/// Compares a case's output with its file.
type Check = fn(name: &str, expected: &str) -> Result<(), Failed>;

fn folder_trials(corpus: &Path, folder: &'static str, ending: &'static str, check: Check) -> Vec<Trial> {
    let dir = corpus.join(folder);
    let Ok(entries) = std::fs::read_dir(&dir) else { return vec![tier::without_corpus(folder, &dir)] };
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    let trial = |path: PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(ending).map(str::to_owned) else {
            let failure = format!("{folder}/{file} is no {ending} file, so no case reads it");
            return Trial::test(format!("{folder}/{file}"), || Err(failure.into()));
        };
        if folder == "plugin" && name == plugin::ORPHAN {
            let title = format!("{folder}/{name} [no case of Istio's uses it: rules of an older shape]");
            return Trial::test(title, || Ok(())).with_ignored_flag(true);
        }
        Trial::test(format!("{folder}/{name}"), move || check(&name, &std::fs::read_to_string(&path)?))
    };
    files.into_iter().map(trial).collect()
}

/// Fails with the first differing line and all lines that only one side has.
fn same(expected: &str, actual: &str) -> Result<(), Failed> {
    if expected == actual {
        return Ok(());
    }
    let (e, a): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    let at = e.iter().zip(&a).take_while(|(e, a)| e == a).count();
    let line = |lines: &[&str]| lines.get(at).map_or("(end)".to_owned(), ToString::to_string);
    let only = |these: &[&str], those: &[&str]| {
        these.iter().filter(|l| !those.contains(l)).map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
    };
    Err(Failed::from(format!(
        "line {}:\n  expected {}\n  got      {}\nonly expected:\n  {}\nonly got:\n  {}",
        at + 1,
        line(&e),
        line(&a),
        only(&e, &a),
        only(&a, &e)
    )))
}
