//! The error of an invalid configuration, or of a pod that cannot be injected.

use super::early::Unanswered;
use super::proto::Mistyped;
use super::recorded::Damaged;
use super::startable::Unstartable;
use super::{status_port, user_volumes};
use crate::{Mismatch, merge, patch, yaml};

/// An error of the injection. The API server shows messages about a pod to its author.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of the configuration cannot be read.
    #[error("the {what} configuration cannot be read: {error}")]
    Configuration {
        /// The part of the configuration.
        what: &'static str,
        error: yaml::Error,
    },
    /// A part of the configuration is not a map.
    #[error("the {0} configuration is not a map: expected `key: value` pairs")]
    NoMap(&'static str),
    /// A value in the mesh configuration does not have its field's type.
    #[error("the mesh configuration is invalid: {0}")]
    Mesh(Mistyped),
    /// A value in a pod's annotation `proxy.istio.io/config` does not have its field's type.
    #[error("invalid value for annotation \"proxy.istio.io/config\": {0}")]
    ProxyConfig(Mistyped),
    /// A container would have an image without a registry or a tag.
    #[error("the image of {container} would be {image:?}: the values have no global.hub or no global.tag")]
    NoImage {
        container: String,
        /// The image that the template renders.
        image: String,
    },
    /// The image of a container would contain `<no value>` or `<nil>`, which templates print for a missing value.
    #[error(
        "the image of {container} would be {image:?}: {missing} has no value; values and template may be of different releases"
    )]
    NoValue {
        container: String,
        /// The image that the template renders.
        image: String,
        /// The expressions of the templates that have no value.
        missing: String,
    },
    /// The mesh's status port is invalid.
    #[error("statusPort of the mesh's defaultConfig is {0}, not a port from 0 to 65535")]
    StatusPort(String),
    /// The configuration has no template.
    #[error("the injection configuration has no template: both `templates` and `template` are absent or empty")]
    NoTemplates,
    /// A template does not compile, or cannot be rendered for this pod.
    #[error(transparent)]
    Template(#[from] gotemplate::Error),
    /// The injection of the pod exceeds the limit of steps, bytes or time of a review; see [`gotemplate::Budget`].
    #[error("this pod cannot be injected: {0}")]
    Exceeded(gotemplate::Exceeded),
    /// The pod requests an unknown template.
    #[error("requested template {name:?} not found; have {have}")]
    UnknownTemplate {
        /// The requested name.
        name: String,
        /// The names of the templates.
        have: String,
    },
    /// The output of a template is not YAML.
    #[error(
        "template {template} does not render YAML for this pod; values and template may be of different releases: {error}"
    )]
    Rendered {
        template: String,
        /// The parser's error, with the line in the output.
        error: yaml::Error,
    },
    /// The output of a template is neither a map nor empty.
    #[error("template {0} renders a list or a scalar for this pod: expected a partial pod, `key: value` pairs")]
    NoPod(String),
    /// A field of a template's output has the wrong type.
    #[error("the output of template {template} is not a partial pod: {error}")]
    Typed { template: String, error: Box<Mismatch> },
    /// The output of a template cannot be merged.
    #[error("the output of template {template} cannot be merged into the pod: {error}")]
    Merge { template: String, error: merge::Error },
    /// The pod's override of an injected container cannot be merged.
    #[error("the pod's own container {container} cannot be merged over the injected one: {error}")]
    Reapply { container: String, error: merge::Error },
    /// An annotation has an invalid value.
    #[error("invalid value {value:?} for annotation {name:?}: must be {allowed}")]
    Annotation {
        name: &'static str,
        /// The beginning of the annotation's value.
        value: String,
        /// The description of valid values.
        allowed: &'static str,
    },
    /// The annotation for volumes or mounts is malformed, or the API server would refuse one of its items.
    #[error("{0}")]
    UserVolume(Box<user_volumes::Invalid>),
    /// The pod's `prometheus.io/port`, in any of Prometheus' spellings, is not a port that the proxy's agent can scrape.
    #[error(
        "invalid value {value:?} for annotation {name:?}: must be a port from 1 to 65535 that is not the proxy's or its agent's"
    )]
    Scraped {
        name: String,
        /// The beginning of the annotation's value.
        value: String,
    },
    /// The injected pod has an annotation or an argument that the plugin, `istio-iptables` or the agent refuses.
    #[error(
        "the injected pod would not start: {0}; the value is from the pod, from Helm's values or from the template"
    )]
    Unredirectable(String),
    /// The pod's traffic is not redirected, and one of the pod's containers waits for the redirection or needs it.
    #[error("the injected pod would not start: {0}")]
    Unredirected(String),
    /// A string in the pod would break out of its place in the YAML that a template renders.
    #[error(
        "{field} cannot be injected: template {template} places it between quotes that do not hold its text, so that a part of it \
         would become YAML{}", if *is_json { "; a template that reads it as JSON must print nothing else of it, such as its length" } else { "" }
    )]
    Spliced {
        /// The path of the string in the pod.
        field: String,
        template: String,
        /// Whether the string is a map or a list in JSON.
        is_json: bool,
    },
    /// The pod has a sandboxed runtime, and the injector refuses such pods.
    #[error(
        "runtimeClassName {0:?} is a sandbox with a network stack of its own, which rules of the node's kernel do not reach; \
         this injector refuses such pods"
    )]
    Sandbox(String),
    /// The pod's override of an injected container has a field of the wrong type.
    #[error("container {container:?}: {error}")]
    Container { container: String, error: Box<Mismatch> },
    /// An annotation in which injections record what they did has a value that no injection writes.
    #[error("{0}")]
    Record(Box<Damaged>),
    /// An annotation cannot be parsed as YAML.
    #[error("annotation {what:?} is not YAML: {error}")]
    Yaml { what: &'static str, error: yaml::Error },
    /// The output of a legacy template does not have the types of a pod.
    #[error("the output of the template has invalid types: {0}")]
    Type(String),
    /// A workload has no pod spec.
    #[error("it has no pod: {0} is required")]
    NoPodSpec(String),
    /// A workload of a document cannot be injected.
    #[error("{kind} {name:?}: {cause}")]
    Workload {
        kind: String,
        /// `namespace/name`, or the name alone if the workload has no namespace.
        name: String,
        cause: Box<Error>,
    },
    /// The agent and its proxy cannot listen on their ports.
    #[error("the injected pod would not start: {0}")]
    Port(status_port::Invalid),
    /// Nothing would answer a probe or hook on which the start of the pod or a container depends.
    #[error("the injected pod would not start: {0}")]
    Unanswered(Box<Unanswered>),
    /// The injected pod would not be created, or would not start.
    #[error("the injected pod would not start: {0}")]
    Unstartable(Box<Unstartable>),
    /// The patch of a legacy template cannot be applied, because fields of the pod have wrong types.
    #[error("fields of the pod have invalid types: {0}")]
    Patch(patch::PatchError),
}

