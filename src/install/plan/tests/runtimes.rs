//! Networks that a runtime would refuse, or not use: unknown versions, earlier files.

use super::*;

fn listed(name: &str, kinds: &[&str]) -> String {
    let plugins: Vec<String> = kinds.iter().map(|kind| format!(r#"{{"type":"{kind}"}}"#)).collect();
    format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{}]}}"#, plugins.join(","))
}

fn named(name: &str) -> Settings {
    settings(Mode::Chained { primary: Some(name.to_owned()) })
}

fn owned_of(name: &str) -> Settings {
    settings(Mode::Owned { primary: Some(name.to_owned()), file: "02-istio-cni.conflist".to_owned() })
}

fn texts(plan: &Plan) -> Vec<String> {
    plan.obstacles.iter().map(ToString::to_string).collect()
}

/// Asserts that a plan has one obstacle with these words.
fn assert_waits(plan: &Plan, words: &[&str]) {
    let texts = texts(plan);
    let [text] = texts.as_slice() else { panic!("{plan:?}") };
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

/// Asserts that a plan has no obstacle, and one warning with these words.
fn assert_warns(plan: &Plan, words: &[&str]) {
    let [text] = plan.warnings.as_slice() else { panic!("{plan:?}") };
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert_eq!(plan.obstacles, []);
}

/// Whether the file of this name has the entry after the plan.
fn has_entry(settings: &Settings, before: &Snapshot, name: &str) -> bool {
    let after = after(settings, before.clone());
    after.networks.iter().flatten().any(|file| file.name == name && select::names_the_plugin(file))
}

#[test]
fn a_network_of_a_version_that_the_plugin_does_not_know_gets_no_entry() {
    for version in ["1.1", "1.2.0"] {
        let list = listed("a", &["ptp"]).replace("1.0.0", version);
        let single = CONF.replace("0.3.1", version);
        for (name, content) in [("10-a.conflist", &list), ("10-a.conf", &single)] {
            let before = node(BinaryState::Same, vec![file(name, content), file("20-b.conflist", LIST)]);
            let path = format!("/net/{name} has the version \"{version}\"");
            for settings in [chained(), named(name), owned_of(name)] {
                let plan = install(&settings, &before);
                assert_waits(&plan, &[&path, "set cniVersion to one of 0.1.0, ", " 1.1.0"]);
                assert!(plan.steps.iter().all(|step| step.reason == Reason::KubeconfigMissing), "{plan:?}");
            }
        }
    }
    let versions = listed("a", &["ptp"]).replace(r#""name""#, r#""cniVersions":["9.9.9"],"name""#);
    assert_eq!(texts(&install(&chained(), &node(BinaryState::Same, vec![file("a.conflist", &versions)]))), [""; 0]);
}

#[test]
fn an_earlier_file_than_the_named_one_is_an_obstacle_or_a_warning() {
    let unread = |name: &str| NetworkFile {
        unread: Some(Unread { path: format!("/net/{name}").into(), reason: "gone".to_owned(), is_denied: false }),
        ..file(name, "")
    };
    let with = |first: NetworkFile| node(BinaryState::Same, vec![first, file("20-b.conflist", LIST)]);
    let settings = named("20-b.conflist");
    let words = ["/net/10-a.conflist sorts before /net/20-b.conflist (CNI_CONF_NAME)", "cni_default_network"];
    assert_warns(&install(&settings, &with(file("10-a.conflist", &listed("a", &["ptp"])))), &words);
    for (first, words) in [
        (file("05-a.conflist", ""), "no runtime loads /net/05-a.conflist"),
        (file("05-a.conf", r#"{"name":5}"#), "no runtime loads /net/05-a.conf"),
        (unread("05-a.conflist"), "cannot read /net/05-a.conflist: gone"),
        (NetworkFile { is_recent: true, ..file("05-a.conflist", "{") }, "/net/05-a.conflist is not valid JSON yet"),
    ] {
        let before = with(first);
        assert_waits(&install(&settings, &before), &[words]);
        assert!(has_entry(&settings, &before, "20-b.conflist"), "{words}");
    }
    // Multus is the first file of the runtime, and runs the named network.
    let multus = r#"{"cniVersion":"0.3.1","name":"multus","type":"multus","clusterNetwork":"b"}"#;
    for before in [with(file("00-multus.conf", multus)), with(file("30-c.conflist", ""))] {
        let plan = install(&settings, &before);
        assert_eq!((texts(&plan), plan.warnings), (Vec::new(), Vec::new()));
    }
}

#[test]
fn a_broken_file_before_the_copy_of_a_named_network_is_an_obstacle() {
    let before = |first: &str| node(BinaryState::Same, vec![file(first, ""), file("20-b.conflist", LIST)]);
    let settings = owned_of("20-b.conflist");
    assert_waits(&install(&settings, &before("00-x.conflist")), &["no runtime loads /net/00-x.conflist"]);
    // The copy comes before the file.
    let plan = install(&settings, &before("10-x.conflist"));
    assert_eq!((texts(&plan), plan.warnings), (Vec::new(), Vec::new()));
}
