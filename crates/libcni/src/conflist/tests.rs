//! Tests of edits, compared byte by byte, and of the files that runtimes refuse.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

const ENTRY: &str = "{\n  \"type\": \"istio-cni\",\n  \"new\": true\n}";

fn list(text: &str) -> List<'_> {
    List::decode(text.as_bytes()).unwrap()
}

fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_entry_is_appended_with_the_lists_indentation() {
    let text = "{\n \"n\": 1.0, \"name\": \"x\",\n \"plugins\": [\n    {\"type\": \"ptp\", \"mtu\": 1e3}\n ]\n}\n";
    let expected = "{\n \"n\": 1.0, \"name\": \"x\",\n \"plugins\": [\n    {\"type\": \"ptp\", \"mtu\": 1e3},\n    {\n      \"type\": \"istio-cni\",\n      \"new\": true\n    }\n ]\n}\n";
    assert_eq!(utf8(list(text).with_entry(ENTRY)), expected);
}

#[test]
fn older_entries_are_replaced_at_any_position() {
    for text in [
        r#"{"name":"x","plugins":[{"type":"istio-cni","old":1},{"type":"ptp"}]}"#,
        r#"{"name":"x","plugins":[{"type":"ptp"},{"type":"istio-cni","old":1}]}"#,
        r#"{"name":"x","plugins":[{"type":"istio-cni"},{"type":"ptp"},{"type":"istio-cni","old":1}]}"#,
    ] {
        assert_eq!(utf8(list(text).without_entry().unwrap()), r#"{"name":"x","plugins":[{"type":"ptp"}]}"#, "{text}");
        let with = utf8(list(text).with_entry(r#"{"type":"istio-cni"}"#));
        assert_eq!(with, r#"{"name":"x","plugins":[{"type":"ptp"},{"type":"istio-cni"}]}"#, "{text}");
    }
}

#[test]
fn removing_the_only_plugin_leaves_no_list() {
    let only = list(r#"{"name":"x","plugins":[{"type":"istio-cni","old":1}]}"#);
    assert_eq!(only.without_entry(), None);
    assert_eq!(list(&utf8(only.with_entry(ENTRY))).entries().count(), 1);
}

#[test]
fn a_single_plugin_keeps_the_networks_name_and_version() {
    let text = r#"{"cniVersion":"0.4.0","name":"dbnet","type":"bridge","mtu":1500.0,"z":1,"a":2}"#;
    let Ok(Network::Single(single)) = Network::parse(text.as_bytes()) else { panic!() };
    let chained = utf8(single.chained(ENTRY));
    let value: Value = serde_json::from_str(&chained).unwrap();
    assert_eq!((&value["name"], &value["cniVersion"]), (&"dbnet".into(), &"0.4.0".into()));
    assert_eq!(value["plugins"][0]["type"], "bridge");
    assert!(chained.contains("\"mtu\": 1500.0"), "{chained}");
    assert_eq!(list(&chained).entries().count(), 1);

    let nameless = Single::decode(br#"{"type":"bridge","cniVersion":""}"#).unwrap();
    let value: Value = serde_json::from_slice(&nameless.chained(ENTRY)).unwrap();
    assert_eq!((&value["name"], &value["cniVersion"]), (&DEFAULT_NAME.into(), &DEFAULT_VERSION.into()));
}

#[test]
fn an_invalid_file_has_a_reason() {
    for (text, reason) in [
        ("{}", "`name` is not a string"),
        ("[]", "the file is not a JSON object"),
        ("{\"name\": \"x\", \"plug", "the file is not JSON: it ends too early"),
        (r#"{"name":"x","plugins":[]}"#, "the file names no plugin"),
        (r#"{"name":"x","pugins":[{"type":"a"}]}"#, "`plugins` is missing"),
        (r#"{"name":"x","loadOnlyInlinedPlugins":true}"#, "the file names no plugin"),
        (r#"{"name":"x","plugins":[{"type":"a"},{"kind":"b"}]}"#, "plugin 1: `type` is missing or empty"),
        (r#"{"name":"x","cniVersion":1,"plugins":[{"type":"a"}]}"#, "`cniVersion` is not a string"),
        (r#"{"name":"x","disableGC":"yes","plugins":[{"type":"a"}]}"#, "`disableGC` is not true or false"),
        (r#"{"type":""}"#, "`type` is missing or empty"),
        (r#"{"type":"a","name":5}"#, "`name` is not a string"),
        (r#"{"name":"x","cniVersions":["1.x"],"plugins":[{"type":"a"}]}"#, "\"1.x\" is no version"),
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
        let with = utf8(list(&text).with_entry(ENTRY));
        let chained = list(&with);
        prop_assert_eq!(chained.plugins.last().map(|p| p.kind.as_str()), Some("istio-cni"));
        prop_assert_eq!(chained.entries().count(), 1);
        prop_assert_eq!(chained.without_entry(), Some(text.into_bytes()));
    }

    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Network::parse(&bytes);
    }
}

#[test]
fn an_edit_keeps_what_only_go_reads() {
    let text = b"{\"plugins\":[{\"type\":\"x\"}],\"name\":\"caf\xe9\",\"plugins\":[{\"TYPE\":\"a\",\"type\":\"ptp\",\"type\":\"b\xff\\ud800\"}]}";
    let list = List::decode(text).unwrap();
    assert_eq!(list.name(), "caf\u{fffd}");
    let with = list.with_entry(r#"{"type":"istio-cni"}"#);
    let added = text.len() - 2..text.len() - 2 + r#",{"type":"istio-cni"}"#.len();
    assert_eq!([&with[..added.start], &with[added.end..]].concat(), text, "{}", with.escape_ascii());
    assert_eq!(List::decode(&with).unwrap().without_entry().as_deref(), Some(&text[..]));
}

#[test]
fn the_version_is_the_newest_that_libcni_knows() {
    for (keys, expected) in [
        ("", ""),
        (r#""cniVersion":"0.4.0","#, "0.4.0"),
        (r#""cniVersion":"1.2.0","#, "1.2.0"),
        (r#""cniVersion":"1.0.0","cniVersions":["9.9.9"],"#, "1.0.0"),
        (r#""cniVersion":"0.4.0","cniVersions":["1.0.0","0.3.1"],"#, "1.0.0"),
        (r#""cniVersion":"1.2.0","cniVersions":["1.0.0"],"#, "1.0.0"),
        (r#""cniVersions":["1.1"],"#, "1.1"),
        (r#""cniVersion":"1.2.0","cniVersions":[],"#, "1.2.0"),
    ] {
        let text = format!(r#"{{{keys}"name":"x","plugins":[{{"type":"ptp"}}]}}"#);
        assert_eq!(Network::parse(text.as_bytes()).unwrap().version(), expected, "{text}");
    }
}

#[test]
fn the_extension_decides_what_a_file_is() {
    let (list, single): (&[u8], &[u8]) = (br#"{"name":"x","plugins":[{"type":"a"}]}"#, br#"{"name":"x","type":"a"}"#);
    for (name, content, is_accepted) in [
        ("a.conflist", list, true),
        ("a.conf", list, false),
        ("a.json", list, false),
        ("a.conflist", single, false),
        ("a.conf", single, true),
        (".json", single, true),
        ("a.file", list, true),
        ("a.file", single, true),
    ] {
        let network = Network::of_file(name, content);
        assert_eq!(network.is_ok(), is_accepted, "{name}: {network:?}");
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
