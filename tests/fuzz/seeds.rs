//! Replays the seeds of the fuzz targets: inputs that once failed, and the inputs with which each target starts.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]
#![expect(clippy::disallowed_methods, reason = "reads the seeds")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fuzz_cases::{Check, TARGETS};
use libtest_mimic::{Arguments, Failed, Trial};
use test_support::outcome::caught;

fn main() -> ExitCode {
    let replays = TARGETS.map(|(name, check)| Trial::test(name, move || replay(name, check)));
    let complete = Trial::test("every_target_has_seeds_and_a_program", || {
        complete();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), replays.into_iter().chain([complete]).collect()).exit_code()
}

fn of_fuzz(directory: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(directory)
}

/// Returns the paths in a directory, sorted.
fn entries(directory: &Path) -> BTreeSet<PathBuf> {
    let read = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    read.map(|entry| entry.unwrap().path()).collect()
}

/// Runs a target's body with each of its seeds. The error names the seed that fails.
fn replay(name: &str, check: Check) -> Result<(), Failed> {
    let seeds = entries(&of_fuzz("seeds").join(name));
    assert!(!seeds.is_empty(), "fuzz/seeds/{name} has no seed");
    for seed in seeds {
        let input = std::fs::read(&seed)?;
        let checked = caught(|| {
            check(&input);
            Ok(())
        });
        checked.map_err(|error| format!("the seed {} fails: {error}", seed.display()))?;
    }
    Ok(())
}

/// Compares the targets with the directories of seeds and with the programs that `make fuzz` runs.
fn complete() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    for directory in ["seeds", "fuzz_targets"] {
        let found = entries(&of_fuzz(directory));
        let found: BTreeSet<String> =
            found.iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(found, known, "fuzz/{directory} and the targets");
    }
}
