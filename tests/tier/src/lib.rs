//! Tiers: groups of trials that need more than a compiler, such as a container runtime or the corpus of Istio's
//! expected outputs.
//!
//! A trial whose input is missing is ignored with the reason, never passed. If `REQUIRE_TIERS` names the trial's tier,
//! the trial fails instead.

#![allow(clippy::disallowed_methods, reason = "tests read the environment and start Go")]

pub mod go;

use std::env;
use std::path::{Path, PathBuf};

use libtest_mimic::{Completion, Failed, Trial};

/// Whether `REQUIRE_TIERS` names a tier.
pub fn required(tier: &str) -> bool {
    env::var("REQUIRE_TIERS").unwrap_or_default().split(',').any(|required| required == tier)
}

/// Creates a trial of a tier. If `missing` gives a reason, the trial is ignored for this reason, or fails if the tier
/// is required.
pub fn trial(
    tier: &'static str,
    name: impl Into<String>,
    missing: Option<String>,
    body: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match missing {
        None => body().map(|()| Completion::Completed),
        Some(reason) if required(tier) => Err(format!("REQUIRE_TIERS names {tier}, but {reason}").into()),
        Some(reason) => Ok(Completion::ignored_with(reason)),
    })
}

/// Returns the directory of the corpus: `CORPUS_DIR`, by default `../shared/corpus`. A relative path is relative to the repository, because
/// suites run in the directories of their packages.
pub fn corpus_directory() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    repository.join(env::var_os("CORPUS_DIR").unwrap_or_else(|| "../shared/corpus".into()))
}

/// Creates the trial that stands for a missing part of the corpus: it is ignored or fails.
pub fn without_corpus(name: &str, missing: &Path) -> Trial {
    trial("corpus", name, Some(format!("{} does not exist", missing.display())), || Ok(()))
}
