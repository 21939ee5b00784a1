//! Compares the rules for ambient pods with Istio's expected input of `iptables-restore` and of nft, for the settings
//! of each case.

#![expect(clippy::disallowed_methods, reason = "reads the corpus")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use libtest_mimic::Failed;
use redirect::ambient::AmbientRedirect;
use redirect::rules::ambient::build;
use ruleset::{Family, RuleSet, nft, restore};
use serde::Deserialize;

use crate::same;

/// The settings of a case.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    dns_capture: bool,
    #[serde(default)]
    pod_annotations: BTreeMap<String, String>,
    ipv6: bool,
    probe: Ipv4Addr,
    probe6: Ipv6Addr,
}

/// Whether a case tests the rules in the node's netns, which this project does not build.
pub(crate) fn is_of_host(settings: &Path) -> bool {
    let value = std::fs::read(settings).ok().and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok());
    value.is_some_and(|value| value["hostRules"] == true)
}

pub(crate) fn iptables(settings: &Path, expected: &str) -> Result<(), Failed> {
    let rules = rules(settings)?;
    let [v4, v6] = [Family::V4, Family::V6].map(|family| restore::render(&rules, family));
    // Istio's output begins with its commands that save the rules of both families, and does not end with a newline.
    same(expected, format!("iptables-save\nip6tables-save\n{v4}{v6}").trim_end())
}

pub(crate) fn nftables(settings: &Path, expected: &str) -> Result<(), Failed> {
    same(expected, &nft::render(&rules(settings)?))
}

fn rules(settings: &Path) -> Result<RuleSet, Failed> {
    let json = std::fs::read(settings).map_err(|error| format!("{}: {error}", settings.display()))?;
    let case: Case = serde_json::from_slice(&json).map_err(|error| format!("{}: {error}", settings.display()))?;
    let node = AmbientRedirect {
        ipv6: case.ipv6,
        dns: case.dns_capture,
        probe_v4: case.probe,
        probe_v6: case.probe6,
        ..AmbientRedirect::default()
    };
    let (redirect, warnings) = node.of_pod(&case.pod_annotations)?;
    assert!(warnings.is_empty(), "{warnings:?}");
    Ok(build(&redirect, case.ipv6))
}
