//! Compares random templates: this crate must have the same results as Go.

use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use serde_json::Value as Json;

use crate::go::{self, Request};
use crate::table;

/// The number of templates that each trial draws.
pub(crate) const CASES: u32 = 1500;

/// Returns a configuration that writes failing cases to a file of the package, from which each later run takes its
/// first cases.
pub(crate) fn config() -> Config {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/template.txt");
    Config { failure_persistence: Some(Box::new(FileFailurePersistence::Direct(file))), ..Config::default() }
}

pub(crate) fn trials() -> Vec<Trial> {
    if let Some(missing) = go::missing() {
        return vec![tier::trial("go", "random", Some(missing), || Ok(()))];
    }
    vec![
        Trial::test("random templates", || run(template())),
        Trial::test(
            "random expressions",
            || run(expression().prop_map(|expression| format!("{{{{ {expression} }}}}"))),
        ),
        Trial::test("random formats", || run(format())),
        Trial::test("random noise", || run(noise())),
        Trial::test("random YAML", yaml),
    ]
}

fn run(templates: impl Strategy<Value = String>) -> Result<(), Failed> {
    let config = Config { cases: CASES, ..config() };
    let checked = TestRunner::new(config).run(&templates, |text| {
        let same = table::same(&Request::new(&text, table::data()));
        same.map_err(|failed| TestCaseError::fail(failed.message().unwrap_or_default().to_owned()))
    });
    checked.map_err(|failed| failed.to_string().into())
}

/// Compares `toYaml` with Kubernetes' YAML, for random JSON of characters that YAML can read.
fn yaml() -> Result<(), Failed> {
    let config = Config { cases: CASES, ..config() };
    let checked = TestRunner::new(config).run(&any_json(), |data| {
        let same = table::same(&Request::with_sprig("{{ toYaml . }}", data));
        same.map_err(|failed| TestCaseError::fail(failed.message().unwrap_or_default().to_owned()))
    });
    checked.map_err(|failed| failed.to_string().into())
}

/// Strings that YAML reads as another type unless they are quoted, or that it cannot contain unescaped.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "", " ", "a", "yes", "No", "true", "null", "~", "1", "01", "0x1f", "1e3", "1.5", ".5",
    "-", "- a", "a: b", "a:b", "#", "a #b", "a#b", "'", "\"", "\\", "\n", "a\n", "\n\n", " \n",
    "\t", "é", "\u{1f600}", "\r", "2020-01-02", "12:30", "12:30:45", "<<", "*", "&x", "!t", "|", ">", "%",
    "@", "`", "{", "[", ",", "?", "? a", ":", "=", "...", "---", "0b1", "0o7", "1_000",
    "+1", "+.inf", ".nan", "on", "OFF", "y", "2020-1-2T3:4:5Z", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "trailing ", " leading",
    "\u{2028}", "\u{2029}", "a\u{2028}b", "\u{2029}c", "\n\u{2028}d",
];

fn any_json() -> BoxedStrategy<Json> {
    let word = prop::sample::select(WORDS);
    let text = prop_oneof![
        3 => prop::collection::vec(word.clone(), 1..3).prop_map(|words| words.concat()),
        2 => prop::collection::vec(word, 1..12).prop_map(|words| words.join(" ")),
        1 => "[0-9a-z:.+_-]{1,12}",
        1 => "[ -~é-ʯ一-三]{0,8}",
    ]
    .boxed();
    let number = prop_oneof![
        any::<i32>().prop_map(Json::from),
        (-1e3..1e7).prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from)
    ];
    let leaf = prop_oneof![4 => text.clone().prop_map(Json::from), 1 => number, 1 => any::<bool>().prop_map(Json::from), 1 => Just(Json::Null)];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let entries = prop::collection::vec((text.clone().prop_map(key), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Json::from),
            entries.prop_map(|entries| Json::Object(entries.into_iter().collect())),
        ]
    })
    .boxed()
}

/// Returns the key if it consists of digits, and otherwise the key without its digits. go-yaml's order of keys with
/// both digits and other characters may be circular; Go sorts such keys differently from run to run, because the
/// iteration of its maps starts from a random order.
fn key(text: String) -> String {
    let digit = |next: char| next.is_numeric();
    if text.chars().all(digit) { text } else { text.replace(digit, "") }
}

/// Generates an operand of an expression.
fn atom() -> BoxedStrategy<String> {
    prop::sample::select(vec![
        ".",
        ".s",
        ".e",
        ".t",
        ".f",
        ".n",
        ".i",
        ".z",
        ".big",
        ".null",
        ".absent",
        ".absent.x",
        ".null.x",
        ".list",
        ".names",
        ".empty",
        ".none",
        ".map",
        ".map.a.deep.er",
        ".map.c",
        ".map.b",
        "$",
        "$.s",
        "$a",
        "$b",
        "$c",
        "nil",
        "true",
        "false",
        "0",
        "1",
        "2",
        "-1",
        "1.5",
        "1e6",
        "0x10",
        "'x'",
        "\"text\"",
        "\"\"",
        "`raw`",
        "\"a\"",
        "(index .list 5).k",
    ])
    .prop_map(str::to_owned)
    .boxed()
}

