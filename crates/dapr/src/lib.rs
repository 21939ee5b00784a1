//! Injection of Dapr's sidecar: decides whether a pod gets `daprd`, and creates the patch.
//!
//! `webhook` and `istio-cnictl` call [`review`] for each pod, with the request, the settings and the state of the
//! cluster ([`Facts`]), which the webhook watches. This crate makes no API requests and reads no files.

mod accounts;
mod annotations;
mod app_id;
mod args;
mod charge;
mod components;
mod container;
mod documents;
mod edits;
mod env;
mod era;
mod mounts;
mod operations;
mod pod;
mod redirection;
mod release_1_4_2;
mod settings;
mod trust;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

pub use gocompat::glob::{Fault, Glob, GlobError};
use gotemplate::{Budget, Exceeded};
use serde_json::Value;

pub use accounts::{Allowed, Authority, PatternError, User};
pub use app_id::{AppId, AppIdError, Source};
pub use components::Component;
pub use documents::{WorkloadReview, inject_document};
pub use era::Era;
pub use pod::Toleration;
pub use settings::{Actors, ControlPlane, PullPolicy, Security, Settings, SettingsError};
pub use trust::{Issuer, Trust, mtls_enabled};

use annotations::{Annotations, Options};
use container::Parts;
use era::{truthy, truthy_1_4_2};
use operations::Injection;
use pod::Pod;

use inject::Operation;

/// The fields of an admission request that the injection reads.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `request.kind.kind`
    pub kind: &'a str,
    /// `request.namespace`
    pub namespace: &'a str,
    /// `request.userInfo`
    pub user: User<'a>,
    /// `request.object`; `None` if absent or null.
    pub object: Option<&'a Value>,
}

/// The state of the cluster that the injection depends on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The UIDs of the service accounts that [`Allowed::wants_uid`] selects.
    pub accounts: &'a BTreeSet<String>,
    pub trust: &'a Trust,
    /// The Components with a container in the request's namespace; `None` until they are loaded.
    pub components: Option<&'a [Component]>,
}

/// The result of a review.
#[derive(Debug, Clone, PartialEq)]
pub struct InjectionOutcome {
    pub decision: Decision,
    pub patch: Vec<Operation>,
    /// Warnings for the pod's creator: ignored annotations, and why a requested sidecar is not injected.
    pub warnings: Vec<String>,
}

/// The decision about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Inject {
        app_id: AppId,
        /// The rule that allows the pod's creator to create pods with a sidecar.
        authority: Authority,
    },
    /// The pod is admitted without changes.
    Skip(Skip),
    /// The pod requests a sidecar that cannot be created, and is denied.
    Refuse(Refusal),
}

/// Why a pod is admitted without changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// The object is not a pod, but of this kind.
    NotAPod(String),
    /// `dapr.io/enabled` is absent or not `true`.
    NotEnabled(Option<String>),
    /// The pod's creator is not allowed to create pods with a sidecar.
    Unauthorized { username: String },
    /// The sidecar already exists in this list of containers.
    AlreadyInjected(&'static str),
}

/// Why a pod is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the AdmissionReview contains no pod")]
    NoObject,
    #[error("the pod cannot be read: {0}")]
    Malformed(String),
    #[error(transparent)]
    AppId(#[from] AppIdError),
    /// The trust anchors are not loaded yet.
    #[error(
        "the trust anchors of Dapr's mesh are not loaded yet: try again, and look at the injector's log if it stays so"
    )]
    NoTrustAnchors,
    /// The issuer's certificate and key, which sidecars of this release need, are not loaded.
    #[error(
        "the certificate and key of Dapr's issuer are not loaded: check that the secret dapr-trust-bundle exists and is valid"
    )]
    NoIssuer,
    /// The Components are not loaded yet.
    #[error(
        "the Components of the namespace are not loaded yet: try again, and look at the injector's log if it stays so"
    )]
    NoComponents,
    /// `dapr.io/sidecar-image` is empty, so the container could never start.
    #[error("dapr.io/sidecar-image is empty: name an image, or leave the annotation out")]
    NoImage,
    /// `dapr.io/app-port` is not a number; release 1.4.2 denies such pods.
    #[error("dapr.io/app-port: {0:?} is not a port")]
    AppPort(String),
    /// The injection exceeds the budget of the review.
    #[error(
        "this pod cannot be injected: {0}; it has too many containers, or its annotations or the Components of its namespace are too long"
    )]
    Exceeded(Exceeded),
}

