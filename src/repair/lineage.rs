//! Whether deleting helps: a pod that was made after another one of its controller was deleted, and is no better, says no.
//!
//! `tracker` asks it. Times of pods are the API server's, so that no clock but its own counts among them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

/// After this it is worth another try: whatever was wrong may be mended.
const MEMORY: Duration = Duration::from_secs(3600);

/// Of what a pod was made, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// The UID of its controller.
    pub controller: String,
    /// `metadata.creationTimestamp`
    pub created: Timestamp,
}

/// Controllers whose pods were deleted of late.
#[derive(Debug, Default)]
pub(super) struct Lineages(BTreeMap<String, Ended>);

#[derive(Debug)]
struct Ended {
    /// When the first one was deleted, since the controller started.
    at: Duration,
    /// When the youngest pod was made that was known then: whatever is younger is a replacement.
    youngest: Timestamp,
}

impl Lineages {
    /// A pod is being deleted; `all` are those that are known to be broken, itself among them.
    pub(super) fn ending<'a>(&mut self, pod: &Lineage, all: impl Iterator<Item = &'a Lineage>, now: Duration) {
        self.0.retain(|_, ended| now < ended.at + MEMORY);
        let siblings = all.filter(|other| other.controller == pod.controller);
        let youngest = siblings.map(|other| other.created).max().unwrap_or(pod.created);
        self.0.entry(pod.controller.clone()).or_insert(Ended { at: now, youngest });
    }

    /// Whether a pod has taken the place of a deleted one.
    pub(super) fn is_replacement(&self, pod: &Lineage, now: Duration) -> bool {
        self.0.get(&pod.controller).is_some_and(|ended| now < ended.at + MEMORY && pod.created > ended.youngest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(controller: &str, second: i64) -> Lineage {
        Lineage { controller: controller.into(), created: Timestamp::from_second(second).unwrap() }
    }

    #[test]
    fn a_replacement_is_younger_than_all_that_were_there() {
        let (mut lineages, second) = (Lineages::default(), Duration::from_secs);
        let known = [pod("a", 10), pod("a", 20), pod("b", 90)];
        assert!(!lineages.is_replacement(&known[1], second(0)));
        lineages.ending(&known[0], known.iter(), second(0));
        for (other, replacement) in
            [(pod("a", 10), false), (pod("a", 20), false), (pod("a", 21), true), (pod("b", 99), false)]
        {
            assert_eq!(lineages.is_replacement(&other, second(5)), replacement, "{other:?}");
        }
        // A sibling that is deleted later changes nothing.
        lineages.ending(&known[1], [pod("a", 20), pod("a", 21)].iter(), second(6));
        assert!(lineages.is_replacement(&pod("a", 21), second(7)));
        assert!(!lineages.is_replacement(&pod("a", 21), second(3600)), "it is forgotten after an hour");
    }
}
