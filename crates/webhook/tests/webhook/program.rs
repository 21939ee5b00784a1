//! Tests of `sidecar-injector` as a process: without a configuration, with an API server double, and its shutdown.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stage::{bundles, bundles_of, get, webhook_configuration, webhook_configuration_of_dapr};
use test_servers::port;
use test_support::DEADLINE;
use test_support::api::{Api, kubeconfig};
use test_support::client::{Connection, trusting};
use test_support::program::{show_log_of_failure, under_test};

/// A running program, killed when the value is dropped.
pub(crate) struct Program {
    child: Child,
    /// The directory of the program's kubeconfig and log.
    dir: TempDir,
    pub(crate) webhook: SocketAddr,
    pub(crate) monitoring: SocketAddr,
}

fn free() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port::free()).into()
}

impl Program {
    pub(crate) fn start(api: &Api, flags: &[&str]) -> Self {
        Self::with(api, flags, &[])
    }

    pub(crate) fn with(api: &Api, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::of_program(&under_test("sidecar-injector"), api, flags, variables)
    }

    /// Starts a build of the program other than the one under test.
    fn of_program(program: &Path, api: &Api, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        kubeconfig(&dir.path().join("kubeconfig"), &api.url());
        let (webhook, monitoring) = (free(), free());
        let mut command = Command::new(program);
        command.env_clear().env("KUBECONFIG", dir.path().join("kubeconfig"));
        command.arg(format!("--port={}", webhook.port())).arg(format!("--monitoringPort={}", monitoring.port()));
        command.args(["--selfSigned", "--linger=0"]).args(flags).envs(variables.iter().copied());
        let log = File::create(dir.path().join("log")).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Self { child, dir, webhook, monitoring }
    }

    /// Starts Istio's and Dapr's injection in a cluster with both webhook configurations and a pod without a sidecar,
    /// and waits until the program is ready.
    pub(crate) async fn of_both_injections(api: &Api, anchors: &Path) -> Self {
        let mut program = Self::with_both_injections(&under_test("sidecar-injector"), api, anchors, &[]);
        program.until_ready().await;
        program
    }

    /// As [`of_both_injections`](Self::of_both_injections), with further variables, and without the wait.
    pub(crate) fn with_both_injections(program: &Path, api: &Api, anchors: &Path, variables: &[(&str, &str)]) -> Self {
        api.put(webhook_configuration(""));
        let mut of_dapr = webhook_configuration_of_dapr("");
        of_dapr["webhooks"][0]["clientConfig"]["service"]["name"] = "dapr-sidecar-injector".into();
        api.put(of_dapr);
        api.put(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "bare", "namespace": "shop", "annotations": { "dapr.io/enabled": "true" } },
            "spec": { "containers": [{ "name": "app" }] } }));
        let anchors = format!("--daprTrustAnchors={}", anchors.display());
        let flags = ["--dapr", &*anchors, "--daprServiceName=dapr-sidecar-injector", "--watch-interval=2m"];
        let own = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd:1")];
        Self::of_program(program, api, &flags, &[&own, variables].concat())
    }

    /// Returns the peak resident memory in MiB.
    pub(crate) fn peak(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub(crate) async fn until_ready(&mut self) {
        self.until_readyz_contains("200 OK").await;
    }

    /// Waits until the response of `/readyz` contains `wanted`.
    pub(crate) async fn until_readyz_contains(&mut self, wanted: &str) {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let said = get(self.monitoring, "/readyz").await.unwrap_or_default();
            if said.contains(wanted) {
                return;
            }
            assert_eq!(self.child.try_wait().unwrap(), None, "{}", self.log());
            assert!(tokio::time::Instant::now() < deadline, "{said}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the program; returns exit code and log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        (self.child.wait().unwrap().code(), self.log())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        show_log_of_failure("sidecar-injector", &self.dir.path().join("log"));
    }
}

pub(crate) fn review(labels: &Value) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1", "namespace": "shop", "operation": "CREATE",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "apiVersion": "v1", "kind": "Pod",
                "metadata": { "generateName": "web-", "labels": labels },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] } },
        },
    })
}

pub(crate) fn patched(review: &Value, response: &Value) -> Value {
    let patch = response["response"]["patch"].as_str().unwrap_or_else(|| panic!("no patch in {response}"));
    let patch = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, patch).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut pod = review["request"]["object"].clone();
    json_patch::patch(&mut pod, &patch).unwrap();
    pod
}

pub(crate) fn names(pod: &Value, list: &str) -> Vec<String> {
    pod["spec"][list].as_array().into_iter().flatten().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
}

