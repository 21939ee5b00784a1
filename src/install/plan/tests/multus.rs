//! Tests of plans on nodes with Multus, which copies or reads a network with the plugin's entry.

use libcni::conflist;

use super::*;
use crate::install::record::Original;

/// Multus' configuration with a copy of `network`.
fn copy(network: &str) -> String {
    format!(
        r#"{{"cniVersion":"1.0.0","name":"multus-cni-network","plugins":[{{"type":"multus","delegates":[{network}]}}]}}"#
    )
}

fn single(network: &str) -> String {
    format!(r#"{{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","delegates":[{network}]}}"#)
}

/// Returns a node with Multus and the network that Multus has copied.
fn beside(name: &str, multus: &str, network: &str) -> Snapshot {
    let mut node = node(BinaryState::Same, vec![file(name, multus), file("10-a.conflist", network)]);
    node.plugins.insert("multus".to_owned());
    node
}

fn content(node: &Snapshot, name: &str) -> String {
    let found = node.networks.iter().flatten().find(|file| file.name == name);
    String::from_utf8(found.unwrap().content.clone()).unwrap()
}

fn names(node: &Snapshot) -> Vec<&str> {
    node.networks.iter().flatten().map(|file| file.name.as_str()).collect()
}

/// Returns the list with the entry of these settings.
fn chained_list() -> String {
    content(&after(&chained(), node(BinaryState::Same, vec![file("10-a.conflist", LIST)])), "10-a.conflist")
}

fn removed(settings: &InstallSettings, mut node: Snapshot) -> Snapshot {
    for step in removal(settings, &node, Scope::ALL, None).steps {
        apply(settings, &mut node, step.operation);
    }
    node
}

#[test]
fn the_entry_is_behind_multus_and_in_the_network_that_it_copies() {
    let node = after(&chained(), beside("00-multus.conflist", &copy(LIST), LIST));
    assert!(install(&chained(), &node).is_empty());
    assert_eq!(content(&node, "10-a.conflist"), chained_list());
    let multus = content(&node, "00-multus.conflist");
    assert!(multus.contains(LIST) && multus.matches(r#""type": "istio-cni""#).count() == 1, "{multus}");
    // The next copy has the entry. Multus must run the plugin only once nevertheless.
    let copied = beside("00-multus.conflist", &copy(&chained_list()), &chained_list());
    assert_eq!(chained_network(copied.networks.as_ref().unwrap()).as_deref(), Some("net"));
    let node = after(&chained(), copied);
    assert_eq!(content(&node, "00-multus.conflist"), multus);
    assert_eq!(chained_network(node.networks.as_ref().unwrap()).as_deref(), Some("multus-cni-network"));
    let node = removed(&chained(), node);
    assert_eq!((content(&node, "00-multus.conflist"), content(&node, "10-a.conflist")), (copy(LIST), LIST.to_owned()));
}

#[test]
fn a_removal_takes_the_plugin_out_of_each_copy() {
    for (name, multus) in [("00-multus.conflist", copy as fn(&str) -> String), ("00-multus.conf", single)] {
        let copied = beside(name, &multus(&chained_list()), &chained_list());
        for node in [copied.clone(), after(&chained(), copied)] {
            let node = removed(&chained(), node);
            assert_eq!(names(&node), [name, "10-a.conflist"]);
            assert_eq!((content(&node, name), content(&node, "10-a.conflist")), (multus(LIST), LIST.to_owned()));
        }
    }
}

/// Multus writes its file again, next to the list into which the former file was converted.
#[test]
fn a_new_version_of_a_converted_copy_does_not_name_the_plugin_after_a_removal() {
    let mut node = after(&chained(), beside("00-multus.conf", &single(LIST), LIST));
    assert_eq!(names(&node), ["00-multus.conflist", "10-a.conflist"]);
    node.networks.as_mut().unwrap().insert(0, file("00-multus.conf", &single(&chained_list())));
    let healed = after(&chained(), node.clone());
    assert_eq!(names(&healed), ["00-multus.conflist", "10-a.conflist"]);
    for node in [node, healed] {
        let node = removed(&chained(), node);
        assert_eq!(names(&node), ["00-multus.conf", "10-a.conflist"]);
        assert_eq!(content(&node, "00-multus.conf"), single(LIST));
    }
}

#[test]
fn a_copy_without_the_entry_is_an_obstacle_to_a_named_network() {
    let named = settings(Mode::Chained { primary: Some("10-a.conflist".to_owned()) });
    let expected = "/net/00-multus.conflist runs a copy of the network of /net/10-a.conflist, without the plugin or with former \
                    settings of it: restart Multus, so that it copies the network again, or leave CNI_CONF_NAME empty, so that the \
                    plugin is added behind Multus";
    let former = chained_list().replace("pod_namespace", "namespace");
    for (copied, is_outdated) in [(LIST, true), (&*former, true), (&*chained_list(), false)] {
        let node = after(&named, beside("00-multus.conflist", &copy(copied), LIST));
        assert_eq!(content(&node, "10-a.conflist"), chained_list());
        let obstacles: Vec<_> = install(&named, &node).obstacles.iter().map(ToString::to_string).collect();
        assert_eq!(obstacles, [expected][usize::from(!is_outdated)..], "{copied}");
    }
    let other = copy(LIST).replace(r#""name":"net""#, r#""name":"other""#);
    assert!(install(&named, &after(&named, beside("00-multus.conflist", &other, LIST))).is_empty());
}

/// Returns Multus' file as its daemon writes it, with the path under which the daemon's container mounts the directory.
fn shim(network: &str) -> String {
    let path = format!("/host/etc/cni/net.d/{network}");
    format!(r#"{{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus-shim","clusterNetwork":"{path}"}}"#)
}

/// Returns the file of the thin plugin, as an operator writes it.
fn by_path(network: &str) -> String {
    shim(network).replace("multus-shim", "multus")
}

/// Returns the list of a single plugin and the entry.
fn listed(single: &str) -> String {
    let single = conflist::Single::decode(single.as_bytes()).unwrap();
    String::from_utf8(single.chained(&chained().entry.chained())).unwrap()
}

/// Returns the node on which a file was converted before Multus read the list.
fn converted_before(multus: &str) -> Snapshot {
    let mut node = after(&chained(), node(BinaryState::Same, vec![file("10-a.conf", CONF)]));
    assert_eq!(names(&node), ["10-a.conflist"]);
    node.networks.as_mut().unwrap().insert(0, file("00-multus.conf", multus));
    node.plugins.extend(["multus", "multus-shim"].map(str::to_owned));
    node
}

fn plugins(node: &Snapshot, name: &str) -> Vec<String> {
    let content = content(node, name);
    conflist::List::decode(content.as_bytes()).unwrap().kinds().map(str::to_owned).collect()
}

#[test]
fn the_entry_is_in_the_list_that_the_daemon_of_multus_reads() {
    let before = beside("00-multus.conf", &shim("10-a.conflist"), LIST);
    let mut node = after(&chained(), before);
    assert_eq!(
        (names(&node), content(&node, "10-a.conflist")),
        (vec!["00-multus.conf", "10-a.conflist"], chained_list())
    );
    assert!(install(&chained(), &node).is_empty());
    let removed = removed(&chained(), node.clone());
    assert_eq!(
        (names(&removed), content(&removed, "10-a.conflist")),
        (vec!["00-multus.conf", "10-a.conflist"], LIST.to_owned())
    );
    // When the daemon removes its file on exit, the list is the node's network, and has the entry.
    node.networks.as_mut().unwrap().remove(0);
    assert!(install(&chained(), &node).is_empty());
}

#[test]
fn the_file_of_the_daemon_is_converted_if_it_reads_no_list_of_the_directory() {
    let elsewhere = shim("10-a.conflist").replace("/cni/net.d", "/cni/multus/net.d");
    let other_plugins = shim("10-a.conflist").replace('}', r#","binDir":"/opt/multus/bin"}"#);
    for multus in [shim("10-a.conf"), elsewhere, other_plugins] {
        let mut node = beside("00-multus.conf", &multus, LIST);
        if multus == shim("10-a.conf") {
            node.networks.as_mut().unwrap()[1] = file("10-a.conf", CONF);
        }
        node.plugins.insert("multus-shim".to_owned());
        let node = after(&chained(), node);
        assert_eq!(names(&node)[0], "00-multus.conflist", "{multus}");
        assert_eq!(plugins(&node, "00-multus.conflist"), ["multus-shim", "istio-cni"]);
        assert!(names(&node)[1] == "10-a.conf" || content(&node, "10-a.conflist") == LIST, "{multus}");
    }
}

#[test]
fn the_file_of_the_daemon_stays_while_its_list_does_not_exist() {
    let mut node = after(&chained(), beside("00-multus.conf", &shim("10-a.conflist"), LIST));
    node.networks.as_mut().unwrap().remove(1);
    let plan = install(&chained(), &node);
    let obstacles: Vec<_> = plan.obstacles.iter().map(ToString::to_string).collect();
    assert_eq!(obstacles, ["/net/00-multus.conf has the path of /net/10-a.conflist, which does not exist yet"]);
    assert_eq!(names(&after(&chained(), node)), ["00-multus.conf"]);
}

/// A former version of the agent converted the daemon's file to a list; this version must restore the file.
#[test]
fn the_daemons_file_replaces_a_list_that_was_converted_from_it() {
    let list = listed(&shim("10-a.conflist"));
    let mut node = beside("00-multus.conflist", &list, LIST);
    node.plugins.insert("multus-shim".to_owned());
    let original = Original { content: shim("10-a.conflist").into_bytes(), mode: 0o600 };
    node.record = Some(Record { originals: [("00-multus.conf".to_owned(), original)].into(), ..Record::default() });
    let node = after(&chained(), node);
    assert_eq!(
        (names(&node), content(&node, "10-a.conflist")),
        (vec!["00-multus.conf", "10-a.conflist"], chained_list())
    );
}

#[test]
fn a_newer_file_of_the_owner_becomes_the_list_that_the_daemon_reads() {
    let mut node = after(&chained(), converted_before(&shim("10-a.conflist")));
    assert_eq!(names(&node), ["00-multus.conf", "10-a.conflist"]);
    node.networks.as_mut().unwrap().insert(1, file("10-a.conf", &CONF.replace("bridge", "ptp")));
    let node = after(&chained(), node);
    assert_eq!(names(&node), ["00-multus.conf", "10-a.conflist"]);
    assert_eq!(plugins(&node, "10-a.conflist"), ["ptp", "istio-cni"]);
}

#[test]
fn a_named_network_that_the_daemon_does_not_read_is_warned_about() {
    let mut node = beside("00-multus.conf", &shim("10-a.conflist"), LIST);
    node.networks.as_mut().unwrap().push(file("20-b.conflist", LIST));
    let named = |name: &str| install(&settings(Mode::Chained { primary: Some(name.to_owned()) }), &node).warnings;
    let expected = "pods are not redirected if the runtime uses /net/00-multus.conf, which has the path of /net/10-a.conflist and not \
                    of /net/20-b.conflist";
    assert_eq!(named("20-b.conflist"), [expected]);
    assert_eq!(named("10-a.conflist"), [""; 0]);
}

/// Neither file has a path that Multus reads, so the single plugin is converted, and restored by the removal.
#[test]
fn a_path_that_multus_does_not_read_has_no_effect() {
    for other in [
        r#"{"cniVersion":"0.3.1","name":"x","type":"bridge","ipam":{"file":"/etc/cni/net.d/10-a.conf"}}"#.to_owned(),
        by_path("10-a.conf").replace("/cni/net.d", "/flannel"),
    ] {
        let node = node(BinaryState::Same, vec![file("10-a.conf", CONF), file("99-other.conf", &other)]);
        let node = after(&chained(), node);
        assert_eq!(names(&node), ["10-a.conflist", "99-other.conf"], "{other}");
        let node = removed(&chained(), node);
        assert_eq!(names(&node), ["10-a.conf", "99-other.conf"], "{other}");
    }
}

#[test]
fn a_copy_that_the_daemon_would_read_is_an_obstacle() {
    let owned = settings(Mode::Owned { primary: None, file: "00-istio-cni.conflist".to_owned() });
    let mut node = beside("00-multus.conf", &shim("00-istio-cni.conflist"), LIST);
    node.plugins.insert("multus-shim".to_owned());
    let obstacles: Vec<_> = install(&owned, &node).obstacles.iter().map(ToString::to_string).collect();
    assert!(
        matches!(&obstacles[..], [text] if text.starts_with("/net/00-multus.conf has the path of /net/00-istio-cni.conflist, so")),
        "{obstacles:?}"
    );
    // A former version of the agent made the copy.
    let copy = listed(&shim("00-istio-cni.conflist"));
    node.networks.as_mut().unwrap().insert(0, file("00-istio-cni.conflist", &copy));
    assert_eq!(names(&removed(&owned, node)), ["00-multus.conf", "10-a.conflist"]);
}

#[test]
fn a_copy_that_a_removal_has_left_is_used_again() {
    let owned = settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() });
    let mut node = after(&owned, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]));
    node.networks.as_mut().unwrap().push(file("99-multus.conf", &by_path("02-istio-cni.conflist")));
    let node = removed(&owned, node);
    assert_eq!(plugins(&node, "02-istio-cni.conflist"), ["ptp"]);
    let node = after(&owned, node);
    assert_eq!(plugins(&node, "02-istio-cni.conflist"), ["ptp", "istio-cni"]);
}

#[test]
fn an_unusable_list_that_the_daemon_of_multus_reads_is_an_obstacle() {
    let half = NetworkFile { is_recent: true, ..file("10-a.conflist", "") };
    for (list, expected) in [
        (half.clone(), "/net/10-a.conflist is not valid JSON yet: its writer may not have finished"),
        (
            NetworkFile { is_recent: false, ..half },
            "the plugin cannot be added to /net/10-a.conflist: the file is not JSON: ",
        ),
        (
            file("10-a.conflist", &LIST.replace("ptp", "istio-cni")),
            "the plugin cannot be added to /net/10-a.conflist: the file names no plugin",
        ),
    ] {
        let mut node = beside("00-multus.conf", &shim("10-a.conflist"), LIST);
        node.networks.as_mut().unwrap()[1] = list;
        let plan = install(&chained(), &node);
        let obstacles: Vec<_> = plan.obstacles.iter().map(ToString::to_string).collect();
        assert!(obstacles.len() == 1 && obstacles[0].starts_with(expected), "{obstacles:?}");
        assert_eq!(plan.network, None);
    }
}

#[test]
fn a_file_that_multus_reads_by_its_path_keeps_its_name() {
    let listed = by_path("10-a.conflist").replace(r#""clusterNetwork":"#, r#""defaultNetworks":["#).replace('}', "]}");
    let waited = by_path("10-a.conflist").replace("clusterNetwork", "readinessindicatorfile");
    for multus in [shim("10-a.conflist"), by_path("10-a.conflist"), listed, waited] {
        let before = converted_before(&multus);
        let node = after(&chained(), before.clone());
        assert!(install(&chained(), &node).is_empty(), "{multus}: {:?}", install(&chained(), &node));
        assert!(
            names(&node).contains(&"10-a.conflist") && !names(&node).contains(&"10-a.conf"),
            "{multus}: {:?}",
            names(&node)
        );
        for node in [before, node] {
            let warnings = removal(&chained(), &node, Scope::ALL, None).warnings;
            let expected = "/net/10-a.conflist stays, without the plugin: /net/00-multus.conf";
            assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{multus}: {warnings:?}");
            let node = removed(&chained(), node);
            assert_eq!(names(&node), ["00-multus.conf", "10-a.conflist"], "{multus}");
            assert_eq!(
                (content(&node, "00-multus.conf"), plugins(&node, "10-a.conflist")),
                (multus.clone(), vec!["bridge".to_owned()])
            );
        }
    }
}

#[test]
fn the_original_is_restored_once_multus_does_not_read_the_list() {
    let mut node = after(&chained(), converted_before(&by_path("10-a.conflist")));
    node.networks.as_mut().unwrap().retain(|file| file.name == "10-a.conflist");
    let node = removed(&chained(), after(&chained(), node));
    assert_eq!(node.networks.unwrap(), [file("10-a.conf", CONF)]);
}

/// The file was converted after Multus' daemon had found its former name, and before the daemon wrote its own file.
#[test]
fn the_original_is_restored_if_multus_reads_it_by_its_path() {
    let node = after(&chained(), converted_before(&shim("10-a.conf")));
    assert_eq!(names(&node), ["00-multus.conflist", "10-a.conf"]);
    assert!(install(&chained(), &after(&chained(), node)).is_empty());
}

#[test]
fn a_single_plugin_that_multus_reads_by_its_path_is_not_converted() {
    let named = settings(Mode::Chained { primary: Some("10-a.conf".to_owned()) });
    let mut node = beside("00-multus.conf", &by_path("10-a.conf"), LIST);
    node.networks.as_mut().unwrap()[1] = file("10-a.conf", CONF);
    let plan = install(&named, &node);
    let expected = "/net/00-multus.conf has the path of /net/10-a.conf, which would have another name as a list, so the plugin is not added to \
                    it: if CNI_CONF_NAME names the file, leave it empty, so that the plugin is added behind Multus; else let \
                    /net/00-multus.conf have the network's name instead, or remove it";
    assert_eq!(plan.obstacles.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    assert_eq!(names(&after(&named, node)), ["00-multus.conf", "10-a.conf"]);
}

/// Multus' daemon has chosen the copy, which sorts first.
#[test]
fn a_copy_that_multus_reads_by_its_path_keeps_its_name() {
    let owned = settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() });
    let mut node = after(&owned, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]));
    node.networks.as_mut().unwrap().insert(0, file("00-multus.conf", &by_path("02-istio-cni.conflist")));
    node.plugins.insert("multus".to_owned());
    let mut chained = after(&chained(), node.clone());
    assert_eq!(plugins(&chained, "02-istio-cni.conflist"), ["ptp"]);
    for node in [node, chained.clone()] {
        assert_eq!(plugins(&removed(&owned, node), "02-istio-cni.conflist"), ["ptp"]);
    }
    chained.networks.as_mut().unwrap().retain(|file| !file.name.starts_with("00-multus"));
    assert_eq!(names(&after(&self::chained(), chained)), ["10-a.conflist"]);
}

