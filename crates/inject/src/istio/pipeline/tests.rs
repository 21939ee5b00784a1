//! Tests of the choice of templates, of the sidecar's place, and of budgets.

use contract::container;
use gotemplate::Limits;
use serde_json::json;

use super::*;
use crate::istio::{BuiltIn, InjectionOutcome, Injector, Request, Settings};

/// Returns the labels of a pod that is injected with these templates, with a budget of `steps`.
fn labels(names: &str, steps: u64) -> Result<Value, Error> {
    let template = |name: &str| format!("{{metadata: {{labels: {{last: {name}, {name}: 'true'}}}}}}");
    let templates = json!({"a": template("a"), "b": template("b"), "c": template("c")});
    let config = json!({"policy": "enabled", "templates": templates, "aliases": {"both": ["a", "b"]}}).to_string();
    let settings = Settings::parse(&config, None)?;
    let injector = Injector::new(Config { settings, ..BuiltIn::default().config()? });
    let pod = json!({"metadata": {"annotations": {annotation::TEMPLATES: names}}});
    let budget = Budget::new(Limits { steps, ..Limits::default() });
    match injector.review(&Request { budget, ..Request::new(&pod, "shop") })? {
        InjectionOutcome::Injected { injected, .. } => Ok(injected.pod["metadata"]["labels"].clone()),
        InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
    }
}

/// Returns the pod that these templates make of a pod with this spec.
fn merged(templates: &[(&str, Value)], names: &str, native: bool, spec: &Value) -> Value {
    let text = |spec: &Value| Value::from(json!({"spec": spec}).to_string());
    let templates: Value = templates.iter().map(|(name, spec)| ((*name).to_owned(), text(spec))).collect();
    let settings = Settings::parse(&json!({"policy": "enabled", "templates": templates}).to_string(), None).unwrap();
    let injector = Injector::new(Config { settings, ..BuiltIn::default().config().unwrap() });
    let pod = json!({"metadata": {"annotations": {annotation::TEMPLATES: names}}, "spec": spec});
    match injector.review(&Request { native_sidecars: native, ..Request::new(&pod, "shop") }).unwrap() {
        InjectionOutcome::Injected { injected, .. } => injected.pod,
        InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
    }
}

#[test]
fn an_overlay_of_the_sidecar_is_merged_into_it_wherever_it_is() {
    let sidecar = json!({"name": "istio-proxy", "image": "p"});
    let native = json!({"name": "istio-proxy", "image": "p", "restartPolicy": "Always"});
    let named = json!({"name": "istio-proxy", "env": [{"name": "TEAM", "value": "a"}]});
    let always = json!({"name": "istio-proxy", "env": [{"name": "TEAM", "value": "a"}], "restartPolicy": "Always"});
    let own = json!({"name": "istio-proxy", "image": "auto", "env": [{"name": "OWN", "value": "b"}]});
    let mut always_own = own.clone();
    always_own["restartPolicy"] = "Always".into();
    let templates = [
        ("plain", json!({"containers": [sidecar]})),
        ("native", json!({"initContainers": [native]})),
        ("team", json!({"containers": [named]})),
        ("init", json!({"initContainers": [always]})),
    ];
    let app = json!({"name": "app", "image": "i"});
    let specs = [
        json!({"containers": [app]}),
        json!({"containers": [own, app]}),
        json!({"containers": [app], "initContainers": [always_own]}),
    ];
    for (names, place, other) in [
        ("native,team", INIT_CONTAINERS, CONTAINERS),
        ("team,native", INIT_CONTAINERS, CONTAINERS),
        ("team,native,init", INIT_CONTAINERS, CONTAINERS),
        ("plain,init", CONTAINERS, INIT_CONTAINERS),
        ("init,plain", CONTAINERS, INIT_CONTAINERS),
        ("init,team,plain", CONTAINERS, INIT_CONTAINERS),
    ] {
        for (spec, native) in specs.iter().flat_map(|spec| [(spec, true), (spec, false)]) {
            let pod = merged(&templates, names, native, spec);
            let what = format!("{names} {native}: {pod:#}");
            let sidecar = pod::find(pod::containers(&pod, place), container::PROXY).unwrap_or_else(|| panic!("{what}"));
            assert!(!place::is_elsewhere(&pod, place), "{what}");
            assert_eq!(
                (
                    pod::text(sidecar, "image"),
                    pod::containers(&pod, place).iter().filter(|c| pod::name(c) == container::PROXY).count()
                ),
                ("p", 1),
                "{what}"
            );
            assert!(pod::find(pod::list(sidecar, "env"), "TEAM").is_some(), "{what}");
            assert_eq!(
                pod::find(pod::list(sidecar, "env"), "OWN").is_some(),
                spec.to_string().contains("OWN"),
                "{what}"
            );
            assert_eq!(pod::text(sidecar, "restartPolicy"), if place == CONTAINERS { "" } else { "Always" }, "{what}");
            assert!(pod::containers(&pod, other).iter().all(|c| pod::name(c) == "app"), "{what}");
        }
    }
}

/// Returns the error for a pod with the applications `a` and `b` that gets the template `team` and a sidecar; `None` if it is injected.
fn lost(team: &str) -> Option<String> {
    let sidecar = "{spec: {containers: [{name: istio-proxy, image: p}]}}";
    let config = json!({"policy": "enabled", "templates": {"sidecar": sidecar, "team": team}}).to_string();
    let settings = Settings::parse(&config, None).unwrap();
    let injector = Injector::new(Config { settings, ..BuiltIn::default().config().unwrap() });
    let applications = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]);
    let metadata = json!({"annotations": {annotation::TEMPLATES: "team,sidecar"}});
    let pod = json!({"metadata": metadata, "spec": {"containers": applications}});
    injector.review(&Request::new(&pod, "shop")).err().map(|error| error.to_string())
}

