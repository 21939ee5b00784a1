//! Tests of pods that are injected again with other settings: the result must be the same as by the second injection
//! alone.

mod changes;
mod documents;
mod edits;
mod others;
mod records;
mod settings;

use std::path::Path;

use inject::istio::{BuiltIn, Injector};
use libtest_mimic::{Failed, Trial};
use podfacts::PodFacts;
use podfacts::Verdict;
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use self::others::{BOTH, By};
use self::settings::{CHOICES, Declined, Injection};
use super::equal::same;
use super::property;

/// The number of pods for each pair of settings.
const PODS: usize = 2;

type Check = fn() -> Result<(), Failed>;
/// Checks pairs of the settings in this directory.
type PairsCheck = fn(&Path) -> Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 6] = [
        ("a probe keeps its port where containers have ports of one name", ports_of_one_name),
        ("a native sidecar, and then none", no_longer_native),
        ("the author's sidecar keeps its list and its restart policy", restart_policy),
        ("what others added to the sidecar stays with the same settings", additions),
        ("changes of the applications stay with other settings", changed_applications),
        ("a pod that kube-inject injected is injected by the webhook", after_kube_inject),
    ];
    let mut trials: Vec<Trial> =
        checks.into_iter().map(|(name, check)| Trial::test(format!("again/{name}"), check)).collect();
    trials.extend(changes::trials());
    trials.extend(documents::trials());
    trials.extend(others::trials());
    trials.extend(records::trials());
    let corpus = tier::corpus_directory();
    let pairs: [(&str, PairsCheck); 3] = [
        ("again/an injected pod that was edited becomes what the edited pod becomes", edits::check),
        ("again/all pairs of settings", all_pairs),
        ("again/all pairs of settings by kube-inject", all_pairs_of_documents),
    ];
    for (name, check) in pairs {
        let settings = corpus.join("settings");
        trials.push(match settings.is_dir() {
            true => Trial::test(name, move || check(&settings)),
            false => tier::without_corpus(name, &settings),
        });
    }
    trials
}

