//! Tests of Dapr's injection over real TLS, with an API server double from which it reads the state of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dapr::{Component, Decision, Era, Facts, Request, Settings, Trust, User};
use serde_json::{Value, json};
use serve::health::Readiness;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use webhook::dapr::{Mesh, TrustFiles, route, watch_mesh, watchdog};

use crate::hostile::assert_in_proportion;
use crate::stage::{Plan, Simple};
use test_support::DEADLINE;
use test_support::api::{Api, Fault};
use test_support::client::Connection;

const CONTROLLER: &str = "system:serviceaccount:kube-system:replicaset-controller";

/// A server with Dapr's injection, and the API server double that it watches.
struct Stage {
    simple: Simple,
    api: Api,
    anchors: PathBuf,
    /// Reports which parts of the mesh's state the injection has not read yet.
    readiness: Readiness,
    _dir: TempDir,
    keeping: JoinHandle<()>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl Stage {
    async fn start(era: Era) -> Self {
        let stage = Self::of(Api::start().await, era).await;
        std::fs::write(&stage.anchors, "FIRST").unwrap();
        stage
    }

    /// Starts a server whose file of trust anchors does not exist yet.
    async fn of(api: Api, era: Era) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let anchors = dir.path().join("ca.crt");
        let env =
            [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd:1"), ("ALLOWED_SERVICE_ACCOUNTS", "ci:runner")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let settings = Arc::new(Settings::from_env(&env, "", era).unwrap());
        let readiness = Readiness::default();
        let mesh = Mesh::new(readiness.clone());
        let routes = vec![route(Arc::clone(&settings), mesh.clone())];
        let (client, trust_files) = (api.client(), TrustFiles { anchors: anchors.clone() });
        let keeping = tokio::spawn(async move { watch_mesh(client, &settings, &trust_files, &mesh).await });
        let simple = Simple::planned(|plan| Plan { routes, ..plan }).await;
        Self { simple, api, anchors, readiness, _dir: dir, keeping }
    }

    /// Sends the review until the response satisfies the predicate; panics with the last response.
    async fn until(&self, review: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut connection = self.simple.connect().await;
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let response = connection.review("/mutate", review).await.unwrap();
            if wanted(&response) {
                return response;
            }
            assert!(tokio::time::Instant::now() < deadline, "{response:#} {:#}", sidecar(review, &response));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the readiness report is `wanted`; `None`: nothing is missing.
    async fn until_missing(&self, wanted: Option<&str>) {
        self.api
            .until(&format!("{wanted:?} of the facts"), |_| {
                (self.readiness.report().as_deref() == wanted).then_some(())
            })
            .await;
    }

    async fn until_injected(&self) {
        self.until(&review(CONTROLLER, &[]), is_patched).await;
    }
}

fn review(username: &str, annotations: &[(&str, &str)]) -> Value {
    let mut review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1", "namespace": "shop", "operation": "CREATE", "userInfo": { "username": username, "uid": "uid-1" },
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "metadata": { "name": "web", "annotations": { "dapr.io/enabled": "true", "dapr.io/app-id": "web" } },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }], "serviceAccountName": "web" } },
        },
    });
    for (name, value) in annotations {
        review["request"]["object"]["metadata"]["annotations"][format!("dapr.io/{name}")] = (*value).into();
    }
    review
}

fn is_patched(response: &Value) -> bool {
    response["response"]["patch"].is_string()
}

/// Returns the pod with the response's patch applied.
fn patched(review: &Value, response: &Value) -> Value {
    let mut pod = review["request"]["object"].clone();
    if let Some(patch) = response["response"]["patch"].as_str() {
        let patch = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
    }
    pod
}

fn sidecar(review: &Value, response: &Value) -> Value {
    let pod = patched(review, response);
    let containers = pod["spec"]["containers"].as_array().unwrap();
    containers.iter().find(|container| container["name"] == "daprd").cloned().unwrap_or_default()
}

fn has_arg(sidecar: &Value, arg: &str) -> bool {
    sidecar["args"].as_array().is_some_and(|args| args.iter().any(|one| one == arg))
}

fn variable<'a>(sidecar: &'a Value, name: &str) -> &'a Value {
    let variables = sidecar["env"].as_array().into_iter().flatten();
    variables.into_iter().find(|one| one["name"] == name).map_or(&Value::Null, |one| &one["value"])
}

async fn send_review(connection: &mut Connection, review: &Value) -> (Value, String) {
    let response = connection.review("/mutate", review).await.unwrap();
    let reason = response["response"]["auditAnnotations"]["reason"].as_str().unwrap().to_owned();
    (response, reason)
}

