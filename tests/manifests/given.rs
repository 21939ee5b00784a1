//! Tests of the ways in which values are given: by a parent chart, together with values of other charts, as strings, and under the names
//! where a chart has its defaults.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::helm::{AGENT, Chart, INJECTOR, NAMESPACE};
use crate::tool::HELM;

/// Copies a chart, with an additional template, to `to`.
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

/// Creates a chart with this chart as a subchart.
fn parent(chart: Chart) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(chart, &dir.path().join("charts").join(chart.name), "");
    let name = chart.name;
    let depends = format!("dependencies: [{{name: {name}, version: '*', condition: {name}.enabled}}]");
    fs::write(dir.path().join("Chart.yaml"), format!("apiVersion: v2\nname: all\nversion: 1.0.0\n{depends}\n"))
        .unwrap();
    dir
}

/// As a subchart, a chart must render the same as alone, although helm removes null values from a subchart's values.
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

/// A value under `defaults` has no effect. It must be refused or, if an upgrade takes it from an earlier release, named in the notes.
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

/// Names in `global` that belong to other charts must be ignored. A name similar to one of this chart's names is a typing error and must be
/// refused.
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

/// Values must have the same effect in these forms: `--set-string` makes strings of all values, YAML reads some strings without quotes as
/// numbers or booleans, and a list may be one string with commas.
pub(crate) fn as_text_or_without_quotes() {
    let same = [
        (AGENT, r#"repair.enabled="false""#, "repair.enabled=false"),
        (AGENT, r#"repair={"repairPods": "false", "deletePods": "true"}"#, r#"repair.mode="delete""#),
        (AGENT, r#"global.logAsJson="true""#, "global.logAsJson=true"),
        (AGENT, r#"chained="false""#, "chained=false"),
        (AGENT, r#"terminationGracePeriodSeconds="60""#, "terminationGracePeriodSeconds=60"),
        (AGENT, r#"repair.budget="5""#, "repair.budget=5"),
        (AGENT, r#"repair={"mode": "label", "brokenPodLabelValue": true}"#, r#"repair.mode="label""#),
        (AGENT, r#"excludeNamespaces="a, b""#, r#"excludeNamespaces=["a", "b"]"#),
        (AGENT, r#"excludeNamespaces="""#, "excludeNamespaces=[]"),
        (AGENT, r#"global.imagePullSecrets="a""#, r#"global.imagePullSecrets=["a"]"#),
        (AGENT, "compatibilityVersion=1.24", "revision=null"),
        (AGENT, "compatibilityVersion=1.3", "revision=null"),
        (AGENT, r#"profile="minimal""#, "revision=null"),
        (AGENT, r#"profile="openshift""#, r#"global.platform="openshift""#),
        (AGENT, r#"monitoring.podMonitor={"enabled": true, "interval": ""}"#, "monitoring.podMonitor.enabled=true"),
        (AGENT, "revision=12000000", r#"revision="12000000""#),
        (AGENT, "tag=20241101", r#"tag="20241101""#),
        (INJECTOR, "global.tag=20241101", r#"global.tag="20241101""#),
        (INJECTOR, "nativeSidecars=true", r#"nativeSidecars="true""#),
        (INJECTOR, "nativeSidecars=false", r#"nativeSidecars="false""#),
        (INJECTOR, r#"sidecarInjectorWebhook.timeoutSeconds="20""#, "sidecarInjectorWebhook.timeoutSeconds=20"),
        (INJECTOR, r#"excludeNamespaces="a,b""#, r#"excludeNamespaces=["a", "b"]"#),
        (INJECTOR, r#"excludeNamespaces=["a,b"]"#, r#"excludeNamespaces=["a", "b"]"#),
        (INJECTOR, r#"statusPage.enabled="false""#, "statusPage.enabled=false"),
        (INJECTOR, "env.A=1000000", r#"env.A="1000000""#),
    ];
    for (chart, given, meant) in same {
        assert_eq!(chart.text(&[given]), chart.text(&[meant]), "{given}");
    }
    let mode = |value: &str| AGENT.text(&[r#"repair.mode="repair""#, value]);
    assert_eq!(mode(r#"useAppArmorAnnotation="false""#), mode("useAppArmorAnnotation=false"));
    let weekly = AGENT.text(&["monitoring.podMonitor.enabled=true", r#"monitoring.podMonitor.interval="1w""#]);
    assert!(weekly.contains("interval: 1w"), "{weekly}");
}

/// Large numbers must not be written with an exponent, with which neither Kubernetes nor a program reads an integer.
pub(crate) fn as_large_numbers() {
    let large = 3_000_000;
    let rendered = |chart: Chart, values: &[&str], line: String| {
        let text = chart.text(values);
        assert!(text.contains(&line), "{line}: {text}");
    };
    for given in [format!("{large}"), format!("\"{large}\"")] {
        let grace = format!("terminationGracePeriodSeconds={given}");
        rendered(AGENT, &[&grace], format!("terminationGracePeriodSeconds: {large}\n"));
        rendered(AGENT, &[&format!("repair.budget={given}")], format!("REPAIR_BUDGET: \"{large}\""));
        let quota = ["resourceQuotas.enabled=true", &format!("resourceQuotas.pods={given}")];
        rendered(AGENT, &quota, format!("pods: \"{large}\""));
        rendered(INJECTOR, &[&grace], format!("terminationGracePeriodSeconds: {large}\n"));
        rendered(INJECTOR, &[&format!("replicaCount={given}")], format!("replicas: {large}\n"));
        rendered(INJECTOR, &[&format!("certificate.days={given}")], format!("--selfSignedDays={large}\n"));
        rendered(INJECTOR, &[&grace, &format!("lingerSeconds={}", large - 20)], format!("--linger={}\n", large - 20));
    }
    rendered(AGENT, &["resources.limits.memory=100000000"], "memory: 100000000\n".to_owned());
}
