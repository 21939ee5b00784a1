//! Tests of merges, lists and directives.

use gotemplate::Limits;
use serde_json::json;

use super::*;

fn merged(pod: Value, overlay: Value) -> Value {
    let mut pod = pod;
    merge_pod(&mut pod, overlay, &mut Budget::default()).unwrap();
    pod
}

fn names(pod: &Value, list: &str) -> Vec<String> {
    pod["spec"][list].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn null_deletes_and_is_never_stored() {
    let pod = merged(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        json!({"metadata": {"labels": {"a": null}}, "spec": {"volumes": [{"name": "v", "emptyDir": null}]}}),
    );
    assert_eq!(pod, json!({"metadata": {"labels": {"b": "2"}}, "spec": {"volumes": [{"name": "v"}]}}));
}

#[test]
fn lists_without_a_key_are_replaced_and_those_with_one_merged() {
    let pod = merged(
        json!({"spec": {"containers": [{"name": "a", "args": ["x"], "env": [{"name": "K", "value": "1"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "args": ["y"], "env": [{"name": "L", "value": "2"}]}]}}),
    );
    let env = json!([{"name": "L", "value": "2"}, {"name": "K", "value": "1"}]);
    assert_eq!(pod, json!({"spec": {"containers": [{"name": "a", "args": ["y"], "env": env}]}}));
}

#[test]
fn new_elements_come_first_unless_an_existing_one_precedes_them() {
    let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}});
    let new = merged(pod.clone(), json!({"spec": {"containers": [{"name": "n"}]}}));
    assert_eq!(names(&new, "containers"), ["n", "a", "b", "c"]);
    let known = merged(pod, json!({"spec": {"containers": [{"name": "b"}, {"name": "n"}]}}));
    assert_eq!(names(&known, "containers"), ["a", "b", "n", "c"]);
}

#[test]
fn directives_replace_delete_and_retain() {
    let pod = json!({"metadata": {"labels": {"a": "1"}}, "spec": {
        "containers": [{"name": "a"}, {"name": "b"}], "volumes": [{"name": "v", "emptyDir": {}, "x": 1}]}});
    let labels = merged(pod.clone(), json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}}));
    assert_eq!(labels["metadata"]["labels"], json!({"b": "2"}));
    let one = merged(pod.clone(), json!({"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}));
    assert_eq!(names(&one, "containers"), ["b"]);
    let all = merged(pod.clone(), json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "n"}]}}));
    assert_eq!(names(&all, "containers"), ["n"]);
    let retain = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {}}]}});
    assert_eq!(merged(pod, retain)["spec"]["volumes"], json!([{"name": "v", "secret": {}}]));
}

#[test]
fn element_order_and_primitive_deletion_are_applied() {
    let pod = json!({"metadata": {"finalizers": ["x", "y"]}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
    let overlay = json!({
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["x"], "finalizers": ["z", "y"]},
        "spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "tty": true}]},
    });
    let pod = merged(pod, overlay);
    assert_eq!(names(&pod, "containers"), ["b", "a"]);
    assert_eq!(pod["metadata"]["finalizers"], json!(["z", "y"]));
}

#[test]
fn a_map_with_a_directive_is_not_added_and_one_that_replaces_keeps_its_members() {
    let pod = json!({"spec": {"containers": [{"name": "a", "args": ["x"]}]}});
    let limits = json!({"$patch": "delete", "limits": {"cpu": "1"}});
    let added = json!({"spec": {"securityContext": limits, "containers": [{"name": "a", "resources": limits}]}});
    assert_eq!(merged(pod.clone(), added), pod);
    let replaced = json!({"spec": {"$patch": "replace", "securityContext": {"$patch": "delete", "runAsUser": 1, "runAsGroup": null}}});
    assert_eq!(merged(pod.clone(), replaced), json!({"spec": {"securityContext": {"runAsUser": 1}}}));
    let retained = json!({"spec": {"$retainKeys": ["containers"], "hostname": null}});
    assert_eq!(merged(pod, retained)["spec"], json!({"containers": [{"name": "a", "args": ["x"]}]}));
}

#[test]
fn an_order_is_that_of_the_original_and_the_directive() {
    let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "dnsConfig": {"searches": ["x", "y"]}}});
    let ordered = |order: &[&str], added: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Value>();
        let mut pod = pod.clone();
        let overlay = json!({"spec": {"$setElementOrder/containers": list(order), "containers": list(added)}});
        merge_pod(&mut pod, overlay, &mut Budget::default()).map(|()| names(&pod, "containers").join(" "))
    };
    assert_eq!(ordered(&["c", "n", "a"], &["n"]), Ok("b c n a".to_owned()));
    assert_eq!(ordered(&["n", "c"], &["n", "c"]), Ok("n a b c".to_owned()));
    assert_eq!(ordered(&["c", "n"], &["n", "c"]), Err(Error::Order("containers".to_owned())));
    assert_eq!(ordered(&["c"], &["n"]), Err(Error::Order("containers".to_owned())));
    let searches = merged(pod.clone(), json!({"spec": {"dnsConfig": {"$setElementOrder/searches": ["y", "x"]}}}));
    assert_eq!(searches["spec"]["dnsConfig"]["searches"], json!(["y", "x"]));
}

