//! The webhook as its manifest starts it, and what of its chart is tested.

pub(crate) mod arguments;
pub(crate) mod life;
pub(crate) mod rights;
pub(crate) mod selectors;

use serde_json::{Value, json};

use crate::helm::INJECTOR;
use crate::objects::{only, strings};
use crate::values;

/// With Dapr's sidecars, too.
const DAPR: [&str; 3] = ["dapr.enabled=true", r#"dapr.image="daprd:1""#, r#"dapr.namespace="dapr-system""#];

/// Its watchdog, beside those.
const WATCHDOG: &str = r#"dapr.watchdog.interval="2m""#;

/// The webhook's container, and its pod.
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

    /// Program and arguments.
    pub(crate) fn line(&self) -> Vec<String> {
        [strings(&self.container["command"]), strings(&self.container["args"])].concat()
    }

    /// What the argument of this name says.
    fn argument(&self, name: &str) -> Option<String> {
        self.line().iter().find_map(|argument| argument.strip_prefix(&format!("--{name}=")).map(str::to_owned))
    }
}

pub(crate) fn every_value_has_an_effect() {
    let own = [DAPR.as_slice(), &[r#"revision="canary""#, "excludeNamespaces=[]"]].concat();
    let others = [DAPR.as_slice(), &[WATCHDOG, r#"certificate.secret="x""#, r#"injectConfigMapName="y""#]].concat();
    values::have_effects(INJECTOR, "", &[&own, &others, &[]], |path| match path {
        "global.platform" => Some(json!("openshift")),
        "dapr.release" => Some(json!("1.4")),
        _ => None,
    });
}

pub(crate) fn what_cannot_be_is_refused() {
    for (value, reason) in [
        (r#"revisionTags=["default"]"#, r#"revisionTags has "default", which is the revision itself"#),
        (r#"global.platform="k3s""#, r#"global.platform is "k3s"; only openshift"#),
        ("dapr.enabled=true", "dapr.image is not given"),
        ("lingerSeconds=20", "terminationGracePeriodSeconds must be more"),
    ] {
        let error = INJECTOR.try_text(&[value]).unwrap_err();
        assert!(error.contains(reason), "{value}: {error}");
    }
}
