//! Property of a second injection: a pod that was injected and then edited becomes what the author's pod with the same
//! edits becomes.

use std::path::Path;

use libtest_mimic::Failed;
use proptest::prelude::{Just, Strategy, prop_oneof};
use serde_json::{Value, json};

use super::super::equal::same;
use super::super::property::run;
use super::{injections, pod};

/// A change by another webhook, the pod's author or a controller.
#[derive(Debug, Clone, Copy)]
enum Edit {
    Image,
    Variable,
    OwnVariable,
    NoOwnVariable,
    Resources,
    SecurityContext,
    Label,
    OwnLabel,
    NoOwnLabel,
    Annotation,
    OwnAnnotation,
    Secret,
    NoSecret,
    Volume,
    HostAlias,
    /// Changes the image of an injected sidecar. The second injection must restore the template's image or that of the
    /// author's recorded sidecar.
    SidecarImage,
}

const OWN: &str = "example.com/own";

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        Just(Edit::Image),
        Just(Edit::Variable),
        Just(Edit::OwnVariable),
        Just(Edit::NoOwnVariable),
        Just(Edit::Resources),
        Just(Edit::SecurityContext),
        Just(Edit::Label),
        Just(Edit::OwnLabel),
        Just(Edit::NoOwnLabel),
        Just(Edit::Annotation),
        Just(Edit::OwnAnnotation),
        Just(Edit::Secret),
        Just(Edit::NoSecret),
        Just(Edit::Volume),
        Just(Edit::HostAlias),
        Just(Edit::SidecarImage),
    ]
}

impl Edit {
    fn apply(self, pod: &mut Value) {
        let meta = |pod: &mut Value, which: &str, value: Value| pod["metadata"][which][OWN] = value;
        let secrets = |pod: &mut Value| pod["spec"]["imagePullSecrets"].as_array().cloned().unwrap_or_default();
        match self {
            Self::Label | Self::Annotation => {
                let which = if matches!(self, Self::Label) { "labels" } else { "annotations" };
                pod["metadata"][which]["example.com/later"] = "later".into();
            }
            Self::OwnLabel => meta(pod, "labels", "changed".into()),
            Self::OwnAnnotation => meta(pod, "annotations", "changed".into()),
            Self::NoOwnLabel => drop(pod["metadata"]["labels"].as_object_mut().and_then(|map| map.shift_remove(OWN))),
            Self::Secret => add(&mut pod["spec"]["imagePullSecrets"], json!({"name": "later"})),
            Self::NoSecret => {
                let secrets: Vec<Value> = secrets(pod).into_iter().filter(|secret| secret["name"] != "z").collect();
                if !secrets.is_empty() {
                    pod["spec"]["imagePullSecrets"] = secrets.into();
                }
            }
            Self::Volume => add(&mut pod["spec"]["volumes"], json!({"name": "later", "emptyDir": {}})),
            Self::HostAlias => {
                add(&mut pod["spec"]["hostAliases"], json!({"ip": "10.0.0.9", "hostnames": ["later"]}));
            }
            Self::SidecarImage => sidecar(pod).into_iter().for_each(|sidecar| sidecar["image"] = "changed:2".into()),
            _ => applications(pod).into_iter().for_each(|application| self.apply_to(application)),
        }
    }

    fn apply_to(self, application: &mut Value) {
        let own = |variable: &Value| variable["name"] == "OWN";
        match self {
            Self::Image => application["image"] = "changed:2".into(),
            Self::Variable => add(&mut application["env"], json!({"name": "LATER", "value": "1"})),
            Self::OwnVariable => {
                let variables = application["env"].as_array_mut().into_iter().flatten();
                variables.filter(|variable| own(variable)).for_each(|variable| variable["value"] = "changed".into());
            }
            Self::NoOwnVariable => {
                application["env"].as_array_mut().into_iter().for_each(|env| env.retain(|variable| !own(variable)));
            }
            Self::Resources => application["resources"]["limits"]["cpu"] = "7".into(),
            Self::SecurityContext => application["securityContext"]["readOnlyRootFilesystem"] = true.into(),
            _ => {}
        }
    }
}

/// Adds an element to a list, in place of an element with the same name and IP.
fn add(list: &mut Value, element: Value) {
    let mut items = list.as_array().cloned().unwrap_or_default();
    items.retain(|item| item["name"] != element["name"] || item["ip"] != element["ip"]);
    items.push(element);
    *list = items.into();
}

/// Returns the author's containers except the sidecar.
fn applications(pod: &mut Value) -> Vec<&mut Value> {
    let is_application = |container: &&mut Value| ["a", "b", "c"].iter().any(|name| container["name"] == *name);
    pod["spec"]["containers"].as_array_mut().into_iter().flatten().filter(is_application).collect()
}

/// Returns the sidecar if the status names it.
fn sidecar(pod: &mut Value) -> Vec<&mut Value> {
    let status = pod["metadata"]["annotations"]["sidecar.istio.io/status"].as_str();
    if !status.is_some_and(|status| status.contains("\"istio-proxy\"")) {
        return Vec::new();
    }
    let lists = pod["spec"].as_object_mut().into_iter().flatten().filter(|(key, _)| key.ends_with("ontainers"));
    let all = lists.flat_map(|(_, list)| list.as_array_mut().into_iter().flatten());
    all.filter(|container| container["name"] == "istio-proxy").collect()
}

/// Returns the part of a pod that is compared: without records of injections, and with the lists sorted whose order
/// does not matter.
fn compared(mut pod: Value) -> Value {
    if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|name, _| !["sidecar.istio.io/status", "proxy.istio.io/overrides"].contains(&name.as_str()));
    }
    let sort = |list: &mut Value| {
        if let Some(items) = list.as_array_mut() {
            items.sort_by_key(|item| item["name"].to_string() + &item["ip"].to_string());
        }
    };
    ["volumes", "imagePullSecrets", "hostAliases"].iter().for_each(|list| sort(&mut pod["spec"][*list]));
    applications(&mut pod).into_iter().for_each(|application| sort(&mut application["env"]));
    pod
}

/// Fails unless a pod that is injected, edited and injected with other settings equals the edited pod with only these
/// other settings.
pub(super) fn check(settings: &Path) -> Result<(), Failed> {
    let injections = injections(settings, true)?;
    let all = injections.len();
    let edits = proptest::collection::vec(edit(), 0..5);
    run(&(pod(), 0..all, 0..all, edits), |(pod, first, second, edits)| {
        let (first, second) = (&injections[first], &injections[second]);
        let mut pod = first.with_image(second.with_image(pod));
        pod["metadata"]["labels"][OWN] = "own".into();
        pod["metadata"]["annotations"][OWN] = "own".into();
        applications(&mut pod).into_iter().for_each(|app| app["env"] = json!([{"name": "OWN", "value": "own"}]));
        let mut once = first.inject(&pod)?;
        edits.iter().for_each(|edit| edit.apply(&mut once));
        let kept = edits.iter().filter(|edit| !matches!(edit, Edit::SidecarImage));
        kept.for_each(|edit| edit.apply(&mut pod));
        let (expected, twice) = (second.inject(&pod)?, second.inject(&once)?);
        let failed = |error: Failed| {
            Failed::from(format!("{} and then {}: {}", first.name, second.name, error.message().unwrap_or_default()))
        };
        same(&compared(expected), &compared(twice.clone())).map_err(failed)?;
        same(&twice, &second.inject(&twice)?).map_err(failed)
    })
}
