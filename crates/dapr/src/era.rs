//! The supported releases of Dapr, and how they parse booleans.

/// Releases of Dapr with the same sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// 1.4.2: the sidecar gets the control plane's certificate, chain and key.
    V1_4_2,
    /// From 1.12: the sidecar gets only trust anchors and authenticates with a projected token.
    #[default]
    Current,
}

/// Parses a boolean as current releases do.
pub(super) fn truthy(value: &str) -> bool {
    let value = value.trim();
    ["y", "yes", "true", "t", "on", "1"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

/// Parses a boolean as release 1.4.2 does.
pub(super) fn truthy_1_4_2(value: &str) -> bool {
    ["y", "yes", "true", "on", "1"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}
