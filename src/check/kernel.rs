//! Checks the kernel: programs the rules of typical pods in new network namespaces, and turns the results into
//! findings.
//!
//! Each trial creates its own netns, which is deleted when the trial ends. The netns of the caller is only read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use contract::IptablesBinary;
use contract::diagnostics::chain;
use netfilter::{Backend, KernelFacts};
use podnet::converge::{OnDifference, Options, View};
use podnet::netns::{self, Netns};
use redirect::{CidrSelector, DnsCapture, InterceptionMode, PortSelector, Redirect, istio};

use report::{Finding, page};

/// A kernel feature that the rules of some pods need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Owner matches, NAT and `REDIRECT` of IPv4.
    Redirect,
    Ipv6,
    /// `TPROXY`, marks and their routes.
    Tproxy,
    /// DNS capture with conntrack zones.
    Dns,
    /// Matches of the conntrack state INVALID.
    Invalid,
    /// The tables of iptables-legacy.
    Legacy,
}

/// The result of programming the rules of one kind of pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub feature: Feature,
    /// The backend that holds the rules.
    pub result: Result<Backend, Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// This process lacks the permission to create network namespaces or to program them, so that the kernel's support
    /// is unknown.
    NotPermitted(String),
    /// The kernel refuses the rules.
    Refused(String),
}

/// The kernel's features, as far as this process can find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The output of `uname -r`.
    pub release: String,
    pub facts: Result<KernelFacts, Failure>,
    pub trials: Vec<Trial>,
}

impl Feature {
    const ALL: [Self; 6] = [Self::Redirect, Self::Ipv6, Self::Tproxy, Self::Dns, Self::Invalid, Self::Legacy];

    fn subject(self) -> &'static str {
        match self {
            Self::Redirect => "REDIRECT",
            Self::Ipv6 => "IPv6",
            Self::Tproxy => "TPROXY",
            Self::Dns => "DNS capture",
            Self::Invalid => "conntrack state",
            Self::Legacy => "iptables-legacy",
        }
    }

    /// Returns which pods need the feature.
    fn pods(self) -> &'static str {
        match self {
            Self::Redirect => "all pods",
            Self::Ipv6 => "pods with IPv6 addresses",
            Self::Tproxy => "pods with the annotation sidecar.istio.io/interceptionMode: TPROXY",
            Self::Dns => "pods whose proxy captures DNS (ISTIO_META_DNS_CAPTURE)",
            Self::Invalid => "pods whose proxy drops invalid packets (INVALID_DROP)",
            Self::Legacy => "pods in whose network namespace another plugin uses iptables-legacy",
        }
    }

    /// Returns the kernel modules that provide the feature.
    fn modules(self) -> &'static str {
        match self {
            Self::Redirect => "nf_tables, nft_compat, nf_nat, xt_owner, xt_REDIRECT and xt_tcpudp",
            Self::Ipv6 => "ipv6, nf_nat and ip6_tables or nf_tables with its IPv6 family",
            Self::Tproxy => "xt_TPROXY, nf_tproxy_ipv4, xt_mark, xt_connmark and xt_socket",
            Self::Dns => "xt_CT and nf_conntrack",
            Self::Invalid => "xt_conntrack",
            Self::Legacy => "iptable_nat, iptable_mangle and iptable_raw",
        }
    }

    /// Returns the redirection settings of a pod that needs the feature.
    fn redirect(self) -> Redirect {
        let all =
            Redirect { inbound_ports: PortSelector::All, outbound_cidrs: CidrSelector::All, ..Redirect::default() };
        match self {
            Self::Redirect | Self::Ipv6 | Self::Legacy => all,
            Self::Tproxy => Redirect { mode: InterceptionMode::Tproxy, ..all },
            Self::Dns => Redirect { dns: DnsCapture::All, ..all },
            Self::Invalid => Redirect { drop_invalid: true, ..all },
        }
    }

    /// Returns the address of a pod that needs the feature, from TEST-NET-1 or 2001:db8::/32.
    fn address(self) -> IpAddr {
        match self {
            Self::Ipv6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7).into(),
            _ => Ipv4Addr::new(192, 0, 2, 7).into(),
        }
    }
}