#[tokio::test]
async fn pods_get_the_sidecar_or_the_reason_of_a_skip() {
    let stage = Stage::start(Era::Current).await;
    stage.until_injected().await;
    let mut connection = stage.simple.connect().await;

    let wanted = review(CONTROLLER, &[("app-binding-options-timeout", "30s")]);
    let (response, reason) = send_review(&mut connection, &wanted).await;
    assert_eq!((&response["response"]["uid"], &*reason), (&"u-1".into(), "daprd is injected for web"));
    let daprd = sidecar(&wanted, &response);
    assert!(has_arg(&daprd, "--enable-mtls") && has_arg(&daprd, "--app-binding-options-timeout"), "{daprd:#}");
    assert_eq!(
        (variable(&daprd, "DAPR_TRUST_ANCHORS"), variable(&daprd, "NAMESPACE")),
        (&"FIRST".into(), &"shop".into())
    );

    let mut again = wanted.clone();
    again["apiVersion"] = "admission.k8s.io/v1beta1".into();
    again["request"]["object"] = patched(&wanted, &response);
    let mut other = wanted.clone();
    other["request"]["kind"]["kind"] = "Deployment".into();
    let not_allowed = "service account 'system:serviceaccount:shop:eve' not on the list of allowed controller accounts";
    for (review, said) in [
        (again.clone(), "daprd is among the containers already"),
        (other, "\"Deployment\" is not a pod"),
        (review("system:serviceaccount:shop:eve", &[]), not_allowed),
        (review(CONTROLLER, &[("enabled", "false")]), "dapr.io/enabled is \"false\", not \"true\""),
    ] {
        let (response, reason) = send_review(&mut connection, &review).await;
        assert_eq!(
            (&response["response"]["allowed"], response["response"].get("patch")),
            (&true.into(), None),
            "{response}"
        );
        assert_eq!(response["apiVersion"], review["apiVersion"]);
        assert_eq!(reason, said);
    }

    let bad = review(CONTROLLER, &[("app-id", "a.b")]);
    let (response, _) = send_review(&mut connection, &bad).await;
    assert_eq!(response["response"]["allowed"], false);
    let message = response["response"]["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("invalid app id (input: 'a.b', service: 'a.b-dapr')"), "{message}");
    for (path, status) in [("/mutate?timeout=10s", 200), ("/mutate/", 404), ("/mutate/more", 404), ("/mutated", 404)] {
        assert_eq!(connection.post(path, &wanted.to_string()).await.unwrap().0, status, "{path}");
    }
    let missing = review(CONTROLLER, &[("metrics-port", "many")]);
    let (_, reason) = send_review(&mut connection, &missing).await;
    assert!(reason.contains("dapr.io/metrics-port: \"many\" is not a whole number"), "{reason}");
}

#[tokio::test]
async fn it_is_ready_once_accounts_configuration_and_trust_have_been_read() {
    let api = Api::start().await;
    api.fault(Fault::on("GET", "/serviceaccounts").status(403));
    api.fault(Fault::on("GET", "/configurations").status(403));
    let stage = Stage::of(api, Era::Current).await;
    let missing = |facts: &str| format!("dapr: not read yet: {facts}\n");
    let all = missing("service accounts, the Configuration daprsystem, the trust anchors");
    let listed = |api: &Api| (api.requests_to("GET", "/configurations").len() > 1).then_some(());
    stage.api.until("lists that are refused", listed).await;
    stage.until_missing(Some(&all)).await;
    std::fs::write(&stage.anchors, "FIRST").unwrap();
    stage.until_missing(Some(&missing("service accounts, the Configuration daprsystem"))).await;
    stage.api.heal();
    stage.until_missing(None).await;
    std::fs::remove_file(&stage.anchors).unwrap();
    stage.api.fault(Fault::on("GET", "/serviceaccounts").status(403));
    stage.api.expire_watches();
    let again = |api: &Api| (api.requests_to("GET", "/serviceaccounts").len() > 4).then_some(());
    stage.api.until("lists that are refused", again).await;
    stage.until_missing(None).await;
}

#[tokio::test]
async fn a_cluster_without_daprs_resources_has_no_configuration_to_wait_for() {
    let api = Api::start().await;
    api.fault(Fault::on("GET", "/configurations").status(404));
    let stage = Stage::of(api, Era::Current).await;
    std::fs::write(&stage.anchors, "FIRST").unwrap();
    stage.until_missing(None).await;
    let wanted = review(CONTROLLER, &[]);
    stage.until(&wanted, |response| has_arg(&sidecar(&wanted, response), "--enable-mtls")).await;
}

#[tokio::test]
async fn creators_of_pods_get_warnings_and_metrics_count_by_reason() {
    let stage = Stage::start(Era::Current).await;
    stage.until_injected().await;
    let mut connection = stage.simple.connect().await;
    let long = "x".repeat(10_000);
    let not_allowed = "no Dapr sidecar: service account 'system:serviceaccount:shop:eve' not on the list of allowed controller accounts";
    let refused = "dapr.io/sidecar-image is empty: name an image, or leave the annotation out";
    for (review, rule, warnings) in [
        (review(CONTROLLER, &[]), "injected", None),
        (
            review(CONTROLLER, &[("metrics-port", "many"), ("volume-mounts", "v:/v")]),
            "injected",
            Some(json!([
                "dapr.io/metrics-port: \"many\" is not a whole number in range and is ignored",
                "volume \"v\" is not in the pod, so daprd does not mount it",
            ])),
        ),
        (review("system:serviceaccount:shop:eve", &[]), "unauthorized", Some(json!([not_allowed]))),
        (
            review(CONTROLLER, &[("enabled", "yes")]),
            "not_enabled",
            Some(json!(["no Dapr sidecar: dapr.io/enabled is \"yes\", not \"true\""])),
        ),
        (review(CONTROLLER, &[("enabled", "false")]), "not_enabled", None),
        (review(CONTROLLER, &[("sidecar-image", "")]), "no_image", Some(json!([refused]))),
    ] {
        let (response, _) = send_review(&mut connection, &review).await;
        assert_eq!(response["response"].get("warnings"), warnings.as_ref(), "{rule}");
        let decision = response["response"]["auditAnnotations"]["decision"].as_str().unwrap();
        let counted = format!(r#"sidecar_injection_decisions_total{{decision="{decision}",reason="{rule}"}}"#);
        stage.simple.server.until("/metrics", &counted).await;
    }
    let (response, reason) = send_review(&mut connection, &review(CONTROLLER, &[("metrics-port", &long)])).await;
    assert_eq!(response["response"]["warnings"][0].as_str().unwrap().chars().count(), 256);
    assert_eq!(reason.chars().count(), 2048);
    let mut old = review(CONTROLLER, &[("metrics-port", "many")]);
    old["apiVersion"] = "admission.k8s.io/v1beta1".into();
    assert_eq!(send_review(&mut connection, &old).await.0["response"].get("warnings"), None);
}

#[tokio::test]
async fn changes_in_the_cluster_change_the_next_sidecar() {
    let stage = Stage::start(Era::Current).await;
    stage.until_injected().await;
    let configuration = |enabled: bool| {
        json!({ "apiVersion": "dapr.io/v1alpha1", "kind": "Configuration",
            "metadata": { "name": "daprsystem", "namespace": "dapr-system" }, "spec": { "mtls": { "enabled": enabled } } })
    };
    let wanted = review(CONTROLLER, &[]);
    for enabled in [false, true, false] {
        stage.api.put(configuration(enabled));
        stage.until(&wanted, |response| has_arg(&sidecar(&wanted, response), "--enable-mtls") == enabled).await;
    }
    stage.api.remove("configurations", "dapr-system", "daprsystem");
    stage.until(&wanted, |response| has_arg(&sidecar(&wanted, response), "--enable-mtls")).await;

    std::fs::write(&stage.anchors, "SECOND").unwrap();
    stage.until(&wanted, |response| variable(&sidecar(&wanted, response), "DAPR_TRUST_ANCHORS") == "SECOND").await;

    let requesting = review(CONTROLLER, &[("inject-pluggable-components", "true")]);
    let container = json!({ "image": "memory:1" }).to_string();
    stage.api.put(json!({ "apiVersion": "dapr.io/v1alpha1", "kind": "Component",
        "metadata": { "name": "memory", "namespace": "shop", "annotations": { "dapr.io/component-container": container } } }));
    let injected = |response: &Value| patched(&requesting, response)["spec"]["containers"][2]["name"] == "memory";
    stage.until(&requesting, injected).await;
}

#[tokio::test]
async fn an_account_is_allowed_by_its_uid_until_it_is_deleted() {
    let stage = Stage::start(Era::Current).await;
    let account = |uid: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "runner", "namespace": "ci", "uid": uid } });
    // The review's user has a name that is not on the list of allowed accounts, and the UID of an account that is.
    let wanted = review("unlisted", &[]);
    stage.api.put(account("uid-1"));
    stage.until(&wanted, is_patched).await;
    stage.api.put(account("uid-2"));
    stage.until(&wanted, |response| !is_patched(response)).await;
    stage.api.put(json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "other", "namespace": "ci", "uid": "uid-1" } }));
    stage.api.put(account("uid-1"));
    stage.until(&wanted, is_patched).await;
    stage.api.remove("serviceaccounts", "ci", "runner");
    stage.until(&wanted, |response| !is_patched(response)).await;
}

