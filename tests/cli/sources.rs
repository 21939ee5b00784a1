//! Tests of the sources from which `istio-cnictl kube-inject` reads its configuration: files, an IstioOperator, the
//! cluster.

use std::path::Path;

use serde_json::{Value, json};

use crate::cnictl::{POD, cnictl, kubeconfig, text};
use test_support::api::Api;

/// A template whose output shows from which source each part of the configuration was read.
const TEMPLATE: &str = "spec:\n  containers:\n  - name: istio-proxy\n    image: '{{ .ProxyImage }}'\n    args: [template-of-a-file, '{{ .Values.from }}', '{{ .MeshConfig.TrustDomain }}']\n";

fn config_map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "istio-system", "name": name }, "data": data })
}

/// Creates the control plane's ConfigMaps for the revision with this suffix. Their contents contain the suffix, by
/// which tests recognize them.
fn install(api: &Api, suffix: &str) {
    let template = TEMPLATE.replace("template-of-a-file", &format!("template{suffix}"));
    let indented: String = template.lines().map(|line| format!("    {line}\n")).collect();
    let values = json!({ "from": format!("values{suffix}"), "global": { "hub": "cluster", "tag": "1" } }).to_string();
    let config = format!("policy: enabled\ntemplates:\n  sidecar: |\n{indented}");
    api.put(config_map(&format!("istio-sidecar-injector{suffix}"), &json!({ "config": config, "values": values })));
    api.put(config_map(&format!("istio{suffix}"), &json!({ "mesh": format!("trustDomain: mesh{suffix}") })));
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for (name, content) in [
            ("template", TEMPLATE),
            ("values", "{from: values-of-a-file, global: {hub: file, tag: '2'}}"),
            ("mesh", "trustDomain: mesh-of-a-file"),
            (
                "operator",
                "kind: IstioOperator\nspec:\n  hub: operator\n  tag: '3'\n  meshConfig: {trustDomain: mesh-of-an-operator}\n  \
                 values: {from: values-of-an-operator}\n",
            ),
            ("no-mesh", "kind: IstioOperator\nspec: {values: {from: v, global: {hub: h, tag: t}}}"),
            ("no-image", "{from: values}"),
            ("only-image", "kind: IstioOperator\nspec: {hub: operator, tag: '3'}"),
            ("only-hub", "kind: IstioOperator\nspec: {hub: operator}"),
            ("openshift", "global: {platform: openshift}"),
            ("openshift-operator", "kind: IstioOperator\nspec: {profile: openshift}"),
            ("openshift-values", "kind: IstioOperator\nspec: {values: {global: {platform: openshift}}}"),
            ("no-plugin", "kind: IstioOperator\nspec: {components: {cni: {enabled: false}}}"),
            ("demo", "kind: IstioOperator\nspec: {profile: demo}"),
            ("canary", "{revision: canary, global: {istioNamespace: mesh}}"),
            (
                "brackets",
                "policy: enabled\ntemplate: |\n  containers:\n  - name: istio-proxy\n    image: [[ .MeshConfig.TrustDomain ]]\n",
            ),
        ] {
            std::fs::write(files.0.path().join(name), content).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns the flags, each followed by the path of its file.
    fn flags(&self, flags: &[(&str, &str)]) -> Vec<String> {
        flags.iter().flat_map(|(flag, file)| [(*flag).to_owned(), self.path(file)]).collect()
    }
}

/// Returns image and arguments of the injected sidecar, or standard error.
fn sidecar(flags: &[String], kubeconfig: Option<&Path>) -> Result<(String, Vec<String>), String> {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let done = cnictl(&[&["kube-inject", "-f", "-"], &flags[..]].concat(), POD, kubeconfig);
    if !done.status.success() {
        assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()), "{flags:?}");
        return Err(text(&done.stderr));
    }
    let pod: Value = inject::yaml::value(text(&done.stdout).trim_end_matches("---\n")).unwrap();
    let container = &pod["spec"]["containers"][1];
    let args = container["args"].as_array().into_iter().flatten();
    Ok((container["image"].as_str().unwrap().to_owned(), args.map(|arg| arg.as_str().unwrap().to_owned()).collect()))
}

