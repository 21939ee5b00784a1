//! Simulates power cuts after each system call of the real `install-cni`: no chain may name a missing or incomplete plugin, each file must
//! be the old or the new one, and the next agent must finish the work.
//!
//! strace records the calls. `disk` replays them on a model of a disk. Every state in which the disk may be after a
//! call is written to the node's directories and checked.

mod calls;
mod disk;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Parser as _;
use istio_cni::install::files::Files;
use istio_cni::install::plan::{self, Step};
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{InstallFlags, InstallSettings, Scope, remove};
use test_support::api::Api;
use test_support::daemon::{Daemon, Node, cluster, directories, own_pod, strace, until};
use test_support::program::under_test;

use super::node::{has_entry, install};
use disk::{Disk, Image, Version, read, restore};

const SINGLE: &str = "{\"cniVersion\": \"1.0.0\", \"name\": \"net\", \"type\": \"ptp\"}\n";
/// The content of an earlier release's plugin, which begins like the image's.
const OLDER: [u8; 900] = [0x7f; 900];

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    flags: InstallFlags,
}

/// The traced program.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// An agent, which is traced until it is ready.
    Installs,
    /// An agent, which is traced until it exits after the DaemonSet is deleted.
    Removes,
    /// `install-cni uninstall`.
    Uninstalls,
}

/// A prepared node and a program that runs on it; the test cuts the power after each of the program's system calls.
struct Scenario {
    flags: &'static [&'static str],
    /// Prepares the node. All changes of this function are synced to the disk.
    begin: fn(&Site),
    /// Changes the node like an earlier agent that was killed. Programs see the changes, but the directories are not
    /// synced.
    killed: fn(&Site),
    work: Work,
    /// The minimum number of different states of the disk, by which the test checks that the trace is complete.
    at_least: usize,
}

const DEFAULT: Scenario = Scenario { flags: &[], begin: |_| {}, killed: |_| {}, work: Work::Installs, at_least: 15 };

/// A node, its API server, and the flags of its agents.
struct Site {
    node: Node,
    api: Api,
    flags: Vec<String>,
}

impl Site {
    fn known(&self) -> Vec<PathBuf> {
        ["net", "bin", "run"].map(|dir| self.node.path(dir)).to_vec()
    }

    fn settings(&self) -> InstallSettings {
        let mut arguments = vec!["install-cni".to_owned()];
        arguments.extend(directories(&self.node).into_iter().chain(self.flags.iter().cloned()));
        let pod = ["kubernetes-service-host=10.0.0.1", "kubernetes-service-port=443", "pod-namespace=istio-system"];
        arguments.extend(pod.map(|flag| format!("--{flag}")));
        Cli::try_parse_from(arguments).unwrap().flags.settings("info").unwrap().0
    }

    /// Runs a program under strace and returns its system calls, from its start to its end.
    fn trace(&self, work: Work) -> Vec<calls::Call> {
        let log = self.node.path("calls");
        if work == Work::Uninstalls {
            let mut uninstall = Command::new(under_test("install-cni"));
            uninstall.arg("uninstall").args(directories(&self.node)).args(&self.flags);
            assert!(strace(&uninstall, calls::TRACED, &log).status().unwrap().success());
        } else {
            let daemon = Daemon::traced(&self.node, &self.api.url(), &self.flags, calls::TRACED, &log);
            daemon.ready();
            if work == Work::Removes {
                self.api.remove("daemonsets", "istio-system", "istio-cni-node");
                let (code, log) = daemon.end();
                assert_eq!(code, Some(0), "{log}");
            }
        }
        let text = until("end of the trace", || {
            let text = fs::read_to_string(&log).unwrap();
            let process = text.split(' ').next().unwrap_or_default();
            let is_end = |line: &str| line.split(' ').next() == Some(process) && line.contains(" +++ ");
            if text.lines().any(is_end) { Ok(text) } else { Err(text.lines().last().unwrap_or_default().to_owned()) }
        });
        calls::parse(&text)
    }
}

impl Scenario {
    async fn cut_the_power_after_each_call(&'static self) {
        let api = cluster().await;
        api.put(own_pod());
        tokio::task::spawn_blocking(|| self.run(api)).await.unwrap();
    }

