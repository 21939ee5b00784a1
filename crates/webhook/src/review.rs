//! AdmissionReviews in both versions, the trait of profiles that decide about them, and the responses.
//!
//! `endpoint` reads reviews and writes responses. Objects stay JSON values, whose members keep their order.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gotemplate::{Budget, Exceeded};
use inject::{or_default, record};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{body, warnings};

/// The rule, in log and metrics, of a review that is refused because it exceeds its budget.
pub(super) const OVER_BUDGET: &str = "budget";

/// The length limit of `uid`, `apiVersion` and `kind` in bytes; a UID has 36 bytes. The response omits longer values.
const LONGEST_NAME: usize = 128;
/// The length limit of a namespace or name in the log, in characters; Kubernetes accepts names of 253.
const LONGEST_SUBJECT: usize = 253;
/// The length limit of the message about an invalid body, in characters.
const LONGEST_ERROR: usize = 512;

const V1: &str = "admission.k8s.io/v1";
const V1BETA1: &str = "admission.k8s.io/v1beta1";

/// The API server's request in an AdmissionReview.
#[derive(Debug, Clone)]
pub struct Review {
    /// `admission.k8s.io/v1` or `…/v1beta1`; the response has the same version.
    version: String,
    /// The UID of the request, which the response repeats.
    pub uid: String,
    /// The namespace of the request; empty if absent.
    pub namespace: String,
    /// The kind of the object, without its group.
    pub kind: String,
    pub user: User,
    /// Whether the review must have no side effects.
    pub dry_run: bool,
    /// The object to be created, without its `managedFields`; null if absent.
    pub object: Value,
    /// Environment variables from the webhook's path.
    pub variables: BTreeMap<String, String>,
    /// The remaining budget.
    pub budget: Budget,
    /// The limit that the object exceeds, if any. In this case only the beginning of the object was read.
    exceeded: Option<Exceeded>,
}

/// The user who made the request: `userInfo`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct User {
    #[serde(deserialize_with = "or_default")]
    pub username: String,
    /// The user's UID, which is set for service accounts.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    #[serde(deserialize_with = "or_default")]
    pub groups: Vec<String>,
}

/// Decides about the reviews of a route, without side effects.
pub trait Profile: Send + Sync {
    /// Decides about a review whose object is complete; see [`Review::decided_by`].
    fn review(&self, review: &Review) -> AdmissionOutcome;
}

impl<F: Fn(&Review) -> AdmissionOutcome + Send + Sync> Profile for F {
    fn review(&self, review: &Review) -> AdmissionOutcome {
        self(review)
    }
}

/// A profile's decision, with its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionOutcome {
    /// The decision for the API server.
    pub verdict: Verdict,
    /// The rule that decided, as a metric label with few values.
    pub rule: &'static str,
    /// The reason, for people, with the values on which the rule depends.
    pub reason: String,
    /// Warnings for the user who made the request. The reason of a refusal is added to them in the response.
    pub warnings: Vec<String>,
}

impl AdmissionOutcome {
    /// Returns a refusal by this rule.
    pub fn refused(rule: &'static str, reason: String) -> Self {
        Self { verdict: Verdict::Refuse, rule, reason, warnings: Vec::new() }
    }
}

/// The decision about an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The object is changed by this JSON patch, which is serialized.
    Patch(Vec<u8>),
    /// The object stays unchanged.
    Skip,
    /// The object is refused.
    Refuse,
}

/// An invalid body.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is not JSON.
    #[error("the body is not an AdmissionReview: {0}")]
    Json(serde_json::Error),
    /// The body is JSON of another kind or version.
    #[error(
        "no kind {kind:?} is registered for version {version:?}: expected an AdmissionReview of admission.k8s.io/v1 or v1beta1"
    )]
    Kind {
        kind: String,
        /// The body's `apiVersion`.
        version: String,
    },
    /// The request's `uid` is too long.
    #[error("the uid of the request has {0} bytes, more than {LONGEST_NAME}")]
    Uid(usize),
    /// The member `request` is absent.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// A member of the request has the wrong type.
    #[error("the request of the AdmissionReview cannot be read: {0}")]
    Request(serde_json::Error),
}

/// An invalid body, with the parts that the response repeats.
#[derive(Debug)]
pub struct Unreadable {
    version: Option<String>,
    kind: Option<String>,
    /// The request's UID; empty if it is unreadable or too long.
    pub uid: String,
    pub error: Error,
}

/// The members of a request that profiles read.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RequestMembers {
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
    #[serde(deserialize_with = "record")]
    kind: Kind,
    #[serde(deserialize_with = "record")]
    user_info: User,
    #[serde(deserialize_with = "or_default")]
    dry_run: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    #[serde(deserialize_with = "or_default")]
    kind: String,
}

/// An AdmissionReview with its response.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse<'a> {
    kind: &'a str,
    api_version: &'a str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    audit_annotations: Audit<'a>,
}

#[derive(Serialize)]
struct Audit<'a> {
    decision: &'a str,
    reason: &'a str,
}

impl Review {
    /// Reads a request's body with the default budget.
    ///
    /// # Errors
    /// The body is not a valid AdmissionReview.
    pub fn parse(body: &[u8], variables: BTreeMap<String, String>) -> Result<Self, Box<Unreadable>> {
        Self::within(Budget::default(), body, variables)
    }

