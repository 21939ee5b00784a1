//! Properties of every pod: patches result in the intended pod, a second injection changes nothing, equal reviews get
//! equal responses, and skipped pods get no patch.

use inject::istio::{BuiltIn, Config, Injected, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};
use inject::{apply, diff};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config as Runs, FileFailurePersistence, TestRunner};
use serde_json::{Value, json};

type Property = fn() -> Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let properties: [(&str, Property); 5] = [
        ("a patch makes of any document the other", any_patch),
        ("injecting twice is injecting once, and the patch makes it", injected_pods),
        ("a legacy template injected twice is injected once", legacy_pods),
        ("the cache of an injector changes no response", remembered_pods),
        ("who is skipped gets no patch", skipped_pods),
    ];
    properties.into_iter().map(|(name, property)| Trial::test(format!("property/{name}"), property)).collect()
}

pub(crate) fn run<T: std::fmt::Debug>(
    strategy: &impl Strategy<Value = T>,
    check: impl Fn(T) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let kept = FileFailurePersistence::Direct(concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/inject.txt"));
    let runs = Runs { cases: 300, failure_persistence: Some(Box::new(kept)), ..Runs::default() };
    let mut runner = TestRunner::new(runs);
    let check = |value| {
        check(value).map_err(|failed| {
            proptest::test_runner::TestCaseError::fail(failed.message().unwrap_or_default().to_owned())
        })
    };
    runner.run(strategy, check).map_err(|error| error.to_string().into())
}

/// Generates small documents with keys that a JSON pointer must escape.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_u8).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[a/~0]{1,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_patch() -> Result<(), Failed> {
    let root = || document().prop_map(|inside| json!({"root": inside}));
    run(&(root(), root()), |(before, after)| {
        let operations = diff(&before, &after);
        let theirs: json_patch::Patch = serde_json::from_value(serde_json::to_value(&operations)?)?;
        let mut patched = before.clone();
        json_patch::patch(&mut patched, &theirs)?;
        equal(&after, &patched, "another implementation")?;
        equal(&after, &apply(before, &operations)?, "ours")?;
        (after != patched || diff(&after, &patched).is_empty())
            .then_some(())
            .ok_or("no difference needs operations".into())
    })
}

pub(crate) fn equal(expected: &Value, got: &Value, who: &str) -> Result<(), Failed> {
    (expected == got).then_some(()).ok_or_else(|| format!("{who} makes {got}\n instead of {expected}").into())
}

/// Generates pods with any mixture of containers, probes, metrics and a sidecar of their own.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    let port = prop_oneof![Just(json!(80)), Just(json!("web")), Just(json!(15020)), Just(json!("absent"))];
    let probe = prop_oneof![
        port.clone().prop_map(|port| json!({"httpGet": {"port": port, "path": "/"}, "timeoutSeconds": 2})),
        port.prop_map(|port| json!({"tcpSocket": {"port": port}})),
        Just(json!({"grpc": {"port": 90}})),
        Just(json!({"exec": {"command": ["x"]}})),
        Just(Value::Null),
    ];
    let container = ("[abc]", probe.clone(), probe).prop_map(|(name, ready, live)| {
        json!({"name": name, "image": "i", "ports": [{"name": "web", "containerPort": 8080}], "readinessProbe": ready, "livenessProbe": live})
    });
    let own = prop_oneof![
        Just(Vec::new()),
        Just(vec![json!({"name": "istio-proxy", "image": "auto", "securityContext": {"runAsUser": 12}})]),
        Just(vec![json!({"name": "istio-proxy", "image": "own", "env": [{"name": "A", "value": "b"}], "args": ["x"]})]),
    ];
    let annotation = prop_oneof![
        Just(("prometheus.io/port", "90")),
        Just(("prometheus.io/scrape", "false")),
        Just(("sidecar.istio.io/nativeSidecar", "true")),
        Just(("sidecar.istio.io/nativeSidecar", "false")),
        Just(("sidecar.istio.io/interceptionMode", "TPROXY")),
        Just(("proxy.istio.io/config", "holdApplicationUntilProxyStarts: true")),
        Just(("sidecar.istio.io/rewriteAppHTTPProbers", "true")),
    ];
    let annotations = proptest::collection::vec(annotation, 0..4);
    let parts = (
        proptest::collection::vec(container.clone(), 0..3),
        proptest::collection::vec(container, 0..2),
        own,
        annotations,
    );
    parts.prop_map(|(mut containers, inits, own, annotations)| {
        containers.extend(own);
        let annotations: Value = annotations.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect::<serde_json::Map<_, _>>().into();
        let mut pod = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": distinct(containers)}});
        if !inits.is_empty() {
            pod["spec"]["initContainers"] = distinct(inits);
        }
        pod
    })
}