    fn run(&self, api: Api) {
        let flags = self.flags.iter().map(|flag| (*flag).to_owned()).collect();
        let site = Site { node: Node::new(), api, flags };
        let known = site.known();
        (self.begin)(&site);
        let synced = read(&known);
        (self.killed)(&site);
        let before = read(&known);
        let calls = site.trace(self.work);
        let after = read(&known);

        let mut disk = Disk::new(&known, &synced, &before);
        let mut images: BTreeMap<Image, String> = BTreeMap::new();
        let mut calls_done = 0_usize;
        loop {
            let at = calls_done
                .checked_sub(1)
                .map_or_else(|| "at the start".to_owned(), |last| format!("after {:?}", calls[last]));
            for image in disk.images() {
                images.entry(image).or_insert_with(|| at.clone());
            }
            let Some(call) = calls.get(calls_done) else { break };
            disk.apply(call);
            calls_done += 1;
        }
        assert!(disk.now() == after, "the trace is incomplete: {:?} {:?}", names(&disk.now()), names(&after));
        assert!(images.len() >= self.at_least, "only {} states", images.len());
        let judge = Judge { site: &site, given: [&synced, &before, &after] };
        for (image, at) in &images {
            judge.judge(image, at, self.work);
        }
    }
}

/// Checks the states in which the disk may be after a power cut.
struct Judge<'a> {
    site: &'a Site,
    /// The contents of the node's directories at three times: as synced at first, as programs saw them before the
    /// traced program ran, and as they saw them after it.
    given: [&'a Image; 3],
}

impl Judge<'_> {
    fn judge(&self, image: &Image, at: &str, work: Work) {
        let at = format!("{at}, on the disk {:?}", names(image));
        restore(&self.site.known(), image);
        self.check_files(image, &at);
        self.check_chains(image, &at);
        if work != Work::Installs {
            let errors = remove(&self.site.settings(), Scope::ALL, Duration::ZERO);
            assert!(errors.is_empty(), "{at}: {errors:?}");
            assert!(read(&self.site.known()) == *self.given[2], "{at}: after the next removal");
            return;
        }
        let plan = install(&self.site.settings());
        assert!(plan.is_empty(), "{at}: {plan:?}");
        let now = read(&self.site.known());
        assert!(
            without_inodes(&now) == without_inodes(self.given[2]),
            "{at}: the next agent's result is {:?}",
            names(&now)
        );
    }

    /// Asserts that each file is complete, in its old or its new version, and that none is lost.
    fn check_files(&self, image: &Image, at: &str) {
        let empty = BTreeMap::new();
        for path in self.site.known() {
            let found = image.get(&path).unwrap_or(&empty);
            let given: Vec<&BTreeMap<String, Version>> =
                self.given.iter().map(|image| image.get(&path).unwrap_or(&empty)).collect();
            for (name, version) in found.iter().filter(|(name, _)| !is_temporary(name)) {
                let is_whole = given.iter().any(|names| names.get(name) == Some(version));
                assert!(is_whole, "{at}: {name} has mode {:o} and content {:?}", version.1, text(version));
            }
            for name in given[0].keys() {
                let is_kept = given.iter().all(|names| names.contains_key(name));
                assert!(!is_kept || found.contains_key(name), "{at}: {name} is lost");
            }
        }
    }

    /// Asserts that the node has a network, that plugin and kubeconfig exist if a chain has the plugin's entry, and
    /// that pods are redirected if they are both before and after the program's work.
    fn check_chains(&self, image: &Image, at: &str) {
        let [net, bin, run] = self.site.known().try_into().unwrap();
        let chained = |image: &Image| image[&net].values().filter(|file| text(file).contains("istio-cni\"")).count();
        let networks: Vec<PathBuf> =
            image[&net].keys().filter(|name| is_network(name)).map(|name| net.join(name)).collect();
        assert!(!networks.is_empty(), "{at}: no network");
        let is_chained = match networks.iter().filter(|path| !is_standalone(path)).map(|path| has_entry(path)) {
            entries if entries.clone().filter(|has_entry| *has_entry).count() > 1 => panic!("{at}: two entries"),
            mut entries => entries.any(|has_entry| has_entry) || networks.iter().any(|path| is_standalone(path)),
        };
        let holds = |dir: &PathBuf, name: &str| image.get(dir).is_some_and(|names| names.contains_key(name));
        assert!(!is_chained || holds(&bin, "istio-cni"), "{at}: a chain names a missing plugin");
        assert!(!is_chained || holds(&run, "istio-cni-kubeconfig"), "{at}: the plugin has no kubeconfig");
        let stays = self.given.iter().all(|image| chained(image) > 0);
        assert!(is_chained || !stays, "{at}: pods start without redirection");
    }
}

fn is_network(name: &str) -> bool {
    [".conf", ".conflist"].iter().any(|ending| name.ends_with(ending))
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(".istio-cni-") && name.ends_with(".tmp")
}

/// Whether a file is the configuration of the plugin alone.
fn is_standalone(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| name == "YYY-istio-cni.conf")
}

fn text(version: &Version) -> String {
    String::from_utf8_lossy(&version.0).chars().take(2_000).collect()
}

