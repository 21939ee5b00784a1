//! Replies for standard output: one JSON value and a newline. DEL, CHECK, GC and STATUS reply nothing on success.

use serde::Serialize;
use serde_json::value::RawValue;

use super::error::excerpt;
use super::object::Object;
use super::{Code, Error, NetConf, Removed, Version};

/// Builds the reply to ADD: `prevResult` unchanged, or an empty result of the configuration's version.
///
/// Fails if `prevResult` is not an object or has an unknown version, because it becomes this plugin's own reply. Call
/// this before changing the pod, so that a failure leaves the pod unchanged.
pub fn add(conf: &NetConf<'_>) -> Result<String, Error> {
    match conf.prev_result {
        Some(raw) => {
            check_prev_result(raw)?;
            Ok(format!("{}\n", raw.get()))
        }
        // All versions accept this: addresses, routes and interfaces are optional in each.
        None => Ok(format!("{{\"cniVersion\":\"{}\",\"dns\":{{}}}}\n", conf.version)),
    }
}

/// Builds a removed plugin's reply to ADD: `prevResult` unchanged and unchecked.
pub fn pass(conf: &Removed<'_>) -> String {
    let version = conf.version.as_deref().unwrap_or(Version::NEWEST.as_str());
    match conf.prev_result {
        Some(raw) => format!("{}\n", raw.get()),
        None => format!("{{\"cniVersion\":{},\"dns\":{{}}}}\n", serde_json::Value::from(version)),
    }
}

fn check_prev_result(raw: &RawValue) -> Result<(), Error> {
    let keys: Object<'_> = serde_json::from_str(raw.get()).map_err(Error::PrevResult)?;
    let version = keys.get("cniVersion").map(|raw| serde_json::from_str::<Option<String>>(raw.get()));
    let version = version.transpose().map_err(Error::PrevResult)?.flatten().unwrap_or_default();
    if version.is_empty() || Version::find(&version).is_some() {
        return Ok(());
    }
    Err(Error::PrevResultVersion(excerpt(&version)))
}

/// Builds the reply to VERSION.
pub fn versions() -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Versions {
        cni_version: &'static str,
        supported_versions: [&'static str; Version::ALL.len()],
    }
    line(&Versions { cni_version: Version::NEWEST.as_str(), supported_versions: Version::ALL.map(Version::as_str) })
}

/// Returns the message for standard error when a person starts the plugin by hand.
pub fn about(plugin_version: &str) -> String {
    let versions = Version::ALL.map(Version::as_str).join(", ");
    format!("CNI plugin istio-cni {plugin_version}\nCNI protocol versions supported: {versions}\n")
}

/// An error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub msg: String,
    /// Empty if the message is complete.
    pub details: String,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self { code: error.code(), msg: error.to_string(), details: error.details() }
    }
}

impl Failure {
    /// Formats the reply as JSON; `version` is the configuration's, or none if it could not be read.
    pub fn to_json(&self, version: Option<Version>) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            cni_version: &'static str,
            code: u32,
            msg: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            details: &'a str,
        }
        line(&Wire {
            cni_version: version.unwrap_or(Version::NEWEST).as_str(),
            code: self.code.number(),
            msg: &self.msg,
            details: &self.details,
        })
    }
}

/// Formats a value as a line of JSON. The values hold only strings and numbers, so serialising them cannot fail.
fn line(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_to(json: &str) -> Result<String, (u32, String)> {
        let conf = NetConf::parse(json.as_bytes()).unwrap();
        add(&conf).map_err(|error| (error.code().number(), error.to_string()))
    }

    #[test]
    fn add_repeats_prev_result_byte_for_byte() {
        let raw =
            "{ \"cniVersion\" : \"0.3.1\", \"ips\":[ {\"version\":\"4\"}],\t\"foreign\":1e400,\"s\":\"\\u003c<\" }";
        let json = format!(r#"{{"name":"n","cniVersion":"1.0.0","prevResult":{raw} }}"#);
        assert_eq!(add_to(&json), Ok(format!("{raw}\n")));
    }

    #[test]
    fn add_without_prev_result_answers_in_the_configs_version() {
        for version in Version::ALL {
            let json = format!(r#"{{"name":"n","cniVersion":"{version}"}}"#);
            assert_eq!(add_to(&json), Ok(format!("{{\"cniVersion\":\"{version}\",\"dns\":{{}}}}\n")));
        }
        assert_eq!(add_to(r#"{"name":"n"}"#), Ok("{\"cniVersion\":\"0.1.0\",\"dns\":{}}\n".into()));
    }

    #[test]
    fn add_refuses_an_invalid_prev_result() {
        for garbage in ["[]", "\"x\"", "7", "false", r#"{"cniVersion":1}"#] {
            let (code, message) = add_to(&format!(r#"{{"name":"n","prevResult":{garbage}}}"#)).unwrap_err();
            assert_eq!(code, 6, "{garbage}");
            assert!(message.starts_with("cannot decode prevResult"), "{message}");
        }
        let unknown = add_to(r#"{"name":"n","prevResult":{"cniVersion":"7.0.0"}}"#);
        assert_eq!(unknown, Err((7, r#"prevResult has the unsupported cniVersion "7.0.0""#.into())));
        assert!(add_to(r#"{"name":"n","prevResult":{}}"#).is_ok());
    }

    #[test]
    fn a_removed_plugin_passes_any_result_on() {
        let pass = |json: &str| pass(&Removed::parse(json.as_bytes()).unwrap());
        for (json, expected) in [
            (r#"{"cniVersion":"9.0.0","prevResult":{"x": 1e400},"force_iptables_binary":"b"}"#, "{\"x\": 1e400}\n"),
            (r#"{"cniVersion":"9.0.0","exclude_namespaces":7}"#, "{\"cniVersion\":\"9.0.0\",\"dns\":{}}\n"),
            (r#"{"cniVersion":4,"prevResult":null}"#, "{\"cniVersion\":\"1.1.0\",\"dns\":{}}\n"),
        ] {
            assert_eq!(pass(json), expected, "{json}");
        }
        assert_eq!(Removed::parse(br#"{"cni_agent_run_dir":5}"#).unwrap().run_dir.as_os_str(), contract::RUN_DIR);
        assert!(matches!(Removed::parse(b"[]"), Err(Error::Json(_))));
    }

    #[test]
    fn version_lists_what_istio_lists() {
        let expected = "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":\
                        [\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";
        assert_eq!(versions(), expected);
    }

    #[test]
    fn about_names_plugin_and_versions() {
        assert_eq!(
            about("1.2.3"),
            "CNI plugin istio-cni 1.2.3\n\
             CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0\n"
        );
    }

    #[test]
    fn a_failure_has_code_message_and_details() {
        let failure = Failure::from(&Error::ContainerId("a/b".into()));
        assert_eq!(
            failure.to_json(Some(Version::V0_4_0)),
            "{\"cniVersion\":\"0.4.0\",\"code\":4,\"msg\":\"invalid characters in containerID\",\"details\":\"a/b\"}\n"
        );
        let own = Failure { code: Code::Plugin, msg: "a \"b\"".into(), details: String::new() };
        assert_eq!(own.to_json(None), "{\"cniVersion\":\"1.1.0\",\"code\":999,\"msg\":\"a \\\"b\\\"\"}\n");
    }
}
