//! Every argument and variable of the manifests, given to the programs' own parsers.

use std::collections::BTreeMap;

use clap::{CommandFactory as _, Parser};
use istio_cni::daemon::{self, Settings};

use serde_json::json;

use crate::agent::Agent;
use crate::chart::PLATFORMS;
use crate::helm::AGENT;
use crate::objects::parse;

/// Without these the program does not start, or warns.
const POD: [&str; 3] = ["--node-name=n1", "--pod-namespace=kube-system", "--plugin-service-account=istio-cni-plugin"];

/// The command line of `install-cni`.
#[derive(Parser)]
#[command(args_override_self = true)]
struct InstallCni {
    #[command(flatten)]
    flags: daemon::Flags,
}

pub(crate) fn of_the_manifests() {
    let objects = parse(&AGENT.manifest());
    understood(&Agent::of(&objects));
}

pub(crate) fn of_the_chart() {
    let full: &[&str] = &[
        "taint.enabled=true",
        "global.logAsJson=true",
        r#"global.logging.level="default:info,cni-plugin:debug""#,
        r#"cniConfFileName="10-calico.conflist""#,
        "istioOwnedCNIConfig=true",
        r#"istioOwnedCNIConfigFileName="01-istio.conflist""#,
        r#"repair.mode="repair-or-evict""#,
    ];
    let settings = understood(&Agent::of(&AGENT.render(full)));
    assert_eq!(settings.startup_taint.as_deref(), Some("cni.istio.io/not-ready"));
    understood(&Agent::of(&AGENT.render(&["repair.enabled=false"])));
    for platform in PLATFORMS {
        understood(&Agent::of(&AGENT.render(&[&format!("global.platform={:?}", platform.name)])));
    }
}

/// Each mode by the value that the chart has for it, and by Istio's switches, which the program knows as variables.
pub(crate) fn modes_are_the_programs() {
    for mode in ["evict", "delete", "label", "repair", "repair-or-evict", "observe"] {
        assert_eq!(mode_of(&[&format!("repair.mode={mode:?}")]), mode);
    }
    let switches = ["repairPods", "deletePods", "labelPods"];
    let flags = ["--repair-repair-pods", "--repair-delete-pods", "--repair-label-pods"];
    // Each of the three not given, off or on.
    for combination in 0..27 {
        let given = |digit: usize| {
            [None, Some(false), Some(true)][combination / 3_usize.pow(u32::try_from(digit).unwrap()) % 3]
        };
        let of = |names: [&str; 3], prefix: &str| -> Vec<String> {
            let both = names.iter().enumerate();
            both.filter_map(|(digit, name)| Some(format!("{prefix}{name}={}", given(digit)?))).collect()
        };
        let values = of(switches, "repair.");
        // Istio's program repairs in place only where it is asked to; its chart asks for it, unless it is told not to.
        let on = !values.is_empty() && given(0).is_none();
        let asked = if on { vec![format!("{}=true", flags[0])] } else { vec![] };
        let expected = settings(&[POD.map(str::to_owned).to_vec(), of(flags, ""), asked].concat()).repair.mode.as_str();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        assert_eq!(mode_of(&values), expected, "{values:?}");
    }
}

fn mode_of(values: &[&str]) -> &'static str {
    let objects = AGENT.render(values);
    settings(&as_flags(&Agent::of(&objects).environment())).repair.mode.as_str()
}

/// What the program makes of these flags, which must all have an effect.
fn settings(flags: &[String]) -> Settings {
    let given = ["install-cni", "--kubernetes-service-host=10.0.0.1", "--kubernetes-service-port=443"];
    let line = given.into_iter().chain(flags.iter().map(String::as_str));
    let program = InstallCni::try_parse_from(line).unwrap_or_else(|e| panic!("{flags:?}: {e}"));
    let (settings, warnings) = Settings::parse(program.flags).unwrap_or_else(|e| panic!("{flags:?}: {e}"));
    assert_eq!(warnings, Vec::<String>::new(), "{flags:?}");
    settings
}

/// Arguments and variables are understood, and the ports are those that the program listens on.
fn understood(agent: &Agent<'_>) -> Settings {
    let line = agent.line();
    assert_eq!(line[0], "install-cni");
    let settings = settings(&[&line[1..], &as_flags(&agent.environment())].concat());
    let ports: Vec<_> =
        agent.container["ports"].as_array().unwrap().iter().map(|port| &port["containerPort"]).collect();
    assert_eq!(ports, [&json!(settings.monitoring_port), &json!(settings.health_port)]);
    assert_eq!(agent.annotations["prometheus.io/port"], settings.monitoring_port.unwrap().to_string());
    settings
}

/// Variables as the flags that they stand for; the process's own environment, which tests share, stays as it is.
fn as_flags(environment: &BTreeMap<String, String>) -> Vec<String> {
    let command = InstallCni::command();
    let flag = |name: &str| {
        let argument = command.get_arguments().find(|a| a.get_env().is_some_and(|variable| variable == name))?;
        argument.get_long()
    };
    let of = |(name, value): (&String, &String)| {
        let flag = flag(name).unwrap_or_else(|| panic!("variable {name} is none that the program reads"));
        format!("--{flag}={value}")
    };
    environment.iter().map(of).collect()
}
