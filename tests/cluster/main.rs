//! Runs trials in a real Kubernetes cluster of one node: etcd, kube-apiserver, controllers, scheduler, kubelet and
//! containerd, in their own Linux namespaces.
//!
//! The program starts itself inside these namespaces, once for each container runtime that has trials; the cluster
//! exists until that process ends. Trials run one after the other, each in its own Kubernetes namespace, and fail if
//! they leave anything on the node.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read the environment")]
#![expect(clippy::expect_used, reason = "in a test, a panic is the report")]

mod account;
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
mod stage;
mod strict;
mod upgrade;
mod webhook;
mod writer;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use enter::Runtime;
use stage::Case;

fn main() -> ExitCode {
    // Trials run one at a time, because they change the node's only CNI chain.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    if let Some(runtime) = Runtime::here() {
        return match enter::inside() {
            Ok(cluster) => run(&arguments, cases(runtime).iter().map(|case| stage::trial(case, &cluster)).collect()),
            Err(reason) => run(&arguments, absent(runtime, &reason)),
        };
    }
    if arguments.list {
        return run(&arguments, Runtime::ALL.into_iter().flat_map(|runtime| absent(runtime, "")).collect());
    }
    let selected = |runtime: &Runtime| cases(*runtime).iter().any(|case| is_selected(&arguments, case.name));
    let succeeded = Runtime::ALL.into_iter().filter(selected).map(|runtime| match enter::enter(runtime) {
        Ok(succeeded) => succeeded,
        Err(reason) => !libtest_mimic::run(&arguments, absent(runtime, &reason)).has_failed(),
    });
    // A failure under one runtime does not prevent the trials of the next.
    match succeeded.collect::<Vec<_>>().contains(&false) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
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
            mesh::CASES,
            dapr::CASES,
            reboot::CASES,
        ]
        .concat(),
        Runtime::Containerd2 => reboot::CASES_OF_CONTAINERD_2.to_vec(),
    }
}

/// Whether the arguments select a trial, by the rules of `libtest_mimic`.
fn is_selected(arguments: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| if arguments.exact { name == filter } else { name.contains(filter.as_str()) };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

fn absent(runtime: Runtime, reason: &str) -> Vec<Trial> {
    cases(runtime).iter().map(|case| stage::absent(case, reason)).collect()
}

fn run(arguments: &Arguments, trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(arguments, trials).exit_code()
}
