//! Snapshots of each command's output, on terminals of 80 and 160 columns and through a pipe, in `tests/data/terminal`.
//! `UPDATE=1` writes them.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};
use serde_json::json;
use test_support::api::Api;
use test_support::program::under_test;

use crate::cnictl::{POD, kubeconfig};

/// The outputs to which each command writes: terminals with these numbers of columns, and a pipe (`None`).
const FORMS: [Option<u16>; 3] = [Some(80), Some(160), None];

/// Returns what a program writes to its standard output and standard error, both to the same terminal or pipe.
fn written(command: &mut Command, columns: Option<u16>) -> String {
    let (reader, writer): (OwnedFd, OwnedFd) = match columns {
        Some(ws_col) => {
            let size = Winsize { ws_row: 24, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
            let pair = openpty(&size, None).unwrap();
            (pair.master, pair.slave)
        }
        None => {
            let (reader, writer) = std::io::pipe().unwrap();
            (reader.into(), writer.into())
        }
    };
    let error = writer.try_clone().unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(writer).stderr(error).spawn().unwrap();
    // The command value holds copies of the writing end. While they are open, the reader would not see the end of the
    // output.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut reader, mut bytes, mut buffer) = (File::from(reader), Vec::new(), [0; 4096]);
    // A terminal returns EIO once no process has it open for writing.
    while let Ok(read @ 1..) = reader.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..read]);
    }
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

fn title(columns: Option<u16>) -> String {
    columns.map_or("through a pipe".to_owned(), |columns| format!("on a terminal of {columns} columns"))
}

/// Returns an output in all [`FORMS`]. Consecutive forms with equal outputs share a section. Escape characters are replaced with visible
/// symbols.
fn snapshot(mut output: impl FnMut(Option<u16>) -> String) -> String {
    let mut sections: Vec<(String, String)> = Vec::new();
    for columns in FORMS {
        let text = output(columns).replace('\u{1b}', "␛").replace('\r', "␍");
        match sections.last_mut() {
            Some((titles, same)) if *same == text => *titles += &format!(", {}", title(columns)),
            _ => sections.push((title(columns), text)),
        }
    }
    sections.iter().map(|(titles, text)| format!("=== {titles}\n{text}\n")).collect()
}

#[track_caller]
fn check(name: &str, found: &str) {
    let path = Path::new("tests/data/terminal").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{} differs; UPDATE=1 writes it", path.display());
}

/// Returns a command that has no kubeconfig, with the environment of a terminal that supports colours.
fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(under_test(program));
    command.args(args).env_clear().env("HOME", "/nowhere").env("TERM", "xterm");
    command
}

#[test]
fn help_fits_its_terminal() {
    for (program, words) in [
        ("istio-cnictl", ""),
        ("istio-cnictl", "explain"),
        ("istio-cnictl", "explain node"),
        ("istio-cnictl", "explain add"),
        ("istio-cnictl", "status"),
        ("istio-cnictl", "trace"),
        ("istio-cnictl", "check"),
        ("istio-cnictl", "kube-inject"),
        ("istio-cnictl", "dapr-inject"),
        ("istio-cnictl", "completion"),
        ("install-cni", ""),
        ("install-cni", "check"),
        ("sidecar-injector", ""),
    ] {
        let args: Vec<&str> = words.split_whitespace().chain(["--help"]).collect();
        let found = snapshot(|columns| {
            let text = written(&mut command(program, &args), columns);
            let plain = text.split('\u{1b}').map(|part| part.split_once('m').map_or(part, |(_, rest)| rest));
            let plain: String = plain.collect();
            // Examples and words without a space are not wrapped. The daemons' flags have Istio's names, which leave
            // too few columns for a description on a narrow terminal.
            let head = plain.split("Examples:").next().unwrap();
            let limit = usize::from(columns.unwrap_or(100));
            let is_checked = program == "istio-cnictl";
            let long = head
                .lines()
                .filter(|_| is_checked)
                .find(|line| line.trim().contains(' ') && line.chars().count() > limit);
            assert_eq!((columns, long), (columns, None), "{program} {words}");
            text
        });
        check(&format!("help-{}", [&[program], &args[..args.len() - 1]].concat().join("-")), &found);
    }
}

