//! Repair, in each of its modes, of pods that started before the plugin was in the chain.

use anyhow::{Context as _, Result, ensure};
use contract::container;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::account::{Account, is_allowed};
use crate::chain::Chain;
use crate::controller::{self, Controller};
use crate::figures;
use crate::objects::{self, deployment, injected, is_broken, is_ready, standalone, uid};
use crate::stage::{Case, Scope, Stage};
use test_support::runtime::outside::Outside;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "repair_redirects_in_place_and_the_sandbox_stays",
        namespace: "repair",
        scope: Scope::Gate,
        body: in_place,
    },
    Case {
        name: "evict_lets_the_deployment_replace_its_pod_and_leaves_a_bare_one",
        namespace: "evict",
        scope: Scope::Full,
        body: evict,
    },
    Case { name: "delete_lets_the_deployment_replace_its_pod", namespace: "delete", scope: Scope::Full, body: delete },
    Case { name: "label_marks_the_pod_and_does_nothing_else", namespace: "label", scope: Scope::Full, body: label },
    Case {
        name: "a_disruption_budget_refuses_first_and_allows_later",
        namespace: "budget",
        scope: Scope::Full,
        body: budget,
    },
    Case { name: "the_job_of_an_evicted_pod_completes", namespace: "job", scope: Scope::Full, body: job },
    Case { name: "a_missing_right_is_logged_and_the_pod_stays", namespace: "rights", scope: Scope::Full, body: rights },
];

fn in_place(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    let sandbox = stage.sandbox(&broken)?;

    let controller = Controller::start(stage, "repair")?;
    let repaired = stage.pod_that("the pod is ready", is_ready)?;
    assert_eq!(uid(&repaired), uid(&broken), "the same pod");
    assert_eq!(stage.sandbox(&repaired)?, sandbox, "the same sandbox");
    stage.redirected(&repaired)?;
    wait_for_event(stage, &broken, "RepairBrokenPod", "pod detected as broken, redirection set up")?;
    watched(stage, &controller)
}

/// Measures the repair of a pod that breaks while the controller runs.
fn watched(stage: &Stage<'_>, controller: &Controller) -> Result<()> {
    let created = stage.create("pods", &standalone("watched", injected()))?;
    // Polls the runtime while the pod is repaired, because the kubelet removes the failed container after it has
    // started another.
    let failed = stage.cluster.until("the watched pod's validation has failed", |cluster| {
        let (sandbox, _) = stage.running_sandbox(&created, "")?;
        Ok(Timestamp::try_from(cluster.cri.failed_at(&sandbox, container::VALIDATION)?)?)
    })?;
    stage.pod_that("the watched pod is ready", |pod| uid(pod) == uid(&created) && is_ready(pod))?;
    let ready = Timestamp::now();
    let line = controller.wait_for_log(stage, &["acted on broken pod", "repair/watched"])?;
    let acted: Timestamp = line.split_whitespace().next().context("a time")?.parse()?;
    figures::print_durations("from the container's exit to the repair", &[acted.duration_since(failed).try_into()?]);
    figures::print_durations("from the container's exit to a ready pod", &[ready.duration_since(failed).try_into()?]);
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
    wait_for_event(stage, &broken, "EvictBrokenPod", "pod detected as broken, evicted")?;
    controller.wait_for_log(stage, &["evict/bare", "Nothing(Standalone)"])?;
    let still = stage.get("pods/bare")?;
    assert_eq!(uid(&still), uid(&bare), "a pod without a controller is not evicted");
    assert!(still["metadata"]["deletionTimestamp"].is_null(), "{still}");
    Ok(())
}

fn delete(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    let _chain = Chain::install(stage)?;

    let _controller = Controller::start(stage, "delete")?;
    replaced(stage, &broken)?;
    wait_for_event(stage, &broken, "DeleteBrokenPod", "pod detected as broken, deleted")
}

fn label(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;

    let _controller = Controller::start(stage, "label")?;
    let labelled =
        stage.pod_that("the label", |pod| pod["metadata"]["labels"]["cni.istio.io/uninitialized"] == "true")?;
    assert_eq!(uid(&labelled), uid(&broken));
    assert_eq!(labelled["spec"], broken["spec"], "only the label changes");
    assert!(labelled["metadata"]["deletionTimestamp"].is_null(), "{labelled}");
    wait_for_event(stage, &broken, "LabelBrokenPod", "pod detected as broken, labelled")
}

