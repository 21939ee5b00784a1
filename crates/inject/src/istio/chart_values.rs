//! Warnings about Helm values that do not match the injection configuration. Istio's charts make that configuration from some of the
//! values: it was not made from values that it contradicts, nor from values of the wrong type.

use podfacts::selector::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::policy;
use super::settings::{Program, Settings};
use super::unused;
use crate::pod;

/// A value of Istio's charts, with its type.
#[derive(Clone, Copy)]
struct Typed {
    path: &'static str,
    /// The description of the type.
    expected: &'static str,
    is_expected: fn(&Value) -> bool,
}

const fn typed(path: &'static str, expected: &'static str, is_expected: fn(&Value) -> bool) -> Typed {
    Typed { path, expected, is_expected }
}

/// The values whose types are checked, in addition to [`BOOLEANS`]. A null, or an empty string, list or map, is treated as absent.
const TYPES: [Typed; 6] = [
    typed("sidecarInjectorWebhook.templates", "a map of texts", |value| is_map(value, Value::is_string)),
    typed("sidecarInjectorWebhook.defaultTemplates", "a list of names", |value| is_list(value, Value::is_string)),
    typed("sidecarInjectorWebhook.neverInjectSelector", "a list of selectors", |value| {
        is_list(value, Value::is_object)
    }),
    typed("sidecarInjectorWebhook.alwaysInjectSelector", "a list of selectors", |value| {
        is_list(value, Value::is_object)
    }),
    typed("sidecarInjectorWebhook.injectedAnnotations", "a map of texts", |value| is_map(value, Value::is_string)),
    typed("global.proxy.autoInject", "\"enabled\" or \"disabled\"", |value| value == "enabled" || value == "disabled"),
];

/// The boolean values. Templates would treat a string such as "false" as true.
pub(super) const BOOLEANS: [&str; 12] = [
    "global.logAsJson",
    "global.mountMtlsCerts",
    "global.nativeNftables",
    "global.proxy.enableCoreDump",
    "global.proxy.holdApplicationUntilProxyStarts",
    "global.proxy.privileged",
    "global.proxy.startupProbe.enabled",
    "global.proxy_init.forceApplyIptables",
    "istio_cni.chained",
    "istio_cni.enabled",
    "pilot.cni.enabled",
    "sidecarInjectorWebhook.rewriteAppHTTPProbe",
];

/// The description of the type of [`BOOLEANS`].
const BOOLEAN: &str = "true or false";

fn is_map(value: &Value, is_expected: fn(&Value) -> bool) -> bool {
    value.as_object().is_some_and(|members| members.values().all(is_expected))
}

fn is_list(value: &Value, is_expected: fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(is_expected))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the warnings; none for the configuration format of releases up to 1.8, whose charts used the values differently.
pub(super) fn warnings(settings: &Settings, values: &Value) -> impl Iterator<Item = String> {
    let is_legacy = matches!(settings.program, Program::Legacy(_));
    let unfollowed = unfollowed(settings, values);
    let booleans = BOOLEANS.into_iter().map(|path| typed(path, BOOLEAN, Value::is_boolean));
    let types = TYPES.into_iter().chain(booleans).filter(move |_| !is_legacy);
    let mistyped = types.filter_map(move |Typed { path, expected, is_expected }| {
        let value = path.split('.').try_fold(values, |value, key| value.get(key))?;
        let is_mistyped = !is_empty(value) && !is_expected(value);
        is_mistyped.then(|| format!("value {path} is not {expected}, which Istio's charts expect"))
    });
    unfollowed.into_iter().chain(mistyped)
}

