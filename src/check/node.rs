//! Turns what `gather` read from a node ([`NodeFacts`]) into the checks' results ([`Findings`]), without I/O.

use std::path::PathBuf;

use super::kernel::{self, Kernel};
use report::{Finding, Findings, page};

use super::networks;
use crate::install::Unlocated;
use crate::install::plan::{Obstacle, PodNetwork};
use crate::install::settings::Given;
use crate::runtime_config::{self, Compared};

/// The state of a node, as `gather` read it.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// How the directories were given, for the paths in findings.
    pub given: Given,
    pub kernel: Kernel,
    /// The container runtimes whose sockets exist.
    pub runtimes: Vec<&'static str>,
    /// The network that pods get.
    pub network: Result<PodNetwork, Obstacle>,
    pub bin_dir: PathBuf,
    /// The given directories, and those in the runtimes' configurations.
    pub directories: Directories,
    /// Plugins that are not in `bin_dir`: plugins of the network, and `istio-cni` if a configuration names it.
    pub missing: Vec<String>,
    /// Directories of distributions with network configurations, other than the one that is checked.
    pub other_dirs: Vec<OtherDirectory>,
    pub selinux: Selinux,
    pub cgroups: Option<Cgroups>,
}

/// The given directories, compared with those in the runtimes' configurations.
#[derive(Debug, Clone)]
pub struct Directories {
    pub conf: PathBuf,
    pub bin: PathBuf,
    /// Why directories that are `auto` are not known.
    pub unknown: Option<Unlocated>,
    pub runtimes: Vec<Result<Compared, runtime_config::Error>>,
}

