//! Random templates against `gtmpl-ng`, where no Go is needed: what both render is the same.

use gotemplate::{Budget, Delims, Functions, Template, Value};
use gtmpl_ng::{Context, Value as Theirs};
use libtest_mimic::{Failed, Trial};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value as Json, json};

use crate::random;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("random templates as gtmpl-ng has them", check)]
}

/// Without numbers, of which `gtmpl-ng` has its own notion.
fn data() -> Json {
    json!({ "s": "text", "e": "", "t": true, "f": false, "null": null, "names": ["one", "two", "three"], "list": ["x", true, ["y"]],
        "empty": [], "none": {}, "map": { "b": "c", "a": { "deep": { "er": "found" } }, "c": null } })
}

fn check() -> Result<(), Failed> {
    let functions = Functions::go();
    let (ours, theirs) = (data(), theirs(&data()));
    let config = Config { cases: random::CASES, failure_persistence: None, ..Config::default() };
    let checked = TestRunner::new(config).run(&random::template(), |text| {
        // It writes whole floats as integers, and null otherwise than Go where `%s` or `html` meets it.
        if ["%", "1e6", "html", "js", "url"].iter().any(|other| text.contains(other)) {
            return Ok(());
        }
        let mut other = gtmpl_ng::Template::default();
        let other = other.parse(text.as_str()).ok().and_then(|()| other.render(&Context::from(theirs.clone())).ok());
        let template = Template::parse("test", &text, Delims::BRACES, &functions);
        let rendered = template.and_then(|template| template.render(&Value::json(&ours), &mut Budget::default()));
        match (rendered, other) {
            (Ok(rendered), Some(other)) if rendered != other => {
                Err(TestCaseError::fail(format!("{text:?}\n  ours {rendered:?}\n  gtmpl-ng's {other:?}")))
            }
            _ => Ok(()),
        }
    });
    checked.map_err(|failed| failed.to_string().into())
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
