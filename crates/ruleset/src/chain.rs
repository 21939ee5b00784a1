//! Tables and chains, and what a program owns of them.

/// A table of rules, which iptables and nftables have under the same name.
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

    /// The priority of the table's rules at a hook, among those of all tables.
    pub fn priority(self, hook: Hook) -> i32 {
        match (self, hook) {
            (Self::Raw, _) => -300,
            (Self::Mangle, _) => -150,
            (Self::Nat, Hook::Input | Hook::Postrouting) => 100,
            (Self::Nat, _) => -100,
        }
    }
}

/// A place at which the kernel traverses rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

/// A chain of rules.
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

/// When the native text of a chain's rules has the protocol, although a match of a port implies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolText {
    Always,
    /// Except in rules that match nothing but a port.
    UnlessPortAlone,
    Never,
}

impl Chain {
    pub const PREROUTING: Self = Self::Builtin(Hook::Prerouting);
    pub const OUTPUT: Self = Self::Builtin(Hook::Output);

    /// The chain's name in iptables' tables.
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

    /// The chain's name in native tables, in which a base chain takes the place of a built-in one.
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

/// The native tables of a kind of rule set, and the details of its texts.
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
    /// Whether the owner has another table of this name in other netns, which has none of the chains.
    pub has_namesake: bool,
}

impl NativeTable {
    /// Whether the table has a chain of this name.
    pub fn has(&self, chain: &str) -> bool {
        self.chains.iter().any(|own| own.native() == chain)
    }
}

impl Layout {
    /// The native table in place of a table of iptables.
    pub fn native(&self, table: Table) -> &NativeTable {
        let [first, second, third] = &self.tables;
        [first, second].into_iter().find(|native| native.table == table).unwrap_or(third)
    }
}

/// The details in which texts and native rules of Istio's two data planes differ.
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
    /// The start of the names of own chains in iptables' tables.
    pub prefix: &'static str,
    /// Chains with such a name that do not belong to the redirection of a pod.
    pub except: &'static [&'static str],
    /// The native tables.
    pub layouts: &'static [&'static Layout],
}

impl Owned {
    /// The native table of this name.
    pub fn native(&self, name: &str) -> Option<&'static NativeTable> {
        self.layouts.iter().flat_map(|layout| &layout.tables).find(|table| table.name == name)
    }

    /// Whether a chain of iptables' tables is an own one.
    pub fn has(&self, chain: &str) -> bool {
        chain.starts_with(self.prefix) && !self.except.contains(&chain)
    }
}
