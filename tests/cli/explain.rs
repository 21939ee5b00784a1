//! Tests of `istio-cnictl explain`: where it reads the pod from, its messages and output formats, saved calls of the plugin, and hostile
//! names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use test_support::api::{Api, Fault};

use super::cnictl::{POD, cnictl, kubeconfig, text};

/// Returns the standard output of a command; asserts that it succeeded, or explained a pod that cannot start.
#[track_caller]
pub(crate) fn said(done: &Output) -> String {
    assert!(matches!(done.status.code(), Some(0 | 3)), "{done:?}");
    text(&done.stdout)
}

#[test]
fn the_exit_code_reports_whether_all_pods_can_start() {
    let refused_by_webhook = annotated("traffic.sidecar.istio.io/includeInboundPorts: x");
    let refused_by_plugin = injected("u1").replace("'{}'", "'{}', traffic.sidecar.istio.io/includeInboundPorts: x");
    let status = "status: {initContainerStatuses: [{name: istio-validation, state: {terminated: {exitCode: 126}}}]}";
    let unredirected = format!("{}{status}\n", injected("u1"));
    for (pods, unstartable) in [
        (POD.to_owned(), None),
        (injected("u1"), None),
        (refused_by_webhook.clone(), Some("1 of 1 pods cannot start")),
        (refused_by_plugin, Some("1 of 1 pods cannot start")),
        (unredirected, Some("1 of 1 pods cannot start")),
        (format!("{POD}---\n{refused_by_webhook}"), Some("1 of 2 pods cannot start")),
    ] {
        let done = cnictl(&["explain", "-f", "-", "--builtIn"], &pods, None);
        let code = if unstartable.is_some() { 3 } else { 0 };
        assert_eq!(done.status.code(), Some(code), "{pods}\n{done:?}");
        assert!(text(&done.stderr).contains(unstartable.unwrap_or_default()), "{done:?}");
    }
    let add = Saved::new("ADD", &injected("u2")).explain(&conf(), "text", None);
    assert_eq!(add.status.code(), Some(3), "{add:?}");
}

#[test]
fn an_injected_pod_out_of_the_plugins_reach_is_not_redirected() {
    for (field, reason, step) in [
        ("hostNetwork: true", "no: host_network (it uses the host's network)", "a pod with the node's network"),
        ("nodeSelector: {kubernetes.io/os: windows}", "no: windows (it runs on Windows", "no proxy for Windows"),
    ] {
        let pod = injected("u1").replace("spec: {", &format!("spec: {{{field}, "));
        assert!(pod.contains(field), "{pod}");
        let explained = said(&cnictl(&["explain", "-f", "-", "--builtIn"], &pod, None));
        assert!(explained.contains(reason) && explained.contains(step), "{explained}");
        let json = json_of(&cnictl(&["explain", "-f", "-", "--builtIn", "-o", "json"], &pod, None));
        assert_eq!(json[0]["redirection"]["redirected"], false);
    }
}

#[track_caller]
pub(crate) fn json_of(done: &Output) -> Value {
    serde_json::from_str(&said(done)).unwrap()
}

/// Returns [`POD`] with these annotations, in YAML's flow style.
fn annotated(annotations: &str) -> String {
    POD.replace("namespace: shop}", &format!("namespace: shop, annotations: {{{annotations}}}}}"))
}

#[test]
fn each_parameter_has_its_source_and_each_rule_a_phrase() {
    let pod = annotated("traffic.sidecar.istio.io/excludeOutboundPorts: \"3306\"");
    let explained = json_of(&cnictl(&["explain", "pod", "-", "--builtIn", "-o", "json"], &pod, None));
    let redirection = &explained[0]["redirection"];
    let source = json!({ "annotation": "traffic.sidecar.istio.io/excludeOutboundPorts", "setByInjector": false });
    assert_eq!(redirection["sources"]["outbound-ports-exclude"], source);
    assert_eq!(redirection["sources"]["proxy-port"], "default");
    let rules = redirection["rules"]["IPv4"].as_array().unwrap();
    let at = rules.iter().position(|rule| rule == "-A ISTIO_OUTPUT -p tcp --dport 3306 -j RETURN").unwrap();
    assert_eq!(redirection["phrases"]["IPv4"][at], "TCP to port 3306 is not redirected");
    assert_eq!(redirection["phrases"]["IPv4"].as_array().unwrap().len(), rules.len());
    let usual = said(&cnictl(&["explain", "pod", "-", "--builtIn"], &pod, None));
    for part in [
        "annotation traffic.sidecar.istio.io/excludeOutboundPorts\n",
        "# TCP to port 3306 is not redirected\n",
        "  next:       istio-cnictl trace web -n shop --outbound ADDRESS:PORT",
    ] {
        assert!(usual.contains(part), "no {part:?} in\n{usual}");
    }
    const MEANING: &str = "Ports whose outbound traffic is not redirected.";
    let wide = said(&cnictl(&["explain", "pod", "-", "--builtIn", "-o", "wide"], &pod, None));
    assert!(wide.contains(MEANING) && !usual.contains(MEANING), "{wide}");
}

