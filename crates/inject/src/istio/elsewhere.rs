//! The warning about injection settings that a workload has outside its pod template, where neither the injector nor the CNI plugin reads
//! them.

use contract::annotation;
use serde_json::{Value, json};

use super::unused;
use crate::pod;
use crate::workload::Kind;

/// Labels and annotations that an injection writes, also into the metadata of a job template.
const WRITTEN: [&str; 3] = [annotation::STATUS, annotation::OVERRIDES, annotation::NETWORK];

/// Returns the warning about settings among the labels and annotations of the workload or its job template that `pod`, the pod before its
/// injection, lacks.
pub(super) fn warning(document: &Value, kind: Kind, pod: &Value) -> Option<String> {
    let (metadata, _) = kind.template();
    let own = Some("/metadata").filter(|own| *own != metadata);
    let mut found: Vec<&str> = Vec::new();
    for metadata in own.into_iter().chain(kind.job_metadata()).filter_map(|pointer| document.pointer(pointer)) {
        // An injection wrote these: Istio's `kube-inject` writes only into the metadata of the job template.
        if pod::annotation(&json!({"metadata": metadata}), annotation::STATUS).is_some() {
            continue;
        }
        for which in ["labels", "annotations"] {
            let names = pod::map(metadata, which).keys().map(String::as_str);
            let of_pod = pod::map(pod::metadata(pod), which);
            for name in names.filter(|name| is_setting(name) && !of_pod.contains_key(*name)) {
                if !found.contains(&name) {
                    found.push(name);
                }
            }
        }
    }
    let place = metadata.trim_start_matches('/').replace('/', ".");
    unused::listed(&found, &format!("settings of the injection that have an effect only in {place}"))
}

/// Whether this is the name of a setting of Istio's injection.
fn is_setting(name: &str) -> bool {
    let is_known = annotation::ALL.iter().any(|(known, _)| *known == name);
    is_known && name.contains("istio.io/") && !WRITTEN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INJECT: &str = annotation::INJECT;

    #[test]
    fn settings_outside_of_the_pod_template_are_named() {
        let set = json!({"annotations": {INJECT: "false", annotation::EXCLUDE_OUTBOUND_PORTS: "1", "example.com/a": "b"},
            "labels": {INJECT: "false", annotation::NETWORK: "n"}});
        let deployment = json!({"metadata": set, "spec": {"template": {}}});
        let text = "settings of the injection that have an effect only in spec.template.metadata: sidecar.istio.io/inject, \
                    traffic.sidecar.istio.io/excludeOutboundPorts";
        let pod = json!({"metadata": {}});
        assert_eq!(warning(&deployment, Kind::Template, &pod).as_deref(), Some(text));
        assert_eq!(warning(&deployment, Kind::Template, &json!({"metadata": set})), None, "the pod has them, too");
        assert_eq!(warning(&deployment, Kind::Pod, &json!({"metadata": {}})), None, "they are those of the pod");
        let mut cron_job = json!({"spec": {"jobTemplate": {"metadata": set}}});
        let found = warning(&cron_job, Kind::CronJob, &pod).unwrap();
        assert!(
            found.contains("only in spec.jobTemplate.spec.template.metadata: sidecar.istio.io/inject, traffic"),
            "{found}"
        );
        cron_job["spec"]["jobTemplate"]["metadata"]["annotations"][annotation::STATUS] = "{}".into();
        assert_eq!(warning(&cron_job, Kind::CronJob, &pod), None, "an injection wrote them");
    }
}
