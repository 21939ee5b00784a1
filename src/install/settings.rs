//! The settings of an installation. `flags` creates them once; all of this module reads them.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::server::Server;
use crate::runtime_config;

/// The default file name of a copy of the node's network.
pub const OWNED: &str = "02-istio-cni.conflist";

/// The interval between two passes of an agent whose installation is complete, if no directory changes.
pub(super) const RESYNC_INTERVAL: Duration = Duration::from_secs(30);

/// The settings of an installation or a removal.
#[derive(Debug, Clone)]
pub struct InstallSettings {
    /// The node's CNI configuration directory.
    pub net_dir: PathBuf,
    /// The directory of the programs in the image.
    pub bin_source: PathBuf,
    /// The node's plugin directory.
    pub bin_dir: PathBuf,
    /// How the two directories are given; `Located` sets those that are `auto`.
    pub given: Given,
    /// What else `Located` finds.
    pub of_runtime: OfRuntime,
    /// libcni's cache of attachments on the node, for a removal; it may be missing.
    pub cache_dir: PathBuf,
    /// Directory of sockets, kubeconfig and the plugin's log.
    pub run_dir: PathBuf,
    /// The directory of the service account's token and CA.
    pub account_dir: PathBuf,
    pub mode: Mode,
    /// Permission bits of created configuration files: 0600, or 0640 for security scanners that read as the group.
    pub conf_mode: u32,
    /// The interval between two passes if the installation is complete and no directory changes.
    pub resync: Duration,
    pub kubeconfig: KubeconfigSettings,
    pub entry: Entry,
}

/// How the directories of networks and plugins are given, and where the runtimes' configurations are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// The directory at which the node's root, or the part of it with the configurations, is mounted. `None`: no configuration is
    /// read, unless a directory is `auto`.
    pub root: Option<PathBuf>,
    pub conf: Asked,
    pub bin: Asked,
}

/// What the runtime's configuration determines in addition to the directories in [`InstallSettings`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfRuntime {
    /// All directories in which the runtime searches plugins, by their paths in this process's mounts; empty if they are not known.
    pub bin_dirs: Vec<PathBuf>,
    /// The name of the network that the runtime uses instead of the first one.
    pub network: Option<String>,
}

/// How one directory is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Whether the runtime's configuration determines the directory.
    pub is_auto: bool,
    /// The path of a given directory on the node, if that is known.
    pub on_node: Option<PathBuf>,
}

/// How the node's configuration names the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// An entry in the chain that the runtime uses, or in the file `primary` if the operator has named one.
    Chained { primary: Option<String> },
    /// An entry in a copy of that chain. The copy `file` sorts before the network's own file, which is not changed.
    Owned { primary: Option<String>, file: String },
    /// A configuration of the plugin alone, for Multus.
    Standalone { file: String },
}

/// The settings of the plugin's kubeconfig.
#[derive(Debug, Clone)]
pub struct KubeconfigSettings {
    pub server: Server,
    /// A CA file that replaces the service account's.
    pub ca_file: Option<PathBuf>,
    /// `insecure-skip-tls-verify`
    pub skip_verify: bool,
    /// Permission bits.
    pub mode: u32,
}

/// The chain entry: the keys of Istio's `PluginConfig`, and additional ones. `cni::PluginSettings` parses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `plugin_log_level`
    pub log_level: String,
    /// `cni_agent_run_dir`: the path on the node.
    pub run_dir: PathBuf,
    /// `ambient_enabled`
    pub ambient_enabled: bool,
    /// `exclude_namespaces`
    pub exclude_namespaces: Vec<String>,
    /// `pod_namespace`
    pub pod_namespace: String,
    /// `native_nftables`
    pub native_nftables: bool,
    /// `enable_ambient_detection_retry`
    pub ambient_detection_retry: bool,
    /// `force_iptables_binary`
    pub iptables_binary: Option<String>,
    /// `refuse_sandboxes`
    pub refuse_sandboxes: bool,
}

impl Given {
    /// Whether a directory is `auto`.
    pub fn is_auto(&self) -> bool {
        self.conf.is_auto || self.bin.is_auto
    }

    /// Returns the directory at which the node's root is mounted.
    pub fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new("/"))
    }

    /// Replaces paths below the mounted root in a message by the node's paths, if a directory is `auto`.
    pub fn on_node<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.root().to_str() {
            Some(root) if self.is_auto() && root != "/" => {
                text.replace(&format!("{}/", root.trim_end_matches('/')), "/").into()
            }
            _ => text.into(),
        }
    }

    /// Returns the node's path of a path below the mounted root, if a directory is `auto`; any other path is returned as it is.
    pub fn path_on_node(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(self.root()) {
            Ok(inside) if self.is_auto() => Path::new("/").join(inside),
            _ => path.to_owned(),
        }
    }
}

