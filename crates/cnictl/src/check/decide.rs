//! Derives the findings of the check ([`Findings`]) from the state of a cluster ([`Facts`]), without I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::rights::Right;
use report::{Finding, Findings, page};

/// The state of a cluster, as `gather` read it. An `Err` states why the API server did not return the objects.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The DaemonSet's namespace.
    pub(super) namespace: String,
    /// The status of the agents' DaemonSet; `None` if it does not exist.
    pub(super) agents: Result<Option<Agents>, String>,
    /// The level that PodSecurity enforces in the namespace.
    pub(super) pod_security: Result<Option<String>, String>,
    /// The webhooks of sidecar injectors.
    pub(super) webhooks: Result<Vec<Webhook>, String>,
    /// The rights that an installation requires, and whether the user has each of them.
    pub(super) rights: Vec<(Right, Result<bool, String>)>,
    /// Linux nodes.
    pub(super) nodes: Result<Vec<NodeFacts>, String>,
    /// Names of RuntimeClasses with a sandboxed runtime (gVisor, Kata Containers), whose pods have a kernel of their
    /// own.
    pub(super) sandboxes: Result<Vec<String>, String>,
    /// The configuration of Cilium, if it is installed.
    pub(super) cilium: Result<Option<BTreeMap<String, String>>, String>,
}

/// Numbers of nodes in the DaemonSet's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agents {
    /// Whether the numbers are up to date with the DaemonSet's current spec (`status.observedGeneration`).
    pub(super) current: bool,
    pub(super) desired: i32,
    pub(super) ready: i32,
    pub(super) updated: i32,
}

#[derive(Debug, Clone)]
pub(super) struct Webhook {
    pub(super) configuration: String,
    pub(super) name: String,
    /// The latest expiry of a certificate in the caBundle, in seconds since 1970; `Err` for an invalid caBundle.
    pub(super) ends: Result<i64, String>,
    /// Whether pods are refused if the webhook does not respond.
    pub(super) refuses: bool,
    /// The service that the API server calls; `None` if it calls a URL.
    pub(super) service: Option<Service>,
}

#[derive(Debug, Clone)]
pub(super) struct Service {
    /// `namespace/name`
    pub(super) name: String,
    /// The number of endpoints that are ready.
    pub(super) ready: Result<usize, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) kernel: String,
    /// The container runtime and its version, such as `containerd://1.7.24`.
    pub(super) runtime: String,
    pub(super) kubelet: String,
    /// Name of the operating system's image.
    pub(super) image: String,
}

const DAY: i64 = 86_400;
/// The remaining validity, in seconds, below which a caBundle is reported. `sidecar-injector` renews its CA long before
/// that.
const SOON: i64 = 14 * DAY;
/// The oldest kernel on which the rules are tested.
const OLDEST_KERNEL: (u32, u32) = (5, 10);
/// The maximum number of nodes or rights that a finding names.
const NAMED: usize = 5;

/// Returns the findings about a cluster at `now`, in seconds since 1970.
pub(super) fn decide(facts: &Facts, now: i64) -> Findings {
    let is_installed = matches!(facts.agents, Ok(Some(_)));
    let is_ready = matches!(facts.agents, Ok(Some(Agents { desired, ready, .. })) if desired > 0 && ready >= desired);
    let mut findings = vec![agents(facts), pod_security(facts)];
    findings.extend(webhooks(&facts.webhooks, now));
    findings.push(rights(&facts.rights, is_installed));
    findings.extend(nodes(&facts.nodes, is_ready));
    findings.extend(sandboxes(&facts.sandboxes));
    findings.extend(cilium(&facts.cilium));
    Findings(findings)
}

/// Returns the finding for objects that the API server did not return.
fn unread(subject: &'static str, reason: &str) -> Finding {
    let remedy = "check the connection to the cluster and the rights of this user (kubectl auth can-i --list)";
    Finding::warning(subject, format!("not known: {reason}"), remedy, page::RIGHTS)
}

fn agents(facts: &Facts) -> Finding {
    const SUBJECT: &str = "agents";
    let name = format!("DaemonSet {}/{}", facts.namespace, contract::DAEMON_SET);
    let log = format!("kubectl -n {} logs -l k8s-app={} --tail=20", facts.namespace, contract::DAEMON_SET);
    match &facts.agents {
        Err(reason) => unread(SUBJECT, reason),
        Ok(None) => Finding::warning(
            SUBJECT,
            format!("there is no {name}: pods are not redirected"),
            "install it (install/README.md), or name its namespace (--namespace)",
            page::AGENTS,
        ),
        Ok(Some(Agents { desired: 0, .. })) => Finding::failed(
            SUBJECT,
            format!("{name} selects no node"),
            "check nodeSelector, affinity and tolerations",
            page::AGENTS,
        ),
        Ok(Some(Agents { desired, ready, .. })) if ready < desired => {
            Finding::failed(SUBJECT, format!("{name}: {ready} of {desired} nodes are ready"), log, page::AGENTS)
        }
        Ok(Some(Agents { current: false, .. })) => Finding::warning(
            SUBJECT,
            format!("{name}: its latest change has not been observed, and the numbers are of an earlier version"),
            "repeat this in a moment; if it stays so, kube-controller-manager does not work",
            page::AGENTS,
        ),
        Ok(Some(Agents { desired, updated, .. })) if updated < desired => Finding::warning(
            SUBJECT,
            format!("{name}: {updated} of {desired} nodes have the current version"),
            "wait for the rolling update; it stops at a node that its new agent cannot serve",
            page::AGENTS,
        ),
        Ok(Some(Agents { desired, .. })) => Finding::right(SUBJECT, format!("{name}: all {desired} nodes are ready")),
    }
}

