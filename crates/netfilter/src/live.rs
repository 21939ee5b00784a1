//! Reads the kernel's tables with dumps.
//!
//! A fresh netns needs one dump. All tables, chains and rules are of one generation of the ruleset: if the ruleset
//! changes in between, reading starts again.

mod elements;

use std::collections::HashMap;

use netlink::{Attr, Attrs, Dumped, Malformed, Message, Socket, Writer, flag};
use ruleset::{Owned, Table};

use super::expr::{Expr, Meta, Op, Set, Value};
use super::image::{Body, TableFamily, TableId, family_header};
use super::uapi::*;
use super::{Backend, Error, wire};
use elements::Elements;

/// Maximum number of attempts at a consistent read, after which it fails with [`Error::Contended`].
const ATTEMPTS: usize = 8;

/// The observed tables of a backend in a netns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    pub backend: Backend,
    /// Which of these tables and chains are ours.
    pub owned: &'static Owned,
    /// The ruleset's generation; none with iptables-legacy or without tables.
    pub(super) generation: Option<u32>,
    pub(super) tables: Vec<LiveTable>,
    /// Whether the netns has tables of the other nf_tables backend.
    pub(super) others: bool,
}

impl Live {
    /// Returns the state of a netns without tables.
    pub fn fresh(backend: Backend, owned: &'static Owned) -> Self {
        Self { backend, owned, generation: None, tables: Vec::new(), others: false }
    }

    /// Returns the other nf_tables backend if the netns has tables that may hold its rules.
    pub fn other(&self) -> Option<Backend> {
        self.others.then_some(other(self.backend))
    }

    /// Whether the tables contain own chains.
    pub fn is_programmed(&self) -> bool {
        let own = |t: &LiveTable| t.chains.iter().any(|c| t.id.owns(&c.name, self.owned));
        self.tables.iter().any(own)
    }

    /// Whether the netns has an own chain in an IPv6 table, or an own chain with a rule for IPv6.
    pub fn holds_ipv6(&self) -> bool {
        let own = |table: &LiveTable| table.chains.iter().any(|chain| table.id.owns(&chain.name, self.owned));
        self.covers_ipv6() || self.tables.iter().any(|table| table.id.family == TableFamily::Ip6 && own(table))
    }

    /// Whether an own chain has a rule for IPv6.
    pub fn covers_ipv6(&self) -> bool {
        self.tables.iter().any(|table| {
            let of_ipv6 =
                |rule: &LiveRule| table.id.family == TableFamily::Ip6 || names_family(&rule.body, TableFamily::Ip6);
            let own = table.chains.iter().filter(|c| table.id.owns(&c.name, self.owned));
            own.flat_map(|c| &c.rules).any(of_ipv6)
        })
    }
}

