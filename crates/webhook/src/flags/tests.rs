//! Tests of the settings that flags select.

use clap::{CommandFactory as _, Parser};

use super::source::CONFIG;
use super::*;
use crate::configuration::Source;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    flags: WebhookFlags,
}

fn flags(line: &str) -> WebhookFlags {
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
async fn only_files_that_are_named_are_required() {
    for (line, are_optional) in [
        ("--injectConfig=/c", [true, true]),
        ("--injectConfig=/c --injectValues=/v", [false, true]),
        ("--injectConfig=/c --meshConfig=/etc/istio/config/mesh", [true, false]),
    ] {
        let Ok(Source::Files { values, mesh, .. }) = flags(line).source(|_| false).await else { panic!("{line}") };
        assert_eq!([values.is_optional, mesh.is_optional], are_optional, "{line}");
    }
}

#[tokio::test]
async fn a_flag_of_a_source_that_is_not_read_is_refused() {
    for (line, unused) in [
        ("", None),
        ("--injectConfig=/c --injectValues=/v --meshConfig=/m", None),
        ("--injectValues=/v", Some("--injectValues has no effect without --injectConfig: ")),
        ("--meshConfig=/m", Some("--meshConfig has no effect without --injectConfig: ")),
        ("--meshConfigMapName=mine", None),
    ] {
        let flags = flags(line);
        let source = flags.source(|_| false).await.unwrap();
        let found = flags.check_source(&source).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(found.is_empty(), unused.is_none(), "{line}: {found}");
        assert!(found.starts_with(unused.unwrap_or_default()), "{line}: {found}");
    }
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
