//! A pod's netns: found and entered, its rules, addresses and routes brought to the desired redirection, and that redirection
//! proven.

pub mod converge;
pub mod netns;
pub mod validate;
