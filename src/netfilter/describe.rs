//! Rules as sentences for operators.

use super::image::{Rule, TableId};

/// A wanted rule.
pub(super) fn wanted(_table: TableId, rule: &Rule<'_>) -> String {
    format!("{:?}", rule.source)
}
