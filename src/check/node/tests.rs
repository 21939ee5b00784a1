//! Tests of the findings about nodes in different states.

use std::path::Path;

use netfilter::{Backend, KernelFacts};

use super::super::kernel::{Feature, Trial};
use super::*;
use crate::install::Unread;
use crate::install::settings::Asked;
use report::Outcome;

/// Returns a node on which the plugin is installed, without anything to report.
fn node() -> NodeFacts {
    let facts = KernelFacts { nf_tables: true, compat: true, ..KernelFacts::default() };
    let trials = vec![Trial { feature: Feature::Redirect, result: Ok(Backend::IptablesNft) }];
    NodeFacts {
        given: Given::default(),
        kernel: Kernel { release: "6.1.0".into(), facts: Ok(facts), trials },
        runtimes: vec!["containerd"],
        network: Ok(chain(&["calico", "portmap"])),
        bin_dir: "/opt/cni/bin".into(),
        directories: directories(vec![Ok(compared(true, true))]),
        missing: Vec::new(),
        other_dirs: Vec::new(),
        selinux: Selinux::Lenient,
        cgroups: Some(Cgroups::V2),
    }
}

fn directories(runtimes: Vec<Result<Compared, runtime_config::Error>>) -> Directories {
    Directories { conf: "/etc/cni/net.d".into(), bin: "/opt/cni/bin".into(), unknown: None, runtimes }
}

/// Returns containerd's directories, which are the given ones if the flags are set.
fn compared(is_conf: bool, is_bin: bool) -> Compared {
    let file = Some("/etc/containerd/config.toml".into());
    let read = runtime_config::Directories {
        runtime: "containerd".to_owned(),
        conf: runtime_config::Named { value: "/x/net.d".into(), file },
        bin: runtime_config::Named { value: vec!["/x/bin".into(), "/y".into()], file: None },
        networks: runtime_config::Networks::default(),
        handlers: runtime_config::Handlers::default(),
    };
    Compared { read, is_conf, is_bin, elsewhere: Vec::new() }
}

fn chain(others: &[&str]) -> PodNetwork {
    let others = others.iter().map(|kind| (*kind).to_owned()).collect();
    PodNetwork { path: "/etc/cni/net.d/10-calico.conflist".into(), others, names_the_plugin: true }
}

/// Returns the warnings and failures: subject, result and text.
fn wrong(facts: &NodeFacts) -> Vec<(&'static str, &'static str, String)> {
    let findings = decide(facts).0.into_iter().filter(|finding| finding.outcome != Outcome::Right);
    findings.map(|finding| (finding.subject, finding.outcome.as_str(), finding.text)).collect()
}

