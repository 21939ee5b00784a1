//! `istio-cnictl` as a process: injection of documents, explanations of pods, and errors.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use test_support::api::Api;
use test_support::program::under_test;

/// Runs the program with this standard input. Only the cluster in `kubeconfig`, if there is one, is accessible.
pub(crate) fn cnictl(args: &[&str], input: &str, kubeconfig: Option<&Path>) -> Output {
    let mut command = Command::new(under_test("istio-cnictl"));
    command.args(args).env_clear().env("HOME", "/nowhere").envs(kubeconfig.map(|path| ("KUBECONFIG", path)));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The program does not read its input if the command line is invalid.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Writes a kubeconfig for the server at this URL.
pub(crate) fn kubeconfig(dir: &Path, url: &str) -> PathBuf {
    let path = dir.join("kubeconfig");
    test_support::api::kubeconfig(&path, url);
    path
}

pub(crate) const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: app, image: a}]}\n";
/// A comment and two objects in which injection recognizes no pod.
const OTHERS: &str = "# A comment alone.\n---\napiVersion: v1\nkind: Service\nmetadata:   {name: web} # kept\n---\n\
                      apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec:\n    template: {spec: {containers: []}}\n---\n";

#[test]
fn documents_without_pods_pass_byte_for_byte() {
    let done = cnictl(&["kube-inject", "--builtIn", "-f", "-"], OTHERS, None);
    assert_eq!((text(&done.stdout), text(&done.stderr)), (OTHERS.to_owned(), String::new()));
    assert!(done.status.success());
}

#[test]
fn skipped_pods_are_reported_with_istios_messages() {
    let host = POD.replace("{containers", "{hostNetwork: true, containers");
    let declined = POD.replace("namespace: shop}", "labels: {sidecar.istio.io/inject: \"false\"}}");
    let done = cnictl(&["kube-inject", "--builtIn", "-f", "-"], &format!("{host}---\n{declined}"), None);
    let expected = "\n===> Skipping injection because Pod \"shop/web\" has host networking enabled\n\
                    ===> Skipping injection because Pod \"web\" has sidecar injection disabled\n";
    assert_eq!(text(&done.stderr), expected);
    assert!(!text(&done.stdout).contains("istio-proxy"));
    assert!(done.status.success());
}

#[test]
fn lists_are_injected_item_by_item_and_written_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.yaml"), dir.path().join("out.yaml"));
    let items = [POD, OTHERS.split("---\n").nth(1).unwrap()].map(|item| {
        let lines: String = item.lines().map(|line| format!("  {line}\n")).collect();
        lines.replacen("  ", "- ", 1)
    });
    std::fs::write(&input, format!("apiVersion: v1\nkind: List\nitems:\n{}", items.concat())).unwrap();
    let [from, to] = [&input, &output].map(|path| path.to_str().unwrap());
    let done = cnictl(&["kube-inject", "--builtIn", "-f", from, "-o", to], "", None);
    assert!(done.status.success() && done.stdout.is_empty(), "{}", text(&done.stderr));
    let written = std::fs::read_to_string(&output).unwrap();
    assert_eq!(written.matches("name: istio-proxy").count(), 1, "{written}");
    assert!(written.contains("kind: Service"), "{written}");
}

#[test]
fn errors_are_reported_without_output() {
    for (args, input, code, said) in [
        (&["kube-inject", "--builtIn"][..], "", 1, "filename not specified (see --filename or -f)"),
        (&["kube-inject", "--builtIn", "-f", "/nowhere"], "", 1, "open /nowhere: "),
        (&["kube-inject", "--bad"], "", 64, "--bad"),
        (&["kube-inject", "-f", "-", "--injectConfigFile", "/nowhere"], POD, 1, "open /nowhere: "),
        (&["kube-inject", "--builtIn", "-f", "-"], "a: b\n---\na: [", 1, "document 2 is not YAML"),
        (
            &["kube-inject", "--builtIn", "-f", "-"],
            "a: b\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: two, template: {spec: {}}}",
            1,
            "document 2 is not valid: Deployment \"web\": spec.replicas: expected an integer of 32 bits, got \"two\"",
        ),
        (&["kube-inject", "--builtIn", "-f", "-"], "a: b\n--- c: d\n", 1, "line 2: the separator"),
        (
            &["kube-inject", "--builtIn", "-f", "-"],
            "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}",
            1,
            "document 1: Deployment \"x\": it has no pod: spec.template.spec is required",
        ),
        (
            &["kube-inject", "--builtIn", "-f", "-"],
            "a: b\n---\nkind: Pod\napiVersion: v1\nmetadata: {name: x, annotations: {inject.istio.io/templates: nope}}\nspec: {}",
            1,
            "document 2: Pod \"x\": requested template \"nope\" not found",
        ),
        (&["explain", "--builtIn", "-f", "-"], "kind: Service", 1, "has no pod"),
        (
            &["kube-inject", "--builtIn", "-f", "-"],
            "a: b\n---\n- kind: Pod\n",
            1,
            "document 2 is a list: expected an object",
        ),
        (
            &["kube-inject", "--builtIn", "-f", "-"],
            "apiVersion: v1\nkind: PodList\nitems: []\n",
            1,
            "document 1 is a PodList: expected a List",
        ),
    ] {
        let done = cnictl(args, input, None);
        assert_eq!(done.status.code(), Some(code), "{args:?}: {}", text(&done.stderr));
        assert!(text(&done.stderr).contains(said), "{args:?}: {}", text(&done.stderr));
        assert_eq!(text(&done.stdout), "", "{args:?}");
    }
}

