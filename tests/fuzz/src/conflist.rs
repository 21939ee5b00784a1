//! Adds the plugin's entry to any network configuration and removes it again. Checks that the entry is the last one of
//! the list, and that a list without the entry is unchanged, byte for byte, after the removal.

use istio_cni::install::conflist::{List, Network};
use serde_json::Value;

const ENTRY: &str = "{\n  \"type\": \"istio-cni\",\n  \"name\": \"fuzz\"\n}";

fn list(text: &str) -> List<'_> {
    match Network::parse(text.as_bytes()) {
        Ok(Network::List(list)) => list,
        other => panic!("{other:?} from {text:?}"),
    }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Checks that a list contains [`ENTRY`] once, after `others` other plugins.
fn check_chained(text: &str, others: usize) {
    assert_eq!(list(text).entries().map(|raw| value(raw.get())).collect::<Vec<_>>(), [value(ENTRY)], "{text}");
    let parsed = value(text);
    let plugins = parsed["plugins"].as_array().expect("plugins");
    assert_eq!((plugins.len(), plugins.last()), (others + 1, Some(&value(ENTRY))), "{text}");
    assert_eq!(list(text).with_entry(ENTRY), text, "a second insertion changes nothing");
}

/// Checks the properties for one input.
pub fn property(bytes: &[u8]) {
    let network = match Network::parse(bytes) {
        Ok(network) => network,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let text = std::str::from_utf8(bytes).expect("only text is read");
    // serde_json refuses values that are nested more than 128 levels deep. Go and the parser under test have no such
    // limit.
    if let Err(error) = serde_json::from_str::<Value>(text) {
        return assert!(error.to_string().starts_with("recursion limit"), "{error}: {text}");
    }
    let others = network.other_plugins().len();
    match network {
        Network::Single(single) if others == 1 => check_chained(&single.chained(ENTRY), 1),
        Network::Single(_) => {}
        Network::List(own) => {
            let with = own.with_entry(ENTRY);
            check_chained(&with, others);
            let bare = own.without_entry();
            assert_eq!(list(&with).without_entry(), bare, "a removal after an insertion is a removal");
            match bare {
                Some(bare) if own.entries().next().is_none() => assert_eq!(bare, text),
                Some(bare) => {
                    assert_eq!((list(&bare).entries().count(), list(&bare).without_entry()), (0, Some(bare.clone())));
                }
                None => assert_eq!(others, 0),
            }
        }
    }
}
