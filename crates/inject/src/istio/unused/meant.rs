//! Finds the known name that a mistyped name probably means.

use contract::annotation;

use super::{MOST, PREFIXES, has_prefix};

/// The maximum number of changed letters in a name that is treated as mistyped.
const CHANGES: usize = 2;

/// The maximum number of names without a prefix of Istio's that are compared with its prefixes, because hostile pods may have many.
const COMPARED: usize = 256;

/// Returns the names that have a prefix of Istio's, or a mistyped one.
pub(super) fn of_istio<'n>(names: impl Iterator<Item = &'n str>) -> impl Iterator<Item = &'n str> {
    let mut left = COMPARED;
    names.filter(move |name| {
        has_prefix(name) || has_other_prefix(name) || {
            left = left.saturating_sub(1);
            left > 0 && has_mistyped_prefix(name)
        }
    })
}

/// Whether a name without a prefix, or with an unknown one in Istio's domain, ends like an annotation of Istio. A name without a prefix
/// must also have an upper-case letter, which names of other programs rarely have, and not be `logLevel`.
fn has_other_prefix(name: &str) -> bool {
    let (domain, own) = name.split_once('/').unwrap_or(("", name));
    let is_of_domain = domain == "istio.io" || domain.ends_with(".istio.io");
    let is_distinct = || domain.is_empty() && own.contains(|c: char| c.is_ascii_uppercase()) && own != "logLevel";
    let names = annotation::ALL.iter().map(|(known, _)| *known).filter(|known| has_prefix(known));
    (is_of_domain || is_distinct()) && names.map(last).any(|known| known == own)
}

/// Returns the part of a name after its prefix.
fn last(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

/// Whether the part before the slash differs from a prefix in at most [`CHANGES`] letters, or in one if the prefix is short, or the name
/// has a prefix with underscores in place of dots or the slash, as Prometheus spells names.
fn has_mistyped_prefix(name: &str) -> bool {
    let spelt = underscored(name);
    if PREFIXES.iter().any(|prefix| spelt.starts_with(&underscored(prefix))) {
        return true;
    }
    let Some((domain, _)) = name.split_once('/') else { return false };
    let domain = domain.to_lowercase();
    PREFIXES.iter().map(|prefix| prefix.trim_end_matches('/')).any(|prefix| {
        let most = if prefix.len() > 10 { CHANGES } else { 1 };
        domain.len().abs_diff(prefix.len()) <= most && distance(&domain, prefix) <= most
    })
}

/// Returns the names. Each of the first [`MOST`] is followed by the known name that it probably means, which differs only in a few letters
/// or in the prefix, if there is one.
pub(super) fn with_meant<'n, K: Iterator<Item = &'n str>>(
    names: impl Iterator<Item = &'n str>,
    known: impl Fn() -> K,
) -> Vec<String> {
    let named = |(at, name): (usize, &'n str)| if at < MOST { meant(name, known()) } else { name.to_owned() };
    names.enumerate().map(named).collect()
}

/// Returns a name with underscores in place of dots and slashes.
fn underscored(name: &str) -> String {
    name.replace(['.', '/'], "_")
}

fn meant<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let prometheus = |name: &str| underscored(name).replace('-', "_");
    let (lower, spelt) = (name.to_lowercase(), prometheus(name));
    let known: Vec<&str> = known.collect();
    if let Some(meant) = known.iter().find(|known| last(known) == last(name) && has_prefix(known)) {
        return format!("{name} (is {meant} meant?)");
    }
    let near = known.into_iter().filter(|known| known.len().abs_diff(lower.len()) <= CHANGES);
    let changes = |known: &str| if prometheus(known) == spelt { 0 } else { distance(&lower, &known.to_lowercase()) };
    let distances = near.map(|known| (changes(known), known));
    match distances.filter(|(changes, _)| *changes <= CHANGES).min() {
        Some((_, meant)) => format!("{name} (is {meant} meant?)"),
        None => name.to_owned(),
    }
}

/// Returns the minimum number of insertions, deletions and replacements that turn one string into the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, c) in from.chars().enumerate() {
        let mut diagonal = at;
        row[0] = at + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(c != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[test]
fn a_name_with_few_changes_is_meant() {
    let known = ["sidecar.istio.io/proxyCPU", "sidecar.istio.io/proxyCPULimit", "sidecar.istio.io/inject"];
    let named = |name: &str| meant(name, known.into_iter());
    assert_eq!(named("sidecar.istio.io/proxyCpu"), "sidecar.istio.io/proxyCpu (is sidecar.istio.io/proxyCPU meant?)");
    assert_eq!(named("sidecar.istio.io/injct"), "sidecar.istio.io/injct (is sidecar.istio.io/inject meant?)");
    assert_eq!(named("sidecar.istio.io/unrelated"), "sidecar.istio.io/unrelated");
}
