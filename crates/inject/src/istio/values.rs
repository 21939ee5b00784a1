//! The control plane's Helm values.

use serde_json::{Map, Value};

use super::Error;
use crate::{pod, yaml};

/// The values: as JSON for templates, and parsed as far as the injection uses them.
#[derive(Debug, Clone, Default)]
pub struct Values {
    pub(super) raw: Value,
    /// `global.multiCluster.clusterName`.
    pub(super) cluster: String,
    /// `global.network`.
    pub(super) network: String,
    /// `global.proxy.holdApplicationUntilProxyStarts`.
    pub(super) hold: bool,
    /// `sidecarInjectorWebhook.rewriteAppHTTPProbe`.
    pub(super) rewrite_probes: bool,
    hub: String,
    tag: String,
    variant: String,
    proxy_image: String,
    init_image: String,
}

impl Values {
    /// Parses values in JSON or YAML; an empty string has none.
    ///
    /// # Errors
    /// The YAML is invalid or not a map.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let raw = yaml::value(text).map_err(|error| Error::Configuration { what: "values", error })?;
        match raw {
            Value::Null => Ok(Self::new(Value::Object(Map::new()))),
            Value::Object(_) => Ok(Self::new(raw)),
            _ => Err(Error::NoMap("values")),
        }
    }

    /// Merges these values over others, as Helm merges values over those of a chart: maps are merged, a null removes a value, and
    /// everything else replaces it.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        let mut raw = base.raw;
        if !self.raw.is_null() {
            overlay(&mut raw, self.raw);
        }
        Self::new(raw)
    }

    /// Makes the values from JSON.
    pub fn new(raw: Value) -> Self {
        let at = |pointer: &str| raw.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let flag = |pointer: &str| raw.pointer(pointer).and_then(Value::as_bool).unwrap_or_default();
        // YAML parses a tag such as 1.20 without quotes as a number.
        let tag = raw.pointer("/global/tag").filter(|tag| tag.is_number()).map(Value::to_string);
        Self {
            cluster: at("/global/multiCluster/clusterName"),
            network: at("/global/network"),
            hold: flag("/global/proxy/holdApplicationUntilProxyStarts"),
            rewrite_probes: flag("/sidecarInjectorWebhook/rewriteAppHTTPProbe"),
            hub: at("/global/hub"),
            tag: tag.unwrap_or_else(|| at("/global/tag")),
            variant: at("/global/variant"),
            proxy_image: at("/global/proxy/image"),
            init_image: at("/global/proxy_init/image"),
            raw,
        }
    }

    /// Returns the sidecar's image. The image type in the pod's annotation, even an empty one, takes precedence over
    /// that in the proxy configuration, which takes precedence over that in the values.
    pub(super) fn image_of_proxy(&self, proxy_config: &Value, annotation: Option<&str>) -> String {
        let configured = proxy_config.get("image").map(|image| pod::text(image, "imageType"));
        self.image(&self.proxy_image, annotation.or(configured.filter(|kind| !kind.is_empty())))
    }

    /// Returns the image of `istio-init` and `istio-validation`; `annotation` is the image type that the pod requests.
    pub(super) fn image_of_init(&self, annotation: Option<&str>) -> String {
        self.image(&self.init_image, annotation)
    }

    /// Infers the minor version of Istio 1 from the images' tag (`1.6.0`, `release-1.4-latest-daily`).
    pub(super) fn release(&self) -> Option<u32> {
        let release = self.tag.strip_prefix("release-").unwrap_or(&self.tag).strip_prefix("1.")?;
        release.split(['.', '-']).next()?.parse().ok()
    }

    fn image(&self, name: &str, of_type: Option<&str>) -> String {
        let name = if name.is_empty() { "proxyv2" } else { name };
        if name.contains('/') {
            return name.to_owned();
        }
        let variant = of_type.unwrap_or(&self.variant);
        format!("{}/{name}:{}", self.hub, tag_of_variant(&self.tag, variant))
    }
}

