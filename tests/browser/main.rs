//! Both status pages in headless Chromium: text that overflows, errors on the console, violations that axe-core finds, size
//! and response time, and screenshots in `target/screenshots`.
//!
//! All trials share one browser and one process of each program, and run one after the other.

#![expect(clippy::disallowed_methods, reason = "tests run programs, measure time and write files")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]
#![expect(clippy::print_stdout, reason = "prints sizes and response times")]

mod browser;
mod injector;
mod node;
mod stage;
mod view;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use stage::{Page, Stage};
use view::VIEWS;

fn main() -> ExitCode {
    // One thread, because the trials share the browser's only tab.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let stage = Stage::default();
    let pages = [Page::Node, Page::Injector];
    let views = pages.into_iter().flat_map(|page| VIEWS.into_iter().map(move |view| (page, view)));
    let mut trials: Vec<_> = views
        .map(|(page, view)| {
            stage.trial(format!("{}/{}", page.name(), view.name()), move |pages| view.check(pages, page))
        })
        .collect();
    trials.extend(
        pages.map(|page| stage.trial(format!("{}/small_and_fast", page.name()), move |pages| pages.measure(page))),
    );
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(stage);
    conclusion.exit_code()
}
