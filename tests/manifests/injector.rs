//! The webhook's container in a manifest, and tests of its chart.

pub(crate) mod arguments;
pub(crate) mod life;
pub(crate) mod rights;
pub(crate) mod selectors;

use serde_json::{Value, json};

use crate::helm::INJECTOR;
use crate::objects::{is_known, only, strings};
use crate::values;

/// Values that enable Dapr's injection.
const DAPR: [&str; 3] = ["dapr.enabled=true", r#"dapr.image="daprd:1""#, r#"dapr.namespace="dapr-system""#];

/// The value that enables Dapr's watchdog.
const WATCHDOG: &str = r#"dapr.watchdog.interval="2m""#;

/// The webhook's Deployment, pod template and container.
pub(crate) struct Injector {
    /// The Deployment's specification.
    deployment: Value,
    /// The pod's template.
    template: Value,
    /// The pod's only container.
    pub(crate) container: Value,
}

impl Injector {
    pub(crate) fn of(objects: &[Value]) -> Self {
        let deployment = only(objects, "Deployment")["spec"].clone();
        let template = deployment["template"].clone();
        let containers = template["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        Self { container: containers[0].clone(), deployment, template }
    }

    /// Returns the container's command line: program and arguments.
    pub(crate) fn line(&self) -> Vec<String> {
        [strings(&self.container["command"]), strings(&self.container["args"])].concat()
    }

    /// Returns the value of an argument.
    fn argument(&self, name: &str) -> Option<String> {
        self.line().iter().find_map(|argument| argument.strip_prefix(&format!("--{name}=")).map(str::to_owned))
    }
}

pub(crate) fn every_value_has_an_effect() {
    let own = [DAPR.as_slice(), &[r#"revision="canary""#, "excludeNamespaces=[]"]].concat();
    let policy = [
        "global.networkPolicy.enabled=true",
        r#"global.networkPolicy.apiServers=["10.0.0.1/32"]"#,
        r#"global.networkPolicy.scrapers=[{"namespaceSelector": {}}]"#,
    ];
    let others = [DAPR.as_slice(), &[WATCHDOG, r#"certificate.secret="x""#, r#"injectConfigMapName="y""#]].concat();
    let monitoring = ["serviceMonitor", "rules", "dashboards"].map(|part| format!("monitoring.{part}.enabled=true"));
    let monitoring = monitoring.each_ref().map(String::as_str);
    values::have_effects(INJECTOR, &[&own, &others, &policy, &monitoring, &[]], |path| match path {
        "global.platform" => Some(json!("openshift")),
        _ => None,
    });
}

pub(crate) fn invalid_values_are_refused() {
    for (value, reason) in [
        (r#"revisionTags=["default"]"#, r#"revisionTags has "default", which is the revision itself"#),
        (r#"global.hub="docker.io/istio""#, "the image docker.io/istio/install-cni:0.1.0 is Istio's own"),
        (r#"podLabels.app="x""#, "podLabels.app is not supported: the chart sets this label"),
        ("dapr.enabled=true", "dapr.image is not given"),
        ("global.networkPolicy.enabled=true", "global.networkPolicy.apiServers is empty: who sends reviews?"),
        ("lingerSeconds=20", "terminationGracePeriodSeconds must be more"),
    ] {
        let error = INJECTOR.try_text(&[value]).unwrap_err();
        assert!(error.contains(reason), "{value}: {error}");
    }
}

/// Each ingress rule of the NetworkPolicy must have a `from`. A rule without it would allow all clients.
pub(crate) fn the_network_policy_limits_clients() {
    let api = r#"global.networkPolicy.apiServers=["10.0.0.1/32", "fd00::1/128"]"#;
    let ingress = |values: &[&str]| {
        let objects = INJECTOR.render(&[&["global.networkPolicy.enabled=true", api], values].concat());
        objects.iter().for_each(is_known);
        only(&objects, "NetworkPolicy")["spec"]["ingress"].clone()
    };
    let cidr = |cidr: &str| json!({ "ipBlock": { "cidr": cidr } });
    let reviews = json!({ "from": [cidr("10.0.0.1/32"), cidr("fd00::1/128")],
        "ports": [{ "protocol": "TCP", "port": "webhook" }] });
    assert_eq!(ingress(&[]), json!([reviews]));
    let scrapers = json!([{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "monitoring" } } }]);
    let metrics = json!({ "from": scrapers, "ports": [{ "protocol": "TCP", "port": "monitoring" }] });
    assert_eq!(ingress(&[&format!("global.networkPolicy.scrapers={scrapers}")]), json!([reviews, metrics]));
}
