//! Compares the outputs of this crate, Go's text/template and `gtmpl-ng` for the same templates, which are from a table
//! or random.
//!
//! The suite builds a small Go program that runs text/template. Without Go, the tests that need it are ignored.

#![expect(clippy::disallowed_methods, reason = "starts Go's compiler and the program")]

mod go;
mod gtmpl;
mod random;
mod sprig;
mod table;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let args = Arguments::from_args();
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(table::trials());
    trials.extend(random::trials());
    trials.extend(sprig::trials());
    trials.extend(gtmpl::trials());
    libtest_mimic::run(&args, trials).exit();
}