/// Removes containers with the name of an earlier one, because the API server refuses duplicate names.
fn distinct(mut containers: Vec<Value>) -> Value {
    let mut seen = std::collections::BTreeSet::new();
    containers.retain(|container| seen.insert(container["name"].to_string()));
    containers.into()
}

pub(crate) fn review<'a>(
    injector: &Injector,
    pod: &'a Value,
    native_sidecars: bool,
) -> Result<InjectionOutcome<'a>, Failed> {
    Ok(injector.review(&Request { native_sidecars, ..Request::new(pod, "shop") })?)
}

fn injected_pods() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    run(&(pod(), any::<bool>()), |(pod, native)| twice_and_patched(&injector, &pod, native))
}

fn twice_and_patched(injector: &Injector, pod: &Value, native: bool) -> Result<(), Failed> {
    let first = review(injector, pod, native)?;
    let InjectionOutcome::Injected { injected: once, .. } = &first else { return Err("was skipped".into()) };
    patches(pod, once)?;
    if review(injector, pod, native)? != first {
        return Err("the same request gets another response".into());
    }
    let InjectionOutcome::Injected { injected: twice, .. } = review(injector, &once.pod, native)? else {
        return Err("was skipped the second time".into());
    };
    equal(&once.pod, &twice.pod, "the second time")?;
    let patch = twice.patch();
    if patch.is_empty() { Ok(()) } else { Err(format!("the second time has operations: {patch:?}").into()) }
}

fn remembered_pods() -> Result<(), Failed> {
    let config = || -> Result<Config, Failed> {
        let settings = Settings::from_template(
            "metadata: {labels: {of: '{{ .ObjectMeta.Name }}'}}
spec:
  containers:
  - name: istio-proxy
    image: p
    {{- range .Spec.Containers }}
    {{ .Name }}: {{ toJSON .Ports }}
    {{- end }}
",
        )?;
        Ok(Config { settings, ..BuiltIn::default().config()? })
    };
    let injector = Injector::new(config()?);
    run(&(pod(), "[ab]", any::<bool>()), |(mut pod, name, native)| {
        pod["metadata"]["name"] = name.into();
        let unprejudiced = review(&Injector::new(config()?), &pod, native)?;
        let same = (0..3)
            .try_fold(true, |same, _| Ok::<_, Failed>(same && review(&injector, &pod, native)? == unprejudiced))?;
        same.then_some(()).ok_or_else(|| format!("another response than {unprejudiced:?}").into())
    })
}

/// Checks that the patch, applied by an independent implementation of JSON Patch, results in the intended pod.
fn patches(pod: &Value, injected: &Injected<'_>) -> Result<(), Failed> {
    let theirs: json_patch::Patch = serde_json::from_value(serde_json::to_value(injected.patch())?)?;
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &theirs)?;
    equal(&injected.pod, &patched, "the patch")
}

const LEGACY: &str = "policy: enabled\ntemplate: |
  rewriteAppHTTPProbe: [[ true ]]
  containers: [{name: istio-proxy, image: p, args: [15001]}]
  initContainers: [{name: istio-init, image: i}]
  volumes: [{name: istio-envoy, emptyDir: {}}]
";

fn legacy_pods() -> Result<(), Failed> {
    let config = Config {
        settings: Settings::parse(LEGACY, None)?,
        values: Values::parse("")?,
        mesh: Mesh::default(),
        revision: String::new(),
        platform: Platform::Kubernetes,
        compliance_policy: String::new(),
    };
    let injector = Injector::new(config);
    run(&pod(), |pod| {
        let InjectionOutcome::Injected { injected: once, .. } = review(&injector, &pod, false)? else {
            return Err("was skipped".into());
        };
        patches(&pod, &once)?;
        let InjectionOutcome::Injected { injected: twice, .. } = review(&injector, &once.pod, false)? else {
            return Err("was skipped the second time".into());
        };
        equal(&once.pod, &twice.pod, "the second time")
    })
}

fn skipped_pods() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    run(&pod(), |mut pod| {
        pod["spec"]["hostNetwork"] = true.into();
        match review(&injector, &pod, true)? {
            InjectionOutcome::Skipped(decision) if decision.reason.label() == "host_network" => Ok(()),
            outcome => Err(format!("{outcome:?}").into()),
        }
    })
}
