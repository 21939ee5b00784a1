//! Tests of the settings that flags select.

use clap::{CommandFactory as _, Parser};

use super::*;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    flags: Flags,
}

fn flags(line: &str) -> Flags {
    Program::parse_from(format!("x {line}").split_whitespace()).flags
}

#[test]
fn istios_flags_are_accepted() {
    Program::command().debug_assert();
    let flags = flags(
        "--port 9443 --monitoringPort=9093 --injectConfig=/c --injectValues=/v --meshConfig=/m --tlsCertFile=/t \
         --tlsKeyFile=/k --caCertFile=/ca --webhookConfigName=w --webhookName=n --reconcileWebhookConfig=false \
         --healthCheckInterval=2s --healthCheckFile=/health",
    );
    assert_eq!(flags.ports(), (9443, 9093));
    assert_eq!(flags.ignored(), ["--healthCheckInterval", "--healthCheckFile"]);
}

#[tokio::test]
async fn absent_files_leave_the_defaults_unless_they_are_named() {
    assert!(matches!(flags("").source(|_| false).await, Ok(Source::Default)));
    assert!(
        matches!(flags("").source(|_| true).await, Ok(Source::Files { config, .. }) if config == std::path::Path::new(CONFIG))
    );
    assert!(matches!(flags("--injectConfig=/c").source(|_| false).await, Ok(Source::Files { .. })));
}

#[tokio::test]
async fn without_a_name_no_webhook_configuration_is_managed() {
    for line in ["--webhookConfigName=", "--reconcileWebhookConfig=false"] {
        assert!(matches!(flags(line).bundles(None).await, Ok(None)), "{line}");
    }
}

#[test]
fn each_name_is_a_selection() {
    let named = |line: &str| flags(line).webhook.selections().map(|one| one.to_string()).collect::<Vec<_>>();
    assert_eq!(named(""), ["named istio-sidecar-injector"]);
    assert_eq!(named("--webhookConfigName=a,b"), ["named a", "named b"]);
    assert_eq!(named("--webhookConfigName= --webhookConfigSelector=istio.io/rev=x"), ["labelled istio.io/rev=x"]);
}

#[test]
fn each_service_has_its_dns_names() {
    let flags = flags("--serviceName injector --namespace mesh");
    let names = ["injector.mesh.svc", "injector.mesh.svc.cluster.local", "injector.mesh", "injector"];
    assert_eq!(flags.names(&["injector"]), names);
    let both = flags.names(&["dapr"]);
    assert_eq!(
        (&both[..4], &both[4..6]),
        (&names.map(str::to_owned)[..], &["dapr.mesh.svc".to_owned(), "dapr.mesh.svc.cluster.local".to_owned()][..])
    );
}
