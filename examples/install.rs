//! Prints the plan of an installation without carrying it out: `cargo run --example install -- FLAGS OF install-cni`.

#![expect(clippy::print_stdout, reason = "prints the plan")]

use clap::Parser;
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{InstallFlags, plan};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    install: InstallFlags,
}

fn planned(program: Program) -> anyhow::Result<String> {
    let (settings, warnings) = program.install.settings("info")?;
    let plan = plan::install(&settings, &Snapshot::take(&settings));
    let warnings = warnings.iter().map(|warning| format!("warning: {warning}\n"));
    let steps = plan.steps.iter().map(|step| format!("{}: {:?}\n", step.reason.as_str(), step.operation));
    let obstacles = plan.obstacles.iter().map(|obstacle| format!("obstacle: {obstacle}\n"));
    Ok(warnings.chain(steps).chain(obstacles).collect())
}

fn main() -> anyhow::Result<()> {
    print!("{}", planned(Program::parse())?);
    Ok(())
}

#[test]
fn a_node_without_a_network_is_an_obstacle() {
    let root = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let flags = ["mounted-cni-net-dir", "mounted-cni-bin-dir", "cni-bin-source-dir", "service-account-dir"];
    let flags = flags.map(|flag| format!("--{flag}={}", root.path().display()));
    let server = ["install", "--kubernetes-service-host=10.96.0.1", "--kubernetes-service-port=443"].map(str::to_owned);
    let plan = planned(Program::parse_from(server.into_iter().chain(flags)));
    let plan = plan.unwrap_or_else(|error| panic!("{error}"));
    assert!(plan.contains("obstacle: "), "{plan}");
}
