//! Tests of conversions of single plugins to lists, of what a removal restores, and of files that other programs have renamed.

use libcni::conflist::List;

use super::*;

#[test]
fn a_single_plugin_is_converted_to_a_list_before_its_file_is_removed() {
    let settings = chained();
    let mut before = after(&settings, node(BinaryState::Same, Vec::new()));
    before.networks = Ok(vec![file("10-a.conf", CONF)]);
    // The original is recorded first, so that a removal can restore it whenever the agent is killed.
    let expected = [
        step(Reason::Recorded, "write /net/.istio-cni.owned"),
        step(Reason::EntryMissing, "write /net/10-a.conflist"),
        step(Reason::Converted, "remove /net/10-a.conf"),
    ];
    assert_eq!(steps(&install(&settings, &before)), expected);
    // The agent is killed before each step; the next plan continues, and a removal restores the original.
    for killed in 0..3 {
        assert_eq!(steps(&install(&settings, &before)), expected[killed..]);
        assert_eq!(removed(&settings, before.clone()), vec![file("10-a.conf", CONF)], "after {killed} steps");
        let next = install(&settings, &before).steps.swap_remove(0);
        apply(&settings, &mut before, next.operation);
    }
    assert_eq!(removed(&settings, before), vec![file("10-a.conf", CONF)]);
}

#[test]
fn the_original_is_restored_when_the_entry_moves_to_another_network() {
    let (settings, original) = (chained(), file("20-b.conf", CONF));
    let mut node = after(&settings, node(BinaryState::Same, vec![original.clone()]));
    node.networks.as_mut().unwrap().insert(0, file("10-a.conflist", LIST));
    let expected = [
        step(Reason::EntryMissing, "write /net/10-a.conflist"),
        step(Reason::LeftBehind, "write /net/20-b.conf"),
        step(Reason::LeftBehind, "remove /net/20-b.conflist"),
    ];
    assert_eq!(steps(&install(&settings, &node)), expected);
    let node = after(&settings, node);
    assert_eq!(node.networks.as_ref().unwrap()[1], original);
    // Then the record names nothing that a removal would restore.
    let node = after(&settings, node);
    assert_eq!((node.record.clone().unwrap_or_default().is_empty(), steps(&install(&settings, &node))), (true, vec![]));
}

/// Returns the configurations after a removal; panics if one of its steps leaves the node without a network.
fn removed(settings: &InstallSettings, mut node: Snapshot) -> Vec<NetworkFile> {
    for step in removal(settings, &node, Scope::ALL, None).steps {
        apply(settings, &mut node, step.operation);
        assert!(node.networks.iter().flatten().count() > 0, "{node:?}");
    }
    assert_eq!(node.record, None);
    node.networks.unwrap()
}

#[test]
fn a_converted_file_is_put_back_by_a_removal_unless_something_newer_exists() {
    let settings = chained();
    let chained = after(&settings, node(BinaryState::Same, vec![file("10-a.conf", CONF)]));
    let list = chained.networks.as_ref().unwrap()[0].clone();
    let theirs = CONF.replace("bridge", "ptp");
    let text = |content: &[u8]| String::from_utf8(content.to_vec()).unwrap();
    let bare = text(&List::decode(&list.content).unwrap().without_entry().unwrap());
    let (extended, without) = (text(&list.content).replace("bridge", "ptp"), bare.replace("bridge", "ptp"));
    for (given, expected) in [
        // Its owner has written the file again, and the agent did not run.
        (vec![file("10-a.conf", &theirs), list.clone()], vec![file("10-a.conf", &theirs)]),
        (vec![file("10-a.conf", CONF), list.clone()], vec![file("10-a.conf", CONF)]),
        // Another program has written the list: without the entry, or with other plugins.
        (vec![file("10-a.conflist", &bare)], vec![file("10-a.conf", CONF)]),
        (vec![file("10-a.conflist", &extended)], vec![file("10-a.conflist", &without)]),
        // Another network has replaced it.
        (vec![file("20-b.conflist", LIST)], vec![file("20-b.conflist", LIST)]),
    ] {
        let node = Snapshot { networks: Ok(given), ..chained.clone() };
        assert_eq!(removed(&settings, node.clone()), expected, "{node:?}");
    }
}

fn aside(name: &str, content: &[u8]) -> SetAside {
    SetAside::of(name, content.to_vec(), 0o644).unwrap()
}

/// Returns the steps of a removal in the configuration directory, with what they write.
fn changes(settings: &InstallSettings, node: &Snapshot) -> Vec<(String, String)> {
    let steps = removal(settings, node, Scope::ALL, None).steps.into_iter();
    let steps = steps.filter(|step| step.operation.path().starts_with("/net"));
    let change = |operation: Operation| match &operation {
        Operation::Write { content, .. } => (format!("{operation:?}"), String::from_utf8_lossy(content).into_owned()),
        _ => (format!("{operation:?}"), String::new()),
    };
    steps.map(|step| change(step.operation)).collect()
}

fn change(operation: &str, content: &str) -> (String, String) {
    (operation.to_owned(), content.to_owned())
}

