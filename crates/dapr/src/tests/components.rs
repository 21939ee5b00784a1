//! Tests of pluggable components in the pod and from Components.

use super::*;

const FOLDER: &str = "/tmp/dapr-components-sockets";

fn component(name: &str, container: &Value, scopes: &[&str]) -> Component {
    let container = container.to_string();
    Component::read(&json!({
        "metadata": {"name": name, "annotations": {"dapr.io/component-container": container}},
        "scopes": scopes,
    }))
    .expect("a component with a container")
}

fn with_components(pod: &Value, components: &[Component]) -> (Value, InjectionOutcome) {
    let outcome = reviewed_with(pod, &settings(&[]), &trust(), Some(components));
    (apply(pod, &outcome), outcome)
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|item| item["name"].as_str().expect("a name")).collect()
}

#[test]
fn without_components_no_volume_is_shared() {
    let other = component("c", &json!({"image": "c:1"}), &[]);
    let (pod, _) = with_components(&pod(&[]), &[other]);
    assert_eq!(names(&pod["spec"]["volumes"]), ["dapr-identity-token"]);
    assert_eq!(variable(daprd(&pod), "DAPR_COMPONENT_SOCKETS_FOLDER"), None);
    let (with, outcome) = with_components(&super::pod(&[("inject-pluggable-components", "yes")]), &[]);
    assert_eq!(with, pod_with_annotation(&pod, "inject-pluggable-components", "yes"));
    assert!(outcome.warnings.is_empty(), "{outcome:?}");
}

fn pod_with_annotation(pod: &Value, name: &str, value: &str) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["annotations"][format!("dapr.io/{name}")] = value.into();
    pod
}

#[test]
fn a_component_of_the_pod_gets_sockets_but_no_application_variables() {
    let mut marked = pod(&[("pluggable-components", "memory,other"), ("unix-domain-socket-path", "/s")]);
    marked["spec"]["containers"] = json!([{"name": "memory"}, {"name": "app"}]);
    let (pod, _) = with_components(&marked, &[]);
    let memory = &pod["spec"]["containers"][0];
    assert_eq!(memory["env"], json!([{"name": "DAPR_COMPONENT_SOCKETS_FOLDER", "value": FOLDER}]));
    let shared = json!({"name": "dapr-components-unix-domain-socket", "mountPath": FOLDER});
    assert_eq!(memory["volumeMounts"], json!([shared]));
    assert_eq!(
        pod["spec"]["containers"][1]["volumeMounts"],
        json!([{"name": "dapr-unix-domain-socket", "mountPath": "/s"}])
    );
    assert_eq!(daprd(&pod)["volumeMounts"].as_array().expect("mounts").last(), Some(&shared));
    // The pod has no volumes: the first operation creates the list, and later operations append to it.
    let expected = ["dapr-unix-domain-socket", "dapr-identity-token", "dapr-components-unix-domain-socket"];
    assert_eq!(names(&pod["spec"]["volumes"]), expected);
}

#[test]
fn component_names_include_whitespace() {
    let mut marked = pod(&[("pluggable-components", "a, app")]);
    marked["spec"]["containers"][0]["name"] = "app".into();
    let (pod, _) = with_components(&marked, &[]);
    assert_eq!(names(&pod["spec"]["volumes"]), ["dapr-identity-token"]);
}

#[test]
fn a_component_adds_its_container_and_directories() {
    let container = json!({"image": "c:1", "volumeMounts": [{"name": "ro", "mountPath": "/ro"}, {"name": "rw", "mountPath": "/rw"}]});
    let second = json!({"image": "d:1", "name": "named", "env": [{"name": "X"}], "volumeMounts": [{"name": "rw", "mountPath": "/rw"}]});
    let requesting = pod(&[("inject-pluggable-components", "true"), ("pluggable-components-sockets-folder", "/f")]);
    let components = [component("one", &container, &["app"]), component("two", &second, &[])];
    let (pod, outcome) = with_components(&requesting, &components);
    let expected = ["dapr-identity-token", "dapr-components-unix-domain-socket", "ro", "rw"];
    assert_eq!(names(&pod["spec"]["volumes"]), expected);
    assert_eq!(names(&pod["spec"]["containers"]), ["app", "daprd", "one", "named"]);
    let injected = &pod["spec"]["containers"][3];
    assert_eq!(injected["env"], json!([{"name": "X"}, {"name": "DAPR_COMPONENT_SOCKETS_FOLDER", "value": "/f"}]));
    assert_eq!(names(&injected["volumeMounts"]), ["rw", "dapr-components-unix-domain-socket"]);
    let tail = ["/spec/volumes/-", "/spec/volumes/-", "/spec/volumes/-", "/spec/containers/-", "/spec/containers/-"];
    let paths = paths(&outcome);
    assert_eq!(paths[paths.len() - 5..], tail);
}

#[test]
fn components_are_ignored_with_a_reason() {
    let image = |image: &str| json!({"image": image});
    let components = [
        component("scoped", &image("a"), &["other"]),
        component("first", &image("b"), &[]),
        component("same-image", &image("b"), &[]),
        component("odd", &json!({"image": "c", "env": "none"}), &[]),
        component("text", &json!("x"), &[]),
        component("nulls", &json!({"image": "d", "env": null, "volumeMounts": null}), &[]),
    ];
    let (pod, outcome) = with_components(&pod(&[("inject-pluggable-components", "true")]), &components);
    assert_eq!(names(&pod["spec"]["containers"]), ["app", "daprd", "first", "nulls"]);
    assert_eq!(outcome.warnings.len(), 2, "{outcome:?}");
    assert!(
        outcome.warnings[0].contains("\"odd\"") && outcome.warnings[0].contains("env is not a list"),
        "{outcome:?}"
    );
    assert!(outcome.warnings[1].contains("\"text\""), "{outcome:?}");
}

#[test]
fn a_component_without_a_container_is_ignored() {
    assert_eq!(Component::read(&json!({"metadata": {"name": "c"}})), None);
    let empty = json!({"metadata": {"name": "c", "annotations": {"dapr.io/component-container": ""}}});
    assert_eq!(Component::read(&empty), None);
}
