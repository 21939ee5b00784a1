//! The agent's capabilities, mounts and RBAC rules: each is in a table with its reason.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::agent::Agent;
use crate::helm::{AGENT, NAMESPACE};
use crate::objects::{is_known, of_kind, parse, strings};

/// The chart's settings on which the rights depend.
#[derive(Clone, Copy, Default)]
struct Wanted {
    /// The repair mode; empty if repair is off or a dry run.
    mode: &'static str,
    /// Whether the agent removes the startup taint.
    taint: bool,
    /// Whether the platform is OpenShift.
    openshift: bool,
    /// Whether the agent finds both directories; `auto_conf`: whether it finds only the directory of configurations.
    auto: bool,
    auto_conf: bool,
    /// Whether the agent compares given directories with a runtime's configuration.
    compares: bool,
}

impl Wanted {
    fn in_place(self) -> bool {
        self.mode.starts_with("repair")
    }

    fn evicts(self) -> bool {
        self.mode.ends_with("evict")
    }
}

/// A right, the settings that need it, and its reason.
pub(crate) type Reason<W> = (&'static str, fn(W) -> bool, &'static str);

const CAPABILITIES: [Reason<Wanted>; 4] = [
    ("DAC_OVERRIDE", |_| true, "the node's CNI directories may belong to another user and be closed to root"),
    ("SYS_ADMIN", Wanted::in_place, "setns"),
    ("SYS_PTRACE", Wanted::in_place, "/proc/<pid>/ns/net of processes of other users, or with more capabilities"),
    ("NET_ADMIN", Wanted::in_place, "netfilter, routes and addresses of the pod's netns"),
];

/// Mounts in the format of [`Agent::mounts`], each with the settings that need it.
const MOUNTS: [Reason<Wanted>; 8] = [
    ("/opt/cni/bin -> /host/opt/cni/bin", |w| !w.auto, "the plugin is installed there"),
    ("/etc/cni/net.d -> /host/etc/cni/net.d", |w| !w.auto && !w.auto_conf, "the plugin is chained there"),
    ("/ -> /host/root", |w| w.auto || w.auto_conf, "the runtime's configuration, and directories that only it names"),
    ("/etc/containerd -> /host/root/etc/containerd (ro)", |w| w.compares, "the runtime's configuration"),
    ("/var/lib/cni -> /host/var/lib/cni", |_| true, "a removal takes the plugin out of cached chains"),
    ("/var/run/istio-cni -> /var/run/istio-cni", |_| true, "kubeconfig and sockets for the plugin"),
    ("/proc -> /host/proc (ro)", Wanted::in_place, "the processes by which a pod's netns is found"),
    ("/var/run/netns -> /host/var/run/netns (ro)", Wanted::in_place, "the runtime's bind mounts of network namespaces"),
];

/// RBAC rules in the format of [`rules`], each with the settings that need it.
const RULES: [Reason<Wanted>; 16] = [
    (
        "cluster /pods get",
        |_| true,
        "the agent's own pod, if it may not get the DaemonSet; pods before an in-place repair",
    ),
    ("cluster /pods list", |_| true, "the pods of this node, for lookups and repair"),
    ("cluster /pods watch", |_| true, "changes of the same objects"),
    ("cluster /nodes get", |_| true, "whether the DaemonSet still selects this node; its taints"),
    ("cluster /nodes patch", |w| w.taint, "removal of the startup taint"),
    ("kube-system apps/daemonsets[istio-cni-node] get", |_| true, "distinguishes an upgrade from a removal"),
    ("kube-system /serviceaccounts/token[istio-cni-plugin] create", |_| true, "the token in the plugin's kubeconfig"),
    (
        "cluster /events create",
        |_| true,
        "events about pods in sandboxes, about an agent that is not ready, and about actions on pods",
    ),
    ("cluster node.k8s.io/runtimeclasses list", |_| true, "whether a pod's handler is that of a sandbox"),
    ("cluster node.k8s.io/runtimeclasses watch", |_| true, "changes of the same objects"),
    ("cluster /pods/eviction create", Wanted::evicts, "mode evict, and the fallback of in-place repair"),
    ("cluster /pods delete", |w| w.mode == "delete", "mode delete"),
    ("cluster /pods/status patch", |w| w.mode == "label", "mode label"),
    (
        "cluster security.openshift.io/securitycontextconstraints[istio-cni] use",
        |w| w.openshift,
        "admission on OpenShift",
    ),
    ("cluster /pods patch", |_| false, "not granted: it includes changing images"),
    ("cluster /secrets get", |_| false, "not needed"),
];

pub(crate) fn of_the_manifests() {
    let wanted = Wanted { mode: "evict", ..Wanted::default() };
    check(&parse(&AGENT.manifest()), wanted);
}

