//! Tests of the installer's control loop while other programs change the node.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use istio_cni::install::settings::Mode;
use istio_cni::install::{Identity, InstallSettings, Issued, Located, Metrics, Resolver, Sources, Status, Token, run};
use prometheus_client::registry::Registry;
use serve::health::{Liveness, Readiness};
use serve::shutdown::{Shutdown, Trigger};
use serve::tasks::Supervisor;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use test_support::DEADLINE;

use super::node::{CONF, LIST, Node, PLUGIN, has_entry};

/// A running installer.
pub(crate) struct Installer {
    status: watch::Receiver<Status>,
    registry: Registry,
    pub(crate) liveness: Liveness,
    end: Trigger,
    task: JoinHandle<()>,
}

impl Installer {
    pub(crate) fn start(settings: InstallSettings) -> Self {
        Self::with_identity(settings, Identity::Daemon)
    }

    /// Starts an installer that writes the token of this identity to the kubeconfig.
    fn with_identity(mut settings: InstallSettings, identity: Identity) -> Self {
        let (end, shutdown) = Shutdown::new();
        let (sender, status) = watch::channel(Status::Starting);
        let mut registry = Registry::default();
        let (metrics, liveness) = (Metrics::new(&mut registry), Liveness::default());
        let supervisor = Supervisor::new(&mut registry, Readiness::default(), liveness.clone());
        let resolver = Resolver::start(&settings.kubeconfig.server, &supervisor, &shutdown);
        let located = Arc::new(Located::at_start(&mut settings));
        let sources = Sources { resolver, identity, mounts: Arc::default(), located };
        let task = tokio::spawn(run(Arc::new(settings), sources, metrics, sender, liveness.clone(), shutdown));
        Self { status, registry, liveness, end, task }
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&Status) -> bool) {
        let reached = tokio::time::timeout(DEADLINE, self.status.wait_for(|status| holds(status))).await.is_ok();
        assert!(reached, "{what}: {:?}", *self.status.borrow());
    }

    pub(crate) async fn ready(&mut self) {
        self.until("ready", |status| *status == Status::Ready).await;
    }

    /// Waits until the node is not ready.
    pub(crate) async fn waits(&mut self) {
        self.until("waiting", |status| matches!(status, Status::NotReady(_))).await;
    }

    /// Waits until the node is not ready for a reason that contains `words`.
    pub(crate) async fn waits_for(&mut self, words: &str) {
        let says = |status: &Status| matches!(status, Status::NotReady(missing) if missing.join("; ").contains(words));
        self.until(words, says).await;
    }

    /// Returns how often the node became ready.
    pub(crate) fn times_ready(&self) -> usize {
        let metrics = self.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix("istio_cni_installs_total{result=\"SUCCESS\"} "));
        line.map_or(0, |count| count.parse().unwrap())
    }

    fn metrics(&self) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry).unwrap();
        page
    }

    pub(crate) async fn stop(self) {
        self.end.trigger();
        tokio::time::timeout(DEADLINE, self.task).await.expect("it ends when shutdown is requested").unwrap();
    }
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_chained(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.contains("istio-cni"))
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_files_and_entries_are_restored_at_once() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let mut installer = Installer::start(node.chained());
    installer.ready().await;
    let list = node.path("net/10-net.conflist");
    for _ in 0..3 {
        fs::write(&list, LIST).unwrap();
        until("the entry is restored", || is_chained(&list)).await;
    }
    fs::remove_file(node.path("bin/istio-cni")).unwrap();
    until("the plugin is restored", || fs::read(node.path("bin/istio-cni")).is_ok_and(|bytes| bytes == PLUGIN)).await;
    fs::remove_file(node.path("run/istio-cni-kubeconfig")).unwrap();
    until("the kubeconfig is restored", || node.path("run/istio-cni-kubeconfig").exists()).await;
    installer.ready().await;
    let metrics = installer.metrics();
    for line in [
        "istio_cni_self_heals_total{reason=\"entry_missing\"} 3",
        "istio_cni_self_heals_total{reason=\"binary_missing\"} 1",
        "istio_cni_self_heals_total{reason=\"kubeconfig_missing\"} 1",
        "istio_cni_install_ready 1",
    ] {
        assert!(metrics.contains(line), "no {line} in\n{metrics}");
    }
    installer.stop().await;
    assert!(has_entry(&list), "the installation stays after shutdown");
}

