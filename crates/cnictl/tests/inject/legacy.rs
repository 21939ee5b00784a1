//! Compares patches with the patches of Istio 1.8's webhook: the same operations in the same order.

use std::path::Path;

use inject::istio::{Config, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};
use inject::yaml;
use libtest_mimic::Failed;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::case::read;

pub(crate) fn check(dir: &Path) -> Result<(), Failed> {
    let case: Value = serde_json::from_str(&read(dir, "case.json")?)?;
    let text = read(dir, "config.yaml")?;
    let config = Config {
        settings: Settings::parse(&text, None)?,
        values: Values::parse(case["values"].as_str().unwrap_or(&case["values"].to_string()))?,
        mesh: Mesh::parse(&case["mesh"].to_string())?,
        revision: String::new(),
        platform: Platform::Kubernetes,
        compliance_policy: String::new(),
    };
    let pod: Value = yaml::value(&read(dir, "pod.yaml")?)?;
    let request = Request::new(&pod, "");
    let InjectionOutcome::Injected { injected, .. } = Injector::new(config).review(&request)? else {
        return Err("was skipped".into());
    };
    // The expected patches contain a fixed word where the injector writes the hash of the template.
    let template = yaml::value(&text)?["template"].as_str().unwrap_or_default().to_owned();
    let hash: String = Sha256::digest(template.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let version = case["template_version"].as_str().unwrap_or_default();
    let got: Vec<Value> = serde_json::from_str(&serde_json::to_string(&injected.patch())?.replace(&hash, version))?;
    let want: Vec<Value> = serde_json::from_str(&read(dir, "want.patch.json")?)?;
    for (at, want) in want.iter().enumerate() {
        let got = got.get(at).unwrap_or(&Value::Null);
        if want != got {
            return Err(format!("operation {at}:\n  expected {want}\n  got      {got}").into());
        }
    }
    (want.len() == got.len()).then_some(()).ok_or_else(|| format!("more operations: {:?}", &got[want.len()..]).into())
}
