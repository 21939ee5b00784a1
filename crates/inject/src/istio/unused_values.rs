//! The warning about Helm's values that a configuration sets and that neither its templates nor the injector read.
//!
//! `config` creates it once for each configuration. It names only values in the [`SECTIONS`], because most other values
//! are for other parts of Istio, and not those that Istio's charts use for objects other than pods. A configuration does
//! not record which values are Helm's defaults and which a user has set. The warning names no default if the templates
//! are of the same release, because they read all defaults.

use serde_json::Value;

use super::settings::{Program, Settings};
use super::unused::{self, Reads};

/// The parts of the values that are for injected pods.
const SECTIONS: [&[&str]; 4] =
    [&["global", "proxy"], &["global", "proxy_init"], &["sidecarInjectorWebhook"], &["meshConfig"]];

/// The values of the sections that the injector reads itself.
const READ: [&[&str]; 4] = [
    &["global", "proxy", "holdApplicationUntilProxyStarts"],
    &["global", "proxy", "image"],
    &["global", "proxy_init", "image"],
    &["sidecarInjectorWebhook", "rewriteAppHTTPProbe"],
];

/// The values of the sections that Istio's charts, since 1.9, use for objects other than pods.
const OF_CHARTS: [&[&str]; 11] = [
    &["global", "proxy", "autoInject"],
    &["global", "proxy", "tracer"],
    &["sidecarInjectorWebhook", "alwaysInjectSelector"],
    &["sidecarInjectorWebhook", "defaultTemplates"],
    &["sidecarInjectorWebhook", "enableNamespacesByDefault"],
    &["sidecarInjectorWebhook", "injectedAnnotations"],
    &["sidecarInjectorWebhook", "neverInjectSelector"],
    &["sidecarInjectorWebhook", "objectSelector"],
    &["sidecarInjectorWebhook", "reinvocationPolicy"],
    &["sidecarInjectorWebhook", "templates"],
    &["sidecarInjectorWebhook", "useLegacySelectors"],
];

/// Returns the warning about values of the [`SECTIONS`] that neither a template of the configuration nor the injector
/// reads; `None` if there are none, if no template reads values at all, or if the format is that of releases up to 1.8,
/// whose charts used these values differently.
pub(super) fn warning(settings: &Settings, values: &Value) -> Option<String> {
    let reads = &settings.reads;
    if matches!(settings.program, Program::Legacy(_)) || !reads.values().any(Reads::has_values) {
        return None;
    }
    let is_read = |path: &[&str]| {
        READ.iter().chain(&OF_CHARTS).any(|known| path.starts_with(known))
            || reads.values().any(|reads| reads.has_value(path))
    };
    let mut unread = Vec::new();
    for section in SECTIONS {
        if let Some(value) = section.iter().try_fold(values, |value, key| value.get(key)) {
            leaves(value, &mut section.to_vec(), &mut |path| {
                if !is_read(path) {
                    unread.push(path.join("."));
                }
            });
        }
    }
    unused::listed(&unread, "values that neither a template nor the injector reads")
}

/// Calls a function with the path of each value that is set: neither null nor an empty string, list or map.
fn leaves<'v>(value: &'v Value, path: &mut Vec<&'v str>, each: &mut impl FnMut(&[&str])) {
    match value {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::Array(items) if items.is_empty() => {}
        Value::Object(members) => {
            for (key, value) in members {
                path.push(key);
                leaves(value, path, each);
                path.pop();
            }
        }
        _ => each(path),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::istio::{BuiltIn, Config, Settings, Values};

    /// Returns the warnings about a configuration of this template and these values.
    fn warned(template: &str, values: &serde_json::Value) -> Vec<String> {
        let settings = Settings::from_template(template).unwrap();
        let values = Values::parse(&values.to_string()).unwrap();
        Config { settings, values, ..BuiltIn::default().config().unwrap() }.warnings().collect()
    }

    #[test]
    fn values_that_no_template_reads_are_named_with_their_paths() {
        let values = json!({
            "global": {
                "hub": "h", "tag": "t", "priorityClassName": "x",
                "proxy": {"logLevel": "debug", "loglevel": "debug", "image": "p", "autoInject": "enabled", "empty": {}, "none": null,
                          "resources": {"limits": {"cpu": 1}}, "probe": {"a": {"b": [1]}, "c": ""}},
                "proxy_init": {"image": "p", "resources": {"limits": {"cpu": 1}}},
            },
            "sidecarInjectorWebhook": {"rewriteAppHTTPProbe": true, "rewriteAppHTTPProbes": false, "reinvocationPolicy": "Never"},
            "meshConfig": {"enablePrometheusMerge": false},
        });
        let template = "# {{ .Values.global.proxy.logLevel }} {{ toYaml .Values.global.proxy.resources }}";
        let text = "values that neither a template nor the injector reads: global.proxy.loglevel, global.proxy.probe.a.b, \
                    global.proxy_init.resources.limits.cpu, sidecarInjectorWebhook.rewriteAppHTTPProbes, \
                    meshConfig.enablePrometheusMerge";
        assert_eq!(warned(template, &values), [text]);
        for all in ["{{ toYaml .Values }}", "{{ render .Template }}", "{{ with .Values }}{{ end }}"] {
            let about_values = warned(all, &values).into_iter().filter(|text| text.starts_with("values"));
            assert_eq!(about_values.count(), 0, "{all}");
        }
        assert_eq!(warned("spec: {}", &values), [""; 0], "no template reads values");
    }

    #[test]
    fn the_built_in_configuration_reads_all_of_its_values() {
        for built_in in [BuiltIn::default(), BuiltIn { discovery: Some(String::new()), ..BuiltIn::default() }] {
            assert_eq!(built_in.config().unwrap().warnings().collect::<Vec<_>>(), [""; 0]);
        }
    }
}
