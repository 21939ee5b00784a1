//! Random small templates, as users add them to a configuration: they add a sidecar or an overlay of one, and change applications and the
//! pod. Not every template fits every pod.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use super::{ANNOTATIONS, application, settings};

/// Generates templates.
pub fn template() -> impl Strategy<Value = String> {
    let lists = (sidecar(), others(), inits());
    (metadata(), lists, volumes(), settings(), unfit()).prop_map(
        |(metadata, ((sidecar, is_init), mut containers, mut inits), volumes, mut spec, unfit)| {
            if is_init { &mut inits } else { &mut containers }.extend(sidecar);
            for (key, list) in [("containers", containers), ("initContainers", inits), ("volumes", volumes)] {
                if !list.is_empty() {
                    spec.insert(key.to_owned(), list.into());
                }
            }
            spec.extend(unfit.into_iter().map(|(key, value)| (key.to_owned(), value)));
            json!({ "metadata": metadata, "spec": spec }).to_string()
        },
    )
}

/// Generates the sidecar, or an overlay of one, and whether it is among the init containers.
fn sidecar() -> impl Strategy<Value = (Option<Value>, bool)> {
    let image = select(
        &["{{ .ProxyImage }}", "{{ .ProxyImage }}", "registry.example/{{ .DeploymentMeta.Name }}:1", "auto", ""][..],
    );
    let args = prop_oneof![
        4 => Just(json!(["proxy", "sidecar", "--log", "{{ annotation .ObjectMeta `sidecar.istio.io/logLevel` `info` }}"])),
        1 => Just(json!(["proxy", "router"])),
        1 => Just(json!(["serve"])),
    ];
    let env = select(vec![
        json!([]),
        json!([{ "name": "NAME", "value": "{{ .ObjectMeta.Name }}" }, { "name": "NAME", "value": "twice" }]),
        json!([{ "name": "ISTIO_META_DNS_CAPTURE", "value": "true" }]),
        json!([{ "name": "DISABLE_ENVOY", "value": "true" }]),
        json!([{ "name": "OWN", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]),
    ]);
    let policy = prop_oneof![3 => Just(None), 1 => Just(Some("Always")), 1 => Just(Some("Never"))];
    let sidecar =
        (application("istio-proxy"), image, args, env, policy).prop_map(|(mut sidecar, image, args, env, policy)| {
            sidecar["image"] = image.into();
            sidecar["args"] = args;
            sidecar["env"] = env;
            if let Some(policy) = policy {
                sidecar["restartPolicy"] = policy.into();
            }
            if image.is_empty() {
                sidecar.as_object_mut().map(|sidecar| sidecar.shift_remove("image"));
            }
            sidecar
        });
    let is_init = prop_oneof![3 => Just(false), 1 => Just(true)];
    (prop_oneof![1 => Just(None), 6 => sidecar.prop_map(Some)], is_init)
}

/// Generates changes to application containers, and additional containers.
fn others() -> impl Strategy<Value = Vec<Value>> {
    let all = vec![
        json!({ "name": "app", "env": [{ "name": "ADDED", "value": "{{ .Revision }}" }] }),
        json!({ "name": "b", "$patch": "delete" }),
        json!({ "name": "c", "ports": [{ "containerPort": 80, "name": "web" }] }),
        json!({ "name": "collector", "image": "registry.example/collector:1", "volumeMounts": [{ "name": "data", "mountPath": "/d" }],
            "resources": { "requests": { "cpu": "500m" }, "limits": { "memory": "8Gi" } } }),
    ];
    prop_oneof![2 => Just(Vec::new()), 1 => subsequence(all, 1..=3)]
}

/// Generates init containers, some of which validate or set up the redirection.
fn inits() -> impl Strategy<Value = Vec<Value>> {
    let capable = json!({ "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] } });
    let port = "{{ annotation .ObjectMeta `traffic.sidecar.istio.io/excludeInboundPorts` `` }}";
    let all = vec![
        json!({ "name": "istio-validation", "image": "{{ .ProxyImage }}", "args": ["istio-iptables", "--run-validation"] }),
        json!({ "name": "istio-init", "image": "{{ .ProxyImage }}", "args": ["istio-iptables", "-d", port], "securityContext": capable }),
        json!({ "name": "istio-init", "image": "{{ .ProxyImage }}", "args": ["istio-iptables", "-b", "*"] }),
        json!({ "name": "setup", "image": "registry.example/setup:2" }),
    ];
    prop_oneof![3 => Just(Vec::new()), 1 => subsequence(all, 1..=2)]
}

/// Generates volumes: `data`, which applications mount, and sometimes another one, such as `istio-data`, which the built-in templates have.
fn volumes() -> impl Strategy<Value = Vec<Value>> {
    let others = vec![
        json!({ "name": "istio-data", "emptyDir": { "medium": "Memory" } }),
        json!({ "name": "istio-token", "secret": { "secretName": "t" } }),
        json!({ "name": "{{ .ObjectMeta.Name }}", "emptyDir": {} }),
    ];
    let some = prop_oneof![4 => Just(Vec::new()), 1 => subsequence(others, 1)];
    some.prop_map(|others| [vec![json!({ "name": "data", "emptyDir": {} })], others].concat())
}

fn metadata() -> impl Strategy<Value = Value> {
    let annotation = select(ANNOTATIONS).prop_flat_map(|(name, values)| {
        let passed = format!("{{{{ annotation .ObjectMeta `{name}` `` }}}}");
        (Just(name.to_owned()), prop_oneof![select(values).prop_map(str::to_owned), Just(passed)])
    });
    let label = select(&["{{ .DeploymentMeta.Name | trunc 63 | trimAll `.` }}", "{{ .Revision }}", "no label"][..]);
    (vec(annotation, 0..2), prop_oneof![3 => Just(None), 1 => label.prop_map(Some)]).prop_map(|(annotations, label)| {
        let annotations: Map<String, Value> =
            annotations.into_iter().map(|(name, value)| (name, value.into())).collect();
        match label {
            Some(label) => json!({ "annotations": annotations, "labels": { "team": label } }),
            None => json!({ "annotations": annotations }),
        }
    })
}

/// Generates fields with which the plugin cannot redirect a pod, or with which the API server may refuse it.
fn unfit() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let fields = vec![
        ("hostNetwork", json!(true)),
        ("os", json!({ "name": "windows" })),
        ("runtimeClassName", json!("gvisor")),
        ("resources", json!({ "limits": { "cpu": "6", "memory": "9Gi" } })),
        ("resources", json!({ "limits": { "ephemeral-storage": "1Gi" } })),
        ("ephemeralContainers", json!([{ "name": "debug", "image": "registry.example/debug:1" }])),
    ];
    prop_oneof![8 => Just(Vec::new()), 2 => subsequence(fields, 1)]
}
