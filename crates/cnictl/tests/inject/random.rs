//! Generates random objects of any type in the table: with zeroes, nulls, empty lists, and scalars in every spelling.

use std::collections::BTreeMap;

use proptest::prelude::RngExt as _;
use proptest::test_runner::TestRng;
use serde_json::{Map, Value, json};

/// The committed table of Kubernetes' types.
pub(crate) const TABLE: &str = include_str!("../../../inject/src/typed/table.txt");

/// A field of a struct.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) key: &'static str,
    /// The Go type.
    pub(crate) of: &'static str,
    /// Whether Go omits the zero of the type.
    pub(crate) omits_zero: bool,
}

/// Structs by name, with their fields.
pub(crate) struct Types(BTreeMap<&'static str, Vec<Field>>);

/// The approximate number of values in an object.
const VALUES: usize = 150;

impl Types {
    /// Parses a table in the format of [`TABLE`].
    pub(crate) fn parse(table: &'static str) -> Self {
        let mut types = BTreeMap::<_, Vec<_>>::new();
        let mut current = "";
        for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let mut words = line.split_whitespace();
            match (line.starts_with(' '), words.next(), words.next()) {
                (true, Some(key), Some(of)) => {
                    let omits_zero = words.any(|word| word.starts_with("omit"));
                    types.entry(current).or_default().push(Field { key, of, omits_zero });
                }
                (_, Some(name), _) => {
                    current = name;
                    types.entry(name).or_default();
                }
                _ => {}
            }
        }
        Self(types)
    }

    /// Returns the fields of a struct.
    pub(crate) fn fields(&self, name: &str) -> &[Field] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Generates an object of a struct. On average one in `faults` values has a random type instead of its field's
    /// type.
    pub(crate) fn object(&self, name: &str, rng: &mut TestRng, faults: Option<u32>) -> Value {
        let mut values = VALUES;
        Draw { types: self, rng, values: &mut values, faults }.object(name, 0)
    }
}

struct Draw<'a> {
    types: &'a Types,
    rng: &'a mut TestRng,
    /// The number of values that may still be generated.
    values: &'a mut usize,
    faults: Option<u32>,
}

impl Draw<'_> {
    fn one_in(&mut self, number: u32) -> bool {
        self.rng.random_ratio(1, number)
    }

    fn of(&mut self, list: &[Value]) -> Value {
        list[self.rng.random_range(0..list.len())].clone()
    }

    fn object(&mut self, name: &str, depth: u32) -> Value {
        let rare = 2 + depth.min(3);
        let mut members = Map::new();
        for Field { key, of, .. } in self.types.fields(name) {
            // No volume has the field `rbd`: with it, sigs.k8s.io/yaml adds an empty `image: {}` to the volume, because
            // it takes the keys of `rbd`, a field of an embedded struct, for keys of the volume itself.
            if (name, *key) == ("core.Volume", "rbd") {
                continue;
            }
            if *self.values > 0 && self.one_in(rare) {
                members.insert((*key).to_owned(), self.value(of, depth + 1));
            }
        }
        Value::Object(members)
    }

    fn value(&mut self, of: &str, depth: u32) -> Value {
        *self.values = self.values.saturating_sub(1);
        if let Some(faults) = self.faults
            && self.one_in(faults)
        {
            return self.of(&[json!("x"), json!(1), json!(1.5), json!(true), json!([]), json!({}), json!(["a"])]);
        }
        if self.one_in(12) {
            return Value::Null;
        }
        if let Some(inner) = of.strip_prefix('*') {
            return self.value(inner, depth);
        }
        if let Some(inner) = of.strip_prefix("[]") {
            let count = self.rng.random_range(0..3);
            return (0..count).map(|_| self.value(inner, depth)).collect();
        }
        if let Some(inner) = of.strip_prefix("map[string]") {
            let count = self.rng.random_range(0..4);
            let keys = ["", "a", "b.c/d", "x10", "x9", "true", "7", "key with: colon"];
            let entry = |draw: &mut Self| (draw.of(&keys.map(Value::from)), draw.value(inner, depth));
            let entries = (0..count).map(|_| entry(self));
            return Value::Object(entries.filter_map(|(key, value)| Some((key.as_str()?.to_owned(), value))).collect());
        }
        match of {
            "string" if self.one_in(20) => {
                self.of(&[json!(0), json!(7), json!(1.5), json!(1e6), json!(true), json!(false)])
            }
            "string" => self.of(&TEXTS.map(Value::from)),
            "bool" => self.of(&[json!(true), json!(false)]),
            "int32" => self.of(&[json!(0), json!(1), json!(-1), json!(2.0), json!(1e3), json!(i32::MAX), json!(8080)]),
            "int64" => {
                self.of(&[json!(0), json!(1), json!(-1), json!(30.0), json!(i64::MAX), json!(1e15), json!(65536)])
            }
            "quantity" => self.of(&quantities()),
            "intOrString" => {
                self.of(&[json!(0), json!(80), json!("web"), json!("25%"), json!(""), json!("80"), json!(3.0)])
            }
            "time" => self.of(&[
                json!("2024-02-29T12:00:00Z"),
                json!("2024-02-29T23:30:00.25-01:30"),
                json!("2024-02-29T12:00:00+14:00"),
            ]),
            "raw" => self.of(&[json!({"f:a": {}}), json!({"a": null, "b": 1})]),
            name => self.object(name, depth),
        }
    }
}

const TEXTS: [&str; 49] = [
    "",
    "a",
    "web",
    "true",
    "null",
    "~",
    "1",
    "1e3",
    "0x1f",
    "0o7",
    "012",
    "1_000",
    "1.50",
    ".5",
    "yes",
    "y",
    "é",
    " x",
    "x ",
    "a: b",
    "a #b",
    "- a",
    "line\nbreak",
    "line\n",
    "\n",
    "tab\there",
    "'",
    "\"",
    "2024-01-01",
    "12:30:45",
    "10.0.0.1",
    "{}",
    "[a]",
    "*x",
    "&x",
    "!x",
    "%",
    "@x",
    "`x`",
    "=",
    "<<",
    "|",
    ">",
    "\u{1f600}",
    "---",
    "?",
    "? x",
    "<b>&amp;</b>",
    "more words than one line of eighty columns has room for, so that the writer folds it behind a space of its own",
];

fn quantities() -> Vec<Value> {
    let words = [
        "0",
        "1",
        "500m",
        "0.5",
        "2000m",
        "1Gi",
        "1024Mi",
        "1.5Gi",
        "100k",
        "1e3",
        "1E3",
        "0.0001",
        "+1",
        "-1",
        " 1 ",
        "1000",
        "1000k",
        "12e6",
        "1.000",
        "0.1Ki",
        "64Mi",
        "128974848",
        "129e6",
        "129M",
        "123Mi",
    ];
    let numbers = [json!(0), json!(1), json!(0.5), json!(2.0), json!(1e10), json!(1500), json!(0.00001), json!(1000)];
    words.into_iter().map(Value::from).chain(numbers).collect()
}
