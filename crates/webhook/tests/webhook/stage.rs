//! Starts servers, issues certificates and creates webhook configurations.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};
use serve::health::{Liveness, Readiness};
use serve::http::Limits;
use serve::shutdown::{Shutdown, Trigger};
use serve::tasks::Supervisor;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use webhook::{
    AdmissionOutcome, Build, CertificateFiles, Certificates, Issued, Lifetime, Profile, Review, Route, Selection,
    ServerSettings, Source, StatusPage, Texts, Verdict, run,
};

use test_support::DEADLINE;
use test_support::api::Api;
use test_support::client::{Connection, NAME, trusting};

/// A time limit of the server that no trial reaches.
pub(crate) const LONG: Duration = Duration::from_secs(2 * DEADLINE.as_secs());

/// Returns the program's limits, but with time limits that no trial reaches; a trial shortens the limit whose expiry it
/// tests.
pub(crate) fn patient() -> Limits {
    Limits {
        first: LONG,
        idle: LONG,
        read: LONG,
        request: LONG,
        connection: LONG,
        drain: LONG,
        ..ServerSettings::limits()
    }
}

/// Returns a function that builds a profile. The profile's patch sets the annotations to the configuration and the review's
/// variables.
pub(crate) fn stamp() -> Build {
    Arc::new(|texts: &Texts| match texts.config.clone().unwrap_or_default() {
        text if text.starts_with("bad") => Err(format!("{text} is not a configuration")),
        text => Ok(Box::new(move |review: &Review| stamped(&text, review)) as Box<dyn Profile>),
    })
}

fn stamped(text: &str, review: &Review) -> AdmissionOutcome {
    let labels = &review.object["metadata"]["labels"];
    let (verdict, rule) = match labels["inject"].as_str() {
        Some("false") => (Verdict::Skip, "annotated"),
        Some("broken") => (Verdict::Refuse, "error"),
        _ => {
            let value = json!({ "stamp": text, "variables": review.variables });
            let patch = json!([{ "op": "add", "path": "/metadata/annotations", "value": value }]);
            (Verdict::Patch(patch.to_string().into_bytes()), "policy")
        }
    };
    AdmissionOutcome { verdict, rule, reason: format!("by {rule}"), warnings: Vec::new() }
}

/// Issues a certificate for the Service.
pub(crate) fn issue(former: Option<&Issued>) -> Issued {
    Issued::new(&[NAME.to_owned()], Lifetime(Duration::from_secs(3600)), UnixTime::now(), former).unwrap()
}

/// Writes a certificate, its key and CA to a directory as the kubelet updates a mounted Secret: a symbolic link is
/// replaced, which changes all three files at once.
pub(crate) fn mount(dir: &Path, issued: &Issued) -> CertificateFiles {
    let version = tempfile::Builder::new().prefix("..v").tempdir_in(dir).unwrap().keep();
    for (name, text) in [("cert.pem", &issued.certificate), ("key.pem", &issued.key), ("root.pem", &issued.authorities)]
    {
        std::fs::write(version.join(name), text).unwrap();
        let link = dir.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
    std::os::unix::fs::symlink(version.file_name().unwrap(), dir.join("..data_tmp")).unwrap();
    std::fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    let file = |name: &str| dir.join(name);
    CertificateFiles { certificate: file("cert.pem"), key: file("key.pem"), authorities: file("root.pem") }
}

/// The settings with which a test starts a server.
pub(crate) struct Plan {
    pub(crate) certificates: Certificates,
    pub(crate) callers: Option<PathBuf>,
    pub(crate) api: Option<kube::Client>,
    pub(crate) events: Option<kube::Client>,
    pub(crate) source: Source,
    pub(crate) limits: Limits,
    pub(crate) settle: Duration,
    pub(crate) status_page: Option<StatusPage>,
    pub(crate) routes: Vec<Route>,
    pub(crate) selections: Vec<Selection>,
    pub(crate) readiness: Readiness,
}

impl Plan {
    pub(crate) fn new(certificates: Certificates) -> Self {
        let settle = Duration::from_millis(200);
        Self {
            certificates,
            callers: None,
            api: None,
            events: None,
            source: Source::Default,
            limits: patient(),
            settle,
            status_page: None,
            routes: Vec::new(),
            selections: vec![selection()],
            readiness: Readiness::default(),
        }
    }

    pub(crate) fn with(self, api: &Api) -> Self {
        Self { api: Some(api.client()), ..self }
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) monitoring: SocketAddr,
    pub(crate) trigger: Trigger,
    pub(crate) task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(plan: Plan) -> Self {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let (webhook, monitoring) = (bind().await.unwrap(), bind().await.unwrap());
        let (address, probes) = (webhook.local_addr().unwrap(), monitoring.local_addr().unwrap());
        let bundles = plan.api.map(|client| (client, plan.selections));
        let mut registry = Registry::default();
        let settings = ServerSettings {
            webhook,
            monitoring,
            limits: plan.limits,
            certificates: plan.certificates,
            callers: plan.callers,
            bundles,
            supervisor: Supervisor::new(&mut registry, plan.readiness, Liveness::default()),
            settle: plan.settle,
            source: plan.source,
            build: stamp(),
            events: plan.events,
            status_page: plan.status_page,
            routes: plan.routes,
            linger: Duration::from_secs(3),
        };
        let (trigger, shutdown) = Shutdown::new();
        let task = tokio::spawn(async move { run(settings, registry, shutdown).await.unwrap() });
        Self { address, monitoring: probes, trigger, task }
    }

    /// Gets a path of the monitoring port; `None` after the server has ended.
    pub(crate) async fn get(&self, path: &str) -> Option<String> {
        get(self.monitoring, path).await
    }

    /// Waits until the response contains `wanted`; panics with the last response after [`DEADLINE`].
    pub(crate) async fn until(&self, path: &str, wanted: &str) -> String {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let text = self.get(path).await.unwrap_or_default();
            if text.contains(wanted) {
                return text;
            }
            assert!(tokio::time::Instant::now() < deadline, "no {wanted:?} at {path}, last response:\n{text}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn until_ready(&self) {
        self.until("/readyz", "200 OK").await;
    }
}

/// Gets head and body of a response over plain HTTP; `None` if no listener responds.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    Some(text)
}

/// A ready server with certificates in files, and the TLS configuration of a client that trusts it.
pub(crate) struct Simple {
    pub(crate) server: Server,
    pub(crate) client: Arc<rustls::ClientConfig>,
    pub(crate) dir: TempDir,
    pub(crate) issued: Issued,
}

impl Simple {
    pub(crate) async fn start() -> Self {
        Self::limited(patient()).await
    }

    pub(crate) async fn limited(limits: Limits) -> Self {
        Self::planned(|plan| Plan { limits, ..plan }).await
    }

    pub(crate) async fn planned(change: impl FnOnce(Plan) -> Plan) -> Self {
        let (dir, issued) = (tempfile::tempdir().unwrap(), issue(None));
        let plan = Plan::new(Certificates::Files(mount(dir.path(), &issued)));
        let server = Server::start(change(plan)).await;
        server.until_ready().await;
        // The server may become ready shortly before it presents the certificate.
        server.until("/metrics", "webhook_certificate_presented 1").await;
        Self { server, client: trusting(&issued.authorities), dir, issued }
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.server.address, &self.client).await.unwrap()
    }
}

