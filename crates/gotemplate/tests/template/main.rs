//! A table of templates and random templates, rendered by this crate, by Go's own text/template and by `gtmpl-ng`.
//!
//! Go's is a small program, which the suite builds; its trials are ignored where Go is missing.

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
