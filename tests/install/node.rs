//! A node of temporary directories: the image, the runtime's directories, the service account.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use istio_cni::install::InstallSettings;
use istio_cni::install::files::Files;
use istio_cni::install::plan::{self, Plan};
use istio_cni::install::record;
use istio_cni::install::server::Server;
use istio_cni::install::settings::{Asked, Entry, Given, KubeconfigSettings, Mode, OfRuntime};
use istio_cni::install::snapshot::Snapshot;
use libcni::conflist;
use test_support::program::built;

/// The plugins of other projects that the network configurations in tests name. Each test node has them.
const FOREIGN: [&str; 6] = ["bandwidth", "bridge", "calico", "portmap", "ptp", "tuning"];
/// The content of the plugin in the image.
pub(crate) const PLUGIN: &[u8] = &[0x7f; 100_000];
pub(crate) const LIST: &str = "{\n  \"cniVersion\": \"0.4.0\", \"name\": \"net\",\n  \"plugins\": [\n    {\"type\": \"ptp\", \"mtu\": 1500.0}\n  ]\n}\n";
pub(crate) const CONF: &str = "{\"cniVersion\": \"0.4.0\", \"name\": \"net\", \"type\": \"bridge\", \"mtu\": 1500.0}\n";

pub(crate) struct Node {
    root: tempfile::TempDir,
}

impl Node {
    pub(crate) fn new() -> Self {
        let node = Self { root: tempfile::tempdir().unwrap() };
        for dir in ["net", "bin", "run", "image", "account", "cache"] {
            fs::create_dir(node.path(dir)).unwrap();
        }
        for plugin in FOREIGN {
            fs::write(node.path("bin").join(plugin), "").unwrap();
        }
        fs::write(node.path("image/istio-cni"), PLUGIN).unwrap();
        fs::set_permissions(node.path("image/istio-cni"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(node.path("account/token"), "token-1").unwrap();
        fs::write(node.path("account/ca.crt"), "-----BEGIN CERTIFICATE-----\n").unwrap();
        node
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    pub(crate) fn chained(&self) -> InstallSettings {
        self.settings(Mode::Chained { primary: None })
    }

    pub(crate) fn settings(&self, mode: Mode) -> InstallSettings {
        InstallSettings {
            net_dir: self.path("net"),
            bin_source: self.path("image"),
            bin_dir: self.path("bin"),
            given: Given {
                conf: Asked { on_node: Some("/etc/cni/net.d".into()), ..Asked::default() },
                bin: Asked { on_node: Some("/opt/cni/bin".into()), ..Asked::default() },
                root: None,
            },
            of_runtime: OfRuntime::default(),
            cache_dir: self.path("cache"),
            run_dir: self.path("run"),
            account_dir: self.path("account"),
            mode,
            conf_mode: 0o600,
            // So long that passes follow only events while a test runs.
            resync: Duration::from_secs(3600),
            kubeconfig: KubeconfigSettings {
                server: Server::new("https", "10.0.0.1", 443).unwrap(),
                ca_file: None,
                skip_verify: false,
                mode: 0o600,
            },
            entry: Entry {
                log_level: "debug".to_owned(),
                run_dir: "/path/to/kubeconfig".into(),
                ambient_enabled: false,
                exclude_namespaces: Vec::new(),
                pod_namespace: "my-namespace".to_owned(),
                native_nftables: false,
                ambient_detection_retry: false,
                iptables_binary: None,
                refuse_sandboxes: false,
            },
        }
    }

    /// Writes a network configuration with a modification time of a minute ago.
    pub(crate) fn network(&self, name: &str, content: &str) {
        let path = self.path("net").join(name);
        fs::write(&path, content).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }

    /// Rotates the service account's token atomically, as the kubelet does.
    pub(crate) fn rotate(&self, token: &str) {
        fs::write(self.path("account/next"), token).unwrap();
        fs::rename(self.path("account/next"), self.path("account/token")).unwrap();
    }

    pub(crate) fn read(&self, relative: &str) -> String {
        let path = self.path(relative);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn mode(&self, relative: &str) -> u32 {
        fs::metadata(self.path(relative)).unwrap().permissions().mode() & 0o7777
    }

    /// Returns the sorted names in a directory, without the plugins in [`FOREIGN`] and the installer's record.
    pub(crate) fn names(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(dir))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !FOREIGN.contains(&name.as_str()) && name != record::FILE)
            .collect();
        names.sort();
        names
    }
}

/// Makes plans and applies them until a plan has no steps; returns this plan, which may have obstacles.
pub(crate) fn install(settings: &InstallSettings) -> Plan {
    for _ in 0..5 {
        let plan = plan::install(settings, &Snapshot::take(settings));
        if plan.steps.is_empty() {
            return plan;
        }
        for step in &plan.steps {
            Files::new().apply(&step.operation).unwrap();
        }
    }
    panic!("the plan is not empty after five passes: {:?}", plan::install(settings, &Snapshot::take(settings)));
}

/// Whether the configuration list at `path` has an entry of the plugin; panics if a runtime would not load the file.
pub(crate) fn has_entry(path: &Path) -> bool {
    let content = fs::read(path).unwrap();
    let listed = path.extension().is_some_and(|extension| extension == "conflist");
    match conflist::Network::of_file(&path.to_string_lossy(), &content) {
        Ok(conflist::Network::List(list)) if listed => list.entries().next().is_some(),
        Ok(conflist::Network::Single(_)) if !listed => false,
        other => panic!("{} is loaded by no runtime: {other:?}", path.display()),
    }
}

/// Returns the path of the test program `installer`, which tests kill or run as another user.
pub(crate) fn program() -> PathBuf {
    built("installer")
}
