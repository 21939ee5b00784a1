//! Compares rendered rules with Istio's expected outputs, and with this project's where Istio has none.
//!
//! Enumerates the golden files under `CORPUS_DIR` (default `../shared/corpus`) and finds each case's configuration by
//! its name. The same runner checks a larger corpus; a file without a known configuration fails.

#![expect(clippy::disallowed_methods, reason = "the corpus is a directory named by the environment")]

mod capture;
mod own;
mod plugin;

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let args = Arguments::from_args();
    let corpus = std::env::var_os("CORPUS_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"), PathBuf::from);
    let mut trials = own::trials();
    for (folder, ending, check) in [
        ("iptables", ".golden", capture::iptables as Check),
        ("nftables", ".golden", capture::nftables),
        ("plugin", ".txt.golden", plugin::check),
    ] {
        trials.extend(folder_trials(&corpus, folder, ending, check));
    }
    libtest_mimic::run(&args, trials).exit();
}

/// Compares a case's output with its file.
type Check = fn(name: &str, expected: &str) -> Result<(), Failed>;

fn folder_trials(corpus: &Path, folder: &'static str, ending: &str, check: Check) -> Vec<Trial> {
    let dir = corpus.join(folder);
    let Ok(entries) = std::fs::read_dir(&dir) else {
        let name = format!("{folder} [needs the corpus: no directory {}]", dir.display());
        return vec![Trial::test(name, || Ok(())).with_ignored_flag(true)];
    };
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    let trial = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(ending)?.to_owned();
        if folder == "plugin" && name == plugin::ORPHAN {
            let title = format!("{folder}/{name} [no case of Istio's uses it: rules of an older shape]");
            return Some(Trial::test(title, || Ok(())).with_ignored_flag(true));
        }
        Some(Trial::test(format!("{folder}/{name}"), move || check(&name, &std::fs::read_to_string(&path)?)))
    };
    files.into_iter().filter_map(trial).collect()
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
