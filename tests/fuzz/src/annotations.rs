//! Derives the redirection of any pod. Checks that error messages are short. Checks that each line of the rules for `iptables-restore`
//! begins with one of the words that this project writes, so that a pod's values cannot add lines.
//!
//! The input is the values of `KEYS`, then the proxy's user and group IDs, separated by zero bytes. The value `~` means
//! that the key is absent.

use contract::{annotation, proxy_env};
use netfilter::{Backend, Live};
use podfacts::{PodFacts, ProxyContainer};
use redirect::annotations::{Interception, from_pod};
use redirect::{istio, rules};
use ruleset::{Family, restore};

const KEYS: [&str; 16] = [
    annotation::INTERCEPTION_MODE,
    annotation::INCLUDE_OUTBOUND_CIDRS,
    annotation::EXCLUDE_OUTBOUND_CIDRS,
    annotation::INCLUDE_INBOUND_PORTS,
    annotation::EXCLUDE_INBOUND_PORTS,
    annotation::INCLUDE_OUTBOUND_PORTS,
    annotation::EXCLUDE_OUTBOUND_PORTS,
    annotation::EXCLUDE_INTERFACES,
    annotation::REROUTE_VIRTUAL_INTERFACES,
    annotation::KUBEVIRT_INTERFACES,
    proxy_env::DNS_CAPTURE,
    proxy_env::DUAL_STACK,
    proxy_env::INVALID_DROP,
    proxy_env::OWNER_GROUPS,
    proxy_env::OWNER_GROUPS_EXCLUDE,
    proxy_env::LOOPBACK_CIDR,
];
const OF_THE_POD: usize = 10;

fn pod(input: &[u8]) -> PodFacts {
    let text = String::from_utf8_lossy(input);
    let mut values = text.split('\0').map(|value| (value != "~").then(|| value.to_owned()));
    let mut given: Vec<_> = KEYS.iter().map(|key| (key, values.next().flatten())).collect();
    let env = given.split_off(OF_THE_POD);
    let named = |pairs: Vec<(&&str, Option<String>)>| {
        pairs.into_iter().filter_map(|(key, value)| Some(((*key).to_owned(), value?))).collect()
    };
    let mut id = || values.next().flatten()?.parse().ok();
    let proxy = ProxyContainer { env: named(env), proxy_type: None, run_as_user: id(), run_as_group: id() };
    PodFacts { annotations: named(given), proxy: Some(proxy), ..PodFacts::default() }
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let redirect = match from_pod(pod(input).settings()) {
        Err(error) => return assert!(error.to_string().len() < 2000, "{error}"),
        Ok(Interception::None) => return,
        Ok(Interception::Redirect { redirect, .. }) => redirect,
    };
    let rules = rules::build(&redirect, true);
    for family in [Family::V4, Family::V6] {
        for line in restore::render(&rules, family).lines() {
            assert!(
                line == "COMMIT" || ["* ", "-N ", "-A ", "-I "].iter().any(|start| line.starts_with(start)),
                "{line:?}"
            );
        }
    }
    for backend in [Backend::IptablesNft, Backend::NativeNft] {
        drop(netfilter::diff(&rules, &Live::fresh(backend, &istio::OWNED)).map(|plan| plan.messages()));
    }
}