impl From<gotemplate::Exceeded> for Error {
    fn from(error: gotemplate::Exceeded) -> Self {
        Self::Exceeded(error)
    }
}

impl From<Unstartable> for Error {
    fn from(error: Unstartable) -> Self {
        Self::Unstartable(Box::new(error))
    }
}

impl From<Damaged> for Error {
    fn from(error: Damaged) -> Self {
        Self::Record(Box::new(error))
    }
}

impl From<user_volumes::Invalid> for Error {
    fn from(error: user_volumes::Invalid) -> Self {
        Self::UserVolume(Box::new(error))
    }
}

impl From<Unanswered> for Error {
    fn from(error: Unanswered) -> Self {
        Self::Unanswered(Box::new(error))
    }
}

impl From<status_port::Invalid> for Error {
    fn from(error: status_port::Invalid) -> Self {
        Self::Port(error)
    }
}

impl From<patch::PatchError> for Error {
    fn from(error: patch::PatchError) -> Self {
        Self::Patch(error)
    }
}

impl Error {
    /// Whether the cause of the error, at any depth, is that the review exceeded its budget.
    pub fn is_exceeded(&self) -> bool {
        match self {
            Self::Exceeded(_) => true,
            Self::Workload { cause, .. } => cause.is_exceeded(),
            Self::Template(gotemplate::Error::Render(failure)) => {
                matches!(failure.reason, gotemplate::Reason::Exceeded(_) | gotemplate::Reason::TooDeep(_))
            }
            Self::Merge { error, .. } | Self::Reapply { error, .. } => matches!(error, merge::Error::Exceeded(_)),
            _ => false,
        }
    }

    /// Returns the error for a template whose output cannot be read.
    pub(super) fn rendered(template: &str, error: yaml::Error) -> Self {
        match error {
            yaml::Error::Exceeded(exceeded) => exceeded.into(),
            error => Self::Rendered { template: template.to_owned(), error },
        }
    }

    /// The maximum length of a value in a message, in characters.
    pub(super) const SHOWN: usize = 100;

    pub(super) fn annotation(name: &'static str, value: &str, allowed: &'static str) -> Self {
        Self::Annotation { name, value: value.chars().take(Self::SHOWN).collect(), allowed }
    }
}
