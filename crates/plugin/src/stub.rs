//! The stub: the plugin's replies after a removal that could not remove the plugin from all chains.
//!
//! A marker beside the binary turns the plugin into the stub. CRI-O executes cached chains at CHECK and DEL; each DEL removes the
//! stub from the container's own chain, and deletes the stub once no other cached chain names it. If another plugin fails the DEL
//! afterwards, CRI-O repeats it with a chain without the stub. If the marker notes that a configuration file may still name the
//! plugin, the stub stays until an uninstallation.
#![expect(clippy::disallowed_methods, reason = "reads and removes files in the plugin's own directories")]

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use cni::{Call, Removed, reply};
use libcni::{Cached, Edited};

/// The plugin's binary beside a marker.
#[derive(Debug)]
pub struct Stub {
    program: PathBuf,
    marker: PathBuf,
    /// libcni's cache.
    cache: PathBuf,
}

impl Stub {
    /// Returns the stub if a marker is beside this program. `search` is the runtime's list of plugin directories (`CNI_PATH`).
    ///
    /// If the plugin was installed in another of these directories after the removal from this one, this program acts as the
    /// plugin, because the runtime executes it instead of the other installation.
    pub fn beside(program: &Path, search: &OsStr) -> Option<Self> {
        let is_installed = |dir: PathBuf| exists(&dir.join(contract::PLUGIN_NAME)) && !exists(&marker_in(&dir));
        let marker = marker_in(program.parent()?);
        let is_stub = exists(&marker) && !std::env::split_paths(search).any(is_installed);
        is_stub.then(|| Self { program: program.to_owned(), marker, cache: libcni::CACHE.into() })
    }

    /// Replies to a DEL, which always succeeds: if DEL failed, the pod's address would leak.
    pub(super) fn del(&self, container: &str, stdin: impl Read) -> String {
        let stdin = cni::read(stdin).unwrap_or_default();
        if removed(&stdin).is_some() {
            self.leave(container);
        }
        String::new()
    }

    /// Removes the stub from the container's cached chain, and deletes the stub if no other chain names it. If the cache has no
    /// chain of this container, the runtime may use another cache, and the stub stays. After a failure, the next DEL or an
    /// uninstallation deletes it.
    fn leave(&self, container: &str) {
        let Ok(Cached { edited, naming: 0 }) = libcni::edit(&self.cache, Edited::Of(container)) else { return };
        let stays = fs::read_to_string(&self.marker).is_ok_and(|text| text.contains(contract::STUB_STAYS));
        // The binary is deleted first: without a marker it would act as the plugin.
        if edited > 0 && !stays && fs::remove_file(&self.program).is_ok() {
            let _ = fs::remove_file(&self.marker);
        }
    }
}

/// Returns the configuration of a call to which the stub replies; `None` if the plugin does.
pub(super) fn removed(stdin: &[u8]) -> Option<Removed<'_>> {
    Removed::parse(stdin).ok().filter(replaces)
}

/// Replies to a call other than DEL and VERSION: ADD returns `prevResult`, and the others succeed. The pod starts without
/// redirection, as any pod after the removal.
pub(super) fn reply(call: &Call, conf: &Removed<'_>) -> String {
    if matches!(call, Call::Add(_)) { reply::pass(conf) } else { String::new() }
}

/// Whether the stub replies in place of the plugin. A kubeconfig in the run directory shows that an agent has installed the
/// plugin, in this directory or in another that the runtime searches, and that the marker is left over.
fn replaces(conf: &Removed<'_>) -> bool {
    !exists(&conf.run_dir.join(contract::KUBECONFIG))
}

fn marker_in(dir: &Path) -> PathBuf {
    dir.join(contract::REMOVED_MARKER)
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;

    /// Creates a plugin directory with a marker of this content, and a cache with a chain of container `a`.
    fn node(marker: &str) -> (tempfile::TempDir, Stub) {
        let dir = tempfile::tempdir().unwrap();
        let (program, cache) = (dir.path().join(contract::PLUGIN_NAME), dir.path().join("cache"));
        fs::write(&program, "").unwrap();
        assert!(Stub::beside(&program, OsStr::new("")).is_none());
        fs::write(marker_in(dir.path()), marker).unwrap();
        let list = json!({ "name": "n", "plugins": [{ "type": "ptp" }, { "type": "istio-cni" }] }).to_string();
        let entry = json!({ "containerId": "a", "config": STANDARD.encode(list) }).to_string();
        fs::create_dir_all(cache.join("results")).unwrap();
        fs::write(cache.join("results/n-a-eth0"), entry).unwrap();
        let stub = Stub::beside(&program, dir.path().as_os_str()).unwrap();
        (dir, Stub { cache, ..stub })
    }

    #[test]
    fn the_last_cached_chain_removes_the_stub_unless_a_file_may_name_it() {
        for (marker, stays) in [("removed\n".to_owned(), false), (format!("removed\n{}", contract::STUB_STAYS), true)] {
            let (_dir, stub) = node(&marker);
            stub.del("b", b"{\"cni_agent_run_dir\": \"/nowhere\"}".as_slice());
            assert!(exists(&stub.program), "another container");
            let unknown = br#"{"cni_agent_run_dir": "/nowhere", "force_iptables_binary": "banana"}"#;
            stub.del("a", unknown.as_slice());
            assert_eq!((exists(&stub.program), exists(&stub.marker)), (stays, stays), "{marker}");
            assert_eq!(libcni::edit(&stub.cache, Edited::All).unwrap(), Cached::default());
        }
    }

    #[test]
    fn an_installation_in_another_directory_that_the_runtime_searches_replaces_the_stub() {
        let ((_dir, stub), other) = (node(""), tempfile::tempdir().unwrap());
        let search = std::env::join_paths([stub.program.parent().unwrap(), other.path()]).unwrap();
        let is_stub = || Stub::beside(&stub.program, &search).is_some();
        assert!(is_stub(), "the other directory has no plugin");
        fs::write(other.path().join(contract::PLUGIN_NAME), "").unwrap();
        assert!(!is_stub());
        fs::write(marker_in(other.path()), "").unwrap();
        assert!(is_stub(), "both are stubs");
    }
}
