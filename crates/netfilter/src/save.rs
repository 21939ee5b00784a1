//! Formats observed tables as `iptables-save` prints them, native tables included.

use std::fmt::Write as _;

use ruleset::{Family, Owned};

use super::image::{Body, TableFamily};
use super::live::{Live, LiveChain, LiveRule, LiveTable, names_family};
use super::print;

/// The names of built-in chains by hook (`NF_INET_*`).
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

impl Live {
    /// Formats the rules that apply to a family. Native tables get the names of iptables' tables, their base chains get the
    /// names of iptables' built-in chains, and rules of the other family are omitted. An expression without iptables syntax
    /// is printed as its name in brackets.
    pub fn save(&self, family: Family) -> String {
        let other = match family {
            Family::V4 => TableFamily::Ip6,
            Family::V6 => TableFamily::Ip,
        };
        let mut text = String::new();
        for table in self.tables.iter().filter(|table| table.id.family != other && !table.dormant) {
            let _ = writeln!(text, "*{}", iptables_name(table, self.owned));
            for chain in &table.chains {
                let _ = writeln!(text, ":{} {} [0:0]", chain_name(chain), policy(chain));
            }
            for chain in &table.chains {
                for rule in chain.rules.iter().filter(|rule| !names_family(&rule.body, other)) {
                    let _ = writeln!(text, "{}", line(chain_name(chain), rule));
                }
            }
            text.push_str("COMMIT\n");
        }
        text
    }
}

fn iptables_name(table: &LiveTable, owned: &Owned) -> &'static str {
    owned.native(table.id.name).map_or(table.id.name, |native| native.table.as_str())
}

fn chain_name(chain: &LiveChain) -> &str {
    let hook = chain.hook.as_ref().and_then(|hook| HOOKS.get(usize::try_from(hook.number).ok()?));
    hook.copied().unwrap_or(&chain.name)
}

fn policy(chain: &LiveChain) -> &'static str {
    match &chain.hook {
        Some(hook) if hook.accepts => "ACCEPT",
        Some(_) => "DROP",
        None => "-",
    }
}

fn line(chain: &str, rule: &LiveRule) -> String {
    match &rule.body {
        Body::Saved(line) => line.clone(),
        Body::Exprs(exprs) => print::rule(chain, exprs),
    }
}
