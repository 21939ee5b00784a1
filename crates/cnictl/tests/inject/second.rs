//! Tests of second reviews of injected pods, which are unchanged or were changed after the first review.

use inject::istio::{BuiltIn, Config, InjectionOutcome, Injector, Request, Settings};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use serde_json::{Value, json};

use super::property::{equal, pod, review, run};

type Check = fn() -> Result<(), Failed>;

const STATUS: &str = "sidecar.istio.io/status";

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 5] = [
        ("changed applications stay as they are, and a third review changes nothing", changed_applications),
        ("a changed sidecar is the template's again, and keeps what is beside the template", changed_sidecar),
        ("templates see the changed applications and no injected container", template_data),
        ("containers that the status names are not overrides", no_override),
        ("probes that are new are added to those that the sidecar has", new_probes),
    ];
    checks.into_iter().map(|(name, check)| Trial::test(format!("second review/{name}"), check)).collect()
}

/// Returns the pod after a review.
fn injected(injector: &Injector, pod: &Value, native: bool) -> Result<Value, Failed> {
    match review(injector, pod, native)? {
        InjectionOutcome::Injected { injected, .. } => Ok(injected.pod),
        InjectionOutcome::Skipped(decision) => Err(decision.sentence().into()),
    }
}

/// Returns the containers of both lists: those named `istio-proxy`, or all other containers if `named` is false.
fn containers(pod: &mut Value, named: bool) -> Vec<&mut Value> {
    let Some(spec) = pod["spec"].as_object_mut() else { return Vec::new() };
    let lists = spec.iter_mut().filter(|(key, _)| key.ends_with("ontainers"));
    let all = lists.flat_map(|(_, list)| list.as_array_mut().into_iter().flatten());
    all.filter(|container| (container["name"] == "istio-proxy") == named).collect()
}

/// Generates a change of a container by another webhook or the pod's author.
fn change() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        Just(("image", json!("changed:2"))),
        Just(("env", json!([{"name": "CHANGED", "value": "1"}]))),
        Just(("resources", json!({"limits": {"cpu": "7"}, "requests": {"memory": "9Mi"}}))),
        Just(("args", json!(["--changed"]))),
        Just(("terminationMessagePath", json!("/changed"))),
    ]
}

fn changed_applications() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    let changes = proptest::collection::vec(change(), 0..4);
    run(&(pod(), changes, any::<bool>()), |(pod, changes, native)| {
        let mut changed = injected(&injector, &pod, native)?;
        let injected_names = ["istio-validation", "istio-init"].map(Value::from);
        for container in containers(&mut changed, false).into_iter().filter(|c| !injected_names.contains(&c["name"])) {
            changes.iter().for_each(|(key, value)| container[*key] = value.clone());
        }
        let twice = injected(&injector, &changed, native)?;
        equal(&changed, &twice, "the second review")?;
        equal(&twice, &injected(&injector, &twice, native)?, "the third review")
    })
}

fn changed_sidecar() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    let changes = proptest::collection::vec(change(), 0..4);
    run(&(pod(), changes, any::<bool>()), |(pod, changes, native)| {
        let once = injected(&injector, &pod, native)?;
        let mut changed = once.clone();
        for sidecar in containers(&mut changed, true) {
            for (key, value) in &changes {
                match (&mut sidecar[*key], value) {
                    (Value::Array(old), Value::Array(new)) if *key == "env" => old.extend(new.iter().cloned()),
                    (old, new) => *old = new.clone(),
                }
            }
        }
        let mut twice = injected(&injector, &changed, native)?;
        equal(&twice, &injected(&injector, &twice, native)?, "the third review")?;
        let mut expected = once;
        for sidecar in containers(&mut expected, true) {
            for (key, value) in &changes {
                match *key {
                    "env" => sidecar["env"]
                        .as_array_mut()
                        .ok_or("it has none")?
                        .extend(value.as_array().cloned().unwrap_or_default()),
                    "terminationMessagePath" => sidecar[*key] = value.clone(),
                    _ => {}
                }
            }
        }
        // The position of a variable does not matter.
        for pod in [&mut twice, &mut expected] {
            for env in containers(pod, true).into_iter().filter_map(|sidecar| sidecar["env"].as_array_mut()) {
                env.sort_by_key(Value::to_string);
                env.dedup();
            }
        }
        equal(&expected, &twice, "the second review")
    })
}

