//! Renders the charts with helm.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::objects;
use crate::tool::HELM;

/// A chart of `install/helm` and the manifest that is rendered from its default values.
#[derive(Clone, Copy)]
pub(crate) struct Chart {
    /// The name of the chart, its release and the manifest.
    pub(crate) name: &'static str,
}

/// The chart of the node agent.
pub(crate) const AGENT: Chart = Chart { name: "istio-cni" };
/// The chart of the webhook.
pub(crate) const INJECTOR: Chart = Chart { name: "sidecar-injector" };

/// The namespace of the manifests, which exists in each cluster.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The Kubernetes version that is passed to helm: a helm from `go install` assumes a very old one.
const KUBERNETES: &str = "1.33.0";

impl Chart {
    /// Returns the chart's directory.
    pub(crate) fn directory(self) -> String {
        format!("install/helm/{}", self.name)
    }

    /// Returns the content of the manifest.
    pub(crate) fn manifest(self) -> String {
        fs::read_to_string(format!("manifests/{}.yaml", self.name)).unwrap()
    }

    /// Returns the schema of the chart's values.
    pub(crate) fn schema(self) -> Value {
        self.json("values.schema.json")
    }

    /// Returns the defaults of the chart's values.
    pub(crate) fn defaults(self) -> Value {
        self.json("files/defaults.json")
    }

    fn json(self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(format!("{}/{name}", self.directory())).unwrap()).unwrap()
    }

    /// Renders the chart with values such as `repair.mode="evict"`, whose right sides are JSON; on failure returns
    /// helm's error.
    pub(crate) fn try_text(self, values: &[&str]) -> Result<String, String> {
        self.try_text_in(NAMESPACE, values)
    }

    fn try_text_in(self, namespace: &str, values: &[&str]) -> Result<String, String> {
        self.try_text_with(namespace, values.iter().flat_map(|value| ["--set-json", value]))
    }

    /// Renders the chart for a namespace with flags of `helm template`; on failure returns helm's error.
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

    /// Renders the chart with valid values.
    pub(crate) fn text(self, values: &[&str]) -> String {
        self.try_text(values).unwrap_or_else(|error| panic!("helm refuses {values:?}: {error}"))
    }

    /// Renders the chart for another namespace, as objects.
    pub(crate) fn render_in(self, namespace: &str) -> Vec<Value> {
        let text = self.try_text_in(namespace, &[]);
        objects::parse(&text.unwrap_or_else(|error| panic!("helm cannot render the chart for {namespace}: {error}")))
    }

    /// Renders the chart with valid values, as objects.
    pub(crate) fn render(self, values: &[&str]) -> Vec<Value> {
        objects::parse(&self.text(values))
    }
}