/// Generates pods with everything that an injection changes.
fn pod() -> impl Strategy<Value = Value> {
    let part = (0..8_u8, 0..8_u8, 0..4_u8);
    (property::pod(), part).prop_map(|(mut pod, (spec, metadata, annotations))| {
        if spec & 1 > 0 {
            pod["spec"]["volumes"] = json!([{"name": "mine", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "istio-envoy", "emptyDir": {}}, {"name": "z"}]);
            pod["spec"]["imagePullSecrets"] = json!([{"name": "z"}, {"name": "mine"}]);
        }
        if spec & 2 > 0 {
            pod["spec"]["securityContext"] = json!({"runAsUser": 7, "sysctls": [{"name": "a", "value": "b"}]});
            pod["spec"]["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["mine"]}, {"ip": "10.0.0.2", "hostnames": ["b"]}]);
        }
        if spec & 4 > 0 {
            pod["spec"]["dnsConfig"] = json!({"searches": ["mine"]});
        }
        if metadata & 1 > 0 {
            pod["metadata"]["labels"] = json!({"app": "shop", "version": "v1", "team": "b"});
        }
        if metadata & 2 > 0 {
            pod["metadata"]["labels"]["security.istio.io/tlsMode"] = "istio".into();
            pod["metadata"]["labels"]["topology.istio.io/network"] = "mine".into();
        }
        if annotations & 1 > 0 {
            pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"] = "7,15020".into();
            pod["metadata"]["annotations"]["traffic.sidecar.istio.io/includeInboundPorts"] = "*".into();
        }
        if annotations & 2 > 0 {
            pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = "a".into();
            pod["metadata"]["annotations"]["prometheus.istio.io/scrape-targets"] = "8080:/a,9090".into();
        }
        pod
    })
}

/// Whether the values of these settings redirect the same traffic as Istio's default values.
fn are_usual(settings: &Path) -> bool {
    let values = std::fs::read_to_string(settings.join("values.json")).unwrap_or_default();
    let values: Value = serde_json::from_str(&values).unwrap_or_default();
    let proxy = &values["global"]["proxy"];
    let usual = [
        ("includeIPRanges", "*"),
        ("excludeIPRanges", ""),
        ("includeInboundPorts", "*"),
        ("excludeInboundPorts", ""),
        ("includeOutboundPorts", ""),
        ("excludeOutboundPorts", ""),
    ];
    usual.iter().all(|(key, value)| proxy[*key].as_str().unwrap_or_default() == *value)
}

/// Returns the injections with the settings of the corpus and with built-in ones. `all`: also with settings of the
/// corpus that redirect other traffic than usual.
fn injections(settings: &Path, all: bool) -> Result<Vec<Injection>, Failed> {
    let mut directories: Vec<_> = std::fs::read_dir(settings)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    directories.sort();
    directories.retain(|directory| all || are_usual(directory));
    let mut injections = Vec::new();
    for (choice, directory) in CHOICES.iter().zip(directories.iter().cycle()) {
        injections.push(choice.of_corpus(directory)?);
    }
    for choice in &CHOICES[..6] {
        injections.push(choice.of_built_in()?);
    }
    Ok(injections)
}

/// Checks that a second `kube-inject` gives the same document as the second alone, for all pairs of settings that redirect the usual
/// traffic, although `kube-inject` records no more than Istio where that suffices.
fn all_pairs_of_documents(settings: &Path) -> Result<(), Failed> {
    let injections = injections(settings, false)?;
    let probes = json!({"name": "app", "image": "i", "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 2},
        "readinessProbe": {"tcpSocket": {"port": 81}}, "startupProbe": {"grpc": {"port": 82}}});
    let own = json!({"name": "istio-proxy", "image": "auto", "env": [{"name": "A", "value": "b"}], "securityContext": {"runAsUser": 7}});
    let metrics = json!({"prometheus.io/port": "90", "prometheus.io/scrape": "true", "later": "x"});
    let pods = [
        simple(),
        json!({"metadata": {"labels": {"app": "shop", "version": "v1"}, "annotations": metrics}, "spec": {"containers": [probes], "initContainers": [{"name": "setup", "image": "s"}]}}),
        json!({"metadata": {"annotations": {"traffic.sidecar.istio.io/excludeInboundPorts": "7"}}, "spec": {"containers": [probes, own], "volumes": [{"name": "mine"}]}}),
    ];
    for (first, second) in injections.iter().flat_map(|first| injections.iter().map(move |second| (first, second))) {
        for pod in &pods {
            let pod = &first.with_image(second.with_image(pod.clone()));
            let what = format!("{} and then {}: {pod}", first.name, second.name);
            let failed = |error: Failed| Failed::from(format!("{what}\n{}", error.message().unwrap_or_default()));
            let expected = second.kube_inject(pod).map_err(failed)?;
            let twice = second.kube_inject(&first.kube_inject(pod)?).map_err(failed)?;
            same(&expected, &twice).map_err(failed)?;
        }
    }
    Ok(())
}

fn all_pairs(settings: &Path) -> Result<(), Failed> {
    let mut injections = injections(settings, true)?;
    injections.extend(Declined::all()?);
    let mut runner = TestRunner::default();
    for first in &injections {
        for second in &injections {
            for _ in 0..PODS {
                let pod = first.with_image(second.with_image(pod().new_tree(&mut runner)?.current()));
                let what = format!("{} and then {}: {pod}", first.name, second.name);
                let failed = |error: Failed| Failed::from(format!("{what}\n{}", error.message().unwrap_or_default()));
                let once = first.inject(&pod).map_err(failed)?;
                if second.declined.is_some() {
                    stays(second, &once).map_err(failed)?;
                    continue;
                }
                let expected = second.inject(&pod)?;
                let twice = second.inject(&once).map_err(failed)?;
                same(&expected, &twice).map_err(failed)?;
                same(&expected, &second.inject(&twice)?).map_err(failed)?;
                once_each(&twice).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Checks that settings that inject no sidecar leave a pod unchanged, or refuse it if its validation would find no redirection then.
fn stays(declining: &Injection, pod: &Value) -> Result<(), Failed> {
    let asked = declining.asked(pod);
    let inits = asked["spec"]["initContainers"].as_array().map_or(&[][..], Vec::as_slice);
    let has = |name: &str| inits.iter().any(|container| container["name"] == name);
    let facts = PodFacts::from_pod_json(asked.to_string().as_bytes())?;
    let is_redirected = has("istio-init") || matches!(podfacts::of_pod(&facts)?, Verdict::Redirect { .. });
    match declining.inject(pod) {
        Ok(_) if is_redirected || !has("istio-validation") => Ok(()),
        Err(failed) if !is_redirected && has("istio-validation") => {
            let message = failed.message().unwrap_or_default();
            message.contains("it is of a former injection").then_some(()).ok_or_else(|| message.into())
        }
        Ok(left) => Err(format!("it never starts: {left}").into()),
        Err(failed) => Err(failed),
    }
}

/// Fails if two injected containers of a pod have the same name.
fn once_each(pod: &Value) -> Result<(), Failed> {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().cloned().unwrap_or_default());
    let mut names: Vec<String> = lists.iter().flatten().map(|container| container["name"].to_string()).collect();
    names.retain(|name| name.starts_with("\"istio-"));
    names.sort();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    twice.map_or(Ok(()), |pair| Err(format!("{} occurs twice", pair[0]).into()))
}

fn built_in(native: bool) -> Result<Injection, Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    Ok(Injection { name: format!("native {native}"), injector, native, declined: None })
}

fn simple() -> Value {
    json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "i"}]}})
}

