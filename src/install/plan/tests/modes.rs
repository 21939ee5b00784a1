//! What a change of mode, a killed agent and a removal without flags leave on a node.

use super::*;

/// Looks and carries out until nothing is left to do; after each step `look` sees the node.
fn settle(settings: &Settings, mut node: Snapshot, look: impl Fn(&Snapshot)) -> Snapshot {
    for _ in 0..4 {
        let steps = install(settings, &node).steps;
        if steps.is_empty() {
            return node;
        }
        for step in steps {
            carry_out(settings, &mut node, step.operation);
            look(&node);
        }
    }
    panic!("{:?}", install(settings, &node));
}

/// The file that a runtime loads, unless it has been told another name, has our entry.
fn is_chained(node: &Snapshot) -> bool {
    let files = node.networks.iter().flatten().filter(|file| file.name.ends_with("list"));
    files.into_iter().next().is_some_and(|file| String::from_utf8_lossy(&file.content).contains("istio-cni"))
}

#[test]
fn a_change_of_mode_cleans_up_after_the_former_one_and_so_does_a_removal_that_knows_no_mode() {
    let chained = |primary: Option<&str>| Mode::Chained { primary: primary.map(str::to_owned) };
    let owned = |file: &str| Mode::Owned { primary: Some("10-a.conflist".to_owned()), file: file.to_owned() };
    let alone = |file: &str| Mode::Standalone { file: file.to_owned() };
    let modes = [
        chained(None),
        chained(Some("named.file")),
        owned("02-istio-cni.conflist"),
        owned("03-mesh.conflist"),
        alone("YYY-istio-cni.conf"),
        alone("mesh.conf"),
    ];
    let original = node(BinaryState::Same, vec![file("10-a.conflist", LIST), file("named.file", LIST)]);
    let of_runtime = |mode: &Mode| matches!(mode, Mode::Owned { .. } | Mode::Chained { primary: None });
    for former in &modes {
        let before = settle(&settings(former.clone()), original.clone(), |_| ());
        for mode in &modes {
            let all_the_time = of_runtime(former) && of_runtime(mode);
            let watch =
                |node: &Snapshot| assert!(!all_the_time || is_chained(node), "{former:?} to {mode:?}: {node:?}");
            let node = settle(&settings(mode.clone()), before.clone(), watch);
            let fresh = settle(&settings(mode.clone()), original.clone(), |_| ());
            assert_eq!((&node.networks, &node.record), (&fresh.networks, &fresh.record), "{former:?} to {mode:?}");
        }
        let (mut node, settings) = (before, settings(chained(None)));
        for step in removal(&settings, &node, Scope::ALL).steps {
            carry_out(&settings, &mut node, step.operation);
        }
        assert_eq!((&node.networks, &node.record), (&original.networks, &None), "{former:?} without its flags");
    }
}

/// Killed at any step of one mode, the node is still cleaned up by the other.
#[test]
fn what_a_killed_agent_leaves_is_known_to_the_next() {
    let owned = settings(Mode::Owned { primary: None, file: "03-mesh.conflist".to_owned() });
    let original = node(BinaryState::Same, vec![file("10-a.conflist", LIST)]);
    let steps = install(&owned, &original).steps;
    for killed in 0..=steps.len() {
        let mut node = original.clone();
        steps.iter().take(killed).for_each(|step| carry_out(&owned, &mut node, step.operation.clone()));
        let node = settle(&chained(), node, |_| ());
        let names: Vec<&str> = node.networks.iter().flatten().map(|file| file.name.as_str()).collect();
        assert_eq!((names, &node.record), (vec!["10-a.conflist"], &None), "killed after {killed} of {steps:?}");
    }
}

/// Agents that kept no record wrote it.
#[test]
fn an_unrecorded_copy_of_the_usual_name_shadows_nothing() {
    let owned = settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() });
    let mut before = settle(&owned, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]), |_| ());
    before.record = None;
    let node = settle(&chained(), before, |node| assert!(is_chained(node), "{node:?}"));
    let names: Vec<&str> = node.networks.iter().flatten().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["10-a.conflist"]);
}

/// The owner writes its single plugin anew beside the list that was made of it, which has lost our entry.
#[test]
fn a_single_plugin_that_comes_back_is_converted_again() {
    let settings = chained();
    let mut node = settle(&settings, node(BinaryState::Same, vec![file("10-a.conf", CONF)]), |_| ());
    for step in removal(&settings, &node, Scope::ALL).steps {
        carry_out(&settings, &mut node, step.operation);
    }
    node.binaries.as_mut().unwrap()[0].state = BinaryState::Same;
    node.networks.as_mut().unwrap().insert(0, file("10-a.conf", CONF));
    let node = settle(&settings, node, |_| ());
    let names: Vec<&str> = node.networks.iter().flatten().map(|file| file.name.as_str()).collect();
    assert!(names == ["10-a.conflist"] && is_chained(&node), "{node:?}");
}

#[test]
fn a_file_of_another_program_is_neither_written_over_nor_removed() {
    let owned = |file: &str| settings(Mode::Owned { primary: None, file: file.to_owned() });
    let alone = settings(Mode::Standalone { file: "50-mesh.conflist".to_owned() });
    for (settings, name) in [
        (owned("02-istio-cni.conflist"), "02-istio-cni.conflist"),
        (owned("50-mesh.conflist"), "50-mesh.conflist"),
        (alone, "50-mesh.conflist"),
    ] {
        let theirs = LIST.replace("ptp", "bridge");
        let before = node(BinaryState::Same, vec![file(name, &theirs), file("60-a.conflist", LIST)]);
        let plan = install(&settings, &before);
        let said: Vec<String> = plan.obstacles.iter().map(ToString::to_string).collect();
        assert!(said.len() == 1 && said[0].contains(&format!("/net/{name} is another program's")), "{said:?}");
        let node = settle(&settings, before.clone(), |_| ());
        assert_eq!((&node.networks, &node.record), (&before.networks, &None), "{name}");
        let removal = removal(&settings, &node, Scope::ALL);
        assert!(!removal.steps.iter().any(|step| step.operation.path().starts_with("/net")), "{removal:?}");
    }
}