pub(crate) fn selection() -> Selection {
    Selection {
        name: "istio-sidecar-injector".to_owned(),
        labels: String::new(),
        webhook: "sidecar-injector.istio.io".to_owned(),
    }
}

/// Returns the webhook configuration of the chart with this caBundle (PEM).
pub(crate) fn webhook_configuration(bundle: &str) -> Value {
    let webhook = |name: &str| {
        json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "service": { "name": "istio-sidecar-injector", "namespace": "istio-system", "path": "/inject" },
                "caBundle": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bundle),
            },
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "istio-sidecar-injector" },
        "webhooks": [webhook("namespace.sidecar-injector.istio.io"), webhook("object.sidecar-injector.istio.io"), webhook("other.example.com")],
    })
}

/// Returns the webhook configuration of Dapr's injection, which has one webhook.
pub(crate) fn webhook_configuration_of_dapr(bundle: &str) -> Value {
    let mut configuration = webhook_configuration(bundle);
    configuration["metadata"]["name"] = "dapr-sidecar-injector".into();
    let webhook = configuration["webhooks"][0].take();
    configuration["webhooks"] = json!([webhook]);
    configuration["webhooks"][0]["name"] = "sidecar-injector.dapr.io".into();
    configuration
}

/// Returns the caBundles of Istio's webhook configuration, as PEM.
pub(crate) fn bundles(api: &Api) -> Vec<String> {
    bundles_of(api, "istio-sidecar-injector")
}

/// Returns the caBundles of a webhook configuration, as PEM.
pub(crate) fn bundles_of(api: &Api, name: &str) -> Vec<String> {
    let found = api.get("mutatingwebhookconfigurations", "", name).unwrap();
    let decode = |webhook: &Value| {
        let text = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        String::from_utf8(base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).unwrap()).unwrap()
    };
    found["webhooks"].as_array().unwrap().iter().map(decode).collect()
}

/// Returns a review in this version of the admission API, of a pod with this value of the label `inject`.
pub(crate) fn review(version: &str, uid: &str, inject: &str) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"),
        "request": {
            "uid": uid, "namespace": "shop", "operation": "CREATE",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "metadata": { "generateName": "web-", "labels": { "inject": inject } }, "spec": { "containers": [] } },
        },
    })
}

/// Returns the annotations that a response's patch sets.
pub(crate) fn stamp_of(response: &Value) -> Value {
    let patch = response["response"]["patch"].as_str().unwrap_or_else(|| panic!("no patch in {response}"));
    let patch = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, patch).unwrap();
    serde_json::from_slice::<Value>(&patch).unwrap()[0]["value"].clone()
}