/// Like kubectl, the program must skip missing files in the list KUBECONFIG, and name a file that cannot be parsed.
#[test]
fn kubeconfigs_are_found_as_kubectl_finds_them() {
    let dir = tempfile::tempdir().unwrap();
    let valid = kubeconfig(dir.path(), "http://127.0.0.1:1");
    let (missing, broken, empty) = (dir.path().join("missing"), dir.path().join("broken"), dir.path().join("empty"));
    std::fs::write(&broken, "contexts: [").unwrap();
    std::fs::write(&empty, "").unwrap();
    let list = |paths: &[&Path]| PathBuf::from(std::env::join_paths(paths).unwrap());
    let error = |flags: &[&str], given: Option<&Path>| {
        let done = cnictl(&[&["kube-inject", "-f", "-"], flags].concat(), POD, given);
        assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()), "{flags:?}");
        text(&done.stderr)
    };
    let unreachable = "could not read valid configmap";
    let of = |path: &Path, what: &str| format!("kubeconfig {} cannot be used: {what}", path.display());
    let no_file = "No such file or directory";
    let [missing_text, valid_text] = [&missing, &valid].map(|path| path.to_str().unwrap());
    for (flags, given, said) in [
        (&[][..], Some(list(&[&missing, &valid])), unreachable.to_owned()),
        (&[], Some(list(&[&empty, &valid])), unreachable.to_owned()),
        (&[], Some(list(&[&valid, &broken])), of(&broken, "failed to parse")),
        (&[], Some(broken.clone()), of(&broken, "failed to parse")),
        (&[], Some(empty.clone()), of(&empty, "it has no current context")),
        (&[], Some(list(&[&missing, &missing])), format!("there is no kubeconfig: no file {}:", missing.display())),
        (&["--context", "x"], Some(missing.clone()), format!("no file {} exists", missing.display())),
        (&["--context", "x"], Some(valid.clone()), of(&valid, "failed to load current context: x")),
        (&["--context", "x"], None, "no file /nowhere/.kube/config exists".to_owned()),
        (&["--kubeconfig", missing_text], Some(valid.clone()), of(&missing, no_file)),
        (&["--kubeconfig", missing_text, "--context", "x"], None, of(&missing, no_file)),
        (&["--kubeconfig", valid_text], Some(broken.clone()), unreachable.to_owned()),
    ] {
        let error = error(flags, given.as_deref());
        assert!(error.contains(&said), "{flags:?} {given:?}: {said}: {error}");
    }
    let done = cnictl(&["kube-inject", "--builtIn", "-f", "-", "--kubeconfig", valid_text], POD, None);
    assert!(done.status.success() && text(&done.stderr).contains("--kubeconfig and --context are not used"));
}

#[test]
fn an_unreachable_or_unknown_cluster_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = kubeconfig(dir.path(), "http://127.0.0.1:1");
    let done = cnictl(&["kube-inject", "-f", "-"], POD, Some(&path));
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("name files instead (--injectConfigFile)"), "{}", text(&done.stderr));
    let done = cnictl(&["kube-inject", "-f", "-"], POD, None);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()));
    for said in ["no configuration of the injection is known: there is no kubeconfig: no file ", "(--builtIn)"] {
        assert!(text(&done.stderr).contains(said), "{}", text(&done.stderr));
    }
    let broken = dir.path().join("broken");
    std::fs::write(&broken, "clusters: [").unwrap();
    for args in [&["kube-inject", "-f", "-"][..], &["explain", "-f", "-"]] {
        let done = cnictl(args, POD, Some(&broken));
        assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()), "{args:?}");
        assert!(text(&done.stderr).contains("kubeconfig"), "{}", text(&done.stderr));
    }
    let done = cnictl(&["kube-inject", "--builtIn", "-f", "-"], POD, Some(&broken));
    assert!(done.status.success(), "it needs no cluster: {}", text(&done.stderr));
}

#[test]
fn all_files_are_injected_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pod = |name: &str| file(name, &POD.replace("name: web", &format!("name: {name}")).replace("---\n", ""));
    let (first, second) = (pod("first"), pod("second"));
    let done = cnictl(&["kube-inject", "--builtIn", "-f", &first, "-f", &second], "", None);
    let output = text(&done.stdout);
    let names: Vec<&str> = output.lines().filter(|line| ["  name: first", "  name: second"].contains(line)).collect();
    assert_eq!((names, done.status.success()), (vec!["  name: first", "  name: second"], true), "{output}");
    assert_eq!(output.matches("name: istio-proxy\n").count(), 2, "{output}");
    let broken = file("broken", "a: [");
    let done = cnictl(&["kube-inject", "--builtIn", "-f", &first, "-f", &broken], "", None);
    assert!(text(&done.stderr).contains(&format!("{broken}: document 1 is not YAML")), "{}", text(&done.stderr));
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()));
}

