//! Reads a case of the corpus and builds an injector with its configuration.

use std::collections::BTreeMap;
use std::path::Path;

use inject::istio::{Config, Injector, Mesh, Platform, Settings, Values};
use libtest_mimic::Failed;
use serde_json::Value;

/// A case: the content of `case.json`, and an injector with the settings that it names.
pub(crate) struct Case {
    pub(crate) json: Value,
    pub(crate) injector: Injector,
}

impl Case {
    /// Reads a case and the settings that it names.
    pub(crate) fn read(dir: &Path) -> Result<Self, Failed> {
        Self::with_config(dir, |config| Ok(config.to_owned()))
    }

    /// Reads a case and the settings that it names; `other` replaces Istio's configuration.
    pub(crate) fn with_config(dir: &Path, other: fn(&str) -> Result<String, Failed>) -> Result<Self, Failed> {
        let json: Value = serde_json::from_str(&read(dir, "case.json")?)?;
        let word = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        let settings = dir.join("../../settings").join(word("settings"));
        let config = Config {
            settings: Settings::parse(&other(&read(&settings, "config.yaml")?)?, None)?,
            values: Values::parse(&read(&settings, "values.json")?)?,
            mesh: Mesh::parse(&read(dir, "mesh.yaml")?)?,
            revision: word("revision"),
            platform: if word("platform") == "openshift" { Platform::OpenShift } else { Platform::Kubernetes },
            compliance_policy: word("compliance_policy"),
        };
        Ok(Self { json, injector: Injector::new(config) })
    }

    /// Whether the case requests native sidecars.
    pub(crate) fn native_sidecars(&self) -> bool {
        self.json["native_sidecars"] == true
    }

    /// Returns the annotations that OpenShift sets on the namespace.
    pub(crate) fn namespace_annotations(&self) -> BTreeMap<String, String> {
        let annotations = self.json["namespace_annotations"].as_object().into_iter().flatten();
        annotations.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
    }
}

/// Reads a file of a case.
pub(crate) fn read(dir: &Path, name: &str) -> Result<String, Failed> {
    let path = dir.join(name);
    std::fs::read_to_string(&path).map_err(|error| Failed::from(format!("{}: {error}", path.display())))
}