/// Returns an image without the installer's record, which contains the inodes of directories: a directory that the test
/// creates again has another inode.
fn without_inodes(image: &Image) -> Image {
    let mut image = image.clone();
    image.values_mut().for_each(|names| drop(names.remove(".istio-cni.installed")));
    image
}

/// Returns each file of an image with its size.
fn names(image: &Image) -> Vec<String> {
    let all = image.iter().flat_map(|(dir, names)| names.iter().map(move |(name, (content, _))| (dir, name, content)));
    all.map(|(dir, name, content)| format!("{}/{name}: {}", dir.file_name().unwrap().display(), content.len()))
        .collect()
}

/// Applies the steps before the first one for which `is_done` returns false.
fn apply_while(steps: &[Step], is_done: impl Fn(&Step) -> bool) {
    let done: Vec<&Step> = steps.iter().take_while(|step| is_done(step)).collect();
    assert!(!done.is_empty() && done.len() < steps.len(), "{steps:?}");
    done.iter().for_each(|step| Files::new().apply(&step.operation).unwrap());
}

fn installed(site: &Site) {
    assert!(install(&site.settings()).is_empty());
}

/// Prepares a node on which an earlier release has installed another plugin, another entry and another token.
fn older(site: &Site) {
    let (image, token) = (site.node.path("image/istio-cni"), site.node.path("account/token"));
    let [plugin, next] = [fs::read(&image).unwrap(), fs::read(&token).unwrap()];
    fs::write(&image, OLDER).unwrap();
    fs::write(&token, "token-0").unwrap();
    let mut settings = site.settings();
    settings.entry.log_level = "warn".to_owned();
    assert!(install(&settings).is_empty());
    fs::write(&image, plugin).unwrap();
    fs::write(&token, next).unwrap();
}

/// Prepares a node with an installation whose chain and plugin other programs have overwritten, and whose kubeconfig they have removed.
fn damaged(site: &Site) {
    installed(site);
    site.node.remove_entry();
    fs::write(site.node.path("bin/istio-cni"), OLDER).unwrap();
    fs::remove_file(site.node.path("run/istio-cni-kubeconfig")).unwrap();
}

fn single(site: &Site) {
    fs::remove_file(site.node.path("net/10-net.conflist")).unwrap();
    fs::write(site.node.path("net/10-net.conf"), SINGLE).unwrap();
    fs::set_permissions(site.node.path("net/10-net.conf"), fs::Permissions::from_mode(0o644)).unwrap();
}

/// Applies the steps of an installation before the edit of the chain.
fn installs_the_plugin(site: &Site) {
    let plan = plan::install(&site.settings(), &Snapshot::take(&site.settings()));
    apply_while(&plan.steps, |step| step.operation.path().parent() != Some(&site.settings().net_dir));
}

/// Applies only the first steps of a removal, which edit the chain.
fn removes_the_entry(site: &Site) {
    let plan = plan::removal(&site.settings(), &Snapshot::take(&site.settings()), Scope::ALL, None);
    apply_while(&plan.steps, |step| step.operation.path().parent() == Some(&site.settings().net_dir));
}

macro_rules! scenarios {
    ($($name:ident: $scenario:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "traces system calls, which requires strace"]
        async fn $name() {
            const SCENARIO: Scenario = $scenario;
            SCENARIO.cut_the_power_after_each_call().await;
        }
    )*};
}

scenarios! {
    installation_into_a_list: DEFAULT;
    installation_that_converts_a_single_plugin: Scenario { begin: single, ..DEFAULT };
    installation_into_an_owned_copy: Scenario { flags: &["--istio-owned-cni-config=true"], ..DEFAULT };
    installation_into_a_missing_directory: Scenario {
        flags: &["--chained-cni-plugin=false"],
        begin: |site| fs::remove_dir_all(site.node.path("bin")).unwrap(),
        ..DEFAULT
    };
    installation_after_a_killed_one: Scenario { killed: installs_the_plugin, at_least: 10, ..DEFAULT };
    upgrade: Scenario { begin: older, ..DEFAULT };
    repair_of_a_damaged_installation: Scenario { begin: damaged, ..DEFAULT };
    removal: Scenario { begin: installed, work: Work::Removes, at_least: 10, ..DEFAULT };
    removal_that_restores_a_single_plugin: Scenario {
        begin: |site| {
            single(site);
            installed(site);
        },
        work: Work::Removes,
        at_least: 12,
        ..DEFAULT
    };
    removal_after_a_killed_one: Scenario { begin: installed, killed: removes_the_entry, work: Work::Uninstalls, at_least: 4, ..DEFAULT };
}
