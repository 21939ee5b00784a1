//! Tests of the cluster state that the program requires before it reviews pods, and of events about reviews.

use serde_json::{Value, json};

use crate::program::{Program, names, patched, review as pod_review};
use crate::stage::{bundles, webhook_configuration};
use test_support::DEADLINE;
use test_support::api::{Api, Fault};
use test_support::client::{Connection, trusting};

fn stall(api: &Api, resource: &str) {
    api.fault(Fault::on("GET", resource).status(503));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_before_nodes_namespaces_and_proxy_configs_are_listed() {
    for resource in ["nodes", "namespaces", "proxyconfigs"] {
        let api = Api::start().await;
        api.put(webhook_configuration(""));
        stall(&api, &format!("/{resource}?"));
        let mut program = Program::start(&api, &["--platform=openshift"]);
        // Only this resource is missing: the report names neither the certificate nor the configuration.
        program.until_readyz_contains(&format!("\r\n\r\n{resource}: they cannot be listed")).await;
        api.heal();
        program.until_ready().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_the_cluster_does_not_have_is_an_empty_list() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    api.fault(Fault::on("GET", "/proxyconfigs").status(404));
    Program::start(&api, &[]).until_ready().await;
}

/// A pod that is already bound to a node, such as a static pod, gets the kind of sidecar that this node supports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_of_a_pod_decides_about_its_native_sidecar() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    for (name, version) in [("new", "v1.33.0"), ("old", "v1.30.0")] {
        api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "status": { "nodeInfo": { "kubeletVersion": version } } }));
    }
    let mut program = Program::start(&api, &[]);
    program.until_ready().await;
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    for (node, list) in [
        (Some("new"), "initContainers"),
        (Some("old"), "containers"),
        (Some("nosuch"), "containers"),
        (None, "containers"),
    ] {
        let mut review = pod_review(&json!({}));
        review["request"]["object"]["spec"]["nodeName"] = node.into();
        let pod = patched(&review, &connection.review("/inject", &review).await.unwrap());
        assert!(names(&pod, list).contains(&"istio-proxy".to_owned()), "{node:?}: {}", pod["spec"]);
    }
}

