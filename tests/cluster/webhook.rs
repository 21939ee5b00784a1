//! The webhook in a real cluster: selectors, injection, its caBundle, its start, and its replacement under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::{annotation, container};
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};
use webhook::{Issued, Lifetime};

use crate::account::is_allowed;
use crate::agent::{Agent, PATIENCE, kubectl};
use crate::figures;
use crate::injector::{Injector, TemporaryObject};
use crate::objects::{deployment, is_ready, plain, standalone};
use crate::stage::{Case, Scope, Stage};
use test_support::runtime::wait::TIMEOUT;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "webhook_injects_pods_whose_traffic_is_redirected",
        namespace: "inject",
        scope: Scope::Gate,
        body: injects,
    },
    Case {
        name: "webhook_receives_the_pods_that_labels_select",
        namespace: "select",
        scope: Scope::Full,
        body: selects,
    },
    Case { name: "webhook_restores_its_ca_bundle", namespace: "bundle", scope: Scope::Full, body: restores_its_bundle },
    Case { name: "webhook_starts_in_a_namespace_with_injection", namespace: "start", scope: Scope::Full, body: starts },
    Case {
        name: "webhook_reads_an_existing_secret_and_config_map",
        namespace: "others",
        scope: Scope::Full,
        body: reads_existing_objects,
    },
    Case {
        name: "webhook_injects_every_pod_while_it_is_replaced",
        namespace: "roll",
        scope: Scope::Gate,
        body: injects_while_replaced,
    },
];

/// The webhook's user name.
const USER: &str = "system:serviceaccount:kube-system:istio-sidecar-injector";

/// Names and values of labels.
pub(crate) type Labels = &'static [(&'static str, &'static str)];

/// Checks all steps for one pod: a controller creates it, the webhook adds the sidecar, the plugin redirects it, and
/// validation succeeds.
fn injects(stage: &Stage<'_>) -> Result<()> {
    label(stage, &[("istio-injection", "enabled")])?;
    let _agent = Agent::install(stage)?;
    let injector = Injector::install(stage.cluster)?;
    stage.create("deployments", &deployment("web", &plain()))?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    assert_eq!(
        names(&pod, "initContainers"),
        [container::VALIDATION, container::PROXY],
        "the kubelet supports native sidecars"
    );
    assert_eq!(names(&pod, "containers"), ["app"]);
    assert!(!pod["metadata"]["annotations"][annotation::STATUS].is_null(), "{}", pod["metadata"]);
    stage.redirected(&pod)?;
    for request in ["get secrets", "list secrets", "list configmaps", "create pods", "patch pods", "list namespaces"] {
        assert!(!is_allowed(stage, USER, request)?, "{request}");
    }
    let log = injector.log()?;
    assert!(!log.contains("forbidden"), "a right is missing:\n{log}");
    Ok(())
}

/// Checks the selectors of the webhook configuration, as the API server evaluates them.
fn selects(stage: &Stage<'_>) -> Result<()> {
    let _injector = Injector::install(stage.cluster)?;
    Temporary::new(stage, "select-first", &[("istio-injection", "enabled")])?.injected(&standalone("web", plain()))?;
    let cases: [(Labels, &[(Labels, bool)]); 5] = [
        (
            &[],
            &[
                (&[], false),
                (&[("sidecar.istio.io/inject", "true")], true),
                (&[("istio.io/rev", "default")], true),
                (&[("istio.io/rev", "other"), ("sidecar.istio.io/inject", "true")], false),
            ],
        ),
        (&[("istio-injection", "enabled")], &[(&[], true), (&[("sidecar.istio.io/inject", "false")], false)]),
        (&[("istio-injection", "disabled")], &[(&[], false), (&[("sidecar.istio.io/inject", "true")], false)]),
        (&[("istio.io/rev", "default")], &[(&[], true), (&[("sidecar.istio.io/inject", "false")], false)]),
        (&[("istio.io/rev", "other")], &[(&[], false), (&[("sidecar.istio.io/inject", "true")], false)]),
    ];
    for (at, (of_namespace, pods)) in cases.into_iter().enumerate() {
        let namespace = Temporary::new(stage, &format!("{}-{at}", stage.namespace), of_namespace)?;
        for (of_pod, expected) in pods {
            let mut pod = standalone("web", plain());
            for (name, value) in *of_pod {
                pod["metadata"]["labels"][name] = (*value).into();
            }
            let injected = is_injected(&namespace.admitted(&pod)?);
            assert_eq!(injected, *expected, "namespace {of_namespace:?}, pod {of_pod:?}");
        }
        // Annotations have no selector; the webhook evaluates them.
        let mut pod = standalone("web", plain());
        pod["metadata"]["annotations"]["sidecar.istio.io/inject"] = "false".into();
        assert!(!is_injected(&namespace.admitted(&pod)?), "namespace {of_namespace:?}, by annotation");
    }
    Ok(())
}

