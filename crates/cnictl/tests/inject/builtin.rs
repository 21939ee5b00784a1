//! Compares the built-in templates with Istio's, with Istio's values and mesh configuration: for each case of the corpus
//! with Istio's expected output, and for pods of our own with what Istio's templates make of them.
//!
//! Every difference has a reason in `explained`. The run prints how many cases are equal, and the differences by reason.

mod compare;
mod explained;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use inject::istio::{BuiltIn, Config, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};
use inject::yaml;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::case::{Case, read};
use super::kube_inject::kube_inject;
use super::on_purpose;
use compare::{Difference, differences};
use explained::{EXPLAINED, Inputs};

/// Templates in Istio's configuration that only its gateway controller uses, and no pod.
const OF_GATEWAY_CONTROLLER: [&str; 4] = ["agentgateway", "agentgateway-waypoint", "kube-gateway", "waypoint"];

/// The least share of cases that equal Istio's output, in percent.
const LEAST: usize = 95;

/// The results of a run: the number of cases, of equal cases, and the cases with a difference by its name.
#[derive(Default)]
struct Table {
    total: usize,
    equal: usize,
    /// The equal cases in whose expected output a part is changed on purpose, for a difference that does not depend on
    /// the templates.
    changed: BTreeSet<String>,
    by_name: BTreeMap<&'static str, BTreeSet<String>>,
    unexplained: Vec<String>,
}

impl Table {
    /// Adds a case with its differences.
    fn add(&mut self, case: &str, inputs: &Inputs, differences: &[Difference]) {
        self.total += 1;
        self.equal += usize::from(differences.is_empty());
        for difference in differences {
            match EXPLAINED.iter().find(|known| (known.explains)(difference, inputs)) {
                Some(known) => drop(self.by_name.entry(known.name).or_default().insert(case.to_owned())),
                None => self.unexplained.push(format!("{case}: {difference}")),
            }
        }
    }

    fn print(&self, what: &str) {
        println!("{what}: {} of {} equal", self.equal, self.total);
        if !self.changed.is_empty() {
            let names = self.changed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            println!(
                "  of them, {} with the differences of every template (docs/webhook.md): {names}",
                self.changed.len()
            );
        }
        for known in EXPLAINED {
            let Some(cases) = self.by_name.get(known.name) else { continue };
            let first: Vec<&str> = cases.iter().map(String::as_str).take(3).collect();
            let more = if cases.len() > first.len() { ", …" } else { "" };
            println!("  {}: {} cases ({}{more})\n    {}", known.name, cases.len(), first.join(", "), known.reason);
        }
    }
}

pub(crate) fn trials(corpus: &Path) -> Vec<Trial> {
    if !corpus.join("settings").exists() {
        return vec![tier::without_corpus("built-in templates", &corpus.join("settings"))];
    }
    let corpus = corpus.to_owned();
    vec![
        Trial::test("the built-in templates equal Istio's but for listed differences", move || equal(&corpus)),
        Trial::test("all differences of the built-in templates are documented", documented),
        Trial::test("the file for gRPC's library is JSON with the pod's names", bootstrap),
    ]
}

