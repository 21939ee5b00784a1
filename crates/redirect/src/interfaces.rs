//! Lists of interface names.

use ruleset::Interface;

use super::Error;

/// Parses one name; the error names `key`.
pub(crate) fn parse_interface(key: &str, text: &str) -> Result<Interface, Error> {
    const ALLOWED: &str =
        "a comma-separated list of interface names: a letter, then up to 14 letters, digits, `_`, `.` or `-`";
    Interface::new(text).ok_or_else(|| Error::new(key, text, ALLOWED))
}

/// Parses a comma-separated list; an empty string is an empty list, but an empty element is an error (Istio #58781).
pub fn parse_interfaces(key: &str, text: &str) -> Result<Vec<Interface>, Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|p| parse_interface(key, p.trim())).collect()
}