#[test]
fn only_the_first_delegate_is_the_pod_network() {
    let second = LIST.replace(r#""net""#, r#""second""#);
    let mut node = beside("00-multus.conflist", &copy(&format!("{LIST},{second}")), LIST);
    node.networks.as_mut().unwrap().push(file("20-b.conflist", &second));
    let node = after(&chained(), node);
    assert_eq!((content(&node, "10-a.conflist"), content(&node, "20-b.conflist")), (chained_list(), second));
}

#[test]
fn an_owned_copy_of_the_file_of_multus_names_the_plugin_once() {
    let owned = settings(Mode::Owned { primary: None, file: "00-istio-cni.conflist".to_owned() });
    let multus = copy(&chained_list());
    let node = after(&owned, beside("00-multus.conflist", &multus, LIST));
    let owned = content(&node, "00-istio-cni.conflist");
    assert!(owned.contains(LIST) && owned.matches(r#""type": "istio-cni""#).count() == 1, "{owned}");
}

/// Multus' newer file has a copy with the plugin, which must stay because the operator has named that network.
#[test]
fn a_newer_file_of_multus_stays_as_it_is_when_the_entry_goes_to_the_network() {
    let mut node = after(&chained(), beside("00-multus.conf", &single(LIST), LIST));
    node.networks.as_mut().unwrap().insert(0, file("00-multus.conf", &single(&chained_list())));
    let named = settings(Mode::Chained { primary: Some("10-a.conflist".to_owned()) });
    let replaced_by = install(&named, &node).steps.into_iter().find_map(|step| match step.operation {
        Operation::Remove { path, replaced_by, .. } if path.ends_with("00-multus.conflist") => replaced_by,
        _ => None,
    });
    assert_eq!(replaced_by.unwrap().content, single(&chained_list()).into_bytes());
    let node = after(&named, node);
    assert_eq!(
        (names(&node), content(&node, "00-multus.conf")),
        (vec!["00-multus.conf", "10-a.conflist"], single(&chained_list()))
    );
    // Then the record names nothing that a removal would restore.
    assert!(install(&named, &after(&named, node)).is_empty());
}
