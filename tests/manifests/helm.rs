//! The real helm, and what it makes of the charts.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::objects;
use crate::tool::HELM;

/// A chart of `install/helm`, and the plain manifest that it renders by default.
#[derive(Clone, Copy)]
pub(crate) struct Chart {
    /// Of the chart, its release and the manifest.
    pub(crate) name: &'static str,
}

/// The node agent's.
pub(crate) const AGENT: Chart = Chart { name: "istio-cni" };
/// The webhook's.
pub(crate) const INJECTOR: Chart = Chart { name: "sidecar-injector" };

/// The one that the manifests are rendered for: it is in each cluster.
pub(crate) const NAMESPACE: &str = "kube-system";
/// A build of helm by `go install` takes clusters for very old ones.
const KUBERNETES: &str = "1.33.0";

impl Chart {
    /// Where it is.
    pub(crate) fn directory(self) -> String {
        format!("install/helm/{}", self.name)
    }

    /// What is applied to a cluster as it is.
    pub(crate) fn manifest(self) -> String {
        fs::read_to_string(format!("manifests/{}.yaml", self.name)).unwrap()
    }

    /// The text that helm renders with these values (`repair.mode="evict"`, the right side JSON), or what it says against
    /// them.
    pub(crate) fn try_text(self, values: &[&str]) -> Result<String, String> {
        self.try_text_in(NAMESPACE, values)
    }

    fn try_text_in(self, namespace: &str, values: &[&str]) -> Result<String, String> {
        self.try_text_with(namespace, values.iter().flat_map(|value| ["--set-json", value]))
    }

    /// The same with flags of `helm template`.
    pub(crate) fn try_text_with<'a>(
        self,
        namespace: &str,
        flags: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, String> {
        let mut command = Command::new(HELM.program().unwrap());
        command.args(["template", self.name, &self.directory(), "--namespace", namespace]);
        command.args(["--kube-version", KUBERNETES]);
        let output = command.args(flags).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// The same, where the values are right.
    pub(crate) fn text(self, values: &[&str]) -> String {
        self.try_text(values).unwrap_or_else(|error| panic!("helm renders nothing with {values:?}: {error}"))
    }

    /// What it renders for another namespace.
    pub(crate) fn render_in(self, namespace: &str) -> Vec<Value> {
        let text = self.try_text_in(namespace, &[]);
        objects::parse(&text.unwrap_or_else(|error| panic!("helm renders nothing for {namespace}: {error}")))
    }

    /// The same as objects.
    pub(crate) fn render(self, values: &[&str]) -> Vec<Value> {
        objects::parse(&self.text(values))
    }
}
