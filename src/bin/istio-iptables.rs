//! `istio-iptables`: hands command line, environment and standard streams to `iptables::run`.

use std::io::{stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use istio_cni::iptables::{World, run};

fn main() -> ExitCode {
    // A variable that is not UTF-8 is none of ours.
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let world = World {
        argv: std::env::args_os().collect(),
        env: variables.collect(),
        etc: Path::new("/etc"),
        out: &mut stdout(),
        err: &mut stderr(),
    };
    run(world).into()
}
