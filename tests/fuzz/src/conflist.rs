//! Adds the plugin's entry to any network configuration and removes it again. Checks that the entry is the last one of
//! the list, and that a list without the entry is unchanged, byte for byte, after the removal.

use libcni::conflist::{List, Single, same_value};

const ENTRY: &str = "{\n  \"type\": \"istio-cni\",\n  \"name\": \"fuzz\"\n}";

fn list(bytes: &[u8]) -> List<'_> {
    List::decode(bytes).unwrap_or_else(|error| panic!("{error}: {}", bytes.escape_ascii()))
}

/// Checks that a list contains [`ENTRY`] once, after `others` other plugins, and that a second insertion changes nothing.
fn check_chained(text: &[u8], others: usize) {
    let entries: Vec<&[u8]> = list(text).entries().collect();
    assert!(matches!(entries.as_slice(), [only] if same_value(only, ENTRY.as_bytes())), "{}", text.escape_ascii());
    assert_eq!(list(text).kinds().len(), others + 1);
    assert_eq!(list(text).kinds().next_back(), Some("istio-cni"));
    assert_eq!(list(text).with_entry(ENTRY), text, "a second insertion changes nothing");
}

/// Checks the properties for one input, as a list and as one plugin.
pub fn property(bytes: &[u8]) {
    match Single::decode(bytes) {
        Ok(single) if single.kind() != "istio-cni" => check_chained(&single.chained(ENTRY), 1),
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let own = match List::decode(bytes) {
        Ok(own) => own,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let others = own.kinds().filter(|kind| *kind != "istio-cni").count();
    let with = own.with_entry(ENTRY);
    check_chained(&with, others);
    let bare = own.without_entry();
    assert_eq!(list(&with).without_entry(), bare, "a removal after an insertion is a removal");
    match bare {
        Some(bare) if own.entries().next().is_none() => assert_eq!(bare, bytes),
        Some(bare) => {
            assert_eq!((list(&bare).entries().count(), list(&bare).without_entry()), (0, Some(bare.clone())));
        }
        None => assert_eq!(others, 0),
    }
}
