//! Tests of the agent's chart: platforms, profiles, invalid values, admission and network policies.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::helm::{AGENT, INJECTOR, NAMESPACE};
use crate::objects::{is_known, of_kind, only, parse, strings};
use crate::values;

/// A platform and the node's directories that the chart uses on it.
pub(crate) struct Platform {
    /// The value of `global.platform`.
    pub(crate) name: &'static str,
    bin: &'static str,
    conf: &'static str,
    netns: &'static str,
}

const PLAIN: Platform = Platform { name: "", bin: "/opt/cni/bin", conf: "/etc/cni/net.d", netns: "/var/run/netns" };

/// All platforms that the chart supports.
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
    // The chart detects GKE only by the suffix of the cluster's version, which `helm template` removes.
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
    assert_eq!(attachment.get("spec"), None, "without a spec, Multus uses the network of this name in its directory");
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

/// With `auto`, the agent has a mount of the node's root. With given directories, only the runtime configuration's directories are mounted,
/// read-only, and none of them is created.
pub(crate) fn directories_are_found_or_compared() {
    let volumes = |values: &[&str]| {
        let objects = AGENT.render(values);
        objects.iter().for_each(is_known);
        let agent = Agent::of(&objects);
        let of_runtime = |volume: &&Value| {
            ["host-root", "runtime-config"].iter().any(|name| volume["name"].as_str().unwrap().starts_with(name))
        };
        let volumes: Vec<Value> = agent.pod["volumes"].as_array().unwrap().iter().filter(of_runtime).cloned().collect();
        let mounts = agent.container["volumeMounts"].as_array().unwrap().iter();
        let mounts: Vec<Value> = mounts.filter(of_runtime).cloned().collect();
        let names = ["HOST_ROOT", "MOUNTED_CNI_NET_DIR", "MOUNTED_CNI_BIN_DIR", "HOST_CNI_NET_DIR", "HOST_CNI_BIN_DIR"];
        let environment = agent.environment();
        let set: Vec<Option<String>> = names.iter().map(|name| environment.get(*name).cloned()).collect();
        (volumes, mounts, set)
    };
    let some = |text: &str| Some(text.to_owned());
    let (root, propagated) = (
        json!({ "name": "host-root", "hostPath": { "path": "/", "type": "Directory" } }),
        json!({ "name": "host-root", "mountPath": "/host/root", "mountPropagation": "HostToContainer" }),
    );
    let auto = r#"cniConfDir="auto""#;
    let expected = [some("/host/root"), some("auto"), some("auto"), None, None].to_vec();
    assert_eq!(volumes(&[auto, r#"cniBinDir="auto""#]), (vec![root.clone()], vec![propagated.clone()], expected));
    let expected = [some("/host/root"), some("auto"), None, None, some("/opt/cni/bin")].to_vec();
    assert_eq!(volumes(&[auto, r#"cniBinDir="""#]), (vec![root], vec![propagated], expected));
    let (volume, mount) = (
        json!({ "name": "runtime-config-0", "hostPath": { "path": "/etc/crio/", "type": "Directory" } }),
        json!({ "name": "runtime-config-0", "mountPath": "/host/root/etc/crio", "readOnly": true }),
    );
    let expected = [some("/host/root"), None, None, some("/etc/cni/net.d"), some("/x")].to_vec();
    let given = [r#"runtimeConfigDirs=["/etc/crio/"]"#, r#"cniBinDir="/x""#];
    assert_eq!(volumes(&given), (vec![volume], vec![mount], expected));
    assert_eq!(volumes(&[]), (vec![], vec![], vec![None; 5]));
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

/// By default an upgrade starts the new agent before it ends the old one (maxSurge). A value for maxUnavailable
/// replaces maxSurge, because the API server refuses a DaemonSet in which both are above zero.
pub(crate) fn upgrades_overlap_by_default() {
    for (given, expected) in [
        ("revision=\"x\"", json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } })),
        (
            "updateStrategy.rollingUpdate.maxUnavailable=2",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } }),
        ),
        (
            "updateStrategy.rollingUpdate.maxSurge=\"10%\"",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "10%", "maxUnavailable": 0 } }),
        ),
        (
            "updateStrategy.rollingUpdate.maxUnavailable=0",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } }),
        ),
        (
            "updateStrategy.rollingUpdate.maxSurge=0",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0 } }),
        ),
        ("updateStrategy.type=\"OnDelete\"", json!({ "type": "OnDelete", "rollingUpdate": {} })),
    ] {
        let objects = AGENT.render(&[given]);
        assert_eq!(only(&objects, "DaemonSet")["spec"]["updateStrategy"], expected, "{given}");
    }
}

