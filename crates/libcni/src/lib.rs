//! libcni's view of a node: network configurations as runtimes decode them, and the cache of attachments.
//!
//! The cache has, for each attachment, the chain as the runtime read it at ADD, which CRI-O executes again at CHECK and DEL. Multus
//! caches its delegates in the same way and executes them at each DEL, on any runtime.
//!
//! After a removal, DEL would fail for an attachment whose cached chain names the plugin, so the removal edits the cache: neither
//! DEL nor CHECK of the other plugins needs this one. Source: `libcni/api.go` of `containernetworking/cni` 1.3 (`cachedInfo`).
#![expect(clippy::disallowed_methods, reason = "edits the runtime's cache")]

pub mod conflist;
mod json;
mod multus;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::{RawValue, to_raw_value};

use conflist::{List, without_delegated};

/// libcni's cache on a node, unless the runtime sets another directory.
pub const CACHE: &str = "/var/lib/cni";
/// The subdirectory of [`CACHE`] with libcni's entries.
const RESULTS: &str = "results";
/// The subdirectory of [`CACHE`] with Multus' entries, unless Multus' `cniDir` names another directory.
const MULTUS: &str = "multus";

/// The largest number of entries in a directory. A node has far fewer attachments, but entries of deleted pods may be left.
const MAX_ENTRIES: usize = 65_536;
/// The size limit of an entry, in bytes: a configuration in base64 and a result.
const MAX_SIZE: u64 = 4 << 20;

/// Which entries are edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edited<'a> {
    All,
    /// The entries of the container with this ID.
    Of(&'a str),
}

/// What an edit changed and left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cached {
    /// The number of entries from which the plugin was removed.
    pub edited: usize,
    /// The number of entries that still name the plugin.
    pub naming: usize,
}

/// The cache could not be read or edited.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be {verb}: {cause}", path.display())]
pub struct Error {
    path: PathBuf,
    /// `read` or `written`.
    verb: &'static str,
    cause: io::Error,
}

/// The members of an entry. Those that are not edited keep their bytes.
type Members = BTreeMap<String, Box<RawValue>>;

/// Removes the plugin from the chains of cached attachments in `cache`, libcni's directory. A cache without entries is treated as
/// edited; a missing `cache` is an error, because the runtime may use another directory.
///
/// An entry is overwritten in place, in one write of the same length: a rename could restore an entry that the runtime has just
/// removed, and with a shorter entry, a reader could see the end of the old one before the truncation.
pub fn edit(cache: &Path, edited: Edited<'_>) -> Result<Cached, Error> {
    fs::metadata(cache).map_err(|cause| Error { path: cache.to_owned(), verb: "read", cause })?;
    let own = edit_directory(&cache.join(RESULTS), edited, |content, _| attachment(content))?;
    let multus = edit_directory(&cache.join(MULTUS), edited, multus::parse)?;
    Ok(Cached { edited: own.edited + multus.edited, naming: own.naming + multus.naming })
}

/// Edits the entries of a directory, which may be missing. `parse` gets an entry's content and file name.
fn edit_directory(
    directory: &Path,
    edited: Edited<'_>,
    parse: impl Fn(&[u8], &str) -> Option<Naming>,
) -> Result<Cached, Error> {
    let failed = |cause| Error { path: directory.to_owned(), verb: "read", cause };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Cached::default()),
        entries => entries.map_err(failed)?,
    };
    let mut cached = Cached::default();
    for (index, entry) in entries.enumerate() {
        if index == MAX_ENTRIES {
            return Err(failed(io::Error::other(format!("it has more than {MAX_ENTRIES} entries"))));
        }
        let path = entry.map_err(failed)?.path();
        match edit_entry(&path, edited, &parse) {
            // The runtime has just removed the entry.
            Err(error) if error.cause.kind() == io::ErrorKind::NotFound => {}
            outcome => match outcome? {
                Outcome::Other => {}
                Outcome::Edited => cached.edited += 1,
                Outcome::Naming => cached.naming += 1,
            },
        }
    }
    Ok(cached)
}

enum Outcome {
    /// The entry does not name the plugin, or libcni or Multus could not parse it.
    Other,
    Edited,
    Naming,
}

/// An entry that names the plugin.
struct Naming {
    container: String,
    /// The entry's content without the plugin; `None` if its chain has no other plugin, because libcni refuses an empty chain.
    without_plugin: Option<Vec<u8>>,
}

