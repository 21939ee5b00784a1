//! AdmissionReviews in both of their versions, and what a profile makes of one.
//!
//! `answer` reads and writes them. Objects stay JSON in the order in which they came.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

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
    /// The request as it came, `object` among it.
    pub request: Value,
    /// Variables that the webhook's path sets.
    pub variables: BTreeMap<String, String>,
}

/// What is behind a route: decides on reviews, and does nothing else.
pub trait Profile: Send + Sync {
    /// The answer to a review.
    fn review(&self, review: &Review) -> Outcome;
}

impl<F: Fn(&Review) -> Outcome + Send + Sync> Profile for F {
    fn review(&self, review: &Review) -> Outcome {
        self(review)
    }
}

/// A profile's answer, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What the API server is told.
    pub verdict: Verdict,
    /// The rule that decided, as a label of metrics: one of few.
    pub rule: &'static str,
    /// The same for people, with what made the rule hold.
    pub reason: String,
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
    Json(#[from] serde_json::Error),
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
    /// Without a request there is nothing to say.
    #[error("the AdmissionReview has no request")]
    NoRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    request: Value,
}

impl Review {
    /// Reads a request's body.
    ///
    /// # Errors
    /// It is no review that can be answered.
    pub fn parse(body: &[u8], variables: BTreeMap<String, String>) -> Result<Self, Error> {
        let Body { api_version: version, kind, request } = serde_json::from_slice(body)?;
        if kind != "AdmissionReview" || !matches!(&*version, "admission.k8s.io/v1" | "admission.k8s.io/v1beta1") {
            return Err(Error::Kind { kind, version });
        }
        if !request.is_object() {
            return Err(Error::NoRequest);
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (uid, namespace, kind) =
            (text(&request["uid"]), text(&request["namespace"]), text(&request["kind"]["kind"]));
        Ok(Self { version, uid, namespace, kind, request, variables })
    }

    /// The object that is to be created.
    pub fn object(&self) -> &Value {
        &self.request["object"]
    }

    /// `namespace/name` of the object, as far as it is known by now, for the log.
    pub fn subject(&self) -> String {
        let metadata = &self.object()["metadata"];
        let name =
            ["name", "generateName"].iter().find_map(|key| metadata[*key].as_str().filter(|name| !name.is_empty()));
        format!("{}/{}", self.namespace, name.unwrap_or("?"))
    }

    /// The answer as text.
    pub fn answer(&self, outcome: &Outcome) -> String {
        let mut response = json!({ "uid": self.uid, "allowed": outcome.verdict != Verdict::Refuse });
        match &outcome.verdict {
            Verdict::Patch(patch) => {
                response["patch"] = STANDARD.encode(patch).into();
                response["patchType"] = "JSONPatch".into();
            }
            Verdict::Skip => {}
            Verdict::Refuse => response["status"] = status(&outcome.reason),
        }
        response["auditAnnotations"] = json!({ "decision": outcome.verdict.as_str(), "reason": outcome.reason });
        json!({ "kind": "AdmissionReview", "apiVersion": self.version, "response": response }).to_string()
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

/// The answer to what is no review: there is neither a version nor a UID to repeat.
pub(super) fn undecodable(error: &Error) -> String {
    json!({ "response": { "uid": "", "allowed": false, "status": status(&error.to_string()) } }).to_string()
}

fn status(message: &str) -> Value {
    json!({ "metadata": Map::new(), "message": message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(version: &str) -> Review {
        let body = json!({ "kind": "AdmissionReview", "apiVersion": version, "request": {
            "uid": "u1", "namespace": "shop", "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "metadata": { "generateName": "web-" } },
        }});
        Review::parse(body.to_string().as_bytes(), BTreeMap::new()).unwrap()
    }

    #[test]
    fn each_version_is_answered_in_its_own() {
        for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
            let review = review(version);
            assert_eq!((&*review.kind, &*review.subject()), ("Pod", "shop/web-"));
            let outcome = Outcome { verdict: Verdict::Patch(b"[]".to_vec()), rule: "policy", reason: "because".into() };
            let answer: Value = serde_json::from_str(&review.answer(&outcome)).unwrap();
            assert_eq!((&answer["apiVersion"], &answer["response"]["uid"]), (&version.into(), &"u1".into()));
            assert_eq!(answer["response"]["patch"], "W10=");
            assert_eq!(answer["response"]["auditAnnotations"]["reason"], "because");
        }
    }

    #[test]
    fn a_refusal_says_why() {
        let outcome = Outcome { verdict: Verdict::Refuse, rule: "error", reason: "bad annotation".into() };
        let answer: Value = serde_json::from_str(&review("admission.k8s.io/v1").answer(&outcome)).unwrap();
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["message"], "bad annotation");
        assert!(answer["response"].get("patch").is_none());
    }

    #[test]
    fn what_is_no_review_is_told_apart() {
        let error = |body: &str| Review::parse(body.as_bytes(), BTreeMap::new()).unwrap_err().to_string();
        assert!(error("{").starts_with("the body is no AdmissionReview: EOF"));
        assert!(error(r#"{"kind":"Pod","apiVersion":"v1"}"#).starts_with(r#"no kind "Pod" is registered"#));
        let none = error(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#);
        assert_eq!(none, "the AdmissionReview has no request");
    }
}
