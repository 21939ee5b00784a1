//! Tests of networks that a runtime would refuse, or not use: unknown versions, missing plugins, earlier files, CRI-O's default network.

use super::*;
use crate::install::settings::OfRuntime;

fn listed(name: &str, kinds: &[&str]) -> String {
    let plugins: Vec<String> = kinds.iter().map(|kind| format!(r#"{{"type":"{kind}"}}"#)).collect();
    format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{}]}}"#, plugins.join(","))
}

fn named(name: &str) -> InstallSettings {
    settings(Mode::Chained { primary: Some(name.to_owned()) })
}

fn owned_of(name: &str) -> InstallSettings {
    settings(Mode::Owned { primary: Some(name.to_owned()), file: "02-istio-cni.conflist".to_owned() })
}

fn auto(bin_dirs: &[&str], network: Option<&str>) -> InstallSettings {
    let bin_dirs = bin_dirs.iter().map(PathBuf::from).collect();
    InstallSettings { of_runtime: OfRuntime { bin_dirs, network: network.map(str::to_owned) }, ..chained() }
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
fn has_entry(settings: &InstallSettings, before: &Snapshot, name: &str) -> bool {
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
fn a_network_of_which_plugins_are_missing_may_be_ignored() {
    let list = listed("a", &["bridge", "bandwidth"]);
    let mut before = node(BinaryState::Same, vec![file("10-a.conflist", &list), file("20-b.conflist", LIST)]);
    let words = ["/net/10-a.conflist names bandwidth, which is ", "CRI-O ignores the network and uses the next one"];
    assert_warns(&install(&chained(), &before), &words);
    assert_warns(&install(&owned_of("10-a.conflist"), &before), &words);
    let found = auto(&["/bin", "/further"], None);
    let plan = install(&found, &before);
    assert_waits(&plan, &[words[0], words[1], "(/bin, /further)"]);
    assert!(has_entry(&found, &before, "10-a.conflist"), "it may be used once the plugin is there");
    before.searched = ["bandwidth".to_owned()].into();
    assert!(after(&found, before.clone()).networks.is_ok() && texts(&install(&found, &before)).is_empty());
}

#[test]
fn plugins_of_any_directory_that_the_runtime_searches_count() {
    let mut before = node(BinaryState::Same, vec![file("10-a.conflist", LIST)]);
    before.plugins.clear();
    assert_waits(&install(&chained(), &before), &["set cniBinDir to that directory"]);
    let found = auto(&["/bin", "/further"], None);
    assert_waits(&install(&found, &before), &["names ptp, which is in no directory that the runtime searches"]);
    assert!(!has_entry(&found, &before, "10-a.conflist"), "the runtime may search another directory");
    before.searched = ["ptp".to_owned()].into();
    assert_eq!(texts(&install(&found, &before)), [""; 0]);
}

#[test]
fn the_entry_is_in_the_network_that_cri_o_is_told_to_use() {
    let files = vec![file("10-a.conflist", &listed("a", &["ptp"])), file("20-b.conflist", &listed("b", &["ptp"]))];
    let before = node(BinaryState::Same, files);
    for (name, target) in [("b", "20-b.conflist"), ("a", "10-a.conflist")] {
        let found = auto(&["/bin"], Some(name));
        assert_eq!(texts(&install(&found, &before)), [""; 0]);
        for file in ["10-a.conflist", "20-b.conflist"] {
            assert_eq!(has_entry(&found, &before, file), file == target, "{name}: {file}");
        }
    }
    let plan = install(&auto(&["/bin"], Some("c")), &before);
    assert_waits(&plan, &["CRI-O uses the network \"c\" (cni_default_network), and no file in /net has it yet"]);
    let with_name = InstallSettings { of_runtime: auto(&["/bin"], Some("b")).of_runtime, ..named("20-b.conflist") };
    let plan = install(&with_name, &before);
    assert_eq!((texts(&plan), plan.warnings), (Vec::new(), Vec::new()));
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
    // Neither Multus, which runs the named network, nor a broken file after that network is an obstacle.
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
    // A broken file after the copy is not an obstacle.
    let plan = install(&settings, &before("10-x.conflist"));
    assert_eq!((texts(&plan), plan.warnings), (Vec::new(), Vec::new()));
}
