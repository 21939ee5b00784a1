//! Prints the rules that the plugin programs for a pod with annotations, in the format of `iptables-restore`.

#![expect(clippy::print_stdout, reason = "prints the rules")]

use std::error::Error;

use podfacts::PodFacts;
use podfacts::{Verdict, of_pod};
use redirect::rules;
use ruleset::{Family, restore};

const POD: &str = r#"{
    "metadata": { "namespace": "shop", "name": "web-0", "annotations": {
        "sidecar.istio.io/status": "{}",
        "traffic.sidecar.istio.io/includeInboundPorts": "80,8080"
    } },
    "spec": { "containers": [{ "name": "web" }, { "name": "istio-proxy", "args": ["proxy", "sidecar"] }] }
}"#;

fn rules_of(pod: &str) -> Result<String, Box<dyn Error>> {
    Ok(match of_pod(&PodFacts::from_pod_json(pod.as_bytes())?)? {
        Verdict::Redirect { redirect, .. } => restore::render(&rules::build(&redirect, false), Family::V4),
        Verdict::Skip(reason) => format!("# no rules: {reason}\n"),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", rules_of(POD)?);
    Ok(())
}

#[test]
fn included_ports_are_redirected() {
    let rules = rules_of(POD).unwrap_or_else(|error| panic!("{error}"));
    assert!(rules.contains("-A ISTIO_INBOUND -p tcp --dport 8080 -j ISTIO_IN_REDIRECT\n"), "{rules}");
    let skipped = rules_of(&POD.replace("sidecar.istio.io/status", "x")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(skipped, "# no rules: no_sidecar_status\n");
}
