//! Which releases of Dapr are followed, and what counts as true in each.
//!
//! `accounts`, `annotations` and `settings` ask.

/// Releases of Dapr whose sidecars are made alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// 1.4.2: the control plane's certificate, chain and key are handed to the sidecar.
    V1_4_2,
    /// Since 1.12: trust anchors only; identity comes from a projected token.
    #[default]
    Current,
}

/// Dapr's idea of true.
pub(super) fn truthy(value: &str) -> bool {
    let value = value.trim();
    ["y", "yes", "true", "t", "on", "1"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

/// The idea that release 1.4.2 had of it.
pub(super) fn truthy_1_4_2(value: &str) -> bool {
    ["y", "yes", "true", "on", "1"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}
