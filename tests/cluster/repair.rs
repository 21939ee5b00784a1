//! Pods that started before the plugin was in the chain, found and mended by the controller in each of its modes.

use anyhow::{Context as _, Result, ensure};
use istio_cni::contract::container;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::account::{Account, may};
use crate::chain::Chain;
use crate::controller::{self, Controller};
use crate::figures;
use crate::objects::{self, deployment, injected, is_broken, is_ready, standalone, uid};
use crate::stage::{Case, Stage};
use test_support::runtime::outside::Outside;

pub(crate) const CASES: &[Case] = &[
    Case { states: "repair_redirects_in_place_and_the_sandbox_stays", namespace: "repair", body: in_place },
    Case { states: "evict_lets_the_deployment_replace_its_pod_and_leaves_a_bare_one", namespace: "evict", body: evict },
    Case { states: "delete_lets_the_deployment_replace_its_pod", namespace: "delete", body: delete },
    Case { states: "label_marks_the_pod_and_does_nothing_else", namespace: "label", body: label },
    Case { states: "a_disruption_budget_refuses_first_and_allows_later", namespace: "budget", body: budget },
    Case { states: "a_job_that_is_never_restarted_in_place_gets_through", namespace: "job", body: job },
    Case { states: "a_right_that_is_missing_is_named_and_the_pod_is_left", namespace: "rights", body: rights },
];

fn in_place(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    let sandbox = stage.sandbox(&broken)?;

    let controller = Controller::start(stage, "repair")?;
    let mended = stage.pod_that("the pod is ready", is_ready)?;
    assert_eq!(uid(&mended), uid(&broken), "the same pod");
    assert_eq!(stage.sandbox(&mended)?, sandbox, "the same sandbox");
    stage.redirected(&mended)?;
    told(stage, &broken, "RepairBrokenPod", "pod detected as broken, redirection set up")?;
    watched(stage, &controller)
}

/// The same of a pod that breaks before the controller's eyes, for the figures.
fn watched(stage: &Stage<'_>, controller: &Controller) -> Result<()> {
    let created = stage.create("pods", &standalone("watched", injected()))?;
    // The kubelet removes the container once it has started another.
    let failed = stage.cluster.until("the watched pod's validation has failed", |cluster| {
        let (sandbox, _) = stage.running_sandbox(&created, "")?;
        Ok(Timestamp::try_from(cluster.cri.failed_at(&sandbox, container::VALIDATION)?)?)
    })?;
    stage.pod_that("the watched pod is ready", |pod| uid(pod) == uid(&created) && is_ready(pod))?;
    let ready = Timestamp::now();
    let line = controller.says(stage, &["acted on broken pod", "repair/watched"])?;
    let acted: Timestamp = line.split_whitespace().next().context("a time")?.parse()?;
    figures::of("from the container's exit to the repair", &[acted.duration_since(failed).try_into()?]);
    figures::of("from the container's exit to a good pod", &[ready.duration_since(failed).try_into()?]);
    Ok(())
}

fn evict(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    stage.create("pods", &standalone("bare", injected()))?;
    let is_bare = |pod: &Value| pod["metadata"]["name"] == "bare";
    let bare = stage.pod_that("the bare pod's validation has failed", |pod| is_broken(pod) && is_bare(pod))?;
    let broken = stage.pod_that("the other pod's validation has failed", |pod| is_broken(pod) && !is_bare(pod))?;
    let _chain = Chain::install(stage)?;

    let controller = Controller::start(stage, "evict")?;
    replaced(stage, &broken)?;
    told(stage, &broken, "EvictBrokenPod", "pod detected as broken, evicted")?;
    controller.says(stage, &["evict/bare", "Nothing(Standalone)"])?;
    let still = stage.get("pods/bare")?;
    assert_eq!(uid(&still), uid(&bare), "nobody would have replaced it");
    assert!(still["metadata"]["deletionTimestamp"].is_null(), "{still}");
    Ok(())
}

fn delete(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    let _chain = Chain::install(stage)?;

    let _controller = Controller::start(stage, "delete")?;
    replaced(stage, &broken)?;
    told(stage, &broken, "DeleteBrokenPod", "pod detected as broken, deleted")
}

fn label(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;

    let _controller = Controller::start(stage, "label")?;
    let labelled =
        stage.pod_that("the label", |pod| pod["metadata"]["labels"]["cni.istio.io/uninitialized"] == "true")?;
    assert_eq!(uid(&labelled), uid(&broken));
    assert_eq!(labelled["spec"], broken["spec"], "nothing but a label");
    assert!(labelled["metadata"]["deletionTimestamp"].is_null(), "{labelled}");
    told(stage, &broken, "LabelBrokenPod", "pod detected as broken, labelled")
}

