//! The check of the annotation that lists a pod's networks for Multus. Multus refuses a pod whose annotation it cannot parse, and does not
//! call the plugin for it.

use std::net::IpAddr;

use contract::annotation;
use gotemplate::{Budget, Exceeded};
use ipnet::IpNet;
use podfacts::name::is_part;
use serde_json::{Map, Value};

use crate::gojson;
use crate::istio::Error;
use crate::pod;

/// The size of an interface name in the kernel, with the terminating null byte (`IFNAMSIZ`).
const INTERFACE: usize = 16;

const ALLOWED: &str = "names of networks separated by commas, such as [namespace/]name[@interface], or a JSON list of objects with names: Multus, \
                       which calls the plugin by this annotation, could not read it";

/// Checks the annotation in a template's output, into which templates may copy the annotation of the pod `author`. The error shows the
/// author's value, if there is one.
///
/// # Errors
/// Multus could not parse the annotation, or the budget is spent.
pub(in crate::istio) fn check_networks(author: &Value, overlay: &Value, budget: &mut Budget) -> Result<(), Error> {
    let Some(networks) = pod::annotation(overlay, annotation::NETWORKS) else { return Ok(()) };
    let own = pod::annotation(author, annotation::NETWORKS).unwrap_or(networks);
    is_readable(networks, budget)?.then_some(()).ok_or_else(|| Error::annotation(annotation::NETWORKS, own, ALLOWED))
}

/// Whether Multus can parse the networks: as JSON if the value contains an opening bracket or brace or a quote, and as names otherwise.
fn is_readable(networks: &str, budget: &mut Budget) -> Result<bool, Exceeded> {
    if networks.contains(['[', '{', '"']) {
        let elements = gojson::decode::<Vec<Map<String, Value>>>(networks, budget)?;
        return Ok(elements.is_ok_and(|elements| elements.iter().all(is_element)));
    }
    Ok(networks.split(',').all(|network| is_name(network.trim())))
}

/// The key of a member whose value is not a string, and the check of the value.
type Typed = (&'static str, fn(&Value) -> bool);

/// The members of an element (`NetworkSelectionElement`) that are strings; [`OTHERS`] has those of other types.
const TEXTS: [&str; 7] = ["name", "namespace", "mac", "infiniband-guid", "interface", "interfaceRequest", "deviceID"];
const OTHERS: [Typed; 5] = [
    ("ips", |ips| all(ips, is_address_or_cidr)),
    ("default-route", |routes| all(routes, |address| address.is_empty() || is_address(address))),
    ("cni-args", Value::is_object),
    ("bandwidth", |bandwidth| is_map(bandwidth, |key, rate| !is_one_of(key, &RATES) || is_integer(rate))),
    ("portMappings", |ports| {
        ports.as_array().is_some_and(|ports| ports.iter().all(|port| port.is_null() || is_map(port, is_mapping)))
    }),
];

const RATES: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];

/// Whether an element has a name, and each of its known members has its type. Go matches keys in any case, and ignores a null.
fn is_element(element: &Map<String, Value>) -> bool {
    let members = |name: &'static str| {
        let of_name = move |(key, value): &(&String, &Value)| key.eq_ignore_ascii_case(name) && !value.is_null();
        element.iter().filter(of_name).map(|(_, value)| value)
    };
    let last = |name| members(name).next_back().and_then(Value::as_str).unwrap_or_default();
    let is_hardware = |name| last(name).is_empty() || is_hardware_address(last(name));
    !last("name").is_empty()
        && TEXTS.into_iter().all(|name| members(name).all(Value::is_string))
        && OTHERS.iter().all(|(name, is_valid)| members(name).all(is_valid))
        && is_hardware("mac")
        && is_hardware("infiniband-guid")
}

/// Whether a value is a list of valid strings. Go reads a null element as an empty string.
fn all(value: &Value, is_valid: fn(&str) -> bool) -> bool {
    let text = |item: &Value| if item.is_null() { is_valid("") } else { item.as_str().is_some_and(is_valid) };
    value.as_array().is_some_and(|items| items.iter().all(text))
}

/// Whether a value is a map whose members are null or valid.
fn is_map(value: &Value, is_valid: fn(&str, &Value) -> bool) -> bool {
    value.as_object().is_some_and(|members| members.iter().all(|(key, value)| value.is_null() || is_valid(key, value)))
}

/// Whether a member of an element of `portMappings` has its type.
fn is_mapping(key: &str, value: &Value) -> bool {
    match key {
        key if is_one_of(key, &["hostPort", "containerPort"]) => is_integer(value),
        key if is_one_of(key, &["protocol", "hostIP"]) => value.is_string(),
        _ => true,
    }
}

/// Whether a key is one of these names in any case, as Go matches it.
fn is_one_of(key: &str, names: &[&str]) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(key))
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// Whether Go parses a string as an IP address, or as a CIDR (`net.ParseCIDR`), whose prefix length may have leading zeros.
fn is_address_or_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return is_address(text) };
    let digits = length.trim_start_matches('0');
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let digits = if digits.is_empty() { "0" } else { digits };
    is_number && format!("{address}/{digits}").parse::<IpNet>().is_ok()
}

