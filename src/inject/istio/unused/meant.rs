//! The name that a mistyped name means.

/// The most changes by which a name is taken for a mistyped one.
const CHANGES: usize = 2;

/// Returns the name, with the known one that is meant if there is one: it differs in few letters, or in their case.
pub(super) fn with_meant<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let lower = name.to_lowercase();
    let distances = known.map(|known| (distance(&lower, &known.to_lowercase()), known));
    match distances.filter(|(changes, _)| *changes <= CHANGES).min() {
        Some((_, meant)) => format!("{name} (is {meant} meant?)"),
        None => name.to_owned(),
    }
}

/// The least number of insertions, deletions and replacements that make one text of the other.
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
    let named = |name: &str| with_meant(name, known.into_iter());
    assert_eq!(named("sidecar.istio.io/proxyCpu"), "sidecar.istio.io/proxyCpu (is sidecar.istio.io/proxyCPU meant?)");
    assert_eq!(named("sidecar.istio.io/injct"), "sidecar.istio.io/injct (is sidecar.istio.io/inject meant?)");
    assert_eq!(named("sidecar.istio.io/unrelated"), "sidecar.istio.io/unrelated");
}
