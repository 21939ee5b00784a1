//! Puts plugin, kubeconfig and chain entry on a node, keeps them there, and takes them away again.
//!
//! `daemon` calls it. A snapshot of the node gives a plan of file operations; an empty plan is what ready means.
