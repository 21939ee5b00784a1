//! Compares strategic merges of random overlays, with all directives, with the merges of Go's `strategicpatch`.

use gotemplate::Budget;
use inject::{Struct, merge_pod};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::RngExt as _;
use proptest::test_runner::TestRng;
use serde_json::{Map, Value, json};

use super::kubernetes::{self, patched};
use super::types::rng;

const MERGES: usize = 1500;

pub(crate) fn trial() -> Trial {
    let name = "strategic/random overlays are merged as Go's strategicpatch merges them";
    tier::trial("go", name, kubernetes::missing(), merges)
}

fn merges() -> Result<(), Failed> {
    let mut rng = rng();
    let mut refused = 0;
    for _ in 0..MERGES {
        let pod = Draw { rng: &mut rng, overlay: false, replaced: false }.map(POD);
        let overlay = Draw { rng: &mut rng, overlay: true, replaced: false }.map(POD);
        refused += usize::from(!same(&pod, &overlay)?);
    }
    let most = MERGES * 2 / 3;
    (refused > 0 && refused < most).then_some(()).ok_or_else(|| format!("{refused} of {MERGES} are refused").into())
}

/// Fails unless Go and this project's code merge an overlay with the same result or both refuse it. Returns whether
/// they merge it.
fn same(pod: &Value, overlay: &Value) -> Result<bool, Failed> {
    let theirs = patched("core.Pod", &pod.to_string(), &overlay.to_string())?;
    let mut merged = pod.clone();
    let ours = merge_pod(&mut merged, overlay.clone(), &mut Budget::default());
    let what = format!("{pod}\n  with {overlay}");
    match (ours, theirs.error.is_empty()) {
        (Ok(()), true) => {
            let of = Struct::named("core.Pod").ok_or("the table has no pod")?;
            let (ours, theirs) = (of.canonical(merged)?.to_string(), serde_json::from_str::<Value>(&theirs.json)?);
            let theirs = of.canonical(theirs)?.to_string();
            (ours == theirs).then_some(true).ok_or_else(|| format!("{what}\n  Go   {theirs}\n  ours {ours}").into())
        }
        (Err(_), false) => Ok(false),
        (Ok(()), false) => Err(format!("{what}\n  Go refuses it: {}\n  ours {merged}", theirs.error).into()),
        (Err(error), true) => Err(format!("{what}\n  is refused: {error}\n  Go {}", theirs.json).into()),
    }
}

/// The form of a value.
#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    Map(&'static [Member]),
    /// A list that is merged by this key.
    Keyed(&'static str, &'static [Member]),
    /// A list that is replaced.
    List(&'static [Member]),
    /// A list of scalars; merged if the flag is set.
    Scalars(bool),
}

type Member = (&'static str, Form);

const ENV: &[Member] = &[("value", Form::Text)];
const CONTAINER: &[Member] = &[
    ("image", Form::Text),
    ("args", Form::Scalars(false)),
    ("env", Form::Keyed("name", ENV)),
    ("volumeMounts", Form::Keyed("mountPath", &[("name", Form::Text), ("subPath", Form::Text)])),
    ("lifecycle", Form::Map(&[("preStop", Form::Map(&[("exec", Form::Map(&[("command", Form::Scalars(false))]))]))])),
];
const CLAIM: &[Member] = &[("metadata", Form::Map(&[("finalizers", Form::Scalars(true)), ("name", Form::Text)]))];
const VOLUME: &[Member] = &[
    (
        "secret",
        Form::Map(&[("secretName", Form::Text), ("items", Form::List(&[("key", Form::Text), ("path", Form::Text)]))]),
    ),
    ("emptyDir", Form::Map(&[("medium", Form::Text)])),
    ("ephemeral", Form::Map(&[("volumeClaimTemplate", Form::Map(CLAIM))])),
];
const SPEC: &[Member] = &[
    ("hostname", Form::Text),
    ("containers", Form::Keyed("name", CONTAINER)),
    ("volumes", Form::Keyed("name", VOLUME)),
    ("hostAliases", Form::Keyed("ip", &[("hostnames", Form::Scalars(false))])),
    ("tolerations", Form::List(&[("key", Form::Text), ("value", Form::Text)])),
    ("dnsConfig", Form::Map(&[("searches", Form::Scalars(false)), ("nameservers", Form::Scalars(false))])),
];
const LABELS: Form = Form::Map(&[("a", Form::Text), ("b", Form::Text), ("c", Form::Text)]);
const POD: &[Member] = &[
    ("metadata", Form::Map(&[("labels", LABELS), ("finalizers", Form::Scalars(true)), ("annotations", LABELS)])),
    ("spec", Form::Map(SPEC)),
];

const WORDS: [&str; 5] = ["u", "v", "w", "x", "y"];

struct Draw<'r> {
    rng: &'r mut TestRng,
    /// Whether the value is an overlay, with nulls and directives.
    overlay: bool,
    /// Whether the value is part of a value that replaces another.
    replaced: bool,
}

