//! Rules in a real kernel, real connections and validation, in each trial's own network namespaces. Needs root.

#![expect(clippy::disallowed_methods, reason = "tests create namespaces, run programs and read the environment")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

#[path = "../support/netns.rs"]
mod support;

#[path = "../support/cases.rs"]
mod cases;

#[path = "../support/plugin.rs"]
mod plugin_call;

#[path = "../support/api/server.rs"]
mod api;

#[path = "../support/repair.rs"]
mod stage;

#[path = "../pod/servers.rs"]
#[allow(dead_code, reason = "the API server of the lookup's tests; a part of it serves here")]
mod servers;

mod backends;
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
        backends::trials(),
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
