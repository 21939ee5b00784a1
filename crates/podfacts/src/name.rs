//! Checks names as Kubernetes does (apimachinery's `validation` and `content`).

/// The maximum length of a DNS label, of a label's value, and of a qualified name without its prefix, in bytes.
const LABEL: usize = 63;
/// The maximum length of a DNS subdomain, in bytes.
pub const SUBDOMAIN: usize = 253;

/// Whether a string is a qualified name: the key of a label, an annotation or a resource (`IsQualifiedName`).
pub fn is_key(text: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && is_label_value(name);
    match text.split_once('/') {
        None => is_name(text),
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
    }
}

/// Whether a string is valid as a label's value; an empty string is.
pub fn is_label_value(value: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let has_ends = value.is_empty() || (value.starts_with(is_end) && value.ends_with(is_end));
    has_ends && value.len() <= LABEL && value.chars().all(|c| is_end(c) || "-_.".contains(c))
}

/// Whether a string is a DNS label (RFC 1123).
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL && is_part(text, "-")
}

/// Whether a string is a DNS subdomain (RFC 1123).
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN && text.split('.').all(|part| is_part(part, "-"))
}

/// Whether a string of any length is a DNS label that may contain the characters `between` except at its start and end.
pub fn is_part(text: &str, between: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(|c| is_end(c) || between.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_characters_and_its_length() {
        let long = |part: &str, count: usize| vec![part; count].join(".");
        let (prefix, name) = (long("abc", 63), "a".repeat(63));
        for (is_valid, valid, invalid) in [
            (is_dns_label as fn(&str) -> bool, &["a", "0-a", &name][..], &["", "A", "-a", "a.b", &"a".repeat(64)][..]),
            (is_subdomain, &["a.b", "a", &prefix], &["a..b", "a_b", ".a", &long("abc", 64)]),
            (is_label_value, &["", "A.b_c-d", &name], &["-a", "a b", "a.", "é", &"a".repeat(64)]),
            (
                is_key,
                &["app", "A.b_c", "istio.io/rev", &format!("{prefix}/{name}")],
                &["", "a/", "/a", "a/b/c", "A.io/b", "a b", "-a", &format!("a/{}", "a".repeat(64))],
            ),
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
