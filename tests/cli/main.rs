//! Tests of the programs as processes: standard input, output and exit codes. Also checks rules for the repository's
//! sources and documents.

#![expect(clippy::disallowed_methods, reason = "tests run programs and read the sources")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod check;
mod circles;
mod cnictl;
mod dapr;
mod documents;
mod explain;
mod files;
mod gate;
mod log_scopes;
mod manuals;
mod paths;
mod plugin;
mod sources;
mod starts;
mod status;
mod terminal;
mod trace;
