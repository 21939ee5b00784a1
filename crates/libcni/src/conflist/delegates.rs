//! Finds the plugin in Multus' delegates, which are copies of networks, and removes it from them; finds the paths of the files that
//! Multus reads. Pure.
//!
//! The program `thin_entrypoint` of Multus copies the first file of the configuration directory into `00-multus.conf` or
//! `00-multus.conflist`, with the plugin's entry if the file has it. It copies again only when it restarts, or, with
//! `--cleanup-config-on-exit`, when the file changes. Multus' daemon copies nothing: its `00-multus.conf` has the path of the first
//! other file as `clusterNetwork`, and the daemon reads that file at each ADD. The daemon writes `00-multus.conf` again after each
//! change of that file, and removes it on exit.

use std::ops::Range;
use std::path::PathBuf;

use crate::json::{Document, Value};

/// The type of the plugin that calls Multus' daemon.
const SHIM: &str = "multus-shim";
/// The directory in which Multus' daemon searches plugins by default.
const BIN_DIR: &str = "/opt/cni/bin";
/// The types of Multus' plugins.
pub(super) const MULTUS: [&str; 2] = ["multus", SHIM];

/// A network among Multus' delegates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegate<'a> {
    /// The name of the network that was copied.
    pub name: String,
    /// The plugin's entries, as JSON; none if the delegate is a single plugin.
    pub entries: Vec<&'a [u8]>,
}

/// Returns Multus' delegates in a configuration file; none in files of other plugins.
fn delegates(bytes: &[u8]) -> Vec<Delegate<'_>> {
    let Ok(document) = Document::scan(bytes) else { return Vec::new() };
    let elements = arrays(document.root()).into_iter().flat_map(Value::elements);
    let delegate = |delegate| {
        let plugins = member(delegate, "plugins").into_iter().flat_map(Value::elements);
        let entries = plugins.filter(|plugin| is_ours(*plugin)).map(|plugin| &bytes[plugin.range()]).collect();
        Delegate { name: member(delegate, "name").and_then(Value::text).unwrap_or_default(), entries }
    };
    elements.map(delegate).collect()
}

/// Returns the copy of the pod network: the first of Multus' delegates. Multus attaches pods to the others as additional networks.
pub fn delegated_network(bytes: &[u8]) -> Option<Delegate<'_>> {
    delegates(bytes).into_iter().next()
}

/// The paths in the configuration of Multus' daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shim {
    /// The path of the network that the daemon reads at each ADD (`clusterNetwork`).
    pub network: PathBuf,
    /// The directory in which the daemon searches the network's plugins first (`binDir`).
    pub bin_dir: PathBuf,
}

impl Shim {
    /// Returns the paths in a file that configures the daemon's plugin, alone or as the first plugin of a list.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let document = Document::scan(bytes).ok()?;
        let first = member(document.root(), "plugins").and_then(|list| list.elements().next());
        let shim = first.unwrap_or(document.root());
        type_of(shim).filter(|kind| kind == SHIM)?;
        let text = |key| member(shim, key).and_then(Value::text).filter(|text| !text.is_empty());
        let network = text("clusterNetwork").filter(|path| path.contains('/'))?.into();
        Some(Self { network, bin_dir: text("binDir").unwrap_or_else(|| BIN_DIR.to_owned()).into() })
    }
}

/// Returns the paths of network configurations that Multus reads at each ADD, or waits for: `clusterNetwork`, `defaultNetworks` and
/// `readinessindicatorfile`. None in files of other plugins.
pub fn paths(bytes: &[u8]) -> Vec<PathBuf> {
    let Ok(document) = Document::scan(bytes) else { return Vec::new() };
    let plugins = multus(document.root());
    let of = |plugin: Value<'_>| {
        let single = ["clusterNetwork", "readinessindicatorfile"].map(|key| member(plugin, key));
        let several = member(plugin, "defaultNetworks").into_iter().flat_map(Value::elements);
        let texts = single.into_iter().flatten().chain(several).filter_map(Value::text);
        texts.filter(|path| path.contains('/')).map(PathBuf::from).collect::<Vec<_>>()
    };
    plugins.into_iter().flat_map(of).collect()
}

/// Returns a configuration file without the plugin in Multus' delegates; `None` if no delegate names the plugin, or no other plugin
/// would be left.
pub fn without_delegated(bytes: &[u8]) -> Option<Vec<u8>> {
    let document = Document::scan(bytes).ok()?;
    let mut cuts = Vec::new();
    for delegates in arrays(document.root()) {
        cuts.extend(cuts_of(delegates, |delegate| is_ours(delegate) || has_only_ours(delegate)));
        let lists = delegates.elements().filter(|delegate| !has_only_ours(*delegate));
        cuts.extend(lists.filter_map(|delegate| member(delegate, "plugins")).flat_map(|list| cuts_of(list, is_ours)));
    }
    cuts.sort_by_key(|cut| cut.start);
    let (mut text, mut at) = (Vec::new(), 0);
    for cut in &cuts {
        text.extend_from_slice(&bytes[at..cut.start]);
        at = cut.end;
    }
    text.extend_from_slice(&bytes[at..]);
    (!cuts.is_empty()).then_some(text)
}

