//! Property tests: for any pod and settings a review ends, and an injected pod has exactly one sidecar.

use proptest::prelude::*;

use super::*;
use crate::{Glob, env, mounts};

const ANNOTATIONS: [&str; 31] = [
    "app-id",
    "app-port",
    "app-protocol",
    "app-ssl",
    "env",
    "env-from-secret",
    "volume-mounts",
    "volume-mounts-rw",
    "unix-domain-socket-path",
    "pluggable-components",
    "pluggable-components-sockets-folder",
    "inject-pluggable-components",
    "enable-native-sidecar",
    "enable-debug",
    "debug-port",
    "sidecar-cpu-request",
    "sidecar-memory-limit",
    "metrics-port",
    "grpc-port",
    "enable-metrics",
    "sidecar-image",
    "placement-host-address",
    "scheduler-host-address",
    "app-max-concurrency",
    "enable-app-health-check",
    "app-health-probe-interval",
    "sidecar-liveness-probe-delay-seconds",
    "log-level",
    "block-shutdown-duration",
    "enable-api-logging",
    "exclude-ports-from-redirection",
];

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "(true|false|1|-1|99999999999|app|one|/tmp/x|one:/one|A=1,B=2|100m|1Gi| |)",
        1 => any::<String>(),
    ]
}

fn annotations() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    prop::collection::vec((prop::sample::select(ANNOTATIONS.to_vec()), value()), 0..12)
}

fn named() -> impl Strategy<Value = Value> {
    prop::sample::select(vec!["app", "one", "two", "DAPR_HTTP_PORT", "dapr-identity-token"])
        .prop_map(|name| json!({"name": name}))
}

fn list(of: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop_oneof![1 => Just(Value::Null), 3 => prop::collection::vec(of, 0..4).prop_map(Value::Array)]
}

fn container() -> impl Strategy<Value = Value> {
    (named(), list(named()), list(named())).prop_map(|(mut container, env, mounts)| {
        container["env"] = env;
        container["volumeMounts"] = mounts;
        container
    })
}

fn any_pod() -> impl Strategy<Value = Value> {
    let lists = (list(container()), list(named()), list(named()));
    (annotations(), lists, any::<bool>()).prop_map(|(annotations, (containers, init, volumes), labels)| {
        let given: Vec<_> = annotations.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut pod = pod(&given);
        pod["spec"] = json!({"containers": containers, "initContainers": init, "volumes": volumes});
        if labels {
            pod["metadata"]["labels"] = json!({"a": "b"});
        }
        pod
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        value().prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "metadata",
            "spec",
            "containers",
            "name",
            "env",
            "annotations",
            "labels",
            "volumes",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|members| members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn a_patch_makes_a_pod_with_one_sidecar(pod in any_pod(), old in any::<bool>(), first in any::<bool>()) {
        let era = if old { Era::V1_4_2 } else { Era::Current };
        let settings = Settings { native_first: first, ..parse_settings(&[], era).expect("settings") };
        let component = json!({"image": "c", "volumeMounts": [{"name": "one"}]}).to_string();
        let components = [Component { name: "c".into(), container: component, scopes: vec![] }];
        let outcome = reviewed_with(&pod, &settings, &trust(), Some(&components));
        if let Decision::Inject { .. } = outcome.decision {
            let after = apply(&pod, &outcome);
            let ours: Value = inject::apply(pod.clone(), &outcome.patch).expect("the patch applies");
            prop_assert_eq!(&after, &ours);
            let lists = ["containers", "initContainers"].into_iter().filter_map(|list| after["spec"][list].as_array());
            prop_assert_eq!(lists.flatten().filter(|container| container["name"] == "daprd").count(), 1);
            let again = reviewed_with(&after, &settings, &trust(), Some(&components));
            prop_assert_eq!(again.decision.reason(), "already_injected");
        } else {
            prop_assert!(outcome.patch.is_empty());
        }
    }

    #[test]
    fn no_object_makes_the_injector_panic(mut object in any_json()) {
        for enabled in [false, true] {
            if enabled && object.is_object() {
                object["metadata"] = json!({"annotations": {"dapr.io/enabled": "true", "dapr.io/app-id": "a"}});
            }
            let outcome = reviewed(&object, &settings(&[]));
            prop_assert_eq!(outcome.patch.is_empty(), !matches!(outcome.decision, Decision::Inject { .. }));
        }
    }

    #[test]
    fn variables_keep_every_byte_but_blanks_and_commas(text in "[A-Za-z0-9=, .:]{0,40}") {
        let found = env::parse(&text);
        prop_assert_eq!(found.keys.len(), found.list.len());
        let letters = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).count();
        let kept: usize = found.list.iter().map(|one| letters(one["name"].as_str().unwrap_or("")) + letters(one["value"].as_str().unwrap_or(""))).sum();
        prop_assert!(kept <= letters(&text));
        for piece in text.split(',').filter(|piece| piece.contains('=')) {
            prop_assert!(letters(piece) <= kept, "{:?} is lost from {:?}", piece, text);
        }
    }

    #[test]
    fn no_annotation_value_makes_a_parser_panic(text in any::<String>()) {
        let _ = env::parse(&text);
        let _ = env::parse_from_secret(&text);
        let _ = env::parse_1_4_2(&text);
        let _ = mounts::parse(&text, true).count();
        if let Ok(glob) = Glob::parse(&text) {
            let _ = glob.matches(&text);
        }
    }
}