#[test]
fn files_workloads_and_forms() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.yaml");
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  \
                      selector: {matchLabels: {app: web}}\n  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: a}]}}\n";
    fs::write(&path, deployment).unwrap();
    let path = path.to_str().unwrap();
    let of = |args: &[&str]| cnictl(&[&["explain"], args, &["--builtIn"]].concat(), "", None);
    let json = json_of(&of(&["pod", path, "-o", "json"]));
    assert_eq!(json[0]["pod"], "shop/web");
    assert_eq!(json, json_of(&of(&["-f", path, "-o", "json"])), "the former invocation");
    let yaml = said(&of(&["pod", path, "-o", "yaml"]));
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json[0]);
    let missing = of(&["pod"]);
    assert!(text(&missing.stderr).contains("filename not specified"), "{missing:?}");
}

#[test]
fn a_pod_without_a_sidecar_gets_its_next_step() {
    let declined = POD.replace("namespace: shop}", "namespace: shop, labels: {sidecar.istio.io/inject: \"false\"}}");
    let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn"], &declined, None));
    assert!(shown.contains("  redirected: no: no_proxy (it has no container istio-proxy)\n"), "{shown}");
    assert!(shown.contains("  next:       remove sidecar.istio.io/inject from the pod's template\n"), "{shown}");
}

#[test]
fn names_cannot_control_a_terminal() {
    let hostile = POD.replace("name: web,", "name: \"w\\e[2J\\x9b\\u202eeb\",");
    for form in ["text", "wide", "json", "yaml"] {
        let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn", "-o", form], &hostile, None));
        assert!(shown.contains("2J"), "{form}: {shown:?}");
        let control = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!shown.contains(control), "{form}: {:?}", shown.lines().find(|line| line.contains(control)));
    }
}

/// A call of the plugin that is saved in the files `environment`, `stdin` and `pod.yaml`.
struct Saved {
    dir: tempfile::TempDir,
}

impl Saved {
    fn new(verb: &str, pod: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let environment = format!(
            "CNI_COMMAND={verb}\0CNI_CONTAINERID=7f\0CNI_NETNS=/var/run/netns/x\0CNI_IFNAME=eth0\0CNI_PATH=/opt/cni/bin\0\
             CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u1\0"
        );
        fs::write(dir.path().join("environment"), environment).unwrap();
        fs::write(dir.path().join("pod.yaml"), pod).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Explains the saved call with this network configuration on standard input, in the output format `form`. The pod
    /// is read from its file, or from the cluster of `kubeconfig` if there is one.
    fn explain(&self, conf: &Value, form: &str, kubeconfig: Option<&Path>) -> Output {
        let (environment, pod) = (self.path("environment"), self.path("pod.yaml"));
        let mut args =
            vec!["explain", "add", "--stdin", "-", "-o", form, "--environment", environment.to_str().unwrap()];
        if kubeconfig.is_none() {
            args.extend(["-f", pod.to_str().unwrap()]);
        }
        cnictl(&args, &conf.to_string(), kubeconfig)
    }
}

fn conf() -> Value {
    json!({ "cniVersion": "1.0.0", "name": "pods", "type": "istio-cni", "exclude_namespaces": ["kube-system"] })
}

#[test]
fn an_application_on_a_port_of_the_proxy_is_named_before_and_after_the_injection() {
    let app = "{name: app, image: a, ports: [{containerPort: 15006}, {containerPort: 15021}]}";
    let sidecar = "{name: istio-proxy, image: p, args: [proxy, sidecar]}";
    for (annotations, containers) in
        [("{}", format!("[{app}]")), ("{sidecar.istio.io/status: '{}'}", format!("[{app}, {sidecar}]"))]
    {
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, annotations: {annotations}}}, spec: {{containers: {containers}}}}}"
        );
        let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn"], &pod, None));
        for port in [15006, 15021] {
            let warning = format!("  warning:    container \"app\" declares port {port}, ");
            assert_eq!(shown.matches(&*warning).count(), 1, "{shown}");
        }
    }
}

