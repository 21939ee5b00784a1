//! Tests the webhook of the manifest in a cluster with the ConfigMaps of Istio's chart, and in one without them.
//!
//! istiod does not run. The webhook and the pods read only istiod's ConfigMaps: `istio-sidecar-injector`, `istio`, and
//! `istio-ca-root-cert` in each namespace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use contract::{annotation, container};
use inject::Struct;
use serde_json::{Value, json};

use crate::injector::Injector;
use crate::objects::{plain, standalone};
use crate::stage::{Case, Missing, Scope, Stage};
use crate::webhook::{Labelled, Temporary, names};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "webhook_alone_injects_a_sidecar_for_istiods_default_address",
        namespace: "alone",
        scope: Scope::Full,
        body: alone,
    },
    Case {
        name: "webhook_with_istiods_config_maps_injects_the_sidecar_that_istio_injects",
        namespace: "beside",
        scope: Scope::Full,
        body: beside,
    },
];

/// The address of istiod that the webhook assumes if there is no configuration.
const ISTIOD: &str = "istiod.istio-system.svc:15012";

fn alone(stage: &Stage<'_>) -> Result<()> {
    let injector = Injector::of_the_manifest(stage.cluster)?;
    let namespace = Temporary::new(stage, "alone-shop", &[("istio-injection", "enabled")])?;
    namespace.injected(&standalone("web", plain()))?;
    let pod = namespace.admitted(&standalone("web", plain()))?;
    let proxy = item(&pod["spec"]["initContainers"], container::PROXY)?;
    for (name, value) in [("CA_ADDR", ISTIOD), ("PILOT_CERT_PROVIDER", "istiod"), ("TRUST_DOMAIN", "cluster.local")] {
        assert_eq!(item(&proxy["env"], name)?["value"], value, "{name}");
    }
    let probe = json!({ "path": "/healthz/ready", "port": 15021, "scheme": "HTTP" });
    assert_eq!((&proxy["readinessProbe"]["httpGet"], &proxy["startupProbe"]["httpGet"]), (&probe, &probe));
    let volumes = &pod["spec"]["volumes"];
    let token = json!({ "path": "istio-token", "audience": "istio-ca", "expirationSeconds": 43200 });
    assert_eq!(item(volumes, "istio-token")?["projected"]["sources"], json!([{ "serviceAccountToken": token }]));
    assert_eq!(item(volumes, "istiod-ca-cert")?["configMap"]["name"], "istio-ca-root-cert");
    for (volume, path) in [("istio-token", "/var/run/secrets/tokens"), ("istiod-ca-cert", "/var/run/secrets/istio")] {
        assert_eq!(item(&proxy["volumeMounts"], volume)?["mountPath"], path);
    }
    injector.wait_for_log(&[
        "warn",
        "there is no injection configuration",
        &format!("assumes istiod and its CA at {ISTIOD}"),
    ])?;
    Ok(())
}

