//! Serves Dapr's injection at `/mutate`.
//!
//! Converts reviews to the injection's requests, and the injection's outcomes to the webhook's. The binary starts
//! [`watch_mesh`], which keeps the state of the mesh current.

mod flags;
mod mesh;
mod watch;
pub mod watchdog;

pub use flags::DaprFlags;
pub use mesh::Mesh;
pub use watch::{TrustFiles, watch_mesh};

use std::sync::Arc;

use dapr::{Decision, Request, Settings, User};

use super::endpoint::Route;
use super::patch;
use super::review::{AdmissionOutcome, Profile, Review, Verdict};

/// The path in Dapr's webhook configuration.
const PATH: &str = "/mutate";

/// The profile of Dapr's injection.
pub struct Dapr {
    settings: Arc<Settings>,
    mesh: Mesh,
}

/// Returns the route of Dapr's injection; [`watch_mesh`] keeps `mesh` current.
pub fn route(settings: Arc<Settings>, mesh: Mesh) -> Route {
    Route { path: PATH, below: false, profile: Arc::new(Dapr { settings, mesh }) }
}

impl Profile for Dapr {
    fn review(&self, review: &Review) -> AdmissionOutcome {
        let user = &review.user;
        let request = Request {
            kind: &review.kind,
            namespace: &review.namespace,
            user: User { username: &user.username, uid: &user.uid, groups: &user.groups },
            object: Some(&review.object).filter(|object| !object.is_null()),
        };
        let snapshot = self.mesh.snapshot();
        let (facts, mut budget) = (snapshot.facts(&review.namespace), review.budget.clone());
        outcome_of(&dapr::review_within(&request, &self.settings, &facts, &mut budget))
    }
}

/// Converts an outcome of Dapr's injection to the webhook's. The reason of an injected pod includes the warnings, so that
/// they are in the log and the audit log.
fn outcome_of(outcome: &dapr::InjectionOutcome) -> AdmissionOutcome {
    let rule = outcome.decision.reason();
    let mut reason = outcome.decision.to_string();
    if matches!(outcome.decision, Decision::Inject { .. }) {
        outcome.warnings.iter().for_each(|warning| reason += &format!("; {warning}"));
    }
    let verdict = match &outcome.decision {
        Decision::Skip(_) => Verdict::Skip,
        Decision::Refuse(_) => Verdict::Refuse,
        Decision::Inject { .. } => match patch::written(&outcome.patch) {
            Ok(patch) => patch,
            Err(refusal) => return *refusal,
        },
    };
    AdmissionOutcome { verdict, rule, reason, warnings: outcome.warnings.clone() }
}
