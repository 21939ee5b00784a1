//! Tests of pods with both Istio's and Dapr's sidecars, injected in either order.

use super::*;
use inject::istio;

fn istio(pod: &Value) -> Value {
    let config = istio::BuiltIn::default().config().expect("a configuration");
    let request = istio::Request::new(pod, "testns");
    match istio::Injector::new(config).review(&request).expect("a review") {
        istio::InjectionOutcome::Injected { injected, .. } => injected.pod,
        istio::InjectionOutcome::Skipped(decision) => panic!("{decision:?}"),
    }
}

fn dapr(pod: &Value) -> Value {
    apply(pod, &reviewed(pod, &settings(&[])))
}

fn names(pod: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = pod["spec"]["containers"]
        .as_array()
        .expect("containers")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn both_sidecars_are_injected_in_either_order() {
    let pod = pod(&[("unix-domain-socket-path", "/tmp/socket")]);
    for order in [[istio, dapr], [dapr, istio]] {
        let mut both = pod.clone();
        for inject in order {
            both = inject(&both);
        }
        assert_eq!(names(&both), ["app", "daprd", "istio-proxy"]);
        let volumes: Vec<&Value> =
            both["spec"]["volumes"].as_array().expect("volumes").iter().map(|volume| &volume["name"]).collect();
        assert!(volumes.contains(&&json!("dapr-identity-token")), "{volumes:?}");
        let unique: BTreeSet<String> = volumes.iter().map(ToString::to_string).collect();
        assert_eq!(unique.len(), volumes.len(), "{volumes:?}");
        // The API server calls a webhook again when another one has changed the pod.
        assert_eq!(dapr(&both), both);
        assert_eq!(names(&istio(&both)), ["app", "daprd", "istio-proxy"]);
    }
}
