//! Formats the measurements as tables or as JSON, and compares them with the targets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::case::Case;
use crate::measure::{Alone, AtOnce, WIDTHS};
use crate::subject::Subject;

/// All measurements.
pub(crate) struct Report {
    /// The directory of the recorded batches.
    pub(crate) recordings: PathBuf,
    /// The measured cases. The first element of the keys below is an index into this list.
    pub(crate) cases: Vec<Case>,
    pub(crate) alone: BTreeMap<(usize, Subject), Figures>,
    pub(crate) rates: BTreeMap<(usize, Subject, usize), Rate>,
    /// The peak resident memory of each subject, in KiB.
    pub(crate) peaks: BTreeMap<(usize, Subject), u64>,
    /// Size of the plugin's binary, in bytes.
    pub(crate) binary: u64,
}

/// Sequential runs of one subject, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    p50: f64,
    min: f64,
    p99: f64,
    cpu: f64,
    runs: usize,
}

/// Concurrent runs of one subject: their rate and durations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Runs per second of the median round.
    per_second: f64,
    /// A percentile of the durations of all rounds' runs, in milliseconds.
    p50: f64,
    /// A percentile of the durations of all rounds' runs, in milliseconds.
    p99: f64,
}

/// A target and its measurement.
struct Target {
    text: String,
    measured: f64,
    met: bool,
}

pub(crate) fn figures(taken: &Alone) -> BTreeMap<(usize, Subject), Figures> {
    let of = |(key, taken): (&(usize, Subject), &Vec<crate::run::Taken>)| {
        let wall = sorted(taken.iter().map(|t| ms(t.wall)));
        let cpu = sorted(taken.iter().map(|t| ms(t.cpu)));
        let figures = Figures {
            p50: quantile(&wall, 0.5),
            min: quantile(&wall, 0.0),
            p99: quantile(&wall, 0.99),
            cpu: quantile(&cpu, 0.5),
            runs: wall.len(),
        };
        (*key, figures)
    };
    taken.iter().map(of).collect()
}

pub(crate) fn rates(rounds: &AtOnce) -> BTreeMap<(usize, Subject, usize), Rate> {
    let mut rates = BTreeMap::new();
    for (key, rounds) in rounds {
        let per_second = sorted(rounds.iter().map(|round| round.runs.len() as f64 / round.wall.as_secs_f64()));
        let wall = sorted(rounds.iter().flat_map(|round| round.runs.iter().map(|run| ms(*run))));
        let rate =
            Rate { per_second: quantile(&per_second, 0.5), p50: quantile(&wall, 0.5), p99: quantile(&wall, 0.99) };
        rates.insert(*key, rate);
    }
    rates
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the quantile `q` of sorted values.
fn quantile(values: &[f64], q: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * q).round() as usize).copied().unwrap_or(f64::NAN)
}

impl Report {
    fn p50(&self, at: usize, subject: Subject) -> f64 {
        self.alone.get(&(at, subject)).map_or(f64::NAN, |figures| figures.p50)
    }

    fn per_second(&self, at: usize, subject: Subject, width: usize) -> f64 {
        self.rates.get(&(at, subject, width)).map_or(f64::NAN, |rate| rate.per_second)
    }

    fn targets(&self) -> Vec<Target> {
        let at_most = |text: String, measured, limit| Target { text, measured, met: measured <= limit };
        let at_least = |text: String, measured, limit| Target { text, measured, met: measured >= limit };
        let mut targets = Vec::new();
        for (at, case) in self.cases.iter().enumerate() {
            let p50 = |subject| self.p50(at, subject);
            let (name, add, floor, commands) =
                (case.name(), p50(Subject::Add), p50(Subject::Floor), p50(Subject::Commands));
            let limit = case.limit();
            targets.push(at_most(format!("{name}: ADD with install-cni takes at most {limit} ms"), add, limit));
            let canned = p50(Subject::AddCanned) / floor;
            targets.push(at_most(
                format!("{name}: ADD takes at most 1.5 times its floor, the agent aside"),
                canned,
                1.5,
            ));
            // An ADD cannot be faster than the floor, whose time the kernel determines. The text therefore also
            // contains the floor's own ratio.
            let text = format!(
                "{name}: ADD is 45 times faster than Istio's commands (its floor is {:.1} times)",
                commands / floor
            );
            targets.push(at_least(text, commands / add, 45.0));
            let rate = self.per_second(at, Subject::Add, 16) / self.per_second(at, Subject::Commands, 16);
            targets.push(at_least(format!("{name}: 16 at once, ADD has 20 times their rate"), rate, 20.0));
        }
        targets.push(at_most("the plugin's binary has at most 3 MB".to_owned(), self.binary as f64 / 1e6, 3.0));
        let add = |(_, subject): &(usize, Subject)| matches!(subject, Subject::Add | Subject::AddByApi);
        let peak = self.peaks.iter().filter(|(key, _)| add(key)).map(|(_, peak)| *peak).max().unwrap_or_default();
        let peak = peak as f64 * 1024.0 / 1e6;
        targets.push(at_most("an ADD's memory peaks at 4 MB at most, by either lookup".to_owned(), peak, 4.0));
        targets
    }

