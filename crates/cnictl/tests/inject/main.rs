//! Compares injection with Istio's expected outputs, and checks properties of every injection.
//!
//! Enumerates the cases under `CORPUS_DIR` (default `../shared/corpus`). Each case names its settings and contains a
//! mesh, a pod or documents, and the expected output. Cases that are added to the corpus run as well.

#![expect(clippy::disallowed_methods, reason = "reads the corpus and runs Go")]
#![expect(clippy::print_stdout, reason = "how many cases are equal is what the run is for")]

mod admission;
mod again;
mod builtin;
mod bytes;
mod case;
mod dapr_seed;
mod definition;
mod differences;
mod documents;
mod early;
mod equal;
mod kept;
mod kube_inject;
mod kubernetes;
mod legacy;
mod manifests;
mod on_purpose;
mod ports;
mod property;
mod random;
mod refused;
mod review;
mod second;
mod seeds;
mod settings;
mod startable;
mod strategic;
mod templates;
mod types;
mod unused;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Failed, Trial};

/// The root of the repository.
pub(crate) const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Checks the case in this directory.
type Check = fn(dir: &Path) -> Result<(), Failed>;

/// For each directory of the corpus, the number of cases that equal Istio's output, and the number of all cases.
type Tally = Arc<Mutex<BTreeMap<&'static str, (usize, usize)>>>;

fn main() {
    let args = Arguments::from_args();
    let corpus = tier::corpus_directory();
    let tally = Tally::default();
    let mut trials = property::trials();
    trials.extend(admission::trials());
    trials.extend(startable::trials());
    trials.extend(early::trials());
    trials.extend(ports::trials());
    trials.extend(refused::trials());
    trials.extend(types::trials());
    trials.extend(manifests::trials());
    trials.push(definition::trial());
    trials.push(strategic::trial());
    trials.extend(second::trials());
    trials.extend(again::trials());
    trials.extend(seeds::trials());
    trials.extend(dapr_seed::trials());
    trials.extend(settings::trials());
    trials.extend(differences::trials());
    trials.extend(templates::trials(&corpus));
    trials.extend(bytes::trials(&corpus));
    trials.extend(builtin::trials(&corpus));
    trials.extend(unused::trials(&corpus));
    for (folder, check) in
        [("kube-inject", documents::check as Check), ("webhook", review::check), ("webhook-legacy", legacy::check)]
    {
        trials.extend(folder_trials(&corpus, folder, check, &tally));
    }
    let conclusion = libtest_mimic::run(&args, trials);
    for (folder, (equal, total)) in tally.lock().map(|tally| tally.clone()).unwrap_or_default() {
        println!("{folder}: {equal} of {total} equal");
    }
    conclusion.exit();
}

fn folder_trials(corpus: &Path, folder: &'static str, check: Check, tally: &Tally) -> Vec<Trial> {
    let Ok(entries) = std::fs::read_dir(corpus.join(folder)) else {
        return vec![tier::without_corpus(folder, &corpus.join(folder))];
    };
    let mut dirs: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    dirs.sort();
    let trial = |dir: PathBuf| {
        let name = format!("{folder}/{}", dir.file_name().unwrap_or_default().to_string_lossy());
        let tally = Arc::clone(tally);
        Trial::test(name, move || {
            let result = check(&dir);
            if let Ok(mut tally) = tally.lock() {
                let (equal, total) = tally.entry(folder).or_default();
                *equal += usize::from(result.is_ok());
                *total += 1;
            }
            result
        })
    };
    dirs.into_iter().map(trial).collect()
}
