//! The warning about Helm's values that only Istio's charts read, to make the injection configuration of them: a configuration
//! that does not have what they say was not made of these values.

use serde::Deserialize;
use serde_json::Value;

use super::policy;
use super::settings::{Program, Settings};
use super::unused;
use crate::inject::pod;
use crate::pod::selector::LabelSelector;

/// Returns the warning; `None` for the format of releases up to 1.8, whose charts made more of the values.
pub(super) fn warning(settings: &Settings, values: &Value) -> Option<String> {
    let Program::Modern { templates, default, .. } = &settings.program else { return None };
    let none = Value::Null;
    let webhook = values.get("sidecarInjectorWebhook").unwrap_or(&none);
    let mut missing = Vec::new();
    let mut add = |name: &str| missing.push(format!("sidecarInjectorWebhook.{name}"));
    pod::map(webhook, "templates")
        .keys()
        .filter(|name| !templates.contains_key(*name))
        .for_each(|name| add(&format!("templates.{name}")));
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
        let warning = |config: &Value| super::warning(&Settings::parse(&config.to_string(), None).unwrap(), &values);
        assert_eq!(warning(&config("enabled")).as_deref(), Some(text));
        let mut same = config("disabled");
        pod::object(&mut same).extend(webhook.as_object().cloned().unwrap());
        same["templates"]["sidecar"] = "spec: {}".into();
        assert_eq!(warning(&same), None);
        assert_eq!(
            warning(&json!({"policy": "enabled", "template": "containers: []"})),
            None,
            "a legacy configuration"
        );
    }
}
