//! Prints measurements of the trials. They depend on the machine's load, so no trial compares them with measurements of other runs.

#![expect(clippy::print_stdout, reason = "figures are part of the output")]

use std::time::Duration;

/// Prints a line.
pub(crate) fn print(line: &str) {
    println!("  {line}");
}

/// Prints the number of durations, the best, the median and the worst.
pub(crate) fn print_durations(label: &str, durations: &[Duration]) {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let [best, .., worst] = sorted.as_slice() else { return println!("  {label}: {sorted:?}") };
    let (count, median) = (sorted.len(), sorted[sorted.len() / 2]);
    println!("  {label}: {count}, best {:.1} ms, median {:.1}, worst {:.1}", ms(*best), ms(median), ms(*worst));
}

/// Prints durations, and their median as a multiple of the median of `without`.
pub(crate) fn print_against(without: &[Duration], label: &str, durations: &[Duration]) {
    print_durations(label, durations);
    if let (Some(base), Some(median)) = (median(without), median(durations)) {
        println!("  {label}: {:.2} times the median without the plugin", median.as_secs_f64() / base.as_secs_f64());
    }
}

/// Returns the median; `None` if there are no durations.
fn median(durations: &[Duration]) -> Option<Duration> {
    let mut sorted = durations.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
