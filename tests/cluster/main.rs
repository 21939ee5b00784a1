//! A real Kubernetes on one node: etcd, kube-apiserver, controllers, scheduler, kubelet and containerd, in namespaces of
//! their own.
//!
//! The program runs itself a second time inside of them, for as long as whose trials the cluster lives. Trials come one
//! after the other, each in a Kubernetes namespace of its own, and none may leave anything on the node.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read the environment")]
#![expect(clippy::expect_used, reason = "in a test, a panic is the report")]

#[path = "../support/cri/runtime.rs"]
mod runtime;

mod account;
mod agent;
mod chain;
mod churn;
mod cluster;
mod controller;
mod dapr;
mod enter;
mod figures;
mod harness;
mod injector;
mod install;
mod objects;
mod outage;
mod repair;
mod rights;
mod stage;
mod webhook;
mod writer;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use enter::Place;
use stage::Case;

fn main() -> ExitCode {
    // One at a time: the node has one CNI chain, and trials change it.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let cases: Vec<Case> =
        [harness::CASES, repair::CASES, install::CASES, outage::CASES, rights::CASES, webhook::CASES, dapr::CASES]
            .concat();
    if arguments.list {
        return run(&arguments, cases.iter().map(|case| stage::absent(case, "")).collect());
    }
    match enter::place() {
        Place::Inside(cluster) => run(&arguments, cases.iter().map(|case| stage::trial(case, &cluster)).collect()),
        Place::Nowhere(reason) => run(&arguments, cases.iter().map(|case| stage::absent(case, &reason)).collect()),
    }
}

fn run(arguments: &Arguments, trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(arguments, trials).exit_code()
}
