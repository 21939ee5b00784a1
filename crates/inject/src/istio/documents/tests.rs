//! Tests of the injection of documents.

use contract::annotation::STATUS;

use super::*;
use crate::istio::BuiltIn;

fn inject(text: &str) -> Result<Document, Error> {
    let document = crate::yaml::value(text).unwrap();
    Injector::new(BuiltIn::default().config().unwrap()).inject_document(document, &|_| false)
}

#[test]
fn other_documents_stay_unchanged() {
    for text in ["apiVersion: v1\nkind: Service", "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: {tasks: []}"]
    {
        assert_eq!(inject(text).unwrap(), Document::Untouched);
    }
}

#[test]
fn a_skipped_workload_is_named_with_the_reason() {
    for (metadata, spec, line) in [
        ("{name: host, namespace: shop}", "{hostNetwork: true}", "Pod \"shop/host\" has host networking enabled"),
        (
            "{name: quiet, labels: {sidecar.istio.io/inject: 'false'}}",
            "{}",
            "Pod \"quiet\" has sidecar injection disabled",
        ),
    ] {
        let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {metadata}\nspec: {spec}\n");
        let Document::Workload { document, skipped, .. } = inject(&text).unwrap() else { panic!("{text}") };
        assert_eq!(skipped[0].to_string(), format!("Skipping injection because {line}"));
        assert_eq!(document["spec"].get("containers"), None);
    }
}

#[test]
fn a_value_that_requests_and_declines_nothing_is_named() {
    for (value, count) in [("'no'", 1), ("banana", 1), ("'true'", 0), ("''", 0)] {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p, labels: {{sidecar.istio.io/inject: {value}}}}}, spec: {{containers: \
             [{{name: a, image: i}}]}}}}"
        );
        let Document::Workload { warnings, skipped, .. } = inject(&text).unwrap() else { panic!("{text}") };
        let ignored = "neither \"true\" nor \"false\", and is ignored: an Istio sidecar, for";
        assert_eq!(warnings.iter().filter(|text| text.contains(ignored)).count(), count, "{warnings:?}");
        assert_eq!(skipped, []);
    }
}

#[test]
fn the_claim_templates_of_a_stateful_set_are_volumes_of_its_pods() {
    let set = |kind: &str| {
        let mount = r#"{"data": {"mountPath": "/data"}}"#;
        let annotations = serde_json::json!({"sidecar.istio.io/userVolumeMount": mount});
        let template =
            serde_json::json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a"}]}});
        let claims = [serde_json::json!({"metadata": {"name": "data"}})];
        let spec = serde_json::json!({"template": template, "volumeClaimTemplates": claims});
        inject(
            &serde_json::json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "s"}, "spec": spec})
                .to_string(),
        )
    };
    let Document::Workload { document, .. } = set("StatefulSet").unwrap() else { panic!("a set is a workload") };
    let volumes = document["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().all(|volume| volume["name"] != "data"), "{volumes:?}");
    let refused = set("Deployment").unwrap_err().to_string();
    assert!(refused.contains("mounts volume \"data\", which the pod does not have"), "{refused}");
}

#[test]
fn a_list_is_injected_item_by_item() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: s}}\n\
                - {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}\n";
    let Document::Workload { document, .. } = inject(list).unwrap() else { panic!("a list has workloads") };
    assert_eq!(document["items"][0].get("spec"), None);
    assert_eq!(document["items"][1]["spec"]["containers"][1]["name"], "istio-proxy");
}

fn cron_job(job: &str, pod: &str) -> Value {
    let text = format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: c}}\nspec:\n  jobTemplate:\n    metadata: {job}\n    spec:\n      \
         template:\n        metadata: {pod}\n        spec: {{containers: [{{name: a}}]}}\n"
    );
    crate::yaml::value(&text).unwrap()
}

const JOB: &str = "/spec/jobTemplate/metadata";
const POD: &str = "/spec/jobTemplate/spec/template/metadata";

#[test]
fn the_pods_of_a_cron_job_have_labels_and_annotations_as_its_job_template() {
    let injector = Injector::new(BuiltIn::default().config().unwrap());
    let injected = |document: Value, native: bool| match injector.inject_document(document, &|_| native).unwrap() {
        Document::Workload { document, .. } => document,
        Document::Untouched => panic!("a cron job is a workload"),
    };
    let once = injected(cron_job("{labels: {own: '1'}}", "{annotations: {own: '2'}}"), false);
    let (job, pod) = (once.pointer(JOB).unwrap(), once.pointer(POD).unwrap());
    let status = &pod["annotations"][STATUS];
    assert!(status.is_string() && *status == job["annotations"][STATUS], "{once:#}");
    assert_eq!((&pod["annotations"]["own"], job["annotations"].get("own")), (&"2".into(), None));
    assert_eq!((pod["labels"].get("own"), &job["labels"]["own"]), (None, &"1".into()));
    assert_eq!(pod["labels"]["security.istio.io/tlsMode"], "istio");
    let plain = injected(cron_job("{labels: {own: '1'}}", "{annotations: {own: '2'}}"), true);
    assert_eq!(injected(once.clone(), true), plain, "injected again with other settings");
    // Istio's kube-inject writes nothing into the metadata of the pod template.
    let mut istios = once;
    *istios.pointer_mut(POD).unwrap() = serde_json::json!({"annotations": {"own": "2"}});
    assert_eq!(injected(istios, true), plain, "injected by Istio before");
}