    /// Formats the tables.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "Whole processes, from spawn to exit, interleaved in random order, each in a new netns.");
        let _ =
            writeln!(out, "Every subject left the expected rules. The floor replays {}.\n", self.recordings.display());
        for (at, case) in self.cases.iter().enumerate() {
            self.alone_table(&mut out, at, *case);
            self.rates_table(&mut out, at);
        }
        let _ = writeln!(out, "istio-cni: {} bytes\n", self.binary);
        for Target { text, measured, met } in self.targets() {
            let _ = writeln!(out, "{} {measured:>7.2}  {text}", if met { "met   " } else { "MISSED" });
        }
        out
    }

    fn alone_table(&self, out: &mut String, at: usize, case: Case) {
        let _ = writeln!(out, "{} ({} rules)", case.name(), case.rules());
        let head = ["ms p50", "min", "p99", "CPU", "peak KiB", "× floor", "× ADD", "runs"];
        let _ = writeln!(out, "  {:<28}{}", "", head.map(|word| format!("{word:>9}")).concat());
        let (floor, add) = (self.p50(at, Subject::Floor), self.p50(at, Subject::Add));
        for ((_, subject), f) in self.alone.range((at, Subject::Add)..=(at, Subject::Version)) {
            let peak = self.peaks.get(&(at, *subject)).copied().unwrap_or_default();
            let _ = writeln!(
                out,
                "  {:<28}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{peak:>9}{:>9.2}{:>9.2}{:>9}",
                subject.name(),
                f.p50,
                f.min,
                f.p99,
                f.cpu,
                f.p50 / floor,
                f.p50 / add,
                f.runs
            );
        }
        out.push('\n');
    }

    fn rates_table(&self, out: &mut String, at: usize) {
        let head = WIDTHS.map(|width| format!("{:>30}", format!("{width} at once")));
        let _ = writeln!(out, "  {:<28}{}", "", head.concat());
        let _ = writeln!(out, "  {:<28}{}", "", format!("{:>10}{:>10}{:>10}", "/s", "p50", "p99").repeat(WIDTHS.len()));
        for subject in Subject::PARALLEL {
            let _ = write!(out, "  {:<28}", subject.name());
            for rate in WIDTHS.iter().filter_map(|width| self.rates.get(&(at, subject, *width))) {
                let _ = write!(out, "{:>10.0}{:>10.2}{:>10.2}", rate.per_second, rate.p50, rate.p99);
            }
            out.push('\n');
        }
        out.push('\n');
    }

    /// Returns the report as JSON; times are in milliseconds, memory in KiB.
    pub(crate) fn json(&self) -> Value {
        let case = |(at, case): (usize, &Case)| {
            let alone: Vec<Value> = (self.alone.range((at, Subject::Add)..=(at, Subject::Version)))
                .map(|((_, subject), f)| {
                    json!({"subject": subject.key(), "p50": f.p50, "min": f.min, "p99": f.p99, "cpu": f.cpu,
                        "runs": f.runs, "peak_kib": self.peaks.get(&(at, *subject))})
                })
                .collect();
            let rates: Vec<Value> = (self.rates.iter().filter(|((of, ..), _)| *of == at))
                .map(|((_, subject, width), rate)| {
                    json!({"subject": subject.key(), "at_once": width, "per_second": rate.per_second,
                        "p50": rate.p50, "p99": rate.p99})
                })
                .collect();
            (case.key().to_owned(), json!({"rules": case.rules(), "alone": alone, "rates": rates}))
        };
        let cases: serde_json::Map<String, Value> = self.cases.iter().enumerate().map(case).collect();
        let target = |t: Target| json!({"target": t.text, "measured": t.measured, "met": t.met});
        json!({
            "recordings": self.recordings, "cases": cases, "binary_bytes": self.binary,
            "targets": self.targets().into_iter().map(target).collect::<Vec<_>>(),
        })
    }
}
