//! Tests of the ways in which values are given: by a parent chart, beside values of other charts, as text, and under the names
//! where a chart has its defaults.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::helm::{AGENT, Chart, INJECTOR, NAMESPACE};
use crate::tool::HELM;

/// Copies a chart, with a further template, to `to`.
fn copy(chart: Chart, to: &Path, template: &str) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    assert!(Command::new("cp").args(["-r", &chart.directory()]).arg(to).status().unwrap().success());
    fs::write(to.join("templates/zz-test.yaml"), template).unwrap();
}

/// Renders a chart in a directory.
fn template(directory: &Path, flags: &[&str]) -> Result<String, String> {
    let mut command = Command::new(HELM.program().unwrap());
    command.arg("template").args(["x", directory.to_str().unwrap(), "--namespace", NAMESPACE]).args(flags);
    let output = command.args(["--kube-version", "1.33.0"]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// A chart of which another chart is a part.
fn parent(chart: Chart) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(chart, &dir.path().join("charts").join(chart.name), "");
    let name = chart.name;
    let depends = format!("dependencies: [{{name: {name}, version: '*', condition: {name}.enabled}}]");
    fs::write(dir.path().join("Chart.yaml"), format!("apiVersion: v2\nname: all\nversion: 1.0.0\n{depends}\n"))
        .unwrap();
    dir
}

/// A part of another chart renders what the chart itself does. helm removes values from it that are null.
pub(crate) fn by_a_parent_chart() {
    for chart in [AGENT, INJECTOR] {
        let (parent, name) = (parent(chart), chart.name);
        let rendered =
            |flags: &[&str]| template(parent.path(), flags).unwrap_or_else(|error| panic!("{name}: {error}"));
        for release in [&[][..], &["--is-upgrade"]] {
            let alone = template(Path::new(&chart.directory()), release).unwrap();
            assert_eq!(rendered(release).replace("all/charts/", ""), alone, "{name}: {release:?}");
        }
        assert_eq!(rendered(&["--set", &format!("{name}.enabled=false")]).trim(), "", "{name}");
    }
    let parent = parent(AGENT);
    let error = |value: &str| template(parent.path(), &["--set", value]).unwrap_err();
    assert!(template(parent.path(), &["--set", "istio-cni.repair.mode=label"]).unwrap().contains("REPAIR_MODE: label"));
    assert!(error("istio-cni.repair.moode=label").contains("at '/repair': additional properties 'moode'"));
    assert!(error("istio-cni.defaults.repair.mode=label").contains("under `defaults`: repair.mode"));
}

/// A value under `defaults` has no effect: it is refused, unless a former release had it there. Then the notes name it.
pub(crate) fn under_names_of_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let chart = dir.path().join("chart");
    copy(AGENT, &chart, "notes: {{ include \"istio-cni/templates/NOTES.txt\" . | quote }}\n");
    for release in [&[][..], &["--is-upgrade"]] {
        for (value, named) in [("repair.mode=label", "repair.mode"), ("bogus=1", "bogus"), ("env.A=b", "env.A")] {
            let value = format!("defaults.{value}");
            let error = template(&chart, &[release, &["--set", &value]].concat()).unwrap_err();
            let reason = format!("values are given under `defaults`: {named}: write them without that name");
            assert!(error.contains(&reason), "{value}: {error}");
        }
    }
    let notes = |flags: &[&str]| {
        let text = template(&chart, flags).unwrap();
        text.lines().find(|line| line.starts_with("notes:")).unwrap().to_owned()
    };
    let unread = "are not read";
    let (istios, mode) =
        ("_internal_defaults_do_not_set.cniBinDir=/x", "_internal_defaults_do_not_set.repair.mode=label");
    for values in [&[][..], &["--is-upgrade"], &["--set", "repair.mode=label"]] {
        assert!(!notes(values).contains(unread), "{}", notes(values));
    }
    for values in [&["--set", istios, "--set", mode][..], &["--is-upgrade", "--set", istios, "--set", mode]] {
        let notes = notes(values);
        assert!(notes.contains(unread), "{notes}");
        assert!(notes.contains("cniBinDir=\\\"/x\\\"") && notes.contains("repair.mode=\\\"label\\\""), "{notes}");
    }
    let former = ["--is-upgrade", "--set", "defaults.global.tag=0.0.9", "--set", "defaults.repair.mode=label"];
    let notes = notes(&former);
    assert!(notes.contains(unread) && notes.contains("repair.mode=\\\"label\\\""), "{notes}");
}

/// A name of `global` that is another chart's is ignored. One that is near to a name of this chart is mistyped.
pub(crate) fn beside_global_values_of_other_charts() {
    let others = [
        "imageRegistry",
        "storageClass",
        "tags",
        "tls",
        "env",
        "region",
        "network",
        "domain",
        "postgresql",
        "image",
        "meshID",
        "priorityClassName",
        "security",
        "labels",
    ];
    for chart in [AGENT, INJECTOR] {
        let given: Vec<String> = others.iter().map(|name| format!("global.{name}={{\"a\": [1]}}")).collect();
        let mut given: Vec<&str> = given.iter().map(String::as_str).collect();
        given.extend(["global.logging.format=\"json\"", "global.networkPolicy.allowExternal=true"]);
        assert_eq!(chart.text(&given), chart.text(&[]), "{}", chart.name);
        for (mistyped, meant) in [
            ("platfrom", "platform"),
            ("Platform", "platform"),
            ("hbu", "hub"),
            ("Tag", "tag"),
            ("imagePullPolcy", "imagePullPolicy"),
            ("logAsJSON", "logAsJson"),
            ("logging.levle", "logging.level"),
            ("networkPolicy.enable", "networkPolicy.enabled"),
        ] {
            let error =
                chart.try_text(&[&format!("global.{mistyped}=\"x\"")]).map(|_| String::new()).unwrap_or_else(|e| e);
            let reason = format!("global.{mistyped} is unknown: is global.{meant} meant?");
            assert!(error.contains(&reason), "{}: {reason}: {error}", chart.name);
        }
    }
}
