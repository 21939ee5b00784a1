//! Any pod through Istio's injection with the configuration that is compiled in: refused in few words, left alone with a
//! reason, or changed by a patch that makes the very pod that injection says.
//!
//! The input is the pod as JSON; a first byte of `n` stands for a cluster with native sidecars.
#![no_main]

use std::sync::LazyLock;

use istio_cni::inject::apply;
use istio_cni::inject::istio::{BuiltIn, InjectionOutcome, Injector, Request};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

static INJECTOR: LazyLock<Injector> =
    LazyLock::new(|| Injector::new(BuiltIn::default().config().expect("the configuration that is compiled in")));

/// The pod with its sidecar, where it gets one.
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

fuzz_target!(|input: &[u8]| {
    let (native, json) = input.strip_prefix(b"n").map_or((false, input), |rest| (true, rest));
    let Ok(pod) = serde_json::from_slice::<Value>(json) else { return };
    let Some(once) = injected(&pod, native) else { return };
    let twice = injected(&once, native).expect("an injected pod is injected again");
    assert_eq!(once, twice, "a second injection changes nothing");
});
