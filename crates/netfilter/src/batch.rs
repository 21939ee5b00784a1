//! Encodes changes as one nf_tables transaction.
//!
//! Each message has its own sequence number, so that the kernel's refusal identifies the change. Only the last message
//! requests an acknowledgement.

use std::fmt;

use netlink::{Malformed, Writer, flag};
use ruleset::Port;

use super::expr::{Expr, Set};
use super::image::{Hook, Rule, TableId, family_header};
use super::uapi::*;
use super::wire::{self, SetIds};
use super::{compat, describe};

/// One change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// Creates a table, or clears its dormant flag.
    AddTable(TableId),
    /// Creates a chain; without a hook it must not exist yet.
    AddChain(TableId, &'static str, Option<Hook>),
    AddRule(TableId, &'static str, Rule<'a>, Position),
    /// Deletes the rule with this handle.
    DeleteRule(TableId, &'a str, u64),
    /// Deletes all rules of a chain.
    Flush(TableId, &'a str),
    /// Deletes an empty chain.
    DeleteChain(TableId, &'a str),
    /// Deletes a table with its content.
    DeleteTable(TableId),
}

/// The position of a new rule in its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// Before the rule with this handle.
    Before(u64),
    Last,
}

impl Change<'_> {
    pub(super) fn table(&self) -> TableId {
        match self {
            Self::AddTable(table) | Self::DeleteTable(table) => *table,
            Self::AddChain(table, ..) | Self::AddRule(table, ..) | Self::DeleteRule(table, ..) => *table,
            Self::Flush(table, _) | Self::DeleteChain(table, _) => *table,
        }
    }
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddTable(table) => write!(f, "adding {}", describe::table(*table)),
            Self::AddChain(table, chain, _) => write!(f, "adding chain {chain} of {}", describe::table(*table)),
            Self::AddRule(table, _, rule, _) => {
                write!(f, "adding rule `{}` to {}", describe::wanted(*table, rule), describe::table(*table))
            }
            Self::DeleteRule(table, chain, handle) => {
                write!(f, "deleting the rule with handle {handle} from chain {chain} of {}", describe::table(*table))
            }
            Self::Flush(table, chain) => write!(f, "emptying chain {chain} of {}", describe::table(*table)),
            Self::DeleteChain(table, chain) => write!(f, "deleting chain {chain} of {}", describe::table(*table)),
            Self::DeleteTable(table) => write!(f, "deleting {}", describe::table(*table)),
        }
    }
}

/// An encoded transaction.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// The sequence number of the message that requests the acknowledgement.
    pub(super) last: u32,
    /// The sequence number of each change's last message.
    ends: Vec<u32>,
}

impl Batch {
    /// Returns the index of the change to which a message belongs.
    pub(super) fn change_of(&self, seq: u32) -> Option<usize> {
        let i = self.ends.partition_point(|end| *end < seq);
        (seq > 0 && i < self.ends.len()).then_some(i)
    }
}

