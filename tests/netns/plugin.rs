//! Tests of the plugin's binary in a real netns, with doubles of the agent that respond correctly or not.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use libtest_mimic::Trial;
use serde_json::{Value, json};

use test_servers::{Api, Authority, Script};
use test_support::netns::{NFT_COMPAT, TestNetns, Users, trial};
use test_support::plugin::{Call, Reply, conf};

use crate::backends::WITHOUT_SBIN;

pub(crate) fn trials() -> Vec<Trial> {
    const NFT: &[&str] = &["iptables-nft-save", "iptables-nft", "nft"];
    const LEGACY: &[&str] = &["iptables-legacy-save", "iptables-legacy", "ip6tables-legacy-save"];
    vec![
        trial("plugin/add_twice_then_check_then_reconcile", NFT, add_check_reconcile),
        trial("plugin/missing_tproxy_routes_are_reported_and_restored", NFT, tproxy_routing),
        trial(
            "plugin/a_pod_with_a_user_namespace_is_redirected",
            &["nft", "nsenter", "setpriv", NFT_COMPAT],
            user_namespace,
        ),
        trial("plugin/native_nftables_by_configuration", &["nft"], native_nftables),
        trial("plugin/legacy_by_configuration", LEGACY, legacy),
        trial("plugin/dual_stack_with_dns", &["iptables-nft-save", "ip6tables-nft-save"], dual_stack),
        trial("plugin/a_sandbox_is_logged", NFT, sandbox),
        trial("plugin/invalid_settings_leave_no_rules", NFT, bad_input),
        trial("plugin/a_faulty_agent_does_not_let_a_pod_start", NFT, bad_agent),
        trial("plugin/a_pod_without_facts_does_not_start", NFT, no_facts),
        trial("plugin/an_invalid_netns_is_refused", &[], bad_netns),
        trial("plugin/its_own_netns_is_refused", &[], own_netns),
        trial("plugin/the_api_server_is_asked_from_the_nodes_netns", NFT, asked_from_the_node),
        trial("plugin/status_succeeds_before_the_agent_has_started", &[], status_without_agent),
        trial("plugin/status_succeeds_and_reports_what_is_missing", &["setpriv"], status_without_backend),
        trial("plugin/add_names_a_missing_backend", &["unshare"], add_without_backend),
    ]
}

/// A pod's netns with addresses, and a run directory with a double of the agent.
pub(crate) struct Pod {
    pub(crate) netns: TestNetns,
    run_dir: tempfile::TempDir,
}

impl Pod {
    pub(crate) fn new(addresses: &[&str]) -> Self {
        Self::within(TestNetns::new(), addresses)
    }