fn of_template(template: &str) -> Result<Injector, Failed> {
    Ok(Injector::new(Config { settings: Settings::from_template(template)?, ..BuiltIn::default().config()? }))
}

fn template_data() -> Result<(), Failed> {
    let injector = of_template(
        "metadata: {annotations: {seen: '{{ range .Spec.InitContainers }}{{ .Name }} {{ end }}{{ range .Spec.Containers }}{{ .Name }}={{ range .Ports }}{{ .ContainerPort }}{{ end }} {{ end }}'}}
spec:
  initContainers: [{name: istio-init, image: i}]
  containers: [{name: istio-proxy, image: p, ports: [{containerPort: 15090}]}]
",
    )?;
    let app = |port: u16| json!({"name": "app", "ports": [{"containerPort": port}]});
    let mut once = injected(&injector, &json!({"metadata": {}, "spec": {"containers": [app(80)]}}), false)?;
    equal(&json!("app=80 "), &once["metadata"]["annotations"]["seen"], "the first review")?;
    once["spec"]["containers"][0] = app(81);
    let twice = injected(&injector, &once, false)?;
    equal(&json!("app=81 "), &twice["metadata"]["annotations"]["seen"], "the second review")?;

    let own = json!({"name": "istio-proxy", "ports": [{"containerPort": 7}]});
    let once = injected(&injector, &json!({"metadata": {}, "spec": {"containers": [app(80), own]}}), false)?;
    equal(
        &json!("app=80 istio-proxy=7 "),
        &once["metadata"]["annotations"]["seen"],
        "the first review, its own sidecar",
    )?;
    let twice = injected(&injector, &once, false)?;
    equal(&once, &twice, "the second review, its own sidecar")
}

fn no_override() -> Result<(), Failed> {
    let old = of_template("spec: {containers: [{name: istio-proxy, image: 'r/p:1', args: [a]}]}")?;
    let new = of_template("spec: {containers: [{name: istio-proxy, image: 'r/p:2'}]}")?;
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app"}]}});
    let once = injected(&old, &pod, false)?;
    let twice = injected(&new, &once, false)?;
    // The other template has no arguments, so the container has none.
    equal(&json!({"name": "istio-proxy", "image": "r/p:2"}), &twice["spec"]["containers"][1], "another template")?;
    equal(&Value::Null, &twice["metadata"]["annotations"]["proxy.istio.io/overrides"], "the annotation")?;
    // If the status annotation is missing, the injector treats the sidecar as a container that the pod's author wrote.
    let mut own = once;
    own["metadata"]["annotations"].as_object_mut().and_then(|annotations| annotations.shift_remove(STATUS));
    let twice = injected(&new, &own, false)?;
    equal(&json!("r/p:1"), &twice["spec"]["containers"][1]["image"], "a sidecar of its own")?;
    let overrides = twice["metadata"]["annotations"]["proxy.istio.io/overrides"].as_str().ok_or("no annotation")?;
    let expected = json!({"containers": [{"name": "istio-proxy", "image": "r/p:1", "args": ["a"], "resources": {}}]});
    equal(&expected, &serde_json::from_str(overrides)?, "the annotation")
}

fn new_probes() -> Result<(), Failed> {
    let injector = of_template("spec: {containers: [{name: istio-proxy, image: p}]}")?;
    let metadata = json!({"annotations": {"sidecar.istio.io/rewriteAppHTTPProbers": "true"}});
    let app = json!({"name": "app", "livenessProbe": {"httpGet": {"port": 80, "path": "/l"}}});
    let mut once = injected(&injector, &json!({"metadata": metadata, "spec": {"containers": [app]}}), false)?;
    once["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 81}});
    let twice = injected(&injector, &once, false)?;
    let [variable] = twice["spec"]["containers"][1]["env"].as_array().map_or(&[][..], Vec::as_slice) else {
        return Err(twice["spec"]["containers"].to_string().into());
    };
    let expected = json!({"/app-health/app/livez": {"httpGet": {"path": "/l", "port": 80}},
        "/app-health/app/readyz": {"tcpSocket": {"port": 81}}});
    equal(&expected, &serde_json::from_str(variable["value"].as_str().ok_or("no text")?)?, "the sidecar's probes")?;
    let request = Request::new(&twice, "shop");
    match injector.review(&request)? {
        InjectionOutcome::Injected { injected, .. } if injected.patch().is_empty() => Ok(()),
        outcome => Err(format!("{outcome:?}").into()),
    }
}