/// Encodes a transaction. With a `generation` the kernel refuses it (`ERESTART`) if the ruleset has changed since.
pub(super) fn encode(changes: &[Change<'_>], generation: Option<u32>) -> Result<Batch, Malformed> {
    let mut out = Out::new(changes.len());
    out.begin(generation);
    let mut ends = Vec::with_capacity(changes.len());
    for change in changes {
        out.change(change);
        ends.push(out.seq);
    }
    out.w.add_flags(out.start, flag::ACK);
    let last = out.seq;
    out.w.message(NFNL_MSG_BATCH_END, flag::REQUEST, last + 1, |w| w.raw(&[0, 0, 0, NFNL_SUBSYS_NFTABLES]));
    Ok(Batch { bytes: out.w.into_bytes()?, last, ends })
}

/// The attribute with the table's name, which has the same number in all messages.
const TABLE: u16 = {
    assert!(NFTA_TABLE_NAME == NFTA_CHAIN_TABLE && NFTA_RULE_TABLE == NFTA_SET_TABLE);
    assert!(NFTA_TABLE_NAME == NFTA_RULE_TABLE && NFTA_SET_TABLE == NFTA_SET_ELEM_LIST_TABLE);
    NFTA_TABLE_NAME
};

struct Out {
    w: Writer,
    seq: u32,
    /// The offset of the newest message.
    start: usize,
    sets: SetIds,
}

impl Out {
    /// The approximate size of an encoded rule, in bytes.
    const RULE: usize = 256;

    fn new(changes: usize) -> Self {
        let w = Writer::with_capacity(64 + changes * Self::RULE);
        Self { w, seq: 0, start: 0, sets: SetIds::default() }
    }

    fn begin(&mut self, generation: Option<u32>) {
        self.w.message(NFNL_MSG_BATCH_BEGIN, flag::REQUEST, 0, |w| {
            w.raw(&[0, 0, 0, NFNL_SUBSYS_NFTABLES]);
            if let Some(generation) = generation {
                w.u32_be(NFNL_BATCH_GENID, generation);
            }
        });
    }

    fn message(&mut self, kind: u16, flags: u16, table: TableId, body: impl FnOnce(&mut Writer, &mut SetIds)) {
        self.seq += 1;
        self.start = self.w.len();
        let sets = &mut self.sets;
        self.w.message(message_type(NFNL_SUBSYS_NFTABLES, kind), flag::REQUEST | flags, self.seq, |w| {
            w.raw(&family_header(Some(table.family)));
            w.text(TABLE, table.name);
            body(w, sets);
        });
    }

    fn change(&mut self, change: &Change<'_>) {
        match change {
            Change::AddTable(table) => {
                self.message(NFT_MSG_NEWTABLE, flag::CREATE, *table, |w, _| w.u32_be(NFTA_TABLE_FLAGS, 0));
            }
            Change::AddChain(table, chain, hook) => self.chain(*table, chain, *hook),
            Change::AddRule(table, chain, rule, position) => self.rule(*table, chain, rule, *position),
            Change::DeleteRule(table, chain, handle) => self.message(NFT_MSG_DELRULE, 0, *table, |w, _| {
                w.text(NFTA_RULE_CHAIN, chain);
                w.u64_be(NFTA_RULE_HANDLE, *handle);
            }),
            Change::Flush(table, chain) => {
                self.message(NFT_MSG_DELRULE, 0, *table, |w, _| w.text(NFTA_RULE_CHAIN, chain));
            }
            Change::DeleteChain(table, chain) => {
                self.message(NFT_MSG_DELCHAIN, 0, *table, |w, _| w.text(NFTA_CHAIN_NAME, chain));
            }
            Change::DeleteTable(table) => self.message(NFT_MSG_DELTABLE, 0, *table, |_, _| ()),
        }
    }

    fn chain(&mut self, table: TableId, chain: &str, hook: Option<Hook>) {
        let flags = if hook.is_some() { flag::CREATE } else { flag::CREATE | flag::EXCL };
        self.message(NFT_MSG_NEWCHAIN, flags, table, |w, _| {
            w.text(NFTA_CHAIN_NAME, chain);
            if let Some(hook) = hook {
                w.nested(NFTA_CHAIN_HOOK, |w| {
                    w.u32_be(NFTA_HOOK_HOOKNUM, hook.number);
                    w.attr(NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
                });
                w.u32_be(NFTA_CHAIN_POLICY, NF_ACCEPT);
                w.text(NFTA_CHAIN_TYPE, hook.kind);
            }
        });
    }

    fn rule(&mut self, table: TableId, chain: &str, rule: &Rule<'_>, position: Position) {
        let anonymous = rule.body.exprs().iter().filter_map(|e| match e {
            Expr::Lookup { set: Set::Ports(ports), .. } => Some(ports),
            _ => None,
        });
        let first = self.sets.0;
        for (id, ports) in (first + 1..).zip(anonymous) {
            self.set(table, id, ports);
        }
        let flags = match position {
            Position::Last => flag::CREATE | flag::APPEND,
            Position::Before(_) => flag::CREATE,
        };
        self.message(NFT_MSG_NEWRULE, flags, table, |w, sets| {
            w.text(NFTA_RULE_CHAIN, chain);
            w.nested(NFTA_RULE_EXPRESSIONS, |w| rule.body.exprs().iter().for_each(|e| wire::write(e, w, sets)));
            if rule.body.exprs().iter().any(Expr::is_xt) {
                w.nested(NFTA_RULE_COMPAT, |w| {
                    w.u32_be(NFTA_RULE_COMPAT_PROTO, rule.protocol.map_or(0, |p| u32::from(compat::number(p))));
                    w.u32_be(NFTA_RULE_COMPAT_FLAGS, 0);
                });
            }
            if let Position::Before(handle) = position {
                w.u64_be(NFTA_RULE_POSITION, handle);
            }
        });
    }

    /// Appends the messages that create an anonymous set of ports, as nft does. `nft list` formats the elements by the key type.
    fn set(&mut self, table: TableId, id: u32, ports: &[Port]) {
        /// The data type of ports in nft's `enum datatypes`; the kernel does not interpret it.
        const TYPE_INET_SERVICE: u32 = 13;
        self.message(NFT_MSG_NEWSET, flag::CREATE, table, |w, _| {
            w.text(NFTA_SET_NAME, wire::ANONYMOUS);
            w.u32_be(NFTA_SET_FLAGS, NFT_SET_ANONYMOUS | NFT_SET_CONSTANT);
            w.u32_be(NFTA_SET_KEY_TYPE, TYPE_INET_SERVICE);
            w.u32_be(NFTA_SET_KEY_LEN, 2);
            w.u32_be(NFTA_SET_ID, id);
            w.nested(NFTA_SET_DESC, |w| w.count_be(NFTA_SET_DESC_SIZE, ports.len()));
        });
        self.message(NFT_MSG_NEWSETELEM, flag::CREATE, table, |w, _| {
            w.text(NFTA_SET_ELEM_LIST_SET, wire::ANONYMOUS);
            w.u32_be(NFTA_SET_ELEM_LIST_SET_ID, id);
            w.nested(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                for port in ports {
                    w.nested(NFTA_LIST_ELEM, |w| {
                        w.nested(NFTA_SET_ELEM_KEY, |w| w.attr(NFTA_DATA_VALUE, &port.0.to_be_bytes()));
                    });
                }
            });
        });
    }
}
