//! A layout for tests.

use crate::{Chain, Layout, NativeTable, OwnChain, ProtocolText, Spelling, Table};

pub(crate) const OURS: Chain =
    Chain::Own(&OwnChain { place: 0, iptables: "OURS", native: "ours", protocol: ProtocolText::Always });

const CHAINS: &[Chain] = &[Chain::PREROUTING, Chain::OUTPUT, OURS];

pub(crate) static LAYOUT: Layout = Layout {
    tables: [
        NativeTable { table: Table::Nat, name: "our-nat", chains: CHAINS, has_namesake: false },
        NativeTable { table: Table::Mangle, name: "our-mangle", chains: CHAINS, has_namesake: false },
        NativeTable { table: Table::Raw, name: "our-raw", chains: CHAINS, has_namesake: false },
    ],
    spelling: Spelling::Sidecar,
};
