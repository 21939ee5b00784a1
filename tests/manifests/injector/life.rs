//! Tests that the names in the rendered objects match the references to them, and that one replica of the webhook is
//! always available.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use webhook::ServerSettings;

use super::{Injector, arguments};
use crate::helm::{INJECTOR, NAMESPACE};
use crate::objects::{only, parse, strings};

/// In Istio's namespace the webhook configuration must have Istio's name. Installations in different namespaces must share no
/// cluster-scoped object.
pub(crate) fn installations_share_no_objects() {
    let names = |namespace| -> BTreeSet<String> {
        let objects = INJECTOR.render_in(namespace);
        let wide = objects.iter().filter(|object| object["metadata"]["namespace"].is_null());
        wide.map(|object| format!("{}/{}", object["kind"], object["metadata"]["name"])).collect()
    };
    let istios = names("istio-system");
    assert!(istios.contains(r#""MutatingWebhookConfiguration"/"istio-sidecar-injector""#), "{istios:?}");
    assert_eq!(istios.len(), 3, "{istios:?}");
    assert!(istios.is_disjoint(&names("mesh-two")), "{istios:?}");
}

/// References between objects, and arguments of the program, must contain the actual names.
pub(crate) fn references_match_names() {
    let objects = parse(&INJECTOR.manifest());
    let injector = Injector::of(&objects);
    let configuration = only(&objects, "MutatingWebhookConfiguration");
    let service = only(&objects, "Service");
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(injector.argument("webhookConfigName"), Some(name(configuration)));
    assert_eq!(injector.argument("serviceName"), Some(name(service)));
    for webhook in configuration["webhooks"].as_array().unwrap() {
        let client = &webhook["clientConfig"]["service"];
        let expected = json!({ "name": name(service), "namespace": NAMESPACE, "path": "/inject", "port": 443 });
        assert_eq!(client, &expected);
        // The program manages the webhooks whose names have this suffix.
        assert!(webhook["name"].as_str().unwrap().ends_with(".sidecar-injector.istio.io"), "{webhook}");
    }
    assert_eq!(injector.argument("webhookName"), None);
    assert_eq!(injector.template["spec"]["serviceAccountName"], name(only(&objects, "ServiceAccount")));
    let ports = service["spec"]["ports"].as_array().unwrap();
    let targets = ports.iter().map(|port| (&port["port"], &port["targetPort"]));
    assert_eq!(targets.collect::<Vec<_>>(), [(&json!(443), &json!("webhook")), (&json!(15014), &json!("monitoring"))]);
    let by_name = |name: &str| json!({ "httpGet": { "path": name, "port": "monitoring" } })["httpGet"].clone();
    assert_eq!(injector.container["readinessProbe"]["httpGet"], by_name("/readyz"));
    assert_eq!(injector.container["livenessProbe"]["httpGet"], by_name("/healthz"));
}

pub(crate) fn one_replica_is_always_available() {
    let objects = parse(&INJECTOR.manifest());
    let injector = Injector::of(&objects);
    assert_eq!(injector.deployment["replicas"], 2);
    assert_eq!(injector.deployment["strategy"]["rollingUpdate"], json!({ "maxSurge": 1, "maxUnavailable": 0 }));
    let selector = &injector.deployment["selector"];
    let labels = selector["matchLabels"].as_object().unwrap();
    assert!(labels.iter().all(|(key, value)| injector.template["metadata"]["labels"][key] == *value));
    let budget = &only(&objects, "PodDisruptionBudget")["spec"];
    assert_eq!((&budget["maxUnavailable"], &budget["selector"]), (&json!(1), selector));
    assert_eq!(only(&objects, "Service")["spec"]["selector"], selector["matchLabels"]);
    let spread = injector.template["spec"]["topologySpreadConstraints"].as_array().unwrap();
    assert_eq!(spread.len(), 2);
    for constraint in spread {
        // Both replicas can run on a cluster's only node.
        assert_eq!(
            (&constraint["whenUnsatisfiable"], &constraint["labelSelector"]),
            (&"ScheduleAnyway".into(), selector)
        );
    }
    let flags = arguments::understood(&objects).webhook;
    let grace = injector.template["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(Duration::from_secs(grace) > flags.linger() + ServerSettings::limits().drain, "{grace} s");
    let webhooks = only(&objects, "MutatingWebhookConfiguration")["webhooks"].as_array().unwrap();
    for webhook in webhooks {
        assert_eq!((&webhook["failurePolicy"], &webhook["sideEffects"]), (&"Fail".into(), &"NoneOnDryRun".into()));
        assert_eq!((&webhook["reinvocationPolicy"], &webhook["timeoutSeconds"]), (&"Never".into(), &10.into()));
        assert_eq!(strings(&webhook["admissionReviewVersions"]), ["v1"]);
        let rules = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            "scope": "Namespaced" }]);
        assert_eq!(webhook["rules"], rules);
    }
}
