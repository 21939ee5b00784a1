//! Tests the truth table: which program must accept a connection, and with which original destination. Both must be the same with each
//! backend.
//!
//! `table` holds the expectations, `topology` creates a pod and a network; this file loads rules and connects.

mod invalid;
pub(crate) mod table;
pub(crate) mod topology;
mod traced;

use libtest_mimic::Trial;
use podnet::converge;
use podnet::netns::routes;
use redirect::{Redirect, rules};
use ruleset::{Family, Owner, nft, restore};

use table::Case;
use test_support::netns::{LEGACY_TABLES, NFT_COMPAT, TestNetns, by, families, lacks, trial};
use topology::Topology;

/// A way to program the rules: by this project's or Istio's tools, with one of the backends.
#[derive(Clone, Copy)]
struct Backend {
    name: &'static str,
    programs: &'static [&'static str],
    load: fn(&TestNetns, &Redirect, bool),
    /// Whether the rules of both families are in one table for any pod, as in Istio's native tables. IPv6 is then
    /// redirected in an IPv4 pod, too.
    one_table_for_both: bool,
}

const BACKENDS: [Backend; 6] = [
    Backend {
        // The program chooses the backend, because no setting forces one.
        name: "own-chosen",
        programs: &[],
        load: |pod, redirect, _| {
            assert_eq!(converge(pod, netfilter::Backend::IptablesNft, redirect), chosen());
        },
        one_table_for_both: false,
    },
    Backend {
        name: "own-nftables",
        programs: &[],
        load: |pod, redirect, _| {
            assert_eq!(converge(pod, netfilter::Backend::NativeNft, redirect), netfilter::Backend::NativeNft);
        },
        one_table_for_both: true,
    },
    Backend {
        name: "own-legacy",
        programs: &["iptables-legacy-restore"],
        load: |pod, redirect, _| {
            assert_eq!(converge(pod, netfilter::Backend::IptablesLegacy, redirect), netfilter::Backend::IptablesLegacy);
        },
        one_table_for_both: false,
    },
    Backend {
        name: "iptables-nft",
        one_table_for_both: false,
        programs: &["iptables-nft-restore"],
        load: |pod, redirect, ipv6| {
            feed_restore(pod, ["iptables-nft-restore", "ip6tables-nft-restore"], redirect, ipv6);
        },
    },
    Backend {
        name: "iptables-legacy",
        one_table_for_both: false,
        programs: &["iptables-legacy-restore"],
        load: |pod, redirect, ipv6| {
            feed_restore(pod, ["iptables-legacy-restore", "ip6tables-legacy-restore"], redirect, ipv6);
        },
    },
    Backend {
        name: "nft",
        one_table_for_both: true,
        programs: &["nft"],
        load: |pod, redirect, ipv6| {
            let text = nft::render(&rules::build(redirect, ipv6));
            pod.feed("nft", &["-f", "-"], &text);
        },
    },
];

/// Programs the rules as the plugin and `istio-iptables` do, which derive the families from the pod's addresses.
/// Returns the backend that holds the rules.
fn converge(pod: &TestNetns, backend: netfilter::Backend, redirect: &Redirect) -> netfilter::Backend {
    pod.inside(|| converge::apply(&redirect.desired(), by(backend))).unwrap().backend
}

/// Returns the backend that must be chosen on this kernel if no setting forces one.
fn chosen() -> netfilter::Backend {
    match (lacks(NFT_COMPAT), lacks(LEGACY_TABLES)) {
        (false, _) => netfilter::Backend::IptablesNft,
        (true, false) => netfilter::Backend::IptablesLegacy,
        (true, true) => netfilter::Backend::NativeFallback,
    }
}

fn feed_restore(pod: &TestNetns, programs: [&str; 2], redirect: &Redirect, ipv6: bool) {
    let rules = rules::build(redirect, ipv6);
    for (program, &family) in programs.into_iter().zip(families()) {
        pod.feed(program, &["--noflush"], &restore::render(&rules, family));
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let invalid = |backend: Backend| {
        let name = format!("truth::invalid_packets_are_dropped_when_asked::{}", backend.name);
        trial(name, backend.programs, move || invalid::are_dropped_when_asked(backend))
    };
    let mut trials: Vec<Trial> = BACKENDS.map(invalid).into();
    for case in table::cases() {
        for backend in BACKENDS {
            if backend.one_table_for_both && !case.ipv6 {
                continue;
            }
            let case = case.clone();
            let name = format!("truth::{}::{}", case.name, backend.name);
            trials.push(trial(name, backend.programs, move || hold(&case, backend)));
        }
    }
    trials
}

/// Checks every row of a case in all its address families, and fails with all wrong rows.
fn hold(case: &Case, backend: Backend) {
    let topology = Topology::new();
    (backend.load)(&topology.pod, &case.redirect, case.ipv6);
    let ipv6 = case.ipv6 && families().contains(&Family::V6);
    topology.pod.inside(|| routes::apply(case.redirect.desired().routes.intended, ipv6)).unwrap();
    let _servers = topology.serve(proxy_id(&case.redirect));
    let mut wrong = Vec::new();
    for &family in families() {
        let rules = traced::rulesets(&topology, family);
        for row in &case.rows {
            let Some(wanted) = row.wanted(family) else { continue };
            let response = topology.connect(row, family);
            let accepted = response.split(' ').nth(1).and_then(|port| port.parse().ok());
            let simulated = traced::port(&rules, row, family);
            if simulated.clone().ok() != accepted {
                wrong
                    .push(format!("{}\n    traced to {simulated:?}\n    but it is {response:?}", row.describe(family)));
            }
            if !response.starts_with(&wanted) {
                wrong.push(format!("{}\n    wanted {wanted:?}\n    but it is {response:?}", row.describe(family)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} under {}:\n{}", case.name, backend.name, wrong.join("\n"));
}

fn proxy_id(redirect: &Redirect) -> u32 {
    match redirect.proxy_uids[..] {
        [Owner::Id(id), ..] => id,
        _ => panic!("a proxy's user by number, not {:?}", redirect.proxy_uids),
    }
}