#[test]
fn the_entry_is_removed_from_files_that_another_program_has_renamed_and_from_no_others() {
    let settings = chained();
    let chained = after(&settings, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]));
    let content = chained.networks.as_ref().unwrap()[0].content.clone();
    let list = |name: &str| aside(name, &content);
    let foreign = ["10-b.conf.cilium_bak", "10-c.conflist.old"].map(|name| aside(name, CONF.as_bytes()));
    let node = Snapshot {
        networks: Ok(vec![file("05-cilium.conflist", LIST)]),
        set_aside: [list("10-a.conflist.cilium_bak"), list("87-b.conflist.mk_disabled")]
            .into_iter()
            .chain(foreign)
            .collect(),
        ..chained
    };
    let expected =
        [change("write /net/10-a.conflist.cilium_bak", LIST), change("write /net/87-b.conflist.mk_disabled", LIST)];
    assert_eq!(changes(&settings, &node), expected);
}

#[test]
fn files_of_this_program_that_another_one_has_renamed_are_removed() {
    for (mode, file_name) in [
        (Mode::Owned { primary: None, file: "03-mesh.conflist".to_owned() }, "03-mesh.conflist"),
        (Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() }, "02-istio-cni.conflist"),
        (Mode::Standalone { file: "YYY-istio-cni.conf".to_owned() }, "YYY-istio-cni.conf"),
    ] {
        let settings = settings(mode);
        let mut node = after(&settings, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]));
        let files = node.networks.as_mut().unwrap();
        let own = files.iter().position(|file| file.name == file_name).unwrap();
        let renamed = format!("{file_name}.cilium_bak");
        node.set_aside = vec![aside(&renamed, &files.remove(own).content)];
        assert_eq!(changes(&chained(), &node)[0], change(&format!("remove /net/{renamed}"), ""));
        // Another program's file of that name stays.
        node.set_aside = vec![aside(&renamed, LIST.as_bytes())];
        assert!(changes(&chained(), &node).iter().all(|(operation, _)| !operation.contains("cilium_bak")));
    }
}

/// The agent's record still names the copy after a change of the mode.
#[test]
fn a_renamed_copy_of_a_former_mode_is_removed() {
    let owned = settings(Mode::Owned { primary: None, file: "03-mesh.conflist".to_owned() });
    let mut node = after(&owned, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]));
    let copy = node.networks.as_mut().unwrap().remove(0);
    node.set_aside = vec![aside("03-mesh.conflist.cilium_bak", &copy.content)];
    let node = after(&chained(), node);
    let removed = change("remove /net/03-mesh.conflist.cilium_bak", "");
    assert!(changes(&chained(), &node).contains(&removed), "{node:?}");
}

/// Without the plugin the program would have renamed the file of the single plugin.
#[test]
fn the_original_of_a_renamed_list_gets_the_lists_suffix() {
    let settings = chained();
    let mut node = after(&settings, node(BinaryState::Same, vec![file("10-a.conf", CONF)]));
    let list = std::mem::replace(&mut node.networks, Ok(vec![file("05-cilium.conflist", LIST)])).unwrap().remove(0);
    node.set_aside = vec![aside("10-a.conflist.cilium_bak", &list.content)];
    let expected = [
        change("write /net/10-a.conf.cilium_bak", CONF),
        change("remove /net/10-a.conflist.cilium_bak", ""),
        change("remove /net/.istio-cni.owned", ""),
    ];
    assert_eq!(changes(&settings, &node), expected);
}

#[test]
fn a_recorded_file_that_no_runtime_reads_is_not_selected() {
    let named = settings(Mode::Chained { primary: Some("00-named.file".to_owned()) });
    let given = vec![file("00-named.file", LIST), file("10-a.conflist", LIST)];
    let before = after(&named, node(BinaryState::Same, given.clone()));
    assert!(before.record.as_ref().unwrap().names("00-named.file"));
    // The operator no longer names the file.
    let owned = settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() });
    for (settings, network) in [(chained(), "/net/10-a.conflist"), (owned, "/net/02-istio-cni.conflist")] {
        let plan = install(&settings, &before);
        assert_eq!((plan.network.as_deref(), plan.obstacles.as_slice()), (Some(network.as_ref()), &[][..]), "{plan:?}");
        let node = after(&settings, before.clone());
        let found = node.networks.iter().flatten().find(|file| file.name == "00-named.file");
        assert_eq!(found, Some(&given[0]), "the entry is removed");
    }
}

#[test]
fn the_original_is_restored_when_the_mode_becomes_a_copy() {
    let (original, owned) =
        (file("10-a.conf", CONF), settings(Mode::Owned { primary: None, file: "02-a.conflist".to_owned() }));
    let before = after(&chained(), node(BinaryState::Same, vec![original.clone()]));
    let once = after(&owned, before);
    let twice = after(&owned, once);
    assert_eq!(steps(&install(&owned, &twice)), []);
    let networks = twice.networks.as_ref().unwrap();
    assert!(networks.contains(&original) && networks.iter().all(|file| file.name != "10-a.conflist"), "{networks:?}");
    assert_eq!(removed(&owned, twice.clone()), vec![original]);
}