fn overlay(base: &mut Value, values: Value) {
    match (base, values) {
        (Value::Object(base), Value::Object(values)) => {
            for (key, value) in values {
                match base.get_mut(&key) {
                    _ if value.is_null() => drop(base.shift_remove(&key)),
                    Some(present) => overlay(present, value),
                    None => drop(base.insert(key, value)),
                }
            }
        }
        (base, values) => *base = values,
    }
}

/// Checks that the image of a rendered container has a registry and a tag, and that no expression in it lacked a value:
/// otherwise no node could pull it. `missing`: the templates' expressions without a value.
pub(super) fn check_image(container: &Value, missing: &[String]) -> Result<(), Error> {
    let image = pod::text(container, "image");
    if ["<no value>", "<nil>"].iter().any(|text| image.contains(text)) {
        let missing = if missing.is_empty() { "an expression of the template".to_owned() } else { missing.join(", ") };
        return Err(Error::NoValue { container: pod::name(container).to_owned(), image: image.to_owned(), missing });
    }
    if image.starts_with('/') || image.ends_with(':') {
        let container = pod::name(container).to_owned();
        return Err(Error::NoImage { container, image: image.to_owned() });
    }
    Ok(())
}

/// Returns the tag with its variant replaced.
fn tag_of_variant(tag: &str, variant: &str) -> String {
    if variant.is_empty() {
        return tag.to_owned();
    }
    let base = ["-distroless", "-debug"].iter().find_map(|suffix| tag.strip_suffix(suffix)).unwrap_or(tag);
    match variant {
        "default" => base.to_owned(),
        variant => format!("{base}-{variant}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_over_others_replace_what_they_set_and_take_away_what_is_null() {
        let base = json!({"global": {"hub": "h", "tag": "1", "list": [1]}, "pilot": {"cni": {"provider": "multus"}}});
        let values = json!({"global": {"tag": "2", "list": [2]}, "pilot": {"cni": null}, "new": {"a": null, "b": 1}});
        let parsed = |values: &Value| Values::parse(&values.to_string()).unwrap();
        let merged = parsed(&values).over(parsed(&base));
        let expected =
            json!({"global": {"hub": "h", "tag": "2", "list": [2]}, "pilot": {}, "new": {"a": null, "b": 1}});
        assert_eq!(merged.raw, expected);
        assert_eq!(merged.image_of_proxy(&json!({}), None), "h/proxyv2:2");
        assert_eq!(parsed(&json!({})).over(parsed(&base)).raw, base);
    }

    #[test]
    fn the_image_follows_annotation_configuration_and_values() {
        let values = |tag: &str, variant: &str, image: &str| {
            let global = json!({"hub": "h", "tag": tag, "variant": variant, "proxy": {"image": image}, "proxy_init": {"image": "init"}});
            Values::parse(&json!({"global": global}).to_string()).unwrap()
        };
        let distroless = json!({"image": {"imageType": "distroless"}});
        let image = |v: &Values, config: &Value, annotation| v.image_of_proxy(config, annotation);
        assert_eq!(image(&values("1", "", "p"), &json!({}), None), "h/p:1");
        assert_eq!(image(&values("1", "debug", "p"), &json!({}), None), "h/p:1-debug");
        assert_eq!(image(&values("1", "debug", "p"), &distroless, Some("")), "h/p:1");
        assert_eq!(values("1", "debug", "p").image_of_init(Some("")), "h/init:1");
        assert_eq!(image(&values("1-debug", "", "p"), &distroless, None), "h/p:1-distroless");
        assert_eq!(image(&values("1-debug", "", "p"), &distroless, Some("default")), "h/p:1");
        assert_eq!(image(&values("1", "debug", "r/p:2"), &json!({}), None), "r/p:2");
        assert_eq!(values("1", "debug", "p").image_of_init(None), "h/init:1-debug");
        let number = Values::parse("global: {hub: h, tag: 1.20}").unwrap();
        assert_eq!(image(&number, &json!({}), None), "h/proxyv2:1.2");
    }
}
