//! Compares single constructs of templates with Go's results.

use gotemplate::Delims;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value as Json, json};

use crate::go::{self, Request};

/// Templates, separated by lines of `---`.
const TEMPLATES: &str = include_str!("table.txt");

/// Templates that call sprig's functions, in the same format.
const SPRIG: &str = include_str!("sprig.txt");

/// Returns the tests or, without Go, a single test that is ignored with the reason.
pub(crate) fn trials() -> Vec<Trial> {
    if let Some(missing) = go::missing() {
        return vec![tier::trial("go", "table", Some(missing), || Ok(()))];
    }
    let brackets = "a [[ if eq .n 1.5 ]]{{ .s }}[[ .s -]] b[[ end ]]";
    vec![
        Trial::test("table", || all(TEMPLATES.split("\n---\n").map(|text| Request::new(text, data())))),
        Trial::test("table of sprig", || all(SPRIG.split("\n---\n").map(|text| Request::with_sprig(text, data())))),
        Trial::test("brackets", || same(&Request::with_delims(brackets, Delims::BRACKETS, data()))),
    ]
}

/// Fails with the messages of all templates whose results differ.
fn all(requests: impl Iterator<Item = Request>) -> Result<(), Failed> {
    let different: Vec<String> =
        requests.filter_map(|request| same(&request).err()?.message().map(str::to_owned)).collect();
    match different.is_empty() {
        true => Ok(()),
        false => Err(different.join("\n").into()),
    }
}

pub(crate) fn data() -> Json {
    json!({
        "s": "text", "e": "", "t": true, "f": false, "n": 1.5, "i": 3, "z": 0, "big": 1_000_000, "small": 0.00001, "null": null,
        "neg": -7, "quote": "a \"b\" <c> & 'd'\n\ttab", "list": ["x", 1, null, true, [1, 2], {"k": "v"}], "empty": [], "none": {},
        "map": {"b": 2, "a": {"deep": {"er": "found"}}, "c": null, "B": [1], "z9": "q"}, "names": ["one", "two", "three"],
    })
}

/// Fails if Go's result differs from this crate's; the message contains both, with their error messages.
pub(crate) fn same(request: &Request) -> Result<(), Failed> {
    let (ours, our_error) = go::ours(request);
    let (theirs, their_error) = go::theirs(request)?;
    match ours == theirs {
        true => Ok(()),
        false => Err(format!(
            "{:?}\n  data {}\n  ours {ours:?} {our_error}\n  Go's {theirs:?} {their_error}",
            request.text, request.data
        )
        .into()),
    }
}