fn expression() -> BoxedStrategy<String> {
    atom()
        .prop_recursive(3, 24, 4, |inner| {
            let unary = prop::sample::select(vec![
                "not", "len", "print", "html", "js", "urlquery", "println", "index", "and", "or", "slice",
            ]);
            let binary = prop::sample::select(vec![
                "eq",
                "ne",
                "lt",
                "le",
                "gt",
                "ge",
                "and",
                "or",
                "index",
                "print",
                "printf \"%v|%d\"",
                "printf \"%s %q\"",
            ]);
            prop_oneof![
                (unary, inner.clone()).prop_map(|(name, arg)| format!("{name} ({arg})")),
                (binary.clone(), inner.clone(), inner.clone())
                    .prop_map(|(name, left, right)| format!("{name} ({left}) ({right})")),
                (binary, atom(), atom()).prop_map(|(name, left, right)| format!("{name} {left} {right}")),
                (inner.clone(), prop::sample::select(vec!["s", "a", "deep", "nope"]))
                    .prop_map(|(base, field)| format!("({base}).{field}")),
                (
                    inner.clone(),
                    prop::sample::select(vec![
                        "len",
                        "not",
                        "print",
                        "eq 1",
                        "printf \"%v\"",
                        "or 0",
                        "and 1",
                        "index .map"
                    ])
                )
                    .prop_map(|(value, function)| format!("{value} | {function}")),
                inner.prop_map(|inner| format!("({inner})")),
            ]
        })
        .boxed()
}

fn delimited() -> impl Strategy<Value = (&'static str, &'static str)> {
    let left = prop::sample::select(vec!["{{", "{{ ", "{{- ", "{{-\n"]);
    let right = prop::sample::select(vec!["}}", " }}", " -}}", "\t-}}"]);
    (left, right)
}

fn text() -> BoxedStrategy<String> {
    prop::sample::select(vec![
        "",
        " ",
        "\n",
        "a",
        " b ",
        "\n  c\n",
        "}}",
        "- ",
        "é\t",
        "\r\n",
        "{{/* x */}}",
        "{{- /* y */ -}} ",
    ])
    .prop_map(str::to_owned)
    .boxed()
}

/// Generates an expression that usually renders without an error.
fn sound() -> BoxedStrategy<String> {
    let atom = prop::sample::select(vec![
        "$.s",
        "$.e",
        "$.t",
        "$.f",
        "$.n",
        "$.z",
        "$.null",
        "$.absent",
        "$.absent.x",
        "$.names",
        "$.empty",
        "$.none",
        "$.map",
        "$.map.a.deep.er",
        "$.map.c",
        "$a",
        "$b",
        "$c",
        ".",
        "$",
        "true",
        "1",
        "2.5",
        "\"text\"",
        "\"\"",
        "`raw`",
    ])
    .prop_map(str::to_owned);
    let nested = atom.prop_recursive(3, 12, 3, |inner| {
        let unary = prop::sample::select(vec![
            "not",
            "print",
            "html",
            "js",
            "println",
            "and",
            "or",
            "printf \"%v\"",
            "printf \"<%s>\"",
        ]);
        let pair = prop::sample::select(vec!["and", "or", "print", "printf \"%v|%q\"", "html"]);
        let order = prop::sample::select(vec!["eq", "ne", "lt", "le", "gt", "ge"]);
        prop_oneof![
            (unary.clone(), inner.clone()).prop_map(|(name, arg)| format!("{name} ({arg})")),
            (pair, inner.clone(), inner.clone()).prop_map(|(name, left, right)| format!("{name} ({left}) ({right})")),
            (order, inner.clone(), inner.clone())
                .prop_map(|(name, left, right)| format!("{name} (print ({left})) (print ({right}))")),
            (inner.clone(), unary).prop_map(|(value, function)| format!("({value}) | {function}")),
            inner.prop_map(|inner| format!("len (print ({inner}))")),
        ]
    });
    prop_oneof![30 => nested, 1 => expression()].boxed()
}

