//! Whether a netns has IPv6 on `lo`.
#![expect(clippy::disallowed_methods, reason = "this file owns the reading of the sysctl")]

use std::fs;
use std::io::ErrorKind;

/// Whether `lo` has IPv6 in the calling thread's netns: false if the kernel has no IPv6, or with
/// `net.ipv6.conf.lo.disable_ipv6`; true if the sysctl cannot be read, so that adding the routes reports the cause.
pub fn loopback_has_ipv6() -> bool {
    // Files below /proc/sys/net are those of the reading thread's netns.
    match fs::read("/proc/sys/net/ipv6/conf/lo/disable_ipv6") {
        Ok(value) => value.trim_ascii() != b"1",
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}
