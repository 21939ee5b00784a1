//! Trials that each container runtime must pass. `tests/support/make/compatibility` makes a table in README from their results.

use anyhow::{Context as _, Result, ensure};
use contract::annotation;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::enter::Runtime;
use crate::objects::{injected, is_ready, plain, standalone, uid};
use crate::stage::{Case, Scope, Stage};
use crate::{install, upgrade};

/// This module's trial on the host's containerd, on which the other trials of [`of_another_runtime`] run as cases of their own modules.
pub(crate) const OF_THE_HOST: &[Case] = &[Case {
    name: "running_pods_survive_a_restart_of_the_runtime",
    namespace: "restart",
    scope: Scope::Gate,
    body: restart,
}];

/// The trials on a runtime other than the host's containerd. Their names end with the runtime's name.
macro_rules! of_another_runtime {
    ($runtime:literal) => {
        &[
            Case {
                name: concat!("running_pods_survive_a_restart_of_the_runtime_on_", $runtime),
                namespace: "restart",
                scope: Scope::Gate,
                body: restart,
            },
            Case {
                name: concat!("the_manifests_install_and_replace_what_came_before_on_", $runtime),
                namespace: "install",
                scope: Scope::Full,
                body: install::install,
            },
            Case {
                name: concat!(
                    "every_pod_is_redirected_or_repaired_while_the_agent_and_the_chain_are_replaced_on_",
                    $runtime
                ),
                namespace: "replace",
                scope: Scope::Full,
                body: install::replace,
            },
            Case {
                name: concat!("the_old_agent_serves_during_a_failing_upgrade_on_", $runtime),
                namespace: "upgrade",
                scope: Scope::Full,
                body: upgrade::upgrade,
            },
            Case {
                name: concat!("deleting_the_agent_removes_its_files_and_its_chain_entry_on_", $runtime),
                namespace: "remove",
                scope: Scope::Full,
                body: install::remove,
            },
        ]
    };
}

pub(crate) const OF_CONTAINERD_2: &[Case] = of_another_runtime!("containerd_2");
pub(crate) const OF_CRIO: &[Case] = of_another_runtime!("crio");

/// Kills the runtime, which is started again, and checks that all pods keep their sandboxes: a pod outside of the mesh, one in it, and one
/// whose annotations have been edited since its ADD. CRI-O calls CHECK for each and replaces a sandbox whose CHECK fails.
fn restart(stage: &Stage<'_>) -> Result<()> {
    let _agent = Agent::install(stage)?;
    for (name, pod) in [("plain", plain()), ("meshed", injected()), ("edited", injected())] {
        stage.create("pods", &standalone(name, pod))?;
    }
    let before = stage.cluster.until("all pods are ready", |_| {
        let pods = stage.pods()?;
        ensure!(pods.iter().all(is_ready), "{pods:#?}");
        Ok(pods)
    })?;
    let edit = json!({ "metadata": { "annotations": { annotation::EXCLUDE_INBOUND_PORTS: "15020,9999" } } });
    stage.cluster.patch(&stage.path("pods/edited"), &edit)?;
    let sandboxes = before.iter().map(|pod| stage.sandbox(pod)).collect::<Result<Vec<_>>>()?;
    let runtime = Runtime::here().context("this program runs outside of a cluster")?;
    drop(stage.cluster.stop(runtime.component())?);
    stage.cluster.until("the runtime responds", |cluster| cluster.cri.version())?;
    // A pod that starts now starts after the runtime has checked the sandboxes and the kubelet has listed them.
    stage.create("pods", &standalone("later", injected()))?;
    stage.pod_that("the later pod is ready", |pod| pod["metadata"]["name"] == "later" && is_ready(pod))?;
    let after = stage.pods()?;
    for (pod, sandbox) in before.iter().zip(sandboxes) {
        let now = after.iter().find(|now| uid(now) == uid(pod)).context("a pod is gone")?;
        ensure!(stage.sandbox(now)? == sandbox && is_ready(now), "sandbox {sandbox} has been replaced: {now:#}");
    }
    let meshed = |pod: &&Value| pod["metadata"]["name"] != "plain";
    after.iter().filter(meshed).try_for_each(|pod| stage.redirected(pod))
}