fn pod_security(facts: &Facts) -> Finding {
    const SUBJECT: &str = "PodSecurity";
    let namespace = &facts.namespace;
    match &facts.pod_security {
        Err(reason) => unread(SUBJECT, reason),
        Ok(Some(level)) if level != "privileged" => Finding::failed(
            SUBJECT,
            format!(
                "namespace {namespace} enforces {level}, which refuses the agents: they mount directories of the node"
            ),
            format!("kubectl label namespace {namespace} --overwrite pod-security.kubernetes.io/enforce=privileged"),
            page::SECURITY,
        ),
        Ok(_) => Finding::right(SUBJECT, format!("namespace {namespace} admits the agents")),
    }
}

fn webhooks(webhooks: &Result<Vec<Webhook>, String>, now: i64) -> Vec<Finding> {
    const SUBJECT: &str = "webhook";
    match webhooks {
        Err(reason) => vec![unread(SUBJECT, reason)],
        Ok(all) if all.is_empty() => vec![Finding::warning(
            SUBJECT,
            "no MutatingWebhookConfiguration has a sidecar injector: pods get no sidecar",
            "install Istio, or this project's injector (manifests/sidecar-injector.yaml)",
            page::WEBHOOK,
        )],
        Ok(all) => all.iter().flat_map(|webhook| [bundle(webhook, now), service(webhook)]).flatten().collect(),
    }
}

fn bundle(Webhook { configuration, name, ends, .. }: &Webhook, now: i64) -> Option<Finding> {
    const SUBJECT: &str = "caBundle";
    const REMEDY: &str = "restart the injector, which writes it; its log has the reason if it cannot";
    let hook = format!("{name} of {configuration}");
    Some(match ends {
        Err(reason) => Finding::failed(SUBJECT, format!("{hook}: {reason}"), REMEDY, page::WEBHOOK),
        Ok(end) if *end <= now => {
            let ago = (now - end) / DAY;
            Finding::failed(SUBJECT, format!("{hook} ended {ago} days ago"), REMEDY, page::WEBHOOK)
        }
        Ok(end) if end - now < SOON => {
            Finding::warning(SUBJECT, format!("{hook} ends in {} days", (end - now) / DAY), REMEDY, page::WEBHOOK)
        }
        Ok(end) => Finding::right(SUBJECT, format!("{hook} ends in {} days", (end - now) / DAY)),
    })
}

fn service(Webhook { name, refuses, service, .. }: &Webhook) -> Option<Finding> {
    const SUBJECT: &str = "webhook";
    let Service { name: service, ready } = service.as_ref()?;
    Some(match ready {
        Err(reason) => unread(SUBJECT, reason),
        Ok(0) => {
            let effect = if *refuses { "pods are refused" } else { "pods start without a sidecar" };
            Finding::failed(
                SUBJECT,
                format!("{name}: service {service} has no endpoint that is ready, so {effect}"),
                "check the injector's Deployment and the service's selector",
                page::WEBHOOK,
            )
        }
        Ok(count) => Finding::right(SUBJECT, format!("{name}: {count} endpoints of service {service} are ready")),
    })
}

/// Returns the finding about the user's rights. Missing rights are a failure before the installation. Afterwards they
/// are a warning, because they prevent only an upgrade.
fn rights(rights: &[(Right, Result<bool, String>)], is_installed: bool) -> Finding {
    const SUBJECT: &str = "rights";
    if let Some(reason) = rights.iter().find_map(|(_, allowed)| allowed.as_ref().err()) {
        return unread(SUBJECT, reason);
    }
    let denied = rights.iter().filter(|(_, allowed)| *allowed == Ok(false));
    let denied: Vec<_> = denied.map(|(right, _)| format!("{} {}", right.verb, right.resource)).collect();
    let Some(denied) = listed(&denied) else {
        return Finding::right(SUBJECT, "this user may install and upgrade");
    };
    let text = format!("this user may not {denied}");
    let remedy = "install and upgrade as a user with these rights, such as cluster-admin";
    match is_installed {
        true => Finding::warning(SUBJECT, text, remedy, page::RIGHTS),
        false => Finding::failed(SUBJECT, text, remedy, page::RIGHTS),
    }
}

