//! Tests which network configuration the plugin is added to, the name of the resulting file, and the obstacles.

use istio_cni::install::settings::Mode;
use istio_cni::install::{Scope, remove};

use super::networks::{CALICO, MINIKUBE, chained, entry, listed, value};
use super::node::{Node, has_entry, install};

/// The expected result of an installation.
enum Expected {
    /// This file has the chain entry.
    In(&'static str),
    /// No file has the entry, for this reason.
    Waiting(&'static str),
}

struct Choice {
    mode: Mode,
    given: &'static [(&'static str, &'static str)],
    expected: Expected,
}

impl Choice {
    fn run(self) {
        let node = Node::new();
        for (name, content) in self.given {
            node.network(name, content);
        }
        let plan = install(&node.settings(self.mode));
        let obstacles: Vec<String> = plan.obstacles.iter().map(ToString::to_string).collect();
        let chain = match self.expected {
            Expected::In(file) => {
                assert_eq!(obstacles, [""; 0]);
                Some(file)
            }
            Expected::Waiting(reason) => {
                assert!(matches!(obstacles.as_slice(), [only] if only.contains(reason)), "{obstacles:?}");
                None
            }
        };
        for name in node.names("net") {
            let (content, chained) = (node.read(&format!("net/{name}")), Some(name.as_str()) == chain);
            let given = self.given.iter().find(|(given, _)| *given == name).map(|(_, content)| *content);
            assert_eq!(content.contains("istio-cni"), chained, "{name}: {content}");
            assert!(chained || given == Some(content.as_str()), "{name} is another program's file: {content}");
        }
    }
}

macro_rules! choices {
    ($($name:ident: $mode:expr, $given:expr => $expected:expr;)*) => {$(
        #[test]
        fn $name() {
            Choice { mode: $mode, given: $given, expected: $expected }.run();
        }
    )*};
}

const BOTH: &[(&str, &str)] = &[("bridge.conf", MINIKUBE), ("list.conflist", CALICO)];
const OWNED: &str = "02-istio-conf.conflist";

fn any() -> Mode {
    Mode::Chained { primary: None }
}

fn named(name: &str) -> Mode {
    Mode::Chained { primary: Some(name.to_owned()) }
}

fn alone(name: &str) -> Mode {
    Mode::Standalone { file: name.to_owned() }
}

fn owned(primary: Option<&str>) -> Mode {
    Mode::Owned { primary: primary.map(str::to_owned), file: OWNED.to_owned() }
}

choices! {
    an_empty_directory: any(), &[] => Expected::Waiting("no network configuration yet");
    files_with_other_extensions_are_ignored: any(), &[("regular.yaml", CALICO), ("conflist", CALICO)]
        => Expected::Waiting("no network configuration yet");
    an_empty_file_is_no_network: any(), &[("empty.conf", "")] => Expected::Waiting("empty.conf");
    a_name_that_is_only_an_extension_is_read: any(), &[(".conf", "")] => Expected::Waiting("; .conf: ");
    the_only_file: any(), &[("regular.conf", MINIKUBE)] => Expected::In("regular.conflist");
    the_first_of_two_files: any(), &[("regular.conf", MINIKUBE), ("regular2.conf", MINIKUBE)]
        => Expected::In("regular.conflist");

    the_first_of_both_kinds: any(), BOTH => Expected::In("bridge.conflist");
    the_named_list: named("list.conflist"), BOTH => Expected::In("list.conflist");
    the_named_conf_that_is_a_conflist: named("list.conf"), BOTH => Expected::In("list.conflist");
    the_named_conflist_that_is_a_conf: named("bridge.conflist"), BOTH => Expected::In("bridge.conflist");
    a_named_file_that_is_missing: named("never-created.conf"), BOTH => Expected::Waiting("never-created.conf does not exist yet");
    a_named_file_that_runtimes_do_not_read: named("undetectable.file"),
        &[("bridge.conf", MINIKUBE), ("undetectable.file", CALICO)] => Expected::In("undetectable.file");
    standalone_with_the_default_name: alone("YYY-istio-cni.conf"), BOTH => Expected::In("YYY-istio-cni.conf");
    standalone_with_the_operators_name: alone("istio-cni.conf"), BOTH => Expected::In("istio-cni.conf");

    an_owned_copy_of_a_single_plugin: owned(None), BOTH => Expected::In(OWNED);
    an_owned_copy_of_a_list: owned(None), &[("list.conflist", CALICO)] => Expected::In(OWNED);
    an_owned_copy_of_the_named_list: owned(Some("list.conflist")), BOTH => Expected::In(OWNED);
    an_owned_copy_is_not_copied: owned(Some(OWNED)), BOTH => Expected::Waiting("does not exist yet");
    an_owned_copy_of_a_file_that_runtimes_do_not_read: owned(Some("undetectable.file")),
        &[("undetectable.file", CALICO)] => Expected::In(OWNED);
    an_owned_copy_of_a_missing_network: owned(None), &[] => Expected::Waiting("no network configuration yet");

    an_object_without_a_network: any(), &[("empty.conflist", "{}")] => Expected::Waiting("empty.conflist");
    an_array_instead_of_an_object: any(), &[("empty.conflist", "[]")] => Expected::Waiting("empty.conflist");
}

#[test]
fn a_missing_directory_is_an_obstacle() {
    let node = Node::new();
    std::fs::remove_dir(node.path("net")).unwrap();
    let obstacles = install(&node.chained()).obstacles;
    assert!(matches!(obstacles.as_slice(), [only] if only.to_string().contains("cannot read")), "{obstacles:?}");
}

/// If none of the chain's plugins is in the plugin directory, `cniBinDir` is probably wrong and the chain is not
/// changed. One of them is enough, because runtimes may search several directories.
#[test]
fn a_chain_is_edited_once_one_of_its_other_plugins_is_in_the_plugin_directory() {
    let node = Node::new();
    node.network("list.conflist", CALICO);
    let plugins = ["bandwidth", "calico", "portmap"].map(|name| node.path("bin").join(name));
    plugins.iter().for_each(|plugin| std::fs::remove_file(plugin).unwrap());
    let obstacles = install(&node.chained()).obstacles;
    let [only] = obstacles.as_slice() else { panic!("{obstacles:?}") };
    let (text, [net, bin]) = (only.to_string(), ["net", "bin"].map(|dir| node.path(dir).display().to_string()));
    assert!(text.contains(&net) && text.contains(&format!("{bin} (calico, portmap, bandwidth)")), "{text}");
    assert_eq!(node.read("net/list.conflist"), CALICO);
    // A link counts as a plugin even if it is broken: its target may be a path of the node that does not exist in the
    // agent's container.
    std::os::unix::fs::symlink("/nowhere/portmap", &plugins[2]).unwrap();
    assert!(install(&node.chained()).is_empty());
    assert!(has_entry(&node.path("net/list.conflist")));
}

/// A removal without flags recognizes the installer's copy of a network configuration only by the installer's record.
#[test]
fn a_removal_without_flags_removes_a_copy_and_keeps_the_network() {
    for mode in [owned(None), alone("istio-cni.conf"), named("undetectable.file")] {
        let node = Node::new();
        node.network("list.conflist", CALICO);
        node.network("undetectable.file", CALICO);
        assert!(install(&node.settings(mode.clone())).is_empty());
        assert!(node.path("net/.istio-cni.owned").exists(), "{mode:?}");
        assert!(remove(&node.chained(), Scope::ALL, std::time::Duration::ZERO).is_empty());
        assert_eq!(node.names("net"), ["list.conflist", "undetectable.file"], "{mode:?}");
        assert!(!node.path("net/.istio-cni.owned").exists(), "{mode:?}");
        let left = ["list.conflist", "undetectable.file"].map(|name| node.read(&format!("net/{name}")));
        assert_eq!(left, [CALICO, CALICO], "{mode:?}");
    }
}

#[test]
fn an_owned_copy_contains_the_network_and_the_entry() {
    for (name, content, expected) in
        [("list.conflist", CALICO, chained(&value(CALICO))), ("bridge.conf", MINIKUBE, chained(&listed(MINIKUBE)))]
    {
        let node = Node::new();
        node.network(name, content);
        assert!(install(&node.settings(owned(None))).is_empty());
        assert_eq!(value(&node.read(&format!("net/{OWNED}"))), expected, "{name}");
    }
}

#[test]
fn an_entry_of_an_older_schema_is_replaced() {
    let mut older = value(CALICO);
    let older_entry =
        serde_json::json!({ "type": "istio-cni", "name": "istio-cni", "kubernetes": { "cni_bin_dir": "/opt" } });
    older["plugins"].as_array_mut().unwrap().insert(1, older_entry);
    let node = Node::new();
    node.network("list.conflist", &older.to_string());
    assert!(install(&node.chained()).is_empty());
    let installed = value(&node.read("net/list.conflist"));
    assert_eq!(installed, chained(&value(CALICO)));
    assert_eq!(installed["plugins"].as_array().unwrap().iter().filter(|plugin| **plugin == entry()).count(), 1);
    assert!(has_entry(&node.path("net/list.conflist")));
}
