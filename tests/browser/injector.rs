//! An injector that has refused and injected as many pods as its page can show.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::api::{Api, kubeconfig};
use test_support::client::{Connection, trusting};
use test_support::daemon::{exchange, free_ports, until};
use test_support::program::under_test;
use tokio::runtime::Runtime;

/// The name of the webhook configuration.
const NAME: &str = "istio-sidecar-injector";
/// The number of refusals that the injector keeps.
const REFUSALS: usize = 200;
/// The number of reviews in the list of the slowest ones.
const SLOWEST: usize = 50;

/// A running `sidecar-injector` with its API server double, killed when the value is dropped.
pub(crate) struct Injector {
    child: Child,
    monitoring: u16,
    _dir: TempDir,
    _api: Api,
    /// The runtime of the double.
    _runtime: Runtime,
}

impl Injector {
    pub(crate) fn start() -> Self {
        let (runtime, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let api = runtime.block_on(Api::start());
        api.put(webhook_configuration());
        kubeconfig(&dir.path().join("kubeconfig"), &api.url());
        let ([webhook, monitoring], log) = (free_ports(), File::create(dir.path().join("log")).unwrap());
        let mut command = Command::new(under_test("sidecar-injector"));
        command.env_clear().env("KUBECONFIG", dir.path().join("kubeconfig")).args(["--selfSigned", "--statusPage"]);
        command.arg(format!("--port={webhook}")).arg(format!("--monitoringPort={monitoring}"));
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let injector = Self { child, monitoring, _dir: dir, _api: api, _runtime: runtime };
        until("a ready injector", || match injector.get("/readyz") {
            (200, _) => Ok(()),
            (status, text) => Err(format!("{status} {text}")),
        });
        injector._runtime.block_on(reviewed(webhook, &bundle(&injector._api)));
        until("all refusals", || match injector.get("/status") {
            (200, page) if page.contains(&format!("since the start: {REFUSALS}")) => Ok(()),
            (status, page) => Err(format!("{status} {page}")),
        });
        injector
    }

    pub(crate) fn port(&self) -> u16 {
        self.monitoring
    }

    fn get(&self, path: &str) -> (u16, String) {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, self.monitoring)) {
            Ok(stream) => exchange(stream, &format!("GET {path}"), ""),
            Err(error) => (0, error.to_string()),
        }
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn webhook_configuration() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": NAME },
        "webhooks": [{
            "name": "namespace.sidecar-injector.istio.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": { "name": NAME, "namespace": "istio-system", "path": "/inject" } },
        }],
    })
}

/// The caBundle, as PEM.
fn bundle(api: &Api) -> String {
    let configuration = api.get("mutatingwebhookconfigurations", "", NAME).unwrap();
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
    String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap()
}

/// Sends reviews of pods. The first pods have an invalid annotation; some of the others request no sidecar.
async fn reviewed(port: u16, bundle: &str) {
    let mut connection = Connection::open((Ipv4Addr::LOCALHOST, port).into(), &trusting(bundle)).await.unwrap();
    for number in 0..REFUSALS + SLOWEST {
        let annotations = if number < REFUSALS { json!({ "sidecar.istio.io/proxyCPU": "1 core" }) } else { json!({}) };
        let labels = if number % 5 == 0 { json!({ "sidecar.istio.io/inject": "false" }) } else { json!({}) };
        let labels = if number < REFUSALS { json!({}) } else { labels };
        let metadata = json!({ "name": format!("recommendations-5bd1e995-{number:05}"), "annotations": annotations, "labels": labels });
        let review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": format!("u-{number}"), "namespace": "shop", "operation": "CREATE",
                "kind": { "group": "", "version": "v1", "kind": "Pod" },
                "object": { "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                    "spec": { "containers": [{ "name": "app", "image": "app:1" }] } },
            },
        });
        connection.review("/inject", &review).await.unwrap();
    }
}