/// Values that contradict what the chart renders are refused with the reason. `schema` tests names and forms.
pub(crate) fn invalid_values_are_refused() {
    for (value, reason) in [
        ("ambient.enabled=true", "ambient.enabled is not supported"),
        (r#"profile="ambient""#, "ambient.enabled is not supported"),
        (r#"env.AMBIENT_ENABLED="true""#, "env.AMBIENT_ENABLED is not supported"),
        (r#"env.REPAIR_REPAIR_PODS="true""#, "env.REPAIR_REPAIR_PODS is not supported: say repair.repairPods"),
        (r#"env.REPAIR_MODE="delete""#, "env.REPAIR_MODE is not supported: say repair.mode"),
        (r#"env.STARTUP_TAINT="x""#, "env.STARTUP_TAINT is not supported: say taint"),
        ("env.REPAIR_ENABLED=false", "env.REPAIR_ENABLED is not supported: say repair.enabled"),
        ("env.REPAIR_DRY_RUN=true", "env.REPAIR_DRY_RUN is not supported: say repair.dryRun"),
        (r#"env.REPAIR_BROKEN_POD_LABEL_KEY="x""#, "is not supported: say repair.brokenPodLabelKey"),
        ("env.HEALTH_PORT=8001", "env.HEALTH_PORT is not supported: the probes ask port 8000"),
        ("env.MONITORING_PORT=0", "env.MONITORING_PORT is not supported: port 15014 is scraped"),
        (r#"env.MOUNTED_CNI_NET_DIR="/x""#, "env.MOUNTED_CNI_NET_DIR is not supported: the chart mounts the directory"),
        (r#"env.MOUNTED_CNI_BIN_DIR="/x""#, "env.MOUNTED_CNI_BIN_DIR is not supported: the chart mounts the directory"),
        (r#"env.CNI_BIN_SOURCE_DIR="/x""#, "env.CNI_BIN_SOURCE_DIR is not supported: the image has the plugin in one"),
        (r#"env.SERVICE_ACCOUNT_DIR="/x""#, "env.SERVICE_ACCOUNT_DIR is not supported: the kubelet mounts the service"),
        (r#"env.KUBECONFIG="/x""#, "env.KUBECONFIG is not supported: the agent has the rights of its service account"),
        (r#"env.REPAIR_NODE_NAME="""#, "env.REPAIR_NODE_NAME is not supported: an agent has the right to act on pods"),
        ("env.HOST_ROOT=\"/x\"", "env.HOST_ROOT is not supported: the chart mounts the directory"),
        (r#"env.NODE_NAME="x""#, "env.NODE_NAME is not supported: the DaemonSet sets it"),
        (
            r#"updateStrategy.rollingUpdate={"maxSurge": 1, "maxUnavailable": "10%"}"#,
            "updateStrategy.rollingUpdate: the API server refuses",
        ),
        (r#"seccompProfile.type="Localhost""#, "seccompProfile.localhostProfile is missing"),
        (r#"podLabels={"k8s-app": "x"}"#, "podLabels.k8s-app is not supported: the chart sets this label"),
        (r#"env.REPAIR_BUDGET="many""#, "env.REPAIR_BUDGET is no number: say repair.budget"),
        (r#"profile="openshift-ambient""#, "ambient.enabled is not supported"),
        (r#"repair.hub="docker.io/istio""#, "repair.hub is not supported"),
        (r#"repair.tag="1.10""#, "repair.tag is not supported"),
        ("rollingMaxUnavailable=1", "rollingMaxUnavailable is not supported"),
        (r#"global.hub="docker.io/istio""#, "the image docker.io/istio/install-cni:0.1.0 is Istio's own"),
        (r#"hub="registry.istio.io/release""#, "the image registry.istio.io/release/install-cni:0.1.0 is Istio's own"),
        (r#"image="istio/install-cni:1.30.0""#, "the image istio/install-cni:1.30.0 is Istio's own"),
        (
            r#"image="gcr.io/istio-release/install-cni:1""#,
            "the image gcr.io/istio-release/install-cni:1 is Istio's own",
        ),
    ] {
        for nest in ["", "cni."] {
            let error = AGENT.try_text(&[&format!("{nest}{value}")]).unwrap_err();
            assert!(error.contains(reason), "{nest}{value}: {error}");
        }
    }
}

/// The values of Istio's other charts, as in one values file for a whole mesh, are ignored.
pub(crate) fn values_of_other_charts_are_ignored() {
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

/// Given values override those of the platform, which override those of the profile.
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

/// Variables in the value `env` override those that the chart sets; numbers in them are not reformatted.
pub(crate) fn variables_outrank_values() {
    let objects = AGENT.render(&[r#"env.EXCLUDE_NAMESPACES="a,b""#, "env.REPAIR_BUDGET=1000000", "env.X=null"]);
    let environment = Agent::of(&objects).environment();
    assert_eq!((&*environment["EXCLUDE_NAMESPACES"], &*environment["REPAIR_BUDGET"]), ("a,b", "1000000"));
    assert!(!environment.contains_key("X"), "{environment:?}");
}

/// For repair in place, AppArmor must be off: by a field if the API server has the field, otherwise by an annotation.
pub(crate) fn apparmor_is_a_field_from_1_30_on() {
    let of = |version: &str, value: &str| {
        let flags = ["--kube-version", version, "--set", "repair.mode=repair", "--set-json", value];
        let objects = parse(&AGENT.try_text_with(NAMESPACE, flags).unwrap());
        let agent = Agent::of(&objects);
        let is_annotated =
            agent.annotations.get("container.apparmor.security.beta.kubernetes.io/install-cni").is_some();
        (agent.container["securityContext"]["appArmorProfile"]["type"].as_str().map(str::to_owned), is_annotated)
    };
    let (field, annotation) = ((Some("Unconfined".to_owned()), false), (None, true));
    assert_eq!(of("1.29.14", "revision=null"), annotation);
    assert_eq!(of("1.30.0-gke.1", "revision=null"), field);
    assert_eq!(of("1.33.0", "useAppArmorAnnotation=true"), annotation);
    assert_eq!(of("1.29.14", "useAppArmorAnnotation=false"), field);
}

pub(crate) fn nodes_are_selected() {
    let objects = AGENT.render(&[r#"nodeSelector={"mesh": "yes"}"#]);
    assert_eq!(Agent::of(&objects).pod["nodeSelector"], json!({ "kubernetes.io/os": "linux", "mesh": "yes" }));
}

pub(crate) fn resource_scopes_divide_the_objects() {
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

/// The chart renders the ValidatingAdmissionPolicies only for Kubernetes 1.30 and later, which has them. Tokens can be
/// bound to nodes since 1.31, so the policy for 1.30 also allows tokens that are not bound.
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
    values::have_effects(AGENT, &[&on, &["resources=null"], &[policy], &monitoring], |path| match path {
        "updateStrategy.rollingUpdate" => Some(json!({ "maxUnavailable": 1 })),
        _ => None,
    });
}

/// As in Istio's chart, all clients may scrape unless values restrict them. Probes are always allowed, because
/// kubelets match no selector.
pub(crate) fn the_network_policy_limits_scrapers() {
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

/// NetworkPolicies need the addresses of the cluster's API servers, so the manifests contain none.
pub(crate) fn network_policies_are_off_by_default() {
    for chart in [AGENT, INJECTOR] {
        assert_eq!(of_kind(&chart.render(&[]), "NetworkPolicy").len(), 0, "{}", chart.name);
        assert!(!chart.manifest().contains("NetworkPolicy"), "{}", chart.name);
    }
}
