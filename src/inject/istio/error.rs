//! Why a configuration is refused, or a pod cannot get its sidecar.

use super::proto::Mistyped;
use crate::inject::{Mismatch, merge, patch, yaml};

/// What goes wrong in injection. Texts about pods reach whoever made the pod, through the API server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of the configuration cannot be read.
    #[error("the {what} configuration cannot be read: {error}")]
    Configuration {
        /// Which part.
        what: &'static str,
        /// Why.
        error: yaml::Error,
    },
    /// A part of the configuration has the wrong shape.
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
        /// The container.
        container: String,
        /// What the template makes of the values.
        image: String,
    },
    /// The mesh's status port is none.
    #[error("statusPort of the mesh's defaultConfig is {0}, which is no port")]
    StatusPort(String),
    /// Nothing to inject is configured.
    #[error("the injection configuration has neither templates nor a template")]
    NoTemplates,
    /// A template does not compile, or cannot be rendered for this pod.
    #[error(transparent)]
    Template(#[from] gotemplate::Error),
    /// The review spends more than its budget; see [`gotemplate::Budget`].
    #[error("this pod cannot be injected: {0}")]
    Exceeded(gotemplate::Exceeded),
    /// The pod asks for a template that there is not.
    #[error("requested template {name:?} not found; have {have}")]
    UnknownTemplate {
        /// What was asked for.
        name: String,
        /// What there is.
        have: String,
    },
    /// What a template rendered is no YAML.
    #[error(
        "template {template} does not render YAML for this pod; values and template may be of different releases: {error}"
    )]
    Rendered {
        /// The template.
        template: String,
        /// What the parser says, with its line in the rendered text.
        error: yaml::Error,
    },
    /// What a template rendered cannot be merged.
    #[error("what template {template} renders cannot be merged into the pod: {error}")]
    Merge {
        /// The template.
        template: String,
        /// Why.
        error: merge::Error,
    },
    /// What the pod says about an injected container cannot be merged.
    #[error("the pod's own {container} cannot be merged over the injected one: {error}")]
    Reapply {
        /// The container.
        container: String,
        /// Why.
        error: merge::Error,
    },
    /// An annotation has a value that it must not have.
    #[error("invalid value {value:?} for annotation {name:?}: must be {allowed}")]
    Annotation {
        /// The annotation.
        name: &'static str,
        /// Its value, cut to a length that a log can hold.
        value: String,
        /// What it must be.
        allowed: &'static str,
    },
    /// What the pod says about a container of the templates is not of a container's type.
    #[error("container {container:?}: {error}")]
    Container {
        /// The container.
        container: String,
        /// Why.
        error: Mismatch,
    },
    /// An annotation that is JSON cannot be read.
    #[error("annotation {what:?} is no JSON: {error}")]
    Json {
        /// The annotation.
        what: &'static str,
        /// Why.
        error: serde_json::Error,
    },
    /// What a legacy template rendered is not of the types of a pod.
    #[error("what the template renders is no pod's: {0}")]
    Type(String),
    /// A workload has no pod.
    #[error("{0} has no pod template: spec.template is required")]
    NoTemplate(String),
    /// A patch of our own does not fit the pod: the pod's own fields have wrong types.
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
    /// Whether the review has spent its budget, wherever it was by then.
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

    /// Why the text of a template cannot be used.
    pub(super) fn rendered(template: &str, error: yaml::Error) -> Self {
        match error {
            yaml::Error::Exceeded(exceeded) => exceeded.into(),
            error => Self::Rendered { template: template.to_owned(), error },
        }
    }

    /// The longest part of a value that an error repeats, in characters.
    const SHOWN: usize = 100;

    pub(super) fn annotation(name: &'static str, value: &str, allowed: &'static str) -> Self {
        Self::Annotation { name, value: value.chars().take(Self::SHOWN).collect(), allowed }
    }
}