async fn warnings_of_istio(connection: &mut Connection) {
    let maybe = review(&json!({ "sidecar.istio.io/inject": "maybe" }));
    let response = connection.review("/inject", &maybe).await.unwrap();
    let ignored = r#"sidecar.istio.io/inject is "maybe", neither "true" nor "false", and is ignored"#;
    let because = "an Istio sidecar, for the injector's policy applies, because no label, annotation or selector does";
    assert_eq!(response["response"]["warnings"], json!([format!("{ignored}: {because}")]));
    let mut host = review(&json!({ "sidecar.istio.io/inject": "true" }));
    host["request"]["object"]["spec"]["hostNetwork"] = true.into();
    let response = connection.review("/inject", &host).await.unwrap();
    let denied = "sidecar.istio.io/inject requests a sidecar, which another rule denies: no Istio sidecar, for it uses the host's network";
    assert_eq!(response["response"]["warnings"], json!([denied]));
    let mut bad = review(&json!({}));
    bad["request"]["object"]["metadata"]["annotations"] = json!({ "sidecar.istio.io/proxyCPU": "1 core" });
    let response = connection.review("/inject", &bad).await.unwrap();
    let message = response["response"]["status"]["message"].as_str().unwrap_or_else(|| panic!("{response}"));
    assert!(message.contains("sidecar.istio.io/proxyCPU"), "{message}");
    assert_eq!(response["response"]["warnings"], json!([message]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_only_a_cluster_it_issues_its_certificate_and_injects() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" },
        "status": { "nodeInfo": { "kubeletVersion": "v1.30.2" } } }));
    let mut program = Program::start(&api, &["--proxyImage=registry.example.com/proxy:1"]);
    program.until_ready().await;
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    let wanted = review(&json!({ "app": "web" }));
    let pod = patched(&wanted, &connection.review("/inject", &wanted).await.unwrap());
    assert_eq!(names(&pod, "containers"), ["app", "istio-proxy"]);
    assert_eq!(names(&pod, "initContainers"), ["istio-validation"]);
    assert_eq!(pod["spec"]["containers"][1]["image"], "registry.example.com/proxy:1");
    let declined = connection.review("/inject", &review(&json!({ "sidecar.istio.io/inject": "false" }))).await.unwrap();
    assert_eq!(declined["response"]["auditAnnotations"]["decision"], "skip");
    let reason = r#"its label sidecar.istio.io/inject is "false""#;
    assert_eq!(declined["response"]["auditAnnotations"]["reason"], reason);
    assert_eq!(declined["response"].get("warnings"), None);
    warnings_of_istio(&mut connection).await;
    // Native sidecars are used once all nodes support them.
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" },
        "status": { "nodeInfo": { "kubeletVersion": "v1.34.0" } } }));
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let pod = patched(&wanted, &connection.review("/inject", &wanted).await.unwrap());
        if names(&pod, "initContainers") == ["istio-validation", "istio-proxy"] {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{pod:#}");
    }
    let (code, said) = program.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("shop/web-") && said.contains("its label sidecar.istio.io/inject"), "{said}");
}

#[tokio::test]
async fn unusable_flags_end_the_program_with_the_reason() {
    let api = Api::start().await;
    let taken = TcpListener::bind((std::net::Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let port = format!("--port={}", taken.local_addr().unwrap().port());
    for (flag, reason) in [
        (&*port, "cannot listen on port"),
        ("--kubeconfig=/nowhere", "kubeconfig /nowhere cannot be used: No such file"),
        ("--clientCAFile=/nowhere", "the CA certificates for callers (--clientCAFile), /nowhere, cannot be read"),
    ] {
        let mut program = Program::start(&api, &[flag]);
        assert_eq!(program.child.wait().unwrap().code(), Some(1), "{}", program.log());
        let (_, said) = program.end();
        assert!(said.contains(reason), "{said}");
    }
}

#[tokio::test]
async fn release_1_4_2_does_not_start_without_authenticated_callers() {
    let api = Api::start().await;
    let variables = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd:1")];
    let mut program = Program::with(&api, &["--dapr", "--daprRelease=1.4"], &variables);
    assert_eq!(program.child.wait().unwrap().code(), Some(1), "{}", program.log());
    let (_, said) = program.end();
    assert!(said.contains("without --clientCAFile every client that reaches the port gets them"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_program_serves_both_injections_and_runs_the_watchdog() {
    let api = Api::start().await;
    let anchors = tempfile::NamedTempFile::new().unwrap();
    let program = Program::of_both_injections(&api, anchors.path()).await;
    assert_eq!(bundles_of(&api, "dapr-sidecar-injector"), [bundles(&api)[0].as_str()]);
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    let mut wanted = review(&json!({}));
    wanted["request"]["userInfo"] = json!({ "groups": ["system:masters"] });
    wanted["request"]["object"]["metadata"]["annotations"] = json!({ "dapr.io/enabled": "true" });
    for (path, expected) in [("/inject", "istio-proxy"), ("/mutate", "daprd")] {
        let pod = patched(&wanted, &connection.review(path, &wanted).await.unwrap());
        let all = [names(&pod, "initContainers"), names(&pod, "containers")].concat();
        assert!(all.iter().any(|name| name == expected), "{path}: {all:?}");
    }
    let event = api.until("an event", |api| api.list("events").into_iter().next()).await;
    assert_eq!((&event["reason"], &event["involvedObject"]["name"]), (&"PodWithoutSidecar".into(), &"bare".into()));
    let metrics = get(program.monitoring, "/metrics").await.unwrap();
    assert!(metrics.contains("dapr_watchdog_pods_without_sidecar 1"), "{metrics}");
    let (code, said) = program.end();
    assert_eq!(code, Some(0), "{said}");
}
