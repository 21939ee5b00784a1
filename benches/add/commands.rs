//! The iptables commands that Istio's plugin runs for a pod.
//!
//! Istio's plugin first detects the backend: for each family (also for an IPv4 pod) and each backend it saves the
//! rules, reads the version, and adds and deletes a rule that matches nothing. It then saves the rules of both
//! families, restores the new rules, and saves the rules of the pod's families.

use crate::case::{Case, Recording};
use crate::run::Step;

fn step(program: String, args: &[&str]) -> Step {
    Step { program: program.into(), args: args.iter().map(Into::into).collect(), ..Step::default() }
}

fn restore(family: &str, rules: &[u8]) -> Step {
    Step { stdin: rules.to_vec(), ..step(format!("{family}-nft-restore"), &["--noflush"]) }
}

/// Returns only the commands that program the rules: one `iptables-nft-restore` for each family.
pub(crate) fn restores(case: Case, recording: &Recording) -> Vec<Step> {
    case.families().iter().zip(&recording.restore).map(|(family, rules)| restore(family, rules)).collect()
}

/// Returns all commands of Istio's plugin: 22 for a dual-stack pod, 20 for an IPv4 pod.
pub(crate) fn istio(case: Case, recording: &Recording) -> Vec<Step> {
    let mut steps = Vec::new();
    for family in ["iptables", "ip6tables"] {
        // Only iptables-legacy has a lock.
        for (backend, wait) in [("legacy", &["--wait=30"][..]), ("nft", &[])] {
            let probe = |verb| [wait, &["-t", "nat", verb, "INPUT", "-p", "255", "-j", "RETURN"]].concat();
            steps.push(step(format!("{family}-{backend}-save"), &[]));
            steps.push(step(format!("{family}-{backend}-save"), &["--version"]));
            steps.push(step(format!("{family}-{backend}"), &probe("-A")));
            steps.push(step(format!("{family}-{backend}"), &probe("-D")));
        }
    }
    steps.extend(["iptables", "ip6tables"].map(|family| step(format!("{family}-nft-save"), &[])));
    steps.extend(restores(case, recording));
    steps.extend(case.families().iter().map(|family| step(format!("{family}-nft-save"), &[])));
    steps
}
