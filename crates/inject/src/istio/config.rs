//! The parsed configuration of an injector.

use contract::port;
use serde_json::Value;

use super::mesh::Mesh;
use super::settings::Settings;
use super::values::Values;
use super::{chart_values, unused, unused_values};

/// The platform of the cluster, as far as injection depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    #[default]
    Kubernetes,
    /// OpenShift, where namespaces have ranges of user and group IDs.
    OpenShift,
}

impl Platform {
    /// Returns the platform with this name, in any case; all names other than OpenShift's stand for Kubernetes.
    pub fn named(name: &str) -> Self {
        if name.eq_ignore_ascii_case("openshift") { Self::OpenShift } else { Self::Kubernetes }
    }

    /// Returns the platform that `global.platform` of the values names.
    pub fn of(values: &Values) -> Self {
        Self::named(values.raw.pointer("/global/platform").and_then(Value::as_str).unwrap_or_default())
    }
}

/// The configuration of an [`Injector`](super::Injector).
#[derive(Debug)]
pub struct Config {
    /// The key `config` of the injection ConfigMap.
    pub settings: Settings,
    /// The key `values` of the injection ConfigMap.
    pub values: Values,
    /// The mesh configuration.
    pub mesh: Mesh,
    /// The control plane's revision; empty: the default revision.
    pub revision: String,
    pub platform: Platform,
    /// `COMPLIANCE_POLICY`, such as `fips-140-3`; empty: none.
    pub compliance_policy: String,
}

impl Config {
    /// Returns the warnings for the log about parts of the configuration that are ignored.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let unknown = unused::listed(&self.mesh.unknown, "fields of the mesh configuration that Istio does not have");
        let unread = unused_values::warning(&self.settings, &self.values.raw);
        let unfollowed = chart_values::warnings(&self.settings, &self.values.raw);
        self.settings
            .warnings
            .iter()
            .cloned()
            .chain(unknown)
            .chain(unread)
            .chain(unfollowed)
            .chain(self.other_status_port())
    }

    /// Returns the warning about a status port in Helm's values on which no agent listens: pods would exclude that port from the
    /// redirection instead of the port in the mesh configuration. There is no warning if the mesh configuration sets a port other than the
    /// default, which takes precedence, nor for port 0, which disables the readiness probe.
    fn other_status_port(&self) -> Option<String> {
        let valued = self.values.raw.pointer("/global/proxy/statusPort").filter(|port| !port.is_null())?;
        let valued = match (valued.as_str().filter(|text| !text.is_empty()), valued.as_f64()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) => valued.to_string(),
        };
        let listening = self.mesh.json.pointer("/defaultConfig/statusPort").and_then(Value::as_u64);
        let listening = listening.unwrap_or(port::STATUS.into());
        let is_other = listening == u64::from(port::STATUS) && !["0", &listening.to_string()].contains(&&*valued);
        is_other.then(|| {
            format!(
                "global.proxy.statusPort is {valued}, but agents listen on {listening}, by statusPort of the mesh's defaultConfig; set \
                 both to one port"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::istio::{BuiltIn, Config, Mesh, Values};

    #[test]
    fn a_status_port_of_the_values_on_which_no_agent_listens_is_named() {
        let warned = |valued: serde_json::Value, configured: Option<u16>| {
            let config = BuiltIn::default().config().unwrap();
            let values = Values::parse(&json!({"global": {"proxy": {"statusPort": valued}}}).to_string()).unwrap();
            let mesh = json!({"defaultConfig": {"statusPort": configured}});
            let mesh = configured.map_or(String::new(), |_| mesh.to_string());
            Config { values, mesh: Mesh::parse(&mesh).unwrap(), ..config }.warnings().collect::<Vec<_>>()
        };
        let named = |port: &str| format!("global.proxy.statusPort is {port}, but agents listen on 15020, ");
        for (valued, configured, port) in [
            (json!(15099), None, "15099"),
            (json!("15099"), Some(15020), "15099"),
            (json!(""), None, "\"\""),
            (json!("0.0"), None, "0.0"),
        ] {
            let found = warned(valued, configured);
            assert!(matches!(&found[..], [text] if text.starts_with(&named(port))), "{found:?}");
        }
        for (valued, configured) in [
            (json!(15020), None),
            (json!("15020"), Some(15020)),
            (json!(null), None),
            (json!(0), None),
            (json!(0.0), None),
            (json!(15020.0), None),
            (json!(15020), Some(15099)),
        ] {
            assert_eq!(warned(valued.clone(), configured), [""; 0], "{valued}, {configured:?}");
        }
    }
}