fn no_longer_native() -> Result<(), Failed> {
    let (native, plain) = (built_in(true)?, built_in(false)?);
    let own = json!({"metadata": {}, "spec": {"containers": [{"name": "istio-proxy", "image": "auto", "env": [{"name": "A", "value": "b"}]}, {"name": "app", "image": "i"}]}});
    for pod in [simple(), own] {
        for (first, second) in [(&native, &plain), (&plain, &native)] {
            let twice = second.inject(&first.inject(&pod)?)?;
            once_each(&twice)?;
            same(&second.inject(&pod)?, &twice)?;
            // Documents of `kube-inject` contain no record except Istio's own.
            let twice = second.kube_inject(&first.kube_inject(&pod)?)?;
            once_each(&twice)?;
            same(&second.kube_inject(&pod)?, &twice)?;
        }
    }
    Ok(())
}

fn restart_policy() -> Result<(), Failed> {
    let (native, plain) = (built_in(true)?, built_in(false)?);
    let app = json!({"name": "app", "image": "i", "ports": [{"containerPort": 80}]});
    for own in [json!({"restartPolicy": "Always"}), json!({"tty": true})] {
        let mut own = own;
        // The order of the ports in a variable of the sidecar shows in which list the sidecar is.
        own["ports"] = json!([{"containerPort": 7}]);
        own["name"] = "istio-proxy".into();
        own["image"] = "auto".into();
        for spec in [json!({"containers": [app, own]}), json!({"containers": [app], "initContainers": [own]})] {
            let pod = json!({"metadata": {}, "spec": spec});
            for (first, second) in [(&native, &plain), (&plain, &native), (&native, &native), (&plain, &plain)] {
                for by in BOTH {
                    let twice = by.inject(second, &by.inject(first, &pod)?)?;
                    same(&by.inject(second, &pod)?, &twice).map_err(|failed| {
                        let message = failed.message().unwrap_or_default();
                        Failed::from(format!("{by:?}, {}, {}: {spec}: {message}", first.name, second.name))
                    })?;
                }
            }
        }
    }
    Ok(())
}

