//! Tests of the options that annotations set.

use super::*;
use crate::annotations::{Annotations, Options};
use crate::era::truthy;

fn read(annotations: &[(&str, &str)], check: impl FnOnce(&Options<'_>, &[String])) {
    let keys: Vec<(String, &str)> =
        annotations.iter().map(|(name, value)| (format!("dapr.io/{name}"), *value)).collect();
    let map = keys.iter().map(|(name, value)| (name.as_str(), Some(*value))).collect();
    let mut annotations = Annotations::new(&map, Era::Current);
    let options = Options::read(&mut annotations);
    check(&options, &annotations.warnings);
}

#[test]
fn six_spellings_are_true() {
    for yes in ["y", "Yes", " true ", "T", "on", "1"] {
        assert!(truthy(yes), "{yes:?}");
    }
    for no in ["", "0", "no", "false", "truee", "2", "enable"] {
        assert!(!truthy(no), "{no:?}");
    }
}

#[test]
fn invalid_numbers_select_the_default() {
    for (value, expected, warnings) in [
        ("9876", 9876, 0),
        ("+5", 5, 0),
        ("-5", -5, 0),
        ("zorro", 9090, 1),
        ("", 9090, 1),
        ("1_0", 9090, 1),
        ("4294967297", 9090, 1),
    ] {
        read(&[("metrics-port", value)], |options, said| {
            assert_eq!((options.ports.metrics, said.len()), (expected, warnings), "{value:?}");
        });
    }
    read(&[("app-max-concurrency", "4294967297"), ("http-max-request-size", "batman")], |options, said| {
        assert_eq!((options.app.max_concurrency, options.sizes.http_max_request), (Some(4_294_967_297), None));
        let expected = "dapr.io/http-max-request-size: \"batman\" is not a whole number in range and is ignored";
        assert_eq!(said, [expected]);
    });
}

#[test]
fn an_empty_annotation_is_set() {
    read(&[("log-level", ""), ("enable-api-logging", ""), ("block-shutdown-duration", "")], |options, _| {
        assert_eq!((options.log_level, options.api_logging), ("", Some(false)));
        assert_eq!(options.block_shutdown, Some(""));
    });
    read(&[], |options, _| {
        assert_eq!((options.log_level, options.api_logging, options.block_shutdown), ("info", None, None));
        assert!(options.metrics);
    });
    let mut null = pod(&[]);
    null["metadata"]["annotations"]["dapr.io/log-level"] = Value::Null;
    assert_eq!(option(daprd(&injected(&null, &settings(&[]))), "--log-level"), Some(""));
}

#[test]
fn quoted_empty_addresses_are_empty() {
    for empty in ["", "\"\"", "''", "'\"\"'", "   ", "\"   \"", "' '"] {
        let annotations = [("placement-host-address", empty), ("scheduler-host-address", empty)];
        let daprd = sidecar(&annotations, &settings(&[]));
        assert_eq!(option(&daprd, "--placement-host-address"), None, "{empty:?}");
        assert_eq!(option(&daprd, "--scheduler-host-address"), Some(""), "{empty:?}");
    }
    for (given, expected) in [("'p:1'", "p:1"), (" p:1 ", "p:1"), (" \"p:1\" ", "\"p:1\""), ("a:1,b:2", "a:1,b:2")] {
        let daprd = sidecar(&[("placement-host-address", given)], &settings(&[]));
        assert_eq!(option(&daprd, "--placement-host-address"), Some(expected), "{given:?}");
    }
}

#[test]
fn placement_actors_and_scheduler_are_configured() {
    let default = "dapr-placement-server.example.svc.cluster.local:50005";
    let named = [("ACTORS_SERVICE_NAME", "placement"), ("ACTORS_SERVICE_ADDRESS", "mine:9")];
    let custom = [("ACTORS_SERVICE_NAME", "custom"), ("ACTORS_SERVICE_ADDRESS", "mine:9")];
    let (mine, service) = ("mine.example.svc.cluster.local:9", "custom:mine.example.svc.cluster.local:9");
    for (env, annotation, placement, actors) in [
        (&[][..], None, Some(default), None),
        (&[("ACTORS_ENABLED", "false")], None, None, None),
        (&[("ACTORS_ENABLED", "false")], Some("p:1"), Some("p:1"), None),
        (&named, None, Some(mine), None),
        (&named, Some("p:1"), Some("p:1"), None),
        (&custom, None, None, Some(service)),
        (&custom, Some(""), None, Some(service)),
        (&custom, Some("p:1"), Some("p:1"), None),
        (&[], Some(""), None, None),
    ] {
        let annotations: Vec<_> = annotation.map(|value| ("placement-host-address", value)).into_iter().collect();
        let daprd = sidecar(&annotations, &settings(env));
        let found = (option(&daprd, "--placement-host-address"), option(&daprd, "--actors-service"));
        assert_eq!(found, (placement, actors), "{env:?} {annotation:?}");
    }
    let off = Settings { scheduler: false, ..settings(&[]) };
    assert_eq!(option(&sidecar(&[], &off), "--scheduler-host-address"), None);
    assert_eq!(option(&sidecar(&[("scheduler-host-address", "s:1")], &off), "--scheduler-host-address"), Some("s:1"));
}

#[test]
fn the_applications_protocol_includes_tls() {
    for (protocol, ssl, expected) in [
        ("http", "false", "http"),
        ("http", "true", "https"),
        ("HTTP", "true", "https"),
        ("grpc", "false", "grpc"),
        ("grpc", "true", "grpcs"),
        ("grpcs", "false", "grpcs"),
        ("https", "false", "https"),
        ("H2C", "true", "h2c"),
        ("", "true", "http"),
        ("odd", "true", ""),
    ] {
        let annotations = [("app-protocol", protocol), ("app-ssl", ssl)];
        read(&annotations, |options, _| assert_eq!(options.app_protocol(), expected, "{protocol} {ssl}"));
        let daprd = sidecar(&annotations, &settings(&[]));
        assert_eq!(option(&daprd, "--app-protocol"), Some(protocol));
        assert_eq!(args(&daprd).contains(&"--app-ssl"), ssl == "true");
    }
}

#[test]
fn given_options_are_in_the_command_line() {
    for (annotation, flag, expected) in [
        (("sidecar-listen-addresses", "1.2.3.4,[::1]"), "--dapr-listen-addresses", Some("1.2.3.4,[::1]")),
        (("graceful-shutdown-seconds", "3"), "--dapr-graceful-shutdown-seconds", Some("3")),
        (("graceful-shutdown-seconds", "invalid"), "--dapr-graceful-shutdown-seconds", Some("-1")),
        (("app-port", "0"), "--app-port", None),
        (("app-port", "-1"), "--app-port", None),
        (("sentry-request-jwt-audiences", ""), "--sentry-request-jwt-audiences", None),
        (("sentry-request-jwt-audiences", "one"), "--sentry-request-jwt-audiences", Some("one")),
        (("app-health-check-path", "/x"), "--app-health-check-path", None),
        (("config", ""), "--config", None),
    ] {
        assert_eq!(option(&sidecar(&[annotation], &settings(&[])), flag), expected, "{annotation:?}");
    }
    let health = [
        ("enable-app-health-check", "true"),
        ("app-health-check-path", "/x"),
        ("app-health-probe-interval", "2"),
        ("app-health-probe-timeout", "100"),
        ("app-health-threshold", "2"),
    ];
    let daprd = sidecar(&health, &settings(&[]));
    let found = [
        "--app-health-check-path",
        "--app-health-probe-interval",
        "--app-health-probe-timeout",
        "--app-health-threshold",
    ]
    .map(|name| option(&daprd, name));
    assert_eq!(found, [Some("/x"), Some("2"), Some("100"), Some("2")]);
    for (value, expected) in
        [("true", "--enable-api-logging=true"), ("0", "--enable-api-logging=false"), ("", "--enable-api-logging=false")]
    {
        assert!(args(&sidecar(&[("enable-api-logging", value)], &settings(&[]))).contains(&expected), "{value}");
    }
}
