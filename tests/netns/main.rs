//! Tests of rules, connections and validation in a real kernel. Each trial has its own network namespaces. Needs root.

#![expect(clippy::disallowed_methods, reason = "tests create namespaces, run programs and read the environment")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod ambient;
mod backends;
mod by_hand;
mod check;
mod converge;
mod encoder;
mod families;
mod find;
mod iptables;
mod plugin;
mod random;
mod repair;
mod trace;
mod truth;
mod validation;
mod visit;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = [
        ambient::trials(),
        backends::trials(),
        by_hand::trials(),
        check::trials(),
        converge::trials(),
        encoder::trials(),
        families::trials(),
        find::trials(),
        iptables::trials(),
        plugin::trials(),
        repair::trials(),
        trace::trials(),
        truth::trials(),
        validation::trials(),
        visit::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
