//! The chart against the manifests, its own values and the platforms that it knows.

use std::fs;

use serde_json::{Value, json};

use crate::agent::{Agent, strings};
use crate::helm::{CHART, render, text, try_text};
use crate::objects::{MANIFEST, is_known, manifest, of_kind, only};

/// What a platform changes.
pub(crate) struct Platform {
    /// As `global.platform` has it.
    pub(crate) name: &'static str,
    bin: &'static str,
    conf: &'static str,
    netns: &'static str,
}

const PLAIN: Platform = Platform { name: "", bin: "/opt/cni/bin", conf: "/etc/cni/net.d", netns: "/var/run/netns" };

/// All that the chart knows.
pub(crate) const PLATFORMS: [Platform; 6] = [
    Platform { name: "gke", bin: "/home/kubernetes/bin", ..PLAIN },
    Platform { name: "openshift", bin: "/var/lib/cni/bin", conf: "/etc/cni/multus/net.d", ..PLAIN },
    Platform { name: "k3s", bin: "/var/lib/rancher/k3s/data/cni", conf: K3S, ..PLAIN },
    Platform { name: "k3d", bin: "/bin", conf: K3S, ..PLAIN },
    Platform {
        name: "microk8s",
        bin: "/var/snap/microk8s/current/opt/cni/bin",
        conf: "/var/snap/microk8s/current/args/cni-network",
        ..PLAIN
    },
    Platform { name: "minikube", netns: "/var/run/docker/netns", ..PLAIN },
];

const K3S: &str = "/var/lib/rancher/k3s/agent/etc/cni/net.d";

pub(crate) fn renders_the_manifests() {
    assert!(text(&[]) == manifest(), "{MANIFEST} is not what the chart renders: `make manifests` writes it anew");
}