#[test]
fn an_application_that_no_template_deletes_by_name_remains() {
    let reason = lost("spec:\n  containers:\n").unwrap_or_default();
    assert!(reason.contains("delete container \"a\" of the pod, but none does by its name"), "{reason}");
    let reason = lost("{spec: {containers: [{$patch: replace}, {name: a}]}}").unwrap_or_default();
    assert!(reason.contains("delete container \"b\""), "{reason}");
    assert_eq!(lost("{spec: {containers: [{name: a, $patch: delete}]}}"), None);
    assert_eq!(lost("{metadata: {labels: {a: b}}}"), None);
}

/// Returns the steps that the annotation costs before any template is rendered.
fn charged(names: &str) -> u64 {
    let mut budget = Budget::new(Limits::default());
    let pod = json!({"metadata": {"annotations": {annotation::TEMPLATES: names}}});
    annotations::charge(&pod, &mut budget).unwrap();
    Limits::default().steps - budget.left().steps
}

#[test]
fn repeated_names_are_rendered_at_their_first_and_last_occurrence() {
    assert_eq!(labels("b,a", 1000).unwrap()["last"], "a");
    assert_eq!(labels("a,b,a", 1000).unwrap(), json!({"last": "a", "a": "true", "b": "true"}));
    let names = format!("b,{}", "both, a ,".repeat(10_000) + "c");
    assert_eq!(
        labels(&names, 2000 + charged(&names)).unwrap(),
        json!({"last": "c", "a": "true", "b": "true", "c": "true"})
    );
    assert_eq!(first_and_last("x y x z y x".split(' ')), ["x", "y", "z", "y", "x"]);
}

#[test]
fn a_pod_over_the_budget_is_refused_with_the_reason() {
    let error = labels("a,b,c", 10).unwrap_err();
    assert!(error.is_exceeded() && error.to_string().contains("takes more than 10 steps"), "{error}");
    let names = format!("a,{}", "x,".repeat(30_000));
    let unknown = labels(&names, 1000 + charged(&names)).unwrap_err().to_string();
    assert_eq!(unknown, "requested template \"x\" not found; have a, b, c");
}

/// Merging such a field would lose the pod's own metadata or the sidecar's variables.
#[test]
fn a_field_of_a_template_that_is_not_of_its_type_is_refused() {
    let proxy = |fields: Value| {
        let mut container = json!({"name": "istio-proxy", "image": "p"});
        pod::object(&mut container).extend(fields.as_object().cloned().unwrap());
        json!({"spec": {"containers": [container]}})
    };
    for (overlay, expected) in [
        (json!({"metadata": "x"}), "metadata: expected a map, got \"x\""),
        (json!({"metadata": {"annotations": "x"}}), "metadata.annotations: expected a map, got \"x\""),
        (json!({"metadata": {"labels": ["team"]}}), "metadata.labels: expected a map, got a list"),
        (proxy(json!({"env": {"TEAM": "a"}})), "spec.containers[0].env: expected a list, got a map"),
        (proxy(json!({"env": "x"})), "spec.containers[0].env: expected a list, got \"x\""),
        (json!({"spec": {"containers": "x"}}), "spec.containers: expected a list, got \"x\""),
        (json!({"spec": []}), "spec: expected a map, got a list"),
    ] {
        let config = json!({"policy": "enabled", "defaultTemplates": ["a", "b"],
            "templates": {"a": proxy(json!({})).to_string(), "b": overlay.to_string()}});
        let settings = Settings::parse(&config.to_string(), None).unwrap();
        let injector = Injector::new(Config { settings, ..BuiltIn::default().config().unwrap() });
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "i"}]}});
        let refused = injector.review(&Request::new(&pod, "shop")).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some(&*format!("the output of template b is not a partial pod: {expected}")));
    }
}

#[test]
fn a_template_that_renders_no_partial_pod_is_refused() {
    let of = |template: &str| {
        let settings = Settings::from_template(template).unwrap();
        let injector = Injector::new(Config { settings, ..BuiltIn::default().config().unwrap() });
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "a"}]}});
        injector.review(&Request::new(&pod, "shop")).map(drop).map_err(|error| error.to_string())
    };
    for template in ["- a", "text", "7"] {
        assert_eq!(
            of(template).unwrap_err(),
            "template sidecar renders a list or a scalar for this pod: expected a partial pod, `key: value` pairs"
        );
    }
    for template in ["# none", "~", "{}"] {
        assert_eq!(of(template), Ok(()));
    }
}

#[test]
fn a_later_template_replaces_the_handler_of_a_former_one() {
    let probe =
        |handler: Value| json!({"containers": [{"name": "istio-proxy", "image": "p", "readinessProbe": handler}]});
    let http = probe(json!({"httpGet": {"path": "/ready", "port": 1}, "periodSeconds": 2}));
    let exec = probe(json!({"exec": {"command": ["x"]}}));
    let spec = json!({"containers": [{"name": "app", "image": "a"}]});
    let found = merged(&[("http", http), ("exec", exec)], "http,exec", false, &spec);
    let sidecar = pod::find(pod::containers(&found, CONTAINERS), "istio-proxy").unwrap();
    assert_eq!(sidecar["readinessProbe"], json!({"exec": {"command": ["x"]}, "periodSeconds": 2}));
}