pub(crate) fn of_the_chart() {
    let modes = ["evict", "delete", "label", "repair", "repair-or-evict", "observe"];
    for mode in modes {
        let value = format!("repair.mode={mode:?}");
        check(&AGENT.render(&[&value]), Wanted { mode, ..Wanted::default() });
        check(&AGENT.render(&[&value, "repair.dryRun=true"]), Wanted::default());
        check(&AGENT.render(&[&value, "repair.enabled=false"]), Wanted::default());
    }
    let evict = Wanted { mode: "evict", ..Wanted::default() };
    check(&AGENT.render(&["taint.enabled=true"]), Wanted { taint: true, ..evict });
    let openshift = AGENT.render(&[
        r#"global.platform="openshift""#,
        r#"cniBinDir="/opt/cni/bin""#,
        r#"cniConfDir="/etc/cni/net.d""#,
    ]);
    check(&openshift, Wanted { openshift: true, ..evict });
    let auto = [r#"cniConfDir="auto""#, r#"cniBinDir="auto""#, r#"runtimeConfigDirs=["/etc/containerd"]"#];
    check(&AGENT.render(&auto), Wanted { auto: true, ..evict });
    check(&AGENT.render(&auto[..1]), Wanted { auto_conf: true, ..evict });
    check(&AGENT.render(&auto[2..]), Wanted { compares: true, ..evict });
}

/// The RBAC rules of the plugin, which do not depend on the settings.
const PLUGIN_RULES: [Reason<()>; 1] =
    [("cluster /pods get", |()| true, "the plugin gets the pod that it is called for if the agent does not respond")];

fn check(objects: &[Value], wanted: Wanted) {
    objects.iter().for_each(is_known);
    let agent = Agent::of(objects);
    let set = |list: Vec<String>| list.into_iter().collect::<BTreeSet<_>>();
    let mode = wanted.mode;
    assert_eq!(set(agent.capabilities()), needed(&CAPABILITIES, wanted), "capabilities of mode {mode:?}");
    assert_eq!(set(agent.mounts()), needed(&MOUNTS, wanted), "mounts of mode {mode:?}");
    let (of_plugin, of_agent) = by_account(objects);
    assert_eq!(rules(&of_agent), needed(&RULES, wanted), "rules of mode {mode:?}");
    assert_eq!(rules(&of_plugin), needed(&PLUGIN_RULES, ()), "rules of the plugin");
    confined(&agent, wanted);
    bound(&of_agent, AGENT.name);
    bound(&of_plugin, PLUGIN_ACCOUNT);
    let accounts = of_kind(objects, "ServiceAccount");
    let plugin = accounts.iter().find(|account| account["metadata"]["name"] == PLUGIN_ACCOUNT).unwrap();
    assert_eq!(plugin["automountServiceAccountToken"], false, "no pod uses this account");
    assert_eq!(agent.environment()["PLUGIN_SERVICE_ACCOUNT"], PLUGIN_ACCOUNT);
}

/// The account in the plugin's kubeconfig.
const PLUGIN_ACCOUNT: &str = "istio-cni-plugin";

/// Splits the roles and bindings into those for the plugin's account and all others.
fn by_account(objects: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let is_rbac = |object: &&Value| object["kind"].as_str().unwrap().contains("Role");
    objects.iter().filter(is_rbac).cloned().partition(|object| object["metadata"]["name"] == PLUGIN_ACCOUNT)
}

/// Returns the rights in a table that these settings need.
pub(crate) fn needed<W: Copy>(table: &[Reason<W>], wanted: W) -> BTreeSet<String> {
    table.iter().filter(|(_, when, _)| when(wanted)).map(|(right, ..)| (*right).to_owned()).collect()
}

/// Checks the restrictions of the container that apply in every mode.
fn confined(agent: &Agent<'_>, wanted: Wanted) {
    let context = &agent.container["securityContext"];
    for (field, value) in [("privileged", false), ("allowPrivilegeEscalation", false), ("readOnlyRootFilesystem", true)]
    {
        assert_eq!(context[field], value, "{field}");
    }
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
    for field in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
        assert!(agent.pod.get(field).is_none(), "{field}");
    }
    assert_eq!(context.get("seLinuxOptions").is_some(), wanted.openshift);
    assert_eq!(agent.pod["enableServiceLinks"], false);
}

/// Returns each single right of all roles as `SCOPE GROUP/RESOURCE[NAME] VERB`, where SCOPE is `cluster` or a
/// namespace.
pub(crate) fn rules(objects: &[Value]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let roles = ["ClusterRole", "Role"].into_iter().flat_map(|kind| of_kind(objects, kind));
    for (role, rule) in roles.flat_map(|role| role["rules"].as_array().unwrap().iter().map(move |rule| (role, rule))) {
        let scope = role["metadata"]["namespace"].as_str().unwrap_or("cluster");
        let names = strings(&rule["resourceNames"]);
        let name = if names.is_empty() { String::new() } else { format!("[{}]", names.join(",")) };
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                let right = |verb| format!("{scope} {group}/{resource}{name} {verb}");
                found.extend(strings(&rule["verbs"]).into_iter().map(right));
            }
        }
    }
    found
}

/// Checks that each role is bound once, in its namespace, and only to this account.
pub(crate) fn bound(objects: &[Value], account: &str) {
    let subjects = serde_json::json!([{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]);
    for (role, binding) in [("ClusterRole", "ClusterRoleBinding"), ("Role", "RoleBinding")] {
        let places = |kind: &str, name: fn(&Value) -> &Value| -> Vec<(String, Value)> {
            let place = |o: &&Value| (name(o).as_str().unwrap().to_owned(), o["metadata"]["namespace"].clone());
            let mut places: Vec<_> = of_kind(objects, kind).iter().map(place).collect();
            places.sort_by(|a, b| a.0.cmp(&b.0));
            places
        };
        assert_eq!(places(role, |r| &r["metadata"]["name"]), places(binding, |b| &b["roleRef"]["name"]));
        for binding in of_kind(objects, binding) {
            assert_eq!((&binding["subjects"], &binding["roleRef"]["kind"]), (&subjects, &role.into()));
        }
    }
}