#[test]
fn a_mistyped_annotation_is_named_with_the_one_that_is_meant() {
    let annotation = "traffic.sidecar.istio.io/excludeOutboundPort";
    let input = POD.replace("namespace: shop}", &format!("annotations: {{{annotation}: \"1\"}}}}"));
    let done = cnictl(&["kube-inject", "--builtIn", "-f", "-"], &input, None);
    let said = format!("{annotation} (is {annotation}s meant?)");
    assert!(text(&done.stderr).contains(&said), "{}", text(&done.stderr));
}

#[test]
fn programs_name_their_version() {
    for program in ["istio-cnictl", "sidecar-injector", "install-cni"] {
        let done = Command::new(under_test(program)).arg("--version").output().unwrap();
        assert!(done.status.success(), "{program}: {}", text(&done.stderr));
        assert_eq!(text(&done.stdout), format!("{program} {}\n", env!("CARGO_PKG_VERSION")));
    }
}

pub(crate) fn explained(args: &[&str], input: &str, kubeconfig: Option<&Path>) -> Value {
    let done = cnictl(&[&["explain", "-o", "json"], args].concat(), input, kubeconfig);
    assert!(matches!(done.status.code(), Some(0 | 3)), "{}", text(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn a_pod_is_explained_from_its_decision_to_its_rules() {
    let input = POD.replace(
        "namespace: shop}",
        "namespace: shop, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: \"3306\"}}",
    );
    let pods = explained(&["--builtIn", "--ipv6", "-f", "-"], &input, None);
    let pod = &pods[0];
    assert_eq!((&pod["pod"], &pod["injection"]["rule"]), (&json!("shop/web"), &json!("policy")));
    assert_eq!(pod["injection"]["containers"], json!(["istio-validation", "istio-proxy"]));
    assert_eq!(pod["redirection"]["parameters"]["outbound-ports-exclude"], json!(["3306"]));
    for family in ["IPv4", "IPv6"] {
        let rules = pod["redirection"]["rules"][family].as_array().unwrap();
        assert!(rules.contains(&json!("-A ISTIO_OUTPUT -p tcp --dport 3306 -j RETURN")), "{rules:?}");
    }
    let done = cnictl(&["explain", "--builtIn", "-f", "-"], &input, None);
    let said = text(&done.stdout);
    for line in [
        "pod shop/web",
        "  injected:   yes: the injector's policy applies",
        "    outbound-ports-exclude   3306",
        "    * nat",
    ] {
        assert!(said.lines().any(|present| present.starts_with(line)), "no {line:?} in\n{said}");
    }
}

#[test]
fn each_reason_against_injection_is_explained() {
    let with = |metadata: &str| POD.replace("namespace: shop}", &format!("namespace: shop, {metadata}}}"));
    let annotated = |key: &str, value: &str| with(&format!("annotations: {{{key}: \"{value}\"}}"));
    let inject = "sidecar.istio.io/inject";
    for (input, rule, redirected) in [
        (with(&format!("labels: {{{inject}: \"false\"}}")), "label", "no_proxy"),
        (annotated(inject, "false"), "annotation", "no_proxy"),
        (POD.replace("{containers", "{hostNetwork: true, containers"), "host_network", "no_proxy"),
        (POD.replace("{containers", "{os: {name: windows}, containers"), "windows", "no_proxy"),
        (POD.replace("shop", "kube-system"), "ignored_namespace", "no_proxy"),
        (annotated("sidecar.istio.io/interceptionMode", "NONE"), "policy", "interception_none"),
        (annotated("traffic.sidecar.istio.io/excludeOutboundPorts", "x"), "error", "no_pod"),
    ] {
        let pods = explained(&["--builtIn", "-f", "-"], &input, None);
        let found = (&pods[0]["injection"]["rule"], &pods[0]["redirection"]["reason"]);
        assert_eq!(found, (&json!(rule), &json!(redirected)), "{input}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_the_cluster_is_explained_as_it_is() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = kubeconfig(dir.path(), &api.url());
    api.put(json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "shop", "name": "web-0", "annotations": {
            "sidecar.istio.io/status": "{}", "sidecar.istio.io/interceptionMode": "TPROXY" } },
        "spec": { "containers": [{ "name": "istio-proxy", "image": "i", "args": ["proxy", "sidecar"], "securityContext": { "runAsUser": 7 } }] } }));
    let pods = explained(&["web-0", "-n", "shop", "--builtIn"], "", Some(&path));
    assert_eq!(pods[0]["injection"]["rule"], "already");
    assert_eq!(pods[0]["redirection"]["parameters"]["interception-mode"], "TPROXY");
    assert_eq!(pods[0]["redirection"]["parameters"]["proxy-uid"], json!(["7"]));
    let done = cnictl(&["explain", "web-1", "-n", "shop", "--builtIn"], "", Some(&path));
    assert!(text(&done.stderr).contains("could not read pod shop/web-1"), "{}", text(&done.stderr));
}
