//! The CNI configuration list of a node: `ptp` with addresses of `host-local`, and what is chained behind it.

use std::path::Path;

use serde_json::{Value, json};

/// The list's name.
pub const NAME: &str = "pods";

/// Address families of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone.
    V4,
    /// Both; an ADD then takes two seconds, for `ptp` waits until the IPv6 address may be used.
    Dual,
}

/// The list's text. `leases` is the directory in which `host-local` writes down the addresses in use.
pub fn text(families: Families, leases: &Path, chained: Option<&Value>) -> String {
    let (ranges, routes) = match families {
        Families::V4 => (json!([[{ "subnet": "10.222.0.0/24" }]]), json!([{ "dst": "0.0.0.0/0" }])),
        Families::Dual => (
            json!([[{ "subnet": "10.222.0.0/24" }], [{ "subnet": "fd00:222::/64" }]]),
            json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]),
        ),
    };
    let ptp = json!({
        "type": "ptp", "ipMasq": false,
        "ipam": { "type": "host-local", "dataDir": leases, "ranges": ranges, "routes": routes },
    });
    let plugins: Vec<&Value> = std::iter::once(&ptp).chain(chained).collect();
    json!({ "cniVersion": "1.0.0", "name": NAME, "plugins": plugins }).to_string()
}
