//! The repair controller as a program of its own, without the agent. Trials of the cluster tier run it with the rights
//! of one mode.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;
use istio_cni::in_place::{self, InPlace};
use repair::{Metrics, RepairFlags, RepairSettings, run};
use serve::shutdown::Shutdown;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Finds pods that started without redirection, and does what the mode says about them.
#[derive(clap::Parser)]
#[command(name = "repair", args_override_self = true)]
struct Program {
    #[command(flatten)]
    repair: RepairFlags,
    #[command(flatten)]
    in_place: in_place::InPlaceFlags,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    match start(Program::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn start(program: Program) -> anyhow::Result<()> {
    let in_place = InPlace::parse(&program.in_place)?;
    let settings = RepairSettings { reprogram: Some(Arc::new(in_place)), ..RepairSettings::parse(&program.repair)? };
    let mut config = kube::Config::infer().await.context("no way to the API server")?;
    // The client does not retry requests, because the controller has its own back-off and budget.
    config.default_retry = false;
    let client = kube::Client::try_from(config).context("no client of the API server")?;
    let (trigger, shutdown) = Shutdown::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        trigger.trigger();
    });
    run(client, settings, Metrics::default(), shutdown).await;
    Ok(())
}
