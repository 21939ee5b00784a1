//! Installing on directories of a real file system: Istio's own expected outputs, a death before each step, full and
//! read-only file systems, other writers. What differs from Istio on purpose is in README.md beside this file.

#![expect(clippy::disallowed_methods, reason = "tests read and write files and measure time")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![expect(clippy::print_stderr, reason = "says why a test has nothing to do")]

mod choosing;
mod corpus;
mod deaths;
mod faults;
mod keeping;
mod life;
mod networks;
mod placing;
mod removing;
mod stage;
mod validity;
