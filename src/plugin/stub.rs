//! The stub: the plugin's replies after a removal that could not take the plugin out of the runtime's cached chains.
//!
//! A marker beside the binary turns the plugin into the stub. CRI-O executes cached chains at CHECK and DEL; each DEL takes the stub
//! out of the container's own chain, and removes the stub once no other cached chain names it. A DEL that fails afterwards, in another
//! plugin, is repeated with a chain without the stub.
#![expect(clippy::disallowed_methods, reason = "removes the plugin's own binary")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::cni::{self, Call, NetConf, reply};
use crate::contract;
use crate::libcni::{self, Cached, Edited};

/// The plugin's binary beside a marker.
#[derive(Debug)]
pub struct Stub {
    program: PathBuf,
    marker: PathBuf,
    /// libcni's cache.
    cache: PathBuf,
}

impl Stub {
    /// Returns the stub if a marker is beside this program.
    pub fn beside(program: &Path) -> Option<Self> {
        let marker = program.with_file_name(contract::REMOVED_MARKER);
        fs::symlink_metadata(&marker).ok()?;
        Some(Self { program: program.to_owned(), marker, cache: libcni::CACHE.into() })
    }

    /// Whether the stub replies in place of the plugin. Beside a kubeconfig an agent has installed the plugin, in this directory or in
    /// another one that the runtime searches, and the marker is left over.
    pub(super) fn replaces(&self, conf: &NetConf<'_>) -> bool {
        fs::symlink_metadata(conf.settings.run_dir.join(contract::KUBECONFIG)).is_err()
    }

    /// Replies to a DEL, which always succeeds: if DEL failed, the pod's address would leak.
    pub(super) fn del(&self, container: &str, stdin: impl Read) -> String {
        let stdin = cni::read(stdin).unwrap_or_default();
        if NetConf::parse(&stdin).is_ok_and(|conf| self.replaces(&conf)) {
            self.leave(container);
        }
        String::new()
    }

    /// Takes the stub out of the container's cached chain and removes it if that was the last one. A cache without this container's
    /// chain may not be the one that the runtime uses, and a failure leaves the stub to the next DEL or to an uninstallation.
    fn leave(&self, container: &str) {
        let Ok(Cached { edited, naming: 0 }) = libcni::edit(&self.cache, Edited::Of(container)) else { return };
        // The binary goes first: without a marker it would act as the plugin.
        if edited > 0 && fs::remove_file(&self.program).is_ok() {
            let _ = fs::remove_file(&self.marker);
        }
    }
}

/// Replies to a call other than DEL and VERSION: ADD passes the result of the plugin before, and the others succeed. The pod starts
/// without redirection, as any pod after the removal.
pub(super) fn reply(call: &Call, conf: &NetConf<'_>) -> Result<String, cni::Error> {
    match call {
        Call::Add(_) => reply::add(conf),
        _ => Ok(String::new()),
    }
}
