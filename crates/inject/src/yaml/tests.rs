//! Tests that `block` reads texts as the library does, and that reading is charged to the budget.

mod work;

use gotemplate::{Budget, Exceeded, Limits};
use proptest::prelude::*;
use serde_json::json;

use super::{Error, block, library, value, value_within};

/// Fails if `block` reads a text differently from the library. Returns whether `block` reads it.
fn compare(text: &str) -> Result<bool, TestCaseError> {
    let Some(quick) = block::read(text) else { return Ok(false) };
    match library::value(text) {
        Ok(value) => prop_assert_eq!(&quick, &value, "{}", text),
        Err(error) => prop_assert!(false, "{error}: {text}\nquick {quick}"),
    }
    Ok(true)
}

#[test]
fn a_container_is_read_in_one_pass() {
    let text = r#"
metadata:
  annotations: {
    istio.io/rev: "default",

    a: [ 1,
      b],
  }
  labels: {"security.istio.io/tlsMode":"istio", 'b': [1, "x", {}]}  # a comment
spec:
  securityContext: {}
  containers:
  - name: istio-proxy
    # another
    image: "docker.io/istio/proxyv2:1.27"
    args:
    - --domain
    -  "1337" 
    - $(POD_NAMESPACE).svc.cluster.local
    resources:
      limits:
        cpu: 2000m
        memory: 1Gi
    ports:
    - containerPort: 15090
      protocol: TCP
    - - nested
    env:
    -
      name: 'it''s'
      value: |
        {"a": "\u003cb"}

          more # no comment
      none:
    - name: HOST
      value: $(HOST_IP)
  - 10.0.0.0/8
"#;
    let read = block::read(text).unwrap();
    assert_eq!(read, library::value(text).unwrap());
    assert_eq!(read["spec"]["containers"][0]["env"][0]["value"], "{\"a\": \"\\u003cb\"}\n\n  more # no comment\n");
    assert_eq!(read["metadata"]["labels"]["b"], json!([1, "x", {}]));
}

#[test]
fn text_outside_of_the_subset_is_left_to_the_library() {
    for text in [
        "a: &x 1\nb: *x\n",
        "a: !!str 1\n",
        "a: 1\na: 2\n",
        "a:\tb\n",
        "a: >\n  b\n",
        "a: b\n  c\n",
        "a: b: c\n",
        "? a\n",
        "a: 'b\n  c'\n",
        "- a\n  - b\n",
        "a: 1\n  b: 2\n",
        "a:\n  b: 1\n c: 2\n",
        "---\na: 1\n",
        "a: |+\n  b\n\n",
        "a: |2\n   b\n",
        "yes: 1\n",
        "1: 2\n",
        "<<: {}\n",
        "a: \"\\x41\"\n",
        "a: [1\n",
        "plain\n",
        "a: |\n\n  b\n",
        "a: é\n",
        "a: |\n  b",
        "a: \"b\"c\n",
        "a: {b: c\n}}\n",
        "a:\n  b: {\n c: 1}\n",
        "a: {b:\n 1}\n",
        "a: [1 # c\n ]\n",
        "- -inf\n",
        "a: [1]#\n",
        "- - a\n - b\n",
    ] {
        assert_eq!(block::read(text), None, "{text:?}");
    }
}

#[test]
fn deep_nesting_is_left_to_the_library() {
    assert_eq!(block::read(&format!("a: {}{}\n", "[".repeat(9999), "]".repeat(9999))), None);
    let steps: String = (0..999).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(block::read(&steps), None);
    assert_eq!(block::read(&"- ".repeat(9999)), None);
}

