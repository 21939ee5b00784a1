//! Tests of changes of the mode, of killed agents, and of removals without flags.

use super::*;

/// Plans and applies until a plan is empty; calls `check` after each step.
fn converge(settings: &InstallSettings, mut node: Snapshot, check: impl Fn(&Snapshot)) -> Snapshot {
    for _ in 0..4 {
        let steps = install(settings, &node).steps;
        if steps.is_empty() {
            return node;
        }
        for step in steps {
            apply(settings, &mut node, step.operation);
            check(&node);
        }
    }
    panic!("{:?}", install(settings, &node));
}

/// Whether the file that a runtime loads by default has the entry.
fn is_chained(node: &Snapshot) -> bool {
    let files = node.networks.iter().flatten().filter(|file| file.name.ends_with("list"));
    files.into_iter().next().is_some_and(|file| String::from_utf8_lossy(&file.content).contains("istio-cni"))
}

#[test]
fn a_change_of_mode_and_a_removal_without_flags_remove_files_of_every_former_mode() {
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
        let before = converge(&settings(former.clone()), original.clone(), |_| ());
        for mode in &modes {
            let all_the_time = of_runtime(former) && of_runtime(mode);
            let watch =
                |node: &Snapshot| assert!(!all_the_time || is_chained(node), "{former:?} to {mode:?}: {node:?}");
            let node = converge(&settings(mode.clone()), before.clone(), watch);
            let direct = converge(&settings(mode.clone()), original.clone(), |_| ());
            assert_eq!((&node.networks, &node.record), (&direct.networks, &direct.record), "{former:?} to {mode:?}");
        }
        let (mut node, settings) = (before, settings(chained(None)));
        for step in removal(&settings, &node, Scope::ALL, None).steps {
            apply(&settings, &mut node, step.operation);
        }
        assert_eq!((&node.networks, &node.record), (&original.networks, &None), "{former:?} without its flags");
    }
}

/// An agent is killed after each step in one mode; the next agent has another mode.
#[test]
fn the_next_agent_removes_the_files_of_a_killed_one() {
    let owned = settings(Mode::Owned { primary: None, file: "03-mesh.conflist".to_owned() });
    let original = node(BinaryState::Same, vec![file("10-a.conflist", LIST)]);
    let steps = install(&owned, &original).steps;
    for killed in 0..=steps.len() {
        let mut node = original.clone();
        steps.iter().take(killed).for_each(|step| apply(&owned, &mut node, step.operation.clone()));
        let node = converge(&chained(), node, |_| ());
        let names: Vec<&str> = node.networks.iter().flatten().map(|file| file.name.as_str()).collect();
        assert_eq!((names, &node.record), (vec!["10-a.conflist"], &None), "killed after {killed} of {steps:?}");
    }
}

/// The copy was made by a version that writes no record.
#[test]
fn an_unrecorded_copy_of_the_default_name_is_removed() {
    let owned = settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() });
    let mut before = converge(&owned, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]), |_| ());
    before.record = None;
    let node = converge(&chained(), before, |node| assert!(is_chained(node), "{node:?}"));
    let names: Vec<&str> = node.networks.iter().flatten().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["10-a.conflist"]);
}

/// The owner writes its single plugin again after a removal, which has restored it.
#[test]
fn a_single_plugin_that_is_written_again_is_converted_again() {
    let settings = chained();
    let mut node = converge(&settings, node(BinaryState::Same, vec![file("10-a.conf", CONF)]), |_| ());
    for step in removal(&settings, &node, Scope::ALL, None).steps {
        apply(&settings, &mut node, step.operation);
    }
    node.binaries.as_mut().unwrap()[0].state = BinaryState::Same;
    node.networks.as_mut().unwrap().insert(0, file("10-a.conf", CONF));
    let node = converge(&settings, node, |_| ());
    let names: Vec<&str> = node.networks.iter().flatten().map(|file| file.name.as_str()).collect();
    assert!(names == ["10-a.conflist"] && is_chained(&node), "{node:?}");
}

#[test]
fn a_file_of_another_program_is_neither_overwritten_nor_removed() {
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
        let texts: Vec<String> = plan.obstacles.iter().map(ToString::to_string).collect();
        assert!(texts.len() == 1 && texts[0].contains(&format!("/net/{name} belongs to another program")), "{texts:?}");
        let node = converge(&settings, before.clone(), |_| ());
        assert_eq!((&node.networks, &node.record), (&before.networks, &None), "{name}");
        let removal = removal(&settings, &node, Scope::ALL, None);
        assert!(!removal.steps.iter().any(|step| step.operation.path().starts_with("/net")), "{removal:?}");
    }
}
