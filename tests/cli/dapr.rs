//! `istio-cnictl` with Dapr: documents get the sidecar that the webhook's `/mutate` injects, and pods are explained.

use dapr::{Era, Facts, Request, Settings, Trust, User, review};
use inject::{apply, documents, yaml};
use serde_json::{Value, json};

use crate::cnictl::{cnictl, explained, text};

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata:   {name: web} # kept\n";

/// Returns a workload of this kind whose pods have Dapr enabled.
fn workload(api: &str, kind: &str, name: &str, annotations: &str) -> String {
    let template = format!(
        "{{metadata: {{annotations: {{dapr.io/enabled: \"true\"{annotations}}}}}, spec: {{containers: [{{name: app, image: a}}]}}}}"
    );
    let spec = match kind {
        "CronJob" => format!("{{jobTemplate: {{spec: {{template: {template}}}}}}}"),
        _ => format!("{{template: {template}}}"),
    };
    format!("apiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n")
}

/// Returns the output's documents and standard error.
fn injected(input: &str, args: &[&str]) -> (Vec<Value>, String) {
    let dir = tempfile::tempdir().unwrap();
    let anchors = dir.path().join("ca.crt");
    std::fs::write(&anchors, "PEM").unwrap();
    let given = ["dapr-inject", "-f", "-", "--daprImage=daprd:1", "--daprTrustAnchors", anchors.to_str().unwrap()];
    let done = cnictl(&[&given, args].concat(), input, None);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let output = text(&done.stdout);
    let documents = documents(&output).unwrap().into_iter().filter(|text| !text.trim().is_empty());
    (documents.map(|text| yaml::value(text).unwrap()).collect(), text(&done.stderr))
}

fn names(spec: &Value) -> Vec<&str> {
    spec["containers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn a_pod_is_injected_as_by_the_webhook() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "shop", "annotations": { "dapr.io/enabled": "true", "dapr.io/env": "A=1" } },
        "spec": { "containers": [{ "name": "app", "image": "a" }] },
    });
    let (found, said) = injected(&pod.to_string(), &["--daprSet=NATIVE_SIDECAR_ENABLED=true", "--daprMtls=false"]);
    let env = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd:1"), ("NATIVE_SIDECAR_ENABLED", "true")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let settings = Settings::from_env(&env, "", Era::Current).unwrap();
    let trust = Trust { anchors: Some("PEM".into()), issuer: None, mtls: false };
    let facts = Facts { accounts: &Default::default(), trust: &trust, components: Some(&[]) };
    let request = Request { kind: "Pod", namespace: "shop", user: User::master(), object: Some(&pod) };
    let admitted = apply(pod.clone(), &review(&request, &settings, &facts).patch).unwrap();
    assert_eq!(admitted["spec"]["initContainers"][0]["name"], "daprd");
    for pointer in ["/metadata/labels", "/metadata/annotations", "/spec/containers/0/env", "/spec/volumes"] {
        assert_eq!(found[0].pointer(pointer), admitted.pointer(pointer), "{pointer}");
    }
    let [ours, theirs] = [&found[0], &admitted].map(|pod| &pod["spec"]["initContainers"][0]);
    for key in ["name", "image", "args", "env", "ports", "restartPolicy", "volumeMounts"] {
        assert_eq!(ours[key], theirs[key], "{key}");
    }
    assert_eq!(said, "");
}

#[test]
fn pod_templates_of_workloads_are_injected() {
    for (api, kind, template) in [
        ("apps/v1", "Deployment", "/spec/template"),
        ("batch/v1", "Job", "/spec/template"),
        ("batch/v1", "CronJob", "/spec/jobTemplate/spec/template"),
    ] {
        let (found, _) = injected(&workload(api, kind, "web", ""), &[]);
        let pod = found[0].pointer(template).unwrap();
        assert_eq!(names(&pod["spec"]), ["app", "daprd"], "{kind}");
        // The pods have no names yet, so the app ID is the workload's name.
        assert_eq!(pod["metadata"]["annotations"]["dapr.io/app-id"], "web", "{kind}");
        assert_eq!(pod["metadata"]["labels"]["dapr.io/app-id"], "web", "{kind}");
        for invented in ["generateName", "namespace", "name"] {
            assert_eq!(pod["metadata"].get(invented), None, "{kind}");
        }
        let daprd = &pod["spec"]["containers"][1];
        assert_eq!(daprd["env"][0], json!({ "name": "NAMESPACE", "value": "shop" }), "{kind}");
    }
    let (found, _) = injected(&workload("apps/v1", "StatefulSet", "web", ", dapr.io/app-id: w"), &[]);
    assert_eq!(found[0].pointer("/spec/template/metadata/labels/dapr.io~1app-id"), Some(&json!("w")));
}

#[test]
fn documents_without_dapr_are_unchanged_and_a_second_run_changes_nothing() {
    let declined = workload("apps/v1", "Deployment", "web", "").replace("\"true\"", "\"false\"");
    let input = format!("{SERVICE}---\n{declined}---\n");
    let file = tempfile::NamedTempFile::new().unwrap();
    let anchors = format!("--daprTrustAnchors={}", file.path().display());
    let args = ["dapr-inject", "-f", "-", "--daprImage=d", &*anchors];
    let done = cnictl(&args, &input, None);
    assert_eq!((text(&done.stdout), text(&done.stderr)), (input, String::new()));
    let once = text(&cnictl(&args, &workload("apps/v1", "Deployment", "web", ""), None).stdout);
    assert!(once.contains("name: daprd"), "{once}");
    assert_eq!(text(&cnictl(&args, &once, None).stdout), once);
}

