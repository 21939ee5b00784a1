//! Tests calls of the plugin that the container runtime does not make itself: CHECK after a real ADD, DEL without netns, and ADD, CHECK and
//! DEL by `cnitool`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use contract::{PLUGIN_NAME, POD_ANNOTATIONS_CAPABILITY};
use serde_json::{Value, json};

use crate::stage::{Case, Missing};
use test_support::runtime::conflist::{self, Families};
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::pod::Pod;
use test_support::runtime::programs::on_path;
use test_support::runtime::sandbox::Sandbox;

pub(crate) const CASES: &[Case] = &[
    ("check_passes_after_add_and_names_a_missing_rule", check),
    ("a_second_add_changes_nothing_and_returns_the_previous_result", second_add),
    ("del_without_netns_and_previous_result_succeeds_without_output", bare_del),
    ("cnitool_adds_checks_and_deletes", cnitool),
];

fn check(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let conf = conf_after_add(node, &mesh, &sandbox)?;
    let netns = sandbox.netns_path()?;

    let passed = call(node, "CHECK", &sandbox, Some(&netns), &conf)?;
    assert_eq!((passed.status.code(), text(&passed.stdout).as_str()), (Some(0), ""), "{passed:?}");

    sandbox.netns()?.command("iptables", &["-t", "nat", "-F", "ISTIO_INBOUND"])?;

    let failed = call(node, "CHECK", &sandbox, Some(&netns), &conf)?;
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let error: Value = serde_json::from_slice(&failed.stdout).with_context(|| text(&failed.stdout))?;
    let message = format!("{} {}", error["msg"], error["details"]);
    for part in ["shop/web-0", "ISTIO_INBOUND"] {
        assert!(message.contains(part), "{part:?} is not in {error}");
    }
    sandbox.remove()
}

/// A second ADD must change nothing: a runtime that does not cache results calls ADD again after its restart, and a chain may contain the
/// plugin twice.
fn second_add(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let conf = conf_after_add(node, &mesh, &sandbox)?;
    let before = sandbox.netns()?.all_rules()?;
    let added = call(node, "ADD", &sandbox, Some(&sandbox.netns_path()?), &conf)?;
    assert_eq!(added.status.code(), Some(0), "{added:?}");
    assert_eq!(text(&added.stdout).trim_end(), conf["prevResult"].to_string());
    assert_eq!(sandbox.netns()?.all_rules()?, before, "rules after a second ADD");
    sandbox.remove()
}

fn bare_del(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?;
    node.load_chain(Families::V4, None)?;
    let sandbox = node.run(&Pod::injected("shop", "web-0"))?;
    let mut conf = mesh.plugin();
    conf["cniVersion"] = "1.0.0".into();
    conf["name"] = conflist::NAME.into();
    let done = call(node, "DEL", &sandbox, None, &conf)?;
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(0), ""), "{done:?}");
    sandbox.remove()
}

/// Runs `cnitool`, which uses the CNI reference library, to add, check and delete an attachment in a netns without
/// containers.
fn cnitool(node: &Node) -> Result<()> {
    let named = std::env::var_os("CNITOOL").map(PathBuf::from).filter(|path| path.is_file());
    let missing = || Missing("cnitool is neither named by CNITOOL nor on the PATH".to_owned());
    let tool = named.or_else(|| on_path("cnitool").ok()).ok_or_else(missing)?;
    let mesh = Mesh::new(node)?.with_agent()?;
    let pod = Pod::injected("shop", "by-hand");
    mesh.cluster().apply(&pod);
    // cnitool reads the list that the runtime has loaded.
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    succeed(node.command("ip".as_ref()).args(["netns", "add", "by-hand"]))?;
    let attach = |verb: &str| {
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=by-hand;K8S_POD_UID={}", pod.uid);
        let mut command = node.command(&tool);
        command.args([verb, conflist::NAME, "/run/netns/by-hand"]).env("CNI_ARGS", args);
        command.env("CNI_PATH", node.plugins()).env("NETCONFPATH", node.dir().join("net.d"));
        command.env("CAP_ARGS", json!({ POD_ANNOTATIONS_CAPABILITY: pod.annotations }).to_string());
        succeed(&mut command).with_context(|| format!("cnitool {verb}"))
    };
    let outcome = (|| {
        let result: Value = serde_json::from_str(&attach("add")?)?;
        assert_eq!(result["interfaces"].as_array().map(Vec::len), Some(2), "the result of ptp is returned: {result}");
        let rules = node.open_netns("/run/netns/by-hand")?.all_rules()?;
        assert!(rules.contains("ISTIO_INBOUND"), "{rules}");
        attach("check")?;
        attach("del")?;
        attach("del")
    })();
    succeed(node.command("ip".as_ref()).args(["netns", "delete", "by-hand"]))?;
    outcome.map(drop)
}

/// Returns the plugin's configuration as the runtime would pass it after the ADD, with the ADD's result as `prevResult`.
fn conf_after_add(node: &Node, mesh: &Mesh, sandbox: &Sandbox<'_>) -> Result<Value> {
    let mut conf = mesh.plugin();
    conf["cniVersion"] = "1.0.0".into();
    conf["name"] = conflist::NAME.into();
    conf["prevResult"] = node.cached_add(sandbox.id())?["result"].clone();
    ensure!(conf["prevResult"].is_object(), "there is no cached result of ADD: {conf}");
    conf["runtimeConfig"] = json!({ POD_ANNOTATIONS_CAPABILITY: sandbox.pod().annotations });
    Ok(conf)
}

/// Calls the plugin in the runtime's namespaces.
fn call(node: &Node, verb: &str, sandbox: &Sandbox<'_>, netns: Option<&str>, conf: &Value) -> Result<Output> {
    let pod = sandbox.pod();
    let args = format!(
        "K8S_POD_UID={};IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={}",
        pod.uid,
        pod.namespace,
        pod.name,
        sandbox.id()
    );
    let mut command = node.command(&node.plugins().join(PLUGIN_NAME));
    command.env("CNI_COMMAND", verb).env("CNI_CONTAINERID", sandbox.id()).env("CNI_IFNAME", "eth0");
    command.env("CNI_PATH", node.plugins()).env("CNI_ARGS", args).env("CNI_NETNS", netns.unwrap_or_default());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(conf.to_string().as_bytes())?;
    Ok(child.wait_with_output()?)
}

fn succeed(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    }
    Ok(text(&output.stdout))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