/// As after a reboot: a pod that ran well has got another sandbox before the plugin was back in the chain. Its phase
/// stays Running, and thus budgets count it; a pod that never ran is Pending, and no budget protects it.
fn budget(stage: &Stage<'_>) -> Result<()> {
    let chain = Chain::install(stage)?;
    stage.create("deployments", &deployment("web", &injected()))?;
    let ran = stage.pod_that("the pod is ready", is_ready)?;
    chain.leave()?;
    stage.cluster.cri.stop_sandbox(&stage.sandbox(&ran)?)?;
    let broken =
        stage.pod_that("validation has failed", |pod| is_broken(pod) && pod["status"]["phase"] == "Running")?;
    assert_eq!(uid(&broken), uid(&ran));
    let wanted = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    stage.create("poddisruptionbudgets", &wanted)?;
    stage.cluster.until("the budget has counted the pod", |_| {
        let status = stage.get("poddisruptionbudgets/web")?["status"].take();
        ensure!(status["expectedPods"] == 1 && status["disruptionsAllowed"] == 0, "{status}");
        Ok(())
    })?;
    chain.enter()?;

    let controller = Controller::start(stage, "evict")?;
    controller.says(stage, &["cannot act on broken pod", "answers 429", "disruption budget"])?;
    let held = stage.pod_that("the pod is held", |pod| pod["metadata"]["deletionTimestamp"].is_null())?;
    assert_eq!(uid(&held), uid(&broken));
    let lenient = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
    stage.cluster.patch(&stage.path("poddisruptionbudgets/web"), &lenient)?;
    replaced(stage, &broken)
}

fn job(stage: &Stage<'_>) -> Result<()> {
    let server = Outside::start(&stage.cluster.netns, "203.0.113.10:80".parse()?)?;
    let mut pod = objects::with_native_sidecar(injected());
    pod["spec"]["restartPolicy"] = "Never".into();
    let app = &mut pod["spec"]["containers"][0];
    app["command"] = json!(["/pod_app", "ask", server.address().to_string()]);
    app.as_object_mut().context("a container")?.remove("readinessProbe");
    let job =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "ask" }, "spec": { "template": pod } });
    stage.create("jobs", &job)?;
    let broken =
        stage.pod_that("validation has failed for good", |pod| is_broken(pod) && pod["status"]["phase"] == "Failed")?;
    let _chain = Chain::install(stage)?;

    let _controller = Controller::start(stage, "evict")?;
    stage.cluster.until("the job is complete", |_| {
        let status = stage.get("jobs/ask")?["status"].take();
        ensure!(status["succeeded"] == 1, "{status}");
        Ok(())
    })?;
    let done = stage.pod_that("its only pod", |_| true)?;
    assert_ne!(uid(&done), uid(&broken), "the broken one is gone");
    let name = done["metadata"]["name"].as_str().context("a name")?;
    let log = stage.cluster.log(&stage.path(&format!("pods/{name}")), "app")?;
    assert!(log.starts_with("istio-proxy/outbound from "), "{log}");
    Ok(())
}

/// Each mode has the rights that its own trial needs; what wider modes need is refused.
fn rights(stage: &Stage<'_>) -> Result<()> {
    let wider = ["create pods/eviction", "delete pods", "patch pods/status", "patch pods", "get secrets"];
    for (mode, own) in [("repair", ""), ("evict", wider[0]), ("delete", wider[1]), ("label", wider[2])] {
        let account = Account::new(stage, &format!("{mode}-alone"), &controller::rules(mode))?;
        for request in wider {
            assert_eq!(may(stage, &account.user, request)?, request == own, "{mode}: {request}");
        }
    }
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    for (rights, mode, request) in [
        ("repair", "evict", "create pods/eviction"),
        ("repair", "label", "patch pods/status"),
        ("label", "evict", "create pods/eviction"),
        ("evict", "delete", "delete pods"),
        ("delete", "label", "patch pods/status"),
    ] {
        let controller = Controller::with_rights_of(stage, rights, mode)?;
        let missing = format!("its role must allow `{request}`");
        controller.says(stage, &["cannot act on broken pod", "answers 403", &missing])?;
    }
    let left = stage.pod_that("the pod is left", |pod| pod["metadata"]["deletionTimestamp"].is_null())?;
    assert_eq!(uid(&left), uid(&broken));
    Ok(())
}

/// Waits until a broken pod is gone and another one serves in its place, redirected.
fn replaced(stage: &Stage<'_>, broken: &Value) -> Result<()> {
    let other = stage.pod_that("another pod is ready", |pod| is_ready(pod) && uid(pod) != uid(broken))?;
    stage.redirected(&other)?;
    stage.cluster.until("the broken pod is gone", |_| {
        ensure!(stage.pods()?.iter().all(|pod| uid(pod) != uid(broken)), "{broken}");
        Ok(())
    })
}

/// Waits for the event that tells people what was done to the pod.
fn told(stage: &Stage<'_>, pod: &Value, reason: &str, message: &str) -> Result<()> {
    stage.cluster.until(&format!("an event {reason}"), |_| {
        let events = stage.get("events")?;
        let found = events["items"].as_array().into_iter().flatten().any(|event| {
            event["involvedObject"]["uid"] == pod["metadata"]["uid"]
                && event["reason"] == reason
                && event["message"] == message
        });
        ensure!(found, "{events}");
        Ok(())
    })
}
