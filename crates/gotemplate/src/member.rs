//! Members of JSON objects by key.

use serde_json::{Map, Value};

/// The largest number of members for which comparing the keys one by one is faster than hashing the key.
const FEW: usize = 16;

/// Returns the member of a JSON object under a key; faster than `serde_json::Map::get` for small objects.
#[inline]
pub fn member<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    if map.len() > FEW {
        return map.get(key);
    }
    map.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
}

/// Returns the member under a key; `None` if the value is not an object.
#[inline]
pub fn member_of<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    member(value.as_object()?, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_members_are_found_alike() {
        for count in [0, 1, FEW, FEW + 1, 3 * FEW] {
            let map: Map<String, Value> = (0..count).map(|number| (format!("k{number}"), number.into())).collect();
            for key in ["k0", "k7", "k15", "k16", "k40", "k", ""] {
                assert_eq!(member(&map, key), map.get(key), "{key} of {count}");
            }
        }
        assert_eq!(member_of(&Value::from(vec![1]), "k"), None);
    }
}
