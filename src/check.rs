//! Checks whether a node is ready for redirection. Each check gives a [`Finding`](report::Finding).
//!
//! ```text
//! node's directories, kernel ─ gather ─▶ NodeFacts ─ decide ─▶ Findings
//! ```
//!
//! The binary calls it for `install-cni check`. Only `gather` and `kernel` have effects: they read the node, and program rules in
//! network namespaces that they create.

mod gather;
pub mod kernel;
mod networks;
pub mod node;

pub use gather::gather;
pub use node::NodeFacts;
