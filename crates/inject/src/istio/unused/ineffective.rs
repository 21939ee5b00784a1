//! Warnings about annotations that have no effect on the injected pod because nothing redirects its traffic, it has no proxy, or no agent
//! serves its metrics.

use contract::annotation;
use serde_json::Value;

use super::listed;
use crate::istio::prometheus::{PORT, SCRAPING};
use crate::istio::proxy::{self, Program};
use crate::pod;

/// The annotations for an application's metrics.
const OF_METRICS: [&str; 3] = [annotation::SCRAPE_TARGETS, PORT, "prometheus.io/path"];

/// Returns the warnings about the annotations of the pod `author` that have no effect on the pod `injected`. `configured`: the
/// interception mode of its proxy configuration, `names_bootstrap`: whether a template names the annotation for the bootstrap.
pub(super) fn warnings((author, injected): (&Value, &Value), configured: &str, names_bootstrap: bool) -> Vec<String> {
    let is_set = |name: &&str| pod::annotation(author, name).is_some();
    let sidecar = pod::sidecar(injected);
    let has_proxy = sidecar.is_some_and(|sidecar| Program::of(sidecar) != Program::NoProxy);
    let of_proxy = [(annotation::REWRITE_PROBES, true), (annotation::BOOTSTRAP_OVERRIDE, names_bootstrap)];
    let of_proxy = of_proxy.into_iter().filter(|(name, is_named)| !has_proxy && *is_named && is_set(name));
    let of_proxy: Vec<&str> = of_proxy.map(|(name, _)| name).collect();
    // Without a status port, the agent serves no metrics.
    let serves =
        pod::annotation(injected, annotation::STATUS_PORT).and_then(|port| port.parse::<u16>().ok()) != Some(0);
    let scrapes = serves && sidecar.is_some_and(|sidecar| pod::find(pod::list(sidecar, "env"), SCRAPING).is_some());
    // Only an agent reads the targets; the author's port and path are lost if the injection replaced them with an agent's.
    let is_lost = |name: &&str| {
        *name == annotation::SCRAPE_TARGETS || pod::annotation(injected, name) != pod::annotation(author, name)
    };
    // An empty value names no port, path or target.
    let has_text = |name: &&str| pod::annotation(author, name).is_some_and(|text| !text.is_empty());
    let of_metrics = OF_METRICS.into_iter().filter(|name| !scrapes && has_text(name) && is_lost(name));
    let of_metrics: Vec<&str> = of_metrics.collect();
    let found = [
        (of_traffic((author, injected), configured), "nothing redirects the pod's traffic"),
        (of_proxy, "the pod has no proxy"),
        (of_metrics, "no agent of the pod serves its application's metrics"),
    ];
    found
        .into_iter()
        .filter_map(|(names, reason)| listed(&names, &format!("annotations without effect, because {reason}")))
        .collect()
}

