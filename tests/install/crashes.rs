//! Kills an installer before each of its steps: afterwards pods must be able to start on the node, and the next installer must finish the
//! work.

use std::fs;
use std::process::Command;

use istio_cni::install::settings::Mode;

use super::node::{CONF, LIST, Node, PLUGIN, has_entry, install, program};

/// The content of an earlier release's plugin, which begins like [`PLUGIN`].
const OLDER: &[u8] = &{
    let mut older = [0x7e; 90_000];
    older.first_chunk_mut::<4>().unwrap().copy_from_slice(&[0x7f; 4]);
    older
};

/// Runs the installer and kills it before step `number`. Returns whether the installer finished before that step.
fn run(node: &Node, what: &str, mode: &str, number: usize) -> bool {
    let status = Command::new(program()).args([what, mode]).arg(node.path("")).arg(number.to_string()).status();
    let status = status.unwrap_or_else(|error| panic!("{}: {error}; `make programs` builds it", program().display()));
    match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
        (Some(0), _) => true,
        (_, Some(9)) => false,
        _ => panic!("{what} {mode} {number}: {status}"),
    }
}

/// Asserts that pods can start on the node, and that no chain has an entry for a missing plugin.
fn check(node: &Node, at: &str) {
    let mut entries = 0;
    for name in node.names("net") {
        let read = [".conf", ".conflist", ".json"].iter().any(|ending| name.ends_with(ending));
        assert!(read || name.ends_with(".tmp"), "{at}: {name}");
        entries += usize::from(read && has_entry(&node.path("net").join(&name)));
    }
    assert!(entries <= 1, "{at}: {:?}", node.names("net"));
    if entries == 1 {
        let plugin = fs::read(node.path("bin/istio-cni")).unwrap();
        assert!(plugin == PLUGIN || plugin == OLDER, "{at}: the plugin is incomplete");
        assert_eq!(node.mode("bin/istio-cni"), 0o755, "{at}");
        assert_eq!(node.mode("run/istio-cni-kubeconfig"), 0o600, "{at}");
    }
}

/// The initial state of a node: the network configuration that is written, and the function `before` that prepares the
/// node.
struct Start {
    mode: &'static str,
    file: &'static str,
    content: &'static str,
    before: fn(&Node),
    at_least: usize,
}

impl Start {
    fn crash_at_every_step(&self) {
        let Self { mode, file, .. } = self;
        let mut crashes = 0;
        for number in 0.. {
            let node = Node::new();
            node.network(file, self.content);
            (self.before)(&node);
            let ended = run(&node, "install", mode, number);
            let at = format!("{mode} {file}, install killed before step {number}");
            check(&node, &at);
            let plan = install(&self.settings(&node));
            assert!(plan.is_empty(), "{at}: {plan:?}");
            assert!(fs::read(node.path("bin/istio-cni")).unwrap() == PLUGIN, "{at}: an older plugin stays");
            let hidden: Vec<String> = ["net", "bin", "run"].iter().flat_map(|dir| node.names(dir)).collect();
            assert!(!hidden.iter().any(|name| name.ends_with(".tmp")), "{at}: {hidden:?}");

            let removed = run(&node, "remove", mode, number);
            let at = format!("{mode} {file}, removal killed before step {number}");
            check(&node, &at);
            assert!(run(&node, "remove", mode, usize::MAX), "{at}");
            assert_eq!((node.names("bin"), node.names("run")), (Vec::new(), Vec::new()), "{at}");
            assert_eq!(node.names("net"), [*file], "{at}");
            assert_eq!(node.read(&format!("net/{file}")), self.content, "{at}");
            assert!(!node.path("net/.istio-cni.owned").exists(), "{at}");
            if ended && removed {
                break;
            }
            crashes = number;
        }
        assert!(crashes >= self.at_least, "only {crashes} steps were seen");
    }

    fn settings(&self, node: &Node) -> istio_cni::install::InstallSettings {
        match self.mode {
            "owned" => node.settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() }),
            _ => node.chained(),
        }
    }
}

fn no_change(_: &Node) {}

/// Prepares a node on which an earlier release has installed another entry and another token.
fn older(node: &Node) {
    let image = node.path("image/istio-cni");
    fs::write(&image, OLDER).unwrap();
    let mut settings = node.chained();
    settings.entry.log_level = "warn".to_owned();
    assert!(install(&settings).is_empty());
    fs::write(&image, PLUGIN).unwrap();
    node.rotate("token-2");
}

/// Prepares a node with an installation whose chain another writer has overwritten.
fn overwritten(node: &Node) {
    assert!(install(&node.chained()).is_empty());
    node.network("10-net.conflist", LIST);
}

const DEFAULT: Start =
    Start { mode: "chained", file: "10-net.conflist", content: LIST, before: no_change, at_least: 15 };

#[test]
fn installation_into_a_list() {
    DEFAULT.crash_at_every_step();
}

#[test]
fn installation_that_converts_a_single_plugin() {
    Start { file: "10-net.conf", content: CONF, ..DEFAULT }.crash_at_every_step();
}

#[test]
fn installation_into_an_owned_copy() {
    Start { mode: "owned", ..DEFAULT }.crash_at_every_step();
}

#[test]
fn upgrade() {
    Start { before: older, ..DEFAULT }.crash_at_every_step();
}

#[test]
fn repair_of_a_chain() {
    Start { before: overwritten, at_least: 6, ..DEFAULT }.crash_at_every_step();
}
