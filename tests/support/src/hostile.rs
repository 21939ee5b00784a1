//! Generates hostile pods, in which fields that users control are much larger or more numerous than in real pods.
//!
//! Benches measure the injection of these pods.

mod crafted;
mod fields;

use serde_json::{Map, Value, json};

/// A random number generator.
pub trait Numbers {
    /// Returns the next number.
    fn next(&mut self) -> u64;

    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or_default()
    }
}

/// The size limit of a pod, in bytes of JSON.
pub const LARGEST: usize = 3 << 20;

/// The shapes: functions that each add one kind of hostile content to a pod, with their names for reports.
pub const SHAPES: [(&str, Shape); 27] = [
    ("templates that are there", known_templates),
    ("templates that are not there", unknown_templates),
    ("variables of an own sidecar", own_env),
    ("lists of an own sidecar", own_lists),
    ("directives in an own sidecar", directives),
    ("containers", containers),
    ("init containers", init_containers),
    ("containers with probes", probes),
    ("ports", ports),
    ("volumes", volumes),
    ("labels", labels),
    ("annotations", annotations),
    ("overrides", overrides),
    ("containers that were injected before", status),
    ("probers that were injected before", probers),
    ("proxy configuration", proxy_config),
    ("YAML of anchors", anchors),
    ("lists of ports and ranges", ranges),
    ("scrape targets", targets),
    ("networks", networks),
    ("depth", depth),
    ("numbers", numbers),
    ("long texts", texts),
    ("empty maps", maps),
    ("lists for Dapr", dapr_lists),
    ("paths for Dapr", dapr_paths),
    ("values for Dapr", dapr_values),
];

/// A function that adds approximately this many bytes of hostile content to a pod.
pub type Shape = fn(&mut Value, usize, &mut dyn Numbers);

/// Returns a pod of up to [`LARGEST`] bytes and the names of the shapes that it consists of. Only one in 32 pods is
/// large, because large pods take most of the time of a run, and because the pods that take the most work within the
/// injection's budget are smaller.
pub fn pod(numbers: &mut dyn Numbers) -> (Value, Vec<&'static str>) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"dapr.io/enabled": "true", "dapr.io/app-id": "web"}},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    });
    let parts = 1 + numbers.below(3);
    let halved = if numbers.below(32) == 0 { numbers.below(4) } else { 4 + numbers.below(7) };
    let size = (LARGEST >> halved) / parts;
    let mut names = Vec::new();
    for _ in 0..parts {
        let all = [&SHAPES[..], &fields::SHAPES, &crafted::SHAPES].concat();
        let (name, shape) = all[numbers.below(all.len())];
        shape(&mut pod, size * 9 / 10, numbers);
        names.push(name);
    }
    (pod, names)
}

/// Returns the review of a pod.
pub fn review(pod: &Value) -> String {
    let request = json!({
        "uid": "u", "namespace": "shop", "kind": {"kind": "Pod"}, "userInfo": {"groups": ["system:masters"]}, "object": pod,
    });
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).to_string()
}

fn annotate(pod: &mut Value, name: &str, value: impl Into<Value>) {
    pod["metadata"]["annotations"][name] = value.into();
}

/// Returns as many items as fit into `size` bytes, if each takes about `each` bytes. `item` creates an item from a
/// number; the numbers are either all equal or all different.
fn many<T>(size: usize, each: usize, numbers: &mut dyn Numbers, item: impl Fn(usize) -> T) -> Vec<T> {
    let alike = numbers.below(4) == 0;
    (0..size / each).map(|number| item(if alike { 7 } else { number })).collect()
}

fn push(pod: &mut Value, list: &str, items: Vec<Value>) {
    let list = &mut pod["spec"][list];
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut().expect("made above").extend(items);
}

/// Sets a field of the first container, unless another shape has replaced the container by a value that is not an
/// object.
fn set_in_first_container(pod: &mut Value, field: &str, value: Value) {
    if let Some(container) = pod.pointer_mut("/spec/containers/0").and_then(Value::as_object_mut) {
        container.insert(field.to_owned(), value);
    }
}

fn sidecar(mut fields: Value) -> Value {
    let mut sidecar = json!({"name": "istio-proxy", "image": "auto"});
    sidecar.as_object_mut().expect("an object").append(fields.as_object_mut().expect("an object"));
    sidecar
}

fn known_templates(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    const NAMES: [&str; 6] = ["sidecar", "gateway", "grpc-agent", "grpc-simple", "waypoint", "sidecar "];
    let names: Vec<&str> = (0..size / 9).map(|_| NAMES[numbers.below(NAMES.len())]).collect();
    annotate(pod, "inject.istio.io/templates", names.join(","));
}

fn unknown_templates(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    annotate(pod, "inject.istio.io/templates", many(size, 7, numbers, |number| format!("t{number}")).join(","));
}

fn own_env(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let env = many(size, 32, numbers, |number| json!({"name": format!("E{number}"), "value": "v"}));
    push(pod, "containers", vec![sidecar(json!({"env": env}))]);
}