/// Checks probes with ports whose names are unique only within a container. The record of a review contains the port as its author wrote
/// it; without that record, the number of a named port of the container is restored as the name.
fn ports_of_one_name() -> Result<(), Failed> {
    let (first, second) = (built_in(true)?, built_in(false)?);
    let http = |port: u16| json!([{"name": "http", "containerPort": port}]);
    for (port, restored) in [(json!(8080), json!(8080)), (json!(9000), json!("http")), (json!("http"), json!("http"))] {
        let app = json!({"name": "app", "image": "i", "ports": http(8080)});
        let other =
            json!({"name": "b", "image": "i", "ports": http(9000), "livenessProbe": {"httpGet": {"port": port}}});
        let pod = |other: Value| json!({"metadata": {}, "spec": {"containers": [app, other]}});
        for by in BOTH {
            let mut named = other.clone();
            if matches!(by, By::KubeInject) {
                named["livenessProbe"]["httpGet"]["port"] = restored.clone();
            }
            for next in [&first, &second] {
                let twice = by.inject(next, &by.inject(&first, &pod(other.clone()))?)?;
                same(&by.inject(next, &pod(named.clone()))?, &twice)?;
            }
        }
    }
    Ok(())
}

/// Returns the sidecar of a pod.
fn sidecar(pod: &mut Value) -> Result<&mut Value, Failed> {
    let lists = pod["spec"].as_object_mut().ok_or("no spec")?;
    let containers =
        lists.iter_mut().filter(|(key, _)| key.ends_with("ontainers")).filter_map(|(_, list)| list.as_array_mut());
    containers.flatten().find(|container| container["name"] == "istio-proxy").ok_or_else(|| "no sidecar".into())
}

fn additions() -> Result<(), Failed> {
    for native in [true, false] {
        let injection = built_in(native)?;
        let mut changed = injection.inject(&simple())?;
        let variable = json!({"name": "ADDED", "value": "1"});
        sidecar(&mut changed)?["env"].as_array_mut().ok_or("no env")?.push(variable.clone());
        changed["spec"]["containers"].as_array_mut().ok_or("none")?.insert(0, json!({"name": "agent", "image": "a"}));
        let mut twice = injection.inject(&changed)?;
        let kept = sidecar(&mut twice)?["env"].as_array().is_some_and(|env| env.contains(&variable));
        if !kept || twice["spec"]["containers"][0]["name"] != "agent" {
            return Err(format!("native {native}: {twice}").into());
        }
        same(&twice, &injection.inject(&twice)?)?;
        // With other settings, the addition is lost: no record distinguishes it from what the former settings added.
        let mut other = built_in(!native)?.inject(&changed)?;
        if sidecar(&mut other)?["env"].as_array().is_some_and(|env| env.contains(&variable)) {
            return Err(format!("other than native {native}: {other}").into());
        }
    }
    Ok(())
}

fn changed_applications() -> Result<(), Failed> {
    let (first, second) = (built_in(true)?, built_in(false)?);
    let mut changed = first.inject(&simple())?;
    changed["spec"]["containers"][0]["image"] = "changed:2".into();
    changed["spec"]["containers"][0]["env"] = json!([{"name": "B", "value": "c"}]);
    changed["spec"]["volumes"].as_array_mut().ok_or("none")?.push(json!({"name": "later"}));
    changed["metadata"]["annotations"]["later"] = "yes".into();
    let mut expected = simple();
    expected["spec"]["containers"][0]["image"] = "changed:2".into();
    expected["spec"]["containers"][0]["env"] = json!([{"name": "B", "value": "c"}]);
    expected["spec"]["volumes"] = json!([{"name": "later"}]);
    expected["metadata"]["annotations"] = json!({"later": "yes"});
    let (mut expected, mut twice) = (second.inject(&expected)?, second.inject(&changed)?);
    for pod in [&mut expected, &mut twice] {
        // The records differ: only the record of the first injection is about a pod without annotations.
        pod["metadata"]["annotations"]["sidecar.istio.io/status"].take();
    }
    same(&expected, &twice)
}

fn after_kube_inject() -> Result<(), Failed> {
    for (first, second) in [(true, false), (false, true), (true, true), (false, false)] {
        let (first, second) = (built_in(first)?, built_in(second)?);
        same(&second.inject(&simple())?, &second.inject(&first.kube_inject(&simple())?)?)?;
    }
    Ok(())
}
