//! The node agent's chart against its own values and the platforms that it knows.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::helm::{AGENT, INJECTOR, NAMESPACE};
use crate::objects::{is_known, of_kind, only, parse, strings};
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
        (r#"global.platform="bare""#, r#"platform is "bare"; known are gke"#),
        (r#"platform="bare""#, r#"platform is "bare"; known are gke"#),
        (r#"profile="bare""#, r#"profile is "bare"; known are ambient, demo"#),
        (r#"global.profile="bare""#, r#"profile is "bare"; known are ambient, demo"#),
        (r#"compatibilityVersion="1.2""#, r#"compatibilityVersion is "1.2"; known are 1.24"#),
        (r#"repair.mode="restart""#, r#"repair.mode is "restart"; known are evict"#),
        (r#"provider="other""#, r#"provider is "other"; known are default, multus"#),
        (r#"global.resourceScope="none""#, r#"global.resourceScope is "none"; known are all"#),
        ("ambient.enabled=true", "ambient.enabled is not supported"),
        (r#"profile="ambient""#, "ambient.enabled is not supported"),
        (r#"env.AMBIENT_ENABLED="true""#, "env.AMBIENT_ENABLED is not supported"),
        (r#"env.REPAIR_REPAIR_PODS="true""#, "env.REPAIR_REPAIR_PODS is not supported: say repair.repairPods"),
        (r#"env.REPAIR_MODE="delete""#, "env.REPAIR_MODE is not supported: say repair.mode"),
        (r#"env.STARTUP_TAINT="x""#, "env.STARTUP_TAINT is not supported: say taint"),
        (r#"repair.hub="docker.io/istio""#, "repair.hub is not supported"),
        (r#"repair.tag="1.10""#, "repair.tag is not supported"),
        ("rollingMaxUnavailable=1", "rollingMaxUnavailable is not supported"),
        ("chianed=false", "chianed is a value of neither"),
        ("repair.enable=false", "repair.enable is a value of neither"),
        ("ambient.dns=false", "ambient.dns is a value of neither"),
        (r#"logging.levle="debug""#, "logging.levle is a value of neither"),
    ] {
        for nest in ["", "cni."] {
            let error = AGENT.try_text(&[&format!("{nest}{value}")]).unwrap_err();
            assert!(error.contains(reason), "{nest}{value}: {error}");
        }
    }
}

/// A file of values for a whole mesh: those of other charts are theirs.
pub(crate) fn values_of_other_charts_are_passed_over() {
    let others = [
        r#"pilot={"cni": {"enabled": true}}"#,
        r#"meshConfig={"accessLogFile": "/dev/stdout"}"#,
        r#"global.proxy={"logLevel": "warning"}"#,
        r#"global.meshID="mesh1""#,
        r#"ambient={"enabled": false, "dnsCapture": false}"#,
        r#"compatibilityVersion="1.28""#,
        r#"profile="stable""#,
        r#"repair={"hub": "", "tag": ""}"#,
    ];
    assert_eq!(AGENT.text(&others), AGENT.text(&[]));
}

/// The platform's and the profile's values lie under those that are given, and the platform's over the profile's.
pub(crate) fn given_values_outrank_profiles() {
    let requests = |values: &[&str]| {
        let objects = AGENT.render(values);
        Agent::of(&objects).container["resources"]["requests"].clone()
    };
    assert_eq!(requests(&[r#"profile="demo""#]), json!({"cpu": "10m", "memory": "40Mi"}));
    let given = [r#"global.profile="demo""#, r#"resources.requests.cpu="7m""#];
    assert_eq!(requests(&given), json!({"cpu": "7m", "memory": "40Mi"}));
    let objects = AGENT.render(&[r#"profile="ambient""#, "ambient.enabled=false"]);
    assert_eq!(Agent::of(&objects).container["image"], "localhost/install-cni:0.1.0-distroless");
}

/// Variables under `env` outrank the chart's own, and numbers are written as they were given.
pub(crate) fn variables_outrank_values() {
    let objects = AGENT.render(&[r#"env.EXCLUDE_NAMESPACES="a,b""#, "env.HEALTH_PORT=1000000", "env.X=null"]);
    let environment = Agent::of(&objects).environment();
    assert_eq!((&*environment["EXCLUDE_NAMESPACES"], &*environment["HEALTH_PORT"]), ("a,b", "1000000"));
    assert!(!environment.contains_key("X"), "{environment:?}");
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
        cluster.iter().all(|kind| {
            kind.starts_with("Cluster")
                || kind.starts_with("ValidatingAdmission")
                || kind == "SecurityContextConstraints"
        }),
        "{cluster:?}"
    );
    assert!(namespace.contains(&"DaemonSet".to_owned()), "{namespace:?}");
}

/// API servers have these policies from 1.30 on, and bind tokens to nodes from 1.31 on.
pub(crate) fn policies_fit_the_api_server() {
    let kinds = |version: &str| {
        let objects = parse(&AGENT.try_text_with(NAMESPACE, ["--kube-version", version]).unwrap());
        let policies = of_kind(&objects, "ValidatingAdmissionPolicy");
        let policy = policies.iter().find(|policy| policy["metadata"]["name"] == "istio-cni-node")?;
        let validations = policy["spec"]["validations"].as_array().unwrap();
        let of_tokens = validations.iter().map(|validation| validation["expression"].as_str().unwrap());
        let of_tokens = of_tokens.filter(|expression| expression.contains("boundObjectRef")).collect::<String>();
        let kinds = ["'Node'", "'Pod'", "!has(object.spec.boundObjectRef)"];
        Some(kinds.into_iter().filter(|kind| of_tokens.contains(kind)).collect::<Vec<_>>())
    };
    assert_eq!(kinds("1.29.14"), None);
    assert_eq!(kinds("1.30.0-gke.1"), Some(vec!["'Node'", "!has(object.spec.boundObjectRef)"]));
    for version in ["1.31.0-gke.1", "1.31.0", "1.33.0"] {
        assert_eq!(kinds(version), Some(vec!["'Node'"]), "{version}");
    }
}

pub(crate) fn every_value_has_an_effect() {
    let on =
        [r#"repair.mode="repair""#, "taint.enabled=true", "resourceQuotas.enabled=true", "istioOwnedCNIConfig=true"];
    let policy = "global.networkPolicy.enabled=true";
    let monitoring = ["podMonitor", "rules", "dashboards"].map(|part| format!("monitoring.{part}.enabled=true"));
    let monitoring = monitoring.each_ref().map(String::as_str);
    values::have_effects(AGENT, "/defaults", &[&on, &["resources=null"], &[policy], &monitoring], other);
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

/// As with Istio's chart anybody may scrape unless the values name who may; probes come from kubelets, which have no names.
pub(crate) fn the_network_policy_names_who_may_scrape() {
    let ingress = |values: &[&str]| {
        let objects = AGENT.render(&[&["global.networkPolicy.enabled=true"], values].concat());
        objects.iter().for_each(is_known);
        only(&objects, "NetworkPolicy")["spec"]["ingress"].clone()
    };
    let port = |port: u16| json!([{ "protocol": "TCP", "port": port }]);
    assert_eq!(ingress(&[]), json!([{ "ports": port(15014) }, { "ports": port(8000) }]));
    let scrapers = json!([{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "monitoring" } } }]);
    let named = json!([{ "from": scrapers, "ports": port(15014) }, { "ports": port(8000) }]);
    assert_eq!(ingress(&[&format!("global.networkPolicy.scrapers={scrapers}")]), named);
}

/// The addresses of API servers are the cluster's: a policy in a manifest that all apply could not name them.
pub(crate) fn only_values_make_a_network_policy() {
    for chart in [AGENT, INJECTOR] {
        assert_eq!(of_kind(&chart.render(&[]), "NetworkPolicy").len(), 0, "{}", chart.name);
        assert!(!chart.manifest().contains("NetworkPolicy"), "{}", chart.name);
    }
}
