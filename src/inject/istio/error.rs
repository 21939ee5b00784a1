//! The error of an invalid configuration, or of a pod that cannot be injected.

use super::proto::Mistyped;
use crate::inject::{Mismatch, merge, patch, yaml};

/// An error of the injection. The API server shows texts about a pod to its author.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of the configuration cannot be read.
    #[error("the {what} configuration cannot be read: {error}")]
    Configuration {
        /// The part.
        what: &'static str,
        error: yaml::Error,
    },
    /// A part of the configuration is not a map.
    #[error("{0} is no map")]
    NoMap(&'static str),
    /// A value of the mesh's configuration is not of its field's type.
    #[error("the mesh configuration: {0}")]
    Mesh(Mistyped),
    /// A value in a pod's annotation of the proxy's configuration is not of its field's type.
    #[error("invalid value for annotation \"proxy.istio.io/config\": {0}")]
    ProxyConfig(Mistyped),
    /// A container would have an image without a registry or a tag.
    #[error("the image of {container} would be {image:?}: the values have no global.hub or no global.tag")]
    NoImage {
        container: String,
        /// What the template makes of the values.
        image: String,
    },
    /// The mesh's status port is invalid.
    #[error("statusPort of the mesh's defaultConfig is {0}, which is no port")]
    StatusPort(String),
    /// The configuration has no template.
    #[error("the injection configuration has neither templates nor a template")]
    NoTemplates,
    /// A template does not compile, or cannot be rendered for this pod.
    #[error(transparent)]
    Template(#[from] gotemplate::Error),
    /// The review spends more than its budget; see [`gotemplate::Budget`].
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
    /// The output of a template cannot be merged.
    #[error("what template {template} renders cannot be merged into the pod: {error}")]
    Merge { template: String, error: merge::Error },
    /// The pod's override of an injected container cannot be merged.
    #[error("the pod's own {container} cannot be merged over the injected one: {error}")]
    Reapply { container: String, error: merge::Error },
    /// An annotation has an invalid value.
    #[error("invalid value {value:?} for annotation {name:?}: must be {allowed}")]
    Annotation {
        name: &'static str,
        /// The beginning of its value.
        value: String,
        /// The description of valid values.
        allowed: &'static str,
    },
    /// The pod's override of an injected container has a field of another type.
    #[error("container {container:?}: {error}")]
    Container { container: String, error: Mismatch },
    /// An annotation that is JSON cannot be read.
    #[error("annotation {what:?} is no JSON: {error}")]
    Json { what: &'static str, error: serde_json::Error },
    /// The output of a legacy template does not have the types of a pod.
    #[error("what the template renders is no pod's: {0}")]
    Type(String),
    /// A workload has no pod.
    #[error("{0} has no pod template: spec.template is required")]
    NoTemplate(String),
    /// The patch of a legacy template cannot be applied, because fields of the pod have other types.
    #[error("the pod is of no pod's shape: {0}")]
    Patch(patch::PatchError),
}

impl From<gotemplate::Exceeded> for Error {
    fn from(error: gotemplate::Exceeded) -> Self {
        Self::Exceeded(error)
    }
}

impl From<patch::PatchError> for Error {
    fn from(error: patch::PatchError) -> Self {
        Self::Patch(error)
    }
}

impl Error {
    /// Whether the review exceeded its budget, at any point.
    pub fn is_exceeded(&self) -> bool {
        match self {
            Self::Exceeded(_) => true,
            Self::Template(gotemplate::Error::Render(failure)) => {
                matches!(failure.reason, gotemplate::Reason::Exceeded(_) | gotemplate::Reason::TooDeep(_))
            }
            Self::Merge { error, .. } | Self::Reapply { error, .. } => matches!(error, merge::Error::Exceeded(_)),
            _ => false,
        }
    }

    /// The error of an unreadable output of a template.
    pub(super) fn rendered(template: &str, error: yaml::Error) -> Self {
        match error {
            yaml::Error::Exceeded(exceeded) => exceeded.into(),
            error => Self::Rendered { template: template.to_owned(), error },
        }
    }

    /// The longest part of a value in a message, in characters.
    const SHOWN: usize = 100;

    pub(super) fn annotation(name: &'static str, value: &str, allowed: &'static str) -> Self {
        Self::Annotation { name, value: value.chars().take(Self::SHOWN).collect(), allowed }
    }
}
