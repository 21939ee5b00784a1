//! Compares the rules for IPv4 pods with the expected outputs of the dry runs in the tests of Istio's plugin. As there, the
//! order of the tables does not matter.

use std::collections::BTreeMap;

use contract::{annotation, proxy_env};
use libtest_mimic::Failed;
use podfacts::{PodFacts, ProxyContainer};
use redirect::annotations::{self, Interception};
use redirect::rules;
use ruleset::{Family, restore};

use crate::same;

/// A golden file that none of Istio's test cases uses.
pub(crate) const ORPHAN: &str = "status-ports";

pub(crate) fn check(name: &str, expected: &str) -> Result<(), Failed> {
    let facts = configurations(name);
    if facts.is_empty() {
        return Err(Failed::from(format!("no configuration is known for the case {name:?}")));
    }
    for facts in facts {
        let Interception::Redirect { redirect, .. } = annotations::from_pod(facts.settings())? else {
            return Err(Failed::from("no redirection was requested"));
        };
        let text = restore::render(&rules::build(&redirect, false), Family::V4);
        same(&by_table(expected), &by_table(&text))?;
    }
    Ok(())
}

/// Returns the pods whose rules are expected to be those in the golden file of this name.
fn configurations(name: &str) -> Vec<PodFacts> {
    let annotated = |pairs: &[(&str, &str)]| pod(pairs, ProxyContainer::default());
    let with_env = |key| {
        let env = BTreeMap::from([(String::from(key), "true".to_owned())]);
        pod(&[], ProxyContainer { env, ..ProxyContainer::default() })
    };
    let run_as = |pairs: &[(&str, &str)], user, group| {
        pod(pairs, ProxyContainer { run_as_user: Some(user), run_as_group: group, ..ProxyContainer::default() })
    };
    let tproxy = [(annotation::INTERCEPTION_MODE, "TPROXY")];
    let (uid, gid) = (1_000_670_000, Some(1_000_670_001));
    match name {
        // A proxy that runs as user 0 gets the rules for the default user.
        "basic" => vec![annotated(&[]), run_as(&[], 0, None)],
        "include-exclude-ip" => vec![annotated(&[
            (annotation::INCLUDE_OUTBOUND_CIDRS, "127.0.0.0/8"),
            (annotation::EXCLUDE_OUTBOUND_CIDRS, "10.0.0.0/8"),
        ])],
        "include-exclude-ports" => vec![annotated(&[
            (annotation::INCLUDE_INBOUND_PORTS, "1111,2222"),
            (annotation::EXCLUDE_INBOUND_PORTS, "3333,4444"),
            (annotation::EXCLUDE_OUTBOUND_PORTS, "5555,6666"),
        ])],
        "tproxy" => vec![annotated(&tproxy)],
        "dns" => vec![with_env(proxy_env::DNS_CAPTURE)],
        "invalid-drop" => vec![with_env(proxy_env::INVALID_DROP)],
        "custom-uid" => vec![run_as(&[], uid, gid)],
        "custom-uid-tproxy" => vec![run_as(&tproxy, uid, gid)],
        _ => Vec::new(),
    }
}

fn pod(annotations: &[(&str, &str)], proxy: ProxyContainer) -> PodFacts {
    let status = (annotation::STATUS, "{}");
    let annotations = annotations.iter().chain([&status]).map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    PodFacts { annotations: annotations.collect(), proxy: Some(proxy), ..PodFacts::default() }
}

/// Sorts the tables in an input of `iptables-restore`.
fn by_table(text: &str) -> String {
    let mut tables: Vec<&str> = text.split_inclusive("COMMIT\n").collect();
    tables.sort_unstable();
    tables.concat()
}
