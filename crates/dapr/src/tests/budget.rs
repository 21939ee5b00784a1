//! Tests that an injection is charged to the budget before values are built whose size grows with the pod.

use gotemplate::{Budget, Exceeded, Limits};

use super::*;
use crate::{Refusal, review_within};

/// Reviews a pod with these limits, and returns the part of them that is left, or the refusal.
fn left(pod: &Value, limits: Limits) -> Result<Limits, Refusal> {
    left_with(pod, &[], limits)
}

fn left_with(pod: &Value, components: &[Component], limits: Limits) -> Result<Limits, Refusal> {
    let mut budget = Budget::new(limits);
    let request = Request { kind: "Pod", namespace: "testns", user: CONTROLLER, object: Some(pod) };
    let (accounts, trust) = (BTreeSet::from([String::new()]), trust());
    let facts = Facts { accounts: &accounts, trust: &trust, components: Some(components) };
    let outcome = review_within(&request, &settings(&[]), &facts, &mut budget);
    match outcome.decision {
        Decision::Inject { .. } => Ok(budget.left()),
        Decision::Refuse(ref refusal) => {
            assert_eq!((outcome.decision.reason(), outcome.patch.len()), ("budget", 0), "{refusal}");
            Err(refusal.clone())
        }
        Decision::Skip(skip) => panic!("{skip}"),
    }
}

fn spent(pod: &Value) -> (u64, usize) {
    let (all, left) = (Limits::default(), left(pod, Limits::default()).expect("it is within the budget"));
    (all.steps - left.steps, all.bytes - left.bytes)
}

fn with_containers(annotations: &[(&str, &str)], count: usize) -> Value {
    let mut pod = pod(annotations);
    pod["spec"]["containers"] = vec![json!({}); count].into();
    pod
}

#[test]
fn twice_the_containers_or_elements_are_charged_twice() {
    let empty = spent(&with_containers(&[], 0));
    let containers = |count| spent(&with_containers(&[], count)).0 - empty.0;
    assert_eq!((containers(2000), containers(0)), (2 * containers(1000), 0));
    for list in ["env", "env-from-secret", "volume-mounts", "volume-mounts-rw", "pluggable-components"] {
        let elements = |count| spent(&with_containers(&[(list, &"A=:,".repeat(count))], 0)).0 - empty.0;
        assert_eq!(elements(2000), 2 * elements(1000), "{list}");
        assert!(elements(1000) >= 4000, "{list}");
    }
}

#[test]
fn a_path_is_charged_for_each_container_that_gets_it() {
    for path in ["unix-domain-socket-path", "pluggable-components-sockets-folder"] {
        let long = "x".repeat(100_000);
        let annotations = [(path, long.as_str()), ("pluggable-components", ",")];
        let bytes = |count| spent(&with_containers(&annotations, count)).1;
        assert!(bytes(20) - bytes(10) >= 10 * long.len(), "{path}");
        let refusal = left(&with_containers(&annotations, 100), Limits::default()).unwrap_err();
        assert_eq!(refusal, Refusal::Exceeded(Exceeded::Bytes(8 << 20)), "{path}");
    }
}

#[test]
fn what_is_over_the_budget_is_refused_with_its_reason() {
    let limits = Limits { steps: 10_000, ..Limits::default() };
    left(&with_containers(&[], 100), limits).unwrap();
    for pod in [with_containers(&[], 1000), with_containers(&[("env", &"A=,".repeat(2000))], 1)] {
        let refusal = left(&pod, limits).unwrap_err();
        assert_eq!(refusal, Refusal::Exceeded(Exceeded::Steps(10_000)));
        assert!(refusal.to_string().starts_with("this pod cannot be injected: processing takes more than 10000 steps"));
    }
}

#[test]
fn warnings_repeat_the_beginning_of_long_values() {
    let long = "7".repeat(100_000);
    let annotations =
        [("app-port", long.as_str()), ("sidecar-cpu-request", &long), ("volume-mounts", &format!("{long}:/x"))];
    let warnings = reviewed(&pod(&annotations), &settings(&[])).warnings;
    assert_eq!(warnings.len(), 3, "{}", warnings.len());
    for warning in warnings {
        assert!(warning.len() < 2200 && warning.contains("\"…"), "{warning}");
    }
}

/// Returns Components whose containers have this number of bytes each.
fn components(count: usize, bytes: usize) -> Vec<Component> {
    let component = |number| {
        let mut container = json!({"image": format!("c:{number}")}).to_string();
        container += &" ".repeat(bytes - container.len());
        Component { name: format!("c{number}"), container, scopes: vec!["app".into()] }
    };
    (0..count).map(component).collect()
}

#[test]
fn components_are_charged_by_the_length_of_their_containers_before_they_are_parsed() {
    let requesting = pod(&[("inject-pluggable-components", "true")]);
    let steps = |components: &[Component]| {
        let left = left_with(&requesting, components, Limits::default()).expect("it is within the budget");
        Limits::default().steps - left.steps
    };
    let none = steps(&[]);
    let (one, two) = (steps(&components(10, 1000)) - none, steps(&components(10, 2000)) - none);
    assert_eq!((one, two - one), (20_020, 20_000));
    let refusal = left_with(&requesting, &components(20, 256 << 10), Limits::default()).unwrap_err();
    assert_eq!(refusal, Refusal::Exceeded(Exceeded::Steps(1_000_000)));
    assert!(refusal.to_string().contains("the Components of its namespace"), "{refusal}");
    // Components that are not injected are charged only for the comparison of their scopes.
    let others: Vec<_> =
        components(20, 256 << 10).into_iter().map(|c| Component { scopes: vec!["x".into(); 9], ..c }).collect();
    assert_eq!(steps(&others) - none, 200);
    let refusal = left_with(&pod(&[]), &components(20, 256 << 10), Limits::default());
    assert!(refusal.is_ok(), "a pod that requests no components is not charged for them");
}
