//! The webhook in a real cluster: whom the API server sends there, what becomes of them, and that it always answers again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use istio_cni::contract::{annotation, container};
use istio_cni::webhook::{Issued, Lifetime};
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};

use crate::account::may;
use crate::agent::{Agent, kubectl};
use crate::injector::{Injector, Kept};
use crate::objects::{deployment, is_ready, plain, standalone};
use crate::stage::{Case, Stage};

pub(crate) const CASES: &[Case] = &[
    Case { states: "webhook_injects_pods_whose_traffic_is_redirected", namespace: "inject", body: injects },
    Case { states: "webhook_is_asked_about_pods_that_labels_select", namespace: "select", body: selects },
    Case { states: "webhook_keeps_its_ca_bundle", namespace: "bundle", body: keeps_its_bundle },
    Case { states: "webhook_can_always_be_started", namespace: "start", body: always_starts },
    Case { states: "webhook_takes_what_others_keep_for_it", namespace: "others", body: takes_from_others },
    Case { states: "webhook_misses_no_pod_while_it_is_replaced", namespace: "roll", body: misses_none },
];

/// Who the webhook is for the API server.
const USER: &str = "system:serviceaccount:kube-system:istio-sidecar-injector";

/// Labels by name and value.
pub(crate) type Labels = &'static [(&'static str, &'static str)];

/// The whole way of a pod: a controller makes it, the webhook adds the sidecar, the plugin redirects, validation sees it.
fn injects(stage: &Stage<'_>) -> Result<()> {
    label(stage, &[("istio-injection", "enabled")])?;
    let _agent = Agent::install(stage)?;
    let injector = Injector::install(stage.cluster)?;
    stage.create("deployments", &deployment("web", &plain()))?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    assert_eq!(names(&pod, "initContainers"), [container::VALIDATION, container::PROXY], "native: the kubelet is new");
    assert_eq!(names(&pod, "containers"), ["app"]);
    assert!(!pod["metadata"]["annotations"][annotation::STATUS].is_null(), "{}", pod["metadata"]);
    stage.redirected(&pod)?;
    for request in ["get secrets", "list secrets", "list configmaps", "create pods", "patch pods", "list namespaces"] {
        assert!(!may(stage, USER, request)?, "{request}");
    }
    let log = injector.log()?;
    assert!(!log.contains("forbidden"), "a right is missing:\n{log}");
    Ok(())
}

/// As the API server applies the selectors.
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
        // What labels cannot say is the webhook's to decide.
        let mut pod = standalone("web", plain());
        pod["metadata"]["annotations"]["sidecar.istio.io/inject"] = "false".into();
        assert!(!is_injected(&namespace.admitted(&pod)?), "namespace {of_namespace:?}, by annotation");
    }
    Ok(())
}

