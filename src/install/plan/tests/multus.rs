//! Plans beside Multus, which copies a network with the plugin's entry.

use super::*;

/// Multus' configuration with a copy of `network`.
fn copy(network: &str) -> String {
    format!(
        r#"{{"cniVersion":"1.0.0","name":"multus-cni-network","plugins":[{{"type":"multus","delegates":[{network}]}}]}}"#
    )
}

fn single(network: &str) -> String {
    format!(r#"{{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","delegates":[{network}]}}"#)
}

/// A node with Multus and the network that it has copied.
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

/// The list with the entry of these settings.
fn chained_list() -> String {
    content(&after(&chained(), node(BinaryState::Same, vec![file("10-a.conflist", LIST)])), "10-a.conflist")
}

fn removed(settings: &Settings, mut node: Snapshot) -> Snapshot {
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
    // The next copy has the entry. Multus then runs the plugin once nevertheless.
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

/// Multus writes its file again, beside the list into which the former one was converted.
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