/// Once the installer has compared a program, it does not read the program in each pass. It must nevertheless detect a later change.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_changed_in_place_is_restored() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let mut installer = Installer::start(node.chained());
    installer.ready().await;
    let plugin = node.path("bin/istio-cni");
    let made = fs::metadata(&plugin).unwrap().modified().unwrap();
    let age = || made.elapsed().unwrap_or_default();
    until("the plugin is no longer new", || age() > Duration::from_secs(4)).await;
    let list = node.path("net/10-net.conflist");
    fs::write(&list, LIST).unwrap();
    until("another pass", || is_chained(&list)).await;
    installer.ready().await;

    let file = fs::File::options().write(true).open(&plugin).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"?", 50_000).unwrap();
    file.set_modified(made).unwrap();
    drop(file);
    until("the plugin is restored", || fs::read(&plugin).is_ok_and(|bytes| bytes == PLUGIN)).await;
    installer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_the_plugins_account_is_awaited_written_and_renewed() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let (tokens, issued) = watch::channel(Issued::Refused("403".to_owned()));
    let mut installer = Installer::with_identity(node.chained(), Identity::Plugin(issued));
    installer.until("waiting for a token", |status| {
        matches!(status, Status::NotReady(missing) if missing.iter().any(|text| text.contains("no token for the plugin's kubeconfig: 403")))
    })
    .await;
    assert!(!has_entry(&node.path("net/10-net.conflist")) && !node.path("run/istio-cni-kubeconfig").exists());
    tokens.send_replace(Issued::Token(Token::new("plugin-1").unwrap()));
    installer.ready().await;
    installer.status.mark_unchanged();
    tokens.send_replace(Issued::Token(Token::new("plugin-2").unwrap()));
    until("the new token", || node.read("run/istio-cni-kubeconfig").contains("token: plugin-2\n")).await;
    assert!(!installer.status.has_changed().unwrap(), "{:?}", *installer.status.borrow());
    // The daemon's own token must not be written to the plugin's kubeconfig.
    node.rotate("token-2");
    until("the pass", || !node.read("run/istio-cni-kubeconfig").contains("token-")).await;
    installer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_is_written_without_a_loss_of_readiness() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let mut installer = Installer::start(node.chained());
    installer.ready().await;
    installer.status.mark_unchanged();
    for token in ["token-2", "token-3"] {
        node.rotate(token);
        until(token, || node.read("run/istio-cni-kubeconfig").contains(token)).await;
    }
    assert!(!installer.status.has_changed().unwrap(), "{:?}", *installer.status.borrow());
    installer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_created_late_and_replaced_is_watched() {
    let node = Node::new();
    fs::remove_dir(node.path("net")).unwrap();
    let mut installer = Installer::start(node.chained());
    let waits = |status: &Status| matches!(status, Status::NotReady(missing) if missing[0].contains("cannot read") && missing[0].contains("/net"));
    installer.until("waiting for the directory", waits).await;
    fs::create_dir(node.path("net")).unwrap();
    let empty = |status: &Status| matches!(status, Status::NotReady(missing) if missing[0].contains("no network configuration yet"));
    installer.until("waiting for a network", empty).await;
    node.network("missing_initially.conflist", LIST);
    installer.ready().await;

    fs::rename(node.path("net"), node.path("old")).unwrap();
    installer.until("the directory is gone", waits).await;
    fs::create_dir(node.path("net")).unwrap();
    node.network("20-other.conf", CONF);
    installer.ready().await;
    assert_eq!(node.names("net"), ["20-other.conflist"]);
    installer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_the_operator_has_named_is_awaited_with_both_extensions() {
    let node = Node::new();
    node.network("00-other.conflist", LIST);
    let mut installer =
        Installer::start(node.settings(Mode::Chained { primary: Some("missing_initially.conf".to_owned()) }));
    let awaits = |status: &Status| matches!(status, Status::NotReady(missing) if missing[0].contains("CNI_CONF_NAME"));
    installer.until("awaiting the named file", awaits).await;
    assert_eq!(node.read("net/00-other.conflist"), LIST);
    node.network("missing_initially.conflist", LIST);
    installer.ready().await;
    assert!(has_entry(&node.path("net/missing_initially.conflist")));
    installer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_file_is_awaited() {
    let node = Node::new();
    node.network("99-loopback.conf", CONF);
    fs::write(node.path("net/05-cilium.conflist"), &LIST[..40]).unwrap();
    let mut installer = Installer::start(node.chained());
    let half = |status: &Status| matches!(status, Status::NotReady(missing) if missing[0].contains("05-cilium.conflist is not valid JSON yet"));
    installer.until("half-written", half).await;
    fs::write(node.path("net/05-cilium.conflist"), LIST).unwrap();
    installer.ready().await;
    assert!(has_entry(&node.path("net/05-cilium.conflist")));
    assert_eq!(node.read("net/99-loopback.conf"), CONF, "not changed meanwhile");
    installer.stop().await;
}

/// Replaces the configuration list whenever it contains the plugin's entry, as long as `goes_on` returns true for the
/// number of replacements. Returns this number.
fn replace_repeatedly(list: &Path, goes_on: impl Fn(usize) -> bool) -> usize {
    let mut replaced = 0;
    while goes_on(replaced) {
        if is_chained(list) {
            let temporary = list.with_extension("new");
            fs::write(&temporary, LIST).unwrap();
            fs::rename(&temporary, list).unwrap();
            replaced += 1;
        }
    }
    replaced
}

#[tokio::test(flavor = "multi_thread")]
async fn contention_with_another_writer_is_throttled() {
    let node = Node::new();
    node.network("05-cilium.conflist", LIST);
    let list = node.path("net/05-cilium.conflist");
    let start = Instant::now();
    let goes_on = move |replaced| match start.elapsed() {
        short if short < Duration::from_secs(3) => true,
        long => replaced < 5 && long < DEADLINE,
    };
    let writer = tokio::task::spawn_blocking({
        let list = list.clone();
        move || replace_repeatedly(&list, goes_on)
    });
    let mut installer = Installer::start(node.chained());
    let (replaced, seconds) = (writer.await.unwrap(), start.elapsed().as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "a count of some ten")]
    let writes = replaced as f64;
    assert!(replaced >= 5 && writes <= 12.0 + 2.0 * seconds, "{replaced} in {seconds} s");
    installer.ready().await;
    assert!(has_entry(&list));
    installer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_thousand_replacements_the_list_has_the_entry() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let list = node.path("net/10-net.conflist");
    let mut installer = Installer::start(node.chained());
    installer.ready().await;
    for number in 0..1000 {
        let temporary = list.with_extension("new");
        fs::write(&temporary, LIST.replace("1500.0", &number.to_string())).unwrap();
        fs::rename(&temporary, &list).unwrap();
    }
    until("the last writer's list has the entry", || {
        let text = fs::read_to_string(&list).unwrap();
        text.contains("999") && text.contains("istio-cni")
    })
    .await;
    installer.ready().await;
    assert_eq!(node.names("net"), ["10-net.conflist"]);
    installer.stop().await;
}
