//! Finds other programs' rules that make packets skip the jump to an own chain: an ACCEPT or RETURN before it in a built-in
//! chain.
//!
//! These rules are not changed, because they may be intended; CHECK reports them. Pure.

use super::describe;
use super::diff::leads_to_own;
use super::difference::{Difference, DifferenceKind};
use super::expr::{Expr, Verdict};
use super::image::{Body, Image};
use super::live::Live;

/// Returns a difference for each rule that makes packets skip a jump to an own chain.
pub(super) fn find(image: &Image<'_>, live: &Live) -> Vec<Difference> {
    let mut found = Vec::new();
    for table in &live.tables {
        let wanted = image.tables.iter().find(|t| t.id == table.id).map_or(&[][..], |t| &t.chains);
        for chain in table.chains.iter().filter(|c| !table.id.owns(&c.name, live.owned)) {
            let known = wanted.iter().find(|w| w.name == chain.name).map_or(&[][..], |w| &w.rules);
            let Some(jump) = chain.rules.iter().rposition(|rule| leads_to_own(table.id, rule, live.owned)) else {
                continue;
            };
            for (i, rule) in chain.rules.iter().enumerate().take(jump) {
                if ends(&rule.body) && known.iter().all(|k| k.body != rule.body) {
                    let rule = describe::live(table.id, &chain.name, known, rule);
                    let kind = DifferenceKind::Bypass { place: i + 1, rule, owner: live.owned.owner };
                    found.push(Difference::new(table.id, chain.name.clone(), kind));
                }
            }
        }
    }
    found
}

/// Whether the rule ends the traversal of its chain without dropping the packet.
fn ends(body: &Body) -> bool {
    match body {
        Body::Saved(line) => line.ends_with(" -j ACCEPT") || line.ends_with(" -j RETURN"),
        Body::Exprs(exprs) => {
            matches!(exprs.last(), Some(Expr::Verdict(Verdict::Accept | Verdict::Return)))
        }
    }
}
