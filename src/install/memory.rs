//! A node whose files are in memory, for the model tests: makes the installer's real plans for it, and applies them to
//! the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use libcni::conflist::is_read;

use super::directories::{Directories, Place};
use super::installed::{self, Installed};
use super::kubeconfig::Account;
use super::operation::Operation;
use super::plan;
use super::record::{self, Record};
use super::scope::Scope;
use super::server::Server;
use super::set_aside::SetAside;
use super::settings::{Entry, Given, InstallSettings, KubeconfigSettings, Mode, OfRuntime, RESYNC_INTERVAL};
use super::snapshot::{Binary, BinaryState, NetworkFile, Snapshot};

/// The content of each file, by path. The names of configuration and plugin directories are numbered: `/net0`, `/bin1`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node(BTreeMap<PathBuf, Vec<u8>>);

/// Returns the settings of an agent with these directories.
pub(crate) fn settings(conf: usize, bin: usize) -> InstallSettings {
    InstallSettings {
        net_dir: format!("/net{conf}").into(),
        bin_source: "/image".into(),
        bin_dir: format!("/bin{bin}").into(),
        given: Given::default(),
        of_runtime: OfRuntime::default(),
        cache_dir: "/cache".into(),
        run_dir: "/run".into(),
        account_dir: "/account".into(),
        mode: Mode::Chained { primary: None },
        conf_mode: 0o600,
        resync: RESYNC_INTERVAL,
        kubeconfig: KubeconfigSettings { server: Server::unspecified(), ca_file: None, skip_verify: true, mode: 0o600 },
        entry: Entry {
            log_level: "info".to_owned(),
            run_dir: "/run".into(),
            ambient_enabled: false,
            exclude_namespaces: Vec::new(),
            pod_namespace: "istio-system".to_owned(),
            native_nftables: false,
            ambient_detection_retry: false,
            iptables_binary: None,
            refuse_sandboxes: false,
        },
    }
}

impl Node {
    pub(crate) fn write(&mut self, path: &str, content: &str) {
        self.0.insert(path.into(), content.as_bytes().to_vec());
    }

    /// Returns the content of a file as a string.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        self.0.get(path.as_ref()).map(|content| String::from_utf8_lossy(content).into_owned())
    }

    /// Whether a network of this configuration directory names the plugin.
    pub(crate) fn is_chained(&self, conf: usize) -> bool {
        self.networks(&settings(conf, 0)).iter().any(|file| plan::chained_network(std::slice::from_ref(file)).is_some())
    }

    /// Whether the run directory holds no file.
    pub(crate) fn has_empty_run_dir(&self) -> bool {
        self.names(Path::new("/run")).next().is_none()
    }

    /// Returns whether recorded installations of other agents need the kubeconfig, and whether they need the plugin in
    /// the directory `bin`.
    pub(crate) fn is_needed_by_others(&self, conf: usize, bin: usize) -> [bool; 2] {
        let own = self.directories(conf, bin);
        let others = self.installed().except(&own);
        [!others.is_empty(), others.with_bin_of(&own).is_some()]
    }

    /// Returns the directories with the network whose chain names the plugin, as an agent reports them.
    pub(crate) fn directories(&self, conf: usize, bin: usize) -> Directories {
        let settings = settings(conf, bin);
        let network = plan::chained_network(&self.networks(&settings));
        numbered(conf, bin, network)
    }

    /// Applies installation plans until one has no steps; returns whether it has no obstacles either.
    pub(crate) fn install(&mut self, conf: usize, bin: usize) -> bool {
        let settings = settings(conf, bin);
        for _ in 0..5 {
            let plan = plan::install(&settings, &self.snapshot(&settings, conf, bin));
            plan.steps.iter().for_each(|step| self.apply(&step.operation));
            if plan.steps.is_empty() {
                return plan.obstacles.is_empty();
            }
        }
        panic!("the plan is not empty after five passes");
    }

    /// Applies a removal plan.
    pub(crate) fn remove(&mut self, conf: usize, bin: usize, scope: Scope) {
        let settings = settings(conf, bin);
        let plan = plan::removal(&settings, &self.snapshot(&settings, conf, bin), scope, None);
        plan.steps.iter().for_each(|step| self.apply(&step.operation));
    }

    fn snapshot(&self, settings: &InstallSettings, conf: usize, bin: usize) -> Snapshot {
        let plugin = settings.bin_dir.join(contract::PLUGIN_NAME);
        let state = if self.0.contains_key(&plugin) { BinaryState::Same } else { BinaryState::Missing };
        let binary = Binary { name: contract::PLUGIN_NAME.to_owned(), mode: 0o755, state };
        let kubeconfig = self.0.get(&settings.run_dir.join(contract::KUBECONFIG));
        Snapshot {
            networks: Ok(self.networks(settings)),
            set_aside: self.set_aside(settings),
            record: self.0.get(&settings.net_dir.join(record::FILE)).map(|content| Record::parse(content)),
            drop_ins: BTreeMap::new(),
            plugins: self.names(&settings.bin_dir).collect(),
            searched: BTreeSet::new(),
            binaries: Ok(vec![binary]),
            account: Ok(Account { token: "t".to_owned(), ca: None }),
            server: settings.kubeconfig.server.without_lookup(),
            kubeconfig: kubeconfig.map(|content| (content.clone(), 0o600)),
            directories: Some(numbered(conf, bin, None)),
            installed: Ok(self.installed()),
            stale: Vec::new(),
        }
    }

    fn installed(&self) -> Installed {
        let path = Path::new("/run").join(installed::FILE);
        self.0.get(&path).map(|content| Installed::parse(content, &path).unwrap()).unwrap_or_default()
    }

    fn names(&self, dir: &Path) -> impl Iterator<Item = String> {
        let files = self.0.keys().filter(move |path| path.parent() == Some(dir));
        files.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect::<Vec<_>>().into_iter()
    }

    fn networks(&self, settings: &InstallSettings) -> Vec<NetworkFile> {
        let network = |name: String| {
            let content = self.0[&settings.net_dir.join(&name)].clone();
            NetworkFile { name, content, mode: 0o644, is_recent: false, unread: None }
        };
        self.names(&settings.net_dir).filter(|name| is_read(name)).map(network).collect()
    }

    fn set_aside(&self, settings: &InstallSettings) -> Vec<SetAside> {
        let read = |name: String| SetAside::of(&name, self.0[&settings.net_dir.join(&name)].clone(), 0o644);
        self.names(&settings.net_dir).filter_map(read).collect()
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Copy { to, .. } => drop(self.0.insert(to.clone(), Vec::new())),
            Operation::Write { path, content, .. } => drop(self.0.insert(path.clone(), content.clone())),
            Operation::Remove { path, .. } => drop(self.0.remove(path)),
        }
    }
}

fn numbered(conf: usize, bin: usize, network: Option<String>) -> Directories {
    let settings = settings(conf, bin);
    Directories::numbered(conf as u64, bin as u64, Place { conf: settings.net_dir, bin: settings.bin_dir, network })
}