/// Returns the author's annotations for redirected traffic if nothing redirects the pod's traffic. The interception mode is among them only
/// if the pod has no sidecar: otherwise it is the cause.
fn of_traffic((author, injected): (&Value, &Value), configured: &str) -> Vec<&'static str> {
    let has_sidecar = proxy::has_sidecar(injected);
    let mode = pod::annotation(injected, annotation::INTERCEPTION_MODE).unwrap_or(configured);
    if has_sidecar && mode != "NONE" {
        return Vec::new();
    }
    let of_injection = [annotation::STATUS, annotation::INJECT];
    let of_traffic = podfacts::ANNOTATIONS.into_iter().filter(|name| !of_injection.contains(name));
    let of_traffic = of_traffic.filter(|name| !has_sidecar || *name != annotation::INTERCEPTION_MODE);
    of_traffic.filter(|name| pod::annotation(author, name).is_some()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::istio::{BuiltIn, InjectionOutcome, Injector, Request};

    const TRAFFIC: &str = "annotations without effect, because nothing redirects the pod's traffic: ";

    /// Returns the warnings about a pod with this template and these annotations.
    fn warned(template: &str, annotations: &serde_json::Value) -> Vec<String> {
        let injector = Injector::new(BuiltIn::default().config().unwrap());
        let mut pod =
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "app", "image": "i"}]}});
        pod["metadata"]["annotations"]["inject.istio.io/templates"] = template.into();
        match injector.review(&Request::new(&pod, "shop")).unwrap() {
            InjectionOutcome::Injected { injected, .. } => injected.warnings,
            InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
        }
    }

    #[test]
    fn annotations_of_traffic_that_nothing_redirects_are_named() {
        for (name, value) in [
            ("sidecar.istio.io/interceptionMode", "TPROXY"),
            ("traffic.sidecar.istio.io/includeOutboundIPRanges", "10.0.0.0/8"),
            ("traffic.sidecar.istio.io/excludeOutboundIPRanges", "10.0.0.0/8"),
            ("traffic.sidecar.istio.io/includeInboundPorts", "80"),
            ("traffic.sidecar.istio.io/excludeInboundPorts", "80"),
            ("traffic.sidecar.istio.io/includeOutboundPorts", "80"),
            ("traffic.sidecar.istio.io/excludeOutboundPorts", "80"),
            ("traffic.sidecar.istio.io/excludeInterfaces", "eth1"),
            ("traffic.sidecar.istio.io/kubevirtInterfaces", "net1"),
            ("istio.io/reroute-virtual-interfaces", "net1"),
        ] {
            let set = json!({name: value});
            assert_eq!(warned("sidecar", &set), [""; 0], "{name}");
            for template in ["gateway", "grpc-agent", "grpc-simple"] {
                assert_eq!(warned(template, &set), [format!("{TRAFFIC}{name}")], "{template}");
            }
            for none in [
                json!({"sidecar.istio.io/interceptionMode": "NONE"}),
                json!({"proxy.istio.io/config": "interceptionMode: NONE"}),
            ] {
                let mut both = none.clone();
                if !name.ends_with("interceptionMode") {
                    both[name] = value.into();
                    assert_eq!(warned("sidecar", &both), [format!("{TRAFFIC}{name}")]);
                }
                assert_eq!(warned("sidecar", &none), [""; 0]);
            }
        }
    }

    #[test]
    fn annotations_of_a_proxy_that_the_pod_does_not_have_are_named() {
        let probes = json!({"sidecar.istio.io/rewriteAppHTTPProbers": "true"});
        let text = "annotations without effect, because the pod has no proxy: sidecar.istio.io/rewriteAppHTTPProbers";
        let bootstrap = json!({"sidecar.istio.io/bootstrapOverride": "b"});
        let targets = json!({"prometheus.istio.io/scrape-targets": "8080"});
        for template in ["sidecar", "gateway"] {
            for set in [&probes, &bootstrap, &targets] {
                assert_eq!(warned(template, set), [""; 0], "{template} {set}");
            }
        }
        assert_eq!(warned("grpc-agent", &probes), [text]);
        assert_eq!(warned("grpc-simple", &probes), [text]);
        let text = "annotations without effect, because the pod has no proxy: sidecar.istio.io/bootstrapOverride";
        assert_eq!(warned("grpc-agent", &bootstrap), [text]);
        let text = "annotations that no template for this pod uses: sidecar.istio.io/bootstrapOverride";
        assert_eq!(warned("grpc-simple", &bootstrap), [text]);
        let text = "annotations without effect, because no agent of the pod serves its application's metrics: prometheus.istio.io/scrape-targets";
        assert_eq!(warned("grpc-agent", &targets), [""; 0]);
        assert_eq!(warned("grpc-simple", &targets), [text]);
        let port = json!({"prometheus.io/port": "8080"});
        let text = "annotations without effect, because no agent of the pod serves its application's metrics: prometheus.io/port";
        assert_eq!((warned("sidecar", &port), warned("grpc-simple", &port)), (Vec::new(), vec![text.to_owned()]));
        assert_eq!(warned("sidecar", &json!({"prometheus.io/port": ""})), [""; 0], "an empty port is none");
    }

    #[test]
    fn annotations_that_only_the_template_of_a_sidecar_reads_are_named() {
        for (name, value, templates) in [
            ("sidecar.istio.io/nativeSidecar", "true", &["gateway", "grpc-agent", "grpc-simple"][..]),
            ("sidecar.istio.io/proxyImageType", "distroless", &["grpc-simple"]),
        ] {
            for template in ["sidecar", "gateway", "grpc-agent", "grpc-simple"] {
                let text = format!("annotations that no template for this pod uses: {name}");
                let expected: Vec<String> = templates.contains(&template).then_some(text).into_iter().collect();
                assert_eq!(warned(template, &json!({name: value})), expected, "{template}");
            }
        }
    }
}
