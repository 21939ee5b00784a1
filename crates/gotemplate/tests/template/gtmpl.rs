//! Compares this crate with `gtmpl-ng`, which needs no Go: the random templates that both render must yield the same
//! output.

use std::cell::Cell;

use gotemplate::{Budget, Delims, Functions, Template, Value};
use gtmpl_ng::{Context, Value as Theirs};
use libtest_mimic::{Failed, Trial};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value as Json, json};

use crate::random;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("random templates as gtmpl-ng has them", check)]
}

/// Data without numbers, because `gtmpl-ng` formats numbers differently from Go.
fn data() -> Json {
    json!({ "s": "text", "e": "", "t": true, "f": false, "null": null, "names": ["one", "two", "three"], "list": ["x", true, ["y"]],
        "empty": [], "none": {}, "map": { "b": "c", "a": { "deep": { "er": "found" } }, "c": null } })
}

/// The number of templates with each result.
#[derive(Debug, Default)]
struct Counts {
    /// Templates that both implementations rendered.
    compared: Cell<u32>,
    /// Templates that only this crate rendered: `gtmpl-ng` lacks functions and forms of Go.
    ours_only: Cell<u32>,
    /// Templates that only `gtmpl-ng` rendered; this crate's error is one of [`LENIENT`].
    lenient: Cell<u32>,
    /// Templates that neither rendered. They prove nothing: the comparison with Go covers failures.
    neither: Cell<u32>,
}

/// Parts of this crate's error messages for templates that `gtmpl-ng` renders. Go refuses these templates as well, as
/// the comparison with Go shows.
const LENIENT: [&str; 3] = ["for comparison", "non-comparable type", "error calling index"];
/// The number of templates that are rendered. Of the random templates, six of seven contain forms that `gtmpl-ng`
/// renders differently; they are dropped and not counted.
const CASES: u32 = 400;
/// The least number of templates that both must render. With fewer, the comparison would prove nothing, and the test
/// fails.
const LEAST: u32 = CASES * 3 / 4;

fn check() -> Result<(), Failed> {
    let (functions, counts) = (Functions::go(), Counts::default());
    let (ours, theirs) = (data(), theirs(&data()));
    let config = Config { cases: CASES, max_global_rejects: 100 * CASES, ..random::config() };
    let checked = TestRunner::new(config).run(&random::template(), |text| {
        // `gtmpl-ng` writes whole floats as integers, and null differently from Go if `%s` or `html` formats it.
        if ["%", "1e6", "html", "js", "url"].iter().any(|other| text.contains(other)) {
            return Err(TestCaseError::reject("gtmpl-ng renders it differently"));
        }
        let mut other = gtmpl_ng::Template::default();
        let other = other.parse(text.as_str()).ok().and_then(|()| other.render(&Context::from(theirs.clone())).ok());
        let template = Template::parse("test", &text, Delims::BRACES, &functions);
        let rendered = template.and_then(|template| template.render(&Value::json(&ours), &mut Budget::default()));
        let (count, is_same) = match (&rendered, &other) {
            (Ok(rendered), Some(other)) => (&counts.compared, rendered == other),
            (Ok(_), None) => (&counts.ours_only, true),
            (Err(_), None) => (&counts.neither, true),
            (Err(error), Some(_)) => (&counts.lenient, LENIENT.iter().any(|known| error.to_string().contains(known))),
        };
        count.set(count.get() + 1);
        match is_same {
            true => Ok(()),
            false => Err(TestCaseError::fail(format!("{text:?}\n  ours {rendered:?}\n  gtmpl-ng's {other:?}"))),
        }
    });
    checked.map_err(|failed| Failed::from(failed.to_string()))?;
    match counts.compared.get() >= LEAST {
        true => Ok(()),
        false => Err(format!("both must render at least {LEAST} templates: {counts:?}").into()),
    }
}

fn theirs(json: &Json) -> Theirs {
    match json {
        Json::Null => Theirs::Nil,
        Json::Bool(truth) => Theirs::from(*truth),
        Json::Number(number) => Theirs::from(number.as_f64().unwrap_or_default()),
        Json::String(text) => Theirs::from(text.as_str()),
        Json::Array(items) => Theirs::Array(items.iter().map(theirs).collect()),
        Json::Object(entries) => Theirs::Map(entries.iter().map(|(key, value)| (key.clone(), theirs(value))).collect()),
    }
}
