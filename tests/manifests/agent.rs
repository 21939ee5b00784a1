//! The agent's container in a manifest: arguments, environment, capabilities, mounts.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::objects::{only, strings};

/// The placeholder for a variable whose value comes from a field of the pod.
const OF_THE_POD: &str = "(of the pod)";

/// The agent's pod and its container.
pub(crate) struct Agent<'a> {
    objects: &'a [Value],
    /// The pod's specification.
    pub(crate) pod: &'a Value,
    /// The pod's annotations.
    pub(crate) annotations: &'a Value,
    /// The only container of the pod.
    pub(crate) container: &'a Value,
}

impl<'a> Agent<'a> {
    pub(crate) fn of(objects: &'a [Value]) -> Self {
        let template = &only(objects, "DaemonSet")["spec"]["template"];
        let pod = &template["spec"];
        assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
        Self { objects, pod, annotations: &template["metadata"]["annotations"], container: &pod["containers"][0] }
    }

    /// Returns the container's command line: program and arguments.
    pub(crate) fn line(&self) -> Vec<String> {
        [strings(&self.container["command"]), strings(&self.container["args"])].concat()
    }

    /// Returns all environment variables. The container's variables override those of the ConfigMap.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let map = only(self.objects, "ConfigMap");
        assert_eq!(self.container["envFrom"][0]["configMapRef"]["name"], map["metadata"]["name"]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of_map = map["data"].as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value)));
        let own = self.container["env"].as_array().unwrap().iter().map(|variable| {
            let value = variable.get("value").map_or_else(|| OF_THE_POD.to_owned(), text);
            (text(&variable["name"]), value)
        });
        of_map.chain(own).collect()
    }

    /// Returns the capabilities that the container adds; asserts that all others are dropped.
    pub(crate) fn capabilities(&self) -> Vec<String> {
        let capabilities = &self.container["securityContext"]["capabilities"];
        assert_eq!(strings(&capabilities["drop"]), ["ALL"]);
        strings(&capabilities["add"])
    }

    /// Returns each mount as `NODE PATH -> CONTAINER PATH`, followed by ` (ro)` if it is read-only.
    pub(crate) fn mounts(&self) -> Vec<String> {
        let volumes = self.pod["volumes"].as_array().unwrap();
        let of = |mount: &Value| {
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            let (from, to) = (volume["hostPath"]["path"].as_str().unwrap(), mount["mountPath"].as_str().unwrap());
            format!("{from} -> {to}{}", if mount["readOnly"] == true { " (ro)" } else { "" })
        };
        let mounts = self.container["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.len(), volumes.len(), "every volume is mounted");
        mounts.iter().map(of).collect()
    }
}