#[test]
fn explanations_and_traces() {
    let dir = tempfile::tempdir().unwrap();
    let (pod, declined) = (dir.path().join("pod.yaml"), dir.path().join("declined.yaml"));
    let annotations = "annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: \"5432\"}";
    fs::write(&pod, POD.replace("namespace: shop}", &format!("namespace: shop, {annotations}}}"))).unwrap();
    let labels = "labels: {sidecar.istio.io/inject: \"false\"}";
    fs::write(&declined, POD.replace("namespace: shop}", &format!("namespace: shop, {labels}}}"))).unwrap();
    let [pod, declined] = [&pod, &declined].map(|path| path.to_str().unwrap());
    for (name, args) in [
        ("explain", &["explain", "pod", pod, "--builtIn"][..]),
        ("explain-wide", &["explain", "pod", pod, "--builtIn", "-o=wide"]),
        ("explain-declined", &["explain", "pod", declined, "--builtIn"]),
        ("trace", &["trace", "-f", pod, "--builtIn", "--outbound=198.51.100.7:80"]),
        ("trace-all", &["trace", "-f", pod, "--builtIn", "--outbound=198.51.100.7:5432", "--all"]),
    ] {
        check(name, &snapshot(|columns| written(&mut command("istio-cnictl", args), columns)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_of_nodes_and_running_pods() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(dir.path(), &api.url());
    let annotations = json!({ "sidecar.istio.io/status": "{}" });
    api.put(json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "shop", "name": "web-0", "annotations": annotations },
        "spec": { "nodeName": "n2", "containers": [{ "name": "istio-proxy", "args": ["proxy", "sidecar"] }] } }));
    for (node, verdict) in [("n1", "redirected"), ("n2", "drifted")] {
        let agent = format!("istio-cni-node-{node}");
        api.put(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "kube-system", "name": agent, "labels": { "k8s-app": "istio-cni-node" } },
            "spec": { "nodeName": node, "containers": [{ "name": "install-cni" }] } }));
        let problem = (verdict == "drifted").then_some("missing: -A OUTPUT -p tcp -j ISTIO_OUTPUT");
        let counts = json!({ "redirected": 7, "skipped": { "no_proxy": 3 }, "drifted": u8::from(problem.is_some()) });
        let error = json!({ "time": "2026-01-01T10:00:00Z", "level": "error", "scope": "cni-plugin", "text": "the API server does not respond, nor does the agent" });
        let report = json!({
            "node": node, "version": "0.1.0", "started": "2026-01-01T09:00:00Z", "active": true,
            "chain": "/host/etc/cni/net.d/10-calico.conflist", "backend": "iptables-nft", "counts": counts, "errors": [error],
            "pods": [{ "name": "shop/web-0", "verdict": verdict, "reason": "created", "problem": problem, "backend": "iptables-nft",
                       "added": "2026-01-01T09:30:00Z", "seconds": 0.0008 }],
        });
        let path = format!("/api/v1/namespaces/kube-system/pods/{agent}:15014/proxy/status.json");
        api.respond(&path, 200, report.to_string());
    }
    for (name, args) in [
        ("status", &["status"][..]),
        ("status-wide", &["status", "-o=wide"]),
        ("status-node", &["status", "n2"]),
        ("explain-node", &["explain", "node", "n2"]),
        ("explain-running", &["explain", "web-0", "-n=shop", "--builtIn"]),
    ] {
        let of = |columns| written(command("istio-cnictl", args).env("KUBECONFIG", &kubeconfig), columns);
        let piped = of(None);
        assert!(!piped.contains('\u{1b}'), "{piped:?}");
        check(name, &snapshot(of));
    }
}
