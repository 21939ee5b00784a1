//! Compares rendered rules with Istio's expected outputs, and with this project's own for cases that Istio lacks.
//!
//! Enumerates the golden files under `CORPUS_DIR` (default `../shared/corpus`) and finds each case's configuration by
//! its name. Files can be added to the corpus; a file without a known configuration fails.

#![expect(clippy::disallowed_methods, reason = "reads the corpus")]

mod ambient;
mod capture;
mod own;
mod plugin;

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};

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
    ("ambient-iptables", "golden"),
    ("ambient-nftables", "golden"),
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
    for (folder, check) in
        [("ambient-iptables", ambient::iptables as AmbientCheck), ("ambient-nftables", ambient::nftables)]
    {
        trials.extend(ambient_trials(&corpus, folder, check));
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

/// Compares the rules of a case, found by its name, with the content of its golden file.
type Check = fn(name: &str, expected: &str) -> Result<(), Failed>;

/// Compares the rules for the settings in a file with the content of the case's golden file.
type AmbientCheck = fn(settings: &Path, expected: &str) -> Result<(), Failed>;

/// Returns a trial for each case, which is a `.golden` file and a `.json` file with the settings. The trial fails if
/// one of them is missing.
fn ambient_trials(corpus: &Path, folder: &'static str, check: AmbientCheck) -> Vec<Trial> {
    let dir = corpus.join(folder);
    let Ok(entries) = std::fs::read_dir(&dir) else { return vec![tier::without_corpus(folder, &dir)] };
    let mut cases: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path().with_extension(""))).collect();
    cases.sort();
    cases.dedup();
    let trial = |case: PathBuf| {
        let title = format!("{folder}/{}", case.file_name().unwrap_or_default().to_string_lossy());
        let (golden, settings) = (case.with_extension("golden"), case.with_extension("json"));
        if ambient::is_of_host(&settings) {
            let title = format!("{title} [the rules of the node's netns are not built]");
            return Trial::test(title, || Ok(())).with_ignored_flag(true);
        }
        let expected = move || std::fs::read_to_string(&golden).map_err(|e| format!("{}: {e}", golden.display()));
        Trial::test(title, move || check(&settings, &expected()?))
    };
    cases.into_iter().map(trial).collect()
}

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