/// Whether a rule in a table for both families matches only packets of `family`.
pub(super) fn names_family(body: &Body, family: TableFamily) -> bool {
    let matches = [Expr::Meta(Meta::Family), Expr::Cmp(Op::Equal, Value::u8(family as u8))];
    body.exprs().windows(2).any(|pair| *pair == matches)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveTable {
    pub(super) id: TableId,
    /// `NFT_TABLE_F_DORMANT`: the kernel skips the table.
    pub(super) dormant: bool,
    /// `NFTA_TABLE_USE`: number of chains, sets and objects.
    pub(super) uses: u32,
    pub(super) chains: Vec<LiveChain>,
}

impl LiveTable {
    /// Whether this is the owner's other table of the same name: it is not empty, but has none of the pod table's chains.
    fn is_namesake(&self, owned: &Owned) -> bool {
        let Some(native) = owned.native(self.id.name).filter(|native| native.has_namesake) else { return false };
        self.uses > 0 && !self.chains.iter().any(|chain| native.has(&chain.name))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveChain {
    pub(super) name: String,
    /// None for a chain that is not a base chain.
    pub(super) hook: Option<LiveHook>,
    /// The rules in their order.
    pub(super) rules: Vec<LiveRule>,
}

/// The hook of a base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveHook {
    pub(super) kind: String,
    pub(super) number: u32,
    pub(super) priority: i32,
    /// Whether the policy is accept.
    pub(super) accepts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveRule {
    /// The kernel's number, unique in its table; for a saved line its position in the chain, from 1.
    pub(super) handle: u64,
    pub(super) body: Body,
}

/// Returns the id of a table that the backend uses.
pub(super) fn table_id(backend: Backend, owned: &Owned, family: u8, name: &str) -> Option<TableId> {
    let native = backend.is_native();
    let family = TableFamily::from_number(family).filter(|f| native || *f != TableFamily::Inet)?;
    let name = match native {
        true => owned.native(name)?.name,
        false => Table::ALL.into_iter().map(Table::as_str).find(|n| *n == name)?,
    };
    Some(TableId { family, name })
}

/// Returns the nf_tables backend that uses tables other than this backend's.
fn other(backend: Backend) -> Backend {
    if backend.is_native() { Backend::IptablesNft } else { Backend::NativeFallback }
}

/// Reads an nf_tables backend's tables in the socket's netns.
pub(super) fn observe(backend: Backend, owned: &'static Owned, socket: &mut Socket) -> Result<Live, Error> {
    for _ in 0..ATTEMPTS {
        if let Some(live) = attempt(socket, Live::fresh(backend, owned))? {
            return Ok(live);
        }
    }
    Err(Error::Contended)
}

/// Reads the tables once; returns none if the ruleset changed meanwhile.
fn attempt(socket: &mut Socket, live: Live) -> Result<Option<Live>, Error> {
    let mut reader = Reader { live, places: HashMap::new(), generation: None, steady: true };
    reader.dump(socket, "listing tables", NFT_MSG_GETTABLE, |_| (), Reader::table)?;
    if reader.live.tables.is_empty() {
        return Ok(reader.steady.then_some(reader.live));
    }
    reader.live.generation = Some(generation(socket)?);
    reader.dump(socket, "listing chains", NFT_MSG_GETCHAIN, |_| (), Reader::chain)?;
    let owned = reader.live.owned;
    reader.live.tables.retain(|table| !table.is_namesake(owned));
    reader.dump(socket, "listing rules", NFT_MSG_GETRULE, |_| (), Reader::rule)?;
    reader.sets(socket)?;
    let lower_half = reader.live.generation.map(|g| {
        let [.., a, b] = g.to_be_bytes();
        [a, b]
    });
    let same = lower_half == reader.generation;
    Ok((reader.steady && same).then_some(reader.live))
}

fn generation(socket: &mut Socket) -> Result<u32, Error> {
    let mut w = Writer::with_capacity(32);
    w.message(message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN), flag::REQUEST | flag::ACK, 1, |w| {
        w.raw(&family_header(None));
    });
    let request = "reading the generation of the ruleset";
    let bytes = w.into_bytes().map_err(Error::Encoding)?;
    let mut generation = None;
    socket.request(request, &bytes, 1, |message| {
        generation = attr(message, NFTA_GEN_ID)?.map(|a| a.u32_be()).transpose()?;
        Ok(())
    })?;
    generation.ok_or(Error::Contended)
}

/// Returns the first attribute of this type.
fn attr<'a>(message: &Message<'a>, kind: u16) -> Result<Option<Attr<'a>>, Malformed> {
    let body = message.body.get(4..).ok_or(Malformed("a message has no family header"))?;
    Attrs::new(body).find(|a| a.as_ref().map_or(true, |a| a.kind == kind)).transpose()
}

struct Reader {
    live: Live,
    /// The position of each chain in its table. Hashed, because a pod may have any number of chains.
    places: HashMap<TableId, HashMap<String, usize>>,
    /// The lower half of the generation, from `nfgenmsg.res_id`.
    generation: Option<[u8; 2]>,
    /// Whether all messages so far are of one generation.
    steady: bool,
}

impl Reader {
    fn dump(
        &mut self,
        socket: &mut Socket,
        request: &'static str,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        each: fn(&mut Self, u8, &[u8]) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        let mut w = Writer::with_capacity(64);
        w.message(message_type(NFNL_SUBSYS_NFTABLES, kind), flag::REQUEST | flag::DUMP, 1, |w| {
            w.raw(&family_header(None));
            body(w);
        });
        let bytes = w.into_bytes().map_err(Error::Encoding)?;
        let dumped = socket.dump(request, &bytes, |message| {
            let header = message.body.split_first_chunk();
            let (&[family, _, g0, g1], attrs) = header.ok_or(Malformed("a message has no family header"))?;
            self.steady &= *self.generation.get_or_insert([g0, g1]) == [g0, g1];
            each(self, family, attrs)
        })?;
        self.steady &= dumped == Dumped::Whole;
        Ok(())
    }