/// Whether Go parses a string as a hardware address (`net.ParseMAC`): 6, 8 or 20 bytes, as pairs of hexadecimal digits, or as groups of
/// four digits with dots between them.
fn is_hardware_address(text: &str) -> bool {
    let separator = text.chars().find(|c| !c.is_ascii_hexdigit());
    let (digits, lengths) = match separator {
        Some(':' | '-') => (2, [6, 8, 20]),
        Some('.') => (4, [3, 4, 10]),
        _ => return false,
    };
    let groups: Vec<&str> = separator.into_iter().flat_map(|separator| text.split(separator)).collect();
    let is_group = |group: &&str| group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    lengths.contains(&groups.len()) && groups.iter().all(is_group)
}

/// Whether a string is `[namespace/]name[@interface]` (`parsePodNetworkObjectName`).
fn is_name(network: &str) -> bool {
    let (namespace, rest) =
        network.split_once('/').map_or((None, network), |(namespace, rest)| (Some(namespace), rest));
    let (name, interface) = rest.split_once('@').map_or((rest, None), |(name, interface)| (name, Some(interface)));
    let is_part = |part: &str| is_part(part.trim(), "-");
    let is_interface = |interface: &str| {
        let interface = interface.trim();
        interface.len() < INTERFACE && !interface.contains([' ', '\t', '\n', '\u{b}', '\u{c}', '\r', '/', '@'])
    };
    is_part(name)
        && namespace.is_none_or(|namespace| namespace.trim().is_empty() || is_part(namespace))
        && interface.is_none_or(is_interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_multus_cannot_read_is_refused_by_the_annotations_name() {
        let checked = |networks: &str| {
            let overlay = serde_json::json!({"metadata": {"annotations": {annotation::NETWORKS: networks}}});
            check_networks(&Value::Null, &overlay, &mut Budget::default())
        };
        for networks in [
            "default/istio-cni",
            "a, default/istio-cni",
            "null, b-c",
            "ns/a@, b",
            "/a",
            "ns/a@eth1,b",
            "[]",
            r#"[{"name": "a", "ips": ["10.0.0.1/24", "fd00::1"]}, {"Name": "b", "namespace": "n"}]"#,
            r#"[{"name": "a", "ips": ["10.0.0.1/024", "10.0.0.1/00", "fd00::1/0128"], "Bandwidth": {"Other": "x"}}]"#,
            r#"[{"name": "a", "mac": "02:00:00:00:00:01", "default-route": ["10.0.0.1"], "cni-args": {"x": [1]}}]"#,
            r#"[{"name": "a", "mac": "0200.0000.0001", "infiniband-guid": "02-00-00-00-00-00-00-01", "deviceID": null}]"#,
            r#"[{"name": "a", "portMappings": [{"hostPort": 80, "protocol": "tcp"}], "bandwidth": {"ingressRate": 1}}]"#,
        ] {
            checked(networks).unwrap();
        }
        for networks in [
            "",
            " ",
            "a,,b",
            "a b",
            "a/b/c",
            "a@b@c",
            "[",
            r#"{"name": "a"}"#,
            r#"["a"]"#,
            r#"[{"name": "a"},]"#,
            r#"[{"name": "a"}]x"#,
            r#"[{"name": "a"}, null]"#,
            r#"[{"namespace": "a"}]"#,
            r#"[{"name": 5}]"#,
            "My_Net",
            "b.c",
            "a-",
            "-a",
            "ns_/a",
            "a@i/b",
            "a@sixteen-bytes-it",
            r#"[{"name": "a", "ips": "10.0.0.1/24"}]"#,
            r#"[{"name": "a", "ips": ["10.0.0"]}]"#,
            r#"[{"name": "a", "ips": ["10.0.0.1/33"]}]"#,
            r#"[{"name": "a", "default-route": "x"}]"#,
            r#"[{"name": "a", "default-route": ["x"]}]"#,
            r#"[{"name": "a", "cni-args": "x"}]"#,
            r#"[{"name": "a", "mac": "02:00"}]"#,
            r#"[{"name": "a", "infiniband-guid": "x"}]"#,
            r#"[{"name": "a", "portMappings": [{"hostPort": "80"}]}]"#,
            r#"[{"name": "a", "bandwidth": {"ingressRate": "1M"}}]"#,
            r#"[{"name": "a", "Bandwidth": {"IngressRate": "x"}}]"#,
            r#"[{"name": "a", "portMappings": [{"HOSTPORT": "80"}]}]"#,
            r#"[{"name": "a", "ips": ["10.0.0.1/"]}]"#,
            r#"[{"name": "a", "ips": ["10.0.0.1/+24"]}]"#,
            r#"[{"name": "a", "ips": ["fe80::1%eth0/64"]}]"#,
            r#"[{"name": "a", "interfaceRequest": 1}]"#,
            r#""a""#,
        ] {
            let error = checked(networks).unwrap_err().to_string();
            let start =
                format!("invalid value {networks:?} for annotation \"k8s.v1.cni.cncf.io/networks\": must be names");
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