fn edit_entry(
    path: &Path,
    edited: Edited<'_>,
    parse: impl Fn(&[u8], &str) -> Option<Naming>,
) -> Result<Outcome, Error> {
    let failed = |verb| move |cause| Error { path: path.to_owned(), verb, cause };
    // A pipe would block, and libcni writes regular files only.
    if !fs::symlink_metadata(path).map_err(failed("read"))?.is_file() {
        return Ok(Outcome::Other);
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(failed("read"))?;
    file.take(MAX_SIZE + 1).read_to_end(&mut content).map_err(failed("read"))?;
    if content.len() as u64 > MAX_SIZE {
        return Ok(Outcome::Naming);
    }
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let Some(Naming { container, without_plugin }) = parse(&content, &name) else { return Ok(Outcome::Other) };
    if !matches!(edited, Edited::All) && edited != Edited::Of(&container) {
        return Ok(Outcome::Naming);
    }
    let Some(mut text) = without_plugin.filter(|text| text.len() <= content.len()) else {
        return Ok(Outcome::Naming);
    };
    text.resize(content.len(), b' ');
    let file = OpenOptions::new().write(true).open(path).map_err(failed("written"))?;
    file.write_all_at(&text, 0).and_then(|()| file.sync_all()).map_err(failed("written"))?;
    Ok(Outcome::Edited)
}

/// Parses a cached attachment; `None` if it does not name the plugin, or libcni could not parse it.
fn attachment(content: &[u8]) -> Option<Naming> {
    let mut members: Members = serde_json::from_slice(content).ok()?;
    let text = |name: &str| serde_json::from_str::<String>(members.get(name)?.get()).ok();
    let container = text("containerId")?;
    let list = without_plugin(&STANDARD.decode(text("config")?).ok()?)?;
    let without_plugin = list.and_then(|list| {
        members.insert("config".to_owned(), to_raw_value(&STANDARD.encode(list)).ok()?);
        serde_json::to_vec(&members).ok()
    });
    Some(Naming { container, without_plugin })
}

/// Returns a list without the plugin, also in Multus' delegates; `None` if the list does not name the plugin; `Some(None)` if it
/// has no other plugin, or libcni would refuse it.
fn without_plugin(list: &[u8]) -> Option<Option<Vec<u8>>> {
    let bare = match List::decode(list) {
        Ok(decoded) if decoded.entries().next().is_some() => match decoded.without_entry() {
            Some(bare) => Some(bare),
            None => return Some(None),
        },
        Ok(_) => None,
        Err(_) => return mentions_plugin(list).then_some(None),
    };
    let delegated = without_delegated(bare.as_deref().unwrap_or(list));
    delegated.or(bare).map(Some)
}

/// Whether the plugin's name occurs anywhere in `text`.
pub fn mentions_plugin(text: &[u8]) -> bool {
    text.windows(contract::PLUGIN_NAME.len()).any(|part| part == contract::PLUGIN_NAME.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn list(plugins: &[&str]) -> Value {
        let plugins: Vec<_> = plugins.iter().map(|kind| json!({ "type": kind, "mtu": 1500.0 })).collect();
        json!({ "name": "k8s", "cniVersion": "1.0.0", "plugins": plugins })
    }

    fn entry(container: &str, plugins: &[&str]) -> String {
        let config = STANDARD.encode(format!("{:#}", list(plugins)));
        json!({ "kind": "cniCacheV1", "containerId": container, "config": config, "result": { "ips": [] } }).to_string()
    }

    fn cache(entries: &[(&str, &str)]) -> tempfile::TempDir {
        let cache = tempfile::tempdir().unwrap();
        fs::create_dir(cache.path().join(RESULTS)).unwrap();
        for (name, content) in entries {
            fs::write(cache.path().join(RESULTS).join(name), content).unwrap();
        }
        cache
    }

    /// Returns the chain of an entry; asserts that all other members are unchanged.
    fn chain_of(cache: &Path, name: &str, before: &str) -> Value {
        let content = fs::read_to_string(cache.join(RESULTS).join(name)).unwrap();
        assert_eq!(content.len(), before.len());
        let [mut after, mut before] =
            [content.as_str(), before].map(|text| serde_json::from_str::<Value>(text).unwrap());
        let config = after["config"].take();
        before["config"].take();
        assert_eq!(after, before);
        serde_json::from_slice(&STANDARD.decode(config.as_str().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn the_plugin_is_taken_from_the_chains_of_all_containers_or_one() {
        let (a, b) = (entry("a", &["bridge", "istio-cni", "portmap"]), entry("b", &["ptp", "istio-cni"]));
        let other = entry("c", &["bridge"]);
        let cache = cache(&[("k8s-a-eth0", &a), ("k8s-b-eth0", &b), ("k8s-c-eth0", &other), ("d", "no JSON")]);
        assert_eq!(edit(cache.path(), Edited::Of("a")).unwrap(), Cached { edited: 1, naming: 1 });
        assert_eq!(chain_of(cache.path(), "k8s-a-eth0", &a), list(&["bridge", "portmap"]));
        assert_eq!(chain_of(cache.path(), "k8s-b-eth0", &b), list(&["ptp", "istio-cni"]));
        assert_eq!(edit(cache.path(), Edited::All).unwrap(), Cached { edited: 1, naming: 0 });
        assert_eq!(chain_of(cache.path(), "k8s-b-eth0", &b), list(&["ptp"]));
        assert_eq!(edit(cache.path(), Edited::All).unwrap(), Cached::default());
        assert_eq!(fs::read_to_string(cache.path().join("results/k8s-c-eth0")).unwrap(), other);
    }

    /// Returns the list of a cached attachment after the removal.
    fn without_the_plugin(list: &[u8]) -> Option<Vec<u8>> {
        let entry = json!({ "containerId": "a", "config": STANDARD.encode(list) }).to_string();
        let edited: Value = serde_json::from_slice(&attachment(entry.as_bytes())?.without_plugin?).unwrap();
        Some(STANDARD.decode(edited["config"].as_str().unwrap()).unwrap())
    }

    /// Go decodes bytes that are not UTF-8, lone surrogates and duplicate keys, and CRI-O executes such a list.
    #[test]
    fn a_list_that_only_go_decodes_loses_the_plugin_and_no_other_byte() {
        for start in [&b"{\"_c\":\"caf\xe9\","[..], b"{\"c\xe9\":1,", b"{\"\\ud800\":1,", b"{\"x\":1,\"x\":2,"] {
            let list = |plugins: &[u8]| [start, b"\"name\":\"k8s\",\"plugins\":[", plugins, b"]}"].concat();
            let before = list(b"{\"type\":\"ptp\",\"_c\":\"\xe9\"}, {\"type\":\"istio-cni\"}");
            assert_eq!(without_the_plugin(&before), Some(list(b"{\"type\":\"ptp\",\"_c\":\"\xe9\"}")));
        }
    }

    #[test]
    fn the_plugin_is_taken_out_of_the_delegates_of_multus_in_a_chain() {
        let multus = |plugins: Value, more: &[Value]| {
            let multus = json!({ "type": "multus", "delegates": [{ "name": "pods", "plugins": plugins }] });
            let plugins: Vec<Value> = [&[multus], more].concat();
            json!({ "name": "multus-cni-network", "plugins": plugins }).to_string()
        };
        let (ptp, ours) = (json!({ "type": "ptp" }), json!({ "type": "istio-cni" }));
        let bare = multus(json!([ptp]), &[]);
        for before in [multus(json!([ptp, ours]), &[]), multus(json!([ptp, ours]), std::slice::from_ref(&ours))] {
            assert_eq!(without_the_plugin(before.as_bytes()), Some(bare.clone().into_bytes()), "{before}");
        }
        assert_eq!(without_the_plugin(bare.as_bytes()), None);
    }

    #[test]
    fn an_entry_that_cannot_be_edited_still_names_the_plugin() {
        let (alone, large) = (entry("a", &["istio-cni"]), " ".repeat(usize::try_from(MAX_SIZE).unwrap() + 1));
        let refused = STANDARD.encode(br#"{"name": 5, "plugins": [{"type": "istio-cni"}]}"#);
        let refused = json!({ "containerId": "b", "config": refused }).to_string();
        let cache = cache(&[("alone", &alone), ("large", &large), ("refused", &refused)]);
        assert_eq!(edit(cache.path(), Edited::All).unwrap(), Cached { edited: 0, naming: 3 });
        assert_eq!(fs::read_to_string(cache.path().join("results/alone")).unwrap(), alone);
    }

    #[test]
    fn a_cache_without_entries_is_told_from_a_missing_one() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(edit(empty.path(), Edited::All).unwrap(), Cached::default());
        let missing = edit(&empty.path().join("cni"), Edited::All).unwrap_err().to_string();
        assert!(missing.contains("/cni cannot be read: "), "{missing}");
        let many = cache(&[]);
        (0..=MAX_ENTRIES).for_each(|index| fs::write(many.path().join(RESULTS).join(index.to_string()), "").unwrap());
        let error = edit(many.path(), Edited::All).unwrap_err().to_string();
        assert!(error.contains("more than 65536 entries"), "{error}");
    }
}