    /// Reads a request's body and charges the reading to `budget`. Of an object that exceeds the budget, only the
    /// beginning is read.
    ///
    /// # Errors
    /// The body is not a valid AdmissionReview.
    pub fn within(
        mut budget: Budget,
        body: &[u8],
        variables: BTreeMap<String, String>,
    ) -> Result<Self, Box<Unreadable>> {
        let (mut body, exceeded) =
            body::read(body, &mut budget).map_err(|error| Unreadable::of(&Value::Null, Error::Json(error)))?;
        let (version, request) = read(&body).map_err(|error| Unreadable::of(&body, error))?;
        let RequestMembers { uid, namespace, kind: Kind { kind }, user_info: user, dry_run } = request;
        let object = body.pointer_mut("/request/object").map(Value::take).unwrap_or_default();
        Ok(Self { version, uid, namespace, kind, user, dry_run, object, variables, budget, exceeded })
    }

    /// Returns the profile's outcome, or the refusal of an object that exceeds the budget.
    pub fn decided_by(&self, profile: &dyn Profile) -> AdmissionOutcome {
        let Some(exceeded) = self.exceeded else { return profile.review(self) };
        let reason = format!("the object cannot be reviewed: {exceeded}; it has too many fields and elements");
        AdmissionOutcome::refused(OVER_BUDGET, reason)
    }

    /// Returns `namespace/name` of the object for the log and for Events. The name is the `generateName` of an object
    /// that has no name yet, or `?` without either. The API server has not validated these values.
    pub fn subject(&self) -> String {
        let metadata = &self.object["metadata"];
        let name =
            ["name", "generateName"].iter().find_map(|key| metadata[*key].as_str().filter(|name| !name.is_empty()));
        let short = |text: &str| warnings::clipped(text, LONGEST_SUBJECT);
        format!("{}/{}", short(&self.namespace), short(name.unwrap_or("?")))
    }

    /// Returns the response as JSON.
    #[expect(clippy::expect_used, reason = "texts and booleans under texts are always JSON")]
    pub fn response(&self, outcome: &AdmissionOutcome) -> String {
        self.written(outcome).expect("a response is JSON")
    }

    fn written(&self, outcome: &AdmissionOutcome) -> Result<String, serde_json::Error> {
        let patch = match &outcome.verdict {
            Verdict::Patch(patch) => Some(encoded(patch)?),
            Verdict::Skip | Verdict::Refuse => None,
        };
        let refused = outcome.verdict == Verdict::Refuse;
        let response = Response {
            uid: &self.uid,
            allowed: !refused,
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
            status: refused.then(|| status(&outcome.reason)),
            warnings: self.warnings(outcome),
            audit_annotations: Audit { decision: outcome.verdict.as_str(), reason: &outcome.reason },
        };
        serde_json::to_string(&ReviewResponse { kind: "AdmissionReview", api_version: &self.version, response })
    }
}

impl Review {
    /// Returns the warnings for the user who made the request; none for v1beta1, whose API servers may not support them.
    fn warnings(&self, outcome: &AdmissionOutcome) -> Vec<String> {
        if self.version != V1 {
            return Vec::new();
        }
        let refusal = (outcome.verdict == Verdict::Refuse).then_some(outcome.reason.as_str());
        let all: Vec<&str> = refusal.into_iter().chain(outcome.warnings.iter().map(String::as_str)).collect();
        warnings::limited(all.into_iter())
    }
}

impl Verdict {
    /// Returns the value of the log field, metric label and audit annotation.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Patch(_) => "inject",
            Self::Skip => "skip",
            Self::Refuse => "refuse",
        }
    }
}

fn read(body: &Value) -> Result<(String, RequestMembers), Error> {
    let (version, kind) = (text(body, "apiVersion"), text(body, "kind"));
    if kind != "AdmissionReview" || !matches!(version, V1 | V1BETA1) {
        return Err(Error::Kind { kind: kind.to_owned(), version: version.to_owned() });
    }
    let request = body.get("request").filter(|request| request.is_object()).ok_or(Error::NoRequest)?;
    let request = RequestMembers::deserialize(request).map_err(Error::Request)?;
    if request.uid.len() > LONGEST_NAME {
        return Err(Error::Uid(request.uid.len()));
    }
    Ok((version.to_owned(), request))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Unreadable {
    fn of(body: &Value, error: Error) -> Box<Self> {
        let is_short = |text: &&str| text.len() <= LONGEST_NAME;
        let given = |key: &str| body.get(key).and_then(Value::as_str).filter(is_short).map(str::to_owned);
        let uid = body.get("request").map(|request| text(request, "uid")).filter(is_short).unwrap_or_default();
        Box::new(Self { version: given("apiVersion"), kind: given("kind"), uid: uid.to_owned(), error })
    }

    /// Returns the reason, which may quote the body, on one line of limited length.
    pub(super) fn reason(&self) -> String {
        warnings::clipped(&self.error.to_string(), LONGEST_ERROR)
    }

    /// Returns the response as JSON, with the body's version and kind if they were read.
    pub(super) fn response(&self) -> String {
        let response = json!({ "uid": self.uid, "allowed": false, "status": status(&self.reason()) });
        let mut review = json!({ "response": response });
        for (key, value) in [("kind", &self.kind), ("apiVersion", &self.version)] {
            if let Some(value) = value {
                review[key] = value.as_str().into();
            }
        }
        review.to_string()
    }
}

/// Encodes a patch as a JSON string of Base64, which needs no escapes.
fn encoded(patch: &[u8]) -> Result<Box<RawValue>, serde_json::Error> {
    let mut text = String::with_capacity(patch.len() * 4 / 3 + 6);
    text.push('"');
    STANDARD.encode_string(patch, &mut text);
    text.push('"');
    RawValue::from_string(text)
}

fn status(message: &str) -> Value {
    json!({ "metadata": Map::new(), "message": message })
}

#[cfg(test)]
mod tests;
