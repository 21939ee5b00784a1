//! Checks every argument and variable of the agent's manifests with the program's own parser.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{CommandFactory as _, Parser};
use istio_cni::daemon::{self, AgentSettings};

use serde_json::json;

use crate::agent::Agent;
use crate::chart::PLATFORMS;
use crate::helm::AGENT;
use crate::objects::parse;

/// Flags for the node and the pod, without which the program fails or warns.
const POD: [&str; 3] = ["--node-name=n1", "--pod-namespace=kube-system", "--plugin-service-account=istio-cni-plugin"];

/// The command line of `install-cni`.
#[derive(Parser)]
#[command(args_override_self = true)]
struct InstallCni {
    #[command(flatten)]
    flags: daemon::AgentFlags,
}

pub(crate) fn of_the_manifests() {
    let objects = parse(&AGENT.manifest());
    understood(&Agent::of(&objects));
}

pub(crate) fn of_the_chart() {
    let full: &[&str] = &[
        "taint.enabled=true",
        "statusPage.enabled=true",
        "global.logAsJson=true",
        r#"global.logging.level="default:info,cni-plugin:debug""#,
        r#"cniConfFileName="10-calico.conflist""#,
        "istioOwnedCNIConfig=true",
        r#"istioOwnedCNIConfigFileName="01-istio.conflist""#,
        r#"repair.mode="repair-or-evict""#,
    ];
    let settings = understood(&Agent::of(&AGENT.render(full)));
    assert_eq!(settings.startup_taint.as_deref(), Some("cni.istio.io/not-ready"));
    assert!(settings.status_page);
    understood(&Agent::of(&AGENT.render(&["repair.enabled=false"])));
    let auto = [r#"cniConfDir="auto""#, r#"cniBinDir="auto""#];
    let given = understood(&Agent::of(&AGENT.render(&auto))).install.given.clone();
    assert!(given.conf.is_auto && given.bin.is_auto && given.root() == Path::new("/host/root"), "{given:?}");
    let given = understood(&Agent::of(&AGENT.render(&[r#"runtimeConfigDirs=["/etc/crio"]"#]))).install.given.clone();
    assert!(!given.is_auto() && given.conf.on_node == Some("/etc/cni/net.d".into()), "{given:?}");
    for (value, refuses) in [("refuseSandboxes=true", true), ("refuseSandboxes=false", false)] {
        assert_eq!(understood(&Agent::of(&AGENT.render(&[value]))).install.entry.refuse_sandboxes, refuses, "{value}");
    }
    for platform in PLATFORMS {
        understood(&Agent::of(&AGENT.render(&[&format!("global.platform={:?}", platform.name)])));
    }
}

/// The chart's variables result in the expected repair mode: the value of `repair.mode`, and for each combination of
/// Istio's switches the mode that the program derives from the equivalent flags.
pub(crate) fn modes_are_the_programs() {
    for mode in ["evict", "delete", "label", "repair", "repair-or-evict", "observe"] {
        assert_eq!(mode_of(&[&format!("repair.mode={mode:?}")]), mode);
    }
    let switches = ["repairPods", "deletePods", "labelPods"];
    let flags = ["--repair-repair-pods", "--repair-delete-pods", "--repair-label-pods"];
    // Each of the three switches is unset, false or true.
    for combination in 0..27 {
        let given = |digit: usize| {
            [None, Some(false), Some(true)][combination / 3_usize.pow(u32::try_from(digit).unwrap()) % 3]
        };
        let of = |names: [&str; 3], prefix: &str| -> Vec<String> {
            let both = names.iter().enumerate();
            both.filter_map(|(digit, name)| Some(format!("{prefix}{name}={}", given(digit)?))).collect()
        };
        let values = of(switches, "repair.");
        // In-place repair is off by default in Istio's program, and on by default in Istio's chart.
        let on = !values.is_empty() && given(0).is_none();
        let default = if on { vec![format!("{}=true", flags[0])] } else { vec![] };
        let expected =
            settings(&[POD.map(str::to_owned).to_vec(), of(flags, ""), default].concat()).repair.mode.as_str();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        assert_eq!(mode_of(&values), expected, "{values:?}");
    }
}

fn mode_of(values: &[&str]) -> &'static str {
    let objects = AGENT.render(values);
    settings(&as_flags(&Agent::of(&objects).environment())).repair.mode.as_str()
}

/// Parses flags as the program does; fails on warnings about flags without effect.
fn settings(flags: &[String]) -> AgentSettings {
    let given = ["install-cni", "--kubernetes-service-host=10.0.0.1", "--kubernetes-service-port=443"];
    let line = given.into_iter().chain(flags.iter().map(String::as_str));
    let program = InstallCni::try_parse_from(line).unwrap_or_else(|e| panic!("{flags:?}: {e}"));
    let (settings, warnings) = AgentSettings::parse(program.flags).unwrap_or_else(|e| panic!("{flags:?}: {e}"));
    assert_eq!(warnings, Vec::<String>::new(), "{flags:?}");
    settings
}

/// Parses the agent's arguments and variables and checks its ports against the settings.
fn understood(agent: &Agent<'_>) -> AgentSettings {
    let line = agent.line();
    assert_eq!(line[0], "install-cni");
    let settings = settings(&[&line[1..], &as_flags(&agent.environment())].concat());
    let ports: Vec<_> =
        agent.container["ports"].as_array().unwrap().iter().map(|port| &port["containerPort"]).collect();
    assert_eq!(ports, [&json!(settings.monitoring_port), &json!(settings.health_port)]);
    assert_eq!(agent.annotations["prometheus.io/port"], settings.monitoring_port.unwrap().to_string());
    settings
}

/// Converts variables to the equivalent flags, since the process's environment is shared by all tests.
fn as_flags(environment: &BTreeMap<String, String>) -> Vec<String> {
    let command = InstallCni::command();
    let flag = |name: &str| {
        let argument = command.get_arguments().find(|a| a.get_env().is_some_and(|variable| variable == name))?;
        argument.get_long()
    };
    let of = |(name, value): (&String, &String)| {
        let flag = flag(name).unwrap_or_else(|| panic!("the program does not read the variable {name}"));
        format!("--{flag}={value}")
    };
    environment.iter().map(of).collect()
}
