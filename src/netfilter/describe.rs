//! Rules as sentences for operators.

use super::image::{Rule, TableFamily, TableId};
use super::restore;
use crate::rules::Family;

/// A wanted rule, as `iptables-save` would print it.
pub(super) fn wanted(table: TableId, rule: &Rule<'_>) -> String {
    let family = if table.family == TableFamily::Ip6 { Family::V6 } else { Family::V4 };
    restore::save_form(rule.source, family)
}