fn own_lists(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let mounts = many(size / 3, 40, numbers, |number| json!({"name": "v", "mountPath": format!("/{number}")}));
    let ports = many(size / 3, 24, numbers, |number| json!({"containerPort": number}));
    let args = many(size / 3, 8, numbers, |number| json!(number.to_string()));
    push(pod, "containers", vec![sidecar(json!({"volumeMounts": mounts, "ports": ports, "args": args}))]);
}

fn directives(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let mut fields = Map::new();
    match numbers.below(5) {
        0 => fields.extend((0..size / 30).map(|number| (format!("$setElementOrder/l{number}"), json!([])))),
        1 => fields.extend((0..size / 40).map(|number| (format!("$deleteFromPrimitiveList/l{number}"), json!([])))),
        2 => {
            fields.insert(
                "env".into(),
                many(size, 35, numbers, |n| json!({"$patch": "delete", "name": n.to_string()})).into(),
            );
        }
        3 => {
            fields.insert("$retainKeys".into(), many(size, 9, numbers, |number| json!(format!("f{number}"))).into());
        }
        _ => fields.extend((0..size / 14).map(|number| (format!("f{number}"), Value::Null))),
    }
    let own = sidecar(fields.into());
    match numbers.below(2) {
        0 => push(pod, "containers", vec![own]),
        _ => annotate(pod, "proxy.istio.io/overrides", json!({"containers": [own]}).to_string()),
    }
}

fn containers(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    push(pod, "containers", many(size, 18, numbers, |number| json!({"name": format!("c{number}")})));
}

fn init_containers(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    push(pod, "initContainers", many(size, 18, numbers, |number| json!({"name": format!("i{number}")})));
}

fn probes(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let port = json!({"name": "web", "containerPort": 80});
    let probe = json!({"httpGet": {"port": "web", "path": "/x"}});
    push(
        pod,
        "containers",
        many(size, 200, numbers, |number| {
            json!({"name": format!("p{number}"), "ports": [port], "readinessProbe": probe, "livenessProbe": probe,
                "startupProbe": {"grpc": {"port": 1}}})
        }),
    );
}

fn ports(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let ports =
        many(size, 40, numbers, |number| json!({"name": format!("p{number}"), "containerPort": number % 65536}));
    let probe = json!({"httpGet": {"port": "nowhere"}});
    let container = json!({"name": "ports", "ports": ports, "readinessProbe": probe, "livenessProbe": probe});
    push(pod, "containers", vec![container]);
}

fn volumes(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    push(pod, "volumes", many(size / 2, 32, numbers, |number| json!({"name": format!("v{number}"), "emptyDir": {}})));
    push(pod, "imagePullSecrets", many(size / 2, 18, numbers, |number| json!({"name": format!("s{number}")})));
}

fn labels(pod: &mut Value, size: usize, _: &mut dyn Numbers) {
    let labels = pod["metadata"]["labels"].as_object_mut().expect("made above");
    labels.extend((0..size / 16).map(|number| (format!("l{number}"), json!("v"))));
}

fn annotations(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let prefix = ["a", "prometheus.io/", "dapr.io/", "sidecar.istio.io/"][numbers.below(4)];
    let annotations = pod["metadata"]["annotations"].as_object_mut().expect("made above");
    annotations.extend((0..size / 24).map(|number| (format!("{prefix}{number}"), json!("true"))));
}

fn overrides(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let list = ["containers", "initContainers"][numbers.below(2)];
    let items = match numbers.below(3) {
        0 => many(size, 24, numbers, |number| json!({"name": format!("c{number}")})),
        1 => many(size, 30, numbers, |number| json!({"name": "istio-proxy", "f": number})),
        _ => vec![sidecar(json!({"env": many(size, 30, numbers, |number| json!({"name": format!("E{number}")}))}))],
    };
    annotate(pod, "proxy.istio.io/overrides", json!({list: items}).to_string());
}

fn status(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let names = many(size / 4, 9, numbers, |number| format!("c{number}"));
    push(pod, "containers", names.iter().map(|name| json!({"name": name})).collect());
    push(pod, "volumes", names.iter().map(|name| json!({"name": name})).collect());
    let status = json!({"containers": names, "initContainers": names, "volumes": names, "imagePullSecrets": null});
    annotate(pod, "sidecar.istio.io/status", status.to_string());
}

