//! The iptables-legacy backend: `iptables-legacy-save` observes, one `iptables-legacy-restore` for each family applies.
//!
//! A restore is atomic for a table, not across tables. Own chains that differ are rewritten completely. Observing a netns
//! that never had legacy tables runs no program.

mod run;

use std::fmt::Write as _;

use ruleset::{Family, Owned, RuleSet, restore};

use super::image::{Body, Chain, Image, Rule, TableFamily, TableId};
use super::live::{Live, LiveChain, LiveHook, LiveRule, LiveTable, table_id};
use super::{Backend, Error, compat, removal};

pub(super) use run::{is_installed, is_installed_plainly, tables_in_use};

/// The programs and files of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Programs {
    pub(super) family: Family,
    pub(super) save: &'static str,
    pub(super) restore: &'static str,
    /// The file in which the kernel lists the netns's tables.
    pub(super) names: &'static str,
}

pub(super) const FAMILIES: [Programs; 2] = [
    Programs {
        family: Family::V4,
        save: "iptables-legacy-save",
        restore: "iptables-legacy-restore",
        names: "/proc/thread-self/net/ip_tables_names",
    },
    Programs {
        family: Family::V6,
        save: "ip6tables-legacy-save",
        restore: "ip6tables-legacy-restore",
        names: "/proc/thread-self/net/ip6_tables_names",
    },
];

/// Encodes rules as the lines that `iptables-legacy-save` prints.
pub(super) fn image(rules: &RuleSet) -> Image<'_> {
    let mut tables = Vec::new();
    for family in [Family::V4, Family::V6] {
        for ((table, chain), members) in rules.chains(family) {
            let id = TableId { family: family.into(), name: table.as_str() };
            let rule = |source| {
                let body = Body::Saved(restore::save_form(source, family));
                Rule { body, protocol: source.protocol(), source }
            };
            let rules = members.into_iter().map(rule).collect();
            compat::push(&mut tables, id, Chain { name: chain.as_str(), hook: None, rules });
        }
    }
    Image { tables }
}

/// Reads the legacy tables of the calling thread's netns.
pub(super) fn observe(owned: &'static Owned) -> Result<Live, Error> {
    let mut tables = Vec::new();
    for programs in &FAMILIES {
        if tables_in_use(programs.names)?.is_empty() {
            continue;
        }
        let saved = run::run(programs.save, &[], "")?;
        tables.extend(parse(&saved, programs.family, owned));
    }
    Ok(Live { tables, ..Live::fresh(Backend::IptablesLegacy, owned) })
}

/// Parses the output of `iptables-legacy-save`; ignores tables that the backend does not use.
fn parse(saved: &str, family: Family, owned: &Owned) -> Vec<LiveTable> {
    let number = TableFamily::from(family) as u8;
    let mut tables: Vec<LiveTable> = Vec::new();
    let mut concerns_us = false;
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            let id = table_id(Backend::IptablesLegacy, owned, number, name.trim());
            concerns_us = id.is_some();
            tables.extend(id.map(|id| LiveTable { id, dormant: false, uses: 0, chains: Vec::new() }));
        }
        if let Some(table) = tables.last_mut().filter(|_| concerns_us) {
            add_line(table, line);
        }
    }
    tables
}

/// Parses `:CHAIN POLICY [0:0]` or `-A CHAIN …`.
fn add_line(table: &mut LiveTable, line: &str) {
    let mut words = line.split(' ');
    match (words.next(), words.next()) {
        (Some("-A"), Some(name)) => {
            let chain = table.chains.iter_mut().find(|c| c.name == name);
            if let Some(chain) = chain {
                let handle = chain.rules.len() as u64 + 1;
                chain.rules.push(LiveRule { handle, body: Body::Saved(line.to_owned()) });
            }
        }
        (Some(declared), Some(_)) => {
            if let Some(name) = declared.strip_prefix(':') {
                table.chains.push(LiveChain { name: name.to_owned(), hook: None::<LiveHook>, rules: Vec::new() });
            }
        }
        _ => (),
    }
}

/// Formats the input of the restore program of each family: the commands that give `tables` their desired content and
/// delete from shared chains all rules that jump to own chains or are in `former`. Empty for a family without such tables.
pub(super) fn restore_input(wanted: &RuleSet, former: &RuleSet, live: &Live, tables: &[TableId]) -> [String; 2] {
    let (wanted_image, former) = (image(wanted), image(former));
    FAMILIES.map(|programs| {
        let of_family = tables.iter().filter(|id| id.family == programs.family.into());
        of_family.map(|id| table_input(wanted, &wanted_image, &former, live, *id, programs.family)).collect()
    })
}

