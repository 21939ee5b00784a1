//! `CNI_ARGS`, in which a Kubernetes runtime names the container's pod.

use super::Error;
use super::error::excerpt;

/// The pod named by the runtime. Every field is optional: other users of CNI have no pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodArgs {
    /// `K8S_POD_NAME`
    pub name: Option<String>,
    /// `K8S_POD_NAMESPACE`
    pub namespace: Option<String>,
    /// `K8S_POD_UID`
    pub uid: Option<String>,
    /// The names of the unknown keys, in order; without `IgnoreUnknown=1`, they are an error.
    pub unknown: Vec<String>,
}

impl PodArgs {
    /// Parses `K=V;K2=V2` in any order (containerd's order is random). An empty string and empty values are valid. A
    /// pair without exactly one `=`, or an unknown key without `IgnoreUnknown`, is an error. If a key is repeated, its
    /// last value is used.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut args = Self::default();
        let mut ignore_unknown = false;
        if text.is_empty() {
            return Ok(args);
        }
        for pair in text.split(';') {
            let (key, value) = split_pair(pair)?;
            match key {
                "IgnoreUnknown" => ignore_unknown = parse_bool(value)?,
                "K8S_POD_NAME" => args.name = path_segment("K8S_POD_NAME", value)?,
                "K8S_POD_NAMESPACE" => args.namespace = path_segment("K8S_POD_NAMESPACE", value)?,
                "K8S_POD_UID" => args.uid = non_empty(value),
                // The ID of the pod sandbox is ignored, because `CNI_CONTAINERID` contains it, too.
                "K8S_POD_INFRA_CONTAINER_ID" => {}
                other => args.unknown.push(excerpt(other)),
            }
        }
        if ignore_unknown || args.unknown.is_empty() { Ok(args) } else { Err(Error::ArgsUnknown(args.unknown)) }
    }
}

fn split_pair(pair: &str) -> Result<(&str, &str), Error> {
    match pair.split_once('=') {
        Some((key, value)) if !value.contains('=') => Ok((key, value)),
        _ => Err(Error::ArgsPair(excerpt(pair))),
    }
}

/// Accepts the spellings of the Go library's `UnmarshallableBool`.
fn parse_bool(value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(Error::ArgsValue { key: "IgnoreUnknown", value: excerpt(value), allowed: "1, true, 0 or false" }),
    }
}

/// Validates a name that becomes one segment of a URL path. Refuses what the API server refuses in a path segment
/// (`IsValidPathSegmentName`), and names above 253 bytes, so that a name cannot select another resource.
fn path_segment(key: &'static str, value: &str) -> Result<Option<String>, Error> {
    if value == "." || value == ".." || value.contains(['/', '%']) || value.len() > 253 {
        let allowed = "a Kubernetes name of at most 253 bytes without `/` and `%`";
        return Err(Error::ArgsValue { key, value: excerpt(value), allowed });
    }
    Ok(non_empty(value))
}

fn non_empty(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINERD: &str = "K8S_POD_UID=f9e3;IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
                              K8S_POD_INFRA_CONTAINER_ID=9dad";

    fn message(text: &str) -> String {
        let error = PodArgs::parse(text).unwrap_err();
        assert_eq!(error.code().number(), 4);
        error.to_string()
    }

    #[test]
    fn containerds_args_parse_in_any_order() {
        let expected = PodArgs {
            name: Some("web-0".into()),
            namespace: Some("shop".into()),
            uid: Some("f9e3".into()),
            unknown: vec![],
        };
        let mut pairs: Vec<_> = CONTAINERD.split(';').collect();
        for _ in 0..pairs.len() {
            assert_eq!(PodArgs::parse(&pairs.join(";")).unwrap(), expected);
            pairs.rotate_left(1);
        }
    }

    #[test]
    fn empty_args_and_empty_values_name_no_pod() {
        assert_eq!(PodArgs::parse("").unwrap(), PodArgs::default());
        assert_eq!(PodArgs::parse("K8S_POD_NAME=;K8S_POD_UID=").unwrap(), PodArgs::default());
    }

    #[test]
    fn a_pair_needs_exactly_one_equals_sign() {
        assert!(message("K8S_POD_NAME").contains(r#"invalid pair "K8S_POD_NAME""#));
        assert!(message("K8S_POD_NAME=a=b").contains(r#"invalid pair "K8S_POD_NAME=a=b""#));
        assert!(message("K8S_POD_NAME=a;").contains(r#"invalid pair """#));
    }

    #[test]
    fn unknown_keys_need_ignore_unknown_before_or_after_them() {
        assert!(message("FOO=1;BAR=2").contains(r#"unknown args ["FOO", "BAR"]"#));
        assert!(message("FOO=1;IgnoreUnknown=0").contains("FOO"));
        for text in ["IgnoreUnknown=1;FOO=1", "FOO=1;IgnoreUnknown=TRUE"] {
            assert_eq!(PodArgs::parse(text).unwrap().unknown, ["FOO"]);
        }
        assert!(message("IgnoreUnknown=yes").contains("expected 1, true, 0 or false"));
    }

    #[test]
    fn a_name_stays_one_segment_of_a_url_path() {
        for bad in [".", "..", "a/b", "a%2fb", &"a".repeat(254)] {
            assert!(message(&format!("K8S_POD_NAMESPACE={bad}")).contains("K8S_POD_NAMESPACE="), "{bad}");
        }
        assert_eq!(PodArgs::parse("K8S_POD_NAME=a.b").unwrap().name.as_deref(), Some("a.b"));
    }
}
