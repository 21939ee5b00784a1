//! The bodies of the fuzz targets, one module for each. `fuzz/fuzz_targets` runs them with inputs that libFuzzer mutates,
//! and the suite `seeds` with the committed seeds, without the fuzz targets' compiler.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is a finding")]
#![allow(clippy::disallowed_methods, reason = "targets compare with libraries, and one reads a directory")]

pub mod admission;
pub mod agent_response;
pub mod annotations;
pub mod cni_args;
pub mod command_line;
pub mod conflist;
pub mod dapr;
pub mod kubeconfig;
pub mod merge;
pub mod netlink;
pub mod pod;
pub mod relay;
pub mod stdin;
pub mod template;
pub mod yaml;
pub mod zds;

/// A function that panics if an input violates the target's property.
pub type Check = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Check); 16] = [
    ("admission", admission::property),
    ("agent_response", agent_response::property),
    ("annotations", annotations::property),
    ("cni_args", cni_args::property),
    ("command_line", command_line::property),
    ("conflist", conflist::property),
    ("dapr", dapr::property),
    ("kubeconfig", kubeconfig::property),
    ("merge", merge::property),
    ("netlink", netlink::property),
    ("pod", pod::property),
    ("relay", relay::property),
    ("stdin", stdin::property),
    ("template", template::property),
    ("yaml", yaml::property),
    ("zds", zds::property),
];

/// Returns the longest valid UTF-8 prefix, which is also what libFuzzer's Rust interface passes to a target that takes a string.
fn text(input: &[u8]) -> &str {
    input.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
