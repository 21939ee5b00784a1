//! Tests of each rule in each era, and of the table in Istio's documentation.

use serde_json::{Value, json};

use super::*;

const ERAS: [Era; 5] = [Era::V0_8, Era::V1_1, Era::V1_9, Era::V1_12, Era::V1_27];

fn policy(era: Era, default: Default) -> Policy {
    let selector =
        |key: &str| serde_json::from_value(json!({"matchExpressions": [{"key": key, "operator": "Exists"}]})).unwrap();
    Policy { era, default, never: vec![selector("never")], always: vec![selector("always")] }
}

fn requesting(labels: &Value, annotations: &Value) -> Value {
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": []}})
}

fn reason(era: Era, pod: &Value) -> (bool, Reason) {
    let decision = policy(era, Default::Disabled).decide(pod, "shop");
    (decision.inject, decision.reason)
}

/// Checks all combinations of policy, `never` selector, `always` selector and annotation, in the order of the
/// documented table.
#[test]
fn the_documented_table_applies_since_1_1() {
    let rows = [
        ("enabled", "true", ["yes", "yes", "yes", "yes"]),
        ("enabled", "false", ["no", "no", "no", "no"]),
        ("enabled", "-", ["no", "no", "yes", "yes"]),
        ("disabled", "true", ["yes", "yes", "yes", "yes"]),
        ("disabled", "false", ["no", "no", "no", "no"]),
        ("disabled", "-", ["no", "no", "yes", "no"]),
    ];
    let selectors = [(true, true), (true, false), (false, true), (false, false)];
    let mut count = 0;
    for (default, annotation, injected) in rows {
        for ((never, always), injected) in selectors.into_iter().zip(injected) {
            let mut labels = serde_json::Map::new();
            labels.extend(
                [("never", never), ("always", always)].into_iter().filter(|l| l.1).map(|l| (l.0.to_owned(), json!(""))),
            );
            let annotations = if annotation == "-" { json!({}) } else { json!({annotation::INJECT: annotation}) };
            let default = if default == "enabled" { Default::Enabled } else { Default::Disabled };
            for era in &ERAS[1..] {
                let decision = policy(*era, default.clone()).decide(&requesting(&json!(labels), &annotations), "shop");
                assert_eq!(decision.inject, injected == "yes", "{era:?} {default:?} {labels:?} {annotation}");
            }
            count += 1;
        }
    }
    assert_eq!(count, 24);
}

#[test]
fn host_network_and_system_namespaces_take_precedence() {
    let mut pod = requesting(&json!({}), &json!({annotation::INJECT: "true"}));
    let decide = |era, pod: &Value, namespace| policy(era, Default::Enabled).decide(pod, namespace).reason;
    for era in ERAS {
        assert_eq!(decide(era, &pod, "kube-system"), Reason::IgnoredNamespace("kube-system".to_owned()));
    }
    assert_eq!(decide(Era::V1_1, &pod, "kube-node-lease").label(), "annotation");
    assert_eq!(decide(Era::V1_9, &pod, "kube-node-lease").label(), "ignored_namespace");
    pod["spec"]["hostNetwork"] = json!(true);
    assert_eq!(decide(Era::V1_27, &pod, "kube-system"), Reason::HostNetwork);
}

#[test]
fn an_overruled_request_is_a_warning() {
    let mut pod = requesting(&json!({annotation::INJECT: "true"}), &json!({}));
    pod["spec"]["hostNetwork"] = json!(true);
    let decide = |pod: &Value, namespace| policy(Era::V1_27, Default::Enabled).decide(pod, namespace);
    let decision = decide(&pod, "shop");
    assert_eq!((decision.inject, &decision.warnings[..]), (false, &[Warning::Overruled][..]));
    assert_eq!(decision.sentence(), "no Istio sidecar, for it uses the host's network");
    // Without a request there is no warning.
    pod["metadata"] = json!({});
    assert_eq!(decide(&pod, "shop").warnings, []);
    assert_eq!(decide(&requesting(&json!({annotation::INJECT: "false"}), &json!({})), "kube-system").warnings, []);
}

#[test]
fn a_container_of_a_skipped_pod_that_asks_for_an_image_is_a_warning() {
    let auto = |name: &str| json!({"name": name, "image": "auto"});
    let spec = json!({"containers": [auto("istio-proxy"), {"name": "a"}], "initContainers": [auto("b")]});
    for (value, skipped) in [("true", false), ("false", true)] {
        let mut pod = requesting(&json!({annotation::INJECT: value}), &json!({}));
        pod["spec"] = spec.clone();
        let decision = policy(Era::V1_27, Default::Enabled).decide(&pod, "shop");
        let warnings = ["b", "istio-proxy"].map(|name| Warning::WithoutImage(name.to_owned()));
        assert_eq!(decision.warnings, if skipped { warnings.to_vec() } else { Vec::new() });
        pod["spec"]["hostNetwork"] = json!(true);
        let decision = policy(Era::V1_27, Default::Enabled).decide(&pod, "shop");
        assert_eq!(decision.warnings.first() == Some(&Warning::Overruled), !skipped, "{decision:?}");
        assert!(decision.warnings.ends_with(&warnings), "{decision:?}");
    }
}

#[test]
fn an_invalid_policy_injects_nothing() {
    let pod = requesting(&json!({}), &json!({annotation::INJECT: "true"}));
    let decision = policy(Era::V1_27, Default::Invalid("disable".to_owned())).decide(&pod, "shop");
    assert_eq!((decision.inject, decision.reason), (false, Reason::InvalidPolicy("disable".to_owned())));
}