#[tokio::test]
async fn release_1_4_2_takes_its_issuer_from_the_secret() {
    let stage = Stage::start(Era::V1_4_2).await;
    let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    stage.api.put(json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "replicaset-controller", "namespace": "kube-system", "uid": "uid-1" } }));
    let wanted = review(CONTROLLER, &[]);
    let refused = stage.until(&wanted, |response| response["response"]["allowed"] == false).await;
    assert!(refused["response"]["status"]["message"].as_str().unwrap().contains("trust anchors"), "{refused}");
    stage.api.put(json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "dapr-trust-bundle", "namespace": "dapr-system" },
        "data": { "ca.crt": encode("CA"), "issuer.crt": encode("CHAIN"), "issuer.key": encode("KEY") } }));
    let response = stage.until(&wanted, is_patched).await;
    let daprd = sidecar(&wanted, &response);
    let found = ["DAPR_TRUST_ANCHORS", "DAPR_CERT_CHAIN", "DAPR_CERT_KEY", "SENTRY_LOCAL_IDENTITY"]
        .map(|name| variable(&daprd, name));
    assert_eq!(found, ["CA", "CHAIN", "KEY", "shop:web"]);
    stage.api.remove("secrets", "dapr-system", "dapr-trust-bundle");
    stage.until(&wanted, |response| response["response"]["allowed"] == false).await;
}

