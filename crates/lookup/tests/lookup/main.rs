//! Tests of the plugin's lookup of a pod over real sockets and real TLS: each failure of an agent or an API server, and
//! the reason that is reported.
//!
//! Needs nothing but loopback; every test has its own directory and ports.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "these tests use files, clocks and slow servers")]

mod agent;
mod api;
mod lookup;
mod port;
