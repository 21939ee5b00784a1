//! The formats of strings in a pod that the API server checks (apimachinery's `validation` and `content`).

use std::net::IpAddr;

use serde_json::Value;

use podfacts::name::{SUBDOMAIN, is_part};

/// The maximum length of a port's name, in bytes.
const PORT_NAME: usize = 15;

/// Returns a condition on strings. Other types satisfy it: they are refused elsewhere.
pub(super) fn text(is_valid: impl Fn(&str) -> bool) -> impl Fn(&Value) -> bool {
    move |value| value.as_str().is_none_or(&is_valid)
}

/// Returns the condition that a string is one of `allowed`, or empty, which is the same as absent.
pub(super) fn one_of(allowed: &[&str]) -> impl Fn(&Value) -> bool {
    text(|text| text.is_empty() || allowed.contains(&text))
}

/// Whether a string is a valid domain in `dnsConfig.searches`.
pub(super) fn is_search(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    text == "." || (name.len() <= SUBDOMAIN && name.split('.').all(|part| is_part(part, "-_")))
}

/// Whether a string is a valid name of a sysctl.
pub(super) fn is_sysctl(text: &str) -> bool {
    text.len() <= SUBDOMAIN && text.split(['.', '/']).all(|part| is_part(part, "-_"))
}

/// Whether a string is a valid name of a port (`IANA_SVC_NAME`).
pub(super) fn is_port_name(name: &str) -> bool {
    let has_letter = name.contains(|c: char| c.is_ascii_lowercase());
    name.len() <= PORT_NAME && is_part(name, "-") && has_letter && !name.contains("--")
}

/// Whether a variable may have this name.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| (c.is_ascii_graphic() || c == ' ') && c != '=')
}

/// Whether a ConfigMap or a Secret may have this key.
pub(super) fn is_config_key(key: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !key.is_empty() && key.len() <= SUBDOMAIN && key.chars().all(is_inside) && key != "." && !key.starts_with("..")
}

/// Whether an HTTP header may have this name.
pub(super) fn is_header(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Whether a string is an IP address. In the API's old fields, parts of an IPv4 address may have leading zeros.
pub(super) fn is_address(text: &str) -> bool {
    let plain = |part: &str| match part.trim_start_matches('0') {
        "" => part.get(..1).unwrap_or_default().to_owned(),
        digits => digits.to_owned(),
    };
    let is_v4 = || text.split('.').map(plain).collect::<Vec<_>>().join(".").parse::<IpAddr>().is_ok();
    text.parse::<IpAddr>().is_ok() || (!text.contains(':') && is_v4())
}

/// Whether a path has no component `..`.
pub(super) fn is_straight(path: &str) -> bool {
    path.split('/').all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_characters_and_its_length() {
        for (is_valid, valid, invalid) in [
            (is_search as fn(&str) -> bool, &[".", "a.b.", "a_b.c"][..], &["", "a b", "..", "_a"][..]),
            (is_sysctl, &["net.ipv4.ip_local", "net/ipv4"], &["", "Net", "net..ipv4", "net.-x"]),
            (is_port_name, &["http", "a-1"], &["", "80", "a--b", "a-", "a234567890123456"]),
            (is_variable, &["A", "a.b c"], &["", "A=", "é"]),
            (is_config_key, &["a", ".a", "A_b-c.d"], &["", ".", "..", "..a", "a/b"]),
            (is_header, &["X-A", "a"], &["", "X A", "a:b"]),
            (is_address, &["10.0.0.1", "010.0.0.01", "0.0.0.0", "::1"], &["", "10.0.0", "10.0.0.256", "a", "00::g"]),
            (is_straight, &["a/..b", ""], &["..", "a/../b"]),
        ] {
            for text in valid {
                assert!(is_valid(text), "{text:?}");
            }
            for text in invalid {
                assert!(!is_valid(text), "{text:?}");
            }
        }
    }
}