/// Returns the warning about values that the configuration does not follow.
fn unfollowed(settings: &Settings, values: &Value) -> Option<String> {
    let Program::Modern { templates, default, .. } = &settings.program else { return None };
    let none = Value::Null;
    let webhook = values.get("sidecarInjectorWebhook").unwrap_or(&none);
    let mut missing = Vec::new();
    let mut add = |name: &str| missing.push(format!("sidecarInjectorWebhook.{name}"));
    // The charts trim the white space at the end of a template.
    let is_same = |name: &str, text: &str| {
        templates.get(name).is_some_and(|template| template.source().trim_end() == text.trim_end())
    };
    let texts = pod::map(webhook, "templates").iter().filter_map(|(name, text)| Some((name, text.as_str()?)));
    texts.filter(|(name, text)| !is_same(name, text)).for_each(|(name, _)| add(&format!("templates.{name}")));
    let names: Vec<&str> = pod::list(webhook, "defaultTemplates").iter().filter_map(Value::as_str).collect();
    if !names.is_empty() && names != *default {
        add("defaultTemplates");
    }
    for (name, known) in
        [("neverInjectSelector", &settings.policy.never), ("alwaysInjectSelector", &settings.policy.always)]
    {
        let has =
            |selector: &Value| LabelSelector::deserialize(selector).is_ok_and(|selector| known.contains(&selector));
        if !pod::list(webhook, name).iter().all(has) {
            add(name);
        }
    }
    let injected = &settings.injected_annotations;
    let annotations = pod::map(webhook, "injectedAnnotations").iter();
    annotations
        .filter(|(name, value)| injected.get(*name) != Some(*value))
        .for_each(|(name, _)| add(&format!("injectedAnnotations.{name}")));
    let policy = values.pointer("/global/proxy/autoInject").and_then(Value::as_str);
    let policy = policy.filter(|policy| ["enabled", "disabled"].contains(policy));
    if policy.is_some_and(|policy| (policy == "enabled") != (settings.policy.default == policy::Default::Enabled)) {
        missing.push("global.proxy.autoInject".to_owned());
    }
    unused::listed(
        &missing,
        "values of which Istio's charts make the injection configuration, and which this one does not follow",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_the_configuration_does_not_follow_are_named() {
        let selector = json!([{"matchLabels": {"a": "b"}}]);
        let webhook = json!({"templates": {"mine": "x"}, "defaultTemplates": ["sidecar", "mine"], "neverInjectSelector": selector,
            "injectedAnnotations": {"c": "d"}});
        let values = json!({"sidecarInjectorWebhook": webhook, "global": {"proxy": {"autoInject": "disabled"}}});
        let config = |policy: &str| json!({"policy": policy, "templates": {"sidecar": "spec: {}"}});
        let text = "values of which Istio's charts make the injection configuration, and which this one does not follow: \
                    sidecarInjectorWebhook.templates.mine, sidecarInjectorWebhook.defaultTemplates, \
                    sidecarInjectorWebhook.neverInjectSelector, sidecarInjectorWebhook.injectedAnnotations.c, global.proxy.autoInject";
        let warnings = |config: &Value, values: &Value| {
            super::warnings(&Settings::parse(&config.to_string(), None).unwrap(), values).collect::<Vec<_>>()
        };
        assert_eq!(warnings(&config("enabled"), &values), [text]);
        let mut same = config("disabled");
        pod::object(&mut same).extend(webhook.as_object().cloned().unwrap());
        same["templates"]["sidecar"] = "spec: {}".into();
        same["templates"]["mine"] = "x\n".into();
        assert_eq!(warnings(&same, &values), [""; 0]);
        same["templates"]["mine"] = "y".into();
        let other = "values of which Istio's charts make the injection configuration, and which this one does not follow: \
                     sidecarInjectorWebhook.templates.mine";
        assert_eq!(warnings(&same, &values), [other], "a template of this name with another text");
        let legacy = json!({"policy": "enabled", "template": "containers: []"});
        assert_eq!(warnings(&legacy, &values), [""; 0]);
    }

    #[test]
    fn values_of_another_type_are_named() {
        let settings = Settings::parse("{policy: enabled, templates: {sidecar: 'spec: {}'}}", None).unwrap();
        let warned = |path: &str, value: &Value| {
            let mut values = json!({});
            *path.split('.').fold(&mut values, |value, key| &mut value[key]) = value.clone();
            super::warnings(&settings, &values).collect::<Vec<_>>()
        };
        for (path, value, expected) in [
            ("sidecarInjectorWebhook.neverInjectSelector", json!({"matchLabels": {"a": "b"}}), "a list of selectors"),
            ("sidecarInjectorWebhook.alwaysInjectSelector", json!(["a"]), "a list of selectors"),
            ("sidecarInjectorWebhook.defaultTemplates", json!("sidecar"), "a list of names"),
            ("sidecarInjectorWebhook.templates", json!(["a"]), "a map of texts"),
            ("sidecarInjectorWebhook.injectedAnnotations", json!(true), "a map of texts"),
            ("global.proxy.autoInject", json!(true), "\"enabled\" or \"disabled\""),
            ("global.proxy.autoInject", json!("Enabled"), "\"enabled\" or \"disabled\""),
            ("pilot.cni.enabled", json!("yes"), "true or false"),
            ("global.logAsJson", json!("false"), "true or false"),
            ("global.proxy.privileged", json!(1), "true or false"),
        ] {
            let text = format!("value {path} is not {expected}, which Istio's charts expect");
            assert!(warned(path, &value).contains(&text), "{path}: {:?}", warned(path, &value));
            for none in [json!(null), json!(""), json!([]), json!({})] {
                assert_eq!(warned(path, &none), [""; 0], "{path} {none}");
            }
        }
    }
}
