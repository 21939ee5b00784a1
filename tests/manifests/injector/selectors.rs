//! Which pods the API server sends to the webhook: the selectors are evaluated over every combination of labels that
//! counts, and compared with the rules as Istio's users know them.

use serde_json::{Map, Value, json};

use super::{DAPR, Injector};
use crate::helm::{INJECTOR, NAMESPACE};
use crate::objects::{of_kind, parse, strings};

/// The configuration; another namespace's has another name.
const ISTIO: &str = "istio-sidecar-injector-kube-system";

/// The same of a revision.
const CANARY: &str = "istio-sidecar-injector-canary";

/// The labels that decide, each absent or as it says.
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

/// An injector, as far as it counts here.
#[derive(Clone, Copy)]
struct Asked {
    revision: &'static str,
    by_default: bool,
}

impl Asked {
    /// Whose word counts: a pod's refusal, then the namespace's label, its revision, the pod's revision, its wish.
    fn sends(self, labels: Labels) -> bool {
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
    check(&objects, Asked { revision: "default", by_default: false });
    nothing_waits_for_itself(&objects);
}

pub(crate) fn of_the_chart() {
    check(&INJECTOR.render(&[r#"revision="canary""#]), Asked { revision: "canary", by_default: false });
    let by_default = "sidecarInjectorWebhook.enableNamespacesByDefault=true";
    check(&INJECTOR.render(&[by_default]), Asked { revision: "default", by_default: true });
    check(&INJECTOR.render(&[by_default, r#"revision="canary""#]), Asked { revision: "canary", by_default: true });
    let tagged = INJECTOR.render(&[r#"revision="canary""#, r#"revisionTags=["other","default"]"#, by_default]);
    for (name, revision) in
        [(CANARY, "canary"), ("istio-revision-tag-other", "other"), ("istio-revision-tag-default", "default")]
    {
        let name = format!("{name}-{NAMESPACE}");
        let one: Vec<Value> = tagged.iter().filter(|object| object["metadata"]["name"] == *name).cloned().collect();
        check(&one, Asked { revision, by_default: true });
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
    nothing_waits_for_itself(&tagged);
    nothing_waits_for_itself(&INJECTOR.render(&[by_default, "excludeOwnNamespace=false", "excludeNamespaces=[]"]));

    let own = |values: &[&str]| {
        sent(&INJECTOR.render(values), &namespace("mesh", &[("istio-injection", "enabled")]), &json!({}))
    };
    assert_eq!(own(&[r#"excludeNamespaces=["mesh"]"#]), Vec::<String>::new());
    assert_eq!(own(&[]), ["namespace.sidecar-injector.istio.io"]);
}

/// Dapr's webhook is asked by annotation, whatever the labels; Istio's stay as they are.
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
    // The caBundle of each is written.
    let injector = Injector::of(&objects);
    assert_eq!(injector.argument("daprWebhookConfigName").as_deref(), Some("dapr-sidecar-injector"));
    assert_eq!(injector.argument("webhookConfigName").as_deref(), Some(ISTIO));
}

fn check(objects: &[Value], asked: Asked) {
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
                    assert_eq!(sent.len(), usize::from(asked.sends(labels)), "{labels:?}: {sent:?}");
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

/// The webhook's own pods are sent to no webhook, whatever their namespace's labels.
fn nothing_waits_for_itself(objects: &[Value]) {
    let labels = &Injector::of(objects).template["metadata"]["labels"];
    for of_namespace in [&[][..], &[("istio-injection", "enabled")], &[("istio.io/rev", "default")]] {
        assert_eq!(sent(objects, &namespace(NAMESPACE, of_namespace), labels), Vec::<String>::new());
    }
}

fn given<'a>(labels: &[(&'a str, Option<&'a str>)]) -> Vec<(&'a str, &'a str)> {
    labels.iter().filter_map(|(key, value)| Some((*key, (*value)?))).collect()
}

/// A namespace's labels, with the one that the API server gives it.
fn namespace(name: &str, labels: &[(&str, &str)]) -> Value {
    let own = ("kubernetes.io/metadata.name", name);
    labels.iter().chain([&own]).map(|(key, value)| ((*key).to_owned(), json!(value))).collect::<Map<_, _>>().into()
}

/// Names of the webhooks that a pod with these labels is sent to.
fn sent(objects: &[Value], of_namespace: &Value, of_pod: &Value) -> Vec<String> {
    let all = of_kind(objects, "MutatingWebhookConfiguration").into_iter();
    let webhooks = all.flat_map(|configuration| configuration["webhooks"].as_array().unwrap());
    let asked = webhooks.filter(|webhook| matches(webhook, of_namespace, of_pod));
    asked.map(|webhook| webhook["name"].as_str().unwrap().to_owned()).collect()
}

/// The webhooks of the configuration of this name.
fn webhooks(objects: &[Value], name: &str) -> Vec<Value> {
    let all = of_kind(objects, "MutatingWebhookConfiguration");
    let of_name = all.into_iter().find(|configuration| configuration["metadata"]["name"] == name).unwrap();
    of_name["webhooks"].as_array().unwrap().clone()
}

fn matches(webhook: &Value, of_namespace: &Value, of_pod: &Value) -> bool {
    selects(&webhook["namespaceSelector"], of_namespace) && selects(&webhook["objectSelector"], of_pod)
}

/// As Kubernetes' label selectors are defined.
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
