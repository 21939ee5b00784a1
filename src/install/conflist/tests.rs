//! Edits of lists, compared by bytes, and files that runtimes ignore.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

const ENTRY: &str = "{\n  \"type\": \"istio-cni\",\n  \"new\": true\n}";

fn list(text: &str) -> List<'_> {
    match Network::parse(text.as_bytes()) {
        Ok(Network::List(list)) => list,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_entry_is_appended_with_the_lists_indentation() {
    let text = "{\n \"n\": 1.0, \"name\": \"x\",\n \"plugins\": [\n    {\"type\": \"ptp\", \"mtu\": 1e3}\n ]\n}\n";
    let expected = "{\n \"n\": 1.0, \"name\": \"x\",\n \"plugins\": [\n    {\"type\": \"ptp\", \"mtu\": 1e3},\n    {\n      \"type\": \"istio-cni\",\n      \"new\": true\n    }\n ]\n}\n";
    assert_eq!(list(text).with_entry(ENTRY), expected);
}

#[test]
fn older_entries_are_replaced_at_any_position() {
    for text in [
        r#"{"name":"x","plugins":[{"type":"istio-cni","old":1},{"type":"ptp"}]}"#,
        r#"{"name":"x","plugins":[{"type":"ptp"},{"type":"istio-cni","old":1}]}"#,
        r#"{"name":"x","plugins":[{"type":"istio-cni"},{"type":"ptp"},{"type":"istio-cni","old":1}]}"#,
    ] {
        assert_eq!(list(text).without_entry().unwrap(), r#"{"name":"x","plugins":[{"type":"ptp"}]}"#, "{text}");
        let with = list(text).with_entry(r#"{"type":"istio-cni"}"#);
        assert_eq!(with, r#"{"name":"x","plugins":[{"type":"ptp"},{"type":"istio-cni"}]}"#, "{text}");
    }
}

#[test]
fn removing_the_only_plugin_leaves_no_list() {
    let only = list(r#"{"name":"x","plugins":[{"type":"istio-cni","old":1}]}"#);
    assert_eq!(only.without_entry(), None);
    assert_eq!(list(&only.with_entry(ENTRY)).entries().count(), 1);
}

#[test]
fn a_single_plugin_keeps_the_networks_name_and_version() {
    let text = r#"{"cniVersion":"0.4.0","name":"dbnet","type":"bridge","mtu":1500.0,"z":1,"a":2}"#;
    let Ok(Network::Single(single)) = Network::parse(text.as_bytes()) else { panic!() };
    let chained = single.chained(ENTRY);
    let value: Value = serde_json::from_str(&chained).unwrap();
    assert_eq!((&value["name"], &value["cniVersion"]), (&"dbnet".into(), &"0.4.0".into()));
    assert_eq!(value["plugins"][0]["type"], "bridge");
    assert!(chained.contains("\"mtu\": 1500.0"), "{chained}");
    assert_eq!(list(&chained).entries().count(), 1);

    let Ok(Network::Single(nameless)) = Network::parse(br#"{"type":"bridge","cniVersion":3}"#) else { panic!() };
    let value: Value = serde_json::from_str(&nameless.chained(ENTRY)).unwrap();
    assert_eq!((&value["name"], &value["cniVersion"]), (&DEFAULT_NAME.into(), &DEFAULT_VERSION.into()));
}

#[test]
fn an_invalid_file_has_a_reason() {
    for (text, reason) in [
        ("{}", "`name` is not a string"),
        ("[]", "the file is not a JSON object"),
        ("{\"name\": \"x\", \"plug", "the file is not a JSON object"),
        (r#"{"name":"x","plugins":[]}"#, "the file names no plugin"),
        (r#"{"name":"x","pugins":[{"type":"a"}]}"#, "`plugins` is missing"),
        (r#"{"name":"x","loadOnlyInlinedPlugins":true}"#, "the file names no plugin"),
        (r#"{"name":"x","plugins":[{"type":"a"},{"kind":"b"}]}"#, "plugin 1 has no `type`"),
        (r#"{"name":"x","cniVersion":1,"plugins":[{"type":"a"}]}"#, "`cniVersion` is not a string"),
        (r#"{"name":"x","disableGC":"yes","plugins":[{"type":"a"}]}"#, "`disableGC` is not true or false"),
        (r#"{"type":""}"#, "`type` is not a plugin's name"),
    ] {
        let error = Network::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{text}: {error}");
    }
    assert!(Network::parse(br#"{"name":"x","disableGC":"true","plugins":[{"type":"a"}]}"#).is_ok());
}

fn white_space() -> impl Strategy<Value = String> {
    "[ \n\t]{0,3}"
}

proptest! {
    #[test]
    fn removal_after_insertion_restores_every_byte(
        types in prop::collection::vec("[a-h]{1,4}", 1..5),
        gaps in prop::collection::vec((white_space(), white_space()), 5),
        number in prop::sample::select(vec!["1.0", "1e300", "10000000000000000000000", "-0.0"]),
    ) {
        let plugins: Vec<String> = types.iter().zip(&gaps)
            .map(|(kind, (before, after))| format!("{before}{{\"n\": {number}, \"type\": \"{kind}\"}}{after}"))
            .collect();
        let text = format!("{{\"plugins\":[{}], \"z\": {number}, \"name\": \"x\"}}", plugins.join(","));
        let with = list(&text).with_entry(ENTRY);
        let chained = list(&with);
        prop_assert_eq!(chained.plugins.last().map(|p| p.kind.as_str()), Some("istio-cni"));
        prop_assert_eq!(chained.entries().count(), 1);
        prop_assert_eq!(chained.without_entry(), Some(text));
    }

    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Network::parse(&bytes);
    }
}

#[test]
fn numbers_that_gos_float64_cannot_hold_are_refused_as_by_libcni() {
    let list =
        |value: &str| format!(r#"{{"name":"x","plugins":[{{"type":"ptp","a\\\"1e999":[{value},"1e999\\\\"]}}]}}"#);
    for value in ["31e400", "-1e309", "[{\"b\": 1E+999}]"] {
        let text = list(value);
        assert!(matches!(Network::parse(text.as_bytes()), Err(Invalid::Range(_))), "{text}");
        let single = text.replace(r#""name""#, r#""type":"ptp","name""#);
        assert!(matches!(Network::parse(single.as_bytes()), Err(Invalid::Range(_))), "{single}");
    }
    for value in ["1e308", "-0", "1e-999", "123456789012345678901234567890", "\"1e999\""] {
        let text = list(value);
        assert!(Network::parse(text.as_bytes()).is_ok(), "{text}");
    }
}
