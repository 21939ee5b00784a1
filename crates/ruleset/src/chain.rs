//! Tables and chains, and which of them a program owns.

/// A table of iptables. In nftables a [`NativeTable`] takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    Mangle,
    Nat,
    Raw,
}

impl Table {
    pub const ALL: [Self; 3] = [Self::Mangle, Self::Nat, Self::Raw];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Raw => "raw",
        }
    }

    /// Returns the table's priority at a hook (`NF_IP_PRI_*`): the kernel traverses lower priorities first.
    pub fn priority(self, hook: Hook) -> i32 {
        match (self, hook) {
            (Self::Raw, _) => -300,
            (Self::Mangle, _) => -150,
            (Self::Nat, Hook::Input | Hook::Postrouting) => 100,
            (Self::Nat, _) => -100,
        }
    }
}

/// A netfilter hook, at which the kernel traverses rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

/// A chain of a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chain {
    /// The chain of a hook, which other programs' rules may share.
    Builtin(Hook),
    Own(&'static OwnChain),
}

/// A chain that one program creates and owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnChain {
    /// The chain's place among the own chains of a table, in the order in which they are created.
    pub place: u8,
    /// Its name in iptables' tables.
    pub iptables: &'static str,
    /// Its name in native tables of nftables.
    pub native: &'static str,
    pub protocol: ProtocolText,
}

/// When Istio's nft rules in a chain name the protocol, although their match on a port implies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolText {
    Always,
    /// Except in rules that match nothing but a destination port.
    UnlessPortAlone,
    Never,
}

impl Chain {
    pub const PREROUTING: Self = Self::Builtin(Hook::Prerouting);
    pub const OUTPUT: Self = Self::Builtin(Hook::Output);

    /// Returns the chain's name in iptables' tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin(Hook::Prerouting) => "PREROUTING",
            Self::Builtin(Hook::Input) => "INPUT",
            Self::Builtin(Hook::Forward) => "FORWARD",
            Self::Builtin(Hook::Output) => "OUTPUT",
            Self::Builtin(Hook::Postrouting) => "POSTROUTING",
            Self::Own(own) => own.iptables,
        }
    }

    /// Returns the chain's name in native tables, in which a base chain takes the place of a built-in chain.
    pub fn native(self) -> &'static str {
        match self {
            Self::Builtin(Hook::Prerouting) => "prerouting",
            Self::Builtin(Hook::Input) => "input",
            Self::Builtin(Hook::Forward) => "forward",
            Self::Builtin(Hook::Output) => "output",
            Self::Builtin(Hook::Postrouting) => "postrouting",
            Self::Own(own) => own.native,
        }
    }

    /// Whether the kernel provides the chain, which other programs' rules may share.
    pub fn is_builtin(self) -> bool {
        matches!(self, Self::Builtin(_))
    }
}

/// The native tables for one of Istio's data planes, and how it spells its rules.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// The native tables in their order.
    pub tables: [NativeTable; 3],
    pub spelling: Spelling,
}

/// A table of nftables that no other program shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeTable {
    pub table: Table,
    pub name: &'static str,
    /// The chains in their order.
    pub chains: &'static [Chain],
    /// Whether the owner also uses this name in other netns, for a table that has none of these chains.
    pub has_namesake: bool,
}

impl NativeTable {
    /// Whether the table has a chain of this name.
    pub fn has(&self, chain: &str) -> bool {
        self.chains.iter().any(|own| own.native() == chain)
    }
}

impl Layout {
    /// Returns the native table that takes the place of an iptables table.
    pub fn native(&self, table: Table) -> &NativeTable {
        let [first, second, third] = &self.tables;
        [first, second].into_iter().find(|native| native.table == table).unwrap_or(third)
    }
}

/// How rules are spelled: Istio's two data planes write the same rule differently for iptables and nft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    Sidecar,
    Ambient,
}

/// What one program owns among the tables and chains of a netns. Everything else is foreign.
#[derive(Debug, PartialEq, Eq)]
pub struct Owned {
    /// The owner's name in messages.
    pub owner: &'static str,
    /// The prefix of the names of own chains in iptables' tables.
    pub prefix: &'static str,
    /// Chains with this prefix that do not belong to a pod's redirection.
    pub except: &'static [&'static str],
    /// The native tables.
    pub layouts: &'static [&'static Layout],
}

impl Owned {
    /// Returns the native table with this name.
    pub fn native(&self, name: &str) -> Option<&'static NativeTable> {
        self.layouts.iter().flat_map(|layout| &layout.tables).find(|table| table.name == name)
    }

    /// Whether the program owns a chain in an iptables table.
    pub fn has(&self, chain: &str) -> bool {
        chain.starts_with(self.prefix) && !self.except.contains(&chain)
    }
}
