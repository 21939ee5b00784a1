//! Tests of the findings about clusters in different states.

use super::super::rights::RIGHTS;
use super::*;
use report::Outcome;

const NOW: i64 = 1_800_000_000;

fn node(name: &str) -> NodeFacts {
    NodeFacts {
        name: name.into(),
        kernel: "6.1.0-40-amd64".into(),
        runtime: "containerd://1.7.24".into(),
        kubelet: "v1.33.1".into(),
        image: "Debian GNU/Linux 12 (bookworm)".into(),
    }
}

fn webhook() -> Webhook {
    Webhook {
        configuration: "istio-sidecar-injector".into(),
        name: "namespace.sidecar-injector.istio.io".into(),
        ends: Ok(NOW + 300 * DAY),
        refuses: true,
        service: Some(Service { name: "istio-system/injector".into(), ready: Ok(2) }),
    }
}

/// Returns the state of an installed cluster, for which there is nothing to report.
fn cluster() -> Facts {
    Facts {
        namespace: "kube-system".into(),
        agents: Ok(Some(Agents { current: true, desired: 3, ready: 3, updated: 3 })),
        pod_security: Ok(None),
        webhooks: Ok(vec![webhook()]),
        rights: RIGHTS.map(|right| (right, Ok(true))).to_vec(),
        nodes: Ok(vec![node("a")]),
        sandboxes: Ok(Vec::new()),
        cilium: Ok(None),
    }
}

/// Returns the warnings and failures as subject, result and message.
fn wrong(facts: &Facts) -> Vec<(&'static str, &'static str, String)> {
    let findings = decide(facts, NOW).0.into_iter().filter(|finding| finding.outcome != Outcome::Right);
    findings.map(|finding| (finding.subject, finding.outcome.as_str(), finding.text)).collect()
}

/// Asserts that exactly one check gives a warning or a failure, with this subject and result and with a message that
/// contains `said`.
#[track_caller]
fn only(facts: &Facts, subject: &str, result: &str, said: &str) {
    let found = wrong(facts);
    assert_eq!(found.iter().map(|found| (found.0, found.1)).collect::<Vec<_>>(), [(subject, result)], "{found:?}");
    assert!(found[0].2.contains(said), "{found:?}");
}

#[test]
fn an_installed_cluster_has_nothing_to_report() {
    assert_eq!(wrong(&cluster()), []);
}

#[test]
fn agents_are_counted() {
    let with = |agents| Facts { agents: Ok(agents), ..cluster() };
    let of = |desired, ready, updated| with(Some(Agents { current: true, desired, ready, updated }));
    only(&with(None), "agents", "warning", "there is no DaemonSet kube-system/istio-cni-node");
    only(&of(0, 0, 0), "agents", "failed", "selects no node");
    only(&of(3, 2, 3), "agents", "failed", "2 of 3 nodes are ready");
    only(&of(3, 3, 1), "agents", "warning", "1 of 3 nodes have the current version");
    let of_earlier_version = with(Some(Agents { current: false, desired: 3, ready: 3, updated: 3 }));
    only(&of_earlier_version, "agents", "warning", "its latest change has not been observed");
}

#[test]
fn pod_security_must_admit_privileged_pods() {
    for level in ["baseline", "restricted"] {
        let facts = Facts { pod_security: Ok(Some(level.into())), ..cluster() };
        only(&facts, "PodSecurity", "failed", &format!("enforces {level}"));
    }
    assert_eq!(wrong(&Facts { pod_security: Ok(Some("privileged".into())), ..cluster() }), []);
}

#[test]
fn a_bundle_must_be_valid_and_not_about_to_end() {
    let with = |ends| Facts { webhooks: Ok(vec![Webhook { ends, ..webhook() }]), ..cluster() };
    only(&with(Err("there is none".into())), "caBundle", "failed", "there is none");
    only(&with(Ok(NOW - 3 * DAY)), "caBundle", "failed", "ended 3 days ago");
    only(&with(Ok(NOW)), "caBundle", "failed", "ended 0 days ago");
    only(&with(Ok(NOW + 13 * DAY)), "caBundle", "warning", "ends in 13 days");
    assert_eq!(wrong(&with(Ok(NOW + SOON))), []);
}

