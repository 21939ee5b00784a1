//! Real pods in real container runtimes: the plugin as containerd and CRI-O call it.
//!
//! The trials on a runtime share one process of it and run one after the other, each with its own run directory and doubles.
//! After each trial the node is checked for leftovers.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read the environment")]

mod check;
mod end;
mod found;
mod lookup;
mod multus;
mod redirect;
mod refuse;
mod removal;
mod sandbox;
mod skip;
mod stage;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use stage::{Runtime, Stage};

fn main() -> ExitCode {
    // The trials run in the current thread, because the kernel kills a runtime when the thread that started it exits.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    test_support::runtime::signals::end_nodes();
    let stage = Stage::default();
    let plugin = [
        redirect::CASES,
        refuse::CASES,
        skip::CASES,
        lookup::CASES,
        end::CASES,
        check::CASES,
        removal::CASES,
        found::CASES,
    ];
    let cases = [&plugin, multus::CASES].concat().concat();
    let runtimes = [Runtime::Containerd, Runtime::Crio];
    let on = |runtime| cases.iter().map(move |case| (runtime, *case));
    // gVisor's shim needs containerd 2. The suite `cluster` runs the other cases with containerd 2.
    let in_gvisor = sandbox::CASES.iter().map(|case| (Runtime::Containerd2, *case));
    let all = runtimes.into_iter().flat_map(on).chain(in_gvisor);
    let trials = all.map(|(runtime, case)| stage.trial(runtime, case)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(stage);
    conclusion.exit_code()
}
