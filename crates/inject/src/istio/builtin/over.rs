//! Merges a user's Helm values over the built-in ones.

use gocompat::parse_bool;
use serde_json::{Value, json};

use super::COMPILED_IN;
use crate::istio::Values;
use crate::istio::chart_values::BOOLEANS;
use crate::pod;

/// The built-in values that templates can do without: a null removes them. A null in place of any other built-in value is ignored, because
/// the templates could not be rendered without the value.
const OPTIONAL: [&str; 3] = ["resources", "seccompProfile", "startupProbe"];

/// The values that are parts of istiod's address, and that YAML may read as numbers or booleans.
const NAMES: [&str; 2] = ["/revision", "/global/istioNamespace"];

/// Returns the values with the parts of istiod's address as strings. A revision of `false` or 0 becomes empty, because a template's `with`
/// skips it.
pub(super) fn with_names(values: Values) -> Values {
    let mut raw = values.raw;
    if let Some(revision) = raw.get_mut("revision").filter(|name| **name == false || name.as_f64() == Some(0.0)) {
        *revision = "".into();
    }
    for pointer in NAMES {
        if let Some(name) = raw.pointer_mut(pointer).filter(|name| name.is_number() || name.is_boolean()) {
            *name = name.to_string().into();
        }
    }
    Values::new(raw)
}

/// Returns the built-in values with a user's values merged over them, as Helm merges values over those of a chart.
pub(super) fn over(values: Values, built_in: Values) -> Values {
    let (mut raw, mut built_in) = (values.raw, built_in.raw);
    BOOLEANS.iter().for_each(|path| read_boolean(&mut raw, path));
    without_nulls(&mut raw, &built_in);
    follow_legacy(&mut raw);
    if let Some(profile) = raw.pointer("/global/proxy/seccompProfile") {
        // Istio's complete values have an empty profile: templates other than the sidecar's then add no restrictions, as Istio's do not.
        let is_restricted = profile.as_object().is_some_and(|profile| !profile.is_empty());
        built_in[COMPILED_IN]["restricted"] = is_restricted.into();
        built_in.pointer_mut("/global/proxy").map(pod::object).and_then(|proxy| proxy.shift_remove("seccompProfile"));
    }
    Values::new(raw).over(Values::new(built_in))
}

/// Replaces the value at `path` by a boolean if it is a string that Go parses as one.
fn read_boolean(values: &mut Value, path: &str) {
    let value = path.split('.').try_fold(values, |value, key| value.get_mut(key));
    if let Some(value) = value
        && let Some(boolean) = value.as_str().and_then(parse_bool)
    {
        *value = boolean.into();
    }
}

/// Copies from `istio_cni`, the name of `pilot.cni` up to Istio 1.23, what `pilot.cni` does not set.
fn follow_legacy(values: &mut Value) {
    let legacy = |key: &str| values.get("istio_cni")?.get(key).filter(|value| !value.is_null()).cloned();
    let unchained = legacy("chained").filter(|chained| *chained == false).map(|_| json!("multus"));
    let said = [("enabled", legacy("enabled")), ("provider", unchained.or_else(|| legacy("provider")))];
    for (key, value) in said.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        let cni = pod::map_mut(values, "pilot").entry("cni").or_insert(Value::Null);
        pod::object(cni).entry(key).or_insert(value);
    }
}

