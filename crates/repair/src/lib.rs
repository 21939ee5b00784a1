//! Finds pods that started without redirection, and repairs, evicts, deletes or labels them. Also finds pods that
//! request Dapr's sidecar but lack it, and reports or deletes them.
//!
//! ```text
//! list, watch ─ pod ─▶ Pod ─ broken ─▶ Broken ─ decide ─▶ Decision ─ act ─▶ RepairOutcome ─▶ History of the pod
//!                             └─ NotBroken (reason) └─ Later, Nothing (reason)
//! ```
//!
//! `daemon` starts [`follow`] on the agent's watch; `webhook::dapr::watchdog` starts [`run`]. Decisions are pure; only `act`
//! changes a pod. Its API requests have the pod's UID and resource version as preconditions. Failures are retried and never
//! delay or stop the daemon.

mod act;
mod broken;
mod budget;
mod calls;
mod decide;
mod event;
mod flags;
mod lineage;
mod metrics;
mod pod;
mod reprogram;
mod run;
mod selector;
mod settings;
mod source;
mod step;
mod tracker;

use contract::diagnostics::LogScope;

pub use broken::{Broken, Evidence, NotBroken, Owner, detect};
pub use decide::{Acted, Action, Decision, History, Reason, decide};
pub use flags::{Given, RepairFlags, switch};
pub use lineage::Lineage;
pub use metrics::{Metrics, RepairAction};
pub use pod::Pod;
pub use reprogram::{Reprogram, ReprogramError};
pub use run::{follow, run};
pub use selector::{Error as SelectorError, Selector};
pub use settings::{Error as SettingsError, Mode, RepairSettings, Symptom, Validation};
pub use source::{Skipped, Source, source};

/// The scope of log lines.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), "repair");