/// Generates a template that declares the variables that its expressions use.
pub(crate) fn template() -> BoxedStrategy<String> {
    let action =
        (delimited(), sound()).prop_map(|((left, right), expression)| format!("{left}{expression}{right}")).boxed();
    let node = prop_oneof![text(), action.clone(), action].prop_recursive(4, 40, 5, |inner| {
        let list = prop::collection::vec(inner, 0..4).prop_map(|nodes| nodes.concat());
        let name = prop::sample::select(vec!["$a", "$b", "$c"]);
        let leave = prop::sample::select(vec!["break", "continue", "print .", "$a = ."]);
        prop_oneof![
            6 => block(list.clone()),
            // The body of a block assigns no variable, because the variables outside of the block are not visible in
            // it. This crate refuses such an assignment when it parses the template, Go only when it executes the
            // template.
            1 => sound().prop_map(|data| format!("{{{{block \"b\" {data}}}}}<{{{{ . }}}}{{{{ $ }}}}>{{{{end}}}}")),
            2 => (name, prop::sample::select(vec!["=", ":="]), sound())
                .prop_map(|(name, sign, expression)| format!("{{{{{name} {sign} {expression}}}}}")),
            2 => (list, leave).prop_map(|(body, leave)| {
                format!("{{{{range .names}}}}{body}{{{{if eq . \"two\"}}}}{{{{{leave}}}}}{{{{end}}}}-{{{{end}}}}")
            }),
        ]
    });
    let nodes = prop::collection::vec(node, 1..6).prop_map(|nodes| nodes.concat());
    (nodes, prop::option::of(sound()))
        .prop_map(|(nodes, named)| {
            let define = "{{define \"t\"}}<{{$}}>{{end}}";
            let named = named.map_or_else(String::new, |named| format!("{define}{{{{template \"t\" {named}}}}}"));
            format!("{{{{$a := .s}}}}{{{{$b := 1}}}}{{{{$c := .list}}}}{nodes}{named}")
        })
        .boxed()
}

/// Generates an `if`, `with` or `range`, in all its forms: with declarations, assignments, `else` and trim markers.
fn block(list: impl Strategy<Value = String> + Clone + 'static) -> BoxedStrategy<String> {
    let heads = vec![
        ("if ", "{{else if $.t}}x{{else}}"),
        ("if $a = ", "{{- else -}}"),
        ("if $x := ", "{{else}}{{$x}}"),
        ("with ", "{{else with $.s}}{{.}}{{else}}"),
        ("with $w := ", "{{else}}{{$w}}"),
        ("range or $.names ", "{{else}}"),
        ("range $i, $e := and $.map ", "{{$i}}{{$e}}{{ else }}"),
        ("range $e := and $.names ", "{{$e}}{{else -}} "),
        ("range $b, $a = or $.list ", "{{ $a }}{{else}}"),
    ];
    let condition = sound().prop_map(|expression| format!("({expression})"));
    (prop::sample::select(heads), condition, list.clone(), list)
        .prop_map(|((head, middle), condition, body, other)| {
            let list = if head.contains("and") { " $.list" } else { "" };
            format!("{{{{{head}{condition}{list} -}}}}{body}{middle}{other}{{{{- end }}}}")
        })
        .boxed()
}

/// Generates a `printf` with any verb, flags and arguments, except those that this crate does not implement: the
/// hexadecimal and binary forms of floats, and `#` with floats.
fn format() -> BoxedStrategy<String> {
    let whole = vec![".s", "3", "-4", "0", "true", "nil", "\"é\"", ".quote", "97"];
    let floats = vec![".names", ".n", ".i", "1.5", ".list", ".map", ".big", ".small", "2.0", "-1.25"];
    let verbs = vec!["v", "d", "s", "q", "t", "f", "e", "g", "c", "o", "T", "z", "%", "G", "E", "F", "O", ""];
    let any = call("[-+ 0]{0,2}", verbs.clone(), [whole.clone(), floats].concat());
    prop_oneof![any, call("[-+# 0]{0,2}", [verbs, vec!["x", "X", "b"]].concat(), whole)].boxed()
}

fn call(flags: &'static str, verbs: Vec<&'static str>, args: Vec<&'static str>) -> BoxedStrategy<String> {
    let width = prop::sample::select(vec!["", "1", "3", "8", "*", "[1]", "[2]", "[9]"]);
    let precision = prop::sample::select(vec!["", ".0", ".2", ".9", ".", ".*"]);
    let directive = (flags, width, precision, prop::sample::select(verbs))
        .prop_map(|(flags, width, precision, verb)| format!("%{flags}{width}{precision}{verb}"));
    (prop::collection::vec(directive, 1..3), prop::collection::vec(prop::sample::select(args), 0..4))
        .prop_map(|(directives, args)| format!("{{{{ printf `{}` {} }}}}", directives.join("~"), args.join(" ")))
        .boxed()
}

/// Generates a template of pieces of syntax in a random order.
fn noise() -> BoxedStrategy<String> {
    let piece = prop::sample::select(vec![
        "{{", "}}", "{{-", "-}}", " ", "-", "if", "else", "end", "range", "with", "define", "\"t\"", "template",
        "block", "$a", ":=", "=", ",", "|", "(", ")", ".", ".s", ".x", "1", "1.", "0x", "'a'", "'", "\"", "`", "/*",
        "*/", "print", "eq", "nil", "true", "break", "continue", "\n", "é", "_", "#", "..", "$", "x",
    ]);
    prop::collection::vec(piece, 1..14).prop_map(|pieces| format!("{{{{$a := 1}}}}{}", pieces.concat())).boxed()
}