fn only(facts: &NodeFacts) -> (&'static str, &'static str, String) {
    let found = wrong(facts);
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

#[test]
fn an_installed_node_has_nothing_to_report() {
    let report = decide(&node());
    assert_eq!(wrong(&node()), []);
    assert_eq!(report.failed(), 0);
    let subjects: Vec<_> = report.0.iter().map(|finding| finding.subject).collect();
    assert_eq!(subjects, ["kernel", "REDIRECT", "runtime", "directories", "network", "chain", "SELinux", "cgroups"]);
}

#[test]
fn a_node_before_the_installation_is_warned_of_and_does_not_fail() {
    let facts = NodeFacts { network: Ok(PodNetwork { names_the_plugin: false, ..chain(&["calico"]) }), ..node() };
    let (subject, result, text) = only(&facts);
    assert_eq!((subject, result), ("chain", "warning"));
    assert!(text.contains("no configuration names istio-cni"), "{text}");
}

#[test]
fn a_chain_that_names_a_missing_plugin_fails() {
    let facts = NodeFacts { missing: vec!["portmap".into(), "istio-cni".into()], ..node() };
    assert_eq!(only(&facts).1, "failed");
    let facts = NodeFacts { missing: vec!["portmap".into()], ..node() };
    let (subject, result, text) = only(&facts);
    assert_eq!((subject, result), ("plugins", "warning"));
    assert_eq!(text, "not in /opt/cni/bin: portmap");
}

#[test]
fn a_node_without_a_network_fails_with_the_directory_of_another_distribution() {
    let none = Obstacle::NoNetwork { dir: Path::new("/etc/cni/net.d").into(), ignored: Vec::new() };
    let k3s = OtherDirectory { distribution: "k3s", platform: Some("k3s"), path: "/var/lib/rancher".into() };
    let facts = NodeFacts { network: Err(none), other_dirs: vec![k3s], ..node() };
    let found = wrong(&facts);
    assert_eq!([found[0].1, found[1].1], ["failed", "warning"]);
    let report = decide(&facts).json().to_string();
    assert!(report.contains("set global.platform to k3s"), "{report}");
}

#[test]
fn both_directories_are_named_and_only_what_differs_is_a_remedy() {
    for (is_conf, is_bin, remedy) in [
        (false, true, "set cniConfDir to /x/net.d, unless"),
        (true, false, "set cniBinDir to /x/bin, /y, unless"),
        (false, false, "set cniConfDir to /x/net.d and cniBinDir to /x/bin, /y, unless"),
    ] {
        let facts = NodeFacts { directories: directories(vec![Ok(compared(is_conf, is_bin))]), ..node() };
        let (subject, result, text) = only(&facts);
        assert_eq!((subject, result), ("directories", "warning"));
        let expected = "containerd reads /x/net.d (/etc/containerd/config.toml) and runs plugins of /x/bin, /y (default); \
                        given: /etc/cni/net.d and /opt/cni/bin";
        assert_eq!(text, expected);
        let report = decide(&facts).json().to_string();
        assert!(report.contains(remedy), "{report}");
    }
}

#[test]
fn directories_that_auto_does_not_find_fail_with_the_reason() {
    let error = runtime_config::Error::Unread { path: "/etc/crio/crio.conf".into(), reason: "denied".into() };
    let unknown = Directories { unknown: Some(Unlocated::Configuration(error)), ..directories(Vec::new()) };
    let (subject, result, text) = only(&NodeFacts { directories: unknown, ..node() });
    assert_eq!((subject, result), ("directories", "failed"));
    assert!(text.contains("/etc/crio/crio.conf") && text.ends_with("set cniConfDir and cniBinDir"), "{text}");
}

#[test]
fn texts_name_the_paths_of_the_node() {
    let asked = Asked { is_auto: true, on_node: None };
    let given = Given { root: Some("/host/root".into()), conf: asked.clone(), bin: asked };
    let network = PodNetwork { path: "/host/root/x/10-calico.conflist".into(), ..chain(&["calico"]) };
    let report = decide(&NodeFacts { given, network: Ok(network), ..node() }).json().to_string();
    assert!(report.contains("\"/x/10-calico.conflist: calico\""), "{report}");
}

#[test]
fn a_runtime_configuration_that_cannot_be_read_is_not_compared() {
    let error = runtime_config::Error::Unread { path: "/etc/crio/crio.conf".into(), reason: "denied".into() };
    let (_, result, text) = only(&NodeFacts { directories: directories(vec![Err(error)]), ..node() });
    assert_eq!(result, "warning");
    assert!(text.ends_with("not compared: cannot read /etc/crio/crio.conf: denied"), "{text}");
    assert_eq!(wrong(&NodeFacts { directories: directories(Vec::new()), ..node() }), []);
}

#[test]
fn a_directory_that_this_process_may_not_read_is_not_tried() {
    let of = |is_denied| Obstacle::Unread(Unread { path: "/net.d".into(), reason: "denied".into(), is_denied });
    let (subject, result, text) = only(&NodeFacts { network: Err(of(true)), ..node() });
    assert_eq!((subject, result, text.as_str()), ("network", "warning", "not tried: cannot read /net.d: denied"));
    assert_eq!(only(&NodeFacts { network: Err(of(false)), ..node() }).1, "failed");
}

#[test]
fn known_conflicts_are_named_with_their_remedy() {
    for (kind, remedy) in [("cilium-cni", "socketLB.hostNamespaceOnly"), ("linkerd-cni", "one mesh only")] {
        let facts = NodeFacts { network: Ok(chain(&["calico", kind])), ..node() };
        let (subject, result, text) = only(&facts);
        assert_eq!((subject, result), ("other plugins", "warning"));
        assert!(text.starts_with(kind), "{text}");
        assert!(decide(&facts).json().to_string().contains(remedy), "{kind}");
    }
}

#[test]
fn multus_is_a_conflict_only_if_no_chain_names_the_plugin() {
    let facts = |names_the_plugin| {
        let network = PodNetwork { names_the_plugin, ..chain(&["multus-shim"]) };
        NodeFacts { network: Ok(network), ..node() }
    };
    assert_eq!(wrong(&facts(true)), []);
    let subjects: Vec<_> = wrong(&facts(false)).into_iter().map(|(subject, ..)| subject).collect();
    assert_eq!(subjects, ["chain", "other plugins"]);
    assert!(decide(&facts(false)).json().to_string().contains("cniConfFileName"));
}

#[test]
fn selinux_depends_on_the_type_of_the_process() {
    for (context, expected) in [
        ("system_u:system_r:spc_t:s0", None),
        ("system_u:system_r:container_t:s0:c1,c2", Some("warning")),
        ("", Some("warning")),
    ] {
        let facts = NodeFacts { selinux: Selinux::Enforcing { context: context.into() }, ..node() };
        assert_eq!(wrong(&facts).first().map(|found| found.1), expected, "{context}");
    }
}

#[test]
fn runtimes_and_cgroups() {
    assert_eq!(only(&NodeFacts { runtimes: Vec::new(), ..node() }).0, "runtime");
    assert_eq!(only(&NodeFacts { runtimes: vec!["containerd", "CRI-O"], ..node() }).0, "runtime");
    for cgroups in [None, Some(Cgroups::V1)] {
        assert_eq!(only(&NodeFacts { cgroups, ..node() }).0, "cgroups", "{cgroups:?}");
    }
}