/// Pieces from which random lines are composed.
const PIECES: &[&str] = &[
    "a",
    "b:",
    "b: ",
    "key: value",
    "- ",
    "-",
    ": ",
    "'",
    "\"",
    "''",
    "\\n",
    "\\u003c",
    "|",
    "|-",
    "#",
    " # c",
    " ",
    "  ",
    "{}",
    "[]",
    "[a, 1]",
    "{a: ",
    "[",
    "{",
    "\n",
    "\n ",
    "\n  ",
    "--x",
    "-p",
    "-Inf",
    "a-b: ",
    ", ",
    "{\"a\":1}",
    "1",
    "01",
    "0x1f",
    "1e3",
    "1.5",
    "100m",
    "1Gi",
    "-1",
    "1_000",
    "1:30",
    "12:30:45",
    "true",
    "Yes",
    "no",
    "null",
    "~",
    ".5",
    ".inf",
    "nan",
    "Infinity",
    "0o7",
    "0b1",
    "2020-01-02",
    "10.0.0.1",
    "*",
    "&a",
    "!t",
    ">",
    "%",
    "@",
    ",",
    "]",
    "}",
    "?",
    "? a",
    "$(X)",
    "/x",
    "---",
    "...",
    "<<",
    "=",
];

fn document() -> impl Strategy<Value = String> {
    let line = (0usize..5, prop::collection::vec(prop::sample::select(PIECES), 0..4))
        .prop_map(|(indent, pieces)| format!("{}{}", " ".repeat(indent), pieces.concat()));
    let entry = (0usize..4, prop::sample::select(&["", "- ", "-  "][..]), "[a-c]", prop::sample::select(PIECES))
        .prop_map(|(indent, dash, key, piece)| format!("{}{dash}{key}: {piece}", " ".repeat(indent)));
    prop::collection::vec(prop_oneof![1 => line, 3 => entry], 0..7).prop_map(|lines| lines.join("\n") + "\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn random_documents_are_read_as_the_library_reads_them(text in document()) {
        compare(&text)?;
    }

    #[test]
    fn random_scalars_are_read_as_the_library_reads_them(text in "[ -~]{0,12}", item in any::<bool>()) {
        compare(&if item { format!("- {text}\n") } else { format!("a: {text}\n") })?;
    }

    #[test]
    fn random_words_are_read_as_the_library_reads_them(text in "[0-9a-zA-Z._:+-]{1,6}") {
        compare(&format!("a: {text}\n"))?;
        compare(&format!("a: [{text}, {text}]\n"))?;
        compare(&format!("{text}: 1\n"))?;
    }
}

/// Returns nested lists, each with nine aliases of the previous one.
fn nested_aliases(levels: usize) -> String {
    let level =
        |level: usize| format!("a{}: &a{} [{}]\n", level + 1, level + 1, vec![format!("*a{level}"); 9].join(", "));
    "a0: &a0 [x, x]\n".to_owned() + &(0..levels).map(level).collect::<String>()
}

fn steps_of(text: &str) -> Result<u64, Error> {
    let (all, mut budget) = (Limits::default(), Budget::default());
    let value = value_within(text, &mut budget)?;
    assert_eq!(value, library::value(text).unwrap());
    Ok(all.steps - budget.left().steps)
}

#[test]
fn an_alias_is_charged_like_its_anchor() {
    let spelled = steps_of("a: &a [x, x]\nb: [[x, x], [x, x], [x, x]]\n").unwrap();
    let aliases = steps_of("a: &a [x, x]\nb: [*a, *a, *a]\n").unwrap();
    // Each comma is charged as well, and the text without aliases has more commas.
    assert!(aliases.abs_diff(spelled) < spelled / 5, "{aliases} steps, {spelled} without aliases");
    let growth = steps_of(&nested_aliases(3)).unwrap() / steps_of(&nested_aliases(2)).unwrap();
    assert!((6..=12).contains(&growth), "{growth}");
}

#[test]
fn aliases_are_bounded_by_the_budget() {
    for levels in [6, 20] {
        let error = steps_of(&nested_aliases(levels)).unwrap_err();
        assert!(matches!(error, Error::Exceeded(Exceeded::Steps(1_000_000))), "{error}");
    }
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), vec!["*a"; 1000].join(","));
    let error = steps_of(&long).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes(_))), "{error}");
    let faulty = value_within("a: [1", &mut Budget::default()).unwrap_err();
    assert!(matches!(faulty, Error::Syntax(_)), "{faulty}");
}