/// Returns an injected pod with this UID, as YAML.
pub(crate) fn injected(uid: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: {uid}, annotations: {{sidecar.istio.io/status: '{{}}'}}}}\n\
         spec: {{containers: [{{name: istio-proxy, args: [proxy, sidecar]}}]}}\n"
    )
}

#[test]
fn a_saved_call_is_explained_as_the_plugin_decides_it() {
    let saved = Saved::new("ADD", &injected("u1"));
    let redirected = json_of(&saved.explain(&conf(), "json", None));
    assert_eq!((&redirected[0]["network"], &redirected[0]["interface"]), (&json!("pods"), &json!("eth0")));
    assert_eq!(redirected[0]["pod"]["redirection"]["redirected"], true);
    let shown = said(&saved.explain(&conf(), "text", None));
    assert!(shown.starts_with("ADD of eth0 in container 7f\n") && shown.contains("pod shop/web\n"), "{shown}");

    let mut excluded = conf();
    excluded["exclude_namespaces"] = json!(["shop"]);
    let skipped = json_of(&saved.explain(&excluded, "json", None));
    let expected = json!({ "redirected": false, "reason": "excluded_namespace" });
    assert_eq!((&skipped[0]["redirection"], &skipped[0]["lookup"]), (&expected, &json!(false)));

    let recreated = json_of(&Saved::new("ADD", &injected("u2")).explain(&conf(), "json", None));
    let error = recreated[0]["pod"]["redirection"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("the sandbox is of the pod with UID u1"), "{error}");
}

#[test]
fn a_saved_call_that_refuses_sandboxes_fails_for_a_pod_in_one() {
    let pod = injected("u1").replace("spec: {", "spec: {runtimeClassName: kata, ");
    let mut refusing = conf();
    refusing["refuse_sandboxes"] = json!(true);
    let redirection = |pod: &str, conf: &Value| {
        json_of(&Saved::new("ADD", pod).explain(conf, "json", None))[0]["pod"]["redirection"].clone()
    };
    let refused = redirection(&pod, &refusing);
    let error = refused["error"].as_str().unwrap_or_default();
    assert!(error.contains("(runtime class kata)") && error.contains("this node refuses such pods"), "{refused}");
    for pod in [&pod.replace("kata", "fast"), &injected("u1")] {
        assert_eq!(redirection(pod, &refusing)["redirected"], true, "{pod}");
    }
    let unreached = redirection(&pod, &conf());
    assert_eq!((&unreached["redirected"], &unreached["reason"]), (&json!(false), &json!("sandbox")), "{unreached}");
}

#[test]
fn calls_of_other_verbs_than_add_are_errors() {
    let done = Saved::new("DEL", &injected("u1")).explain(&conf(), "text", None);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("is not ADD"), "{done:?}");
    let done = Saved::new("ADD", &injected("u1")).explain(&json!({ "cniVersion": "9.0.0", "name": "x" }), "text", None);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("incompatible CNI versions"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_calls_pod_is_that_of_the_cluster() {
    let api = Api::start().await;
    let saved = Saved::new("ADD", "");
    let path = kubeconfig(saved.dir.path(), &api.url());
    let done = saved.explain(&conf(), "json", Some(&path));
    assert!(text(&done.stderr).contains("could not read pod shop/web"), "{done:?}");
    api.put(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "shop", "name": "web" },
        "spec": { "containers": [{ "name": "app", "image": "a" }] } }));
    // The pod in the API server double has another UID than the pod in the saved call.
    let explained = json_of(&saved.explain(&conf(), "json", Some(&path)));
    assert_eq!(explained[0]["pod"]["injection"]["injected"], false);
}

/// Creates a pod running on node `n1`, redirected according to its annotations, and that node's agent, which has this report.
fn running(api: &Api, report: &Value) -> tempfile::TempDir {
    let mut pod: Value = serde_saphyr::from_str(&injected("u1")).unwrap();
    pod["metadata"]["name"] = json!("web-0");
    pod["spec"]["nodeName"] = json!("n1");
    api.put(pod);
    api.put(json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "istio-system", "name": "agent-1", "labels": { "k8s-app": "istio-cni-node" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "install-cni" }] } }));
    api.respond("/api/v1/namespaces/istio-system/pods/agent-1:15014/proxy/status.json", 200, report.to_string());
    tempfile::tempdir().unwrap()
}

