//! Parses the values and the mesh configuration in an `IstioOperator` resource (`--operatorFileName`).

use inject::istio::{self, Mesh, Values};
use inject::yaml;
use serde_json::{Map, Value, json};

use super::super::Error;

const FLAG: &str = "--operatorFileName";

/// The profiles whose values for pods are all used: the defaults of the charts, or what [`implied`] returns.
const KNOWN: [&str; 4] = ["default", "empty", "minimal", OPENSHIFT];
/// The profile for OpenShift.
const OPENSHIFT: &str = "openshift";
/// The profile with the values of [`OPENSHIFT`] and with values for ambient mode, which are not used.
const OPENSHIFT_AMBIENT: &str = "openshift-ambient";

/// The parts of the configuration that the resource contains.
#[derive(Debug, Default)]
pub(super) struct Operator {
    /// `spec.values`.
    pub(super) values: Option<Values>,
    pub(super) mesh: Option<Mesh>,
    /// The values that other fields of the spec imply. They are defaults for `spec.values`, and override values from other sources.
    pub(super) implied: Value,
    /// A warning about the profile, if not all of its values are used.
    pub(super) unused_profile: Option<String>,
}

impl Operator {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |cause| Error::Configuration { what: FLAG.to_owned(), cause };
        let no_map = || wrong(istio::Error::NoMap("spec of the IstioOperator"));
        let resource =
            yaml::value(text).map_err(|error| wrong(istio::Error::Configuration { what: "IstioOperator", error }))?;
        let spec = resource.get("spec").and_then(Value::as_object).ok_or_else(no_map)?;
        let part = |key: &str| spec.get(key).filter(|part| !part.is_null());
        let values = part("values").map(|values| Values::parse(&values.to_string()).map_err(wrong)).transpose()?;
        let mesh = part("meshConfig").map(|mesh| Mesh::parse(&mesh.to_string()).map_err(wrong));
        let profile = spec.get("profile").and_then(Value::as_str).filter(|profile| !profile.is_empty());
        Ok(Self {
            values,
            mesh: mesh.transpose()?,
            implied: implied(spec, matches!(profile, Some(OPENSHIFT | OPENSHIFT_AMBIENT))),
            unused_profile: profile.and_then(unused),
        })
    }
}

/// Returns a warning about a profile if not all of its values are used.
fn unused(profile: &str) -> Option<String> {
    match profile {
        known if KNOWN.contains(&known) => None,
        OPENSHIFT_AMBIENT => Some(format!(
            "of the values of the IstioOperator's profile {OPENSHIFT_AMBIENT}, only those of {OPENSHIFT} are used: set others in spec.values"
        )),
        other => Some(format!(
            "the values of the IstioOperator's profile {other} are not known, and not used: set them in spec.values"
        )),
    }
}

/// Returns the values that fields of the spec other than `values` imply.
fn implied(spec: &Map<String, Value>, openshift: bool) -> Value {
    let mut values = match openshift {
        true => json!({"global": {"platform": "openshift"}, "pilot": {"cni": {"enabled": true, "provider": "multus"}}}),
        false => json!({}),
    };
    let part = |key: &str| spec.get(key).filter(|part| !part.is_null()).cloned();
    for (key, value) in [("hub", part("hub")), ("tag", part("tag")), ("istioNamespace", part("namespace"))] {
        if let Some(value) = value {
            values["global"][key] = value;
        }
    }
    if let Some(revision) = part("revision") {
        values["revision"] = revision;
    }
    let plugin = spec.get("components").and_then(|components| components.pointer("/cni/enabled")?.as_bool());
    if let Some(enabled) = plugin {
        values["pilot"]["cni"]["enabled"] = enabled.into();
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_spec_stand_for_values() {
        let implied = |spec: Value| Operator::parse(&json!({"spec": spec}).to_string()).unwrap().implied;
        assert_eq!(implied(json!({"profile": "default"})), json!({}));
        let openshift =
            json!({"global": {"platform": "openshift"}, "pilot": {"cni": {"enabled": true, "provider": "multus"}}});
        assert_eq!(implied(json!({"profile": "openshift"})), openshift);
        assert_eq!(implied(json!({"profile": "openshift-ambient"})), openshift);
        assert_eq!(implied(json!({"profile": "openshiftx"})), json!({}));
        let without_plugin = json!({"profile": "openshift", "components": {"cni": {"enabled": false}}});
        assert_eq!(implied(without_plugin)["pilot"]["cni"], json!({"enabled": false, "provider": "multus"}));
        let named = json!({"hub": "h", "tag": 1.25, "revision": "canary", "namespace": "mesh", "values": {"a": 1}});
        let expected = json!({"global": {"hub": "h", "tag": 1.25, "istioNamespace": "mesh"}, "revision": "canary"});
        assert_eq!(implied(named), expected);
    }

    #[test]
    fn a_profile_whose_values_are_not_used_is_named() {
        let unused = |profile: &str| Operator::parse(&format!("spec: {{profile: {profile}}}")).unwrap().unused_profile;
        let none = |profile: &str| {
            format!(
                "the values of the IstioOperator's profile {profile} are not known, and not used: set them in spec.values"
            )
        };
        assert_eq!([unused("demo"), unused("openshiftx")], [Some(none("demo")), Some(none("openshiftx"))]);
        let ambient = "of the values of the IstioOperator's profile openshift-ambient, only those of openshift are used: set \
                       others in spec.values";
        assert_eq!(unused("openshift-ambient").as_deref(), Some(ambient));
        assert_eq!([unused("default"), unused("openshift"), unused("''")], [None, None, None]);
    }
}
