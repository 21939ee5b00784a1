//! Tests of the work that reading a text takes, measured in allocated bytes. Unlike a time, this number is the same in
//! each run, and it includes the copies that the library makes.

use allocation_counter::measure;
use gotemplate::Budget;
use serde_json::{Value, json};

use super::super::{Error, library, value_within};

/// A depth that is below the limit of 32.
const LEVELS: usize = 30;

/// Returns nested collections around a list of 1,000 elements.
fn nested(levels: usize, start: &str, end: &str) -> String {
    format!("{}[{}]{}\n", start.repeat(levels), vec!["x"; 1000].join(","), end.repeat(levels))
}

fn read(text: &str) -> Result<Value, Error> {
    value_within(text, &mut Budget::default())
}

fn allocated(text: &str) -> u64 {
    measure(|| drop(read(text))).bytes_total
}

#[test]
fn nested_maps_with_integer_keys_are_not_copied() {
    let (names, integers) = (nested(LEVELS, "{a: ", "}"), nested(LEVELS, "{1: ", "}"));
    assert_eq!(read(&integers).unwrap().to_string(), read(&names).unwrap().to_string().replace("\"a\"", "\"1\""));
    let (names, integers) = (allocated(&names), allocated(&integers));
    assert!(integers < 2 * names, "{integers} bytes, {names} with names as keys");
}

#[test]
fn copies_of_maps_with_repeated_integer_keys_are_bounded_by_their_depth() {
    for (start, end) in [("{1: x, a: ", ", 1: z}"), ("{a: x, 1: ", ", a: z}"), ("{0x1: x, 1: ", "}")] {
        let text = nested(LEVELS, start, end);
        let error = read(&text).unwrap_err();
        assert!(matches!(error, Error::RepeatedKeys(16)), "{error}");
        assert!(error.to_string().contains("is deeper than 16 levels: remove all but the last value"), "{error}");
        let (least, most) = (allocated(&nested(15, start, end)), allocated(&text));
        assert!(most < 2 * least, "{most} bytes, {least} for the depth that is read");
        read(&nested(15, start, end)).unwrap();
    }
}

/// The budget must bound the reading of many elements in few levels, which the depth limit permits. If it charged for
/// two readings of such a document but not for the library's copies, reading the aliases would allocate 1.7 GB.
#[test]
fn copies_are_bounded_by_the_budget() {
    const MOST: u64 = 64 << 20;
    let (start, end) = ("{1: x, 1: ".repeat(13), "}".repeat(13));
    let (list, aliases) = (vec!["x"; 1000].join(","), vec!["*a"; 50].join(","));
    let (aliased, plain) = (format!("a: &a [{list}]\nb: {start}[{aliases}]{end}\n"), format!("{start}[{list}]{end}\n"));
    let longest = plain.replace(&list, &vec!["x"; 7000].join(","));
    assert!(matches!(read(&aliased), Err(Error::Exceeded(_))));
    read(&longest).unwrap();
    for text in [aliased, longest] {
        let memory = measure(|| drop(read(&text)));
        assert!(memory.bytes_max < MOST && memory.bytes_total < 8 * MOST, "{memory:?} for {} bytes", text.len());
    }
}

#[test]
fn keys_that_are_collections_are_refused_before_their_own_keys_are_read() {
    for (start, end) in [("{? [", "]}"), ("{? ", "}")] {
        let text = nested(LEVELS / 2 - 1, start, end);
        let error = read(&text).unwrap_err().to_string();
        assert!(error.starts_with("a key is neither text, number nor boolean"), "{error}");
        let (once, all) = (allocated(&nested(1, start, end)), allocated(&text));
        assert!(all < once * LEVELS as u64, "{all} bytes, {once} for one level");
    }
}

/// The depth limit must bound the copies: without it, reading 31 nested keys would copy 873 MB.
#[test]
fn copies_of_keys_that_are_collections_are_bounded_by_their_depth() {
    const MOST: u64 = 512 << 20;
    for (start, end) in [("{? [", "]}"), ("{? ", "}"), ("[{? ", "}]")] {
        let levels = 31 / start.matches(['{', '[']).count();
        for levels in [levels, 60] {
            let list = vec!["x"; 55_000].join(",");
            let text = format!("{}[{list}]{}\n", start.repeat(levels), end.repeat(levels));
            let memory = measure(|| drop(read(&text).unwrap_err()));
            assert!(memory.bytes_total < MOST && memory.bytes_max < 32 << 20, "{memory:?}: {start:?} {levels}");
        }
    }
}

#[test]
fn a_document_is_refused_above_its_depth() {
    let lists = |levels: usize| format!("{}{}\n", "[".repeat(levels), "]".repeat(levels));
    let maps = |levels: usize| (0..levels).map(|level| format!("{}a:\n", " ".repeat(level))).collect::<String>();
    for text in [lists, maps] as [fn(usize) -> String; 2] {
        read(&text(32)).unwrap();
        let error = read(&text(33)).unwrap_err();
        assert!(matches!(error, Error::Deep(32)), "{error}");
        assert_eq!(error.to_string(), "the document is deeper than 32 levels");
    }
}

#[test]
fn the_last_value_of_a_repeated_key_counts() {
    for (text, expected) in [
        ("{1: x, a: 2, 1: z}\n", json!({"1": "z", "a": 2})),
        ("0x1: x\n1: z\n", json!({"1": "z"})),
        ("'1': x\n1: z\n", json!({"1": "z"})),
        ("a: {1: x, 1: z}\nb: {2: {c: x}}\n", json!({"a": {"1": "z"}, "b": {"2": {"c": "x"}}})),
        ("a: {b: 1, b: {c: 1, c: 2}}\na: {b: 3, b: 4}\n", json!({"a": {"b": 4}})),
        ("1: {2: {3: x}}\n", json!({"1": {"2": {"3": "x"}}})),
        ("a: &a {b: 1, b: 2}\nc: *a\n", json!({"a": {"b": 2}, "c": {"b": 2}})),
    ] {
        assert_eq!(read(text).unwrap(), expected, "{text}");
        assert_eq!(library::value(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn a_document_that_is_read_twice_is_charged_twice() {
    let steps = |text: &str| {
        let mut budget = Budget::default();
        value_within(text, &mut budget).unwrap();
        Budget::default().left().steps - budget.left().steps
    };
    let list = vec!["&a x"; 1000].join(",");
    let (once, twice) = (steps(&format!("{{a: [{list}], b: 1}}\n")), steps(&format!("{{a: [{list}], a: 1}}\n")));
    // Each of 1,000 elements and as many recorded ones takes 8 steps in the first reading and 128 in the second.
    assert!(twice >= 2000 * (8 + 128), "{twice} steps, {once} for a document without repeated keys");
}