const TEMPLATE_FILE: (&str, &str) = ("--injectConfigFile", "template");
const VALUES_FILE: (&str, &str) = ("--valuesFile", "values");
const MESH_FILE: (&str, &str) = ("--meshConfigFile", "mesh");
const OPERATOR: (&str, &str) = ("--operatorFileName", "operator");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_without_a_file_come_from_the_cluster() {
    let api = Api::start().await;
    install(&api, "");
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let path = kubeconfig(dir.path(), &api.url());
    for (flags, image, args) in [
        (&[][..], "cluster/proxyv2:1", ["template", "values", "mesh"]),
        (&[TEMPLATE_FILE], "cluster/proxyv2:1", ["template-of-a-file", "values", "mesh"]),
        (&[VALUES_FILE], "file/proxyv2:2", ["template", "values-of-a-file", "mesh"]),
        (&[MESH_FILE], "cluster/proxyv2:1", ["template", "values", "mesh-of-a-file"]),
        (&[OPERATOR], "operator/proxyv2:3", ["template", "values-of-an-operator", "mesh-of-an-operator"]),
        (
            &[OPERATOR, VALUES_FILE, MESH_FILE],
            "operator/proxyv2:3",
            ["template", "values-of-an-operator", "mesh-of-an-operator"],
        ),
        (&[("--operatorFileName", "only-image")], "operator/proxyv2:3", ["template", "values", "mesh"]),
        (
            &[("--operatorFileName", "only-hub"), VALUES_FILE],
            "operator/proxyv2:2",
            ["template", "values-of-a-file", "mesh"],
        ),
        (&[("--operatorFileName", "no-mesh"), MESH_FILE], "h/proxyv2:t", ["template", "v", "mesh-of-a-file"]),
    ] {
        let found = sidecar(&files.flags(flags), Some(&path)).unwrap();
        assert_eq!(found, (image.to_owned(), args.map(str::to_owned).to_vec()), "{flags:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_files_the_cluster_is_not_used() {
    let api = Api::start().await;
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let path = kubeconfig(dir.path(), &api.url());
    let brackets = ("--injectConfigFile", "brackets");
    for flags in [&[TEMPLATE_FILE, VALUES_FILE, MESH_FILE][..], &[TEMPLATE_FILE, OPERATOR], &[brackets, MESH_FILE]] {
        sidecar(&files.flags(flags), Some(&path)).unwrap();
        assert_eq!(api.requests().len(), 0, "{flags:?}");
    }
}

#[test]
fn a_missing_part_is_an_error_with_its_flag() {
    let files = Files::new();
    for (flags, missing) in [
        (&[MESH_FILE][..], "set --injectConfigFile, or --kubeconfig"),
        (&[MESH_FILE, VALUES_FILE], "set --injectConfigFile, or --kubeconfig"),
        (&[TEMPLATE_FILE, MESH_FILE], "set --valuesFile or --operatorFileName, or --kubeconfig"),
        (&[TEMPLATE_FILE, VALUES_FILE], "set --meshConfigFile or --operatorFileName, or --kubeconfig"),
        (
            &[TEMPLATE_FILE, ("--operatorFileName", "no-mesh")],
            "set --meshConfigFile or --operatorFileName, or --kubeconfig",
        ),
    ] {
        let error = sidecar(&files.flags(flags), None).unwrap_err();
        assert!(error.contains(missing) && error.contains("no cluster is known"), "{flags:?}: {error}");
    }
}

#[test]
fn the_name_of_an_unused_config_map_is_refused() {
    let files = Files::new();
    let (injection, mesh) = ("--injectConfigMapName", "--meshConfigMapName");
    let name = |flag: &str| [flag.to_owned(), "mine".to_owned()];
    for (flags, map, said) in [
        (&[][..], injection, "names ConfigMap \"mine\", but no cluster is known"),
        (&[], mesh, "names ConfigMap \"mine\", but no cluster is known"),
        (&[TEMPLATE_FILE, VALUES_FILE], injection, "names a ConfigMap that is not read"),
        (&[TEMPLATE_FILE, OPERATOR], injection, "names a ConfigMap that is not read"),
        (&[MESH_FILE], mesh, "names a ConfigMap that is not read"),
        (&[OPERATOR], mesh, "names a ConfigMap that is not read"),
    ] {
        let error = sidecar(&[files.flags(flags), name(map).to_vec()].concat(), None).unwrap_err();
        assert!(error.contains(&format!("{map} {said}")), "{flags:?}: {error}");
    }
    for map in [injection, mesh] {
        let flags = ["kube-inject", "-f", "-", "--builtIn", map, "mine"];
        let done = cnictl(&flags, POD, None);
        let error = text(&done.stderr);
        assert!(!done.status.success() && error.contains("cannot be used with") && error.contains(map), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_config_map_or_key_is_an_error_with_its_name() {
    let api = Api::start().await;
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let path = kubeconfig(dir.path(), &api.url());
    let template = files.flags(&[TEMPLATE_FILE, VALUES_FILE]);
    let error = sidecar(&template, Some(&path)).unwrap_err();
    assert!(
        error.contains("could not read valid configmap \"istio\" from namespace \"istio-system\": not found"),
        "{error}"
    );
    api.put(config_map("istio", &json!({ "other": "" })));
    let error = sidecar(&template, Some(&path)).unwrap_err();
    assert!(error.contains("missing configuration map key \"mesh\""), "{error}");
    api.put(config_map("istio", &json!({ "mesh": "" })));
    let named = ["--injectConfigMapName", "mine"].map(str::to_owned);
    let error = sidecar(&named, Some(&path)).unwrap_err();
    assert!(error.contains("could not read valid configmap \"mine\""), "{error}");
    let mesh = ["--meshConfigMapName", "mine"].map(str::to_owned);
    let error = sidecar(&mesh, Some(&path)).unwrap_err();
    assert!(error.contains("could not read valid configmap \"mine\""), "without a ConfigMap of templates: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_and_names_select_config_maps() {
    let api = Api::start().await;
    for suffix in ["", "-canary"] {
        install(&api, suffix);
    }
    let path = tempfile::tempdir().unwrap();
    let path = kubeconfig(path.path(), &api.url());
    for (flags, args) in [
        (&["-r", "default"][..], ["template", "values", "mesh"]),
        (&["--revision", "canary"], ["template-canary", "values-canary", "mesh-canary"]),
        (&["--injectConfigMapName", "istio-sidecar-injector-canary"], ["template-canary", "values-canary", "mesh"]),
        (&["-r", "canary", "--meshConfigMapName=istio-canary"], ["template-canary", "values-canary", "mesh-canary"]),
    ] {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        assert_eq!(sidecar(&flags, Some(&path)).unwrap().1, args, "{flags:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_built_in_configuration_is_used_in_a_cluster_without_istio() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = kubeconfig(dir.path(), &api.url());
    let done = cnictl(&["kube-inject", "-f", "-"], POD, Some(&path));
    assert!(text(&done.stderr).contains("has no ConfigMap istio-sidecar-injector"), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("istio-proxy"));
}

#[test]
fn files_of_values_are_laid_over_those_that_are_compiled_in() {
    let files = Files::new();
    for (flags, image) in [
        (&[VALUES_FILE][..], "file/proxyv2:2"),
        (&[("--valuesFile", "no-image")], "docker.io/istio/proxyv2:1.30.0"),
        (&[("--operatorFileName", "only-hub")], "operator/proxyv2:1.30.0"),
        (&[("--operatorFileName", "no-mesh")], "h/proxyv2:t"),
    ] {
        let found = sidecar(&[files.flags(flags), vec!["--builtIn".to_owned()]].concat(), None);
        assert_eq!(found.map(|(image, _)| image), Ok(image.to_owned()), "{flags:?}");
    }
}

#[test]
fn a_pod_belongs_to_the_revision_of_the_flag_or_else_of_the_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let operator =
        format!("--operatorFileName={}", file("operator", "kind: IstioOperator\nspec: {revision: canary}\n"));
    let values = format!("--valuesFile={}", file("values", "revision: canary\n"));
    let flag = |name: &str| format!("--revision={name}");
    for (flags, revision, istiod) in [
        (vec![], "default", "istiod"),
        (vec![operator.clone()], "canary", "istiod-canary"),
        (vec![values.clone()], "canary", "istiod-canary"),
        (vec![values.clone(), flag("blue")], "blue", "istiod-blue"),
        (vec![operator, flag("default")], "default", "istiod"),
    ] {
        let (pod, _) = built_in(&flags);
        assert_eq!(pod["metadata"]["annotations"]["istio.io/rev"], revision, "{flags:?}");
        let address = format!("{istiod}.istio-system.svc:15012");
        assert!(pod.to_string().contains(&address), "{flags:?} lacks {address}: {pod}");
    }
}

/// Returns the pod that `kube-inject` prints with the built-in configuration, and standard error.
fn built_in(flags: &[String]) -> (Value, String) {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let done = cnictl(&[&["kube-inject", "--builtIn", "-f", "-"], &flags[..]].concat(), POD, None);
    assert!(done.status.success(), "{flags:?}: {}", text(&done.stderr));
    let pod = inject::yaml::value(text(&done.stdout).trim_end_matches("---\n")).unwrap();
    (pod, text(&done.stderr))
}

#[test]
fn the_platform_of_values_and_of_an_operator_is_that_of_the_pod_unless_a_flag_names_another() {
    const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
    let files = Files::new();
    let values = |name| files.flags(&[("--valuesFile", name)]);
    let operator = |name| files.flags(&[("--operatorFileName", name)]);
    let platform = |mut flags: Vec<String>, name: &str| {
        flags.push(format!("--platform={name}"));
        flags
    };
    for (flags, is_called_by_multus) in [
        (Vec::new(), false),
        (values("openshift"), true),
        (operator("openshift-operator"), true),
        (operator("openshift-values"), true),
        (platform(Vec::new(), "openshift"), true),
        (platform(Vec::new(), ""), false),
        (platform(values("openshift"), "kubernetes"), false),
    ] {
        let (pod, said) = built_in(&flags);
        let networks = &pod["metadata"]["annotations"][NETWORKS];
        assert_eq!(networks == "default/istio-cni", is_called_by_multus, "{flags:?}: {networks}");
        assert_eq!(said, "", "{flags:?}");
    }
    let explained = cnictl(&["explain", "--builtIn", "--platform=openshift", "-f", "-"], POD, None);
    assert!(explained.status.success(), "{}", text(&explained.stderr));
}

#[test]
fn components_of_an_operator_set_values_and_an_unknown_profile_is_named() {
    let files = Files::new();
    let (pod, said) = built_in(&files.flags(&[("--operatorFileName", "no-plugin")]));
    assert_eq!((&pod["spec"]["initContainers"][0]["name"], &*said), (&json!("istio-init"), ""));
    let (_, said) = built_in(&files.flags(&[("--operatorFileName", "demo")]));
    assert!(said.starts_with("the values of the IstioOperator's profile demo are not known"), "{said}");
}

#[test]
fn the_revision_and_the_namespace_of_istiod_are_in_the_addresses_of_the_built_in_templates() {
    let files = Files::new();
    let flags = |flags: &[&str]| flags.iter().map(ToString::to_string).collect::<Vec<_>>();
    let canary = files.flags(&[("--valuesFile", "canary")]);
    for (flags, address) in [
        (Vec::new(), "istiod.istio-system.svc:15012"),
        (flags(&["-r", "default"]), "istiod.istio-system.svc:15012"),
        (flags(&["-r", "canary"]), "istiod-canary.istio-system.svc:15012"),
        (flags(&["-i", "mesh"]), "istiod.mesh.svc:15012"),
        (canary.clone(), "istiod-canary.mesh.svc:15012"),
        ([canary, flags(&["-r", "stable", "-i", "other"])].concat(), "istiod-stable.other.svc:15012"),
    ] {
        let (pod, _) = built_in(&flags);
        let env = pod["spec"]["containers"][1]["env"].as_array().unwrap();
        let value = |name: &str| env.iter().find(|one| one["name"] == name).unwrap()["value"].as_str().unwrap();
        let config: Value = serde_json::from_str(value("PROXY_CONFIG")).unwrap();
        let discovery = config["discoveryAddress"].as_str().unwrap_or("istiod.istio-system.svc:15012");
        assert_eq!([value("CA_ADDR"), discovery], [address; 2], "{flags:?}");
    }
}

#[test]
fn an_image_without_registry_is_refused_and_so_is_a_webhooks_name() {
    let files = Files::new();
    let error = sidecar(&files.flags(&[TEMPLATE_FILE, MESH_FILE, ("--valuesFile", "no-image")]), None).unwrap_err();
    assert!(
        error.contains("the image of istio-proxy would be \"/proxyv2:\": the values have no global.hub"),
        "{error}"
    );
    let error = sidecar(&["--webhookConfig", "x"].map(str::to_owned), None).unwrap_err();
    assert!(error.contains("--webhookConfig is not supported"), "{error}");
}

#[test]
fn a_separator_with_text_is_refused() {
    let done = cnictl(&["kube-inject", "--builtIn", "-f", "-"], &format!("{POD}--- text\n{POD}"), None);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()));
    assert!(text(&done.stderr).contains("line 5: the separator"), "{}", text(&done.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_of_a_pod_decides_whether_its_sidecar_is_native() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = kubeconfig(dir.path(), &api.url());
    for (name, version) in [("new", "v1.33.1"), ("old", "v1.30.0")] {
        api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "status": { "nodeInfo": { "kubeletVersion": version } } }));
    }
    for (node, native) in [("new", true), ("old", false), ("nosuch", false), ("\"\"", false)] {
        let pod = POD.replace("{containers", &format!("{{nodeName: {node}, containers"));
        let done = cnictl(&["kube-inject", "-f", "-"], &pod, Some(&path));
        let pod = inject::yaml::value(text(&done.stdout).trim_end_matches("---\n")).unwrap();
        let found = pod["spec"]["containers"].as_array().unwrap().len() == 1;
        assert_eq!(found, native, "{node}: {}", text(&done.stderr));
    }
}

#[test]
fn built_in_runs_no_plugin_of_the_kubeconfig() {
    let dir = tempfile::tempdir().unwrap();
    let (path, ran) = (dir.path().join("kubeconfig"), dir.path().join("ran"));
    let exec = serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/touch",
        "args": [ran], "interactiveMode": "Never"});
    let config = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": exec}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(&path, config.to_string()).unwrap();
    cnictl(&["kube-inject", "-f", "-"], POD, Some(&path));
    assert!(ran.exists(), "a client runs the plugin");
    std::fs::remove_file(&ran).unwrap();
    assert!(cnictl(&["kube-inject", "--builtIn", "-f", "-"], POD, Some(&path)).status.success());
    assert!(!ran.exists(), "--builtIn runs the plugin");
}