impl InstallSettings {
    /// Returns the file name in another container's path, if the path may lead into the configuration directory.
    pub(super) fn named_by<'p>(&self, path: &'p Path) -> Option<&'p str> {
        let is_here = may_be(path.parent()?, &self.net_dir, self.given.conf.on_node.as_deref());
        path.file_name()?.to_str().filter(|_| is_here)
    }

    /// Whether another container's path may lead to the plugin directory.
    pub(super) fn is_bin_dir(&self, dir: &Path) -> bool {
        may_be(dir, &self.bin_dir, self.given.bin.on_node.as_deref())
    }
}

/// Whether a path has the same last two components as a directory's path in this container, or on the node: other containers mount
/// the directory elsewhere, usually below the same names.
fn may_be(dir: &Path, here: &Path, on_node: Option<&Path>) -> bool {
    let end = |path: &Path| path.components().rev().take(2).map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    [Some(here), on_node].into_iter().flatten().any(|own| end(own) == end(dir))
}

impl Asked {
    /// Returns the directory, whose path in this process's mounts is `path`.
    pub(crate) fn directory<'a>(&'a self, path: &'a Path) -> runtime_config::Given<'a> {
        runtime_config::Given { path, on_node: self.on_node.as_deref() }
    }
}

#[derive(Serialize)]
struct Keys<'a> {
    #[serde(rename = "cniVersion", skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    ipam: Value,
    dns: Value,
    plugin_log_level: &'a str,
    cni_agent_run_dir: &'a str,
    ambient_enabled: bool,
    enablement_selectors: [(); 0],
    exclude_namespaces: Option<&'a [String]>,
    pod_namespace: &'a str,
    native_nftables: bool,
    enable_ambient_detection_retry: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    force_iptables_binary: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refuse_sandboxes: Option<bool>,
    capabilities: Value,
}

impl Entry {
    /// Returns the entry as JSON, for a chain. Runtimes add the chain's name and version.
    pub fn chained(&self) -> String {
        self.text(None)
    }

    /// Returns the configuration of the plugin alone as JSON.
    pub fn standalone(&self) -> String {
        self.text(Some("0.3.1")) + "\n"
    }

    fn text(&self, version: Option<&'static str>) -> String {
        let run_dir = self.run_dir.to_string_lossy();
        let keys = Keys {
            version,
            name: contract::PLUGIN_NAME,
            kind: contract::PLUGIN_NAME,
            ipam: json!({}),
            dns: json!({}),
            plugin_log_level: &self.log_level,
            cni_agent_run_dir: &run_dir,
            ambient_enabled: self.ambient_enabled,
            enablement_selectors: [],
            exclude_namespaces: Some(self.exclude_namespaces.as_slice()).filter(|names| !names.is_empty()),
            pod_namespace: &self.pod_namespace,
            native_nftables: self.native_nftables,
            enable_ambient_detection_retry: self.ambient_detection_retry,
            force_iptables_binary: self.iptables_binary.as_deref(),
            // Istio's entry has no such key, so the default is not written.
            refuse_sandboxes: self.refuse_sandboxes.then_some(true),
            capabilities: json!({ contract::POD_ANNOTATIONS_CAPABILITY: true }),
        };
        // Strings, booleans and lists of them can always be serialized.
        serde_json::to_string_pretty(&keys).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use cni::NetConf;

    use super::*;

    pub(crate) fn entry() -> Entry {
        Entry {
            log_level: "debug".to_owned(),
            run_dir: "/var/run/istio-cni".into(),
            ambient_enabled: false,
            exclude_namespaces: vec!["kube-system".to_owned()],
            pod_namespace: "istio-system".to_owned(),
            native_nftables: true,
            ambient_detection_retry: false,
            iptables_binary: Some("legacy".to_owned()),
            refuse_sandboxes: true,
        }
    }

    #[test]
    fn the_plugin_parses_the_entry() {
        let text = entry().standalone();
        let read = NetConf::parse(text.as_bytes()).unwrap().settings;
        assert_eq!(read.exclude_namespaces, ["kube-system"]);
        assert_eq!(read.agent_namespace.as_deref(), Some("istio-system"));
        assert_eq!(read.run_dir, PathBuf::from("/var/run/istio-cni"));
        assert!(read.native_nftables && read.iptables_binary.is_some() && read.refuse_sandboxes, "{read:?}");
    }

    #[test]
    fn keys_are_in_istios_order() {
        let value: Value = serde_json::from_str(&entry().standalone()).unwrap();
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "cniVersion name type ipam dns plugin_log_level cni_agent_run_dir ambient_enabled \
                        enablement_selectors exclude_namespaces pod_namespace native_nftables \
                        enable_ambient_detection_retry force_iptables_binary refuse_sandboxes capabilities";
        assert_eq!(keys, expected.split_whitespace().collect::<Vec<_>>());
        let none = Entry { exclude_namespaces: Vec::new(), ..entry() };
        assert!(none.chained().contains("\"exclude_namespaces\": null"), "{}", none.chained());
    }
}