/// Tries each feature; iptables-legacy only if its programs are installed.
pub fn probe(release: String, native_nftables: bool) -> Kernel {
    let facts = netfilter::probe().map_err(|error| Failure::of(&error, error.is_denied()));
    let has_programs = facts.as_ref().is_ok_and(|facts| facts.legacy_programs);
    let tried = Feature::ALL.into_iter().filter(|feature| *feature != Feature::Legacy || has_programs);
    let trials = tried.map(|feature| Trial { feature, result: attempt(feature, native_nftables) }).collect();
    Kernel { release, facts, trials }
}

fn attempt(feature: Feature, native_nftables: bool) -> Result<Backend, Failure> {
    let is_legacy = feature == Feature::Legacy;
    let options = Options {
        native_nftables: native_nftables && !is_legacy,
        forced: is_legacy.then_some(IptablesBinary::Legacy),
        on_difference: OnDifference::Reconcile,
        owned: &istio::OWNED,
    };
    let program = || View::with_addresses(vec![feature.address()], options).apply(&feature.redirect().desired());
    match Netns::in_new(program) {
        Ok(Ok(outcome)) => Ok(outcome.backend),
        Ok(Err(error)) => Err(Failure::of(&error, error.is_denied())),
        Err(error) => Err(Failure::of(&error, matches!(error, netns::Error::Create(_)))),
    }
}

