//! Runs trials in a real Kubernetes cluster of one node: etcd, kube-apiserver, controllers, scheduler, kubelet and
//! containerd or CRI-O, in their own Linux namespaces.
//!
//! The program starts itself inside these namespaces, once for each container runtime that has trials; the cluster
//! exists until that process ends. Trials run one after the other, each in its own Kubernetes namespace, and fail if
//! they leave anything on the node.
//!
//! Trials that guard an invariant run always, the others with `FULL=1` or if the filter is the trial's whole name.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read the environment")]
#![expect(clippy::expect_used, reason = "in a test, a panic is the report")]

mod account;
mod admission;
mod agent;
mod chain;
mod churn;
mod cluster;
mod confine;
mod controller;
mod dapr;
mod enter;
mod figures;
mod harness;
mod injector;
mod install;
mod machine;
mod mesh;
mod migration;
mod objects;
mod outage;
mod reboot;
mod repair;
mod rights;
mod runtimes;
mod stage;
mod strict;
mod upgrade;
mod webhook;
mod writer;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial, run};

use enter::Runtime;
use stage::Case;

fn main() -> ExitCode {
    // Trials run one at a time, because they change the node's only CNI chain.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    if let Some(runtime) = Runtime::here() {
        return match enter::inside() {
            Ok(cluster) => {
                run(&arguments, trials(&arguments, runtime, |case| stage::trial(case, &cluster))).exit_code()
            }
            Err(reason) => run(&arguments, absent(&arguments, runtime, &reason)).exit_code(),
        };
    }
    if arguments.list {
        let all = Runtime::ALL.into_iter().flat_map(|runtime| absent(&arguments, runtime, ""));
        return run(&arguments, all.collect()).exit_code();
    }
    let selected = |runtime: &Runtime| cases(*runtime).iter().any(|case| is_selected(&arguments, case.name));
    let succeeded = Runtime::ALL.into_iter().filter(selected).map(|runtime| enter_and_run(&arguments, runtime));
    // A failure under one runtime does not prevent the trials of the next.
    match succeeded.collect::<Vec<_>>().contains(&false) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Runs the trials of a runtime in a cluster, which is started only if a selected trial needs it. Returns whether none
/// has failed.
fn enter_and_run(arguments: &Arguments, runtime: Runtime) -> bool {
    let needs_cluster = |case: &Case| is_selected(arguments, case.name) && case.runs(arguments);
    let entered = match cases(runtime).iter().any(needs_cluster) {
        true => enter::enter(runtime),
        false => Err("no selected trial runs".to_owned()),
    };
    entered.unwrap_or_else(|reason| !run(arguments, absent(arguments, runtime, &reason)).has_failed())
}

fn cases(runtime: Runtime) -> Vec<Case> {
    match runtime {
        Runtime::Host => [
            harness::CASES,
            repair::CASES,
            install::CASES,
            upgrade::CASES,
            migration::CASES,
            outage::CASES,
            rights::CASES,
            strict::CASES,
            confine::CASES,
            webhook::CASES,
            admission::CASES,
            mesh::CASES,
            dapr::CASES,
            runtimes::OF_THE_HOST,
            reboot::CASES,
        ]
        .concat(),
        Runtime::Containerd2 => [runtimes::OF_CONTAINERD_2, reboot::CASES_OF_CONTAINERD_2].concat(),
        Runtime::Crio => [runtimes::OF_CRIO, reboot::CASES_OF_CRIO].concat(),
    }
}

/// Whether the arguments select a trial, by the rules of `libtest_mimic`.
fn is_selected(arguments: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| if arguments.exact { name == filter } else { name.contains(filter.as_str()) };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

/// Returns the trials of a runtime. Cases that do not run with these arguments become ignored trials; `trial` converts the others.
fn trials(arguments: &Arguments, runtime: Runtime, trial: impl Fn(&Case) -> Trial) -> Vec<Trial> {
    let all = cases(runtime);
    all.iter().map(|case| if case.runs(arguments) { trial(case) } else { stage::postponed(case) }).collect()
}

fn absent(arguments: &Arguments, runtime: Runtime, reason: &str) -> Vec<Trial> {
    trials(arguments, runtime, |case| stage::absent(case, reason))
}
