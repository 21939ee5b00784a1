//! The template engine: a table and random templates against Go's own text/template and against `gtmpl-ng`, and the
//! templates of the corpus.
//!
//! Go's is a small program of its own, built here; without Go its trials are ignored.

#![expect(clippy::disallowed_methods, reason = "Go's compiler and the corpus are outside")]

mod corpus;
mod go;
mod gtmpl;
#[path = "../support/go.rs"]
mod module;
mod random;
mod sprig;
mod table;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let args = Arguments::from_args();
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(table::trials());
    trials.extend(corpus::trials());
    trials.extend(random::trials());
    trials.extend(sprig::trials());
    trials.extend(gtmpl::trials());
    libtest_mimic::run(&args, trials).exit();
}