/// One that is wiped or replaced is written again; applying the manifest once more takes nothing away.
fn keeps_its_bundle(stage: &Stage<'_>) -> Result<()> {
    let injector = Injector::install(stage.cluster)?;
    let good = injector.bundles()?;
    assert!(good.iter().all(Value::is_string), "{good:?}");
    injector.apply_again()?;
    assert_eq!(injector.bundles()?, good);
    let other = STANDARD.encode(issued("istio-sidecar-injector")?.authorities);
    for strange in [Value::Null, other.into()] {
        let mut webhooks = stage.cluster.get(&injector.configuration())?["webhooks"].clone();
        for webhook in webhooks.as_array_mut().context("webhooks")? {
            webhook["clientConfig"]["caBundle"] = strange.clone();
        }
        stage.cluster.patch(&injector.configuration(), &json!({ "webhooks": webhooks }))?;
        stage.cluster.until("the caBundle is as it was", |_| {
            let now = injector.bundles()?;
            ensure!(now == good, "{now:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Although pods wait for it, none of its own does: not even where its namespace asks for sidecars.
fn always_starts(stage: &Stage<'_>) -> Result<()> {
    let injector = Injector::install(stage.cluster)?;
    let _labelled = Labelled::new(stage, "kube-system", "istio-injection", "enabled")?;
    let namespace = Temporary::new(stage, "start-shop", &[("istio-injection", "enabled")])?;
    let pod = standalone("web", plain());
    namespace.injected(&pod)?;

    injector.delete_pods()?;
    namespace.injected(&pod)?;

    injector.scale(0)?;
    let refused = format!("{:#}", namespace.admitted(&pod).expect_err("nobody answers"));
    assert!(refused.contains(r#"failed calling webhook "namespace.sidecar-injector.istio.io""#), "{refused}");
    injector.scale(2)?;
    namespace.injected(&pod)
}

/// A certificate of somebody else for a service of the webhook's namespace, and who vouches for it.
fn issued(service: &str) -> Result<Issued> {
    let names = [format!("{service}.kube-system.svc")];
    Ok(Issued::new(&names, Lifetime(Duration::from_secs(3600)), UnixTime::now(), None)?)
}

/// Configuration from a ConfigMap, as it is then; a certificate from a Secret; for a revision of its own and its tag.
fn takes_from_others(stage: &Stage<'_>) -> Result<()> {
    let secret = json!({ "kind": "Secret", "metadata": { "name": "others-tls" },
        "stringData": issued("istio-sidecar-injector-canary")? });
    let map = json!({ "kind": "ConfigMap", "metadata": { "name": "others-injection" }, "data": {
        "config": "policy: enabled\ndefaultTemplates: [sidecar]\ntemplates:\n  sidecar: |\n    spec:\n      initContainers:\n      \
                   - name: istio-proxy\n        image: {{ .Values.image }}\n",
        "values": r#"{ "image": "first:1" }"#,
    } });
    let (_secret, map) = (Kept::new(stage.cluster, "secrets", &secret)?, Kept::new(stage.cluster, "configmaps", &map)?);
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
    assert!(!is_injected(&stable.admitted(&standalone("web", plain()))?), "another revision's");
    let log = injector.log()?;
    assert!(!log.contains("forbidden"), "a right is missing:\n{log}");
    Ok(())
}

/// Its pods are replaced, deleted and killed while a Deployment rolls, and while others ask all the time.
fn misses_none(stage: &Stage<'_>) -> Result<()> {
    label(stage, &[("istio-injection", "enabled")])?;
    let _agent = Agent::install(stage)?;
    let injector = Injector::install(stage.cluster)?;
    let namespace = Temporary::new(stage, "roll-ask", &[("istio-injection", "enabled")])?;
    namespace.injected(&standalone("web", plain()))?;
    let mut web = deployment("web", &plain());
    web["spec"]["replicas"] = json!(3);
    stage.create("deployments", &web)?;

    let in_its_own_time = asked_during(&namespace, || {
        injector.roll()?;
        injector.delete_pod()
    })?;
    ensure!(in_its_own_time.refused.is_empty(), "whoever leaves says so first: {in_its_own_time:#?}");
    ensure!(in_its_own_time.injected > 100, "too few to tell anything: {in_its_own_time:?}");

    let by_force = asked_during(&namespace, || {
        kubectl(&["--namespace", stage.namespace, "rollout", "restart", "deployment/web"])?;
        injector.kill()?;
        injector.kill()
    })?;
    ensure!(by_force.longest < Duration::from_secs(10), "nobody has answered for so long: {by_force:#?}");
    kubectl(&["--namespace", stage.namespace, "rollout", "status", "deployment/web", "--timeout=60s"])?;
    let pods = stage.pods()?;
    for pod in &pods {
        ensure!(is_injected(pod), "slipped through: {pod}");
    }
    ensure!(pods.iter().filter(|pod| is_ready(pod)).count() >= 3, "{pods:#?}");
    Ok(())
}

/// What became of pods that were asked for one after the other. None got through without a sidecar.
#[derive(Debug, Default)]
struct Asked {
    injected: usize,
    refused: Vec<String>,
    /// The longest time in which all were refused.
    longest: Duration,
}

fn asked_during(namespace: &Temporary<'_>, disturb: impl FnOnce() -> Result<()>) -> Result<Asked> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut asked, mut since) = (Asked::default(), None::<Instant>);
            while !over.load(Ordering::Relaxed) || since.is_some_and(|since| since.elapsed() < Duration::from_secs(30))
            {
                match namespace.admitted(&standalone("web", plain())) {
                    Ok(pod) => {
                        ensure!(is_injected(&pod), "slipped through: {pod}");
                        asked.injected += 1;
                        since = None;
                    }
                    Err(error) => {
                        asked.refused.push(format!("{error:#}"));
                        asked.longest = asked.longest.max(since.get_or_insert_with(Instant::now).elapsed());
                    }
                }
            }
            Ok(asked)
        });
        let disturbed = disturb();
        over.store(true, Ordering::Relaxed);
        let asked = asking.join().map_err(|_| anyhow::anyhow!("whoever asked has panicked"))?;
        disturbed.and(asked)
    })
}

fn is_injected(pod: &Value) -> bool {
    names(pod, "initContainers").contains(&container::PROXY)
}

pub(crate) fn names<'p>(pod: &'p Value, list: &str) -> Vec<&'p str> {
    let containers = pod["spec"][list].as_array().into_iter().flatten();
    containers.filter_map(|container| container["name"].as_str()).collect()
}

/// A further namespace, with labels from the start, as long as the value lives.
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
        stage.cluster.create("/api/v1/namespaces", &object)?;
        let path = format!("/api/v1/namespaces/{name}");
        let namespace = Self { stage, path };
        let account = format!("{}/serviceaccounts/default", namespace.path);
        stage.cluster.until("the default service account", |cluster| cluster.get(&account))?;
        Ok(namespace)
    }

    /// The pod as the API server would create it.
    pub(crate) fn admitted(&self, pod: &Value) -> Result<Value> {
        self.stage.cluster.create(&format!("{}/pods?dryRun=All", self.path), pod)
    }

    /// The same once the webhook is asked and answers: nodes hear of a service's pods a little later than `kubectl`.
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

/// A label on a namespace that outlives the trial, as long as the value lives.
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

/// Labels the trial's namespace. API servers hear of it a little later.
fn label(stage: &Stage<'_>, labels: Labels) -> Result<()> {
    for (name, value) in labels {
        let patch = json!({ "metadata": { "labels": { *name: value } } });
        stage.cluster.patch(&format!("/api/v1/namespaces/{}", stage.namespace), &patch)?;
    }
    Ok(())
}