impl Draw<'_> {
    fn one_in(&mut self, number: u32) -> bool {
        self.rng.random_ratio(1, number)
    }

    fn directive(&mut self, number: u32) -> bool {
        self.overlay && self.one_in(number)
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.rng.random_range(0..WORDS.len())]
    }

    /// Returns distinct words in random order.
    fn words(&mut self) -> Vec<&'static str> {
        let count = self.rng.random_range(1..4);
        let mut words = Vec::new();
        while words.len() < count {
            let word = self.word();
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words
    }

    fn of(&mut self, form: Form) -> Value {
        match form {
            Form::Text => self.word().into(),
            Form::Map(members) => self.map(members),
            Form::Keyed(by, members) => self.keyed(by, members),
            Form::List(members) => (0..self.rng.random_range(1..3)).map(|_| self.map(members)).collect(),
            Form::Scalars(_) => {
                let mut words = self.words();
                if self.directive(3) {
                    words.push(self.word());
                }
                words.into()
            }
        }
    }

    fn map(&mut self, members: &[Member]) -> Value {
        let mut map = Map::new();
        // In a map of strings, Go takes a directive that it does not apply for a key, and a null for an empty string.
        let is_open = matches!(members.first(), Some(("a", _)));
        let patch = !is_open && self.directive(12);
        let word = ["replace", "delete", "delete", "replace", "merge"][self.rng.random_range(0..5)];
        let is_replaced = self.replaced;
        self.replaced |= patch && word == "replace";
        for (key, form) in members {
            if !self.one_in(3) {
                let is_null = self.directive(8) && !(is_open && self.replaced);
                let value = if is_null { Value::Null } else { self.of(*form) };
                map.insert((*key).to_owned(), value);
            }
            self.list_directives(&mut map, (key, *form));
        }
        self.replaced = is_replaced;
        if !is_open && self.directive(8) {
            let listed = members.iter().map(|(key, _)| *key).filter(|_| !self.one_in(6)).collect::<Vec<_>>();
            map.insert("$retainKeys".to_owned(), listed.into());
        }
        if patch {
            map.insert("$patch".to_owned(), word.into());
        }
        Value::Object(map)
    }

    fn keyed(&mut self, by: &str, members: &[Member]) -> Value {
        let mut ids = self.words();
        if self.directive(4) {
            ids.push(self.word());
        }
        let mut items: Vec<Value> = Vec::new();
        for id in ids {
            let overlay = self.overlay;
            let special = self.directive(6);
            // Kubernetes requires that elements have different keys. Go leaves directives in the first of two new elements with the same
            // key.
            if !special && items.iter().any(|item| item[by] == id && item.get("$patch").is_none()) {
                continue;
            }
            let mut item = if special { json!({"$patch": "delete"}) } else { self.map(members) };
            if self.overlay && !special && !self.one_in(20) {
                // A directive would apply to the element instead of its members.
                item.as_object_mut().map(|item| item.shift_remove("$patch"));
            }
            if !overlay || !self.one_in(60) {
                item[by] = id.into();
            }
            if let Some(Value::Array(listed)) = item.get_mut("$retainKeys") {
                listed.push(by.into());
            }
            items.push(item);
        }
        if self.directive(20) {
            items.push(json!({"$patch": "replace"}));
        }
        items.into()
    }

    /// Adds directives for a list to the map that contains the list.
    fn list_directives(&mut self, map: &mut Map<String, Value>, (key, form): (&str, Form)) {
        let by = match form {
            Form::Keyed(by, _) => Some(by),
            Form::Scalars(_) => None,
            _ => return,
        };
        // A list with deleted elements gets no order, because Go overwrites such a list while it orders it.
        let deletes = map.get(key).is_some_and(|list| list.to_string().contains(r#""$patch":"delete""#));
        if self.directive(4) && !deletes && map.get(key).is_none_or(Value::is_array) {
            let id = |item: &Value| by.map_or(Some(item), |by| item.get(by)).cloned();
            let mut order: Vec<Value> = Vec::new();
            let present = map.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for id in present.iter().filter(|item| item.get("$patch").is_none()).filter_map(id) {
                if !order.contains(&id) {
                    order.push(id);
                }
            }
            for word in self.words() {
                let at = self.rng.random_range(0..=order.len());
                if !order.contains(&word.into()) {
                    order.insert(at, word.into());
                }
            }
            if self.one_in(4) {
                let at = self.rng.random_range(0..order.len());
                order.remove(at);
            }
            let listed = order.into_iter().map(|id| by.map_or(id.clone(), |by| json!({by: id})));
            map.insert(format!("$setElementOrder/{key}"), listed.collect());
        } else if matches!(form, Form::Scalars(true)) && self.directive(3) {
            // The list has either additions or deletions, because Go applies them in a random order.
            map.shift_remove(key);
            map.insert(format!("$deleteFromPrimitiveList/{key}"), self.words().into());
        }
    }
}
