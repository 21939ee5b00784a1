//! Hostile content that targets single algorithms of the injection: merge keys, copied keys, escapes, patches.

use serde_json::{Map, Value, json};

use super::{Numbers, Shape, annotate, many, push, sidecar};

pub(super) const SHAPES: [(&str, Shape); 6] = [
    ("merge keys", merge_keys),
    ("keys that are numbers, lists and maps", keys),
    ("quotes in YAML", quotes),
    ("characters that JSON escapes", escaped),
    ("many operations", operations),
    ("long paths", long_paths),
];

/// The maximum nesting depth that the YAML parser accepts.
const LEVELS: usize = 60;

fn flow_map(size: usize, numbers: &mut dyn Numbers) -> String {
    many(size, 8, numbers, |number| format!("k{number}: x")).join(", ")
}

fn merge_keys(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let levels = 1 + numbers.below(LEVELS);
    let text = match numbers.below(4) {
        0 => {
            let inner = flow_map(size, numbers);
            (0..levels).fold(format!("{{{inner}}}"), |text, level| format!("{{a{level}: 1, <<: {text}}}"))
        }
        1 => {
            let inner = flow_map(size / 2, numbers);
            format!("a: &a {{{inner}}}\nb: {{<<: [{}]}}", vec!["*a"; size / 8].join(", "))
        }
        2 => {
            let inner = flow_map(size / 2, numbers);
            let chain = (1..=levels).map(|level| format!("a{level}: &a{level} {{<<: *a{}, b{level}: 1}}\n", level - 1));
            format!("a0: &a0 {{{inner}}}\n{}", chain.collect::<String>())
        }
        _ => "<<: {a: 1}\n".repeat(size / 11),
    };
    annotate(pod, "proxy.istio.io/config", text);
}

fn keys(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let (start, end) = [
        ("{1: ", "}"),
        ("{1: x, a: ", ", 1: y}"),
        ("{a: x, b: ", ", a: y}"),
        ("{? [", "]}"),
        ("{? {1: ", "}}"),
        ("{1: ", ", 1: x}"),
    ][numbers.below(6)];
    let levels = 1 + numbers.below(LEVELS / 2);
    let inner = match numbers.below(3) {
        0 => many(size, 6, numbers, |number| format!("{number}: x")).join(", "),
        1 => format!("a: [{}], 2: x, 2: y", "x,".repeat(size / 2)),
        _ => many(size, 16, numbers, |number| format!("{number}: {{1: x, 1: y}}")).join(", "),
    };
    annotate(pod, "proxy.istio.io/config", format!("{}{{{inner}}}{}", start.repeat(levels), end.repeat(levels)));
}

fn quotes(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let piece = ["\"", "'", "\"\\\n", "\"\\u003c", "\"<<\": 1\n", "'<<': 1\n", "a\"<", "\"<"][numbers.below(8)];
    annotate(pod, "proxy.istio.io/config", format!("{}: {{<<: x}}", piece.repeat(size / piece.len())));
}

fn escaped(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let piece = ["<", "&", "\u{2028}", "\"", "\\", "\u{1}", "<é", "é"][numbers.below(8)];
    let text = piece.repeat(size / piece.len());
    let own = match numbers.below(5) {
        0 => json!({"args": [text]}),
        1 => json!({"env": [{"name": "E", "value": text}]}),
        2 => json!({"image": text}),
        3 => json!({"command": many(size, piece.len() + 3, numbers, |_| json!(piece))}),
        _ => {
            json!({"env": many(size, 40, numbers, |number| json!({"name": format!("E{number}"), "value": piece.repeat(8)}))})
        }
    };
    let list = ["containers", "initContainers"][numbers.below(2)];
    push(pod, list, vec![sidecar(own)]);
}

fn operations(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let probe = json!({"httpGet": {"port": 80, "path": "/x", "scheme": "HTTPS"}, "timeoutSeconds": 9});
    let other = json!({"tcpSocket": {"port": 80}});
    let lifecycle = json!({"preStop": {"httpGet": {"port": 80}}, "postStart": {"httpGet": {"port": 81}}});
    let (which, list) = (numbers.below(2), ["containers", "initContainers"][numbers.below(2)]);
    let items = many(size, 400, numbers, |number| match which {
        0 => {
            json!({"name": format!("p{number}"), "readinessProbe": probe, "livenessProbe": probe, "startupProbe": probe,
            "lifecycle": lifecycle})
        }
        _ => {
            json!({"name": format!("p{number}"), "readinessProbe": other, "livenessProbe": other, "startupProbe": probe})
        }
    });
    push(pod, list, items);
}

fn long_paths(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let share = 1 + numbers.below(16);
    let members: Map<String, Value> =
        (0..size / 16 / share).map(|number| (format!("f{number}"), Value::Null)).collect();
    let key = ["x", "~", "/"][numbers.below(3)].repeat(size / 2 / share);
    push(pod, "containers", vec![sidecar(json!({key: members}))]);
}
