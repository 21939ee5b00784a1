//! The token in the plugin's kubeconfig: requested for the plugin's own service account, and renewed.
//!
//! The token is bound to the Node object: it becomes invalid when that object is deleted, and stays valid when the agent restarts.
//! An API server before 1.31 cannot bind a token to a node. From such a server the agent requests an unbound token, because a token
//! can be bound only to a pod of the token's own service account, and the agent's pod has another service account.

#![expect(clippy::disallowed_methods, reason = "owns the clock of the token's lifetime")]

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::metrics::Metrics;
use crate::install::{Issued, Token};

/// The requested lifetime: the plugin's fallback to the API server must survive an outage of the agent over a weekend. The token is
/// bound to the node and allows only reading pods. The API server grants less if `--service-account-max-token-expiration` is lower.
const LIFETIME: Duration = Duration::from_hours(7 * 24);
/// The time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the first failure; it doubles with each further failure.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// The longest pause while the former token is valid. It leaves time for many attempts: renewal starts at half of the lifetime or
/// before, and the shortest lifetime that API servers grant is 10 minutes.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The longest pause without a valid token, which is shorter because the agent is not ready until it has one.
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

/// Why a request for a token failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The API server refuses the request, or cannot be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The API server does not respond.
    #[error("no response from the API server within {REQUEST_TIMEOUT:?}")]
    TimedOut,
    /// The response is not a `TokenRequest` with a token.
    #[error("the response contains no token")]
    NoToken,
}

impl Failure {
    /// Returns the HTTP status with which the API server refused the request.
    fn status(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// Returns the value of the metric's label `reason`.
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

/// Requests a token, passes it to `issued`, and renews it twice a day, or at half of a shorter lifetime. A token that cannot be
/// renewed stays in `issued` until it expires. Never returns.
pub async fn renew(client: Client, holder: TokenHolder, issued: watch::Sender<Issued>, metrics: Metrics) {
    let accounts = Api::<ServiceAccount>::namespaced(client, &holder.namespace);
    let (mut failures, mut expires) = (0, Instant::now());
    loop {
        match request(&accounts, &holder).await {
            Ok(Granted { token, lifetime }) => {
                tracing::info!(account = holder.account, valid_s = lifetime.as_secs(), "the plugin has a new token");
                issued.send_replace(Issued::Token(token));
                (failures, expires) = (0, Instant::now() + lifetime);
                sleep(renewal(lifetime)).await;
            }
            Err(Refused { failure, why }) => {
                metrics.token_failed(failure.reason());
                tracing::warn!(account = holder.account, "no token for the plugin: {why}");
                let valid = expires.saturating_duration_since(Instant::now());
                if valid.is_zero() {
                    issued.send_replace(Issued::Refused(why));
                }
                sleep(backoff(failures, valid)).await;
                failures += 1;
            }
        }
    }
}

/// Returns the time after which a token is renewed: half of its lifetime, and at most 12 hours, so that the token has most of its
/// lifetime left whenever the agent ends.
fn renewal(lifetime: Duration) -> Duration {
    (lifetime / 2).min(Duration::from_hours(12))
}

/// Returns the pause after a failure that follows `failures` others. The pauses double up to `valid`, the remaining lifetime of the
/// former token, but to at least [`MAX_BACKOFF_WITHOUT_TOKEN`] and at most [`MAX_BACKOFF`].
fn backoff(failures: u32, valid: Duration) -> Duration {
    let doubled = 2_u32.checked_pow(failures).map_or(MAX_BACKOFF, |factor| MIN_BACKOFF.saturating_mul(factor));
    doubled.min(valid.clamp(MAX_BACKOFF_WITHOUT_TOKEN, MAX_BACKOFF))
}

/// Requests a token that is bound to the node, or an unbound one if the API server cannot bind to nodes.
async fn request(accounts: &Api<ServiceAccount>, holder: &TokenHolder) -> Result<Granted, Refused> {
    let unsupported = match request_bound(accounts, holder, Some(to_node(&holder.node))).await {
        // Status 400: the API server cannot bind tokens to nodes. An admission policy refuses with 403 or 422
        // instead, which is final.
        Err(Failure::Api(kube::Error::Api(status))) if status.code == 400 => status.message.clone(),
        response => return response.map_err(|failure| Refused { why: explain(&failure, holder), failure }),
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
    let response = timeout(REQUEST_TIMEOUT, requested).await.map_err(|_| Failure::TimedOut)??;
    granted(response).ok_or(Failure::NoToken)
}

fn granted(response: TokenRequest) -> Option<Granted> {
    let seconds = response.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|s| *s > 0);
    let token = Token::new(response.status?.token)?;
    Some(Granted { token, lifetime: seconds.map_or(LIFETIME, Duration::from_secs) })
}

/// Formats the failure, followed by the remedy if there is one.
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
    fn pauses_double_and_none_outlasts_the_former_token_by_more_than_five_seconds() {
        let pauses =
            |valid| [0, 1, 2, 3, 4, 5, 40].map(|failures| backoff(failures, Duration::from_secs(valid)).as_secs());
        assert_eq!(pauses(0), [1, 2, 4, 5, 5, 5, 5]);
        assert_eq!(pauses(12), [1, 2, 4, 8, 12, 12, 12]);
        assert_eq!(pauses(29), [1, 2, 4, 8, 16, 29, 29]);
        assert_eq!(pauses(1800), [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_token_of_days_is_renewed_twice_a_day_and_a_short_one_at_half() {
        let renewed = |seconds| renewal(Duration::from_secs(seconds)).as_secs();
        assert_eq!([600, 3600, 86_400, 604_800].map(renewed), [300, 1800, 43_200, 43_200]);
    }
}
