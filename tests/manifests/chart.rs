//! The node agent's chart against its own values and the platforms that it knows.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::helm::AGENT;
use crate::objects::{is_known, of_kind, only, strings};
use crate::values;

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

pub(crate) fn platforms_have_their_directories() {
    for Platform { name, bin, conf, netns } in PLATFORMS {
        let objects = AGENT.render(&[&format!("global.platform={name:?}"), r#"repair.mode="repair""#]);
        objects.iter().for_each(is_known);
        let mounts = Agent::of(&objects).mounts();
        for (from, to) in [(bin, "opt/cni/bin"), (conf, "etc/cni/net.d")] {
            assert!(mounts.contains(&format!("{from} -> /host/{to}")), "{name}: {mounts:?}");
        }
        assert!(mounts.contains(&format!("{netns} -> /host/var/run/netns (ro)")), "{name}: {mounts:?}");
        assert_eq!(of_kind(&objects, "ResourceQuota").len(), usize::from(name == "gke"), "{name}");
    }
    // Only a cluster itself says that it is GKE's: `helm template` keeps no more of a version than its number.
    let unnamed = Agent::of(&AGENT.render(&[r#"cniBinDir="""#])).mounts();
    assert!(unnamed.contains(&"/opt/cni/bin -> /host/opt/cni/bin".to_owned()), "{unnamed:?}");
}

pub(crate) fn openshift_gets_its_own_kinds() {
    let objects = AGENT.render(&[r#"global.platform="openshift""#, r#"repair.mode="repair""#]);
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
        let objects = AGENT.render(&values.each_ref().map(String::as_str));
        let agent = Agent::of(&objects);
        assert_eq!(agent.environment()["CHAINED_CNI_PLUGIN"], "true");
        assert!(agent.mounts().contains(&"/x -> /host/opt/cni/bin".to_owned()));
        let options = &agent.container["securityContext"]["seLinuxOptions"];
        assert_eq!(options, &json!({"level": "s0", "type": "spc_t"}));
    }
}

/// The API server refuses a DaemonSet that may be both short of a pod and have one too many.
pub(crate) fn upgrades_overlap_unless_told_otherwise() {
    for (given, expected) in [
        ("revision=\"x\"", json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } })),
        (
            "updateStrategy.rollingUpdate.maxUnavailable=2",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } }),
        ),
        ("updateStrategy.type=\"OnDelete\"", json!({ "type": "OnDelete", "rollingUpdate": {} })),
    ] {
        let objects = AGENT.render(&[given]);
        assert_eq!(only(&objects, "DaemonSet")["spec"]["updateStrategy"], expected, "{given}");
    }
}

pub(crate) fn what_cannot_be_is_refused() {
    for (value, reason) in [
        (r#"global.platform="bare""#, r#"global.platform is "bare"; known are gke"#),
        (r#"repair.mode="restart""#, r#"repair.mode is "restart"; known are evict"#),
    ] {
        let error = AGENT.try_text(&[value]).unwrap_err();
        assert!(error.contains(reason), "{value}: {error}");
    }
}

pub(crate) fn scopes_part_the_objects() {
    let kinds = |scope: &str| {
        let scope = format!("global.resourceScope={scope:?}");
        let objects = AGENT.render(&[&scope, r#"global.platform="openshift""#, "resourceQuotas.enabled=true"]);
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

pub(crate) fn every_value_has_an_effect() {
    let on = [r#"repair.mode="repair""#, "taint.enabled=true", "resourceQuotas.enabled=true"];
    values::have_effects(AGENT, "/defaults", &[&on], other);
}

/// An arbitrary value would be refused, or switch on what is off.
fn other(path: &str) -> Option<Value> {
    match path {
        "global.platform" => Some(json!("k3s")),
        "provider" => Some(json!("multus")),
        "global.resourceScope" => Some(json!("cluster")),
        _ => None,
    }
}
