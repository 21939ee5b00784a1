//! Dapr's injection behind `/mutate`.
//!
//! Turns reviews into its requests and its outcomes into answers. What it must know of the cluster [`keep`] learns, a task
//! that the binary starts.

mod flags;
mod mesh;
mod watch;
pub mod watchdog;

pub use flags::Flags;
pub use mesh::Mesh;
pub use watch::{Places, keep};

use std::sync::Arc;

use super::answer::Route;
use super::review::{Outcome, Profile, Review, Verdict};
use crate::inject::dapr::{self, Decision, Request, Settings, User};

/// Where Dapr's webhook configuration sends reviews.
const PATH: &str = "/mutate";

/// Dapr's injection.
pub struct Dapr {
    settings: Arc<Settings>,
    mesh: Mesh,
}

/// The route of Dapr's injection; `mesh` is what [`keep`] keeps current.
pub fn route(settings: Arc<Settings>, mesh: Mesh) -> Route {
    Route { path: PATH, below: false, profile: Arc::new(Dapr { settings, mesh }) }
}

impl Profile for Dapr {
    fn review(&self, review: &Review) -> Outcome {
        let user = &review.user;
        let request = Request {
            kind: &review.kind,
            namespace: &review.namespace,
            user: User { username: &user.username, uid: &user.uid, groups: &user.groups },
            object: Some(&review.object).filter(|object| !object.is_null()),
        };
        let known = self.mesh.known();
        told(&dapr::review(&request, &self.settings, &known.facts(&review.namespace)))
    }
}

/// Warnings of a pod that is injected are part of the reason, by which they reach the log and the audit log.
fn told(outcome: &dapr::Outcome) -> Outcome {
    let rule = outcome.decision.reason();
    let mut reason = outcome.decision.to_string();
    if matches!(outcome.decision, Decision::Inject { .. }) {
        outcome.warnings.iter().for_each(|warning| reason += &format!("; {warning}"));
    }
    let verdict = match &outcome.decision {
        Decision::Skip(_) => Verdict::Skip,
        Decision::Refuse(_) => Verdict::Refuse,
        Decision::Inject { .. } => match serde_json::to_vec(&outcome.patch) {
            Ok(patch) => Verdict::Patch(patch),
            Err(error) => return Outcome::refused("error", format!("the patch cannot be written: {error}")),
        },
    };
    Outcome { verdict, rule, reason, warnings: outcome.warnings.clone() }
}
