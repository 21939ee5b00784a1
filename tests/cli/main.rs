//! The binaries from outside: standard input to standard output, exit codes, and the shape of the sources.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read the sources")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod cnictl;
mod dapr;
mod documents;
mod layers;
mod plugin;
mod sources;
mod trace;