/// The webhook must restore a removed or replaced caBundle, and applying the manifest a second time must not remove it.
fn restores_its_bundle(stage: &Stage<'_>) -> Result<()> {
    let injector = Injector::install(stage.cluster)?;
    let expected = injector.bundles()?;
    assert!(expected.iter().all(Value::is_string), "{expected:?}");
    injector.apply_again()?;
    assert_eq!(injector.bundles()?, expected);
    let other = STANDARD.encode(issued("istio-sidecar-injector")?.authorities);
    for foreign in [Value::Null, other.into()] {
        let mut webhooks = stage.cluster.get(&injector.configuration())?["webhooks"].clone();
        for webhook in webhooks.as_array_mut().context("webhooks")? {
            webhook["clientConfig"]["caBundle"] = foreign.clone();
        }
        stage.cluster.patch(&injector.configuration(), &json!({ "webhooks": webhooks }))?;
        stage.cluster.until("the caBundle is restored", |_| {
            let now = injector.bundles()?;
            ensure!(now == expected, "{now:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// The webhook's own pods must start without it, even if injection is enabled for their namespace.
fn starts(stage: &Stage<'_>) -> Result<()> {
    let injector = Injector::install(stage.cluster)?;
    let _labelled = Labelled::new(stage, "kube-system", "istio-injection", "enabled")?;
    let namespace = Temporary::new(stage, "start-shop", &[("istio-injection", "enabled")])?;
    let pod = standalone("web", plain());
    namespace.injected(&pod)?;

    injector.delete_pods()?;
    namespace.injected(&pod)?;

    injector.scale(0)?;
    let refused = format!("{:#}", namespace.admitted(&pod).expect_err("the webhook has no pods"));
    assert!(refused.contains(r#"failed calling webhook "namespace.sidecar-injector.istio.io""#), "{refused}");
    injector.scale(2)?;
    namespace.injected(&pod)
}

/// Creates a CA, and a certificate from it for a service in the webhook's namespace, as another issuer such as cert-manager does.
fn issued(service: &str) -> Result<Issued> {
    let names = [format!("{service}.kube-system.svc")];
    Ok(Issued::new(&names, Lifetime(Duration::from_secs(3600)), UnixTime::now(), None)?)
}

/// Installs the webhook for another revision with a tag. It must read its configuration from a ConfigMap, follow changes of the ConfigMap,
/// and read its certificate from a Secret.
fn reads_existing_objects(stage: &Stage<'_>) -> Result<()> {
    let secret = json!({ "kind": "Secret", "metadata": { "name": "others-tls" },
        "stringData": issued("istio-sidecar-injector-canary")? });
    let map = json!({ "kind": "ConfigMap", "metadata": { "name": "others-injection" }, "data": {
        "config": "policy: enabled\ndefaultTemplates: [sidecar]\ntemplates:\n  sidecar: |\n    spec:\n      initContainers:\n      \
                   - name: istio-proxy\n        image: {{ .Values.image }}\n",
        "values": r#"{ "image": "first:1" }"#,
    } });
    let (_secret, map) = (
        TemporaryObject::new(stage.cluster, "secrets", &secret)?,
        TemporaryObject::new(stage.cluster, "configmaps", &map)?,
    );
    let values =
        "revision=canary,revisionTags={prod},certificate.secret=others-tls,injectConfigMapName=others-injection";
    let injector = Injector::install_chart(stage.cluster, values)?;
    let namespace = Temporary::new(stage, "others-shop", &[("istio.io/rev", "canary")])?;
    let image_is = |image: &str| {
        stage.cluster.until(image, |_| {
            let pod = namespace.admitted(&standalone("web", plain()))?;
            ensure!(pod["spec"]["initContainers"][0]["image"] == image, "{pod}");
            Ok(())
        })
    };
    image_is("first:1")?;
    stage.cluster.patch(&map.path, &json!({ "data": { "values": r#"{ "image": "second:1" }"# } }))?;
    image_is("second:1")?;
    let tagged = Temporary::new(stage, "others-tagged", &[("istio.io/rev", "prod")])?;
    tagged.injected(&standalone("web", plain()))?;
    let stable = Temporary::new(stage, "others-stable", &[("istio-injection", "enabled")])?;
    assert!(!is_injected(&stable.admitted(&standalone("web", plain()))?), "pods of another revision are not injected");
    let log = injector.log()?;
    assert!(!log.contains("forbidden"), "a right is missing:\n{log}");
    Ok(())
}

/// Replaces, deletes and kills the webhook's pods while a Deployment rolls and other pods are created continuously. No request may fail
/// during a graceful shutdown, and every pod must have a sidecar.
fn injects_while_replaced(stage: &Stage<'_>) -> Result<()> {
    label(stage, &[("istio-injection", "enabled")])?;
    let _agent = Agent::install(stage)?;
    let injector = Injector::install(stage.cluster)?;
    let namespace = Temporary::new(stage, "roll-ask", &[("istio-injection", "enabled")])?;
    namespace.injected(&standalone("web", plain()))?;
    let mut web = deployment("web", &plain());
    web["spec"]["replicas"] = json!(3);
    stage.create("deployments", &web)?;

    let graceful = create_during(&namespace, || {
        injector.roll()?;
        injector.delete_pod()
    })?;
    ensure!(graceful.refused.is_empty(), "requests failed during a graceful shutdown: {graceful:#?}");
    ensure!(graceful.injected > 0, "no pod was created during a graceful shutdown");

    let killed = create_during(&namespace, || {
        kubectl(&["--namespace", stage.namespace, "rollout", "restart", "deployment/web"])?;
        injector.kill()?;
        injector.kill()
    })?;
    figures::print_durations("webhook killed: longest time in which it injected no pod", &[killed.longest_outage]);
    kubectl(&["--namespace", stage.namespace, "rollout", "status", "deployment/web", PATIENCE])?;
    let pods = stage.pods()?;
    for pod in &pods {
        ensure!(is_injected(pod), "a pod without a sidecar: {pod}");
    }
    ensure!(pods.iter().filter(|pod| is_ready(pod)).count() >= 3, "{pods:#?}");
    Ok(())
}

/// The results of the requests to create pods, which are sent one after the other: the number of created pods, each
/// with a sidecar, and the errors of the refused requests.
#[derive(Debug, Default)]
struct Results {
    injected: usize,
    refused: Vec<String>,
    /// The longest period in which every request was refused.
    longest_outage: Duration,
}

fn create_during(namespace: &Temporary<'_>, disturb: impl FnOnce() -> Result<()>) -> Result<Results> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let creating = scope.spawn(|| {
            let (mut results, mut since) = (Results::default(), None::<Instant>);
            while !over.load(Ordering::Relaxed) || since.is_some() {
                let out = since.map_or(Duration::ZERO, |since| since.elapsed());
                ensure!(out < TIMEOUT, "the webhook injects no pod any more: {results:#?}");
                match namespace.admitted(&standalone("web", plain())) {
                    Ok(pod) => {
                        ensure!(is_injected(&pod), "a pod without a sidecar: {pod}");
                        results.injected += 1;
                        since = None;
                    }
                    Err(error) => {
                        results.refused.push(format!("{error:#}"));
                        results.longest_outage =
                            results.longest_outage.max(since.get_or_insert_with(Instant::now).elapsed());
                    }
                }
            }
            Ok(results)
        });
        let disturbed = disturb();
        over.store(true, Ordering::Relaxed);
        let results = creating.join().map_err(|_| anyhow::anyhow!("the thread that creates pods has panicked"))?;
        disturbed.and(results)
    })
}

fn is_injected(pod: &Value) -> bool {
    names(pod, "initContainers").contains(&container::PROXY)
}

pub(crate) fn names<'p>(pod: &'p Value, list: &str) -> Vec<&'p str> {
    let containers = pod["spec"][list].as_array().into_iter().flatten();
    containers.filter_map(|container| container["name"].as_str()).collect()
}

/// An additional namespace with labels, deleted when the value is dropped.
pub(crate) struct Temporary<'s> {
    stage: &'s Stage<'s>,
    path: String,
}

impl<'s> Temporary<'s> {
    pub(crate) fn new(stage: &'s Stage<'s>, name: &str, labels: Labels) -> Result<Self> {
        let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": {} } });
        for (name, value) in labels {
            object["metadata"]["labels"][name] = (*value).into();
        }
        stage.cluster.replace("/api/v1/namespaces", &object)?;
        let path = format!("/api/v1/namespaces/{name}");
        let namespace = Self { stage, path };
        let account = format!("{}/serviceaccounts/default", namespace.path);
        stage.cluster.until("the default service account", |cluster| cluster.get(&account))?;
        Ok(namespace)
    }

    /// Creates the pod in a dry run and returns it as the API server would store it.
    pub(crate) fn admitted(&self, pod: &Value) -> Result<Value> {
        self.stage.cluster.create(&format!("{}/pods?dryRun=All", self.path), pod)
    }

    /// Creates the pod in dry runs until it is injected. After `kubectl` reports the rollout, kube-proxy may not have
    /// the webhook's endpoints yet.
    pub(crate) fn injected(&self, pod: &Value) -> Result<()> {
        self.stage.cluster.until("the pod is injected", |_| {
            let pod = self.admitted(pod)?;
            ensure!(is_injected(&pod), "{pod}");
            Ok(())
        })
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        let _ = self.stage.cluster.delete(&self.path);
    }
}

/// A label on a namespace that is not the trial's own. The label is removed when the value is dropped.
pub(crate) struct Labelled<'s> {
    stage: &'s Stage<'s>,
    namespace: &'static str,
    label: &'static str,
}

impl<'s> Labelled<'s> {
    pub(crate) fn new(
        stage: &'s Stage<'s>,
        namespace: &'static str,
        name: &'static str,
        value: &'static str,
    ) -> Result<Self> {
        stage
            .cluster
            .patch(&format!("/api/v1/namespaces/{namespace}"), &json!({ "metadata": { "labels": { name: value } } }))?;
        Ok(Self { stage, namespace, label: name })
    }
}

impl Drop for Labelled<'_> {
    fn drop(&mut self) {
        let gone = json!({ "metadata": { "labels": { self.label: null } } });
        let _ = self.stage.cluster.patch(&format!("/api/v1/namespaces/{}", self.namespace), &gone);
    }
}

/// Labels the trial's namespace. The API server's selectors use the labels after a short delay.
fn label(stage: &Stage<'_>, labels: Labels) -> Result<()> {
    for (name, value) in labels {
        let patch = json!({ "metadata": { "labels": { *name: value } } });
        stage.cluster.patch(&format!("/api/v1/namespaces/{}", stage.namespace), &patch)?;
    }
    Ok(())
}
