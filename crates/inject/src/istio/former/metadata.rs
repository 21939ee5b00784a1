//! Restores the labels, the annotations and the security context that a pod had before a former injection.
//!
//! The former injection did not record which of them it wrote. A value that differs from the one that injections write
//! is the author's and stays.

use contract::{annotation, container};
use gotemplate::Budget;
use serde_json::{Map, Value};

use super::{Former, metrics, remove_if};
use crate::istio::Error;
use crate::istio::legacy_template::GROUP;
use crate::istio::status::Status;
use crate::pod::{self, CONTAINERS};

pub(super) const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
pub(super) const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";
const TLS_MODE: &str = "security.istio.io/tlsMode";
const TUNNEL: &str = "networking.istio.io/tunnel";
const REVISION: &str = "istio.io/rev";
/// The annotations that name the default container of `kubectl exec` and `kubectl logs`.
const DEFAULT_CONTAINERS: [&str; 2] =
    ["kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"];
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The network for which Multus calls the plugin.
const MULTUS: &str = "default/istio-cni";
/// [`MULTUS`] as an element of a list in JSON.
const MULTUS_ENTRY: &str = r#"{"name": "istio-cni", "namespace": "default"}"#;
/// The annotations that an injection for the CNI plugin sets to Helm's values if the author sets none.
pub(super) const OF_VALUES: [&str; 6] = [
    annotation::INCLUDE_OUTBOUND_CIDRS,
    annotation::EXCLUDE_OUTBOUND_CIDRS,
    annotation::INCLUDE_INBOUND_PORTS,
    annotation::EXCLUDE_INBOUND_PORTS,
    annotation::INCLUDE_OUTBOUND_PORTS,
    annotation::EXCLUDE_OUTBOUND_PORTS,
];
/// The sysctl that allows a gateway to listen on ports below 1024.
const UNPRIVILEGED_PORTS: &str = "net.ipv4.ip_unprivileged_port_start";
/// The canonical revision of a pod without a version.
const NO_VERSION: &str = "latest";
/// The maximum length of a label's value.
const LABEL: usize = 63;

/// Removes the labels, annotations and security settings that the former injection wrote. The containers of `pod` are already restored.
///
/// # Errors
/// The budget is spent.
pub(super) fn restore(pod: &mut Value, former: &Former<'_>, workload: &str, budget: &mut Budget) -> Result<(), Error> {
    restore_labels(pod, former, workload);
    metrics::restore(pod, former, budget)?;
    restore_redirection(pod, former, budget)?;
    let containers = pod::containers(pod, CONTAINERS);
    let first = containers.iter().map(pod::name).find(|name| *name != container::PROXY).map(str::to_owned);
    let names: Vec<String> = containers.iter().map(|container| pod::name(container).to_owned()).collect();
    // The first application at the time of the former injection.
    let mut applications = former.variable("ISTIO_META_APP_CONTAINERS").split(',');
    let former_first = applications.find(|name| *name != container::PROXY);
    let annotations = pod::annotations_mut(pod);
    annotations.shift_remove(REVISION);
    for name in DEFAULT_CONTAINERS {
        remove_if(annotations, name, |value| {
            [first.as_deref(), former_first].contains(&Some(value)) || !names.iter().any(|name| name == value)
        });
    }
    if former.has_grpc() {
        remove_if(annotations, annotation::REWRITE_PROBES, |value| value == "false");
    }
    if former.status.is_legacy {
        restore_group(pod);
    }
    if pod::list(former.sidecar.unwrap_or(&Value::Null), "args").iter().any(|argument| argument == "router") {
        restore_ports(pod);
    }
    Ok(())
}

/// The canonical name and revision that an injection writes.
pub(super) struct Canonical {
    pub(super) name: String,
    /// The name, shortened to fit in a label.
    short: String,
    pub(super) revision: String,
}

impl Canonical {
    /// Derives both from the other labels of a pod.
    pub(super) fn of(pod: &Value, workload: &str) -> Self {
        let first = |names: [&str; 2], default: &str| {
            let label = names.iter().filter_map(|name| pod::label(pod, name)).find(|value| !value.is_empty());
            label.unwrap_or(default).to_owned()
        };
        let name = first(["app.kubernetes.io/name", "app"], workload);
        let short: String = name.chars().take(LABEL).collect();
        let short = short.trim_matches(['-', '_', '.']).to_owned();
        Self { name, short, revision: first(["app.kubernetes.io/version", "version"], NO_VERSION) }
    }

    /// Whether an injection writes this value of the label, or would have written it before the pod had a label with its version.
    pub(super) fn has(&self, label: &str, value: &str) -> bool {
        match label {
            CANONICAL_NAME => value == self.name || value == self.short,
            _ => value == self.revision || value == NO_VERSION,
        }
    }
}

/// Whether a status records the labels that its injection wrote.
pub(super) fn has_labels(status: &Status) -> bool {
    status.record.as_ref().is_some_and(|record| record.written.is_some())
}

