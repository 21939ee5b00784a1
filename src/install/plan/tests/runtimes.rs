//! Networks that a runtime would refuse because of the plugin.

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
