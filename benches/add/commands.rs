//! The commands that Istio's plugin runs in a pod, and the restore programs alone.
//!
//! Detection tries each backend for each family, on an IPv4 pod too: save, its version, add and delete a rule that
//! matches nothing. The rules of both families are saved before the restore, those of the pod's families after it.

use crate::case::{Case, Recording};
use crate::run::Step;

fn step(program: String, args: &[&str]) -> Step {
    Step { program: program.into(), args: args.iter().map(Into::into).collect(), ..Step::default() }
}

fn restore(family: &str, rules: &[u8]) -> Step {
    Step { stdin: rules.to_vec(), ..step(format!("{family}-nft-restore"), &["--noflush"]) }
}

/// Returns the commands for the rules alone: one `iptables-nft-restore` for each family.
pub(crate) fn restores(case: Case, recording: &Recording) -> Vec<Step> {
    case.families().iter().zip(&recording.restore).map(|(family, rules)| restore(family, rules)).collect()
}

/// Returns all commands: 22 for a dual-stack pod, 20 for an IPv4 pod.
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