/// For the recorded pods of [`Corpus`], the webhook must add the same sidecar as Istio's injector.
fn beside(stage: &Stage<'_>) -> Result<()> {
    let corpus = Corpus::open()?;
    let _system = Temporary::new(stage, "istio-system", &[])?;
    for (name, data) in corpus.config_maps()? {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
        stage.cluster.create("/api/v1/namespaces/istio-system/configmaps", &map)?;
    }
    let injector = Injector::of_the_manifest(stage.cluster)?;
    // The recorded pods have no namespace, and their recorded sidecars name the namespace `default`, so the pods are
    // created there.
    let _labelled = Labelled::new(stage, "default", "istio-injection", "enabled")?;
    let admitted = |pod: &Value| stage.cluster.create("/api/v1/namespaces/default/pods?dryRun=All", pod);
    stage.cluster.until("the webhook injects pods", |_| {
        let pod = admitted(&standalone("web", plain()))?;
        ensure!(names(&pod, "initContainers").contains(&container::PROXY), "{}", pod["spec"]);
        Ok(())
    })?;
    let (mut equal, mut invalid, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for dir in &corpus.cases {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pod = read(dir, "pod.json")?;
        match admitted(&owned(pod)) {
            Ok(pod) => {
                let want =
                    Struct::named("core.Pod").context("the table has pods")?.canonical(read(dir, "want.json")?)?;
                let found = differences(&owned(want), &pod);
                if found.is_empty() { equal.push(name) } else { wrong.push(format!("{name}:\n{}", found.join("\n"))) }
            }
            // The API server refuses some recorded pods as invalid. It must then also refuse the result that Istio's
            // injector recorded.
            Err(error) if is_invalid(&error) => match admitted(&without_injection(owned(read(dir, "want.json")?))) {
                Err(recorded) if is_invalid(&recorded) => invalid.push(format!("{name}: {error:#}")),
                Err(recorded) => wrong.push(format!("{name}: as recorded: {recorded:#}")),
                Ok(_) => wrong.push(format!("{name}: valid as recorded but invalid as injected: {error:#}")),
            },
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), injector.log()?);
    ensure!(
        equal.len() > invalid.len(),
        "only {} pods were compared, the API server refused {invalid:#?}",
        equal.len()
    );
    let log = injector.log()?;
    assert!(!log.contains("there is no injection configuration") && !log.contains("forbidden"), "{log}");
    Ok(())
}

/// Adds the UID that the recorded owner references omit and the API server requires.
fn owned(mut pod: Value) -> Value {
    for owner in pod["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        owner["uid"] = "recorded".into();
    }
    pod
}

/// Whether the API server has refused an object as invalid.
fn is_invalid(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("is invalid")
}

/// Returns a recorded pod with the label that excludes it from injection.
fn without_injection(mut pod: Value) -> Value {
    pod["metadata"]["labels"][annotation::INJECT] = "false".into();
    pod
}

/// Returns the fields of `want` that the pod lacks or has with another value. Ignores fields that only the pod has: the
/// API server adds defaults and the token's volume.
fn differences(want: &Value, pod: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    compare("", want, pod, &mut differences);
    for list in ["containers", "initContainers"] {
        if names(want, list) != names(pod, list) {
            differences.push(format!("{list}: {:?} instead of {:?}", names(pod, list), names(want, list)));
        }
    }
    differences
}

fn compare(path: &str, want: &Value, found: &Value, differences: &mut Vec<String>) {
    match (want, found) {
        (Value::Object(want), Value::Object(found)) => {
            for (key, want) in want {
                compare(&format!("{path}.{key}"), want, found.get(key).unwrap_or(&Value::Null), differences);
            }
        }
        (Value::Array(want), Value::Array(found)) if want.len() == found.len() => {
            for (at, (want, found)) in want.iter().zip(found).enumerate() {
                compare(&format!("{path}[{at}]"), want, found, differences);
            }
        }
        // Named items are compared by name, because the API server has added a volume and its mounts.
        (Value::Array(items), Value::Array(_)) if items.iter().all(|item| item["name"].is_string()) => {
            for want in items {
                let name = want["name"].as_str().unwrap_or_default();
                compare(&format!("{path}.{name}"), want, item(found, name).unwrap_or(&Value::Null), differences);
            }
        }
        (Value::String(a), Value::String(b)) if a != b => match (serde_json::from_str(a), serde_json::from_str(b)) {
            // JSON strings in annotations and variables are compared by their fields: they contain parts of the pod, to which the API
            // server has applied defaults before it called the webhook.
            (Ok(want @ (Value::Object(_) | Value::Array(_))), Ok(found)) => compare(path, &want, &found, differences),
            _ => differences.push(format!("  {path}: {found} instead of {want}")),
        },
        // The API server may omit an empty object.
        (Value::Object(want), Value::Null) if want.is_empty() => {}
        (Value::Null, _) => {}
        (want, found) if want == found => {}
        (want, found) => differences.push(format!("  {path}: {found} instead of {want}")),
    }
}

/// Returns the item of a list whose field `name` has this value.
fn item<'v>(list: &'v Value, name: &str) -> Result<&'v Value> {
    let items = list.as_array().into_iter().flatten();
    items.into_iter().find(|item| item["name"] == name).with_context(|| format!("no {name} in {list}"))
}

/// The cases of the corpus that were recorded with the default settings of Istio's chart and the default mesh
/// configuration.
struct Corpus {
    settings: PathBuf,
    mesh: String,
    cases: Vec<PathBuf>,
}

/// The name of a case with the default settings, by which the others are recognized.
const REPRESENTATIVE: &str = "auth-0";

impl Corpus {
    fn open() -> Result<Self> {
        let root = std::env::var_os("CORPUS_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"), PathBuf::from);
        let dir = root.join("webhook");
        let missing = || Missing(format!("needs the corpus: {} has no {REPRESENTATIVE}", dir.display()));
        let like = read(&dir.join(REPRESENTATIVE), "case.json").map_err(|_| missing())?;
        let mesh = text(&dir.join(REPRESENTATIVE), "mesh.yaml")?;
        let mut cases = Vec::new();
        for entry in fs::read_dir(&dir)? {
            let dir = entry?.path();
            let case = read(&dir, "case.json")?;
            let same = ["settings", "native_sidecars", "revision", "platform", "compliance_policy"];
            let same = same.iter().all(|key| case[key] == like[key]) && text(&dir, "mesh.yaml")? == mesh;
            let namespace = case["request_namespace"].as_str().unwrap_or_default();
            let own = read(&dir, "pod.json")?["metadata"]["namespace"].is_string();
            if same && !own && matches!(namespace, "" | "default") && dir.join("want.json").exists() {
                cases.push(dir);
            }
        }
        let settings = root.join("settings").join(like["settings"].as_str().context("settings")?);
        Ok(Self { settings, mesh, cases })
    }

    /// Returns the names and contents of the ConfigMaps that Istio's chart creates.
    fn config_maps(&self) -> Result<[(&'static str, Value); 2]> {
        let injector =
            json!({ "config": text(&self.settings, "config.yaml")?, "values": text(&self.settings, "values.json")? });
        Ok([
            ("istio-sidecar-injector", injector),
            ("istio", json!({ "mesh": self.mesh, "meshNetworks": "networks: {}" })),
        ])
    }
}

fn text(dir: &Path, name: &str) -> Result<String> {
    let path = dir.join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn read(dir: &Path, name: &str) -> Result<Value> {
    Ok(serde_json::from_str(&text(dir, name)?)?)
}
