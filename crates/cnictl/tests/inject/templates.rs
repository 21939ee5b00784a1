//! Parses each of Istio's templates in the corpus and renders it for each pod; the results must be valid YAML.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use gotemplate::{Budget, Delims, Record, Template, Value};
use inject::istio::functions;
use inject::istio::shapes::{mesh, pod};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value as Json, json};

pub(crate) fn trials(corpus: &Path) -> Vec<Trial> {
    let cases = ["webhook", "webhook-legacy"].map(|folder| std::fs::read_dir(corpus.join(folder)));
    let mut trials = Vec::new();
    for entries in cases {
        let Ok(entries) = entries else {
            return vec![tier::without_corpus("templates", corpus)];
        };
        for case in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let (name, corpus) = (
                case.strip_prefix(corpus).map_or_else(|_| String::new(), |name| name.display().to_string()),
                corpus.to_owned(),
            );
            trials.push(Trial::test(format!("templates/{name}"), move || {
                renders(&corpus, &case).map_err(|error| Failed::from(format!("{error:#}")))
            }));
        }
    }
    trials
}

fn renders(corpus: &Path, case: &Path) -> Result<()> {
    let read = |name: &str| -> Result<Json> {
        let path = case.join(name);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
    };
    let settings = read("case.json")?;
    let (config, values, mesh, pod) = match settings["settings"].as_str() {
        Some(name) => {
            let dir = corpus.join("settings").join(name);
            let text = |name: &str| std::fs::read_to_string(dir.join(name));
            (
                serde_saphyr::from_str(&text("config.yaml")?)?,
                serde_json::from_str(&text("values.json")?)?,
                read("mesh.yaml")?,
                read("pod.json")?,
            )
        }
        None => (read("config.yaml")?, settings["values"].clone(), settings["mesh"].clone(), read("pod.yaml")?),
    };
    let legacy = json!({ "template": config["template"] });
    let templates = config["templates"].as_object().or(legacy.as_object()).context("templates")?;
    for (name, text) in templates {
        let text = text.as_str().with_context(|| name.clone())?;
        let template = Template::parse(name, text, Delims::BRACES, &functions::all(BTreeMap::new()))?;
        let gateway = text.contains(".InfrastructureLabels");
        let rendered = with_data(&pod, &mesh, &values, gateway, |data| template.render(data, &mut Budget::default()))?;
        for document in rendered.split("\n---\n") {
            let parsed = serde_saphyr::from_str::<Json>(document);
            ensure!(parsed.is_ok(), "{name} is not YAML: {parsed:?}\n{document}");
        }
        ensure!(gateway || !rendered.contains("<no value>"), "{name} misses a value:\n{rendered}");
    }
    Ok(())
}

/// Calls `render` with the data that the injector passes to templates or, for `gateway`, with the data that Istio's
/// gateway controller passes.
fn with_data<T>(pod: &Json, mesh: &Json, values: &Json, gateway: bool, render: impl FnOnce(&Value<'_>) -> T) -> T {
    let deployment = [("name", "hello"), ("namespace", "test-ns")];
    let record = |name, pairs: [(&'static str, &'static str); 2]| {
        Record::value(name, pairs.map(|(key, value)| (key, Value::from(value))).to_vec())
    };
    let spec = json!({ "Addresses": [{ "Value": "10.0.0.1" }] });
    let ports = json!([{ "Name": "http", "Port": 80, "AppProtocol": "http" }]);
    let mut fields = vec![
        ("TypeMeta", record("metav1.TypeMeta", [("APIVersion", "apps/v1"), ("Kind", "Deployment")])),
        (
            "DeploymentMeta",
            record(
                "metav1.ObjectMeta",
                deployment.map(|(key, value)| (if key == "name" { "Name" } else { "Namespace" }, value)),
            ),
        ),
        ("ObjectMeta", Value::shaped(&pod["metadata"], &pod::OBJECT_META)),
        ("Spec", if gateway { Value::json(&spec) } else { Value::shaped(&pod["spec"], &pod::POD_SPEC) }),
        ("ProxyConfig", Value::shaped(&mesh["defaultConfig"], &mesh::PROXY_CONFIG)),
        ("MeshConfig", Value::shaped(mesh, &mesh::MESH_CONFIG)),
        ("Values", Value::json(values)),
        ("NativeSidecars", Value::Bool(true)),
        ("ProxyUID", Value::Nil),
        ("ProxyGID", Value::Nil),
        ("KubeVersion", Value::Int(133)),
        ("InfrastructureLabels", Value::texts(pod["metadata"].get("labels"))),
        ("InfrastructureAnnotations", Value::texts(pod["metadata"].get("annotations"))),
        ("Ports", Value::json(&ports)),
    ];
    let names = [
        "Revision",
        "ProxyImage",
        "ProxyInitImage",
        "InboundTrafficPolicyMode",
        "CompliancePolicy",
        "Name",
        "Namespace",
        "ServiceAccount",
        "UID",
        "DeploymentName",
        "GatewayNameLabel",
        "GatewayClass",
        "ControllerLabel",
        "ServiceType",
        "ClusterID",
        "AgentgatewayImage",
        "SystemNamespace",
    ];
    fields.extend(names.map(|name| (name, Value::from("text"))));
    render(&Record::value("inject.SidecarTemplateData", fields))
}
