//! The parameters of a validation.

use std::time::Duration;

use crate::Port;

/// The parameters of a validation, which proves that rules take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Outbound traffic is redirected to this port.
    pub proxy_port: Port,
    /// Inbound traffic is redirected to this port.
    pub inbound_capture_port: Port,
    /// The destination port of validation's connection, on which nothing listens.
    pub probe_port: Port,
    /// Time limit of all attempts together; the first attempt is made in any case.
    pub timeout: Duration,
}