fn probers(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    probes(pod, size / 4, numbers);
    let known: Map<String, Value> = (0..size / 60)
        .map(|number| (format!("/app-health/x{number}/livez"), json!({"httpGet": {"port": 80}})))
        .collect();
    let env = json!([{"name": "ISTIO_KUBE_APP_PROBERS", "value": Value::Object(known).to_string()}]);
    push(pod, "containers", vec![sidecar(json!({"env": env}))]);
    annotate(pod, "sidecar.istio.io/status", r#"{"containers":[]}"#);
}

fn proxy_config(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let text = match numbers.below(6) {
        0 => format!("proxyMetadata:\n{}", many(size, 12, numbers, |number| format!("  K{number}: v\n")).concat()),
        1 => format!("a: {}", "[".repeat(size.min(200_000))),
        2 => format!("extraStatTags: [{}]", many(size, 6, numbers, |number| number.to_string()).join(",")),
        3 => format!("a: |\n{}", "  x\n".repeat(size / 4)),
        4 => format!("a: [{}]", "y,1e1,".repeat(size / 6)),
        _ => format!("a: \"{}\"", "\\u00e9 ".repeat(size / 7)),
    };
    annotate(pod, "proxy.istio.io/config", text);
}

fn anchors(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let mut text = "a0: &a0 [x, x]\n".to_owned();
    for number in 1..(10 + numbers.below(size / 2000 + 1)) {
        let before = number - 1;
        text += &format!("a{number}: &a{number} [{}]\n", vec![format!("*a{before}"); 9].join(", "));
    }
    annotate(pod, "proxy.istio.io/config", text);
}

fn ranges(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    const NAMES: [&str; 6] = [
        "traffic.sidecar.istio.io/includeOutboundIPRanges",
        "traffic.sidecar.istio.io/excludeOutboundIPRanges",
        "traffic.sidecar.istio.io/includeInboundPorts",
        "traffic.sidecar.istio.io/excludeInboundPorts",
        "traffic.sidecar.istio.io/excludeOutboundPorts",
        "traffic.sidecar.istio.io/excludeInterfaces",
    ];
    let name = NAMES[numbers.below(NAMES.len())];
    let text = match name.ends_with("Ranges") {
        true => many(size, 14, numbers, |number| format!("10.{}.{}.0/24", number / 256 % 256, number % 256)).join(","),
        false => many(size, 6, numbers, |number| (number % 65536).to_string()).join(","),
    };
    annotate(pod, name, text);
}

fn targets(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let text = many(size, 8, numbers, |number| format!("{}:/m", 1 + number % 14000)).join(",");
    annotate(pod, "prometheus.istio.io/scrape-targets", text);
}

fn networks(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let list = many(size, 22, numbers, |number| json!({"name": format!("n{number}")}));
    annotate(pod, "k8s.v1.cni.cncf.io/networks", Value::from(list).to_string());
}

fn depth(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let mut value = json!("x".repeat(size));
    for _ in 0..numbers.below(120) {
        value = if numbers.below(2) == 0 { json!([value]) } else { json!({"a": value}) };
    }
    push(pod, "containers", vec![json!({"name": "deep", "args": [value]})]);
}

fn numbers(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let list: Vec<Value> = (0..size / 2).map(|_| json!(1)).collect();
    match numbers.below(3) {
        0 => pod["spec"]["unknown"] = list.into(),
        1 => push(pod, "containers", vec![sidecar(json!({"args": list}))]),
        _ => pod["spec"]["containers"] = list.into(),
    }
}

fn texts(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let piece = ["x", "é", "\"\\", "\n", "a: b ", "{{ }}", "\u{0}", ",", "#"][numbers.below(9)];
    let text = piece.repeat(size / piece.len());
    match numbers.below(8) {
        0 => pod["metadata"]["name"] = text.into(),
        1 => pod["metadata"]["labels"]["app"] = text.into(),
        2 => annotate(pod, "sidecar.istio.io/logLevel", text),
        3 => annotate(pod, "sidecar.istio.io/proxyImage", text),
        4 => set_in_first_container(pod, "name", text.into()),
        5 => annotate(pod, "sidecar.istio.io/proxyCPU", text),
        6 => pod["metadata"]["generateName"] = text.into(),
        _ => annotate(pod, &text, "true"),
    }
}

fn maps(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    let list = vec![json!({}); size / 3];
    let place = ["containers", "volumes", "initContainers", "tolerations", "hostAliases"][numbers.below(5)];
    push(pod, place, list);
}

fn dapr_lists(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    const LISTS: [(&str, &str); 5] = [
        ("dapr.io/env", "A=,"),
        ("dapr.io/env-from-secret", "A=s:k,"),
        ("dapr.io/volume-mounts", "v:/x,"),
        ("dapr.io/volume-mounts-rw", ":,"),
        ("dapr.io/pluggable-components", "c,"),
    ];
    let (name, element) = LISTS[numbers.below(LISTS.len())];
    volumes(pod, size / 4, numbers);
    containers(pod, size / 4, numbers);
    annotate(pod, name, element.repeat(size / 2 / element.len()));
}

fn dapr_paths(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    const NAMES: [&str; 2] = ["dapr.io/unix-domain-socket-path", "dapr.io/pluggable-components-sockets-folder"];
    annotate(pod, NAMES[numbers.below(NAMES.len())], "/x".repeat(size / 4));
    annotate(pod, "dapr.io/pluggable-components", "c7");
    push(pod, "containers", vec![json!({"name": "c7"}); size / 32]);
}

fn dapr_values(pod: &mut Value, size: usize, numbers: &mut dyn Numbers) {
    const NAMES: [&str; 6] =
        ["app-port", "app-protocol", "app-id", "sidecar-cpu-request", "sidecar-image", "sidecar-listen-addresses"];
    let piece = ["7", "x", "\u{0}", "\"", "İ", " "][numbers.below(6)];
    annotate(pod, &format!("dapr.io/{}", NAMES[numbers.below(NAMES.len())]), piece.repeat(size / piece.len()));
}