pub(crate) fn platforms_have_their_directories() {
    for Platform { name, bin, conf, netns } in PLATFORMS {
        let objects = render(&[&format!("global.platform={name:?}"), r#"repair.mode="repair""#]);
        objects.iter().for_each(is_known);
        let mounts = Agent::of(&objects).mounts();
        for (from, to) in [(bin, "opt/cni/bin"), (conf, "etc/cni/net.d")] {
            assert!(mounts.contains(&format!("{from} -> /host/{to}")), "{name}: {mounts:?}");
        }
        assert!(mounts.contains(&format!("{netns} -> /host/var/run/netns (ro)")), "{name}: {mounts:?}");
        assert_eq!(of_kind(&objects, "ResourceQuota").len(), usize::from(name == "gke"), "{name}");
    }
    // Only a cluster itself says that it is GKE's: `helm template` keeps no more of a version than its number.
    let unnamed = Agent::of(&render(&[r#"cniBinDir="""#])).mounts();
    assert!(unnamed.contains(&"/opt/cni/bin -> /host/opt/cni/bin".to_owned()), "{unnamed:?}");
}

pub(crate) fn openshift_gets_its_own_kinds() {
    let objects = render(&[r#"global.platform="openshift""#, r#"repair.mode="repair""#]);
    let attachment = only(&objects, "NetworkAttachmentDefinition");
    assert_eq!(
        (&attachment["metadata"]["name"], &attachment["metadata"]["namespace"]),
        (&json!("istio-cni"), &json!("default"))
    );
    assert_eq!(attachment.get("spec"), None, "Multus then looks for the network of this name in its directory");
    let agent = Agent::of(&objects);
    let constraints = only(&objects, "SecurityContextConstraints");
    assert_eq!(strings(&constraints["allowedCapabilities"]), agent.capabilities());
    assert_eq!(agent.container["securityContext"]["seLinuxOptions"], json!({"type": "spc_t"}));
    let environment = agent.environment();
    assert_eq!(
        (environment["CHAINED_CNI_PLUGIN"].as_str(), environment["CNI_CONF_NAME"].as_str()),
        ("false", "istio-cni.conf")
    );
}

pub(crate) fn values_outrank_platforms() {
    for nest in ["", "cni."] {
        let values =
            ["global.platform=\"openshift\"", "chained=true", "cniBinDir=\"/x\"", "seLinuxOptions.level=\"s0\""];
        let values = values.map(|value| format!("{nest}{value}"));
        let objects = render(&values.each_ref().map(String::as_str));
        let agent = Agent::of(&objects);
        assert_eq!(agent.environment()["CHAINED_CNI_PLUGIN"], "true");
        assert!(agent.mounts().contains(&"/x -> /host/opt/cni/bin".to_owned()));
        let options = &agent.container["securityContext"]["seLinuxOptions"];
        assert_eq!(options, &json!({"level": "s0", "type": "spc_t"}));
    }
}

pub(crate) fn what_cannot_be_is_refused() {
    for (value, reason) in [
        (r#"global.platform="bare""#, r#"global.platform is "bare"; known are gke"#),
        (r#"repair.mode="restart""#, r#"repair.mode is "restart"; known are evict"#),
    ] {
        let error = try_text(&[value]).unwrap_err();
        assert!(error.contains(reason), "{value}: {error}");
    }
}

pub(crate) fn scopes_part_the_objects() {
    let kinds = |scope: &str| {
        let scope = format!("global.resourceScope={scope:?}");
        let objects = render(&[&scope, r#"global.platform="openshift""#, "resourceQuotas.enabled=true"]);
        let mut kinds: Vec<_> = objects.iter().map(|o| o["kind"].as_str().unwrap().to_owned()).collect();
        kinds.sort();
        kinds
    };
    let (cluster, namespace) = (kinds("cluster"), kinds("namespace"));
    let mut both = [cluster.clone(), namespace.clone()].concat();
    both.sort();
    assert_eq!(both, kinds("all"));
    assert!(
        cluster.iter().all(|kind| kind.starts_with("Cluster") || kind == "SecurityContextConstraints"),
        "{cluster:?}"
    );
    assert!(namespace.contains(&"DaemonSet".to_owned()), "{namespace:?}");
}

/// With everything switched on, changing any one value changes what is rendered: none is a leftover.
pub(crate) fn every_value_has_an_effect() {
    let values = fs::read_to_string(format!("{CHART}/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let on = [r#"repair.mode="repair""#, "taint.enabled=true", "resourceQuotas.enabled=true"];
    let before = text(&on);
    let mut leaves = Vec::new();
    collect(&values["defaults"], String::new(), &mut leaves);
    assert!(leaves.len() > 50, "{leaves:?}");
    for (path, value) in leaves {
        // What is on already is turned off again.
        let is_on = on.iter().any(|set| set.starts_with(&format!("{path}=")));
        let changed = format!("{path}={}", if is_on { value } else { other(&path, &value) });
        let effect = text(&[&on[..], &[changed.as_str()]].concat()) != before;
        assert!(effect, "{changed} changes nothing");
    }
}

/// Paths of all values that are no maps, or empty ones.
fn collect(value: &Value, path: String, leaves: &mut Vec<(String, Value)>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => map.iter().for_each(|(key, value)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            collect(value, path, leaves);
        }),
        None => leaves.push((path, value.clone())),
    }
}

/// Another value of the same kind.
fn other(path: &str, value: &Value) -> Value {
    match (path, value) {
        ("global.platform", _) => json!("k3s"),
        ("provider", _) => json!("multus"),
        ("global.resourceScope", _) => json!("cluster"),
        ("tolerations", _) => json!([]),
        ("resources", _) => json!({"limits": {"memory": "1Gi"}}),
        (_, Value::Bool(on)) => json!(!on),
        (_, Value::Number(number)) => json!(number.as_i64().unwrap() + 1),
        (_, Value::Array(_)) => json!(["x"]),
        (_, Value::Object(_)) => json!({"x": "y"}),
        _ => json!("other"),
    }
}
