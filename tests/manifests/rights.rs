//! What the agent may do on the node and in the cluster: each right in a table, with its reason; and how rights are read.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::agent::Agent;
use crate::helm::{AGENT, NAMESPACE};
use crate::objects::{is_known, of_kind, parse, strings};

/// What decides which rights are needed.
#[derive(Clone, Copy, Default)]
struct Wanted {
    /// Repair's mode; empty: nobody repairs, or nobody acts.
    mode: &'static str,
    /// The startup taint is removed.
    taint: bool,
    /// On OpenShift.
    openshift: bool,
}

impl Wanted {
    fn in_place(self) -> bool {
        self.mode.starts_with("repair")
    }

    fn evicts(self) -> bool {
        self.mode.ends_with("evict")
    }

    fn acts(self) -> bool {
        !matches!(self.mode, "" | "observe")
    }
}

/// A right, when it is given, and why.
pub(crate) type Reason<W> = (&'static str, fn(W) -> bool, &'static str);

const CAPABILITIES: [Reason<Wanted>; 4] = [
    ("DAC_OVERRIDE", |_| true, "the node's CNI directories may belong to another user than root, and shut it out"),
    ("SYS_ADMIN", Wanted::in_place, "setns"),
    ("SYS_PTRACE", Wanted::in_place, "/proc/<pid>/ns/net of processes that other users run, or with more rights"),
    ("NET_ADMIN", Wanted::in_place, "netfilter, routes and addresses of the pod's netns"),
];

/// As [`Agent::mounts`] writes them.
const MOUNTS: [Reason<Wanted>; 5] = [
    ("/opt/cni/bin -> /host/opt/cni/bin", |_| true, "the plugin is put there"),
    ("/etc/cni/net.d -> /host/etc/cni/net.d", |_| true, "the plugin is chained there"),
    ("/var/run/istio-cni -> /var/run/istio-cni", |_| true, "kubeconfig and sockets, which the plugin looks for"),
    ("/proc -> /host/proc (ro)", Wanted::in_place, "whose processes tell whose netns it is"),
    ("/var/run/netns -> /host/var/run/netns (ro)", Wanted::in_place, "the runtime's names of network namespaces"),
];

/// As [`rules`] writes them.
const RULES: [Reason<Wanted>; 14] = [
    (
        "cluster /pods get",
        |_| true,
        "its own pod, where it may not ask for the DaemonSet; repair in place before it acts",
    ),
    ("cluster /pods list", |_| true, "the agent's cache, and repair's view, of this node's pods"),
    ("cluster /pods watch", |_| true, "the same, kept"),
    ("cluster /nodes get", |_| true, "does the DaemonSet still select this node; which taints has it"),
    ("cluster /nodes patch", |w| w.taint, "the startup taint is removed"),
    ("kube-system apps/daemonsets[istio-cni-node] get", |_| true, "an upgrade is told from a removal"),
    ("kube-system /serviceaccounts/token[istio-cni-plugin] create", |_| true, "the token in the plugin's kubeconfig"),
    ("cluster /events create", Wanted::acts, "what was done to a pod is told"),
    ("cluster /pods/eviction create", Wanted::evicts, "mode evict, and what repair falls back to"),
    ("cluster /pods delete", |w| w.mode == "delete", "mode delete"),
    ("cluster /pods/status patch", |w| w.mode == "label", "mode label"),
    ("cluster security.openshift.io/securitycontextconstraints[istio-cni] use", |w| w.openshift, "admission there"),
    ("cluster /pods patch", |_| false, "it would be the right to change images"),
    ("cluster /secrets get", |_| false, "none of an agent's concerns"),
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
}

/// What the plugin may do, whatever the mode.
const PLUGIN_RULES: [Reason<()>; 1] = [(
    "cluster /pods get",
    |()| true,
    "the plugin asks for the pod that it is called for where the agent does not answer",
)];

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
    assert_eq!(plugin["automountServiceAccountToken"], false, "no pod runs under it");
    assert_eq!(agent.environment()["PLUGIN_SERVICE_ACCOUNT"], PLUGIN_ACCOUNT);
}

/// The account in the plugin's kubeconfig.
const PLUGIN_ACCOUNT: &str = "istio-cni-plugin";

/// Roles and bindings of the plugin's account, and all others.
fn by_account(objects: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let is_rbac = |object: &&Value| object["kind"].as_str().unwrap().contains("Role");
    objects.iter().filter(is_rbac).cloned().partition(|object| object["metadata"]["name"] == PLUGIN_ACCOUNT)
}

/// What of a table must be given.
pub(crate) fn needed<W: Copy>(table: &[Reason<W>], wanted: W) -> BTreeSet<String> {
    table.iter().filter(|(_, when, _)| when(wanted)).map(|(right, ..)| (*right).to_owned()).collect()
}

/// What a container on a node is kept from, whatever its mode.
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

/// Every rule of every role, taken apart: `cluster group/resource[name] verb`, or its namespace instead of `cluster`.
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

/// Each role is bound, once and where it is, to this account and nobody else.
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