/// An eviction that a PodDisruptionBudget refuses must be repeated later. The broken pod was ready before and gets another sandbox while
/// the plugin is not in the chain, as after a reboot. Its phase therefore stays Running, so the budget applies; pods that are Pending,
/// because they have never run, can always be evicted.
fn budget(stage: &Stage<'_>) -> Result<()> {
    let chain = Chain::install(stage)?;
    stage.create("deployments", &deployment("web", &injected()))?;
    let ran = stage.pod_that("the pod is ready", is_ready)?;
    chain.leave()?;
    stage.cluster.cri.stop_sandbox(&stage.sandbox(&ran)?)?;
    let broken =
        stage.pod_that("validation has failed", |pod| is_broken(pod) && pod["status"]["phase"] == "Running")?;
    assert_eq!(uid(&broken), uid(&ran));
    let object = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    stage.create("poddisruptionbudgets", &object)?;
    stage.cluster.until("the budget has counted the pod", |_| {
        let status = stage.get("poddisruptionbudgets/web")?["status"].take();
        ensure!(status["expectedPods"] == 1 && status["disruptionsAllowed"] == 0, "{status}");
        Ok(())
    })?;
    chain.enter()?;

    let controller = Controller::start(stage, "evict")?;
    controller.wait_for_log(stage, &["cannot act on broken pod", "responds with 429", "disruption budget"])?;
    let kept = stage.pod_that("the pod is not deleted", |pod| pod["metadata"]["deletionTimestamp"].is_null())?;
    assert_eq!(uid(&kept), uid(&broken));
    let lenient = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
    stage.cluster.patch(&stage.path("poddisruptionbudgets/web"), &lenient)?;
    replaced(stage, &broken)
}

fn job(stage: &Stage<'_>) -> Result<()> {
    let server = Outside::start(&stage.cluster.netns, "203.0.113.10:80".parse()?)?;
    let mut pod = objects::with_native_sidecar(injected());
    pod["spec"]["restartPolicy"] = "Never".into();
    let app = &mut pod["spec"]["containers"][0];
    app["command"] = json!(["/pod_app", "connect", server.address().to_string()]);
    app.as_object_mut().context("a container")?.remove("readinessProbe");
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "connect" }, "spec": { "template": pod } });
    stage.create("jobs", &job)?;
    let broken =
        stage.pod_that("validation has failed for good", |pod| is_broken(pod) && pod["status"]["phase"] == "Failed")?;
    let _chain = Chain::install(stage)?;

    let _controller = Controller::start(stage, "evict")?;
    stage.cluster.until("the job is complete", |_| {
        let status = stage.get("jobs/connect")?["status"].take();
        ensure!(status["succeeded"] == 1, "{status}");
        Ok(())
    })?;
    let done = stage.pod_that("its only pod", |_| true)?;
    assert_ne!(uid(&done), uid(&broken), "another pod has completed the job");
    let name = done["metadata"]["name"].as_str().context("a name")?;
    let log = stage.cluster.log(&stage.path(&format!("pods/{name}")), "app")?;
    assert!(log.starts_with("istio-proxy/outbound from "), "{log}");
    Ok(())
}

/// Checks that the rules of each mode allow the requests of that mode and refuse those of the others.
fn rights(stage: &Stage<'_>) -> Result<()> {
    let wider = ["create pods/eviction", "delete pods", "patch pods/status", "patch pods", "get secrets"];
    for (mode, own) in [("repair", ""), ("evict", wider[0]), ("delete", wider[1]), ("label", wider[2])] {
        let account = Account::new(stage, &format!("{mode}-alone"), &controller::rules(mode))?;
        for request in wider {
            assert_eq!(is_allowed(stage, &account.user, request)?, request == own, "{mode}: {request}");
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
        controller.wait_for_log(stage, &["cannot act on broken pod", "responds with 403", &missing])?;
    }
    let left = stage.pod_that("the pod is not deleted", |pod| pod["metadata"]["deletionTimestamp"].is_null())?;
    assert_eq!(uid(&left), uid(&broken));
    Ok(())
}

/// Waits until the broken pod is deleted and a redirected pod, which replaces it, is ready.
fn replaced(stage: &Stage<'_>, broken: &Value) -> Result<()> {
    let other = stage.pod_that("another pod is ready", |pod| is_ready(pod) && uid(pod) != uid(broken))?;
    stage.redirected(&other)?;
    stage.cluster.until("the broken pod is gone", |_| {
        ensure!(stage.pods()?.iter().all(|pod| uid(pod) != uid(broken)), "{broken}");
        Ok(())
    })
}

/// Waits for the event about an action on the pod.
fn wait_for_event(stage: &Stage<'_>, pod: &Value, reason: &str, message: &str) -> Result<()> {
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
