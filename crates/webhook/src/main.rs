//! `sidecar-injector`: the admission webhook that injects sidecars into pods.
#![expect(clippy::disallowed_methods, reason = "reads environment and resolv.conf once, and hands them down")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;
use contract::diagnostics::LogScope;
use prometheus_client::registry::Registry;
use serve::health::{Liveness, Readiness};
use serve::log::Log;
use serve::shutdown::Shutdown;
use serve::tasks::Supervisor;
use serve::{listen, signals};
use webhook::{
    ClusterState, Native, Program, Route, ServerSettings, WebhookFlags, dapr, istio, run, watch_cluster_state,
};

/// The scopes of the program's modules.
const LOG_SCOPES: [LogScope; 4] =
    [LogScope::new(module_path!(), "default"), serve::LOG_SCOPE, repair::LOG_SCOPE, webhook::LOG_SCOPE];

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::parse();
    let started = Log::start(&program.log, &LOG_SCOPES).map_err(anyhow::Error::from);
    let ended = match started {
        Ok(_) => serve(&program.webhook, &program.dapr).await.inspect_err(|error| tracing::error!("{error:#}")),
        Err(error) => Err(error),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The log may be in a file, so the error also goes to standard error.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("sidecar-injector: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

async fn serve(flags: &WebhookFlags, dapr: &dapr::DaprFlags) -> anyhow::Result<()> {
    let shutdown = signals::listen().context("signals cannot be listened to")?;
    dapr.check_callers(flags.callers().is_some())?;
    flags.ignored().iter().for_each(|flag| tracing::warn!("{flag} does nothing here: probes use /readyz and /healthz"));
    let (port, monitoring) = flags.ports();
    let injection = istio::Options { environment: environment(), ..flags.injection() };
    let cluster_state = ClusterState::new(flags.native());
    let (client, readiness, mut registry) = (flags.client().await, Readiness::default(), Registry::default());
    let supervisor =
        Supervisor::new(registry.sub_registry_with_prefix("sidecar_injection"), readiness.clone(), Liveness::default());
    // The tasks that are started here end with the process.
    let (_end, ended) = Shutdown::new();
    let events = client.as_ref().ok().cloned();
    match client {
        Ok(client) => {
            let namespaces = injection.platform == inject::istio::Platform::OpenShift;
            let watch = watch_cluster_state(client, cluster_state.clone(), namespaces, &readiness);
            tokio::spawn(supervisor.run("cluster state", &ended, watch));
        }
        Err(error) if flags.native() == Native::Auto => tracing::warn!(%error, "the cluster's nodes are not known"),
        Err(error) => tracing::info!(%error, "nothing is known of the cluster"),
    }
    let source = flags.source(std::path::Path::exists).await?;
    flags.check_source(&source)?;
    let services: Vec<&str> = dapr.service().into_iter().collect();
    let settings = ServerSettings {
        webhook: listen::port(port).await?,
        monitoring: listen::port(monitoring).await?,
        limits: ServerSettings::limits(),
        certificates: flags.certificates(&services).await?,
        callers: flags.callers(),
        bundles: flags.bundles(dapr.selection()).await?,
        settle: flags.settle(),
        source,
        build: istio::build(injection, cluster_state),
        events,
        status_page: flags.status_page(),
        routes: other_routes(flags, dapr, &supervisor, &ended).await?,
        supervisor: supervisor.clone(),
        linger: flags.linger(),
    };
    if let Some(watchdog) = dapr.watchdog() {
        let client =
            flags.client().await.context("pods without Dapr's sidecar cannot be searched for (--watch-interval)")?;
        let metrics = repair::Metrics::of_dapr_watchdog(&mut registry);
        let watch = dapr::watchdog::watch(client, watchdog, metrics, readiness);
        tokio::spawn(supervisor.auxiliary().run("Dapr watchdog", &ended, watch));
    }
    tracing::info!(port, monitoring, "reviews are taken");
    Ok(run(settings, registry, shutdown).await?)
}

/// Returns the environment variables that are valid UTF-8.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok())).collect()
}

/// Creates the webhook routes that inject sidecars other than Istio's: Dapr's, if it is enabled.
async fn other_routes(
    flags: &WebhookFlags,
    dapr: &dapr::DaprFlags,
    supervisor: &Supervisor,
    ended: &Shutdown,
) -> anyhow::Result<Vec<Route>> {
    if !dapr.enabled() {
        return Ok(Vec::new());
    }
    let resolv_conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let settings = Arc::new(dapr.settings(&environment(), &resolv_conf)?);
    settings.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let client = flags.client().await.context("Dapr's injection requires access to the API server")?;
    let (mesh, trust_files) = (dapr::Mesh::new(supervisor.readiness().clone()), dapr.trust_files());
    let route = dapr::route(Arc::clone(&settings), mesh.clone());
    let watch = async move { dapr::watch_mesh(client, &settings, &trust_files, &mesh).await };
    tokio::spawn(supervisor.run("Dapr mesh", ended, watch));
    Ok(vec![route])
}
