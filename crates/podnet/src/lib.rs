//! Finds and enters a pod's netns, changes its rules, addresses and routes to the desired redirection, and verifies that
//! redirection.

pub mod converge;
pub mod netns;
pub mod validate;