#[test]
fn a_webhook_needs_an_endpoint() {
    let with = |refuses, ready| {
        let service = Some(Service { name: "istio-system/injector".into(), ready });
        Facts { webhooks: Ok(vec![Webhook { refuses, service, ..webhook() }]), ..cluster() }
    };
    only(&with(true, Ok(0)), "webhook", "failed", "so pods are refused");
    only(&with(false, Ok(0)), "webhook", "failed", "pods start without a sidecar");
    only(&with(true, Err("403".into())), "webhook", "warning", "not known: 403");
    only(&Facts { webhooks: Ok(Vec::new()), ..cluster() }, "webhook", "warning", "pods get no sidecar");
    let by_url = Webhook { service: None, ..webhook() };
    assert_eq!(wrong(&Facts { webhooks: Ok(vec![by_url]), ..cluster() }), []);
}

#[test]
fn missing_rights_prevent_only_an_installation() {
    let denied = || RIGHTS.map(|right| (right, Ok(right.resource != "clusterroles"))).to_vec();
    only(&Facts { rights: denied(), ..cluster() }, "rights", "warning", "may not create clusterroles");
    let before = wrong(&Facts { rights: denied(), agents: Ok(None), ..cluster() });
    assert_eq!([before[0].1, before[1].1], ["warning", "failed"], "{before:?}");
    let all = RIGHTS.map(|right| (right, Ok(right.verb == "create"))).to_vec();
    let named = "may not get pods, list pods, watch pods, get nodes, get daemonsets and 15 more";
    only(&Facts { rights: all, ..cluster() }, "rights", "warning", named);
    let unknown = RIGHTS.map(|right| (right, Err("no response".to_owned()))).to_vec();
    only(&Facts { rights: unknown, ..cluster() }, "rights", "warning", "no response");
}

#[test]
fn nodes_are_judged_by_kernel_and_runtime() {
    let with = |nodes| Facts { nodes: Ok(nodes), ..cluster() };
    let old = NodeFacts { kernel: "5.4.0-200-generic".into(), ..node("old") };
    only(&with(vec![node("a"), old]), "nodes", "warning", "before 5.10, the oldest that is tested: old");
    let docker = NodeFacts { runtime: "docker://27.0".into(), ..node("d") };
    only(&with(vec![docker]), "nodes", "warning", "a runtime other than");
    let many: Vec<_> = (0..7).map(|n| NodeFacts { kernel: "4.19".into(), ..node(&format!("n{n}")) }).collect();
    only(&with(many), "nodes", "warning", "n0, n1, n2, n3, n4 and 2 more");
    assert_eq!(wrong(&with(vec![NodeFacts { kernel: "?".into(), ..node("a") }])), []);
}

#[test]
fn the_platforms_value_is_named_until_agents_are_ready() {
    for (platform, node) in [
        ("gke", NodeFacts { kubelet: "v1.33.1-gke.100".into(), ..node("a") }),
        ("k3s", NodeFacts { kubelet: "v1.33.1+k3s1".into(), ..node("a") }),
        (
            "openshift",
            NodeFacts {
                image: "Red Hat Enterprise Linux CoreOS 418".into(),
                runtime: "cri-o://1.31".into(),
                ..node("a")
            },
        ),
    ] {
        let ready = Facts { nodes: Ok(vec![node]), ..cluster() };
        assert_eq!(wrong(&ready), [], "{platform}");
        let found = wrong(&Facts { agents: Ok(None), ..ready });
        assert!(found.iter().any(|found| found.2 == format!("nodes of {platform}: a")), "{found:?}");
    }
}

#[test]
fn sandboxed_runtimes_and_settings_of_cilium_are_reported() {
    only(&Facts { sandboxes: Ok(vec!["gvisor".into()]), ..cluster() }, "RuntimeClass", "warning", "pods of gvisor");
    let with = |settings: &[(&str, &str)]| {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Facts { cilium: Ok(Some(settings)), ..cluster() }
    };
    let admitted =
        [("cni-exclusive", "false"), ("kube-proxy-replacement", "true"), ("bpf-lb-sock-hostns-only", "true")];
    assert_eq!(wrong(&with(&admitted)), []);
    assert_eq!(wrong(&with(&[("cni-exclusive", "false"), ("kube-proxy-replacement", "false")])), []);
    only(&with(&admitted[..2]), "Cilium", "warning", "socket load balancer");
    only(&with(&admitted[1..]), "Cilium", "failed", "renames the configurations");
}

#[test]
fn state_that_the_api_server_does_not_return_is_a_warning() {
    let no = || "403".to_owned();
    let facts = Facts {
        agents: Err(no()),
        pod_security: Err(no()),
        webhooks: Err(no()),
        nodes: Err(no()),
        sandboxes: Err(no()),
        cilium: Err(no()),
        ..cluster()
    };
    let found = wrong(&facts);
    assert_eq!(found.len(), 6, "{found:?}");
    assert!(found.iter().all(|found| found.1 == "warning" && found.2 == "not known: 403"), "{found:?}");
}
