//! The intended differences of this chart from Istio's, with their reasons.

use serde_json::Value;

/// A permitted difference between the outputs of Istio's chart and of this one.
pub(super) struct Difference {
    /// The paths at which the outputs may differ; a `*` matches any string.
    paths: &'static [&'static str],
    /// The values that are permitted there.
    how: How,
    pub(super) reason: &'static str,
}

/// The values that the outputs may have at a path.
enum How {
    /// Only Istio's output has a value.
    IstioOnly,
    /// Only this chart's output has this value, in JSON.
    OursOnly(&'static str),
    /// Only this chart's output has a value, which depends on the values of the case.
    OursOnlyAny,
    /// Istio's value and ours, in JSON.
    Both(&'static str, &'static str),
    /// Both have values that satisfy a predicate.
    When(fn(&Value, &Value) -> bool),
}

impl Difference {
    pub(super) fn covers(&self, path: &str, istio: Option<&Value>, ours: Option<&Value>) -> bool {
        let is = |pattern: &&str| match pattern.split_once('*') {
            Some((start, end)) => path.starts_with(start) && path.ends_with(end),
            None => *pattern == path,
        };
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        self.paths.iter().any(is)
            && match (&self.how, istio, ours) {
                (How::IstioOnly, Some(_), None) | (How::OursOnlyAny, None, Some(_)) => true,
                (How::OursOnly(expected), None, Some(value)) => *value == json(expected),
                (How::Both(first, second), Some(istio), Some(ours)) => *istio == json(first) && *ours == json(second),
                (How::When(may), Some(istio), Some(ours)) => may(istio, ours),
                _ => false,
            }
    }
}

/// Values that Istio's chart accepts and this one refuses.
pub(super) struct Refusal {
    /// A part of this chart's error message.
    pub(super) message: &'static str,
    /// Whether the values, in the format of `--set`, cause the refusal.
    pub(super) when: fn(&str) -> bool,
    pub(super) reason: &'static str,
}

pub(super) const REFUSALS: [Refusal; 2] = [
    Refusal {
        message: "ambient.enabled is not supported: this chart has no ambient mode yet",
        when: |set| ["ambient.enabled=true", "profile=ambient"].iter().any(|value| set.contains(value)),
        reason: "pods of an ambient mesh would not be redirected, without an error",
    },
    Refusal {
        message: "rollingMaxUnavailable is not supported: say updateStrategy.rollingUpdate.maxUnavailable",
        when: |set| set.starts_with("rollingMaxUnavailable="),
        reason: "Istio's chart ignores this name of former releases; a value without effect is refused here",
    },
];

/// The differences; the first one that covers a path applies.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        paths: &["environment/AMBIENT_*", "environment/ENABLE_AMBIENT_DETECTION_RETRY"],
        how: How::IstioOnly,
        reason: "there is no ambient mode, and it is off wherever the chart is not refused",
    },
    Difference {
        paths: &[
            "environment/CURRENT_AGENT_VERSION",
            "environment/REPAIR_RUN_AS_DAEMON",
            "environment/ALLOW_SWITCH_TO_HOST_NS",
        ],
        how: How::IstioOnly,
        reason: "the agent has no use for these variables",
    },
    Difference {
        paths: &["environment/GOMEMLIMIT/*"],
        how: How::IstioOnly,
        reason: "a setting of Go's garbage collector",
    },
    Difference {
        paths: &["environment/REPAIR_NODE_NAME", "environment/REPAIR_SIDECAR_ANNOTATION"],
        how: How::IstioOnly,
        reason: "NODE_NAME names the node, and the annotation is the agent's default",
    },
    Difference {
        paths: &["environment/REPAIR_REPAIR_PODS", "environment/REPAIR_DELETE_PODS", "environment/REPAIR_LABEL_PODS"],
        how: How::IstioOnly,
        reason: "REPAIR_MODE has one value where Istio has three switches; the mode is compared by itself",
    },
    Difference {
        paths: &["environment/REPAIR_MODE"],
        how: How::OursOnlyAny,
        reason: "the default is to evict, which needs no capability on the node; the mode is compared by itself",
    },
    Difference {
        paths: &["environment/REPAIR_DRY_RUN", "environment/REPAIR_STANDALONE_PODS"],
        how: How::OursOnly("\"false\""),
        reason: "values of this chart: what repair does is shown without doing it, and pods without a controller are left",
    },
    Difference {
        paths: &["environment/REPAIR_BUDGET"],
        how: How::OursOnly("\"120\""),
        reason: "a value of this chart: actions of repair are limited",
    },
    Difference {
        paths: &["daemonset/container/image"],
        how: How::When(is_image_of_ours),
        reason: "the default image is this project's, which is in no public registry",
    },
    Difference {
        paths: &["*/helm.sh/chart"],
        how: How::Both("\"cni-1.0.0\"", concat!("\"istio-cni-", env!("CARGO_PKG_VERSION"), "\"")),
        reason: "the label names this chart",
    },
    Difference {
        paths: &["*/app.kubernetes.io/version"],
        how: How::Both("\"1.0.0\"", concat!("\"", env!("CARGO_PKG_VERSION"), "\"")),
        reason: "the label names this chart's version of the agent",
    },
    Difference {
        paths: &["daemonset/podAnnotations/checksum/config"],
        how: How::OursOnlyAny,
        reason: "the agent reads its settings at its start only, so another ConfigMap starts it anew",
    },
    Difference {
        paths: &[
            "daemonset/container/securityContext/capabilities/add/SYS_*",
            "daemonset/container/securityContext/capabilities/add/NET_ADMIN",
            "daemonset/container/volumeMounts/cni-host-procfs/*",
            "daemonset/volumes/cni-host-procfs/*",
            "daemonset/volumes/cni-netns-dir/*",
            "daemonset/podAnnotations/container.apparmor.security.beta.kubernetes.io/install-cni",
            "daemonset/container/securityContext/appArmorProfile/*",
        ],
        how: How::IstioOnly,
        reason: "only repair in place enters network namespaces of pods",
    },
    Difference {
        paths: &["daemonset/container/securityContext/appArmorProfile/type"],
        how: How::OursOnly("\"Unconfined\""),
        reason: "Kubernetes 1.30 deprecates the annotation for this field",
    },
    Difference {
        paths: &["daemonset/container/securityContext/capabilities/add/NET_RAW"],
        how: How::IstioOnly,
        reason: "rules are written over netlink; no raw socket is opened",
    },
    Difference {
        paths: &["daemonset/container/volumeMounts/cni-netns-dir/*"],
        how: How::OursOnlyAny,
        reason: "repair in place finds network namespaces by the runtime's names, too, not by processes alone",
    },
    Difference {
        paths: &["daemonset/container/securityContext/allowPrivilegeEscalation"],
        how: How::OursOnly("false"),
        reason: "no program of the image gains privileges",
    },
    Difference {
        paths: &["daemonset/container/securityContext/readOnlyRootFilesystem"],
        how: How::OursOnly("true"),
        reason: "the agent writes to the node's directories alone",
    },
    Difference {
        paths: &["daemonset/container/securityContext/seccompProfile/type"],
        how: How::OursOnly("\"RuntimeDefault\""),
        reason: "the agent needs no system call beyond the runtime's profile",
    },
    Difference {
        paths: &["daemonset/pod/enableServiceLinks"],
        how: How::OursOnly("false"),
        reason: "a Service of the namespace must not set a variable that the agent reads",
    },
    Difference {
        paths: &["daemonset/container/ports/health/*", "daemonset/container/livenessProbe/*"],
        how: How::OursOnlyAny,
        reason: "an agent whose tasks are stuck is started anew",
    },
    Difference {
        paths: &["daemonset/container/readinessProbe/httpGet/port"],
        how: How::Both("8000", "\"health\""),
        reason: "the same port by its name",
    },
    Difference {
        paths: &["daemonset/container/readinessProbe/periodSeconds"],
        how: How::OursOnly("1"),
        reason: "a node's first pods wait for this probe",
    },
    Difference {
        paths: &["daemonset/container/resources/requests/memory"],
        how: How::Both("\"100Mi\"", "\"32Mi\""),
        reason: "what this agent needs",
    },
    Difference {
        paths: &["daemonset/strategy/rollingUpdate/maxUnavailable"],
        how: How::Both("1", "0"),
        reason: "in an upgrade the next agent is ready before the former one ends",
    },
    Difference {
        paths: &["daemonset/strategy/rollingUpdate/maxSurge"],
        how: How::OursOnly("1"),
        reason: "in an upgrade the next agent is ready before the former one ends",
    },
    Difference {
        paths: &[
            "daemonset/volumes/cni-bin-dir/hostPath/type",
            "daemonset/volumes/cni-net-dir/hostPath/type",
            "daemonset/volumes/cni-socket-dir/hostPath/type",
        ],
        how: How::OursOnly("\"DirectoryOrCreate\""),
        reason: "a directory that is missing is made; Istio's untyped one is left to the runtime, which makes it too",
    },
    Difference {
        paths: &["daemonset/container/volumeMounts/cni-cache-dir/*", "daemonset/volumes/cni-cache-dir/*"],
        how: How::OursOnlyAny,
        reason: "a removal takes the plugin out of the chains that the runtime has cached",
    },
    Difference {
        paths: &["daemonset/volumes/cni-bin-dir/hostPath/path"],
        how: How::Both("\"/opt/cni/bin\"", "\"/home/kubernetes/bin\""),
        reason: "Istio's chart asks the cluster whether it is GKE's, which fails where charts are rendered elsewhere",
    },
    Difference {
        paths: &[
            "rights/ClusterRole//istio-cni/nodes *",
            "rights/ClusterRole//istio-cni/namespaces *",
            "rights/ClusterRole//istio-cni-repair-role/*",
            "objects/ClusterRole//istio-cni-repair-role",
            "objects/ClusterRoleBinding//istio-cni-repair-rolebinding",
        ],
        how: How::IstioOnly,
        reason: "a right that this agent does not use, see `rights`",
    },
    Difference {
        paths: &[
            "rights/ClusterRole//istio-cni/events create",
            "rights/ClusterRole//istio-cni/runtimeclasses list",
            "rights/ClusterRole//istio-cni/runtimeclasses watch",
        ],
        how: How::OursOnly("[]"),
        reason: "pods in sandboxes that rules do not reach are known by their RuntimeClass's handler, and get an Event",
    },
    Difference {
        paths: &["rights/ClusterRole//istio-cni-repair-role/pods/eviction create"],
        how: How::OursOnly("[]"),
        reason: "evictions respect disruption budgets",
    },
    Difference {
        paths: &[
            "rights/Role/istio-system/istio-cni/daemonsets get",
            "objects/Role/istio-system/istio-cni",
            "objects/RoleBinding/istio-system/istio-cni",
        ],
        how: How::OursOnlyAny,
        reason: "upgrades and removals are distinguished in sidecar mode, too, and only in this namespace",
    },
    Difference {
        paths: &[
            "environment/PLUGIN_SERVICE_ACCOUNT",
            "objects/*/istio-cni-plugin",
            "objects/*/istio-cni-plugin-token",
            "rights/*/istio-cni-plugin/pods get",
            "rights/*/istio-cni-plugin-token/serviceaccounts/token create",
        ],
        how: How::OursOnlyAny,
        reason: "the plugin's kubeconfig is not the agent's identity: an account that may only get pods",
    },
    Difference {
        paths: &["objects/ValidatingAdmissionPolicy*"],
        how: How::OursOnlyAny,
        reason: "the API server keeps an agent's token to its own node",
    },
    Difference {
        paths: &["rights/ClusterRole//istio-cni/securitycontextconstraints use"],
        how: How::Both("[\"privileged\"]", "[\"istio-cni\"]"),
        reason: "OpenShift's constraint `privileged` allows more than the agent needs",
    },
    Difference {
        paths: &["objects/SecurityContextConstraints//istio-cni"],
        how: How::OursOnlyAny,
        reason: "OpenShift's constraint `privileged` allows more than the agent needs",
    },
];

/// Whether the images differ only in Istio's and this chart's default hub and tag.
fn is_image_of_ours(istio: &Value, ours: &Value) -> bool {
    let renamed = |image: &str| {
        image
            .replace("registry.istio.io/testing/", "localhost/")
            .replace(":latest", concat!(":", env!("CARGO_PKG_VERSION")))
    };
    istio.as_str().map(renamed).as_deref() == ours.as_str()
}