/// The handler of a RuntimeClass decides whether a pod has a sandboxed runtime; if the class is not known, its name decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_handler_of_a_runtime_class_decides_whether_it_is_sandboxed() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    for (name, handler) in [("strict", "runsc"), ("kata", "runc")] {
        api.put(json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name }, "handler": handler }));
    }
    let mut program = Program::start(&api, &["--refuseSandboxes"]);
    program.until_ready().await;
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    let deadline = tokio::time::Instant::now() + DEADLINE;
    for (class, is_refused) in [("strict", true), ("kata", false), ("gvisor", true), ("other", false)] {
        let mut review = pod_review(&json!({}));
        review["request"]["object"]["spec"]["runtimeClassName"] = class.into();
        // The program does not wait for RuntimeClasses before it is ready.
        loop {
            let response = connection.review("/inject", &review).await.unwrap();
            let message = response["response"]["status"]["message"].as_str().unwrap_or_default();
            if message.contains(&format!("runtimeClassName {class:?} is a sandbox")) == is_refused {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{class}: {response}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// If istiod's ConfigMaps exist, the webhook uses their templates. Otherwise it injects the built-in sidecar with
/// istiod's default address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_config_maps_of_istiod_are_used_if_they_exist() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let mut program = Program::start(&api, &["--istioNamespace=istio-system", "--nativeSidecars=false"]);
    program.until_ready().await;
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    let wanted = pod_review(&json!({}));
    let proxy =
        patched(&wanted, &connection.review("/inject", &wanted).await.unwrap())["spec"]["containers"][1].clone();
    let env = proxy["env"].as_array().unwrap();
    let address = env.iter().find(|variable| variable["name"] == "CA_ADDR").unwrap();
    assert_eq!(address["value"], "istiod.istio-system.svc:15012");
    let assumed = "assumes istiod and its CA at istiod.istio-system.svc:15012";
    assert!(program.log().lines().any(|line| line.contains("warn") && line.contains(assumed)), "{}", program.log());

    let map = |name: &str, data: Value| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": { "namespace": "istio-system", "name": name } })
    };
    let template = "spec:\n  containers:\n  - name: of-istiod\n    image: '{{ .MeshConfig.TrustDomain }}'\n";
    let config = json!({ "policy": "enabled", "defaultTemplates": ["sidecar"], "templates": { "sidecar": template } });
    api.put(map("istio", json!({ "mesh": "trustDomain: example-org" })));
    api.put(map("istio-sidecar-injector", json!({ "config": config.to_string(), "values": "{}" })));
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let pod = patched(&wanted, &connection.review("/inject", &wanted).await.unwrap());
        // The two ConfigMaps arrive in either order, so a review between them renders the default trust domain.
        let containers = pod["spec"]["containers"].as_array().unwrap();
        if containers.iter().any(|c| c["name"] == "of-istiod" && c["image"] == "example-org") {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{containers:?}\n{}", program.log());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Returns a review of a pod that has an invalid annotation and belongs to the ReplicaSet `owner`.
fn review(owner: &str, dry_run: bool) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1", "namespace": "shop", "operation": "CREATE", "dryRun": dry_run,
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "apiVersion": "v1", "kind": "Pod",
                "metadata": { "generateName": format!("{owner}-"),
                    "annotations": { "sidecar.istio.io/proxyCPU": "1 core" },
                    "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner,
                        "uid": format!("{owner}-uid"), "controller": true }] },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] } },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_of_refused_pods_get_one_event() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let mut program = Program::start(&api, &[]);
    program.until_ready().await;
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    connection.review("/inject", &review("dry", true)).await.unwrap();
    for _ in 0..20 {
        connection.review("/inject", &review("web", false)).await.unwrap();
    }
    // Events are created in the order of the reviews.
    connection.review("/inject", &review("last", false)).await.unwrap();
    let owner = |event: &Value| event["involvedObject"]["name"].as_str().unwrap_or_default().to_owned();
    let events = api
        .until("an Event on the last owner", |api| {
            Some(api.list("events")).filter(|events| events.iter().any(|event| owner(event) == "last"))
        })
        .await;
    let mut owners: Vec<String> = events.iter().map(owner).collect();
    owners.sort();
    assert_eq!(owners, ["last", "web"]);
    let event = events.iter().find(|event| owner(event) == "web").unwrap();
    assert_eq!(event["involvedObject"]["uid"], "web-uid");
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("SidecarInjectionRefused")));
    let message = event["message"].as_str().unwrap();
    assert!(message.starts_with("pod shop/web-") && message.contains("sidecar.istio.io/proxyCPU"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_warning_about_the_pods_of_an_owner_has_an_event() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let mut program = Program::start(&api, &[]);
    program.until_ready().await;
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    let (sandbox, user) = (json!({"runtimeClassName": "gvisor"}), json!({"securityContext": {"runAsUser": 1337}}));
    for spec in [&sandbox, &sandbox, &user, &user] {
        let mut review = review("web", false);
        let pod = &mut review["request"]["object"];
        pod["metadata"]["annotations"] = json!({});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let response = connection.review("/inject", &review).await.unwrap();
        assert_eq!(response["response"]["allowed"], true, "{response}");
    }
    // Events are created in the order of the reviews.
    connection.review("/inject", &self::review("last", false)).await.unwrap();
    let of = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let events = api
        .until("an Event on the last owner", |api| {
            let is_last = |event: &Value| event["involvedObject"]["name"] == "last";
            Some(api.list("events")).filter(|events| events.iter().any(is_last))
        })
        .await;
    let about = |part: &str| {
        let events = events.iter().filter(|event| of(event, "message").contains(part));
        events.map(|event| of(event, "reason")).collect::<Vec<_>>()
    };
    assert_eq!(about("\"gvisor\" is a sandbox"), ["SidecarInjectedWithWarnings"]);
    assert_eq!(about("runs as user 1337"), ["SidecarInjectedWithWarnings"]);
    assert_eq!(events.len(), 3, "{events:?}");
}