#[test]
fn the_label_takes_precedence_since_1_12_even_if_empty() {
    let both = requesting(&json!({annotation::INJECT: "true"}), &json!({annotation::INJECT: "false"}));
    assert_eq!(reason(Era::V1_9, &both), (false, Reason::Requested(Source::Annotation, "false".to_owned())));
    assert_eq!(reason(Era::V1_12, &both), (true, Reason::Requested(Source::Label, "true".to_owned())));
    let empty = requesting(&json!({annotation::INJECT: ""}), &json!({annotation::INJECT: "true"}));
    assert_eq!(reason(Era::V1_12, &empty), (false, Reason::Policy));
}

#[test]
fn other_values_decline_before_1_27_and_are_ignored_since() {
    for value in ["banana", "1", "no", "disabled"] {
        let pod = requesting(&json!({}), &json!({annotation::INJECT: value}));
        for era in &ERAS[..4] {
            assert_eq!(reason(*era, &pod), (false, Reason::Requested(Source::Annotation, value.to_owned())));
        }
        let decision = policy(Era::V1_27, Default::Enabled).decide(&pod, "shop");
        assert_eq!((decision.inject, decision.reason), (true, Reason::Policy));
        assert_eq!(decision.warnings, [Warning::Unrecognised(value.to_owned())]);
    }
    for value in ["y", "YES", "On", "true"] {
        assert!(reason(Era::V1_1, &requesting(&json!({}), &json!({annotation::INJECT: value}))).0, "{value}");
    }
}

/// The plugin skips a pod with such a value, so the injector must not inject it.
#[test]
fn a_value_that_go_reads_as_false_declines_since_1_27_too() {
    for value in ["false", "False", "FALSE", "f", "F", "0"] {
        for (labels, annotations, source) in [
            (json!({annotation::INJECT: value}), json!({}), Source::Label),
            (json!({}), json!({annotation::INJECT: value}), Source::Annotation),
        ] {
            let pod = requesting(&labels, &annotations);
            let decision = policy(Era::V1_27, Default::Enabled).decide(&pod, "shop");
            let expected =
                Decision { inject: false, reason: Reason::Requested(source, value.to_owned()), warnings: Vec::new() };
            assert_eq!(decision, expected, "{value}");
        }
    }
}

#[test]
fn never_takes_precedence_over_always_and_0_8_has_neither() {
    let pod = requesting(&json!({"never": "", "always": ""}), &json!({}));
    assert_eq!(reason(Era::V1_1, &pod), (false, Reason::Never(0)));
    assert_eq!(reason(Era::V1_1, &requesting(&json!({"always": ""}), &json!({}))), (true, Reason::Always(0)));
    assert_eq!(reason(Era::V0_8, &requesting(&json!({"always": ""}), &json!({}))), (false, Reason::Policy));
}

#[test]
fn a_pod_for_windows_gets_no_sidecar_even_on_request() {
    let policy = policy(Era::V1_27, Default::Enabled);
    for (field, key) in
        [("os", "name"), ("nodeSelector", "kubernetes.io/os"), ("nodeSelector", "beta.kubernetes.io/os")]
    {
        let mut pod = requesting(&json!({annotation::INJECT: "true"}), &json!({}));
        for (system, reason) in [("linux", "label"), ("windows", "windows")] {
            pod["spec"][field] = json!({key: system});
            let decision = policy.decide(&pod, "shop");
            assert_eq!((decision.inject, decision.reason.label()), (system == "linux", reason), "{field} {key}");
        }
    }
}

#[test]
fn the_build_of_windows_tells_its_pods_and_options_for_windows_do_not() {
    let policy = policy(Era::V1_27, Default::Enabled);
    let reason = |spec: Value| policy.decide(&json!({"spec": spec}), "shop").reason;
    assert_eq!(reason(json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}})), Reason::Windows);
    let options = json!({"windowsOptions": {"runAsUserName": "ContainerUser"}});
    assert_eq!(
        reason(json!({"securityContext": options, "containers": [{"securityContext": options}]})),
        Reason::Policy
    );
}

#[test]
fn an_affinity_that_requires_windows_is_one_for_windows() {
    let term = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/os", "operator": operator, "values": values}]});
    let build = |operator: &str| json!({"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": operator, "values": ["10.0.20348"]}]});
    for (terms, is_windows) in [
        (json!([term("In", &["windows"])]), true),
        (json!([term("In", &["windows"]), term("In", &["windows"])]), true),
        (json!([term("In", &["windows"]), term("In", &["linux"])]), false),
        (json!([term("In", &["windows", "linux"])]), false),
        (json!([term("NotIn", &["windows"])]), false),
        (json!([term("NotIn", &["linux"])]), true),
        (json!([term("NotIn", &["linux"]), term("Exists", &[])]), false),
        (json!([build("Exists")]), true),
        (json!([build("DoesNotExist")]), false),
        (json!([build("In"), term("In", &["windows"])]), true),
        (json!([{}]), false),
        (json!([]), false),
    ] {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let pod = json!({"spec": {"affinity": {"nodeAffinity": required}, "containers": []}});
        let reason = policy(Era::V1_27, Default::Enabled).decide(&pod, "shop").reason;
        assert_eq!(reason == Reason::Windows, is_windows, "{terms}");
    }
}