impl Failure {
    fn of(error: &(dyn std::error::Error + 'static), is_denied: bool) -> Self {
        if is_denied { Self::NotPermitted(chain(error)) } else { Self::Refused(chain(error)) }
    }
}

/// Returns the finding for a check that this process lacks the permission to make.
fn not_tried(subject: &'static str, reason: &str) -> Finding {
    let remedy = "run `install-cni check` as root on the node, or in a container with CAP_SYS_ADMIN and CAP_NET_ADMIN";
    Finding::warning(subject, format!("not tried: {reason}"), remedy, page::KERNEL)
}

/// Returns the findings about the kernel.
pub fn decide(kernel: &Kernel) -> Vec<Finding> {
    let mut findings = vec![version(kernel)];
    let unknown = kernel.trials.iter().find_map(|trial| match &trial.result {
        Err(Failure::NotPermitted(reason)) => Some(reason),
        _ => None,
    });
    match unknown {
        Some(reason) => findings.push(not_tried("rules", reason)),
        None => findings.extend(kernel.trials.iter().map(trial)),
    }
    findings
}

fn version(kernel: &Kernel) -> Finding {
    const SUBJECT: &str = "kernel";
    let Kernel { release, facts, .. } = kernel;
    match facts {
        Err(Failure::NotPermitted(reason)) => not_tried(SUBJECT, reason),
        Err(Failure::Refused(reason)) => Finding::failed(
            SUBJECT,
            format!("{release}: its features cannot be read: {reason}"),
            "load the module nfnetlink",
            page::KERNEL,
        ),
        Ok(KernelFacts { nf_tables: true, compat: true, .. }) => {
            Finding::right(SUBJECT, format!("{release}, nf_tables with the extensions of iptables"))
        }
        Ok(KernelFacts { nf_tables: true, .. }) => Finding::warning(
            SUBJECT,
            format!("{release}, nf_tables without the extensions of iptables: native tables of nftables are used"),
            "load the modules nft_compat, xt_owner and xt_REDIRECT, or set global.nativeNftables",
            page::KERNEL,
        ),
        Ok(KernelFacts { legacy_programs, plain_programs, .. }) if *legacy_programs || *plain_programs => {
            Finding::warning(
                SUBJECT,
                format!("{release}, no nf_tables: the programs of iptables-legacy are used"),
                "load the module nf_tables",
                page::KERNEL,
            )
        }
        Ok(_) => Finding::failed(
            SUBJECT,
            format!("{release}, neither nf_tables nor programs of iptables-legacy"),
            "load the modules nf_tables and nft_compat, or install iptables-legacy on the node",
            page::KERNEL,
        ),
    }
}

fn trial(trial: &Trial) -> Finding {
    let feature = trial.feature;
    let (subject, pods) = (feature.subject(), feature.pods());
    match &trial.result {
        Ok(backend) => Finding::right(subject, format!("rules are accepted, by {}", backend.as_str())),
        Err(Failure::NotPermitted(reason) | Failure::Refused(reason)) => {
            let remedy = format!("load the modules {}", feature.modules());
            let text = format!("{pods} do not start: {reason}");
            match feature {
                Feature::Redirect => Finding::failed(subject, text, remedy, page::KERNEL),
                _ => Finding::warning(subject, text, remedy, page::KERNEL),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::Outcome;

    const FACTS: KernelFacts = KernelFacts {
        legacy_in_use: false,
        legacy_programs: false,
        plain_programs: false,
        nf_tables: true,
        compat: true,
    };

    fn kernel(facts: KernelFacts, trials: Vec<Trial>) -> Kernel {
        Kernel { release: "6.1.0".into(), facts: Ok(facts), trials }
    }

    fn marks(kernel: &Kernel) -> Vec<(&'static str, &'static str)> {
        decide(kernel).iter().map(|finding| (finding.subject, finding.outcome.as_str())).collect()
    }

    #[test]
    fn a_kernel_without_a_backend_fails() {
        let without = KernelFacts { nf_tables: false, compat: false, ..FACTS };
        for (facts, expected) in [
            (FACTS, "ok"),
            (KernelFacts { compat: false, ..FACTS }, "warning"),
            (KernelFacts { legacy_programs: true, ..without }, "warning"),
            (KernelFacts { plain_programs: true, ..without }, "warning"),
            (without, "failed"),
        ] {
            assert_eq!(marks(&kernel(facts, Vec::new())), [("kernel", expected)], "{facts:?}");
        }
        let unread = |failure| Kernel { facts: Err(failure), ..kernel(FACTS, Vec::new()) };
        assert_eq!(marks(&unread(Failure::Refused("no netlink".into()))), [("kernel", "failed")]);
        let denied = unread(Failure::NotPermitted("EPERM".into()));
        assert_eq!(
            (marks(&denied), decide(&denied)[0].text.as_str()),
            (vec![("kernel", "warning")], "not tried: EPERM")
        );
    }

    #[test]
    fn only_rules_of_all_pods_are_indispensable() {
        let refused = || Err(Failure::Refused("ENOENT".into()));
        let trials = Feature::ALL.map(|feature| Trial { feature, result: refused() }).to_vec();
        let expected = [
            ("kernel", "ok"),
            ("REDIRECT", "failed"),
            ("IPv6", "warning"),
            ("TPROXY", "warning"),
            ("DNS capture", "warning"),
            ("conntrack state", "warning"),
            ("iptables-legacy", "warning"),
        ];
        assert_eq!(marks(&kernel(FACTS, trials)), expected);
        let right = Trial { feature: Feature::Redirect, result: Ok(Backend::IptablesNft) };
        let found = decide(&kernel(FACTS, vec![right]));
        assert_eq!(found[1], Finding::right("REDIRECT", "rules are accepted, by iptables-nft"));
    }

    #[test]
    fn trials_without_permission_are_one_warning() {
        let trials = Feature::ALL.map(|feature| Trial { feature, result: Err(Failure::NotPermitted("EPERM".into())) });
        let found = decide(&kernel(FACTS, trials.to_vec()));
        assert_eq!(found.len(), 2);
        assert!(
            matches!(&found[1].outcome, Outcome::Warning(advice) if advice.remedy.contains("as root")),
            "{found:?}"
        );
    }
}
