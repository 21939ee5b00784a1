//! Evaluates the webhooks' selectors for every combination of the relevant labels and compares the result with Istio's
//! rules.

use serde_json::{Map, Value, json};

use super::{DAPR, Injector};
use crate::helm::{INJECTOR, NAMESPACE};
use crate::objects::{of_kind, parse, strings};

/// The name of the webhook configuration in this namespace.
const ISTIO: &str = "istio-sidecar-injector-kube-system";

/// The prefix of the configuration's name for the revision `canary`.
const CANARY: &str = "istio-sidecar-injector-canary";

/// The labels of a namespace and a pod that decide about injection; `None`: the label is absent.
#[derive(Debug, Clone, Copy)]
struct Labels {
    /// `istio-injection` of the namespace.
    injection: Option<&'static str>,
    /// `istio.io/rev` of the namespace.
    revision: Option<&'static str>,
    /// `sidecar.istio.io/inject` of the pod.
    inject: Option<&'static str>,
    /// `istio.io/rev` of the pod.
    own_revision: Option<&'static str>,
}

/// The settings of an injector that determine its selectors.
#[derive(Clone, Copy)]
struct Selection {
    revision: &'static str,
    by_default: bool,
}

impl Selection {
    /// Whether Istio's rules select a pod. The first of these labels that is present decides: the pod's
    /// `sidecar.istio.io/inject` if it is `false`, the namespace's injection label, the namespace's revision, the pod's
    /// revision, the pod's `sidecar.istio.io/inject`.
    fn selects(self, labels: Labels) -> bool {
        let is_default = self.revision == "default";
        match labels {
            Labels { inject: Some("false"), .. } => false,
            Labels { injection: Some(injection), .. } => is_default && injection == "enabled",
            Labels { revision: Some(revision), .. } => revision == self.revision,
            Labels { own_revision: Some(revision), .. } => revision == self.revision,
            Labels { inject: Some(inject), .. } => is_default && inject == "true",
            Labels { .. } => is_default && self.by_default,
        }
    }
}

pub(crate) fn of_the_manifests() {
    let objects = parse(&INJECTOR.manifest());
    check(&objects, Selection { revision: "default", by_default: false });
    own_pods_are_excluded(&objects);
}

