//! Converts the nodes that the library reads to JSON values. A key becomes the string of its scalar's value: `yes`
//! becomes the key `true`, and `0x1f` becomes `31`. Merge keys have the same effect as in Go's reader.

use std::cell::Cell;
use std::fmt;

use gotemplate::general_float;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::merge_key::Source;

/// The merge keys of a document. As in Go's reader, a merge key takes effect at its position: the members that it
/// copies replace members before it, and are replaced by members after it. This differs from YAML 1.1, in which copied
/// members never replace others. If the value is a list of maps, earlier maps take precedence.
#[derive(Debug)]
pub(super) struct Merges<'s> {
    source: &'s Source<'s>,
    copied: Cell<usize>,
    limit: usize,
}

impl<'s> Merges<'s> {
    /// Creates the merge keys of `source`, which may copy up to `limit` members. Each level of nested merge keys copies
    /// the members of the levels below again.
    pub(super) fn new(source: &'s Source<'s>, limit: usize) -> Self {
        Self { source, copied: Cell::new(0), limit }
    }

    /// Returns the number of copied members, including those beyond the limit.
    pub(super) fn copied(&self) -> usize {
        self.copied.get()
    }

    fn copy<E: Error>(&self, map: &mut Map<String, Value>, members: Map<String, Value>) -> Result<(), E> {
        self.copied.set(self.copied.get().saturating_add(members.len()));
        if self.copied.get() > self.limit {
            return Err(E::custom(format_args!("merge keys copy more than {} members", self.limit)));
        }
        map.extend(members);
        Ok(())
    }
}

/// Go's error message.
const NO_MAP: &str = "map merge requires map or sequence of maps as the value";

const NO_KEY: &str = "a key is neither text, number nor boolean";

/// Reads the value of a merge key into a map.
struct Merged<'m> {
    merges: &'m Merges<'m>,
    into: &'m mut Map<String, Value>,
}

impl<'de> DeserializeSeed<'de> for Merged<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let Self { merges, into } = self;
        match from.deserialize_any(Node::of(merges))? {
            Value::Object(members) => merges.copy(into, members),
            Value::Array(items) => items.into_iter().rev().try_for_each(|item| match item {
                Value::Object(members) => merges.copy(into, members),
                _ => Err(D::Error::custom(NO_MAP)),
            }),
            _ => Err(D::Error::custom(NO_MAP)),
        }
    }
}

/// Reads any value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'m> {
    merges: &'m Merges<'m>,
}

impl<'m> Node<'m> {
    pub(super) fn of(merges: &'m Merges<'m>) -> Self {
        Self { merges }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let (merges, mut map) = (self.merges, Map::new());
        while let Some((name, is_merge)) = next_key(merges, &mut members)? {
            if is_merge {
                members.next_value_seed(Merged { merges, into: &mut map })?;
            } else {
                map.insert(name, members.next_value_seed(self)?);
            }
        }
        Ok(Value::Object(map))
    }
}

/// Reads a key. Also returns whether it is a merge key.
fn next_key<'de, A: MapAccess<'de>>(merges: &Merges<'_>, members: &mut A) -> Result<Option<(String, bool)>, A::Error> {
    if !merges.source.has_merge_keys() {
        return Ok(members.next_key()?.map(|Key(name)| (name, false)));
    }
    let key = members.next_key::<Spanned<Key>>()?;
    Ok(key.map(|key| {
        let is_merge = merges.source.is_merge(&key);
        (key.value.0, is_merge)
    }))
}

/// A key as a string. Maps and lists are refused as keys, because the library copies each key with its contents, and
/// copies the keys in these contents again.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(KeyVisitor).map(Self)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = String;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<String, E> {
        Ok(truth.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        if number.is_finite() { Ok(general_float(number)) } else { Err(E::custom(NO_KEY)) }
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E>(self, text: String) -> Result<String, E> {
        Ok(text)
    }

    fn visit_none<E: Error>(self) -> Result<String, E> {
        Err(E::custom(NO_KEY))
    }

    fn visit_unit<E: Error>(self) -> Result<String, E> {
        Err(E::custom(NO_KEY))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<String, A::Error> {
        Err(A::Error::custom(NO_KEY))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<String, A::Error> {
        Err(A::Error::custom(NO_KEY))
    }
}