/// Sets the status of the pod's container `istio-validation`.
fn put_validation(api: &Api, status: &Value) {
    let mut pod = api.get("pods", "shop", "web-0").unwrap();
    let mut status = status.clone();
    status["name"] = json!("istio-validation");
    pod["status"] = json!({ "phase": "Pending", "initContainerStatuses": [status] });
    api.put(pod);
}

/// The handler in the cluster's RuntimeClass decides whether the pod has a sandboxed runtime. If the cluster lacks the RuntimeClass, the
/// name of the class decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_handler_of_a_runtime_class_decides_whether_a_pod_is_sandboxed() {
    let api = Api::start().await;
    let dir = running(&api, &report_of(&json!({ "verdict": "redirected", "reason": "created" })));
    let path = kubeconfig(dir.path(), &api.url());
    for (name, handler) in [("strict", "runsc"), ("kata", "runc")] {
        api.put(json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name }, "handler": handler }));
    }
    for (class, is_sandbox) in [("strict", true), ("kata", false), ("gvisor", true), ("other", false)] {
        let mut pod = api.get("pods", "shop", "web-0").unwrap();
        pod["spec"]["runtimeClassName"] = json!(class);
        api.put(pod);
        let shown = said(&cnictl(&["explain", "web-0", "-n", "shop", "--builtIn"], "", Some(&path)));
        assert_eq!(shown.contains(&format!("runtimeClassName {class:?} is a sandbox")), is_sandbox, "{class}: {shown}");
        assert_eq!(shown.contains("redirected: no: sandbox ("), is_sandbox, "{class}: {shown}");
    }
}