/// Returns the arrays `delegates` of Multus' plugins in a file with one plugin or a list of them.
fn arrays(root: Value<'_>) -> Vec<Value<'_>> {
    multus(root).into_iter().filter_map(|plugin| member(plugin, "delegates")).collect()
}

/// Returns Multus' plugins in a file with one plugin or a list of them.
fn multus(root: Value<'_>) -> Vec<Value<'_>> {
    let listed = member(root, "plugins").into_iter().flat_map(Value::elements);
    listed.chain([root]).filter(|plugin| type_of(*plugin).is_some_and(|kind| MULTUS.contains(&&*kind))).collect()
}

/// Returns the byte ranges of the elements that satisfy the predicate, each with a separator; none if no other element would be left.
fn cuts_of(array: Value<'_>, is_removed: impl Fn(Value<'_>) -> bool) -> Vec<Range<usize>> {
    let elements: Vec<(Range<usize>, bool)> =
        array.elements().map(|value| (value.range(), is_removed(value))).collect();
    let Some(first_kept) = elements.iter().position(|(_, removed)| !removed) else { return Vec::new() };
    let cut = |index: usize| match index < first_kept {
        true => elements[index].0.start..elements[index + 1].0.start,
        false => elements[index - 1].0.end..elements[index].0.end,
    };
    (0..elements.len()).filter(|index| elements[*index].1).map(cut).collect()
}

/// Whether a delegate is a list that contains only this plugin.
fn has_only_ours(delegate: Value<'_>) -> bool {
    let plugins = member(delegate, "plugins");
    plugins.is_some_and(|list| list.elements().next().is_some() && list.elements().all(is_ours))
}

fn is_ours(plugin: Value<'_>) -> bool {
    type_of(plugin).is_some_and(|kind| kind == contract::PLUGIN_NAME)
}

fn type_of(plugin: Value<'_>) -> Option<String> {
    member(plugin, "type").and_then(Value::text)
}

/// Returns the value of an object's key; of several equal keys the last one's, as in Go.
fn member<'d>(object: Value<'d>, key: &str) -> Option<Value<'d>> {
    let named = object.members().filter(|(name, _)| name.text().is_some_and(|name| name == key));
    named.map(|(_, value)| value).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: &str = r#"{"type": "multus", "delegates": [ {"name": "pods", "plugins": [
        {"type": "ptp", "mtu": 1500.0} , {"type": "istio-cni", "capabilities": {}} ]} ]}"#;
    const BARE: &str = r#"{"type": "multus", "delegates": [ {"name": "pods", "plugins": [
        {"type": "ptp", "mtu": 1500.0} ]} ]}"#;

    #[test]
    fn the_plugin_is_cut_out_of_a_copy_and_every_other_byte_stays() {
        let list = |multus: &str| {
            format!(r#"{{"name": "multus-cni-network", "plugins": [{multus}, {{"type": "istio-cni"}}]}}"#)
        };
        for (before, after) in [
            (COPY.to_owned(), Some(BARE.to_owned())),
            (list(COPY), Some(list(BARE))),
            (list(BARE), None),
            (COPY.replace("multus", "other"), None),
            ("{".to_owned(), None),
        ] {
            let text = without_delegated(before.as_bytes()).map(|text| String::from_utf8(text).unwrap());
            assert_eq!(text, after, "{before}");
        }
    }

    #[test]
    fn a_delegate_of_its_own_is_cut_unless_it_is_the_only_one() {
        let file = |delegates: &[&str]| format!(r#"{{"type":"multus-shim","delegates":[{}]}}"#, delegates.join(" , "));
        let (ptp, single) = (r#"{"type":"ptp"}"#, r#"{"type":"istio-cni"}"#);
        let alone = r#"{"plugins":[{"type":"istio-cni"}]}"#;
        for (before, after) in [
            (&[single, ptp, alone, ptp, single][..], Some(&[ptp, ptp][..])),
            (&[alone, single, ptp], Some(&[ptp])),
            (&[single, alone], None),
            (&[ptp], None),
        ] {
            let text = without_delegated(file(before).as_bytes()).map(|text| String::from_utf8(text).unwrap());
            assert_eq!(text, after.map(file), "{before:?}");
        }
    }

    #[test]
    fn a_copy_has_the_name_of_its_network_and_the_entry() {
        let expected =
            Delegate { name: "pods".to_owned(), entries: vec![br#"{"type": "istio-cni", "capabilities": {}}"#] };
        assert_eq!(delegates(COPY.as_bytes()), [expected]);
        assert_eq!(delegates(BARE.as_bytes()), [Delegate { name: "pods".to_owned(), entries: Vec::new() }]);
        assert_eq!(delegates(br#"{"type": "ptp", "delegates": [{"plugins": [{"type": "istio-cni"}]}]}"#), []);
    }
}
