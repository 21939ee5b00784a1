//! What a trial has measured, for people: a loaded machine has other figures than an idle one.

#![expect(clippy::print_stdout, reason = "figures are for people")]

use std::time::Duration;

/// Prints a line.
pub(crate) fn say(line: &str) {
    println!("  {line}");
}

/// Prints how many there were, the best, the median and the worst.
pub(crate) fn of(what: &str, durations: &[Duration]) {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let [best, .., worst] = sorted.as_slice() else { return println!("  {what}: {sorted:?}") };
    let (count, median) = (sorted.len(), sorted[sorted.len() / 2]);
    println!("  {what}: {count}, best {:.1} ms, median {:.1}, worst {:.1}", ms(*best), ms(median), ms(*worst));
}

/// Prints durations as above, and how many times the median of `without` half of them take.
pub(crate) fn against(without: &[Duration], what: &str, durations: &[Duration]) {
    of(what, durations);
    if let (Some(base), Some(median)) = (median(without), median(durations)) {
        println!("  {what}: {:.2} times what half take without the plugin", median.as_secs_f64() / base.as_secs_f64());
    }
}

/// What half of them take, where there are any.
pub(crate) fn median(durations: &[Duration]) -> Option<Duration> {
    let mut sorted = durations.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