fn chains_of<'i, 'a>(image: &'i Image<'a>, id: TableId) -> &'i [Chain<'a>] {
    image.tables.iter().find(|t| t.id == id).map_or(&[], |t| &t.chains)
}

fn table_input(
    wanted: &RuleSet,
    image: &Image<'_>,
    former: &Image<'_>,
    live: &Live,
    id: TableId,
    family: Family,
) -> String {
    let chains = chains_of(image, id);
    let there = live.tables.iter().find(|t| t.id == id);
    let leftovers: Vec<&str> = there.map_or(Vec::new(), |t| leftovers(t, chains, live.owned));
    let own = chains.iter().map(|c| c.name).filter(|name| id.owns(name, live.owned));

    let mut text = format!("*{}\n", id.name);
    // A chain declaration also flushes the chain.
    for name in own.chain(leftovers.iter().copied()) {
        let _ = writeln!(text, ":{name} - [0:0]");
    }
    there.into_iter().for_each(|t| delete_ours(t, chains_of(former, id), live.owned, &mut text));
    for rule in wanted.of(family).filter(|r| r.table.as_str() == id.name) {
        let _ = writeln!(text, "{}", restore::written_form(rule, family, wanted.layout.spelling));
    }
    for name in leftovers {
        let _ = writeln!(text, "-X {name}");
    }
    text + "COMMIT\n"
}

/// Returns our chains that exist and are no longer desired.
fn leftovers<'a>(table: &'a LiveTable, wanted: &[Chain<'_>], owned: &Owned) -> Vec<&'a str> {
    let names = table.chains.iter().map(|c| c.name.as_str());
    names.filter(|n| table.id.owns(n, owned) && wanted.iter().all(|w| w.name != *n)).collect()
}

/// Appends lines that delete our rules in shared chains.
fn delete_ours(table: &LiveTable, wanted: &[Chain<'_>], owned: &Owned, text: &mut String) {
    for chain in table.chains.iter().filter(|c| !table.id.owns(&c.name, owned)) {
        let rules = wanted.iter().find(|w| w.name == chain.name).map_or(&[][..], |w| &w.rules);
        let ours = removal::ours(table, chain, rules, owned);
        for rule in chain.rules.iter().filter(|r| ours.contains(&r.handle)) {
            if let Body::Saved(line) = &rule.body {
                let _ = writeln!(text, "-D{}", line.strip_prefix("-A").unwrap_or(line));
            }
        }
    }
}

/// Runs each family's restore program with its input, unless the input is empty.
pub(super) fn restore(texts: &[String; 2]) -> Result<(), Error> {
    for (programs, text) in FAMILIES.iter().zip(texts).filter(|(_, text)| !text.is_empty()) {
        run::run(programs.restore, &["--noflush", run::WAIT], text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redirect::istio;

    use super::*;

    const SAVED: &str = "# Generated\n*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j ACCEPT\nCOMMIT\n*nat\n\
        :OUTPUT ACCEPT [1:60]\n:ISTIO_OUTPUT - [0:0]\n:ISTIO_OLD - [0:0]\n-A OUTPUT -d 10.0.0.1/32 -j RETURN\n\
        -A OUTPUT -j ISTIO_OUTPUT\n-A ISTIO_OUTPUT -j RETURN\nCOMMIT\n";

    #[test]
    fn tables_of_istio_are_read() {
        let tables = parse(SAVED, Family::V4, &istio::OWNED);
        let chains: Vec<_> = tables[0].chains.iter().map(|c| (c.name.as_str(), c.rules.len())).collect();
        assert_eq!((tables.len(), tables[0].id.name), (1, "nat"));
        assert_eq!(chains, [("OUTPUT", 2), ("ISTIO_OUTPUT", 1), ("ISTIO_OLD", 0)]);
    }

    #[test]
    fn removal_deletes_only_our_rules() {
        let live = Live {
            tables: parse(SAVED, Family::V4, &istio::OWNED),
            ..Live::fresh(Backend::IptablesLegacy, &istio::OWNED)
        };
        let nothing = RuleSet::empty(&istio::SIDECAR);
        let [text, v6] = restore_input(&nothing, &nothing, &live, &[live.tables[0].id]);
        let expected = "*nat\n:ISTIO_OUTPUT - [0:0]\n:ISTIO_OLD - [0:0]\n-D OUTPUT -j ISTIO_OUTPUT\n\
            -X ISTIO_OUTPUT\n-X ISTIO_OLD\nCOMMIT\n";
        assert_eq!((text.as_str(), v6.as_str()), (expected, ""));
    }
}