fn restore_labels(pod: &mut Value, former: &Former<'_>, workload: &str) {
    if pod::map(pod::metadata(pod), "labels").is_empty() {
        return;
    }
    let canonical = Canonical::of(pod, workload);
    let tunnel = former.variable("ISTIO_META_ENABLE_HBONE") == "true";
    let labels = pod::labels_mut(pod);
    // The record has the labels that the former injection wrote. Without it, labels with the values that follow from the present labels are
    // treated as injected.
    if !has_labels(former.status) {
        for label in [CANONICAL_NAME, CANONICAL_REVISION] {
            remove_if(labels, label, |value| canonical.has(label, value));
        }
    }
    remove_if(labels, TLS_MODE, |value| value == "istio");
    // A legacy template's injection wrote the revision of its control plane if the pod had none.
    remove_if(labels, REVISION, |value| former.status.is_legacy && ["", "default"].contains(&value));
    remove_if(labels, TUNNEL, |value| tunnel && value == "http");
    // Only a sidecar has a variable with the network, and only the webhook's status records the label.
    let is_proxyless = former.sidecar.is_none() && former.status.settings.is_none();
    remove_if(labels, annotation::NETWORK, |value| is_proxyless || value == former.variable("ISTIO_META_NETWORK"));
    if labels.is_empty() {
        pod::map_mut(pod, "metadata").shift_remove("labels");
    }
}

/// Removes what an injection for the CNI plugin writes into the annotations that the plugin reads.
fn restore_redirection(pod: &mut Value, former: &Former<'_>, budget: &mut Budget) -> Result<(), Error> {
    let always = [annotation::INTERCEPTION_MODE, annotation::INCLUDE_INBOUND_PORTS, annotation::EXCLUDE_INBOUND_PORTS];
    let all = always.iter().all(|name| pod::annotation(pod, name).is_some());
    if !(former.has_init(container::VALIDATION) || all && !former.has_init(container::INIT)) {
        return Ok(());
    }
    let config = Value::Object(former.decoded("PROXY_CONFIG", budget)?);
    let mode = match pod::text(&config, "interceptionMode") {
        "" => "REDIRECT",
        mode => mode,
    };
    let ports = metrics::appended_ports(former, &config);
    let annotations = pod::annotations_mut(pod);
    remove_if(annotations, annotation::INTERCEPTION_MODE, |value| value == mode);
    remove_if(annotations, annotation::INCLUDE_OUTBOUND_CIDRS, |value| value == "*");
    remove_if(annotations, annotation::INCLUDE_INBOUND_PORTS, |value| value == "*");
    for name in
        [annotation::EXCLUDE_OUTBOUND_CIDRS, annotation::INCLUDE_OUTBOUND_PORTS, annotation::EXCLUDE_OUTBOUND_PORTS]
    {
        remove_if(annotations, name, str::is_empty);
    }
    remove_last(annotations, annotation::EXCLUDE_INBOUND_PORTS, ",", &ports);
    remove_last(annotations, NETWORKS, ", ", &[MULTUS.to_owned()]);
    remove_network(annotations);
    Ok(())
}

/// Removes the element, one of `last`, that an injection appended to a list, and the annotation if its list is then empty.
fn remove_last(annotations: &mut Map<String, Value>, name: &str, separator: &str, last: &[String]) {
    let Some(Value::String(list)) = annotations.get_mut(name) else { return };
    let rest = |last: &String| list.strip_suffix(&**last)?.strip_suffix(separator).map(str::to_owned);
    if let Some(rest) = last.iter().find_map(rest) {
        *list = rest;
    } else if list.is_empty() || last.contains(list) {
        annotations.shift_remove(name);
    }
}

/// Removes the plugin's network from a list in JSON.
fn remove_network(annotations: &mut Map<String, Value>) {
    let Some(Value::String(list)) = annotations.get_mut(NETWORKS) else { return };
    if let Some((before, after)) = list.rsplit_once(MULTUS_ENTRY)
        && after.trim() == "]"
    {
        *list = before.trim_end_matches(", ").to_owned() + after;
    }
}

/// Removes the `fsGroup` that a legacy template's injection sets.
fn restore_group(pod: &mut Value) {
    change_context(pod, |context| {
        if context.get("fsGroup").and_then(Value::as_u64) == Some(GROUP.into()) {
            context.shift_remove("fsGroup");
        }
    });
}

/// Removes the sysctl for a gateway's ports.
fn restore_ports(pod: &mut Value) {
    change_context(pod, |context| {
        let Some(Value::Array(settings)) = context.get_mut("sysctls") else { return };
        settings.retain(|setting| pod::name(setting) != UNPRIVILEGED_PORTS || pod::text(setting, "value") != "0");
        if settings.is_empty() {
            context.shift_remove("sysctls");
        }
    });
}

/// Changes the pod's security context, and removes it if it is then empty.
fn change_context(pod: &mut Value, change: impl FnOnce(&mut Map<String, Value>)) {
    let spec = pod::object(pod::spec_mut(pod));
    let Some(Value::Object(context)) = spec.get_mut("securityContext") else { return };
    change(context);
    if context.is_empty() {
        spec.shift_remove("securityContext");
    }
}