pub(crate) fn of_the_chart() {
    check(&INJECTOR.render(&[r#"revision="canary""#]), Selection { revision: "canary", by_default: false });
    let by_default = "sidecarInjectorWebhook.enableNamespacesByDefault=true";
    check(&INJECTOR.render(&[by_default]), Selection { revision: "default", by_default: true });
    check(&INJECTOR.render(&[by_default, r#"revision="canary""#]), Selection { revision: "canary", by_default: true });
    let tagged = INJECTOR.render(&[r#"revision="canary""#, r#"revisionTags=["other","default"]"#, by_default]);
    for (name, revision) in
        [(CANARY, "canary"), ("istio-revision-tag-other", "other"), ("istio-revision-tag-default", "default")]
    {
        let name = format!("{name}-{NAMESPACE}");
        let one: Vec<Value> = tagged.iter().filter(|object| object["metadata"]["name"] == *name).cloned().collect();
        check(&one, Selection { revision, by_default: true });
    }
    let names = Injector::of(&tagged).argument("webhookConfigName");
    assert_eq!(
        names,
        Some(
            [CANARY, "istio-revision-tag-other", "istio-revision-tag-default"]
                .map(|name| format!("{name}-{NAMESPACE}"))
                .join(",")
        )
    );
    own_pods_are_excluded(&tagged);
    own_pods_are_excluded(&INJECTOR.render(&[by_default, "excludeOwnNamespace=false", "excludeNamespaces=[]"]));

    let own = |values: &[&str]| {
        sent(&INJECTOR.render(values), &namespace("mesh", &[("istio-injection", "enabled")]), &json!({}))
    };
    assert_eq!(own(&[r#"excludeNamespaces=["mesh"]"#]), Vec::<String>::new());
    assert_eq!(own(&[]), ["namespace.sidecar-injector.istio.io"]);
}

/// Dapr's webhook must select pods by an annotation, whatever their labels are. Enabling it must not change Istio's webhooks.
pub(crate) fn of_dapr() {
    let objects = INJECTOR.render(&DAPR);
    assert_eq!(webhooks(&objects, ISTIO), webhooks(&INJECTOR.render(&[]), ISTIO));
    let [dapr] = webhooks(&objects, "dapr-sidecar-injector").try_into().unwrap();
    let service = json!({ "name": "istio-sidecar-injector", "namespace": NAMESPACE, "path": "/mutate", "port": 443 });
    assert_eq!(
        (&dapr["name"], &dapr["clientConfig"]),
        (&json!("sidecar-injector.dapr.io"), &json!({ "service": service }))
    );
    let expression = "has(object.metadata.annotations) && 'dapr.io/enabled' in object.metadata.annotations";
    assert_eq!(dapr["matchConditions"], json!([{ "name": "enabled", "expression": expression }]));
    assert_eq!((&dapr["failurePolicy"], &dapr["reinvocationPolicy"]), (&json!("Ignore"), &json!("IfNeeded")));
    assert!(matches(&dapr, &namespace("shop", &[]), &json!({})));
    assert!(!matches(&dapr, &namespace(NAMESPACE, &[]), &json!({})));
    // The program writes the caBundle of both configurations.
    let injector = Injector::of(&objects);
    assert_eq!(injector.argument("daprWebhookConfigName").as_deref(), Some("dapr-sidecar-injector"));
    assert_eq!(injector.argument("webhookConfigName").as_deref(), Some(ISTIO));
}

fn check(objects: &[Value], selection: Selection) {
    let revisions = [None, Some("default"), Some("canary"), Some("other")];
    let mut pods = 0;
    for injection in [None, Some("enabled"), Some("disabled"), Some("")] {
        for revision in revisions {
            for inject in [None, Some("true"), Some("false"), Some("yes")] {
                for own_revision in revisions {
                    let labels = Labels { injection, revision, inject, own_revision };
                    let of_namespace = given(&[("istio-injection", injection), ("istio.io/rev", revision)]);
                    let of_pod = given(&[("sidecar.istio.io/inject", inject), ("istio.io/rev", own_revision)]);
                    let sent = sent(objects, &namespace("shop", &of_namespace), &of_pod.into_iter().collect());
                    assert_eq!(sent.len(), usize::from(selection.selects(labels)), "{labels:?}: {sent:?}");
                    pods += sent.len();
                    for excluded in [NAMESPACE, "kube-public", "kube-node-lease", "local-path-storage"] {
                        let of_pod = given(&[("sidecar.istio.io/inject", inject), ("istio.io/rev", own_revision)]);
                        let of_namespace = given(&[("istio-injection", injection), ("istio.io/rev", revision)]);
                        let sent =
                            self::sent(objects, &namespace(excluded, &of_namespace), &of_pod.into_iter().collect());
                        assert_eq!(sent, Vec::<String>::new(), "{excluded}: {labels:?}");
                    }
                }
            }
        }
    }
    assert!(pods > 10, "{pods}");
}

/// The webhook's own pods must match no webhook, whatever the labels of their namespace.
fn own_pods_are_excluded(objects: &[Value]) {
    let labels = &Injector::of(objects).template["metadata"]["labels"];
    for of_namespace in [&[][..], &[("istio-injection", "enabled")], &[("istio.io/rev", "default")]] {
        assert_eq!(sent(objects, &namespace(NAMESPACE, of_namespace), labels), Vec::<String>::new());
    }
}

fn given<'a>(labels: &[(&'a str, Option<&'a str>)]) -> Vec<(&'a str, &'a str)> {
    labels.iter().filter_map(|(key, value)| Some((*key, (*value)?))).collect()
}

/// Returns a namespace's labels, including the name label that the API server sets.
fn namespace(name: &str, labels: &[(&str, &str)]) -> Value {
    let own = ("kubernetes.io/metadata.name", name);
    labels.iter().chain([&own]).map(|(key, value)| ((*key).to_owned(), json!(value))).collect::<Map<_, _>>().into()
}

/// Returns the names of the webhooks to which the API server would send a pod: those whose selectors match it and its
/// namespace.
fn sent(objects: &[Value], of_namespace: &Value, of_pod: &Value) -> Vec<String> {
    let all = of_kind(objects, "MutatingWebhookConfiguration").into_iter();
    let webhooks = all.flat_map(|configuration| configuration["webhooks"].as_array().unwrap());
    let matching = webhooks.filter(|webhook| matches(webhook, of_namespace, of_pod));
    matching.map(|webhook| webhook["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the webhooks in the webhook configuration with this name.
fn webhooks(objects: &[Value], name: &str) -> Vec<Value> {
    let all = of_kind(objects, "MutatingWebhookConfiguration");
    let of_name = all.into_iter().find(|configuration| configuration["metadata"]["name"] == name).unwrap();
    of_name["webhooks"].as_array().unwrap().clone()
}

fn matches(webhook: &Value, of_namespace: &Value, of_pod: &Value) -> bool {
    selects(&webhook["namespaceSelector"], of_namespace) && selects(&webhook["objectSelector"], of_pod)
}

/// Evaluates a label selector of Kubernetes.
fn selects(selector: &Value, labels: &Value) -> bool {
    assert!(selector.get("matchLabels").is_none(), "{selector}");
    selector["matchExpressions"].as_array().into_iter().flatten().all(|requirement| {
        let value = labels.get(requirement["key"].as_str().unwrap()).map(|value| value.as_str().unwrap().to_owned());
        let listed = value.as_ref().is_some_and(|value| strings(&requirement["values"]).contains(value));
        match requirement["operator"].as_str().unwrap() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            other => panic!("{other}"),
        }
    })
}