#[tokio::test]
async fn pods_without_a_sidecar_are_looked_for_only_while_the_injector_is_ready() {
    let (api, readiness) = (Api::start().await, Readiness::default());
    readiness.missing("dapr", "starting");
    api.put(json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "bare", "namespace": "shop", "annotations": { "dapr.io/enabled": "true" } },
        "spec": { "containers": [{ "name": "app" }] } }));
    let settings = repair::RepairSettings::of_dapr_watchdog(false, std::num::NonZeroU32::MIN);
    let metrics = repair::Metrics::default();
    let watching = tokio::spawn(watchdog::watch(api.client(), settings, metrics, readiness.clone()));
    let ready = tokio::time::timeout(Duration::from_millis(1200), api.until("a list", listed)).await;
    assert!(ready.is_err(), "pods were listed before the injector was ready");
    readiness.ready("dapr");
    api.until("an event", |api| (api.list("events").len() == 1).then_some(())).await;
    api.until("a watch", |api| (api.watches("pods") == 1).then_some(())).await;
    readiness.missing("dapr", "gone");
    api.until("no watch", |api| (api.watches("pods") == 0).then_some(())).await;
    watching.abort();
}

fn listed(api: &Api) -> Option<()> {
    (!api.requests_to("GET", "/api/v1/pods").is_empty()).then_some(())
}

#[test]
fn the_mounts_of_components_take_time_in_proportion_to_their_number() {
    let env = [("SIDECAR_IMAGE", "daprd:1"), ("NAMESPACE", "n"), ("DAPR_CONTROL_PLANE_TRUST_DOMAIN", "d")];
    let env: BTreeMap<_, _> = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let settings = Settings::from_env(&env, "", Era::Current).unwrap();
    let annotations =
        json!({ "dapr.io/enabled": "true", "dapr.io/app-id": "a", "dapr.io/inject-pluggable-components": "true" });
    let pod = json!({ "metadata": { "annotations": annotations }, "spec": { "containers": [] } });
    let user = User { username: CONTROLLER, uid: "", groups: &[] };
    let request = Request { kind: "Pod", namespace: "shop", user, object: Some(&pod) };
    let trust = Trust { anchors: Some("ANCHORS".to_owned()), issuer: None, mtls: true };
    let accounts = BTreeSet::from([String::new()]);
    assert_in_proportion(2_500, |count| {
        let mounts: Vec<_> = (0..count).map(|number| json!({ "name": format!("v{number}") })).collect();
        let container = json!({ "image": "c:1", "volumeMounts": mounts }).to_string();
        let components = [Component { name: "c".to_owned(), container, scopes: Vec::new() }];
        let facts = Facts { accounts: &accounts, trust: &trust, components: Some(&components) };
        let outcome = dapr::review(&request, &settings, &facts);
        assert!(matches!(outcome.decision, Decision::Inject { .. }), "{}", outcome.decision);
        assert!(outcome.patch.len() > count, "a volume for each mount");
    });
}
