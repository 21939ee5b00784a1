//! Real pods through a real container runtime: what the plugin does when containerd calls it.
//!
//! All trials share one containerd, one after the other, each with a run directory and doubles of its own. None may
//! leave anything behind: that is checked after each.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read the environment")]

mod ask;
mod check;
mod end;
mod redirect;
mod refuse;
mod skip;
mod stage;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use stage::Stage;

fn main() -> ExitCode {
    // One thread, this one: containerd ends with the thread that has started it.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    test_support::runtime::signals::end_nodes();
    let stage = Stage::default();
    let cases = [redirect::CASES, refuse::CASES, skip::CASES, ask::CASES, end::CASES, check::CASES].concat();
    let trials = cases.into_iter().map(|case| stage.trial(case)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(stage);
    conclusion.exit_code()
}
