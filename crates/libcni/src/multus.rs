//! Multus' cache of the delegates that it called at ADD, which it calls again at DEL. Pure.
//!
//! A file for each container, named by the container's ID, contains an array of delegates. Source: `pkg/multus/multus.go` of
//! multus-cni 4.2 (`saveDelegates`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::{RawValue, to_raw_value};

use super::conflist::Single;
use super::{Members, Naming, without_plugin};

/// The member with the configuration of one plugin.
const SINGLE: &str = "Conf";
/// The member with a list of plugins.
const LIST: &str = "ConfList";
/// The member with either configuration in base64, from which Multus calls the plugins.
const TEXT: &str = "Bytes";
/// The member that names the interface. Without it, Multus names the interface by the delegate's index in the array.
const INTERFACE: &str = "ifnameRequest";

/// Parses the file of a container; `None` if no delegate names the plugin, or Multus could not parse it.
pub(super) fn parse(content: &[u8], container: &str) -> Option<Naming> {
    let delegates: Vec<Members> = serde_json::from_slice(content).ok()?;
    delegates.iter().any(names_plugin).then(|| Naming {
        container: container.to_owned(),
        without_plugin: without(delegates).and_then(|delegates| serde_json::to_vec(&delegates).ok()),
    })
}

fn names_plugin(delegate: &Members) -> bool {
    is_single(delegate) || text(delegate).and_then(|list| without_plugin(&list)).is_some()
}

/// Whether a delegate is the plugin itself, as a network of its own.
fn is_single(delegate: &Members) -> bool {
    let single = delegate.get(SINGLE).and_then(|plugin| Single::decode(plugin.get().as_bytes()).ok());
    single.is_some_and(|single| single.kind() == contract::PLUGIN_NAME)
}

fn text(delegate: &Members) -> Option<Vec<u8>> {
    STANDARD.decode(serde_json::from_str::<String>(delegate.get(TEXT)?.get()).ok()?).ok()
}

/// Returns the delegates without the plugin; `None` if the first one, which gives the pod its interface, or a list would have no
/// plugin left.
fn without(delegates: Vec<Members>) -> Option<Vec<Members>> {
    let mut left: Vec<Members> = Vec::new();
    for (index, mut delegate) in delegates.into_iter().enumerate() {
        if is_single(&delegate) {
            left.first()?;
            continue;
        }
        if let Some(list) = text(&delegate).and_then(|list| without_plugin(&list)) {
            delegate.insert(TEXT.to_owned(), to_raw_value(&STANDARD.encode(list?)).ok()?);
            let parsed = delegate.get(LIST).and_then(|list| without_plugin(list.get().as_bytes()));
            if let Some(list) = parsed {
                delegate.insert(LIST.to_owned(), RawValue::from_string(String::from_utf8(list?).ok()?).ok()?);
            }
        }
        if left.len() < index {
            let name = to_raw_value(&format!("net{index}")).ok()?;
            delegate.entry(INTERFACE.to_owned()).or_insert(name);
        }
        left.push(delegate);
    }
    Some(left)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn list(name: &str, plugins: &[&str]) -> Value {
        let plugins: Vec<_> = plugins.iter().map(|kind| json!({ "type": kind })).collect();
        let list = json!({ "name": name, "plugins": plugins });
        json!({ "Conf": { "name": name, "type": "" }, "ConfList": list, "Bytes": STANDARD.encode(list.to_string()) })
    }

    fn single(kind: &str) -> Value {
        json!({ "Conf": { "type": kind }, "ConfList": { "name": "" }, "Bytes": STANDARD.encode(json!({ "type": kind }).to_string()) })
    }

    /// Returns the delegates without the plugin, if they name it.
    fn edited(delegates: &Value) -> Option<Option<Value>> {
        let naming = parse(delegates.to_string().as_bytes(), "a")?;
        assert_eq!(naming.container, "a");
        Some(naming.without_plugin.map(|text| serde_json::from_slice(&text).unwrap()))
    }

    #[test]
    fn the_plugin_is_taken_out_of_lists() {
        let before = json!([list("pods", &["ptp", "istio-cni"]), list("second", &["ptp"])]);
        assert_eq!(edited(&before), Some(Some(json!([list("pods", &["ptp"]), list("second", &["ptp"])]))));
        assert_eq!(edited(&json!([list("pods", &["ptp"])])), None);
        assert_eq!(edited(&json!({ "containerId": "a" })), None);
    }

    #[test]
    fn interfaces_behind_a_removed_delegate_keep_their_names() {
        let mut named = single("macvlan");
        named["ifnameRequest"] = json!("wan");
        let before = json!([single("bridge"), single("istio-cni"), list("second", &["ptp"]), named]);
        let mut second = list("second", &["ptp"]);
        second["ifnameRequest"] = json!("net2");
        assert_eq!(edited(&before), Some(Some(json!([single("bridge"), second, named]))));
    }

    #[test]
    fn delegates_without_another_plugin_cannot_be_edited() {
        for delegates in [json!([single("istio-cni")]), json!([list("pods", &["istio-cni"])])] {
            assert_eq!(edited(&delegates), Some(None), "{delegates}");
        }
    }
}