fn documented() -> Result<(), Failed> {
    let text = std::fs::read_to_string(Path::new(crate::REPOSITORY).join("docs/webhook.md"))?;
    let section = text.split("## The built-in templates").nth(1).ok_or("no such section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let bullets = section.lines().filter_map(|line| line.strip_prefix("- `")?.split_once("`: "));
    let listed: BTreeSet<&str> = bullets.map(|(name, _)| name).collect();
    let known: BTreeSet<&str> = EXPLAINED.iter().map(|known| known.name).collect();
    (listed == known).then_some(()).ok_or_else(|| format!("listed {listed:?}, tested {known:?}").into())
}

fn equal(corpus: &Path) -> Result<(), Failed> {
    let mut cases = Table::default();
    for folder in ["kube-inject", "webhook"] {
        let mut dirs: Vec<_> = std::fs::read_dir(corpus.join(folder))?.filter_map(|e| Some(e.ok()?.path())).collect();
        dirs.sort();
        for dir in dirs {
            let name = format!("{folder}/{}", dir.file_name().unwrap_or_default().to_string_lossy());
            let checked = if folder == "webhook" { reviewed(&dir) } else { documents(&dir) };
            let Compared { inputs, found, is_changed } =
                checked.map_err(|error| format!("{name}: {}", error.message().unwrap_or_default()))?;
            cases.add(&name, &inputs, &found);
            if is_changed && found.is_empty() {
                cases.changed.insert(name);
            }
        }
    }
    let mut own = Table::default();
    for (name, inputs) in pods::all(corpus)? {
        let found = both(&inputs).map_err(|error| format!("{name}: {}", error.message().unwrap_or_default()))?;
        own.add(&name, &inputs, &found);
    }
    cases.print("built-in templates, cases of the corpus");
    own.print("built-in templates, pods of our own");
    let unexplained: Vec<_> = cases.unexplained.iter().chain(&own.unexplained).map(String::as_str).collect();
    if !unexplained.is_empty() {
        return Err(format!("{} differences without a reason:\n{}", unexplained.len(), unexplained.join("\n")).into());
    }
    let occurs = |name: &str| cases.by_name.contains_key(name) || own.by_name.contains_key(name);
    if let Some(known) = EXPLAINED.iter().find(|known| !occurs(known.name)) {
        return Err(format!("the listed difference {:?} does not occur", known.name).into());
    }
    let enough = cases.equal * 100 >= cases.total * LEAST;
    enough.then_some(()).ok_or_else(|| format!("fewer than {LEAST} % of the cases are equal").into())
}

/// Returns the configuration with the built-in templates in place of Istio's, and without those of the gateway
/// controller; other templates stay.
fn with_built_in(config: &str) -> Result<String, Failed> {
    let mut config = yaml::value(config)?;
    let templates = config["templates"].as_object_mut().ok_or("the configuration has no templates")?;
    templates.retain(|name, _| !OF_GATEWAY_CONTROLLER.contains(&name.as_str()));
    for (name, text) in BuiltIn::templates() {
        templates.insert(name.to_owned(), text.into()).ok_or("Istio has no such template")?;
    }
    Ok(config.to_string())
}

fn inputs(dir: &Path, pod: &str) -> Result<Inputs, Failed> {
    let case: Value = serde_json::from_str(&read(dir, "case.json")?)?;
    let settings = dir.join("../../settings").join(case["settings"].as_str().unwrap_or_default());
    Ok(Inputs {
        config: read(&settings, "config.yaml")?,
        values: serde_json::from_str(&read(&settings, "values.json")?)?,
        mesh: read(dir, "mesh.yaml")?,
        pod: read(dir, pod)?,
        native: case["native_sidecars"] == true,
        openshift: case["platform"] == "openshift",
    })
}

/// The result of injecting a case of the corpus.
struct Compared {
    inputs: Inputs,
    found: Vec<Difference>,
    /// Whether Istio's expected output was changed on purpose.
    is_changed: bool,
}

impl Compared {
    fn refused(inputs: Inputs) -> Self {
        Self { inputs, found: Vec::new(), is_changed: false }
    }
}

/// Injects a case of the webhook, and compares it with Istio's pod.
fn reviewed(dir: &Path) -> Result<Compared, Failed> {
    let inputs = inputs(dir, "pod.json")?;
    let case = Case::with_config(dir, with_built_in)?;
    let (pod, annotations) = (serde_json::from_str(&inputs.pod)?, case.namespace_annotations());
    let request = Request {
        namespace_annotations: Some(&annotations),
        native_sidecars: inputs.native,
        ..Request::new(&pod, case.json["request_namespace"].as_str().unwrap_or_default())
    };
    let outcome = case.injector.review(&request);
    if dir.join("error.txt").exists() {
        let (error, expected) = (outcome.err().ok_or("was injected")?.to_string(), read(dir, "error.txt")?);
        refused_for(&error, &expected)?;
        return Ok(Compared::refused(inputs));
    }
    let mut found = match outcome? {
        InjectionOutcome::Skipped(_) => pod.clone(),
        InjectionOutcome::Injected { injected, .. } => injected.pod,
    };
    without_status(&mut found);
    let mut want = serde_json::from_str(&read(dir, "want.json")?)?;
    let is_changed = on_purpose::one_sidecar(&mut want)?;
    Ok(Compared { inputs, found: differences(want, found)?, is_changed })
}

fn refused_for(error: &str, expected: &str) -> Result<(), Failed> {
    let named = error.to_lowercase().contains(&expected.trim().to_lowercase());
    named.then_some(()).ok_or_else(|| format!("expected {expected:?} in {error:?}").into())
}

/// Injects a file of `kube-inject`, and compares it with Istio's output.
fn documents(dir: &Path) -> Result<Compared, Failed> {
    let inputs = inputs(dir, "input.yaml")?;
    let case: Value = serde_json::from_str(&read(dir, "case.json")?)?;
    let temporary = tempfile::tempdir()?;
    let path = |name: &str, text: &str| -> Result<String, Failed> {
        let path = temporary.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let arguments = [
        format!("--injectConfigFile={}", path("config", &with_built_in(&inputs.config)?)?),
        format!("--valuesFile={}", path("values", &inputs.values.to_string())?),
        format!("--meshConfigFile={}", path("mesh", &inputs.mesh)?),
        format!("--revision={}", case["revision"].as_str().unwrap_or_default()),
        format!("--nativeSidecars={}", inputs.native),
    ];
    let output = kube_inject(&arguments.each_ref().map(String::as_str), inputs.pod.as_bytes());
    if dir.join("error.txt").exists() {
        let error = output.err().ok_or("was injected")?;
        refused_for(error.message().unwrap_or_default(), &read(dir, "error.txt")?)?;
        return Ok(Compared::refused(inputs));
    }
    let istios = read(dir, "want.yaml")?;
    let (want, got) = (on_purpose::expected(&inputs.pod, &istios)?, output?);
    let is_changed = want != istios;
    if want == got {
        return Ok(Compared { inputs, found: Vec::new(), is_changed });
    }
    let parsed = |text: &str| -> Result<Value, Failed> {
        text.split("\n---\n").map(|document| Ok(yaml::value(document)?)).collect::<Result<Value, Failed>>()
    };
    let mut found = Vec::new();
    compare::compare("", &parsed(&want)?, &parsed(&got)?, &mut found);
    Ok(Compared { inputs, found, is_changed })
}

/// Returns the differences between what the built-in templates and Istio's make of a pod.
fn both(inputs: &Inputs) -> Result<Vec<Difference>, Failed> {
    let (istios, built_in) = (inputs.config.clone(), with_built_in(&inputs.config)?);
    let pod: Value = serde_json::from_str(&inputs.pod)?;
    let [expected, found] = [istios, built_in].map(|config| injected(inputs, &config, &pod));
    differences(expected?, found?)
}

fn injected(inputs: &Inputs, config: &str, pod: &Value) -> Result<Value, Failed> {
    let config = Config {
        settings: Settings::parse(config, None)?,
        values: Values::parse(&inputs.values.to_string())?,
        mesh: Mesh::parse(&inputs.mesh)?,
        revision: String::new(),
        platform: if inputs.openshift { Platform::OpenShift } else { Platform::Kubernetes },
        compliance_policy: "fips-140-3".to_owned(),
    };
    let range = || "1000620000/10000".to_owned();
    let namespace = ["uid-range", "supplemental-groups"].map(|what| (format!("openshift.io/sa.scc.{what}"), range()));
    let namespace = BTreeMap::from(namespace);
    let request = Request {
        native_sidecars: inputs.native,
        namespace_annotations: Some(&namespace),
        ..Request::new(pod, "shop")
    };
    match Injector::new(config).review(&request)? {
        InjectionOutcome::Injected { injected, .. } => {
            let mut pod = injected.pod;
            without_status(&mut pod);
            Ok(pod)
        }
        InjectionOutcome::Skipped(decision) => Err(decision.sentence().into()),
    }
}

/// Removes the status, which only repeats the names of what was added.
fn without_status(pod: &mut Value) {
    if let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove("sidecar.istio.io/status");
    }
}

/// Runs the command of `grpc-simple`, with the pod's names in place of the variables that the kubelet expands, and
/// checks the file that the command writes.
fn bootstrap() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    let metadata = json!({"name": "web", "annotations": {"inject.istio.io/templates": "grpc-simple"}});
    let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "app", "image": "i"}]}});
    let InjectionOutcome::Injected { injected, .. } = injector.review(&Request::new(&pod, "shop"))? else {
        return Err("was skipped".into());
    };
    let file = tempfile::NamedTempFile::new()?;
    let command = injected.pod["spec"]["initContainers"][0]["command"].as_array().ok_or("no command")?;
    let names = [
        ("$(INSTANCE_IP)", "10.0.0.7".to_owned()),
        ("$(POD_NAME)", "web".to_owned()),
        ("$(POD_NAMESPACE)", "shop".to_owned()),
        ("/var/lib/grpc/data/bootstrap.json", file.path().display().to_string()),
    ];
    let words: Vec<String> = command
        .iter()
        .filter_map(Value::as_str)
        .map(|word| names.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value)))
        .collect();
    let (program, arguments) = words.split_first().ok_or("an empty command")?;
    let status = std::process::Command::new(program).args(arguments).status()?;
    let written: Value = serde_json::from_str(&std::fs::read_to_string(file.path())?)?;
    let expected = json!({
        "xds_servers": [{
            "server_uri": "dns:///istiod.istio-system.svc:15010",
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        "node": {"id": "sidecar~10.0.0.7~web.shop~cluster.local", "metadata": {"GENERATOR": "grpc"}},
    });
    (status.success() && written == expected).then_some(()).ok_or_else(|| format!("{status}: {written}").into())
}