#[test]
fn a_job_template_keeps_no_label_of_a_former_network() {
    let injector = |network: &str| {
        let mut config = BuiltIn::default().config().unwrap();
        config.values.network = network.to_owned();
        Injector::new(config)
    };
    let injected =
        |network: &str, document: Value| match injector(network).inject_document(document, &|_| false).unwrap() {
            Document::Workload { document, .. } => document,
            Document::Untouched => panic!("a cron job is a workload"),
        };
    let plain = || cron_job("{labels: {own: '1'}}", "{}");
    for (first, second) in [("one", "two"), ("one", ""), ("", "two")] {
        let twice = injected(second, injected(first, plain()));
        assert_eq!(twice, injected(second, plain()), "{first:?} and then {second:?}");
    }
}

#[test]
fn the_pod_template_of_a_cron_job_declines_and_has_settings() {
    let injector = Injector::new(BuiltIn::default().config().unwrap());
    let inject = |pod: &str| injector.inject_document(cron_job("{}", pod), &|_| false);
    let Document::Workload { skipped, .. } = inject("{labels: {sidecar.istio.io/inject: 'false'}}").unwrap() else {
        panic!("a cron job is a workload")
    };
    assert_eq!(skipped[0].name, "c");
    for (pod, is_skipped) in [
        ("{}", true),
        ("{labels: {sidecar.istio.io/inject: banana}}", true),
        ("{labels: {sidecar.istio.io/inject: 'true'}}", false),
    ] {
        let document = cron_job("{annotations: {sidecar.istio.io/inject: 'false'}}", pod);
        let Document::Workload { skipped, warnings, .. } = injector.inject_document(document, &|_| false).unwrap()
        else {
            panic!("a cron job is a workload")
        };
        assert_eq!((skipped.len() == 1, warnings.len() == 1), (is_skipped, !is_skipped), "{pod}: {warnings:?}");
    }
    let mode = "{annotations: {sidecar.istio.io/interceptionMode: NONE}}";
    let Document::Workload { document, .. } = inject(mode).unwrap() else { panic!("a cron job is a workload") };
    assert_eq!(document.pointer("/spec/jobTemplate/spec/template/spec/initContainers"), None);
    assert!(inject("{annotations: {sidecar.istio.io/interceptionMode: wrong}}").is_err());
}

#[test]
fn a_workload_without_a_pod_is_an_error() {
    for (version, kind, metadata, error) in [
        ("apps/v1", "Deployment", "{name: d}", "Deployment \"d\": it has no pod: spec.template.spec is required"),
        ("v1", "Pod", "{generateName: web-}", "Pod \"web-\": it has no pod: spec is required"),
    ] {
        let found = inject(&format!("apiVersion: {version}\nkind: {kind}\nmetadata: {metadata}\n")).unwrap_err();
        assert_eq!(found.to_string(), error);
    }
}

#[test]
fn a_refusal_names_the_workload_also_in_a_list() {
    let pod = |name: &str, ports: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop, annotations: \
             {{traffic.sidecar.istio.io/excludeInboundPorts: '{ports}'}}}}, spec: {{containers: [{{name: a}}]}}}}"
        )
    };
    let list = format!("{{apiVersion: v1, kind: List, items: [{}, {}]}}", pod("good", "80"), pod("bad", "80,"));
    for text in [pod("bad", "80,"), list] {
        let error = inject(&text).unwrap_err().to_string();
        assert!(error.starts_with("Pod \"shop/bad\": invalid value \"80,\" for annotation"), "{error}");
    }
}

#[test]
fn warnings_name_the_workload_and_each_pod_s_node_decides() {
    let config = BuiltIn::default().config().unwrap();
    let injector = Injector::new(config);
    let pod = |node: &str| {
        let spec = format!("{{nodeName: {node}, runtimeClassName: kata, containers: [{{name: a}}]}}");
        let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}");
        injector.inject_document(crate::yaml::value(&text).unwrap(), &|node| node == Some("new")).unwrap()
    };
    for (node, native) in [("new", true), ("old", false), ("", false)] {
        let Document::Workload { document, warnings, .. } = pod(node) else { panic!("it is a pod") };
        assert!(warnings[0].starts_with("Pod \"p\": runtimeClassName \"kata\" is a sandbox"), "{warnings:?}");
        let inits = document["spec"]["initContainers"].as_array().unwrap();
        assert_eq!(inits.iter().any(|container| container["name"] == "istio-proxy"), native, "{node}");
    }
}
