//! Compares documents of `kube-inject` with Istio's, byte for byte, except for differences [on purpose](super::on_purpose).

use std::path::Path;

use libtest_mimic::Failed;
use serde_json::Value;

use super::case::read;
use super::kube_inject::kube_inject;
use super::on_purpose;
use super::types::equal;

pub(crate) fn check(dir: &Path) -> Result<(), Failed> {
    let case: Value = serde_json::from_str(&read(dir, "case.json")?)?;
    let settings = dir.join("../../settings").join(case["settings"].as_str().unwrap_or_default());
    let path = |dir: &Path, name: &str| dir.join(name).display().to_string();
    let arguments = [
        format!("--injectConfigFile={}", path(&settings, "config.yaml")),
        format!("--valuesFile={}", path(&settings, "values.json")),
        format!("--meshConfigFile={}", path(dir, "mesh.yaml")),
        format!("--revision={}", case["revision"].as_str().unwrap_or_default()),
        format!("--nativeSidecars={}", case["native_sidecars"] == true),
    ];
    let arguments = arguments.each_ref().map(String::as_str);
    let output = kube_inject(&arguments, read(dir, "input.yaml")?.as_bytes());
    if dir.join("error.txt").exists() {
        return refused(output, read(dir, "error.txt")?.trim());
    }
    let output = output?;
    equal(&on_purpose::expected(&read(dir, "input.yaml")?, &read(dir, "want.yaml")?)?, &output)?;
    let again = kube_inject(&arguments, output.as_bytes())?;
    equal(&output, &again).map_err(|line| format!("the second time: {line}").into())
}

fn refused(output: Result<String, Failed>, expected: &str) -> Result<(), Failed> {
    match output {
        Ok(_) => Err(format!("was injected; expected an error with {expected:?}").into()),
        Err(error) => {
            let message = error.message().unwrap_or_default().to_lowercase();
            let named = message.contains(&expected.to_lowercase());
            named.then_some(()).ok_or_else(|| format!("expected {expected:?} in {message:?}").into())
        }
    }
}
