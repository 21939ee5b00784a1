//! The life of `install-cni`: installer, agent, repair, health and metrics from start to removal.
//!
//! Only the binary calls it. It joins the rooms and has no rules of its own, save the one by which an upgrade is told from a removal.
