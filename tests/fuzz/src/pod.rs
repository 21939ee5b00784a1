//! Reviews any pod with Istio's injection and the built-in configuration. Checks that the pod is refused with an error, skipped with a
//! reason, or injected with a patch that results in the pod that the injection returns.
//!
//! The input is the pod as JSON. A first byte `n` selects a cluster with native sidecars.

use std::sync::LazyLock;

use inject::apply;
use inject::istio::{BuiltIn, InjectionOutcome, Injector, Request};
use serde_json::Value;

static INJECTOR: LazyLock<Injector> =
    LazyLock::new(|| Injector::new(BuiltIn::default().config().expect("the configuration that is compiled in")));

/// Returns the pod after injection; `None` if the pod is refused or skipped.
fn injected(pod: &Value, native_sidecars: bool) -> Option<Value> {
    match INJECTOR.review(&Request { native_sidecars, ..Request::new(pod, "n") }) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(InjectionOutcome::Skipped(decision)) => assert!(!decision.sentence().is_empty()),
        Ok(InjectionOutcome::Injected { injected, .. }) => {
            assert_eq!(apply(pod.clone(), &injected.patch()).expect("the patch applies"), injected.pod);
            return Some(injected.pod);
        }
    }
    None
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let (native, json) = input.strip_prefix(b"n").map_or((false, input), |rest| (true, rest));
    let Ok(pod) = serde_json::from_slice::<Value>(json) else { return };
    let Some(once) = injected(&pod, native) else { return };
    let twice = injected(&once, native).expect("an injected pod is injected again");
    assert_eq!(once, twice, "a second injection changes nothing");
}
