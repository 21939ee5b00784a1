//! Compares each of sprig's functions with Go's, with random arguments.

use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::go::{self, Request};
use crate::random;
use crate::table;

/// The number of random calls of each function.
const CASES: u32 = 40;

/// Calls of functions, one per line, with the kinds of their arguments; see [`ARGUMENTS`]. Results that depend on the
/// order of a Go map are sorted.
const CALLS: &str = include_str!("calls.txt");

/// The kinds of arguments, each with its possible values.
const ARGUMENTS: &[(&str, &[&str])] = &[
    (
        "a",
        &[
            "1",
            "0",
            "-3",
            "2.5",
            "\"a\"",
            "\"\"",
            "\"7\"",
            "true",
            "false",
            ".names",
            ".list",
            ".map",
            ".n",
            "nil",
            "(list 1 \"a\")",
            "(dict \"k\" 1)",
            ".absent",
        ],
    ),
    ("b", &["true", "false", "(eq 1 1)", "\"x\""]),
    ("c", &["\"a\"", "true", "1.5", ".list", ".map", ".names", ".s", ".n", "nil", "(dict)", "(list)", "1"]),
    (
        "d",
        &[
            "\"12\"",
            "\"x\"",
            "\"-7\"",
            "\"\"",
            "\"010\"",
            "\"95\"",
            "\"3700\"",
            "\"0x1F\"",
            "\"-0b101\"",
            "\"0o17\"",
            "\"08\"",
            "\"1_000\"",
            "\"_1\"",
            "\"+5\"",
            "\"8.00\"",
            "\"80\"",
            "\".0\"",
            "\"1.5\"",
            "\"1e3\"",
            "\"1e999\"",
            "\"-inf\"",
            "\"0x1.8p3\"",
            "\"0x10\"",
            "\"9223372036854775808\"",
            "\"-99999999999999999999\"",
        ],
    ),
    (
        "A",
        &[
            "\"aGVsbG8=\"",
            "\"aGVsbG8\"",
            "\"a\"",
            "\"aG\"",
            "\"aGV\"",
            "\"aG=\"",
            "\"aG==\"",
            "\"aG==x\"",
            "\"aG=x\"",
            "\"aH==\"",
            "\"=aGV\"",
            "\"a=GV\"",
            "\"aG\\n=\\n=\\n\"",
            "\"aGVs*G8=\"",
            "\"\\n\"",
            "\"ä\"",
        ],
    ),
    (
        "B",
        &[
            "\"NBSWY3DP\"",
            "\"NBSWY===\"",
            "\"NBSWY==\"",
            "\"NBSWY==A\"",
            "\"NBSW====\"",
            "\"NBS=====\"",
            "\"NB======\"",
            "\"NB=====\"",
            "\"NB0WY3DP\"",
            "\"N\"",
        ],
    ),
    ("e", &["\",\"", "\"/\"", "\"a\"", "\"\"", "\"ab\""]),
    ("f", &["0.5", "0.1", "0.9"]),
    ("g", &["0.1", "0.2", "2", "-1.5", "1e3", "\"3.25\"", "10", ".n", "0.3", "7", "1.005"]),
    ("h", &["\"2h10m5s\"", "\"400h\"", "\"10000h\"", "\"1.5s\"", "\"x\"", "\"61s\"", "\"-3h\"", "\"100ms\""]),
    ("i", &["0", "1", "2", "5", "8", "-1", "-2", "12"]),
    (
        "j",
        &["\"{\\\"a\\\": [1, null, {\\\"b\\\": 1e9}]}\"", "\"x\"", "\"[]\"", "\"\\\"<&>\\\"\"", "\"1.50\"", "\"true\""],
    ),
    ("k", &["\"string\"", "\"map\"", "\"slice\"", "\"bool\"", "\"float64\"", "\"invalid\""]),
    (
        "l",
        &[
            "(list)",
            "(list 1 2 3)",
            "(list \"b\" \"a\" \"b\")",
            ".names",
            ".list",
            "(list nil 1 \"\" 0)",
            "(list 1 (list 1) (list 1))",
        ],
    ),
    (
        "m",
        &[
            "(dict)",
            "(dict \"a\" 1)",
            "(dict \"a\" \"\" \"b\" (dict \"x\" 1))",
            "(deepCopy .map)",
            "(dict \"b\" (dict \"x\" 2 \"y\" 0) \"l\" (list 1))",
            "(dict \"l\" (list) \"a\" 0 \"n\" nil)",
            "(dict \"b\" \"text\" \"l\" (list 2 3))",
        ],
    ),
    ("n", &["0", "1", "2", "3"]),
    (
        "o",
        &[
            "\">=1.2\"",
            "\"^1.2.3\"",
            "\"~1.2\"",
            "\"1.x\"",
            "\"*\"",
            "\"!=1.2.3\"",
            "\"<2, >1.0\"",
            "\"1.0 - 2.0\"",
            "\">1 || <0.5\"",
            "\"^0.0.3\"",
            "\"^0\"",
            "\"~0.1.2\"",
            "\"=1.2.3-beta.1\"",
            "\"<=1\"",
            "\">1\"",
            "\">=1.0.0-0\"",
            "\"x y\"",
            "\"\"",
            "\"!=1.x\"",
            "\"!=1\"",
            "\"=> 2\"",
            "\">*\"",
            "\"<=1.2.x\"",
        ],
    ),
    (
        "p",
        &[
            "\"/a/b/../c\"",
            "\"a//b\"",
            "\"\"",
            "\"/\"",
            "\"a.tar.gz\"",
            "\"../x\"",
            "\"./a/\"",
            "\"/../a\"",
            "\"///\"",
            "\"a/b.c/d\"",
            "\"a/../..\"",
        ],
    ),
    ("q", &["\"a\"", "\"b\"", "\"l\"", "\"x\"", "\"zz\""]),
    (
        "r",
        &[
            "\"a+\"",
            "\"[a-z]+\"",
            "`\\d+`",
            "`\\bw`",
            "`(a)(b)?`",
            "\"\"",
            "\"x*\"",
            "`[\\w-]+@`",
            "\"(\"",
            "`[^\\s,]+`",
            "`(?i)HELLO`",
            "`^.`",
            "`[[:alpha:]]+`",
            "`[]a]`",
            "`[a&&b]`",
            "`^{`",
            "`a{`",
            "`{,2}`",
            "`a{1,2}`",
            "`\\Qa.b\\E`",
            "`.`",
        ],
    ),
    (
        "s",
        &[
            "\"hello world\"",
            "\"a\"",
            "\"\"",
            "\"ab,cd,ab\"",
            "\"  a b  \"",
            "\"a1b22 w_x\"",
            "\"baaab\"",
            "\"a/b/c\"",
            "\"one\\ntwo\"",
        ],
    ),
    ("t", &["\"the quick brown fox\"", "\"abcdefghijklmnop\"", "\"aaa bbb  ccc\"", "\"a-b_c d\""]),
    (
        "u",
        &[
            "\"http://u:p@h.example:80/a/b?x=1&y=2#frag\"",
            "\"mailto:a@b\"",
            "\"/only/path\"",
            "\"https://[::1]:8080/x\"",
            "\"h:x/y\"",
            "\"//host/p\"",
            "\"http://h/a%20b\"",
            "\"a b\"",
            "\"http://h/%zz\"",
            "\"\"",
            "\"http://h?q\"",
            "\"1a:b\"",
        ],
    ),
    (
        "v",
        &[
            "\"1.2.3\"",
            "\"v1.2\"",
            "\"1.2.3-beta.1\"",
            "\"0.0.3\"",
            "\"2\"",
            "\"1.2.3+build\"",
            "\"x\"",
            "\"1.2.3-01\"",
            "\"0.1.9\"",
            "\"1.2.4-alpha\"",
            "\"0.4.0\"",
        ],
    ),
    (
        "w",
        &[
            "\"helloWorld\"",
            "\"HTTPStatus\"",
            "\"some words here\"",
            "\"snake_case_x\"",
            "\"kebab-case\"",
            "\"HTTP2xx\"",
            "\"Bld4Floor\"",
            "\"a1B2\"",
            "\"ABC\"",
            "\"__x\"",
            "\"\"",
            "\"x.y z!\"",
            "\"1st Place\"",
            "\"aB_C-d E\"",
            "\"élan Vital\"",
        ],
    ),
    ("x", &["\"<$0>\"", "\"$1-\"", "\"${1}x\"", "\"\"", "\"$$\"", "\"y\""]),
    ("y", &["\"string\"", "\"map[string]interface {}\"", "\"[]interface {}\"", "\"bool\"", "\"float64\"", "\"int\""]),
    ("z", &["1", "2", "5"]),
];

