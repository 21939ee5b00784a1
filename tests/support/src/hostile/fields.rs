//! Hostile content in the fields of Kubernetes' types, and in each annotation that injection reads.

use serde_json::{Map, Value, json};

use super::{Numbers, Shape, annotate, many, push, set_in_first_container, sidecar};

pub(super) const SHAPES: [(&str, Shape); 8] = [
    ("lists of a pod", pod_lists),
    ("lists of a container", container_lists),
    ("lists of an own container", own_container_lists),
    ("selectors", selectors),
    ("maps of a pod", pod_maps),
    ("quantities", quantities),
    ("annotations that are read", read_annotations),
    ("fields that are skipped", skipped),
];

/// The name of a list field and the JSON of its elements, in which a number replaces `@`.
type List = (&'static str, &'static str);

const POD_LISTS: [List; 14] = [
    ("containers", r#"{"name":"c@","securityContext":{"capabilities":{"add":["A"]}}}"#),
    ("initContainers", r#"{"name":"i@","restartPolicy":"Always"}"#),
    ("ephemeralContainers", r#"{"name":"e@"}"#),
    ("volumes", r#"{"name":"v@","projected":{"sources":[{"secret":{"name":"s"}}]}}"#),
    ("imagePullSecrets", r#"{"name":"s@"}"#),
    ("tolerations", r#"{"key":"k@"}"#),
    ("hostAliases", r#"{"ip":"@","hostnames":["h"]}"#),
    ("readinessGates", r#"{"conditionType":"c@"}"#),
    ("topologySpreadConstraints", r#"{"topologyKey":"t@"}"#),
    ("resourceClaims", r#"{"name":"r@"}"#),
    ("schedulingGates", r#"{"name":"g@"}"#),
    ("overhead", r#""@""#),
    ("securityContext", r#"{"supplementalGroups":[@]}"#),
    ("unknown", r#"[[@]]"#),
];

const CONTAINER_LISTS: [List; 12] = [
    ("ports", r#"{"containerPort":@,"protocol":"UDP"}"#),
    ("env", r#"{"name":"E@","valueFrom":{"fieldRef":{"fieldPath":"x"}}}"#),
    ("envFrom", r#"{"prefix":"p@"}"#),
    ("volumeMounts", r#"{"mountPath":"/m@","name":"v@"}"#),
    ("volumeDevices", r#"{"devicePath":"/d@"}"#),
    ("args", r#""--a@""#),
    ("command", r#""@""#),
    ("resizePolicy", r#"{"resourceName":"r@"}"#),
    ("env", r#"{"name":"E@","value":"$(E@)"}"#),
    ("ports", r#"{"containerPort":@}"#),
    ("volumeMounts", r#"{"mountPath":"/m@"}"#),
    ("env", r#"{"value":"@"}"#),
];

/// Annotations that Istio's or Dapr's injection reads, except those that other shapes set.
const ANNOTATIONS: [&str; 30] = [
    "sidecar.istio.io/inject",
    "sidecar.istio.io/status",
    "sidecar.istio.io/interceptionMode",
    "sidecar.istio.io/proxyMemory",
    "sidecar.istio.io/proxyCPULimit",
    "sidecar.istio.io/componentLogLevel",
    "sidecar.istio.io/agentLogLevel",
    "sidecar.istio.io/bootstrapOverride",
    "sidecar.istio.io/discoveryAddress",
    "sidecar.istio.io/userVolume",
    "sidecar.istio.io/userVolumeMount",
    "sidecar.istio.io/extraStatTags",
    "sidecar.istio.io/statsInclusionPrefixes",
    "sidecar.istio.io/rewriteAppHTTPProbers",
    "status.sidecar.istio.io/port",
    "readiness.status.sidecar.istio.io/periodSeconds",
    "readiness.status.sidecar.istio.io/applicationPorts",
    "traffic.sidecar.istio.io/kubevirtInterfaces",
    "istio.io/reroute-virtual-interfaces",
    "inject.istio.io/templates",
    "proxy.istio.io/config",
    "proxy.istio.io/overrides",
    "prometheus.istio.io/merge-metrics",
    "prometheus.istio.io/scrape-targets",
    "dapr.io/config",
    "dapr.io/log-level",
    "dapr.io/env",
    "dapr.io/api-token-secret",
    "dapr.io/sidecar-memory-limit",
    "dapr.io/app-health-check-path",
];

/// Strings that are expensive to parse when repeated.
const PIECES: [&str; 16] = [
    "a", "1", ",", "/", ":", "-", "\n", "  ", "- a\n", "a: b\n", "{a: ", "[", r#"{"a":"#, r#"["a","#, "a=b,", "&a *a ",
];

fn list_of(list: List, size: usize, numbers: &mut dyn Numbers) -> (&'static str, Vec<Value>) {
    let (name, element) = list;
    let read = |number: usize| {
        serde_json::from_str(&element.replace('@', &(number % 65536).to_string())).expect("elements above are JSON")
    };
    (name, many(size, element.len() + 4, numbers, read))
}

fn pod_lists(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let (name, items) = list_of(POD_LISTS[numbers.below(POD_LISTS.len())], size, numbers);
    push(pod, name, items);
}

fn container_lists(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let (name, items) = list_of(CONTAINER_LISTS[numbers.below(CONTAINER_LISTS.len())], size, numbers);
    set_in_first_container(pod, name, items.into());
}

fn own_container_lists(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let (name, items) = list_of(CONTAINER_LISTS[numbers.below(CONTAINER_LISTS.len())], size, numbers);
    let own = [
        sidecar(json!({name: items})),
        json!({"name": "istio-init", name: items}),
        json!({"name": "daprd", name: items}),
    ];
    let [sidecar, init, daprd] = own;
    match numbers.below(4) {
        0 => push(pod, "initContainers", vec![init]),
        1 => push(pod, "initContainers", vec![sidecar]),
        2 => push(pod, "containers", vec![daprd]),
        _ => push(pod, "containers", vec![sidecar]),
    }
}

fn selectors(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let values = many(size / 2, 10, numbers, |number| json!(format!("v{number}")));
    let expressions = many(size / 2, 48, numbers, |number| json!({"key": format!("k{number}"), "operator": "Exists"}));
    let terms = json!([{"matchExpressions": [{"key": "app", "operator": "In", "values": values}]},
        {"matchExpressions": expressions}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    pod["spec"]["affinity"] = json!({"nodeAffinity": {required: {"nodeSelectorTerms": terms}}});
}

fn pod_maps(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let map: Map<String, Value> = (0..size / 20).map(|number| (format!("k{number}"), json!("v"))).collect();
    match numbers.below(4) {
        0 => pod["spec"]["nodeSelector"] = map.into(),
        1 => pod["spec"]["overhead"] = map.into(),
        2 => push(pod, "volumes", vec![json!({"name": "v", "csi": {"volumeAttributes": map}})]),
        _ => push(pod, "containers", vec![sidecar(json!({"resources": {"limits": map}}))]),
    }
}

fn quantities(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let digits = ["9".repeat(size), format!("0.{}1", "0".repeat(size)), format!("1e{}", "9".repeat(size))];
    let long = &digits[numbers.below(digits.len())];
    match numbers.below(4) {
        0 => push(pod, "containers", vec![sidecar(json!({"resources": {"limits": {"cpu": long, "memory": long}}}))]),
        1 => annotate(pod, "sidecar.istio.io/proxyCPU", long.as_str()),
        2 => annotate(pod, "dapr.io/sidecar-cpu-request", long.as_str()),
        _ => {
            let limit = |number: usize| json!({"name": format!("q{number}"), "resources": {"limits": {"cpu": "0.5"}}});
            push(pod, "containers", many(size, 48, numbers, limit));
        }
    }
}

fn read_annotations(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let count = 1 + numbers.below(4);
    for _ in 0..count {
        let (name, piece) = (ANNOTATIONS[numbers.below(ANNOTATIONS.len())], PIECES[numbers.below(PIECES.len())]);
        annotate(pod, name, piece.repeat(size / count / piece.len()));
    }
}

fn skipped(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let list = many(size, 30, numbers, |number| json!({"manager": format!("m{number}"), "f:a": {}}));
    let field = ["managedFields", "ownerReferences", "finalizers"][numbers.below(3)];
    pod["metadata"][field] = list.into();
}