#[test]
fn components_of_the_same_file_add_their_containers_and_warnings_are_printed() {
    let component = "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: memory, annotations: \
                     {dapr.io/component-container: '{\"image\": \"memory:1\"}'}}\n";
    let annotations = ", dapr.io/inject-pluggable-components: \"true\", dapr.io/metrics-port: many";
    let list = format!("{component}---\n{}", workload("apps/v1", "Deployment", "web", annotations));
    let (found, said) = injected(&list, &[]);
    assert_eq!(names(&found[1]["spec"]["template"]["spec"]), ["app", "daprd", "memory"]);
    let warning =
        "===> Deployment \"shop/web\": dapr.io/metrics-port: \"many\" is not a whole number in range and is ignored\n";
    assert_eq!(said, warning);
}

#[test]
fn invalid_input_is_reported_and_nothing_is_written() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let anchors = format!("--daprTrustAnchors={}", file.path().display());
    let deployment = workload("apps/v1", "Deployment", "web", "");
    let image = workload("apps/v1", "Deployment", "web", ", dapr.io/sidecar-image: \"\"");
    let no_id = workload("apps/v1", "StatefulSet", "web", "");
    for (args, input, code, said) in [
        (&["-f", "-", "--daprImage=d"][..], &*deployment, 1, "name their file (--daprTrustAnchors)"),
        (&["-f", "-", &*anchors], &*deployment, 1, "SIDECAR_IMAGE is not set or empty"),
        (&["--daprImage=d", &*anchors], "", 1, "filename not specified"),
        (&["-f", "-", "--daprImage=d", &*anchors, "--daprSet=x"], "", 64, "write NAME=VALUE"),
        (
            &["-f", "-", "--daprImage=d", &*anchors, "--daprSet=ALLOWED_SERVICE_ACCOUNTS_PREFIX_NAMES=nocolon"],
            &*deployment,
            1,
            r#"ALLOWED_SERVICE_ACCOUNTS_PREFIX_NAMES: entry 1, "nocolon": expected <namespace>:<name>"#,
        ),
        (&["-f", "-", "--daprImage=d", &*anchors], "a: b\n---\na: [", 1, "document 2 is not YAML"),
        (
            &["-f", "-", "--daprImage=d", &*anchors],
            &*image,
            1,
            "Deployment \"shop/web\": dapr.io/sidecar-image is empty",
        ),
        (
            &["-f", "-", "--daprImage=d", &*anchors],
            &*no_id,
            1,
            "StatefulSet \"shop/web\": value for the dapr.io/app-id",
        ),
        (&["-f", "-", "--daprImage=d", "--daprTrustAnchors=/nowhere"], &*deployment, 1, "open /nowhere: "),
    ] {
        let done = cnictl(&[&["dapr-inject"], args].concat(), input, None);
        assert_eq!(done.status.code(), Some(code), "{args:?}: {}", text(&done.stderr));
        assert!(text(&done.stderr).contains(said), "{args:?}: {}", text(&done.stderr));
        assert_eq!(text(&done.stdout), "", "{args:?}");
    }
}

#[test]
fn a_pod_of_dapr_is_explained_like_one_of_istio() {
    let ports = ", dapr.io/exclude-ports-from-redirection: \"true\", dapr.io/metrics-port: many";
    let input = workload("apps/v1", "Deployment", "web", ports);
    let pods = explained(&["--builtIn", "-f", "-"], &input, None);
    let pod = &pods[0];
    assert_eq!(
        pod["dapr"],
        json!({ "injected": true, "rule": "injected", "reason": "daprd is injected for web", "containers": ["daprd"] })
    );
    assert_eq!(pod["injection"]["rule"], "policy");
    let excluded = &pod["redirection"]["parameters"]["inbound-ports-exclude"];
    assert!(excluded.as_array().unwrap().contains(&json!("50002")), "{excluded}");
    let ignored = "dapr.io/metrics-port: \"many\" is not a whole number in range and is ignored";
    assert_eq!(pod["warnings"], json!([ignored]));
    let said = text(&cnictl(&["explain", "--builtIn", "-f", "-"], &input, None).stdout);
    for line in
        ["  dapr:       yes: daprd is injected for web; it gets daprd".to_owned(), format!("  warning:    {ignored}")]
    {
        assert!(said.lines().any(|present| present == line), "no {line:?} in\n{said}");
    }
}

#[test]
fn each_skip_and_refusal_of_dapr_is_explained_with_its_rule() {
    let pod = workload("apps/v1", "Deployment", "web", ", dapr.io/sidecar-image: i");
    for (input, rule, redirection) in [
        (pod.replace("\"true\"", "\"yes\""), "not_enabled", Value::Null),
        (pod.replace("name: app,", "name: daprd,"), "already", Value::Null),
        (pod.replace("sidecar-image: i", "sidecar-image: \"\""), "error", json!("no_pod")),
        (pod.replace("sidecar-image: i", "app-id: a.b"), "error", json!("no_pod")),
    ] {
        let pods = explained(&["--builtIn", "-f", "-"], &input, None);
        assert_eq!(
            (&pods[0]["dapr"]["rule"], &pods[0]["redirection"]["reason"]),
            (&json!(rule), &redirection),
            "{input}"
        );
    }
    let other = pod.replace("dapr.io/enabled: \"true\", dapr.io/sidecar-image: i", "a: b");
    let pods = explained(&["--builtIn", "-f", "-"], &other, None);
    assert_eq!(pods[0].get("dapr"), None, "a pod without Dapr has no member dapr");
}
