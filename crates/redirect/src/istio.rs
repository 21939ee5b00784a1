//! Istio's chains and tables, of which [`rules`](crate::rules) are built. `netfilter` and `podnet` know only what they are given.

use contract::ambient;
use ruleset::{Chain, Layout, NativeTable, OwnChain, Owned, ProtocolText, Spelling, Table};

pub const INBOUND: Chain = Chain::Own(&own(0, "ISTIO_INBOUND", "istio-inbound", ProtocolText::Always));
pub const REDIRECT: Chain = Chain::Own(&own(1, "ISTIO_REDIRECT", "istio-redirect", ProtocolText::Always));
pub const IN_REDIRECT: Chain = Chain::Own(&own(2, "ISTIO_IN_REDIRECT", "istio-in-redirect", ProtocolText::Always));
pub const OUTPUT: Chain = Chain::Own(&own(3, "ISTIO_OUTPUT", "istio-output", ProtocolText::UnlessPortAlone));
pub const OUTPUT_DNS: Chain = Chain::Own(&own(4, "ISTIO_OUTPUT_DNS", "istio-output-dns", ProtocolText::Never));
pub const DIVERT: Chain = Chain::Own(&own(5, "ISTIO_DIVERT", "istio-divert", ProtocolText::Always));
pub const TPROXY: Chain = Chain::Own(&own(6, "ISTIO_TPROXY", "istio-tproxy", ProtocolText::Always));
pub const DROP: Chain = Chain::Own(&own(7, "ISTIO_DROP", "istio-drop", ProtocolText::Always));
pub const PRERT: Chain = Chain::Own(&own(8, "ISTIO_PRERT", "istio-prerouting", ProtocolText::Always));

const fn own(place: u8, iptables: &'static str, native: &'static str, protocol: ProtocolText) -> OwnChain {
    OwnChain { place, iptables, native, protocol }
}

/// The tables of redirection to the sidecar.
pub static SIDECAR: Layout = Layout {
    tables: [
        NativeTable {
            table: Table::Nat,
            name: "istio-proxy-nat",
            chains: &[Chain::PREROUTING, Chain::OUTPUT, INBOUND, REDIRECT, IN_REDIRECT, OUTPUT, OUTPUT_DNS],
            has_namesake: false,
        },
        NativeTable {
            table: Table::Mangle,
            name: "istio-proxy-mangle",
            chains: &[Chain::PREROUTING, Chain::OUTPUT, DIVERT, TPROXY, INBOUND, DROP],
            has_namesake: false,
        },
        NativeTable {
            table: Table::Raw,
            name: "istio-proxy-raw",
            chains: &[Chain::PREROUTING, Chain::OUTPUT, INBOUND, OUTPUT_DNS],
            has_namesake: false,
        },
    ],
    spelling: Spelling::Sidecar,
};

const IN_AMBIENT_MODE: &[Chain] = &[Chain::PREROUTING, Chain::OUTPUT, PRERT, OUTPUT];

/// The tables of redirection to ztunnel.
pub static AMBIENT: Layout = Layout {
    tables: [
        // Istio's agent keeps a table of this name in the node's netns, for the kubelet's probes.
        NativeTable { table: Table::Nat, name: "istio-ambient-nat", chains: IN_AMBIENT_MODE, has_namesake: true },
        NativeTable {
            table: Table::Mangle,
            name: "istio-ambient-mangle",
            chains: IN_AMBIENT_MODE,
            has_namesake: false,
        },
        NativeTable { table: Table::Raw, name: "istio-ambient-raw", chains: IN_AMBIENT_MODE, has_namesake: false },
    ],
    spelling: Spelling::Ambient,
};

/// Istio's redirection of pods. The chain of Istio's agent in the node's netns does not belong to it.
pub static OWNED: Owned =
    Owned { owner: "Istio", prefix: "ISTIO_", except: &[ambient::NODE_CHAIN], layouts: &[&SIDECAR, &AMBIENT] };