/// A directory in which a distribution keeps its network configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherDirectory {
    pub distribution: &'static str,
    /// The value of `global.platform`, if the chart has one for it.
    pub platform: Option<&'static str>,
    pub path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selinux {
    /// SELinux is absent, disabled or permissive.
    Lenient,
    /// SELinux is enforcing. `context` is this process's context, or empty if it cannot be read.
    Enforcing { context: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cgroups {
    V1,
    V2,
}

/// Plugins whose presence in a chain affects redirection: type, effect, remedy.
const CONFLICTS: [(&str, &str, &str); 6] = [
    (
        "cilium-cni",
        "Cilium renames configurations of other plugins, and its socket load balancer replaces addresses of services before the \
         rules see them",
        "set Cilium's values cni.exclusive to false and socketLB.hostNamespaceOnly to true",
    ),
    ("linkerd-cni", MESH, MESH_REMEDY),
    ("kuma-cni", MESH, MESH_REMEDY),
    ("consul-cni", MESH, MESH_REMEDY),
    ("multus", MULTUS, MULTUS_REMEDY),
    ("multus-shim", MULTUS, MULTUS_REMEDY),
];
const MESH: &str = "the plugin of another service mesh redirects pods, too";
const MESH_REMEDY: &str =
    "let each pod be injected by one mesh only, and remove the plugin of a mesh that is no longer used";
const MULTUS: &str = "Multus runs the plugins of its delegates, which are not in this file";
const MULTUS_REMEDY: &str = "let the agent add the plugin to this file (the default), or to the file that clusterNetwork names \
                             (cniConfFileName), or let pods name the plugin's network (provider: multus)";

/// Returns the findings about a node.
pub fn decide(facts: &NodeFacts) -> Findings {
    let mut findings = kernel::decide(&facts.kernel);
    findings.push(runtime(facts));
    findings.extend(directories(&facts.directories));
    findings.extend(facts.directories.runtimes.iter().flatten().flat_map(networks::decide));
    findings.extend(network(facts));
    findings.push(selinux(&facts.selinux));
    findings.push(cgroups(facts.cgroups));
    for finding in &mut findings {
        finding.text = facts.given.on_node(&finding.text).into_owned();
    }
    Findings(findings)
}

fn runtime(facts: &NodeFacts) -> Finding {
    const SUBJECT: &str = "runtime";
    match facts.runtimes.as_slice() {
        [] => Finding::warning(
            SUBJECT,
            "no socket of containerd, CRI-O or cri-dockerd was found",
            "run this on the node, or name the directory at which its root is mounted (--host-root)",
            page::RUNTIME,
        ),
        [runtime] => Finding::right(SUBJECT, *runtime),
        several => Finding::warning(
            SUBJECT,
            format!("several have a socket: {}", several.join(", ")),
            "check that the directories below are those of the runtime that the kubelet uses",
            page::RUNTIME,
        ),
    }
}

/// Compares the given directories with those of each runtime's configuration.
fn directories(facts: &Directories) -> Vec<Finding> {
    const SUBJECT: &str = "directories";
    if let Some(unknown) = &facts.unknown {
        let remedy = "the text names the file to correct, or the value to set";
        return vec![Finding::failed(SUBJECT, unknown.to_string(), remedy, page::RUNTIME)];
    }
    let given = format!("given: {} and {}", facts.conf.display(), facts.bin.display());
    if facts.runtimes.is_empty() {
        let text = format!("{given}; no configuration of a runtime was found to compare them with");
        return vec![Finding::right(SUBJECT, text)];
    }
    let finding = |compared: &Result<Compared, runtime_config::Error>| match compared {
        Ok(compared) => {
            let (text, values) = (format!("{}; {given}", compared.read.text()), compared.values());
            if values.is_empty() {
                return Finding::right(SUBJECT, text);
            }
            let remedy = format!("set {}, unless another plugin such as Multus reads it", values.join(" and "));
            Finding::warning(SUBJECT, text, remedy, page::RUNTIME)
        }
        Err(error) => {
            let remedy = "correct it, or run this as root; ask the runtime (`crictl info`) for its directories";
            Finding::warning(SUBJECT, format!("{given}; not compared: {error}"), remedy, page::RUNTIME)
        }
    };
    facts.runtimes.iter().map(finding).collect()
}

fn network(facts: &NodeFacts) -> Vec<Finding> {
    const SUBJECT: &str = "network";
    let elsewhere = facts.other_dirs.iter().map(|other| {
        let remedy = match other.platform {
            Some(platform) => format!("if the runtime uses it, set global.platform to {platform}"),
            None => "if the runtime uses it, set cniConfDir and cniBinDir".to_owned(),
        };
        let text = format!("{} has network configurations, too ({})", other.path.display(), other.distribution);
        Finding::warning(SUBJECT, text, remedy, page::RUNTIME)
    });
    let PodNetwork { path, others, names_the_plugin } = match &facts.network {
        Ok(network) => network,
        Err(Obstacle::Unread(unread) | Obstacle::Unjudged(unread)) if unread.is_denied => {
            let remedy = "run `install-cni check` as root on the node, or in a container with CAP_DAC_OVERRIDE";
            let not_tried = Finding::warning(SUBJECT, format!("not tried: {unread}"), remedy, page::CHAIN);
            return std::iter::once(not_tried).chain(elsewhere).collect();
        }
        Err(obstacle) => {
            let remedy = match obstacle {
                Obstacle::NoNetwork { .. } => {
                    "install the cluster's network plugin, or set cniConfDir to the runtime's directory"
                }
                Obstacle::Unread(_) => "set cniConfDir to the runtime's directory, and run this as root",
                _ => "correct it; the agent installs the plugin as soon as it is",
            };
            let failed = Finding::failed(SUBJECT, obstacle.to_string(), remedy, page::CHAIN);
            return std::iter::once(failed).chain(elsewhere).collect();
        }
    };
    let mut findings = vec![Finding::right(SUBJECT, format!("{}: {}", path.display(), others.join(", ")))];
    findings.extend(elsewhere);
    findings.extend(binaries(facts));
    let plugin = contract::PLUGIN_NAME;
    findings.push(match names_the_plugin {
        true => Finding::right("chain", format!("it names {plugin}")),
        false => Finding::warning(
            "chain",
            format!("no configuration names {plugin}: pods are not redirected"),
            "install the DaemonSet; if it runs, its log has the reason",
            page::CHAIN,
        ),
    });
    let present = CONFLICTS.iter().filter(|(kind, ..)| others.iter().any(|other| other == kind));
    // After Multus in a chain, the plugin gets the pod's interfaces as after any other plugin.
    let present = present.filter(|(_, effect, _)| !(*names_the_plugin && *effect == MULTUS));
    findings.extend(present.map(|(kind, effect, remedy)| {
        Finding::warning("other plugins", format!("{kind}: {effect}"), *remedy, page::CONFLICTS)
    }));
    findings
}

fn binaries(facts: &NodeFacts) -> Option<Finding> {
    const SUBJECT: &str = "plugins";
    let dir = facts.bin_dir.display();
    if facts.missing.iter().any(|kind| kind == contract::PLUGIN_NAME) {
        return Some(Finding::failed(
            SUBJECT,
            format!("a configuration names {}, which is not in {dir}: no pod starts", contract::PLUGIN_NAME),
            "start the agent again, which copies it; or remove the entry (`install-cni uninstall`)",
            page::CHAIN,
        ));
    }
    (!facts.missing.is_empty()).then(|| {
        Finding::warning(
            SUBJECT,
            format!("not in {dir}: {}", facts.missing.join(", ")),
            "none needed if the runtime searches several directories",
            page::CHAIN,
        )
    })
}

fn selinux(selinux: &Selinux) -> Finding {
    const SUBJECT: &str = "SELinux";
    match selinux {
        Selinux::Lenient => Finding::right(SUBJECT, "not enforcing"),
        Selinux::Enforcing { context } if context.contains(":spc_t:") || context.contains(":unconfined_t:") => {
            Finding::right(SUBJECT, format!("enforcing; this process is {context}"))
        }
        Selinux::Enforcing { context } => Finding::warning(
            SUBJECT,
            format!("enforcing, and this process is {context:?}, which may not write to the node's directories"),
            "let the agent have the type spc_t: seLinuxOptions.type, or global.platform=openshift",
            page::SECURITY,
        ),
    }
}

fn cgroups(found: Option<Cgroups>) -> Finding {
    const SUBJECT: &str = "cgroups";
    match found {
        Some(Cgroups::V2) => Finding::right(SUBJECT, "version 2"),
        Some(Cgroups::V1) => Finding::warning(
            SUBJECT,
            "version 1, which Kubernetes no longer develops; redirection does not depend on it",
            "boot the node with systemd.unified_cgroup_hierarchy=1 before an upgrade to a Kubernetes that requires version 2",
            page::CGROUPS,
        ),
        None => Finding::warning(
            SUBJECT,
            "no hierarchy is mounted at /sys/fs/cgroup",
            "run this on the node, or name the directory at which its root is mounted (--host-root)",
            page::CGROUPS,
        ),
    }
}

#[cfg(test)]
mod tests;
