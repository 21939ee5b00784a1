//! Tables, hooks and rules as operators know them.

use super::expr::{Expr, Verdict, Xt};
use super::image::{Body, Hook, Rule, TableFamily, TableId};
use super::live::{LiveHook, LiveRule};
use super::restore;
use crate::rules::Family;

/// A table and its family.
pub(super) fn table(table: TableId) -> String {
    match table.family {
        TableFamily::Ip => format!("IPv4 table {}", table.name),
        TableFamily::Ip6 => format!("IPv6 table {}", table.name),
        TableFamily::Inet => format!("table inet {}", table.name),
    }
}

/// A wanted rule, as `iptables-save` prints it.
pub(super) fn wanted(table: TableId, rule: &Rule<'_>) -> String {
    let family = if table.family == TableFamily::Ip6 { Family::V6 } else { Family::V4 };
    restore::save_form(rule.source, family)
}

/// A rule of the kernel: as `iptables-save` prints it where it is one of these, else expression by expression.
pub(super) fn live(id: TableId, known: &[Rule<'_>], rule: &LiveRule) -> String {
    match (&rule.body, known.iter().find(|k| k.body == rule.body)) {
        (Body::Saved(line), _) => line.clone(),
        (_, Some(known)) => wanted(id, known),
        (Body::Exprs(exprs), None) => {
            exprs.iter().filter(|e| **e != Expr::Counter).map(expression).collect::<Vec<_>>().join(" ")
        }
    }
}

fn expression(expr: &Expr) -> String {
    let xt = |xt: &Xt| format!("{}.{}({})", xt.name, xt.revision, hex(&xt.bytes));
    match expr {
        Expr::Verdict(Verdict::Jump(chain)) => format!("jump {chain}"),
        Expr::Verdict(verdict) => format!("{verdict:?}").to_lowercase(),
        Expr::Match(m) => format!("match {}", xt(m)),
        Expr::Target(t) => format!("target {}", xt(t)),
        Expr::Other { name, .. } => format!("[{name}]"),
        known => format!("{known:?}"),
    }
}

/// Bytes, zeros at the end left out.
fn hex(bytes: &[u8]) -> String {
    let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
    bytes.iter().take(used).map(|b| format!("{b:02x}")).collect()
}

/// Where a base chain should be called.
pub(super) fn hook(hook: Option<Hook>) -> String {
    hook.map_or_else(none, |h| text(h.kind, h.number, h.priority))
}

/// Where a base chain is called.
pub(super) fn live_hook(hook: Option<&LiveHook>) -> String {
    hook.map_or_else(none, |h| text(&h.kind, h.number, h.priority))
}

fn none() -> String {
    "no base chain".to_owned()
}

fn text(kind: &str, number: u32, priority: i32) -> String {
    format!("type {kind}, hook {number}, priority {priority}")
}