#[test]
fn a_difference_is_the_overlay_that_gives_the_other_pod() {
    let from = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {
        "containers": [{"name": "a", "args": ["x"], "env": [{"name": "E", "value": "1"}]}, {"name": "b"}, {"name": "c"}],
        "volumes": [{"name": "v"}], "tolerations": [{"key": "k"}]}});
    let to = json!({"metadata": {"labels": {"a": "1", "c": "3"}, "name": "n"}, "spec": {
        "containers": [{"name": "c"}, {"name": "a", "args": [], "env": [{"name": "F"}, {"name": "E", "value": "2"}]}, {"name": "d"}],
        "tolerations": [{"key": "l"}], "dnsPolicy": "None"}});
    for (from, to) in [(&from, &to), (&to, &from), (&json!({}), &to), (&to, &json!({}))] {
        let overlay = Value::Object(difference(from, to));
        assert_eq!(merged(from.clone(), overlay.clone()), *to, "{overlay:#}");
        assert!(difference(to, to).is_empty());
    }
}

/// Returns the number of steps for merging a pod with `count` variables and `count` volumes into itself.
fn steps(count: usize) -> u64 {
    let list = |key: &str| (0..count).map(|number| json!({"name": format!("{key}{number}")})).collect::<Vec<_>>();
    let pod = json!({"spec": {"containers": [{"name": "a", "env": list("K")}], "volumes": list("v")}});
    let (mut low, mut high) = (0, 1 << 30);
    while low + 1 < high {
        let steps = (low + high) / 2;
        let mut budget = Budget::new(Limits { steps, ..Limits::default() });
        match merge_pod(&mut pod.clone(), pod.clone(), &mut budget) {
            Ok(()) => high = steps,
            Err(error) => {
                assert_eq!(error.to_string(), format!("processing takes more than {steps} steps"));
                low = steps;
            }
        }
    }
    high
}

#[test]
fn steps_are_linear_in_the_size() {
    let (some, twice) = (steps(500), steps(1000));
    assert!(twice <= 2 * some && some >= 1000, "{some} {twice}");
}

#[test]
fn duplicate_elements_are_merged_into_the_first() {
    let env = |names: &[&str]| names.iter().map(|name| json!({"name": name, "value": name})).collect::<Value>();
    let pod = json!({"spec": {"containers": [{"name": "a", "env": env(&["X", "Y", "X"])}]}});
    let overlay = json!({"spec": {"containers": [{"name": "a", "env":
        [{"name": "Z"}, {"name": "X", "value": "1"}, {"name": "Z", "value": "2"}, {"name": "X", "value": "3"}]}]}});
    let expected = json!([{"name": "Z", "value": "2"}, {"name": "X", "value": "3"}, {"name": "X", "value": "X"},
        {"name": "Y", "value": "Y"}]);
    assert_eq!(merged(pod, overlay)["spec"]["containers"][0]["env"], expected);
}

#[test]
fn an_invalid_overlay_is_an_error_with_its_path() {
    let error =
        |pod: Value, overlay: Value| merge_pod(&mut { pod }, overlay, &mut Budget::default()).unwrap_err().to_string();
    let pod = json!({"spec": {"containers": [{"name": "a"}]}});
    assert_eq!(
        error(pod.clone(), json!({"spec": {"containers": [{"image": "i"}]}})),
        "an element of containers lacks name, the key by which elements of this list are merged"
    );
    assert_eq!(
        error(pod.clone(), json!({"spec": {"$patch": "x"}})),
        "$patch: \"x\" is not allowed here: expected replace or delete"
    );
    assert_eq!(
        error(pod, json!({"spec": {"$retainKeys": ["a"], "b": 1}})),
        "$retainKeys does not list \"b\", which is set beside it"
    );
}

#[test]
fn lists_are_merged_at_any_depth_as_their_types_say() {
    let volume = |finalizer: &str| {
        let metadata = json!({"finalizers": [finalizer], "ownerReferences": [{"uid": finalizer}]});
        json!({"spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": metadata}}}]}})
    };
    let pod = merged(volume("a"), volume("b"));
    let metadata = &pod["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["metadata"];
    assert_eq!(*metadata, json!({"finalizers": ["b", "a"], "ownerReferences": [{"uid": "b"}, {"uid": "a"}]}));
    let unknown = |item: &str| json!({"spec": {"unknown": {"containers": [{"name": item}]}}});
    assert_eq!(merged(unknown("a"), unknown("b")), unknown("b"));
}