/// Removes nulls in place of built-in values that are not [`OPTIONAL`].
fn without_nulls(values: &mut Value, built_in: &Value) {
    let (Value::Object(values), Value::Object(built_in)) = (values, built_in) else { return };
    let is_optional = |key: &str| OPTIONAL.contains(&key);
    values.retain(|key, value| !value.is_null() || is_optional(key) || !built_in.contains_key(key));
    for (key, value) in values.iter_mut().filter(|(key, _)| !is_optional(key)) {
        if let Some(built_in) = built_in.get(key) {
            without_nulls(value, built_in);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::istio::{BuiltIn, InjectionOutcome, Injector, Platform, Request};

    /// Returns a pod injected by this template with these values. Sidecars are not native.
    fn injected(values: &Value, template: &str) -> Value {
        let config = BuiltIn::config_with(Values::new(values.clone()), None, None).unwrap();
        let metadata = json!({"name": "web", "annotations": {"inject.istio.io/templates": template,
            "proxy.istio.io/config": "concurrency: 1"}});
        let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "app", "image": "i"}]}});
        match Injector::new(config).review(&Request::new(&pod, "shop")).unwrap() {
            InjectionOutcome::Injected { injected, .. } => injected.pod,
            InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
        }
    }

    /// Returns the containers that the injection added.
    fn added(pod: &Value) -> Vec<Value> {
        let lists =
            ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().cloned().unwrap_or_default());
        lists.concat().into_iter().filter(|container| container["name"] != "app").collect()
    }

    /// Returns the value of an environment variable of the proxy.
    fn variable(pod: &Value, name: &str) -> String {
        let containers = added(pod);
        let proxy = pod::find(&containers, "istio-proxy").unwrap();
        pod::text(pod::find(pod::list(proxy, "env"), name).unwrap(), "value").to_owned()
    }

    #[test]
    fn values_of_a_file_are_laid_over_the_built_in_ones() {
        let found = |values: &Value| {
            let pod = injected(values, "sidecar");
            let containers = added(&pod);
            let [init, proxy] = &containers[..] else { panic!("{containers:?}") };
            let images = [init, proxy].map(|container| pod::text(container, "image").to_owned());
            let networks = pod["metadata"]["annotations"].get("k8s.v1.cni.cncf.io/networks").is_some();
            let is_confined = proxy["securityContext"].get("seccompProfile").is_some();
            (pod::name(init).to_owned(), images, is_confined, networks)
        };
        let (plugin, init, image) = ("istio-validation", "istio-init", "docker.io/istio/proxyv2:1.30.0");
        for (values, name, image, is_confined, networks) in [
            (json!({}), plugin, image, true, false),
            (json!({"global": {"platform": "openshift"}}), plugin, image, true, true),
            (
                json!({"global": {"platform": "OpenShift"}, "pilot": {"cni": {"provider": "default"}}}),
                plugin,
                image,
                true,
                false,
            ),
            (json!({"global": {"platform": "gke"}}), plugin, image, true, false),
            (json!({"global": {"hub": "h.x", "tag": "1"}}), plugin, "h.x/proxyv2:1", true, false),
            (json!({"pilot": {"cni": {"provider": "multus"}}}), plugin, image, true, true),
            (json!({"global": {"proxy": {"seccompProfile": {}}}}), plugin, image, false, false),
            (json!({"global": {"proxy": {"seccompProfile": null}}}), plugin, image, false, false),
            (json!({"pilot": {"cni": {"enabled": false}}}), init, image, true, false),
            (json!({"pilot": {"cni": {"enabled": "false"}}}), init, image, true, false),
            (json!({"pilot": {"cni": {"enabled": "yes"}}}), plugin, image, true, false),
            (json!({"pilot": {"cni": {"enabled": 1}}}), plugin, image, true, false),
            (json!({"pilot": {"cni": {"enabled": null}}}), plugin, image, true, false),
            (json!({"istio_cni": {"enabled": false}}), init, image, true, false),
            (json!({"istio_cni": {"enabled": "false"}}), init, image, true, false),
            (json!({"istio_cni": {"enabled": true}}), plugin, image, true, false),
            (json!({"istio_cni": {"chained": true}}), plugin, image, true, false),
            (json!({"istio_cni": {"chained": false}}), plugin, image, true, true),
            (json!({"istio_cni": {"enabled": true, "provider": "multus"}}), plugin, image, true, true),
            (json!({"istio_cni": {"enabled": false}, "pilot": {"cni": {"enabled": true}}}), plugin, image, true, false),
            (json!({"istio_cni": {"enabled": true}, "global": {"platform": "openshift"}}), plugin, image, true, true),
        ] {
            let expected = (name.to_owned(), [image.to_owned(), image.to_owned()], is_confined, networks);
            assert_eq!(found(&values), expected, "{values}");
        }
    }

    #[test]
    fn a_given_platform_outranks_that_of_the_values() {
        let openshift = Values::new(json!({"global": {"platform": "openshift"}}));
        let platform = |given| BuiltIn::config_with(openshift.clone(), None, given).unwrap().platform;
        assert_eq!([platform(None), platform(Some(Platform::Kubernetes))], [Platform::OpenShift, Platform::Kubernetes]);
        let kubernetes = BuiltIn::config_with(Values::default(), None, Some(Platform::OpenShift)).unwrap();
        assert_eq!(kubernetes.values.raw["pilot"]["cni"]["provider"], "multus");
    }

    #[test]
    fn a_profile_of_the_values_replaces_only_that_of_the_level_restricted() {
        for profile in [json!({"type": "RuntimeDefault"}), json!({"type": "Localhost", "localhostProfile": "p.json"})] {
            for template in ["sidecar", "gateway", "grpc-agent", "grpc-simple"] {
                let context = |values: &Value| {
                    let pod = injected(values, template);
                    added(&pod).iter().map(|container| container["securityContext"].clone()).collect::<Vec<_>>()
                };
                let mut expected = context(&json!({}));
                expected.iter_mut().for_each(|context| context["seccompProfile"] = profile.clone());
                assert_eq!(context(&json!({"global": {"proxy": {"seccompProfile": profile}}})), expected, "{template}");
            }
        }
    }

    #[test]
    fn the_revision_and_the_namespace_of_istiod_are_in_its_addresses() {
        for (values, address) in [
            (json!({}), "istiod.istio-system.svc:15012"),
            (json!({"revision": "canary"}), "istiod-canary.istio-system.svc:15012"),
            (json!({"revision": false}), "istiod.istio-system.svc:15012"),
            (json!({"revision": 0}), "istiod.istio-system.svc:15012"),
            (json!({"revision": 1}), "istiod-1.istio-system.svc:15012"),
            (json!({"global": {"istioNamespace": "mesh"}}), "istiod.mesh.svc:15012"),
            (json!({"revision": "r", "global": {"istioNamespace": "mesh"}}), "istiod-r.mesh.svc:15012"),
        ] {
            let discovery = if address == "istiod.istio-system.svc:15012" { "" } else { address };
            for template in ["sidecar", "gateway", "grpc-agent"] {
                let pod = injected(&values, template);
                assert_eq!(variable(&pod, "CA_ADDR"), address, "{template}");
                let config: Value = serde_json::from_str(&variable(&pod, "PROXY_CONFIG")).unwrap();
                assert_eq!(pod::text(&config, "discoveryAddress"), discovery, "{template}");
            }
        }
        let named = json!({"revision": "canary", "global": {"caAddress": "ca.example:443"}});
        assert_eq!(variable(&injected(&named, "sidecar"), "CA_ADDR"), "ca.example:443");
        let simple = injected(&json!({"global": {"istioNamespace": "mesh"}}), "grpc-simple");
        assert!(added(&simple)[0]["command"].to_string().contains("dns:///istiod.mesh.svc:15010"));
    }

    #[test]
    fn a_mesh_configuration_with_an_address_of_istiod_keeps_it() {
        let discovery = |mesh: &str| {
            let values = Values::new(json!({"revision": "canary"}));
            let mesh = crate::istio::Mesh::parse(mesh).unwrap();
            let config = BuiltIn::config_with(values, Some(mesh), None).unwrap();
            config.mesh.json["defaultConfig"]["discoveryAddress"].clone()
        };
        assert_eq!(discovery("{}"), "istiod-canary.istio-system.svc:15012");
        assert_eq!(
            discovery("defaultConfig: {discoveryAddress: 'istiod.istio-system.svc:15012'}"),
            "istiod.istio-system.svc:15012"
        );
    }

    #[test]
    fn a_null_takes_away_only_what_pods_can_do_without() {
        let plain = injected(&json!({}), "sidecar");
        for values in [
            json!({"global": null}),
            json!({"global": {"proxy": null, "proxy_init": null, "logging": null, "hub": null}}),
            json!({"global": {"proxy": {"logLevel": null, "includeIPRanges": null}}, "pilot": null}),
            json!({"sidecarInjectorWebhook": null, "pilot": {"cni": null}}),
        ] {
            assert_eq!(injected(&values, "sidecar"), plain, "{values}");
        }
        let found = |proxy: Value| added(&injected(&json!({"global": {"proxy": proxy}}), "sidecar"))[1].clone();
        assert_eq!(found(json!({"resources": null}))["resources"], json!({}));
        let limits = found(json!({"resources": {"limits": {"cpu": null}}}))["resources"]["limits"].clone();
        assert_eq!(limits, json!({"memory": "1Gi"}));
        assert_eq!(found(json!({"startupProbe": null})).get("startupProbe"), None);
    }

    #[test]
    fn booleans_may_be_text() {
        let text = |value: &str| {
            let values = json!({
                "global": {"logAsJson": value, "proxy": {"holdApplicationUntilProxyStarts": value, "privileged": value}},
                "sidecarInjectorWebhook": {"rewriteAppHTTPProbe": value},
            });
            let config = BuiltIn::config_with(Values::new(values.clone()), None, None).unwrap();
            assert_eq!(config.warnings().collect::<Vec<_>>(), [""; 0]);
            assert_eq!(config.values.rewrite_probes, value == "true");
            let pod = injected(&values, "sidecar");
            let proxy = pod::find(pod::containers(&pod, "containers"), "istio-proxy").unwrap();
            let is_first = pod["spec"]["containers"][0]["name"] == "istio-proxy";
            let logs_json = pod::list(proxy, "args").iter().any(|argument| argument == "--log_as_json");
            let privileged = proxy["securityContext"]["privileged"].clone();
            (is_first, proxy.get("lifecycle").is_some(), logs_json, privileged)
        };
        assert_eq!(text("true"), (true, true, true, json!(true)));
        assert_eq!(text("false"), (false, false, false, json!(false)));
    }
}
