//! The token in the plugin's kubeconfig: requested for the plugin's own service account, and renewed.
//!
//! The token is bound to this node, so that it ends with the Node object and survives a restart of the agent. API servers
//! before 1.31 cannot bind to nodes, and none binds a token to a pod of another service account; there it is not bound.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::metrics::Metrics;
use crate::install::{Issued, Token};

/// The requested lifetime; the API server may grant another.
const LIFETIME: Duration = Duration::from_secs(3600);
/// The time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the first failure; it doubles with each further one.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// The longest pause while the former token is valid: half of the shortest lifetime that API servers grant is 5 minutes.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The longest pause without a valid token: the agent is not ready until there is one.
const MAX_BACKOFF_WITHOUT_TOKEN: Duration = Duration::from_secs(5);

/// The account whose token is requested, and the node to which the token is bound.
#[derive(Debug, Clone)]
pub struct TokenHolder {
    /// The plugin's service account.
    pub account: String,
    /// The namespace of that account.
    pub namespace: String,
    /// This node.
    pub node: String,
}

/// A token and its remaining lifetime.
struct Granted {
    token: Token,
    lifetime: Duration,
}

/// A request that was not granted, with an explanation for the operator.
struct Refused {
    failure: Failure,
    why: String,
}

/// The request for a token failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The API server refuses the request, or cannot be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The API server does not answer.
    #[error("no answer within {REQUEST_TIMEOUT:?}")]
    TimedOut,
    /// The answer is not a `TokenRequest` with a token.
    #[error("the answer holds no token")]
    NoToken,
}

impl Failure {
    /// The status of the API server's refusal.
    fn status(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// The metric's label.
    fn reason(&self) -> &'static str {
        match (self, self.status()) {
            (Self::NoToken, _) => "no_token",
            (_, Some(401)) => "unauthorized",
            (_, Some(403)) => "forbidden",
            (_, Some(404)) => "not_found",
            (_, Some(422)) => "invalid",
            (_, Some(429 | 500..)) => "unavailable",
            (_, Some(_)) => "refused",
            (_, None) => "unanswered",
        }
    }
}

/// Requests a token, passes it to `issued`, and renews it at half of its lifetime. A token that cannot be renewed stays in
/// `issued` until it expires. Never returns.
pub async fn renew(client: Client, holder: TokenHolder, issued: watch::Sender<Issued>, metrics: Metrics) {
    let accounts = Api::<ServiceAccount>::namespaced(client, &holder.namespace);
    let (mut pause, mut expires) = (MIN_BACKOFF, Instant::now());
    loop {
        match request(&accounts, &holder).await {
            Ok(Granted { token, lifetime }) => {
                tracing::info!(account = holder.account, valid_s = lifetime.as_secs(), "the plugin has a new token");
                issued.send_replace(Issued::Token(token));
                (pause, expires) = (MIN_BACKOFF, Instant::now() + lifetime);
                sleep(lifetime / 2).await;
            }
            Err(Refused { failure, why }) => {
                metrics.token_failed(failure.reason());
                tracing::warn!(account = holder.account, "no token for the plugin: {why}");
                let valid = expires.saturating_duration_since(Instant::now());
                if valid.is_zero() {
                    issued.send_replace(Issued::Refused(why));
                }
                sleep(pause.min(max_backoff(valid))).await;
                pause = (pause * 2).min(MAX_BACKOFF);
            }
        }
    }
}

/// The longest pause if the former token is `valid` for this much longer: a request follows when it expires, or soon after.
fn max_backoff(valid: Duration) -> Duration {
    valid.clamp(MAX_BACKOFF_WITHOUT_TOKEN, MAX_BACKOFF)
}

/// Requests a token that is bound to the node, or an unbound one if the API server cannot bind to nodes.
async fn request(accounts: &Api<ServiceAccount>, holder: &TokenHolder) -> Result<Granted, Refused> {
    let unsupported = match request_bound(accounts, holder, Some(to_node(&holder.node))).await {
        // A refusal by a policy has status 403 or 422, and is final.
        Err(Failure::Api(kube::Error::Api(status))) if status.code == 400 => status.message.clone(),
        answer => return answer.map_err(|failure| Refused { why: explain(&failure, holder), failure }),
    };
    tracing::info!("the API server binds no token to a node ({unsupported}); requesting one that is not bound");
    request_bound(accounts, holder, None).await.map_err(|failure| {
        let why = format!(
            "the API server binds no token to a node ({unsupported}) and refuses one that is not bound: {}",
            explain(&failure, holder)
        );
        Refused { failure, why }
    })
}

fn to_node(name: &str) -> BoundObjectReference {
    BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: None,
    }
}

async fn request_bound(
    accounts: &Api<ServiceAccount>,
    holder: &TokenHolder,
    object: Option<BoundObjectReference>,
) -> Result<Granted, Failure> {
    let spec = TokenRequestSpec {
        audiences: Vec::new(),
        bound_object_ref: object,
        expiration_seconds: Some(LIFETIME.as_secs().cast_signed()),
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let params = PostParams::default();
    let requested = accounts.create_token_request(&holder.account, &params, &request);
    let answer = timeout(REQUEST_TIMEOUT, requested).await.map_err(|_| Failure::TimedOut)??;
    granted(answer).ok_or(Failure::NoToken)
}

fn granted(answer: TokenRequest) -> Option<Granted> {
    let seconds = answer.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|s| *s > 0);
    let token = Token::new(answer.status?.token)?;
    Some(Granted { token, lifetime: seconds.map_or(LIFETIME, Duration::from_secs) })
}

/// The failure with its remedy.
fn explain(failure: &Failure, TokenHolder { account, namespace, .. }: &TokenHolder) -> String {
    let remedy = match failure.status() {
        Some(403) => format!("; the agent's role must allow `create` of `serviceaccounts/token` for {account}"),
        Some(404) => format!("; the manifests create the service account {account} in {namespace}"),
        Some(422) => {
            "; an admission policy must allow it: before Kubernetes 1.31, install the one that the chart renders for that \
             version"
                .to_owned()
        }
        _ => String::new(),
    };
    format!("{failure}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_a_reason() {
        let refused =
            |code| Failure::Api(kube::Error::Api(Box::new(kube::core::Status { code, ..Default::default() })));
        let codes = [400, 401, 403, 404, 422, 429, 500, 503];
        let reasons = ["refused", "unauthorized", "forbidden", "not_found", "invalid", "unavailable", "unavailable"];
        for (code, reason) in codes.into_iter().zip(reasons.into_iter().chain(["unavailable"])) {
            assert_eq!(refused(code).reason(), reason, "{code}");
        }
        assert_eq!((Failure::TimedOut.reason(), Failure::NoToken.reason()), ("unanswered", "no_token"));
    }

    #[test]
    fn no_pause_outlasts_the_former_token_by_more_than_five_seconds() {
        let seconds = Duration::from_secs;
        let pauses = [0, 1, 12, 29, 1800].map(|valid| max_backoff(seconds(valid)).as_secs());
        assert_eq!(pauses, [5, 5, 12, 29, 30]);
    }
}
