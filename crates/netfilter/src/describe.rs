//! Formats tables, hooks and rules for messages.

use ruleset::{Family, restore};

use super::image::{Body, Hook, Rule, TableFamily, TableId};
use super::live::{LiveHook, LiveRule};
use super::print;

pub(super) fn table(table: TableId) -> String {
    match table.family {
        TableFamily::Ip => format!("IPv4 table {}", table.name),
        TableFamily::Ip6 => format!("IPv6 table {}", table.name),
        TableFamily::Inet => format!("table inet {}", table.name),
    }
}

/// Formats a desired rule as `iptables-save` prints it.
pub(super) fn wanted(table: TableId, rule: &Rule<'_>) -> String {
    let family = if table.family == TableFamily::Ip6 { Family::V6 } else { Family::V4 };
    restore::save_form(rule.source, family)
}

/// Formats a rule of the kernel as `iptables-save` prints it.
pub(super) fn live(id: TableId, chain: &str, known: &[Rule<'_>], rule: &LiveRule) -> String {
    match (&rule.body, known.iter().find(|k| k.body == rule.body)) {
        (Body::Saved(line), _) => line.clone(),
        (_, Some(known)) => wanted(id, known),
        (Body::Exprs(exprs), None) => print::rule(chain, exprs),
    }
}

/// Formats the desired hook of a base chain.
pub(super) fn hook(hook: Option<Hook>) -> String {
    hook.map_or_else(none, |h| text(h.kind, h.number, h.priority))
}

/// Formats the observed hook of a base chain, with the policy drop only if the chain is `own`: another program may have
/// chosen the policy of a shared chain.
pub(super) fn live_hook(hook: Option<&LiveHook>, own: bool) -> String {
    let drops = hook.is_some_and(|hook| own && !hook.accepts);
    hook.map_or_else(none, |h| text(&h.kind, h.number, h.priority)) + if drops { ", policy drop" } else { "" }
}

fn none() -> String {
    "no base chain".to_owned()
}

fn text(kind: &str, number: u32, priority: i32) -> String {
    format!("type {kind}, hook {number}, priority {priority}")
}