    pub(crate) fn within(netns: TestNetns, addresses: &[&str]) -> Self {
        netns.run("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "peer0"]);
        netns.run("ip", &["link", "set", "eth0", "up"]);
        for address in addresses {
            let nodad = if address.contains(':') { &["nodad"][..] } else { &[] };
            netns.run("ip", &[&["addr", "add", address, "dev", "eth0"], nodad].concat());
        }
        Self { netns, run_dir: tempfile::tempdir().unwrap() }
    }

    /// Makes the agent's socket respond to every request with these bytes.
    fn agent(self, response: impl Into<Vec<u8>>) -> Self {
        let listener = UnixListener::bind(self.run_dir.path().join(contract::AGENT_SOCKET)).unwrap();
        let response = response.into();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(&response);
            }
        });
        self
    }

    pub(crate) fn facts(self, facts: &Value) -> Self {
        self.agent(ok(&facts.to_string()))
    }

    /// Replaces the agent with one that responds with these facts.
    pub(crate) fn edited(self, facts: &Value) -> Self {
        self.without_agent().facts(facts)
    }

    /// Removes the agent's socket.
    pub(crate) fn without_agent(self) -> Self {
        std::fs::remove_file(self.run_dir.path().join(contract::AGENT_SOCKET)).unwrap();
        self
    }

    pub(crate) fn call(&self, verb: &str, more: &Value) -> Reply {
        self.call_by(verb, more, |call| call)
    }

    /// Calls the plugin with the additional keys `more` in its configuration. `with` can change the call, for example its environment.
    pub(crate) fn call_by(&self, verb: &str, more: &Value, with: impl FnOnce(Call) -> Call) -> Reply {
        let mut conf: Value = serde_json::from_str(&conf("1.0.0", self.run_dir.path(), more)).unwrap();
        conf["prevResult"] = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.2/24"}]});
        with(Call::new(verb, self.netns.path().to_str().unwrap(), conf.to_string())).run()
    }

    pub(crate) fn ruleset(&self) -> String {
        self.netns.run("nft", &["list", "ruleset"])
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Returns the agent's response for an injected pod, with these annotations and these environment variables of the
/// proxy.
pub(crate) fn injected(annotations: &Value, env: &Value) -> Value {
    let mut all = json!({"sidecar.istio.io/status": "{}"});
    all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
    json!({"uid": "uid-1", "annotations": all, "hasInit": false, "proxy": {"env": env, "proxyType": "sidecar"}})
}

fn add_check_reconcile() {
    let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
    let first = pod.call("ADD", &json!({}));
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(first.json()["ips"][0]["address"], "10.9.0.2/24");
    assert!(first.stderr.contains(r#""change":"added""#), "{first:?}");
    let save = pod.netns.run("iptables-nft-save", &[]);
    assert!(save.contains("-A ISTIO_OUTPUT -j ISTIO_REDIRECT"), "{save}");
    assert_eq!(pod.netns.run("ip6tables-nft-save", &[]), "", "an IPv4 pod has no IPv6 rules");

    let second = pod.call("ADD", &json!({}));
    assert!(second.code == 0 && second.stderr.contains(r#""change":"none""#), "{second:?}");
    let check = pod.call("CHECK", &json!({}));
    assert_eq!((check.code, check.stdout.as_str()), (0, ""), "{check:?}");

    pod.netns
        .run("iptables-nft", &["-t", "nat", "-D", "ISTIO_INBOUND", "-p", "tcp", "--dport", "15090", "-j", "RETURN"]);
    let check = pod.call("CHECK", &json!({}));
    assert_eq!((check.code, check.stdout.as_str()), (0, ""), "{check:?}");
    for named in ["differs from the intended one", "ISTIO_INBOUND", "--dport 15090", r#""reason":"differs""#] {
        assert!(check.stderr.contains(named), "{named}: {check:?}");
    }
    let third = pod.call("ADD", &json!({}));
    assert!(third.code == 0 && third.stderr.contains(r#""change":"reconciled""#), "{third:?}");
    assert_eq!(without_counters(&pod.netns.run("iptables-nft-save", &[])), without_counters(&save));
    assert_eq!(pod.call("CHECK", &json!({})).code, 0);
}

fn tproxy_routing() {
    let tproxy = json!({"sidecar.istio.io/interceptionMode": "TPROXY"});
    let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&tproxy, &json!({})));
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
    assert_eq!(pod.call("CHECK", &json!({})).code, 0);
    let rules = pod.netns.run("ip", &["rule"]);
    for (undo, named) in [
        (["rule", "del", "fwmark", "1337"], "IPv4 routing rule `fwmark 0x539 lookup 133` is missing"),
        (["route", "flush", "table", "133"], "IPv4 route `local default dev lo` of table 133 is missing"),
    ] {
        pod.netns.run("ip", &undo);
        let message = pod.call("CHECK", &json!({})).error(999);
        assert!(message.contains(named), "{message}");
        let reconciled = pod.call("ADD", &json!({}));
        assert!(reconciled.code == 0 && reconciled.stderr.contains(r#""change":"reconciled""#), "{reconciled:?}");
        assert!(reconciled.stderr.contains(named), "{reconciled:?}");
        assert_eq!(pod.call("CHECK", &json!({})).code, 0);
    }
    assert_eq!(pod.netns.run("ip", &["rule"]), rules);
    assert!(pod.call("ADD", &json!({})).stderr.contains(r#""change":"none""#));
    // The route of another program takes the place of the plugin's.
    pod.netns.run("ip", &["route", "flush", "table", "133"]);
    pod.netns.run("ip", &["route", "add", "blackhole", "default", "table", "133"]);
    let message = pod.call("ADD", &json!({})).error(999);
    assert!(message.contains("another default route precedes the IPv4 route"), "{message}");
    let message = pod.call("CHECK", &json!({})).error(999);
    assert!(message.contains("IPv4 route `local default dev lo` of table 133 is missing"), "{message}");
}

fn without_counters(save: &str) -> Vec<String> {
    let lines = save.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap_or(line).to_owned()).collect()
}

/// The netns of a pod with `hostUsers: false` belongs to a user namespace, in which the kernel refuses iptables' owner
/// matches. The rules must identify the proxy's user nevertheless.
fn user_namespace() {
    let (users, netns) = Users::with_netns();
    let pod = Pod::within(netns, &["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
    for change in ["added", "none"] {
        let reply = pod.call("ADD", &json!({}));
        assert_eq!(reply.code, 0, "{reply:?}");
        for message in [r#""backend":"nftables""#.to_owned(), format!(r#""change":"{change}""#)] {
            assert!(reply.stderr.contains(&message), "{reply:?}");
        }
    }
    // A connection of the proxy to the pod's own address is redirected to the inbound port. A connection of the
    // application to this address is not redirected.
    let inbound = pod.netns.inside(|| TcpListener::bind(("0.0.0.0", contract::port::INBOUND)).unwrap());
    inbound.set_nonblocking(true).unwrap();
    for (id, arrives) in [("1337", true), ("1000", false)] {
        let connect = ["bash", "-c", "exec 3<>/dev/tcp/10.9.0.2/8080"];
        let connected = pod.netns.inside(|| users.command(id, &connect).output().unwrap());
        assert_eq!((connected.status.success(), inbound.accept().is_ok()), (arrives, arrives), "{id}: {connected:?}");
    }

    assert_eq!(pod.call("CHECK", &json!({})).code, 0);
    pod.netns.run("nft", &["flush", "chain", "ip", "istio-proxy-nat", "istio-in-redirect"]);
    let message = pod.call("CHECK", &json!({})).error(999);
    assert!(message.contains("istio-in-redirect"), "{message}");
    let reconciled = pod.call("ADD", &json!({}));
    assert!(reconciled.stderr.contains(r#""change":"reconciled""#), "{reconciled:?}");
    assert_eq!(pod.call("CHECK", &json!({})).code, 0);

    let message = pod.call("ADD", &json!({"force_iptables_binary": "nft"})).error(999);
    assert!(message.contains("hostUsers: false"), "{message}");
}

fn native_nftables() {
    let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
    let reply = pod.call("ADD", &json!({"native_nftables": true}));
    assert_eq!(reply.code, 0, "{reply:?}");
    let ruleset = pod.ruleset();
    assert!(ruleset.contains("table inet istio-proxy-nat") && !ruleset.contains("table ip nat"), "{ruleset}");
    assert_eq!(pod.call("CHECK", &json!({"native_nftables": true})).code, 0);
}

fn legacy() {
    let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
    let legacy = json!({"force_iptables_binary": "legacy"});
    for change in ["added", "none"] {
        let reply = pod.call("ADD", &legacy);
        assert!(reply.code == 0 && reply.stderr.contains(&format!(r#""change":"{change}""#)), "{reply:?}");
    }
    let save = pod.netns.run("iptables-legacy-save", &[]);
    assert!(save.contains("-A ISTIO_OUTPUT -j ISTIO_REDIRECT"), "{save}");
    pod.netns.run("iptables-legacy", &["-t", "nat", "-F", "ISTIO_IN_REDIRECT"]);
    // Without a setting that forces a backend, the plugin chooses iptables-legacy, because the netns has rules of it.
    let message = pod.call("CHECK", &json!({})).error(999);
    assert!(message.contains("ISTIO_IN_REDIRECT"), "{message}");
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
    assert_eq!(pod.netns.run("iptables-legacy-save", &[]).matches("-A ").count(), save.matches("-A ").count());
}

fn dual_stack() {
    let env = json!({"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_DUAL_STACK": "true"});
    let pod = Pod::new(&["10.9.0.2/24", "fd00:9::2/64"]).facts(&injected(&json!({}), &env));
    let reply = pod.call("ADD", &json!({}));
    assert_eq!(reply.code, 0, "{reply:?}");
    for save in ["iptables-nft-save", "ip6tables-nft-save"] {
        let rules = pod.netns.run(save, &[]);
        assert_eq!(rules.lines().filter(|line| line.starts_with("-A ")).count(), 31, "{rules}");
    }
    let lo = pod.netns.run("ip", &["-6", "addr", "show", "dev", "lo"]);
    assert!(lo.contains("::6/128"), "{lo}");
}

fn sandbox() {
    let kata = json!({ "name": "k", "isSandbox": true, "program": "io.containerd.kata.v2" });
    let unknown = "only the node's agent knows the handler of runtime class runc";
    for (class, handler, sandbox, refusal) in [
        ("kata-qemu", Value::Null, Some("runtime class kata-qemu"), Some((999, "runtime class kata-qemu"))),
        ("runc", Value::Null, None, Some((11, unknown))),
        ("runc", json!({ "name": "runc", "isSandbox": false }), None, None),
        ("kata-qemu", json!({ "name": "runc", "isSandbox": false }), None, None),
        (
            "secure",
            kata,
            Some("runtime handler k (io.containerd.kata.v2)"),
            Some((999, "runtime handler k (io.containerd.kata.v2)")),
        ),
    ] {
        let mut facts = injected(&json!({}), &json!({}));
        (facts["runtimeClass"], facts["handler"]) = (class.into(), handler);
        let pod = Pod::new(&["10.9.0.2/24"]).facts(&facts);
        let refused = pod.call("ADD", &json!({ "refuse_sandboxes": true }));
        let reply = pod.call("ADD", &json!({}));
        let told = |reply: &Reply| sandbox.is_some_and(|sandbox| reply.stderr.contains(sandbox));
        assert_eq!((reply.code, told(&reply)), (0, sandbox.is_some()), "{reply:?}");
        let has_reason =
            reply.stderr.contains(r#""verdict":"redirected""#) && reply.stderr.contains(r#""reason":"sandbox""#);
        assert_eq!(has_reason, sandbox.is_some(), "{reply:?}");
        match refusal {
            Some((code, reason)) => assert!(refused.error(code).contains(reason), "{refused:?}"),
            None => assert_eq!(refused.code, 0, "{refused:?}"),
        }
        let checked = pod.call("CHECK", &json!({ "refuse_sandboxes": true }));
        assert_eq!((checked.code, told(&checked)), (0, false), "{checked:?}");
    }
}

fn bad_input() {
    let ports = (1..=10_000).map(|p| p.to_string()).collect::<Vec<_>>().join(",");
    let key = |name: &str| format!("traffic.sidecar.istio.io/{name}");
    for (name, value, expected) in [
        (key("excludeOutboundPorts"), "80;443", "80;443"),
        (key("excludeOutboundPorts"), "*", "*"),
        (key("includeInboundPorts"), "80,\u{7}\n-j ACCEPT", "\\u{7}"),
        (key("includeInboundPorts"), ports.as_str(), "1024"),
        (key("includeInboundPorts"), "65536", "65536"),
        (key("excludeInterfaces"), "eth0 -j ACCEPT", "interface"),
        (key("includeOutboundIPRanges"), "10.0.0.0/33", "10.0.0.0/33"),
        ("sidecar.istio.io/interceptionMode".to_owned(), "MIRROR", "TPROXY"),
    ] {
        let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({&name: value}), &json!({})));
        let message = pod.call("ADD", &json!({})).error(999);
        assert!(
            message.contains("shop/web-0") && message.contains(&name) && message.contains(expected),
            "{name}: {message}"
        );
        assert!(message.len() < 1000 && !message.contains('\u{7}'), "{message}");
        assert_eq!(pod.ruleset(), "", "{name}");
    }
    let pod = Pod::new(&[]).facts(&injected(&json!({}), &json!({})));
    let message = pod.call("ADD", &json!({})).error(999);
    assert!(message.contains("no valid local IP address"), "{message}");
    assert_eq!(pod.ruleset(), "");
}

fn bad_agent() {
    let valid = ok(&injected(&json!({}), &json!({})).to_string());
    let huge = format!("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{}", "x".repeat(1 << 20));
    let other_pod = ok(&injected(&json!({}), &json!({})).to_string().replace("uid-1", "uid-2"));
    let rows = [
        (valid.as_bytes()[..valid.len() - 20].to_vec(), "agent"),
        (b"\x00\x01garbage".to_vec(), "agent"),
        (huge.into_bytes(), "agent"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec(), "500"),
        (ok("{\"uid\":7}").into_bytes(), "agent"),
        (other_pod.into_bytes(), "uid"),
    ];
    // The calls run concurrently, because each waits for the time limit of its lookup.
    std::thread::scope(|scope| {
        rows.into_iter().for_each(|(agent, expected)| {
            scope.spawn(move || refused(agent, expected));
        });
    });
}

fn refused(agent: Vec<u8>, expected: &str) {
    let shown = String::from_utf8_lossy(&agent[..agent.len().min(80)]).into_owned();
    let pod = Pod::new(&["10.9.0.2/24"]).agent(agent);
    // The API server is not reachable either, so the plugin reports a temporary failure (CNI error code 11).
    let message = pod.call("ADD", &json!({})).error(11);
    assert!(message.contains(expected), "{shown:?}: {expected:?} is not in {message:?}");
    assert_eq!(pod.ruleset(), "", "{shown:?}");
}

fn no_facts() {
    let pod = Pod::new(&["10.9.0.2/24"]);
    let message = pod.call("ADD", &json!({})).error(11);
    assert!(message.contains("shop/web-0"), "{message}");
    assert!(message.contains("agent.sock") && message.contains("istio-cni-kubeconfig"), "{message}");
    assert_eq!(pod.ruleset(), "");
    // The agent's own pods are exempt by name and namespace; the name alone is not enough.
    let netns = pod.netns.path();
    let call = Call::new("ADD", netns.to_str().unwrap(), conf("1.0.0", pod.run_dir.path(), &json!({})));
    let message = call.env("CNI_ARGS", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=istio-cni-node-x7k2p").run().error(11);
    assert!(message.contains("shop/istio-cni-node-x7k2p"), "{message}");
}

/// The plugin must send the lookup from the node's netns: the API server listens on the node's loopback, which cannot be reached from the
/// pod's netns.
fn asked_from_the_node() {
    let authority = Authority::new();
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": "web-0", "uid": "uid-1", "annotations": {"sidecar.istio.io/status": "{}"},
        },
        "spec": {"containers": [{"name": "istio-proxy", "args": ["proxy", "sidecar"]}]},
    });
    let server = Api::start(&authority, vec![Script::respond(200, object.to_string())]);
    let run_dir = test_servers::run_dir(server.address, Some(&authority.pem));
    let pod = Pod { run_dir, ..Pod::new(&["10.9.0.2/24"]) };
    let reply = pod.call("ADD", &json!({}));
    assert!(reply.code == 0 && reply.stderr.contains(r#""source":"api""#), "{reply:?}");
    assert!(pod.netns.run("iptables-nft-save", &[]).contains("-A ISTIO_OUTPUT -j ISTIO_REDIRECT"));
}

fn call_at(netns: &str, pod: &Pod) -> Reply {
    Call::new("ADD", netns, conf("1.0.0", pod.run_dir.path(), &json!({}))).run()
}

fn bad_netns() {
    let pod = Pod::new(&[]).facts(&injected(&json!({}), &json!({})));
    let message = call_at("/var/run/netns/cni-that-is-gone", &pod).error(3);
    assert!(message.contains("cni-that-is-gone"), "{message}");
    for none in ["/etc/passwd", "/tmp", "/proc/self/ns/mnt"] {
        let message = call_at(none, &pod).error(999);
        assert!(message.contains(none) && message.contains("not a network namespace"), "{message}");
    }
}

fn own_netns() {
    let pod = Pod::new(&[]).facts(&injected(&json!({}), &json!({})));
    let message = call_at("/proc/self/ns/net", &pod).error(8);
    assert!(message.contains("own network namespace"), "{message}");
}

/// STATUS must succeed without an agent, because the run directory is empty or missing after a reboot.
fn status_without_agent() {
    let dir = tempfile::tempdir().unwrap();
    for run_dir in [dir.path(), &dir.path().join("absent")] {
        let reply = Call::new("STATUS", "", conf("1.1.0", run_dir, &json!({}))).run();
        assert_eq!((reply.code, reply.stdout.as_str()), (0, ""), "{reply:?}");
    }
}

/// If a setting names programs that the node lacks, or the plugin may not program the kernel, STATUS must succeed and send the reason to
/// the agent.
fn status_without_backend() {
    let no_rights = ["setpriv", "--bounding-set", "-net_admin"];
    for (under, forced, reason) in
        [(&WITHOUT_SBIN[..], "legacy", "iptables-legacy-restore is not installed"), (&no_rights[..], "", "EPERM")]
    {
        let dir = tempfile::tempdir().unwrap();
        let agent = UnixListener::bind(dir.path().join(contract::LOG_SOCKET)).unwrap();
        let received = std::thread::spawn(move || {
            let (mut stream, _) = agent.accept().unwrap();
            let mut body = String::new();
            stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
            // The plugin waits for the response, or for its time limit.
            let _ = stream.read_to_string(&mut body);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            body
        });
        let conf = conf("1.1.0", dir.path(), &json!({ "force_iptables_binary": forced }));
        let reply = Call::new("STATUS", "", conf).under(under).run();
        assert_eq!((reply.code, reply.stdout.as_str(), reply.stderr.as_str()), (0, "", ""), "{reply:?}");
        let body = received.join().unwrap();
        for part in [contract::NO_BACKEND, reason, contract::UNLOGGED] {
            assert!(body.contains(part), "{part}: {body}");
        }
    }
}

/// Without a backend, ADD must refuse a pod that needs redirection, with the reason that STATUS reports.
fn add_without_backend() {
    let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
    let forced = json!({ "force_iptables_binary": "legacy" });
    let reply = pod.call_by("ADD", &forced, |call| call.under(&WITHOUT_SBIN));
    for field in [r#""reason":"no_backend""#, r#""lack":"iptables-legacy-restore is not installed"#] {
        assert!(reply.stderr.contains(field), "{reply:?}");
    }
    let message = reply.error(999);
    assert!(message.contains("iptables-legacy-restore is not installed"), "{message}");
}
