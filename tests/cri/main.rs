//! Real pods in a real container runtime: the plugin as containerd calls it.
//!
//! All trials share one containerd and run one after the other, each with its own run directory and doubles. After
//! each trial the node is checked for leftovers.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read the environment")]

mod check;
mod end;
mod lookup;
mod redirect;
mod refuse;
mod skip;
mod stage;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use stage::Stage;

fn main() -> ExitCode {
    // The trials run in the current thread, because the kernel kills containerd when the thread that started it exits.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    test_support::runtime::signals::end_nodes();
    let stage = Stage::default();
    let cases = [redirect::CASES, refuse::CASES, skip::CASES, lookup::CASES, end::CASES, check::CASES].concat();
    let trials = cases.into_iter().map(|case| stage.trial(case)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(stage);
    conclusion.exit_code()
}
