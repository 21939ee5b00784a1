//! AdmissionReviews in both of their versions, and what a profile makes of one.
//!
//! `answer` reads and writes them. Objects stay JSON in the order in which they came.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gotemplate::{Budget, Exceeded};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{body, warnings};
use crate::inject::{or_default, record};

/// The rule by which an object is refused that costs more than a review may.
pub(super) const OVER_BUDGET: &str = "budget";

/// Bytes of a review's `uid`, `apiVersion` and `kind`; a UID has 36. Longer ones are not repeated in the answer.
const LONGEST_NAME: usize = 128;
/// Characters of a namespace or name in the log; Kubernetes accepts names of 253.
const LONGEST_SUBJECT: usize = 253;
/// Characters of the message about a body that is no review.
const LONGEST_ERROR: usize = 512;

const V1: &str = "admission.k8s.io/v1";
const V1BETA1: &str = "admission.k8s.io/v1beta1";

/// What the API server asks.
#[derive(Debug, Clone)]
pub struct Review {
    /// `admission.k8s.io/v1` or `…/v1beta1`; the answer has the same.
    version: String,
    /// By which the API server knows the answer.
    pub uid: String,
    /// The namespace of the request; empty where it has none.
    pub namespace: String,
    /// The kind of the object, without its group.
    pub kind: String,
    /// Who asks.
    pub user: User,
    /// Nothing may come of it but the answer.
    pub dry_run: bool,
    /// The object that is to be created, without its `managedFields`; null where there is none.
    pub object: Value,
    /// Variables that the webhook's path sets.
    pub variables: BTreeMap<String, String>,
    /// What is left to be spent on it.
    pub budget: Budget,
    /// Whether the budget ended within the object, of which only the beginning is here.
    exceeded: Option<Exceeded>,
}

/// Who asks for an object, as far as the API server knows: `userInfo`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct User {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub username: String,
    /// Of a service account.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    /// Those that it is in.
    #[serde(deserialize_with = "or_default")]
    pub groups: Vec<String>,
}

/// What is behind a route: decides on reviews, and does nothing else.
pub trait Profile: Send + Sync {
    /// The answer to a review of a whole object; see [`Review::decided_by`].
    fn review(&self, review: &Review) -> AdmissionOutcome;
}

impl<F: Fn(&Review) -> AdmissionOutcome + Send + Sync> Profile for F {
    fn review(&self, review: &Review) -> AdmissionOutcome {
        self(review)
    }
}

/// A profile's answer, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionOutcome {
    /// What the API server is told.
    pub verdict: Verdict,
    /// The rule that decided, as a label of metrics: one of few.
    pub rule: &'static str,
    /// The same for people, with what made the rule hold.
    pub reason: String,
    /// What whoever made the object should know besides; a refusal's reason goes without saying.
    pub warnings: Vec<String>,
}

impl AdmissionOutcome {
    /// A refusal by this rule.
    pub fn refused(rule: &'static str, reason: String) -> Self {
        Self { verdict: Verdict::Refuse, rule, reason, warnings: Vec::new() }
    }
}

/// What the API server is told about an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It is changed by this JSON patch, as text.
    Patch(Vec<u8>),
    /// It stays as it is.
    Skip,
    /// It is refused.
    Refuse,
}

/// Why a body is no review.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No JSON, or of another shape.
    #[error("the body is no AdmissionReview: {0}")]
    Json(serde_json::Error),
    /// JSON, but something else.
    #[error(
        "no kind {kind:?} is registered for version {version:?}: expected an AdmissionReview of admission.k8s.io/v1 or v1beta1"
    )]
    Kind {
        /// What came.
        kind: String,
        /// Its version.
        version: String,
    },
    /// The request's `uid` is too long.
    #[error("the uid of the request has {0} bytes, more than {LONGEST_NAME}")]
    Uid(usize),
    /// Without a request there is nothing to say.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// A member of the request has the wrong type.
    #[error("the request of the AdmissionReview cannot be read: {0}")]
    Request(serde_json::Error),
}

/// A body that is no review, and what of it is to be repeated in the answer all the same.
#[derive(Debug)]
pub struct Unreadable {
    version: Option<String>,
    kind: Option<String>,
    /// Of the request; empty where it cannot be read or is too long.
    pub uid: String,
    /// What is wrong.
    pub error: Error,
}

