//! The real helm, and what it makes of the chart.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use crate::objects;

/// The chart of the node agent.
pub(crate) const CHART: &str = "install/helm/istio-cni";
/// The one that the manifests are rendered for: it is in each cluster.
const NAMESPACE: &str = "kube-system";
/// A build of helm by `go install` takes clusters for very old ones.
const KUBERNETES: &str = "1.33.0";

/// A trial that is ignored, with the reason, where there is no helm, unless `REQUIRE_TIERS` names `helm`.
pub(crate) fn trial(name: &str, body: fn()) -> Trial {
    Trial::ignorable_test(name, move || {
        if program().is_some() {
            body();
            return Ok(Completion::Completed);
        }
        let missing = "helm is neither named by HELM nor on the PATH";
        let required = env::var("REQUIRE_TIERS").unwrap_or_default();
        if required.split(',').any(|tier| tier == "helm") {
            return Err(Failed::from(format!("REQUIRE_TIERS names helm, but {missing}")));
        }
        Ok(Completion::ignored_with(missing))
    })
}

fn program() -> Option<PathBuf> {
    let on_path = || env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join("helm")).find(|path| path.is_file());
    env::var_os("HELM").map(PathBuf::from).filter(|path| path.is_file()).or_else(on_path)
}

/// The text that helm renders with these values (`repair.mode="evict"`, the right side JSON), or what it says against them.
pub(crate) fn try_text(values: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program().unwrap());
    command.args(["template", "istio-cni", CHART, "--namespace", NAMESPACE, "--kube-version", KUBERNETES]);
    for value in values {
        command.args(["--set-json", value]);
    }
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The same, where the values are right.
pub(crate) fn text(values: &[&str]) -> String {
    try_text(values).unwrap_or_else(|error| panic!("helm renders nothing with {values:?}: {error}"))
}

/// The same as objects.
pub(crate) fn render(values: &[&str]) -> Vec<Value> {
    objects::parse(&text(values))
}