/// Returns a report with this entry for the pod `shop/web-0`.
fn report_of(entry: &Value) -> Value {
    let mut entry = entry.clone();
    entry["name"] = json!("shop/web-0");
    json!({ "node": "n1", "version": "0.1.0", "started": "T", "active": true, "pods": [entry] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_pods_state_is_that_of_its_nodes_agent() {
    for (entry, live, differs, next) in [
        (
            json!({ "verdict": "redirected", "reason": "created", "backend": "iptables-nft", "added": "T", "seconds": 0.0008 }),
            "redirected, from the agent of node n1: created by iptables-nft at T in 0.8 ms",
            None,
            "istio-cnictl trace web-0",
        ),
        (
            json!({ "verdict": "skipped", "reason": "no_proxy" }),
            "skipped, from the agent of node n1: no_proxy",
            Some("ADD skipped the pod, and today would redirect it: no_proxy"),
            "kubectl delete pod web-0 -n shop, so that a new pod replaces it",
        ),
        (
            json!({ "verdict": "drifted", "problem": "missing\u{1b}[2J" }),
            "drifted, from the agent of node n1",
            Some("its rules are not the intended ones: missing\\u{1b}[2J"),
            "kubectl delete pod web-0 -n shop",
        ),
    ] {
        let api = Api::start().await;
        let dir = running(&api, &report_of(&entry));
        let path = kubeconfig(dir.path(), &api.url());
        let shown = said(&cnictl(&["explain", "web-0", "-n", "shop", "--builtIn"], "", Some(&path)));
        assert!(shown.contains(&format!("  live:       {live}\n")), "{shown}");
        let differs = differs.map(|text| format!("  differs:    {text}\n"));
        assert_eq!(
            shown.lines().find(|line| line.starts_with("  differs:")).map(|line| format!("{line}\n")),
            differs,
            "{shown}"
        );
        assert!(shown.contains(&format!("  next:       {next}")), "{shown}");
        let json = json_of(&cnictl(&["explain", "pod/web-0", "-n", "shop", "--builtIn", "-o=json"], "", Some(&path)));
        assert_eq!(json[0]["live"]["state"]["verdict"], entry["verdict"]);
        assert_eq!(json[0]["differs"].is_null(), differs.is_none(), "{json}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_pod_is_explained_without_its_agent() {
    let api = Api::start().await;
    let dir = running(&api, &json!({ "node": "n1", "pods": [] }));
    let path = kubeconfig(dir.path(), &api.url());
    let of = || said(&cnictl(&["explain", "web-0", "-n", "shop", "--builtIn"], "", Some(&path)));
    assert!(
        of().contains("live:       unknown, from the agent of node n1: the agent has no entry for the pod\n"),
        "{}",
        of()
    );
    api.fault(Fault::on("GET", "/status.json").status(403));
    assert!(of().contains("`get` of pods/proxy must be allowed\n"), "{}", of());
    api.heal();
    api.fault(Fault::on("GET", "/api/v1/pods").status(403));
    assert!(of().contains("unknown, from the agent of node n1: the agents cannot be listed: "), "{}", of());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_pods_failed_validation_has_its_meaning_and_its_next_steps() {
    let ended = |code: i32| json!({ "terminated": { "exitCode": code, "reason": "Error" } });
    let waits = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let api = Api::start().await;
    let dir = running(&api, &json!({ "node": "n1", "pods": [] }));
    let path = kubeconfig(dir.path(), &api.url());
    let of = |form| said(&cnictl(&["explain", "web-0", "-n", "shop", "--builtIn", "-o", form], "", Some(&path)));

    put_validation(&api, &json!({ "state": waits, "lastState": ended(126), "restartCount": 3 }));
    let shown = of("text");
    for part in [
        "  live:       unknown, from the agent of node n1: the agent has no entry for the pod\n  \
         validation: istio-validation failed with exit code 126: the pod's traffic does not reach its proxy",
        "  next:       istio-cnictl status n1 says whether the plugin is on the node\n",
        "  next:       once it is: kubectl delete pod web-0 -n shop, so that a new pod replaces it, unless",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    let json: Value = serde_json::from_str(&of("json")).unwrap();
    let validation = &json[0]["validation"];
    assert_eq!((&validation["container"], &validation["exitCode"]), (&json!("istio-validation"), &json!(126)));
    assert_eq!(json[0]["next"].as_array().unwrap().len(), 2, "{json}");

    put_validation(&api, &json!({ "state": ended(255), "lastState": {} }));
    let shown = of("text");
    assert!(shown.contains("exit code 255: the flags of the validation cannot be parsed\n"), "{shown}");
    assert!(shown.contains("  next:       kubectl logs web-0 -n shop -c istio-validation "), "{shown}");

    put_validation(&api, &json!({ "state": ended(0), "lastState": ended(126) }));
    assert!(!of("text").contains("validation:") && !of("json").contains("\"validation\""), "{}", of("text"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_of_the_cluster_is_explained_by_its_template() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = kubeconfig(dir.path(), &api.url());
    let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "app", "image": "a" }] } });
    api.put(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": "shop", "name": "web" },
        "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": template } }));
    api.put(json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "namespace": "shop", "name": "tick" },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": template } } } }));
    for (name, pod) in [("deploy/web", "shop/web"), ("cronjob/tick", "shop/tick")] {
        let json = json_of(&cnictl(&["explain", name, "-n", "shop", "--builtIn", "-o=json"], "", Some(&path)));
        assert_eq!((&json[0]["pod"], &json[0]["redirection"]["redirected"]), (&json!(pod), &json!(true)));
        assert!(json[0]["live"].is_null(), "{json}");
    }
    let missing = cnictl(&["explain", "sts/web", "-n", "shop", "--builtIn"], "", Some(&path));
    assert!(text(&missing.stderr).contains("could not read statefulset shop/web: "), "{missing:?}");
    // The argument `deploys/web` is the path of a file, because `deploys` is not the name of a kind.
    let file = cnictl(&["explain", "deploys/web", "--builtIn"], "", Some(&path));
    assert!(text(&file.stderr).contains("open deploys/web: "), "{file:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_explained_with_the_meaning_of_its_state() {
    let api = Api::start().await;
    let mut report = report_of(&json!({ "verdict": "failed", "problem": "no room" }));
    report["counts"] = json!({ "redirected": 2, "skipped": { "no_proxy": 3 }, "failed": 1 });
    let dir = running(&api, &report);
    let path = kubeconfig(dir.path(), &api.url());
    let shown = said(&cnictl(&["explain", "node", "n1"], "", Some(&path)));
    for part in [
        "node n1\n  agent:      istio-system/agent-1, version 0.1.0, since T\n  ready:      yes\n",
        "  skipped:    3: no_proxy (it has no container istio-proxy)\n",
        "  failed:     shop/web-0: no room\n",
        "  next:       istio-cnictl explain web-0 -n shop",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    let json = json_of(&cnictl(&["explain", "node", "n1", "-o=json"], "", Some(&path)));
    assert_eq!(json[0]["report"]["counts"]["failed"], 1);
    let unknown = cnictl(&["explain", "node", "n2"], "", Some(&path));
    assert_eq!(text(&unknown.stderr), "Error: node n2 has no agent; nodes with one: 1\n");
}
