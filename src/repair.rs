//! Finds pods that started without redirection, and mends, evicts, deletes or labels them; and pods that lack the sidecar of
//! Dapr that they ask for, and tells or deletes them.
//!
//! ```text
//! list, watch ─ pod ─▶ Pod ─ broken ─▶ Broken ─ decide ─▶ Decision ─ act ─▶ Outcome ─▶ History of the pod
//!                             └─ Sound(reason)     └─ Later, Nothing(reason)
//! ```
//!
//! `daemon` starts [`follow`] on the agent's watch, `webhook::dapr::watchdog` starts [`run`]. Deciding is pure; only `act` touches a pod, and
//! only with its UID and version as preconditions. Nothing here delays or ends the daemon: whatever fails is tried again.

mod act;
mod broken;
mod budget;
mod calls;
mod decide;
mod event;
mod flags;
mod lineage;
mod metrics;
mod netns;
mod pod;
mod run;
mod selector;
mod settings;
mod source;
mod step;
mod tracker;

pub use broken::{Broken, Evidence, Owner, Sound, detect};
pub use decide::{Acted, Action, Decision, History, Reason, decide};
pub use flags::Flags;
pub use lineage::Lineage;
pub use metrics::Metrics;
pub use pod::Pod;
pub use run::{follow, run};
pub use selector::{Error as SelectorError, Selector};
pub use settings::{Error as SettingsError, Mode, Settings, Symptom, Validation};
pub use source::{Source, source};
