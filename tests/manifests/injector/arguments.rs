//! Checks every argument and variable of the webhook's manifests with the program's own parser.

use std::collections::BTreeMap;

use clap::{CommandFactory as _, Parser};
use serde_json::{Value, json};
use serve::log;
use webhook::{WebhookFlags, dapr};

use super::{DAPR, Injector, WATCHDOG};
use crate::helm::{INJECTOR, NAMESPACE};
use crate::objects::parse;

/// The command line of `sidecar-injector`.
#[derive(Parser)]
#[command(args_override_self = true)]
pub(super) struct Program {
    #[command(flatten)]
    pub(super) webhook: WebhookFlags,
    #[command(flatten)]
    dapr: dapr::DaprFlags,
    #[command(flatten)]
    _log: log::LogFlags,
}

pub(crate) fn of_the_manifests() {
    let program = understood(&parse(&INJECTOR.manifest()));
    assert!(!program.dapr.enabled() && program.webhook.status_page().is_none());
}

pub(crate) fn of_the_chart() {
    let program = understood(&INJECTOR.render(&[
        r#"revision="canary""#,
        r#"certificate.secret="tls""#,
        r#"injectConfigMapName="istio-sidecar-injector""#,
        r#"nativeSidecars="true""#,
        r#"compliancePolicy="fips-140-3""#,
        "refuseSandboxes=true",
        r#"global.platform="openshift""#,
        r#"global.logging.level="default:debug""#,
        "global.logAsJson=true",
        "statusPage.enabled=true",
        r#"env.INJECTOR_MONITORING_PORT="15014""#,
    ]));
    assert!(program.webhook.injection().refuse_sandboxes);
    assert_eq!(program.webhook.status_page().map(|page| page.revision).as_deref(), Some("canary"));
    let images = understood(&INJECTOR.render(&[r#"proxyImage="p""#, r#"validationImage="v""#])).webhook.injection();
    assert_eq!((&*images.built_in.proxy_image, &*images.built_in.validation_image), ("p", "v"));

    let watched = [&DAPR[..], &[WATCHDOG, "dapr.watchdog.deletePods=true", "dapr.watchdog.podsPerMinute=7"]].concat();
    let watchdog = understood(&INJECTOR.render(&watched)).dapr.watchdog().unwrap();
    assert_eq!((watchdog.mode.as_str(), watchdog.budget), ("delete-or-report", 7));

    let further = ["dapr.schedulerEnabled=false", r#"dapr.env.ALLOWED_SERVICE_ACCOUNTS="shop:builder""#];
    for release in ["current", "1.4"] {
        let release = format!("dapr.release={release:?}");
        let objects = INJECTOR.render(&[&DAPR[..], &further, &[&*release]].concat());
        let program = understood(&objects);
        assert!(program.dapr.enabled());
        let settings = program.dapr.settings(&environment(&Injector::of(&objects)), "").unwrap();
        assert_eq!((&*settings.image, &*settings.control_plane.namespace), ("daprd:1", "dapr-system"));
        assert!(!settings.scheduler);
        assert!(program.dapr.watchdog().is_none());
        assert_eq!(settings.warnings, Vec::<String>::new());
    }

    let starts = |value: &str| {
        let objects = INJECTOR.render(&[&DAPR[..], &[r#"dapr.release="1.4""#, value]].concat());
        let program = understood(&objects);
        let mounted = objects.iter().any(|object| object.to_string().contains(r#""mountPath":"/etc/istio/callers""#));
        assert_eq!(program.webhook.callers().is_some(), mounted);
        program.dapr.check_callers(mounted).is_ok()
    };
    assert!(!starts("dapr.issuerKeyForAnyone=false"));
    assert!(starts("dapr.issuerKeyForAnyone=true") && starts(r#"certificate.clientSecret="callers""#));
}

/// Parses the webhook's arguments and variables and checks its ports against the settings.
pub(super) fn understood(objects: &[Value]) -> Program {
    let injector = Injector::of(objects);
    let mut line = injector.line();
    for (name, value) in environment(&injector) {
        // The variables of Dapr's chart have no equivalent flags.
        match flag(&name) {
            Some(flag) => line.push(format!("--{flag}={value}")),
            None => assert!(DAPRS.contains(&&*name), "the program does not read the variable {name}"),
        }
    }
    let program = Program::try_parse_from(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
    assert_eq!(program.webhook.ignored(), Vec::<&str>::new());
    let (webhook, monitoring) = program.webhook.ports();
    let ports: Vec<_> =
        injector.container["ports"].as_array().unwrap().iter().map(|port| &port["containerPort"]).collect();
    assert_eq!(ports, [&json!(webhook), &json!(monitoring)]);
    assert_eq!(injector.template["metadata"]["annotations"]["prometheus.io/port"], monitoring.to_string());
    program
}

/// Environment variables of Dapr's chart that this chart or the test sets.
const DAPRS: [&str; 3] = ["NAMESPACE", "SIDECAR_IMAGE", "ALLOWED_SERVICE_ACCOUNTS"];

fn environment(injector: &Injector) -> BTreeMap<String, String> {
    let variables = injector.container["env"].as_array().unwrap();
    let of = |variable: &Value| {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            None => variable["value"].as_str().unwrap(),
            Some("metadata.namespace") => NAMESPACE,
            Some(other) => panic!("{other}"),
        };
        (variable["name"].as_str().unwrap().to_owned(), value.to_owned())
    };
    variables.iter().map(of).collect()
}

/// Returns the flag that is equivalent to a variable.
fn flag(variable: &str) -> Option<String> {
    let command = Program::command();
    let mut arguments = command.get_arguments();
    let argument = arguments.find(|argument| argument.get_env().is_some_and(|name| name == variable))?;
    argument.get_long().map(str::to_owned)
}