fn argument(kind: &str) -> &'static [&'static str] {
    ARGUMENTS.iter().find(|(name, _)| *name == kind).map_or(&[], |(_, values)| values)
}

pub(crate) fn trials() -> Vec<Trial> {
    if let Some(missing) = go::missing() {
        return vec![tier::trial("go", "each function of sprig", Some(missing), || Ok(()))];
    }
    vec![Trial::test("each function of sprig", each)]
}

/// Fails with the calls whose results differ from Go's, at most one for each function.
fn each() -> Result<(), Failed> {
    let config = Config { cases: CASES, max_shrink_iters: 0, ..random::config() };
    let different: Vec<String> = CALLS
        .lines()
        .filter_map(|call| {
            let checked = TestRunner::new(config.clone()).run(&drawn(call), |text| {
                let request = Request::with_sprig(&format!("{{{{ {text} }}}}"), table::data());
                table::same(&request)
                    .map_err(|failed| TestCaseError::fail(failed.message().unwrap_or_default().to_owned()))
            });
            Some(format!("{call}: {}", checked.err()?))
        })
        .collect();
    match different.is_empty() {
        true => Ok(()),
        false => Err(different.join("\n").into()),
    }
}

fn drawn(call: &'static str) -> BoxedStrategy<String> {
    let mut words = call.split(' ');
    let mut text = Just(words.next().unwrap_or_default().to_owned()).boxed();
    for word in words {
        let pipe = word == "|" || argument(word).is_empty();
        let next = if pipe { Just(word).boxed() } else { prop::sample::select(argument(word)).boxed() };
        text = (text, next).prop_map(|(text, next)| format!("{text} {next}")).boxed();
    }
    text
}
