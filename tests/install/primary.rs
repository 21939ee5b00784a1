//! Tests which network configuration the plugin is added to, the name of the resulting file, and the obstacles.

use istio_cni::install::settings::Mode;
use istio_cni::install::{Scope, remove};

use super::networks::{CALICO, MINIKUBE, chained, entry, listed, value};
use super::node::{LIST, Node, has_entry, install};

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
    // A broken link is treated as a plugin as well: its target may be a path of the node that does not exist in the agent's container.
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

fn obstacles(node: &Node, mode: Mode) -> Vec<String> {
    install(&node.settings(mode)).obstacles.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_that_runtimes_refuse_never_becomes_a_network() {
    let numbered = MINIKUBE.replace("\"minikube-bridge\"", "5");
    for (name, content) in [("05-old.conf", CALICO), ("05-old.json", CALICO), ("05-old.conf", &numbered)] {
        let node = Node::new();
        node.network(name, content);
        node.network("10-net.conflist", CALICO);
        let named = obstacles(&node, any());
        assert!(matches!(named.as_slice(), [only] if only.contains(name)), "{named:?}");
        assert!(has_entry(&node.path("net/10-net.conflist")));
        assert!(remove(&node.chained(), Scope::ALL, std::time::Duration::ZERO).is_empty());
        assert_eq!(node.names("net"), [name, "10-net.conflist"]);
        assert_eq!([name, "10-net.conflist"].map(|name| node.read(&format!("net/{name}"))), [content, CALICO]);
    }
}

/// Creates, in the given directory, a file that the agent cannot read as a network configuration.
type Make<'a> = &'a dyn Fn(&std::path::Path);

/// A list after such a file must get the entry, because a runtime that cannot read the file either may use the list. A single plugin must
/// not be converted, and no copy of the network must be made, because the copy would sort before the file.
#[test]
fn a_file_that_the_agent_cannot_judge_is_an_obstacle() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    let large = CALICO.replace("worker-1", &"x".repeat(8 << 20));
    let odd: [(&str, Make<'_>); 4] = [
        ("05-a.conflist: No such file", &|dir| symlink("/host/only/here", dir.join("05-a.conflist")).unwrap()),
        ("05-a.conf: no regular file", &|dir| symlink("/proc", dir.join("05-a.conf")).unwrap()),
        ("05-a.conflist: more than 8 MiB", &|dir| std::fs::write(dir.join("05-a.conflist"), &large).unwrap()),
        ("05-\u{fffd}.conflist: its name is not UTF-8", &|dir| {
            std::fs::write(dir.join(OsStr::from_bytes(b"05-\xe9.conflist")), CALICO).unwrap();
        }),
    ];
    for (reason, make) in odd {
        for (mode, name, content) in
            [(any(), "87-a.conflist", CALICO), (any(), "87-a.conf", MINIKUBE), (owned(None), "87-a.conflist", CALICO)]
        {
            let node = Node::new();
            make(&node.path("net"));
            node.network(name, content);
            let named = obstacles(&node, mode.clone());
            assert!(matches!(named.as_slice(), [only] if only.contains(reason)), "{named:?} for {reason}");
            let is_edited = mode == any() && content == CALICO;
            assert_eq!(node.read(&format!("net/{name}")).contains("istio-cni"), is_edited, "{mode:?} {name}");
            assert_eq!(std::fs::read_dir(node.path("net")).unwrap().count(), 2, "{mode:?} {name}");
        }
        // The file does not matter after the network that the runtime uses.
        let node = Node::new();
        make(&node.path("net"));
        node.network("00-a.conflist", CALICO);
        assert_eq!(obstacles(&node, any()), [""; 0], "{reason}");
    }
}

#[test]
fn a_list_of_two_megabytes_is_edited_in_place() {
    let large = CALICO.replace("worker-1", &"x".repeat(2 << 20));
    let node = Node::new();
    node.network("10-a.conflist", &large);
    node.network("87-other.conflist", CALICO);
    assert_eq!(obstacles(&node, any()), [""; 0]);
    assert!(has_entry(&node.path("net/10-a.conflist")));
    assert!(remove(&node.chained(), Scope::ALL, std::time::Duration::ZERO).is_empty());
    assert_eq!(node.read("net/10-a.conflist"), large);
}

#[test]
fn a_missing_named_file_is_reported_with_those_that_exist() {
    let node = Node::new();
    node.network("15-azure-swift.conflist", CALICO);
    let named = obstacles(&node, named("10-azure.conflist"));
    assert!(
        matches!(named.as_slice(), [only] if only.ends_with("; the directory holds 15-azure-swift.conflist")),
        "{named:?}"
    );
}

/// A list whose drop-in plugins cannot be read must keep its entry: the runtime loads the list again as soon as they can be read.
#[test]
fn a_list_keeps_its_entry_while_its_drop_in_plugins_cannot_be_read() {
    let node = Node::new();
    node.network("10-a.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    std::fs::create_dir(node.path("net/net")).unwrap();
    std::os::unix::fs::symlink("/only/on/the/host.conf", node.path("net/net/tuning.conf")).unwrap();
    node.network("87-b.conflist", &LIST.replace("\"net\"", "\"other\""));
    let plan = install(&node.chained());
    assert!(!plan.obstacles.is_empty(), "{plan:?}");
    assert!(has_entry(&node.path("net/10-a.conflist")) && has_entry(&node.path("net/87-b.conflist")));
}

#[test]
fn a_list_in_a_conf_never_replaces_a_list_of_another_program() {
    for entry_first in [false, true] {
        let node = Node::new();
        node.network("10-x.conflist", LIST);
        if entry_first {
            assert!(install(&node.chained()).is_empty());
        }
        let named = std::fs::read(node.path("net/10-x.conflist")).unwrap();
        node.network("10-x.conf", std::str::from_utf8(&named).unwrap());
        node.network("10-x.conflist", &LIST.replace("ptp", "calico"));
        let plan = install(&node.settings(Mode::Chained { primary: Some("10-x.conf".to_owned()) }));
        let obstacles: Vec<String> = plan.obstacles.iter().map(ToString::to_string).collect();
        assert!(matches!(obstacles.as_slice(), [only] if only.contains("both ")), "{obstacles:?}");
        assert_eq!(node.read("net/10-x.conflist"), LIST.replace("ptp", "calico"));
    }
}

#[test]
fn a_list_in_a_conf_that_has_the_entry_is_renamed() {
    let node = Node::new();
    node.network("10-x.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    std::fs::rename(node.path("net/10-x.conflist"), node.path("net/10-x.conf")).unwrap();
    assert!(install(&node.settings(Mode::Chained { primary: Some("10-x.conf".to_owned()) })).is_empty());
    assert_eq!(node.names("net"), ["10-x.conflist"]);
    assert!(has_entry(&node.path("net/10-x.conflist")));
}
