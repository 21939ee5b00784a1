//! Which of a node's files the plugin is chained into, under which name the chain is then, and what is waited for.

use istio_cni::install::settings::Mode;
use istio_cni::install::{Scope, remove};

use super::networks::{CALICO, MINIKUBE, chained, entry, listed, value};
use super::stage::{Node, has_entry, install};

/// What comes of the files that are there.
enum Then {
    /// The entry is in this file.
    In(&'static str),
    /// Nothing is, for this reason.
    Waiting(&'static str),
}

struct Choice {
    mode: Mode,
    given: &'static [(&'static str, &'static str)],
    then: Then,
}

impl Choice {
    fn holds(self) {
        let node = Node::new();
        for (name, content) in self.given {
            node.network(name, content);
        }
        let plan = install(&node.settings(self.mode));
        let obstacles: Vec<String> = plan.obstacles.iter().map(ToString::to_string).collect();
        let chain = match self.then {
            Then::In(file) => {
                assert_eq!(obstacles, [""; 0]);
                Some(file)
            }
            Then::Waiting(reason) => {
                assert!(matches!(obstacles.as_slice(), [only] if only.contains(reason)), "{obstacles:?}");
                None
            }
        };
        for name in node.names("net") {
            let (content, chained) = (node.read(&format!("net/{name}")), Some(name.as_str()) == chain);
            let given = self.given.iter().find(|(given, _)| *given == name).map(|(_, content)| *content);
            assert_eq!(content.contains("istio-cni"), chained, "{name}: {content}");
            assert!(chained || given == Some(content.as_str()), "{name} is none of ours: {content}");
        }
    }
}

macro_rules! choices {
    ($($name:ident: $mode:expr, $given:expr => $then:expr;)*) => {$(
        #[test]
        fn $name() {
            Choice { mode: $mode, given: $given, then: $then }.holds();
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
    an_empty_directory_is_waited_for: any(), &[] => Then::Waiting("no network configuration yet");
    other_extensions_are_none_of_a_runtimes: any(), &[("regular.yaml", CALICO), ("conflist", CALICO)]
        => Then::Waiting("no network configuration yet");
    an_empty_file_is_no_network: any(), &[("empty.conf", "")] => Then::Waiting("empty.conf");
    a_name_that_is_an_extension_alone_is_read: any(), &[(".conf", "")] => Then::Waiting("; .conf: ");
    the_only_file: any(), &[("regular.conf", MINIKUBE)] => Then::In("regular.conflist");
    the_first_of_two_files: any(), &[("regular.conf", MINIKUBE), ("regular2.conf", MINIKUBE)]
        => Then::In("regular.conflist");

    of_both_kinds_the_first: any(), BOTH => Then::In("bridge.conflist");
    the_named_list: named("list.conflist"), BOTH => Then::In("list.conflist");
    the_named_conf_that_is_a_conflist: named("list.conf"), BOTH => Then::In("list.conflist");
    the_named_conflist_that_is_a_conf: named("bridge.conflist"), BOTH => Then::In("bridge.conflist");
    a_named_file_that_never_comes: named("never-created.conf"), BOTH => Then::Waiting("never-created.conf is not there yet");
    a_named_file_that_runtimes_do_not_read: named("undetectable.file"),
        &[("bridge.conf", MINIKUBE), ("undetectable.file", CALICO)] => Then::In("undetectable.file");
    without_a_chain_the_default_name: alone("YYY-istio-cni.conf"), BOTH => Then::In("YYY-istio-cni.conf");
    without_a_chain_the_operators_name: alone("istio-cni.conf"), BOTH => Then::In("istio-cni.conf");

    an_owned_copy_of_a_single_plugin: owned(None), BOTH => Then::In(OWNED);
    an_owned_copy_of_a_list: owned(None), &[("list.conflist", CALICO)] => Then::In(OWNED);
    an_owned_copy_of_the_named_list: owned(Some("list.conflist")), BOTH => Then::In(OWNED);
    an_owned_copy_is_no_network_to_copy: owned(Some(OWNED)), BOTH => Then::Waiting("is not there yet");
    an_owned_copy_of_what_runtimes_do_not_read: owned(Some("undetectable.file")),
        &[("undetectable.file", CALICO)] => Then::In(OWNED);
    an_owned_copy_of_what_never_comes: owned(None), &[] => Then::Waiting("no network configuration yet");

    an_object_without_a_network: any(), &[("empty.conflist", "{}")] => Then::Waiting("empty.conflist");
    no_object: any(), &[("empty.conflist", "[]")] => Then::Waiting("empty.conflist");
}

#[test]
fn without_a_directory_nothing_is_chosen() {
    let node = Node::new();
    std::fs::remove_dir(node.path("net")).unwrap();
    let obstacles = install(&node.chained()).obstacles;
    assert!(matches!(obstacles.as_slice(), [only] if only.to_string().contains("cannot read")), "{obstacles:?}");
}

/// A wrong `cniBinDir` leaves the chain alone, until one of the node's plugins is there after all: runtimes may search
/// several directories.
#[test]
fn a_chain_is_entered_once_one_of_its_other_plugins_is_beside_ours() {
    let node = Node::new();
    node.network("list.conflist", CALICO);
    let plugins = ["bandwidth", "calico", "portmap"].map(|name| node.path("bin").join(name));
    plugins.iter().for_each(|plugin| std::fs::remove_file(plugin).unwrap());
    let obstacles = install(&node.chained()).obstacles;
    let [only] = obstacles.as_slice() else { panic!("{obstacles:?}") };
    let (said, [net, bin]) = (only.to_string(), ["net", "bin"].map(|dir| node.path(dir).display().to_string()));
    assert!(said.contains(&net) && said.contains(&format!("{bin} (calico, portmap, bandwidth)")), "{said}");
    assert_eq!(node.read("net/list.conflist"), CALICO);
    // Links lead to paths of the node, which the agent does not have.
    std::os::unix::fs::symlink("/nowhere/portmap", &plugins[2]).unwrap();
    assert!(install(&node.chained()).is_empty());
    assert!(has_entry(&node.path("net/list.conflist")));
}

/// The record on the node's disk is all that tells a copy from a network.
#[test]
fn a_removal_without_flags_takes_a_copy_away_and_leaves_the_network() {
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
fn an_owned_copy_holds_the_network_and_the_entry() {
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
    let entry_then =
        serde_json::json!({ "type": "istio-cni", "name": "istio-cni", "kubernetes": { "cni_bin_dir": "/opt" } });
    older["plugins"].as_array_mut().unwrap().insert(1, entry_then);
    let node = Node::new();
    node.network("list.conflist", &older.to_string());
    assert!(install(&node.chained()).is_empty());
    let installed = value(&node.read("net/list.conflist"));
    assert_eq!(installed, chained(&value(CALICO)));
    assert_eq!(installed["plugins"].as_array().unwrap().iter().filter(|plugin| **plugin == entry()).count(), 1);
    assert!(has_entry(&node.path("net/list.conflist")));
}
