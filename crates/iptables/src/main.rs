//! `istio-iptables`: passes command line, environment and standard streams to `iptables::run`.

use std::io::{stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use iptables::{Invocation, run};

fn main() -> ExitCode {
    // Variables that are not UTF-8 are omitted: this program uses none of them.
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let invocation = Invocation {
        argv: std::env::args_os().collect(),
        env: variables.collect(),
        etc: Path::new("/etc"),
        out: &mut stdout(),
        err: &mut stderr(),
    };
    run(invocation).into()
}