/// Returns the findings about the nodes. Platforms are not reported if all agents are ready: a ready agent has found
/// the CNI directories of its node's platform.
fn nodes(nodes: &Result<Vec<NodeFacts>, String>, agents_are_ready: bool) -> Vec<Finding> {
    const SUBJECT: &str = "nodes";
    let nodes = match nodes {
        Err(reason) => return vec![unread(SUBJECT, reason)],
        Ok(nodes) => nodes,
    };
    let kernels: BTreeSet<&str> = nodes.iter().map(|node| node.kernel.as_str()).collect();
    let runtimes: BTreeSet<&str> = nodes.iter().map(|node| node.runtime.as_str()).collect();
    let join = |set: BTreeSet<&str>| set.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    let summary =
        format!("{} with Linux examined; kernels {}; runtimes {}", nodes.len(), join(kernels), join(runtimes));
    let mut findings = vec![Finding::right(SUBJECT, summary)];
    let old = named(nodes, |node| version(&node.kernel).is_some_and(|version| version < OLDEST_KERNEL));
    findings.extend(old.map(|names| {
        let (major, minor) = OLDEST_KERNEL;
        let text = format!("a kernel before {major}.{minor}, the oldest that is tested: {names}");
        Finding::warning(SUBJECT, text, "run `install-cni check` on such a node", page::KERNEL)
    }));
    let tested = |runtime: &str| ["containerd://", "cri-o://"].iter().any(|known| runtime.starts_with(known));
    let other = named(nodes, |node| !tested(&node.runtime));
    findings.extend(other.map(|names| {
        let text = format!("a runtime other than containerd and CRI-O: {names}");
        Finding::warning(SUBJECT, text, "check cniConfDir, cniBinDir and cniNetnsDir", page::RUNTIME)
    }));
    for platform in ["gke", "k3s", "openshift"].into_iter().filter(|_| !agents_are_ready) {
        findings.extend(named(nodes, |node| node.platform() == Some(platform)).map(|names| {
            let text = format!("nodes of {platform}: {names}");
            Finding::warning(SUBJECT, text, format!("install with global.platform={platform}"), page::NODES)
        }));
    }
    findings
}

impl NodeFacts {
    /// Returns the value of `global.platform` that the node needs, if the CNI directories of its platform are not the
    /// default ones.
    fn platform(&self) -> Option<&'static str> {
        match self {
            node if node.kubelet.contains("-gke.") => Some("gke"),
            node if node.kubelet.contains("+k3s") => Some("k3s"),
            node if node.image.contains("CoreOS") && node.runtime.starts_with("cri-o://") => Some("openshift"),
            _ => None,
        }
    }
}

/// Returns the names of the first nodes for which `holds` is true; `None` if it is true for no node.
fn named(nodes: &[NodeFacts], holds: impl Fn(&NodeFacts) -> bool) -> Option<String> {
    listed(&nodes.iter().filter(|node| holds(node)).map(|node| node.name.clone()).collect::<Vec<_>>())
}

/// Returns the first [`NAMED`] items of a list, and the number of the others; `None` for an empty list.
fn listed(found: &[String]) -> Option<String> {
    let more = if found.len() > NAMED { format!(" and {} more", found.len() - NAMED) } else { String::new() };
    (!found.is_empty()).then(|| found[..found.len().min(NAMED)].join(", ") + &more)
}

/// Returns the major and minor version in a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn sandboxes(sandboxes: &Result<Vec<String>, String>) -> Option<Finding> {
    const SUBJECT: &str = "RuntimeClass";
    match sandboxes {
        Err(reason) => Some(unread(SUBJECT, reason)),
        Ok(names) if names.is_empty() => None,
        Ok(names) => Some(Finding::warning(
            SUBJECT,
            format!("pods of {} have a kernel of their own, in which no rules are programmed", names.join(", ")),
            "do not inject these pods: label sidecar.istio.io/inject=false",
            page::CONFLICTS,
        )),
    }
}

fn cilium(cilium: &Result<Option<BTreeMap<String, String>>, String>) -> Vec<Finding> {
    const SUBJECT: &str = "Cilium";
    let settings = match cilium {
        Err(reason) => return vec![unread(SUBJECT, reason)],
        Ok(None) => return Vec::new(),
        Ok(Some(settings)) => settings,
    };
    let is = |key: &str, value: &str| settings.get(key).is_some_and(|found| found == value);
    let mut findings = Vec::new();
    if !is("cni-exclusive", "false") {
        findings.push(Finding::failed(
            SUBJECT,
            "it renames the configurations of other plugins",
            "set Cilium's value cni.exclusive to false",
            page::CONFLICTS,
        ));
    }
    if !is("kube-proxy-replacement", "false") && !is("bpf-lb-sock-hostns-only", "true") {
        findings.push(Finding::warning(
            SUBJECT,
            "its socket load balancer may replace addresses of services before the rules see them",
            "set Cilium's value socketLB.hostNamespaceOnly to true",
            page::CONFLICTS,
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::right(SUBJECT, "its settings admit other plugins"));
    }
    findings
}

#[cfg(test)]
mod tests;