    fn table(&mut self, family: u8, attrs: &[u8]) -> Result<(), Malformed> {
        let (mut id, mut flags, mut uses) = (None, 0, 0);
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                NFTA_TABLE_NAME => {
                    let name = attr.text()?;
                    id = table_id(self.live.backend, self.live.owned, family, name);
                    self.live.others |= table_id(other(self.live.backend), self.live.owned, family, name).is_some();
                }
                NFTA_TABLE_FLAGS => flags = attr.u32_be()?,
                NFTA_TABLE_USE => uses = attr.u32_be()?,
                _ => (),
            }
        }
        let dormant = flags & NFT_TABLE_F_DORMANT != 0;
        self.live.tables.extend(id.map(|id| LiveTable { id, dormant, uses, chains: Vec::new() }));
        Ok(())
    }

    fn find(&mut self, family: u8, name: &str) -> Option<&mut LiveTable> {
        let id = table_id(self.live.backend, self.live.owned, family, name)?;
        self.live.tables.iter_mut().find(|t| t.id == id)
    }

    fn chain(&mut self, family: u8, attrs: &[u8]) -> Result<(), Malformed> {
        let (mut table, mut name, mut place, mut kind, mut accepts) = ("", "", None, "", true);
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                NFTA_CHAIN_TABLE => table = attr.text()?,
                NFTA_CHAIN_NAME => name = attr.text()?,
                NFTA_CHAIN_HOOK => place = Some(place_of(attr)?),
                NFTA_CHAIN_POLICY => accepts = attr.u32_be()? == NF_ACCEPT,
                NFTA_CHAIN_TYPE => kind = attr.text()?,
                _ => (),
            }
        }
        let hook = place.map(|(number, priority)| LiveHook { kind: kind.to_owned(), number, priority, accepts });
        if let Some(table) = self.find(family, table) {
            let (id, place) = (table.id, table.chains.len());
            table.chains.push(LiveChain { name: name.to_owned(), hook, rules: Vec::new() });
            self.places.entry(id).or_default().insert(name.to_owned(), place);
        }
        Ok(())
    }

    fn rule(&mut self, family: u8, attrs: &[u8]) -> Result<(), Malformed> {
        let (mut table, mut chain, mut handle, mut list) = ("", "", 0, &[][..]);
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                NFTA_RULE_TABLE => table = attr.text()?,
                NFTA_RULE_CHAIN => chain = attr.text()?,
                NFTA_RULE_HANDLE => handle = attr.u64_be()?,
                NFTA_RULE_EXPRESSIONS => list = attr.value,
                _ => (),
            }
        }
        let id = table_id(self.live.backend, self.live.owned, family, table);
        let place = id.and_then(|id| self.places.get(&id)?.get(chain).copied());
        let chain = place.and_then(|place| self.find(family, table)?.chains.get_mut(place));
        if let Some(chain) = chain {
            chain.rules.push(LiveRule { handle, body: Body::Exprs(wire::read_all(list)?) });
        }
        Ok(())
    }

    /// Replaces the name of each anonymous set by the set's ports. Own rules use no other sets.
    fn sets(&mut self, socket: &mut Socket) -> Result<(), Error> {
        let generation = self.generation;
        for table in &mut self.live.tables {
            let rules = table.chains.iter_mut().flat_map(|c| &mut c.rules);
            let exprs = rules.flat_map(|r| match &mut r.body {
                Body::Exprs(exprs) => exprs.iter_mut(),
                Body::Saved(_) => [].iter_mut(),
            });
            for expr in exprs {
                let Expr::Lookup { set, .. } = expr else { continue };
                let Set::Named(name) = set else { continue };
                if !name.starts_with(ANONYMOUS) {
                    continue;
                }
                match elements::read(socket, table.id, name, generation)? {
                    Elements::Ports(ports) => *set = Set::Ports(ports),
                    Elements::Others => (),
                    Elements::Changed => {
                        self.steady = false;
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The prefix of the names that the kernel gives to anonymous sets, each of which belongs to one rule.
const ANONYMOUS: &str = "__set";

/// Reads hook number and priority.
fn place_of(hook: Attr<'_>) -> Result<(u32, i32), Malformed> {
    let (mut number, mut priority) = (0, 0);
    for attr in hook.attrs() {
        let attr = attr?;
        match attr.kind {
            NFTA_HOOK_HOOKNUM => number = attr.u32_be()?,
            NFTA_HOOK_PRIORITY => priority = attr.u32_be()?.cast_signed(),
            _ => (),
        }
    }
    Ok((number, priority))
}
