//! The rights that a user needs for an installation: the rights to create the objects in both manifests, and all rights
//! that the roles in the manifests grant.
//!
//! The user needs the latter because the API server refuses a role with rights that its creator does not have. A right
//! that a role restricts to objects of certain names is listed here without that restriction.

/// A verb on a resource, in the DaemonSet's namespace or in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    /// The resource, with the subresource if there is one, such as `pods/eviction`.
    pub(super) resource: &'static str,
    pub(super) namespaced: bool,
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

pub(super) const RIGHTS: [Right; 37] = [
    local("create", "", "serviceaccounts"),
    local("create", "", "configmaps"),
    local("create", "", "services"),
    local("create", "apps", "daemonsets"),
    local("create", "apps", "deployments"),
    local("create", "policy", "poddisruptionbudgets"),
    local("create", RBAC, "roles"),
    local("create", RBAC, "rolebindings"),
    global("create", RBAC, "clusterroles"),
    global("create", RBAC, "clusterrolebindings"),
    global("create", ADMISSION, "mutatingwebhookconfigurations"),
    global("create", ADMISSION, "validatingadmissionpolicies"),
    global("create", ADMISSION, "validatingadmissionpolicybindings"),
    // Rights that the roles of the agent and the plugin grant.
    global("get", "", "pods"),
    global("list", "", "pods"),
    global("watch", "", "pods"),
    global("create", "", "pods/eviction"),
    global("create", "", "events"),
    global("get", "", "nodes"),
    local("get", "apps", "daemonsets"),
    local("create", "", "serviceaccounts/token"),
    // Rights that the roles of the injector grant.
    global("list", "", "nodes"),
    global("watch", "", "nodes"),
    global("list", "", "configmaps"),
    global("watch", "", "configmaps"),
    global("list", "networking.istio.io", "proxyconfigs"),
    global("watch", "networking.istio.io", "proxyconfigs"),
    global("list", "node.k8s.io", "runtimeclasses"),
    global("watch", "node.k8s.io", "runtimeclasses"),
    global("list", ADMISSION, "mutatingwebhookconfigurations"),
    global("watch", ADMISSION, "mutatingwebhookconfigurations"),
    global("patch", ADMISSION, "mutatingwebhookconfigurations"),
    local("create", "", "secrets"),
    local("get", "", "secrets"),
    local("list", "", "secrets"),
    local("watch", "", "secrets"),
    local("update", "", "secrets"),
];

const fn local(verb: &'static str, group: &'static str, resource: &'static str) -> Right {
    Right { verb, group, resource, namespaced: true }
}

const fn global(verb: &'static str, group: &'static str, resource: &'static str) -> Right {
    Right { verb, group, resource, namespaced: false }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::documents;

    const MANIFESTS: [&str; 2] = [
        include_str!("../../../../manifests/istio-cni.yaml"),
        include_str!("../../../../manifests/sidecar-injector.yaml"),
    ];

    fn strings(list: &Value) -> impl Iterator<Item = &str> {
        list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap())
    }

    fn line(verb: &str, group: &str, resource: &str, namespaced: bool) -> String {
        format!("{} {verb} {group}/{resource}", if namespaced { "local" } else { "global" })
    }

    /// Returns the right to create this object and, if it is a role, the rights that it grants.
    fn needed(object: &Value) -> BTreeSet<String> {
        let namespaced = !object["metadata"]["namespace"].is_null();
        let group = object["apiVersion"].as_str().unwrap().rsplit_once('/').map_or("", |(group, _)| group);
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
        let mut needed = BTreeSet::from([line("create", group, &plural, namespaced)]);
        for rule in object["rules"].as_array().into_iter().flatten() {
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    needed.extend(strings(&rule["verbs"]).map(|verb| line(verb, group, resource, namespaced)));
                }
            }
        }
        needed
    }

    #[test]
    fn the_rights_are_those_that_the_manifests_need() {
        let objects = MANIFESTS.iter().flat_map(|text| documents::all(text).unwrap());
        let needed: BTreeSet<String> = objects.filter(|object| !object.is_null()).flat_map(|o| needed(&o)).collect();
        let listed = RIGHTS.map(|right| line(right.verb, right.group, right.resource, right.namespaced));
        assert_eq!(BTreeSet::from(listed), needed);
    }
}