impl Decision {
    /// Returns the name of the reason in metrics and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Inject { .. } => "injected",
            Self::Skip(Skip::NotAPod(_)) => "not_a_pod",
            Self::Skip(Skip::NotEnabled(_)) => "not_enabled",
            Self::Skip(Skip::Unauthorized { .. }) => "unauthorized",
            Self::Skip(Skip::AlreadyInjected(_)) => "already_injected",
            Self::Refuse(Refusal::NoObject) => "no_object",
            Self::Refuse(Refusal::Malformed(_)) => "malformed",
            Self::Refuse(Refusal::AppId(_)) => "app_id",
            Self::Refuse(Refusal::NoTrustAnchors) => "no_trust_anchors",
            Self::Refuse(Refusal::NoIssuer) => "no_issuer",
            Self::Refuse(Refusal::NoComponents) => "no_components",
            Self::Refuse(Refusal::NoImage) => "no_image",
            Self::Refuse(Refusal::AppPort(_)) => "app_port",
            Self::Refuse(Refusal::Exceeded(_)) => "budget",
        }
    }

    /// Whether the pod is admitted.
    pub fn is_allowed(&self) -> bool {
        !matches!(self, Self::Refuse(_))
    }
}

impl Skip {
    /// Whether the pod's creator probably expects a sidecar, and so gets a warning that there is none.
    fn needs_warning(&self) -> bool {
        match self {
            Self::Unauthorized { .. } => true,
            Self::NotEnabled(value) => value.as_deref().is_some_and(truthy),
            Self::NotAPod(_) | Self::AlreadyInjected(_) => false,
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPod(kind) => write!(f, "{kind:?} is not a pod"),
            Self::NotEnabled(None) => f.write_str("dapr.io/enabled is not set"),
            Self::NotEnabled(Some(value)) => write!(f, "dapr.io/enabled is {value:?}, not \"true\""),
            Self::Unauthorized { username } => {
                write!(f, "service account '{username}' not on the list of allowed controller accounts")
            }
            Self::AlreadyInjected(list) => write!(f, "daprd is among the {list} already"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inject { app_id, .. } => write!(f, "daprd is injected for {}", app_id.id),
            Self::Skip(skip) => skip.fmt(f),
            Self::Refuse(refusal) => refusal.fmt(f),
        }
    }
}

/// Reviews one request with a new default budget.
pub fn review(request: &Request<'_>, settings: &Settings, facts: &Facts<'_>) -> InjectionOutcome {
    review_within(request, settings, facts, &mut Budget::default())
}

/// Reviews one request and charges the injection to the budget.
pub fn review_within(
    request: &Request<'_>,
    settings: &Settings,
    facts: &Facts<'_>,
    budget: &mut Budget,
) -> InjectionOutcome {
    let mut warnings = Vec::new();
    let (decision, patch) = match admit(request, settings, facts) {
        Err(decision) => (decision, Vec::new()),
        Ok(authority) => match inject(request, settings, facts, (&mut warnings, budget)) {
            Ok((app_id, patch)) => (Decision::Inject { app_id, authority }, patch),
            Err(decision) => (decision, Vec::new()),
        },
    };
    if let Decision::Skip(skip) = &decision
        && skip.needs_warning()
    {
        warnings.push(format!("no Dapr sidecar: {decision}"));
    }
    InjectionOutcome { decision, patch, warnings }
}

/// Checks that the object is a pod, that it requests a sidecar, and that its creator is allowed to create such pods.
/// Release 1.4.2 checks the creator first.
fn admit(request: &Request<'_>, settings: &Settings, facts: &Facts<'_>) -> Result<Authority, Decision> {
    let unauthorized = || Decision::Skip(Skip::Unauthorized { username: request.user.username.to_owned() });
    let authority = settings.allowed.authority(request.user, facts.accounts);
    if settings.era == Era::V1_4_2 && authority.is_none() {
        return Err(unauthorized());
    }
    if request.kind != "Pod" {
        return Err(Decision::Skip(Skip::NotAPod(request.kind.to_owned())));
    }
    enabled(request.object, settings.era).map_err(Decision::Skip)?;
    authority.ok_or_else(unauthorized)
}

/// Checks that the object requests a sidecar. An absent object passes this check; `inject` denies it with a reason.
fn enabled(object: Option<&Value>, era: Era) -> Result<(), Skip> {
    let Some(object) = object else { return Ok(()) };
    let value = object.pointer("/metadata/annotations/dapr.io~1enabled");
    let value = value.map(|value| value.as_str().unwrap_or_default());
    let enough = match era {
        Era::Current => |value: &str| value.eq_ignore_ascii_case("true"),
        Era::V1_4_2 => truthy_1_4_2,
    };
    if value.is_some_and(enough) { Ok(()) } else { Err(Skip::NotEnabled(value.map(str::to_owned))) }
}

/// Creates the patch that injects the sidecar.
fn inject(
    request: &Request<'_>,
    settings: &Settings,
    facts: &Facts<'_>,
    (warnings, budget): (&mut Vec<String>, &mut Budget),
) -> Result<(AppId, Vec<Operation>), Decision> {
    let object = request.object.ok_or(Refusal::NoObject)?;
    let pod = Pod::read(object)?;
    if let Some(list) = pod.sidecar() {
        return Err(Decision::Skip(Skip::AlreadyInjected(list)));
    }
    let mut annotations = Annotations::new(&pod.metadata.annotations, settings.era);
    let app_id = app_id::of(&pod, annotations.text("app-id", "")).map_err(Refusal::from)?;
    let anchors = facts.trust.anchors.as_deref().ok_or(Refusal::NoTrustAnchors)?;
    let options = Options::read(&mut annotations);
    warnings.append(&mut annotations.warnings);
    charge::charge(&pod, &options, budget).map_err(Refusal::Exceeded)?;
    let mut parts = Parts {
        id: &app_id.id,
        namespace: request.namespace,
        pod: &pod,
        options: &options,
        settings,
        trust: facts.trust,
        anchors,
        components: None,
        native: options.native.unwrap_or(settings.native),
    };
    if settings.era == Era::V1_4_2 {
        release_1_4_2::check_app_port(&annotations)?;
        let issuer = facts.trust.issuer.as_ref().ok_or(Refusal::NoIssuer)?;
        let sidecar = release_1_4_2::sidecar(&parts, object, issuer, warnings);
        let patch = release_1_4_2::operations(&pod, sidecar);
        return Ok((app_id, patch));
    }
    if options.image.is_some_and(|image| image.trim().is_empty()) {
        return Err(Refusal::NoImage.into());
    }
    let components = injected_components(&options, &app_id.id, facts, (warnings, budget))?;
    parts.components = sockets_folder(&pod, &options, settings, !components.is_empty());
    let (sidecar, native, folder) = (container::sidecar(&parts, warnings), parts.native, parts.components);
    let injection =
        Injection { pod: &pod, options: &options, settings, app_id: &app_id, sidecar, native, components, folder };
    let patch = operations::of(injection);
    Ok((app_id, patch))
}

fn injected_components(
    options: &Options<'_>,
    id: &str,
    facts: &Facts<'_>,
    (warnings, budget): (&mut Vec<String>, &mut Budget),
) -> Result<Vec<components::Container>, Refusal> {
    if !options.pluggable.inject {
        return Ok(Vec::new());
    }
    let components = facts.components.ok_or(Refusal::NoComponents)?;
    charge::charge_components(id, components, budget).map_err(Refusal::Exceeded)?;
    Ok(components::injectable(id, components, warnings))
}

/// Returns the directory of the component sockets, if the pod has or gets components.
fn sockets_folder<'a>(pod: &Pod<'_>, options: &Options<'a>, settings: &'a Settings, injected: bool) -> Option<&'a str> {
    let marked = pod.spec.containers.iter().any(|container| options.pluggable.contains(container.name));
    let folder = if options.pluggable.folder.is_empty() { &settings.sockets_folder } else { options.pluggable.folder };
    (marked || injected).then_some(folder)
}

impl From<Refusal> for Decision {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}