/// What every profile must know of a request.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
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
struct Answer<'a> {
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
    /// Reads a request's body, with a budget of its own.
    ///
    /// # Errors
    /// It is no review that can be answered.
    pub fn parse(body: &[u8], variables: BTreeMap<String, String>) -> Result<Self, Box<Unreadable>> {
        Self::within(Budget::default(), body, variables)
    }

    /// Reads a request's body and charges that to the budget. Of an object that exceeds it the beginning is read.
    ///
    /// # Errors
    /// It is no review that can be answered.
    pub fn within(
        mut budget: Budget,
        body: &[u8],
        variables: BTreeMap<String, String>,
    ) -> Result<Self, Box<Unreadable>> {
        let (mut body, exceeded) =
            body::read(body, &mut budget).map_err(|error| Unreadable::of(&Value::Null, Error::Json(error)))?;
        let (version, asked) = read(&body).map_err(|error| Unreadable::of(&body, error))?;
        let Asked { uid, namespace, kind: Kind { kind }, user_info: user, dry_run } = asked;
        let object = body.pointer_mut("/request/object").map(Value::take).unwrap_or_default();
        Ok(Self { version, uid, namespace, kind, user, dry_run, object, variables, budget, exceeded })
    }

    /// The profile's outcome, or the refusal of an object that is larger than the budget.
    pub fn decided_by(&self, profile: &dyn Profile) -> AdmissionOutcome {
        let Some(exceeded) = self.exceeded else { return profile.review(self) };
        let reason = format!("the object cannot be reviewed: {exceeded}; it has too many fields and elements");
        AdmissionOutcome::refused(OVER_BUDGET, reason)
    }

    /// `namespace/name` of the object, as far as it is known by now, for the log and for Events. Nobody has checked the name yet.
    pub fn subject(&self) -> String {
        let metadata = &self.object["metadata"];
        let name =
            ["name", "generateName"].iter().find_map(|key| metadata[*key].as_str().filter(|name| !name.is_empty()));
        let short = |text: &str| warnings::clipped(text, LONGEST_SUBJECT);
        format!("{}/{}", short(&self.namespace), short(name.unwrap_or("?")))
    }

    /// The answer as text.
    #[expect(clippy::expect_used, reason = "texts and booleans under texts are always JSON")]
    pub fn answer(&self, outcome: &AdmissionOutcome) -> String {
        self.written(outcome).expect("an answer is JSON")
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
        serde_json::to_string(&Answer { kind: "AdmissionReview", api_version: &self.version, response })
    }
}

impl Review {
    /// What the API server passes on to whoever made the object. Of those that ask in v1beta1, only some know of warnings.
    fn warnings(&self, outcome: &AdmissionOutcome) -> Vec<String> {
        if self.version != V1 {
            return Vec::new();
        }
        let refusal = (outcome.verdict == Verdict::Refuse).then_some(outcome.reason.as_str());
        let all: Vec<&str> = refusal.into_iter().chain(outcome.warnings.iter().map(String::as_str)).collect();
        warnings::shown(all.into_iter())
    }
}

impl Verdict {
    /// Log field and audit annotation.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Patch(_) => "inject",
            Self::Skip => "skip",
            Self::Refuse => "refuse",
        }
    }
}

fn read(body: &Value) -> Result<(String, Asked), Error> {
    let (version, kind) = (text(body, "apiVersion"), text(body, "kind"));
    if kind != "AdmissionReview" || !matches!(version, V1 | V1BETA1) {
        return Err(Error::Kind { kind: kind.to_owned(), version: version.to_owned() });
    }
    let request = body.get("request").filter(|request| request.is_object()).ok_or(Error::NoRequest)?;
    let asked = Asked::deserialize(request).map_err(Error::Request)?;
    if asked.uid.len() > LONGEST_NAME {
        return Err(Error::Uid(asked.uid.len()));
    }
    Ok((version.to_owned(), asked))
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

    /// The reason, which may quote the body, on one line of bounded length.
    pub(super) fn reason(&self) -> String {
        warnings::clipped(&self.error.to_string(), LONGEST_ERROR)
    }

    /// The answer as text: version and kind as they came, where they came.
    pub(super) fn answer(&self) -> String {
        let response = json!({ "uid": self.uid, "allowed": false, "status": status(&self.reason()) });
        let mut answer = json!({ "response": response });
        for (key, value) in [("kind", &self.kind), ("apiVersion", &self.version)] {
            if let Some(value) = value {
                answer[key] = value.as_str().into();
            }
        }
        answer.to_string()
    }
}

/// A patch as the member of an answer. Base64 has nothing to escape: it is written as it is.
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
