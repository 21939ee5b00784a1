//! Reviews pods with any values of Dapr's annotations. Checks that a pod is either not changed, for a reason, or
//! patched so that it has exactly one sidecar. Also parses any pattern of account names and matches it with a name: the
//! error for an invalid pattern has the position, and libFuzzer's time limit ends a slow match.
//!
//! The input is a pattern, a name and the values of `KEYS`, separated by zero bytes. The value `~` means that the
//! annotation is absent. The last value is also the container of a component.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use dapr::{Component, Decision, Era, Facts, Glob, Request, Settings, Trust, User, review};
use inject::apply;
use serde_json::{Value, json};

const KEYS: [&str; 18] = [
    "app-id",
    "app-port",
    "app-protocol",
    "env",
    "env-from-secret",
    "volume-mounts",
    "volume-mounts-rw",
    "unix-domain-socket-path",
    "pluggable-components",
    "pluggable-components-sockets-folder",
    "inject-pluggable-components",
    "enable-native-sidecar",
    "enable-debug",
    "sidecar-cpu-request",
    "sidecar-memory-limit",
    "placement-host-address",
    "app-max-concurrency",
    "sidecar-liveness-probe-delay-seconds",
];

static SETTINGS: LazyLock<Settings> = LazyLock::new(|| {
    let env = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd")];
    let env: BTreeMap<String, String> = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Settings::from_env(&env, "", Era::Current).expect("settings")
});

fn sidecars(pod: &Value) -> usize {
    let lists = ["containers", "initContainers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
    lists.flatten().filter(|container| container["name"] == "daprd").count()
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut values = text.split('\0');
    match Glob::parse(values.next().unwrap_or_default()) {
        Ok(glob) => drop(glob.matches(values.next().unwrap_or_default())),
        Err(error) => assert!(error.position < text.len() + 1, "{error}"),
    }
    let mut pod = json!({
        "metadata": {"annotations": {"dapr.io/enabled": "true"}},
        "spec": {"containers": [{"name": "app"}, {"name": "b", "env": [{"name": "A"}]}], "volumes": [{"name": "v"}]},
    });
    for (key, value) in KEYS.iter().zip(values).filter(|(_, value)| *value != "~") {
        pod["metadata"]["annotations"][format!("dapr.io/{key}")] = value.into();
    }
    let trust = Trust { anchors: Some("PEM".into()), issuer: None, mtls: true };
    let container = text.rsplit('\0').next().unwrap_or_default().to_owned();
    let components = [Component { name: "c".into(), container, scopes: Vec::new() }];
    let user = User { groups: &["system:masters".to_owned()], ..User::default() };
    let request = Request { kind: "Pod", namespace: "n", user, object: Some(&pod) };
    let facts = Facts { accounts: &BTreeSet::new(), trust: &trust, components: Some(&components) };
    let outcome = review(&request, &SETTINGS, &facts);
    match outcome.decision {
        Decision::Inject { .. } => {
            let after = apply(pod.clone(), &outcome.patch).expect("the patch applies");
            assert_eq!(sidecars(&after), 1, "{after}");
            let again = review(&Request { object: Some(&after), ..request }, &SETTINGS, &facts);
            assert!(again.patch.is_empty(), "a second review changes nothing: {:?}", again.patch);
        }
        decision => assert!(outcome.patch.is_empty() && !decision.to_string().is_empty()),
    }
}