#[test]
fn merge_keys_have_the_effect_of_gos_reader() {
    // The results and the error of sigs.k8s.io/yaml 1.6.0.
    for (text, read) in [
        ("a: 1\n<<: {a: 2, b: 3}\n", json!({"a": 2, "b": 3})),
        ("<<: {a: 2, b: 3}\na: 1\n", json!({"a": 1, "b": 3})),
        ("<<: [{a: 1}, {a: 2, b: 3}]\n", json!({"a": 1, "b": 3})),
        ("<<: {a: 1}\n<<: {a: 2}\n", json!({"a": 2})),
        ("<<: {a: 2, <<: {a: 1}}\n", json!({"a": 1})),
        ("x: &x {<<: {a: 1}, b: 2}\nz: {a: 5, <<: *x}\n", json!({"x": {"a": 1, "b": 2}, "z": {"a": 1, "b": 2}})),
        ("a: {x: 1}\n<<: {a: {z: 2}}\n", json!({"a": {"z": 2}})),
        ("<<: {1: 2}\n1: 3\n", json!({"1": 3})),
        ("<<: []\n", json!({})),
        ("!!merge <<: {a: 1}\n", json!({"a": 1})),
        ("\"<<\": {a: 1}\n", json!({"<<": {"a": 1}})),
        ("'<<': 1\nb: [{'<<': 1}]\n", json!({"<<": 1, "b": [{"<<": 1}]})),
        (r#"{"\u003c\u003c": {a: 1}}"#, json!({"<<": {"a": 1}})),
        (r#"{"\x3C<": 1, b: "\U0000003c\x3c"}"#, json!({"<<": 1, "b": "<<"})),
        ("? \"<\\\n  <\"\n: 1\n", json!({"<<": 1})),
        (r#"{a: "\u003c\u003ca", <<: {b: "\u003c"}}"#, json!({"a": "<<a", "b": "<"})),
    ] {
        assert_eq!(value(text).unwrap(), read, "{text}");
        assert_eq!(value_within(text, &mut Budget::default()).unwrap(), read, "{text}");
    }
    for text in ["<<: 1\n", "<<: [1]\n", "<<:\n", "<<: [[{a: 1}]]\n", "x: &x [{a: 1}]\nz: {<<: *x, a: [\n*x]}\n<<: 1\n"]
    {
        let error = value(text).unwrap_err().to_string();
        assert!(
            error.starts_with("map merge requires map or sequence of maps as the value at line "),
            "{text}: {error}"
        );
    }
}

#[test]
fn repeated_merge_keys_all_take_effect() {
    // The results of sigs.k8s.io/yaml 1.6.0.
    for (text, read) in [
        ("{1: x, <<: {a: 1, b: 1}, <<: {c: 2}}", json!({"1": "x", "a": 1, "b": 1, "c": 2})),
        ("{x: x, <<: {a: 1, b: 1}, <<: {c: 2}}", json!({"x": "x", "a": 1, "b": 1, "c": 2})),
        ("1: x\n<<: {a: 1, b: 1}\n<<: {a: 2}\n", json!({"1": "x", "a": 2, "b": 1})),
        ("{1: x, a: 0, <<: {a: 1, b: 1}, <<: {a: 2}}", json!({"1": "x", "a": 2, "b": 1})),
        ("{1: x, <<: {a: 1, b: 1}, <<: {a: 2}, a: 0}", json!({"1": "x", "a": 0, "b": 1})),
        ("{1: x, <<: {a: 1, b: 1}, a: 0, <<: {c: 2}}", json!({"1": "x", "a": 0, "b": 1, "c": 2})),
        ("{1: x, <<: {a: 1, b: 1}, a: 0, <<: {a: 2}}", json!({"1": "x", "a": 2, "b": 1})),
        ("{2: {1: x, <<: {a: 1, b: 1}, <<: {c: 2}}}", json!({"2": {"1": "x", "a": 1, "b": 1, "c": 2}})),
        ("{1: x, <<: [{a: 1},{b: 2}], <<: {c: 1}, <<: [{a: 3}]}", json!({"1": "x", "a": 3, "b": 2, "c": 1})),
        (
            "{2: z, k: {1: x, <<: {a: 1, <<: {b: 1}, <<: {c: 1}}, <<: {d: 2}}}",
            json!({"2": "z", "k": {"1": "x", "a": 1, "b": 1, "c": 1, "d": 2}}),
        ),
        ("{1: x, !!merge <<: {a: 1}, !!merge '<<': {b: 1}, '<<': 2}", json!({"1": "x", "a": 1, "b": 1, "<<": 2})),
        (
            "1: x\n&m <<:\n  a: 1\n<<:\n  b: 1\nc:\n- 2: z\n  <<: {d: 1}\n  <<: {e: 1}\n",
            json!({"1": "x", "a": 1, "b": 1, "c": [{"2": "z", "d": 1, "e": 1}]}),
        ),
        (
            "a: &a {1: x, <<: {b: 1}, <<: {c: 1}}\nd: {2: z, <<: *a, <<: {b: 2}, e: 1}\n",
            json!({"a": {"1": "x", "b": 1, "c": 1}, "d": {"2": "z", "1": "x", "b": 2, "c": 1, "e": 1}}),
        ),
        ("{&x <<: {a: 1}, <<: {b: 1}, 1: z, *x : {c: 1}}", json!({"a": 1, "b": 1, "1": "z", "<<": {"c": 1}})),
    ] {
        assert_eq!(value(text).unwrap(), read, "{text}");
        assert_eq!(value_within(text, &mut Budget::default()).unwrap(), read, "{text}");
    }
}

#[test]
fn a_merge_key_is_plain_or_has_the_tag_of_merge_keys() {
    // The results of sigs.k8s.io/yaml 1.6.0.
    for (text, read) in [
        (r#"{"<<": {a: 1}, <<: {b: 2}}"#, json!({"<<": {"a": 1}, "b": 2})),
        ("{<<: {b: 2}, '<<': 1, b: 3}", json!({"<<": 1, "b": 3})),
        (r#"{"\u003c\u003c": 1, <<: {b: 2}}"#, json!({"<<": 1, "b": 2})),
        ("? \"<\\\n  <\"\n: 1\nb: {<<: {a: 1}}\n", json!({"<<": 1, "b": {"a": 1}})),
        ("? |-\n  <<\n: {a: 1}\n", json!({"<<": {"a": 1}})),
        ("? >-\n  <<\n: {a: 1}\n", json!({"<<": {"a": 1}})),
        ("{!!str <<: {a: 1}}", json!({"<<": {"a": 1}})),
        ("{!<tag:yaml.org,2002:str> <<: {a: 1}}", json!({"<<": {"a": 1}})),
        ("%TAG !m! tag:yaml.org,2002:\n---\n{!m!str <<: 1}\n", json!({"<<": 1})),
        ("{!foo <<: {a: 1}}", json!({"<<": {"a": 1}})),
        ("{! <<: {a: 1}}", json!({"a": 1})),
        ("{!!merge '<<': {a: 1}}", json!({"a": 1})),
        ("{!!merge \"<<\": {a: 1}}", json!({"a": 1})),
        ("{!<tag:yaml.org,2002:merge> <<: {a: 1}}", json!({"a": 1})),
        ("{!!merge foo: {a: 1}}", json!({"foo": {"a": 1}})),
        ("{&x <<: {a: 1}, *x : {c: 1}}", json!({"a": 1, "<<": {"c": 1}})),
        ("{&x <<: {a: 1}, b: *x}", json!({"a": 1, "b": "<<"})),
        ("{&x \"<<\": 1, b: *x, <<: {c: 1}}", json!({"<<": 1, "b": "<<", "c": 1})),
        ("a: &x <<\n*x : {c: 1}\n", json!({"a": "<<", "<<": {"c": 1}})),
        ("a: &x '<<'\n*x : {c: 1}\n", json!({"a": "<<", "<<": {"c": 1}})),
        ("é: 'é'\n<<: {a: 1}\n'<<': 1\n", json!({"é": "é", "a": 1, "<<": 1})),
    ] {
        assert_eq!(value(text).unwrap(), read, "{text}");
        assert_eq!(value_within(text, &mut Budget::default()).unwrap(), read, "{text}");
    }
}

#[test]
fn nested_merge_keys_are_bounded_by_the_budget() {
    let members: String = (0..2000).map(|number| format!("k{number}: x, ")).collect();
    let nested =
        |levels| (0..levels).fold(format!("{{{members}}}"), |text, level| format!("{{a{level}: 1, <<: {text}}}"));
    let steps = |levels| steps_of(&nested(levels)).unwrap();
    let (ten, twenty) = (steps(10), steps(20));
    assert!(twenty > ten + 10 * 2000 * 4, "each level copies all members: {ten}, {twenty}");
    let left = Limits { steps: ten, ..Limits::default() };
    let error = value_within(&nested(20), &mut Budget::new(left)).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Steps(_))), "{error}");
    let many: String = (0..9000).map(|number| format!("k{number}: x, ")).collect();
    let without_budget = (0..40).fold(format!("{{{many}}}"), |text, level| format!("{{a{level}: 1, <<: {text}}}"));
    let error = library::value(&without_budget).unwrap_err().to_string();
    assert!(error.starts_with("merge keys copy more than 250000 members"), "{error}");
}

#[test]
fn text_after_the_end_of_the_document_is_refused_with_its_line() {
    for text in
        ["a: 1\n...\n", "a: 1\n... # c\n", "a: 1\n...\n# c\n\n...\n", "a: |\n  ...\n  b\n", "...a: 1\n", "a: ...\n"]
    {
        assert!(value(text).unwrap().is_object(), "{text}");
    }
    for (text, line) in [
        ("a: 1\n...\nb: 2\n", 3),
        ("a: 1\n... x\n", 2),
        ("a: 1\n...\t\n# c\n---\nb: 2\n", 4),
        ("a: 1\n...\n]x: [\n", 3),
        ("a: 1\n---\nb: 2\n", 3),
    ] {
        for error in [value(text).unwrap_err(), value_within(text, &mut Budget::default()).unwrap_err()] {
            assert!(matches!(error, Error::AfterEnd(found) if found == line), "{text}: {error}");
        }
    }
}

#[test]
fn charges_are_linear_in_the_elements() {
    // The library's reader charges at least 13 steps for a scalar.
    for (element, end, least) in [
        ("- x\n", "", 5),
        ("- {a: 1, b: &x [y]}\n", "", 13),
        ("x,", "x]", 5),
        ("y,", "y]", 13),
        ("1e1,", "1e1]", 13),
        ("- 1.5\n", "", 13),
    ] {
        let start = if end.is_empty() { "" } else { "a: [" };
        let steps = |count| steps_of(&format!("{start}{}{end}", element.repeat(count))).unwrap();
        let (one, two) = (steps(1000), steps(2000));
        assert!(one >= 1000 * least && two.abs_diff(2 * one) < 100, "{element:?}: {one}, {two}");
    }
}

#[test]
fn the_library_reads_few_scalars_one_by_one() {
    for element in ["y,", "1e1,", "0x1f,", "-1,"] {
        let text = |count| format!("a: [{}]\n", element.repeat(count));
        assert_eq!(block::read(&text(256)), Some(library::value(&text(256)).unwrap()), "{element:?}");
        assert_eq!(block::read(&text(257)), None, "{element:?}");
    }
    // `block` reads these scalars without the library.
    assert!(block::read(&format!("a: [{}]\n", "true,1,null,x,".repeat(300))).is_some());
}
