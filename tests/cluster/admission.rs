//! Random pods with random annotations, injected with each configuration: the API server accepts each of them, in a dry run with
//! strict validation.

use anyhow::{Result, anyhow, ensure};
use proptest::prelude::any;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::Value;
use test_support::admission::{Configured, injected, injectors, pod};

use crate::figures;
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] = &[Case {
    name: "the_api_server_accepts_every_pod_that_is_injected",
    namespace: "admission",
    scope: Scope::Gate,
    body: accepts,
}];

/// The number of random pods. Half of them have an annotation or a container that no injection can follow.
const PODS: u32 = 200;

fn accepts(stage: &Stage<'_>) -> Result<()> {
    let injectors = injectors(&tier::corpus_directory())?;
    let mut runner = TestRunner::new(Config { cases: PODS, failure_persistence: None, ..Config::default() });
    let accepted = std::cell::Cell::new(0_u32);
    let checked = runner.run(&(pod(), any::<[Index; 2]>(), any::<[bool; 2]>()), |(pod, which, native)| {
        let chosen = which.map(|which| which.get(&injectors));
        let count = check(stage, &pod, chosen, native).map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
        accepted.set(accepted.get() + count);
        Ok(())
    });
    checked.map_err(|error| anyhow!("{error}"))?;
    let accepted = accepted.get();
    figures::print(&format!("injected pods that the API server has accepted: {accepted}"));
    ensure!(accepted >= PODS / 4, "only {accepted} of {PODS} pods were injected");
    Ok(())
}

/// Injects a pod, and then once more with another configuration. Returns the number of injected pods.
fn check(stage: &Stage<'_>, pod: &Value, chosen: [&Configured; 2], native: [bool; 2]) -> Result<u32> {
    admit(stage, pod).map_err(|error| error.context(format!("before the injection: {pod}")))?;
    let (mut pod, mut count) = (pod.clone(), 0);
    for (Configured { name, injector, .. }, native) in chosen.into_iter().zip(native) {
        let Some(injected) = injected(injector, &pod, native) else { break };
        let what = || format!("after injection {} with {name}, native sidecars {native}: {injected}", count + 1);
        admit(stage, &injected).map_err(|error| error.context(what()))?;
        (pod, count) = (injected, count + 1);
    }
    Ok(count)
}

fn admit(stage: &Stage<'_>, pod: &Value) -> Result<Value> {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", stage.path("pods"));
    stage.cluster.create(&path, pod)
}
