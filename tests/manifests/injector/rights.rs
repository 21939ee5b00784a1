//! The webhook's rights in the cluster and its mounts: each is in a table with its reason.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{DAPR, Injector, WATCHDOG};
use crate::helm::{INJECTOR, NAMESPACE};
use crate::objects::{is_known, parse, strings};
use crate::rights::{Reason, bound, needed, rules};

/// The settings on which the rights depend.
#[derive(Clone, Copy)]
struct Wanted {
    /// Whether the webhook issues its certificate itself.
    self_signed: bool,
    /// Whether the values name a ConfigMap with the webhook's configuration; otherwise the webhook reads istiod's
    /// ConfigMaps.
    config_maps: bool,
    /// Whether the webhook reads the nodes to decide if sidecars are native.
    auto: bool,
    openshift: bool,
    /// The release of Dapr, if its injection is enabled.
    dapr: Option<&'static str>,
    /// Whether Dapr's watchdog, if enabled, deletes pods.
    watchdog: Option<bool>,
}

impl Wanted {
    fn dapr(self) -> bool {
        self.dapr.is_some()
    }
}

const PLAIN: Wanted =
    Wanted { self_signed: true, config_maps: false, auto: true, openshift: false, dapr: None, watchdog: None };

/// Rights in the format of [`rules`], each with the settings that need it. The table also lists rights that the webhook
/// must never have, which no setting needs.
const RULES: [Reason<Wanted>; 41] = [
    ("kube-system /secrets[sidecar-injector-certificate] get", |w| w.self_signed, "its certificate, before a renewal"),
    (
        "kube-system /secrets[sidecar-injector-certificate] list",
        |w| w.self_signed,
        "the certificate of another replica",
    ),
    ("kube-system /secrets[sidecar-injector-certificate] watch", |w| w.self_signed, "changes of the same objects"),
    ("kube-system /secrets[sidecar-injector-certificate] update", |w| w.self_signed, "its renewal"),
    ("kube-system /secrets create", |w| w.self_signed, "the first certificate; RBAC cannot limit creation by name"),
    ("kube-system /secrets get", |_| false, "Secrets of other programs"),
    ("kube-system /secrets list", |_| false, "Secrets of other programs"),
    (
        "cluster /configmaps[istio-sidecar-injector,istio] list",
        |w| !w.config_maps,
        "istiod's templates, values and mesh",
    ),
    ("cluster /configmaps[istio-sidecar-injector,istio] watch", |w| !w.config_maps, "changes of the same objects"),
    ("kube-system /configmaps[injection,istio] list", |w| w.config_maps, "templates, values and mesh"),
    ("kube-system /configmaps[injection,istio] watch", |w| w.config_maps, "changes of the same objects"),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[istio-sidecar-injector-kube-system] list",
        |_| true,
        "whether the API server trusts the certificate",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[istio-sidecar-injector-kube-system] watch",
        |_| true,
        "changes of the same objects",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[istio-sidecar-injector-kube-system] patch",
        |_| true,
        "the caBundle",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[dapr-sidecar-injector] list",
        Wanted::dapr,
        "whether the API server trusts the certificate for Dapr's webhook",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[dapr-sidecar-injector] watch",
        Wanted::dapr,
        "changes of the same objects",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[dapr-sidecar-injector] patch",
        Wanted::dapr,
        "the caBundle of Dapr's webhook",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations patch",
        |_| false,
        "webhooks of other programs",
    ),
    ("cluster networking.istio.io/proxyconfigs list", |_| true, "users' settings of proxies"),
    ("cluster networking.istio.io/proxyconfigs watch", |_| true, "changes of the same objects"),
    ("cluster node.k8s.io/runtimeclasses list", |_| true, "whether a pod's handler is that of a sandbox"),
    ("cluster node.k8s.io/runtimeclasses watch", |_| true, "changes of the same objects"),
    ("cluster /nodes list", |w| w.auto, "whether every kubelet runs native sidecars"),
    ("cluster /nodes watch", |w| w.auto, "changes of the same objects"),
    ("cluster /namespaces list", |w| w.openshift, "the annotations with a namespace's range of UIDs"),
    ("cluster /namespaces watch", |w| w.openshift, "changes of the same objects"),
    ("cluster /serviceaccounts list", Wanted::dapr, "UIDs of the accounts whose pods get Dapr's sidecar"),
    ("cluster /serviceaccounts watch", Wanted::dapr, "changes of the same objects"),
    ("cluster dapr.io/components list", Wanted::dapr, "containers of pluggable components"),
    ("cluster dapr.io/components watch", Wanted::dapr, "changes of the same objects"),
    ("dapr-system dapr.io/configurations[daprsystem] list", Wanted::dapr, "whether mTLS is enabled"),
    ("dapr-system dapr.io/configurations[daprsystem] watch", Wanted::dapr, "changes of the same objects"),
    (
        "dapr-system /secrets[dapr-trust-bundle] list",
        |w| w.dapr == Some("1.4"),
        "the issuer's key pair, which sidecars of 1.4 contain",
    ),
    ("dapr-system /secrets[dapr-trust-bundle] watch", |w| w.dapr == Some("1.4"), "changes of the same objects"),
    ("cluster /pods list", |w| w.watchdog.is_some(), "pods with Dapr enabled and without its sidecar"),
    ("cluster /pods watch", |w| w.watchdog.is_some(), "changes of the same objects"),
    ("cluster /pods delete", |w| w.watchdog == Some(true), "pods that a controller replaces"),
    ("cluster /events create", |_| true, "events on the owners of pods without a sidecar"),
    ("cluster /pods create", |_| false, "a webhook creates nothing"),
    ("cluster /secrets get", |_| false, "not needed"),
    ("cluster /configmaps list", |_| false, "only named ConfigMaps are read"),
];

/// Mounts in the format of [`mounts`], each with the settings that need it.
const MOUNTS: [Reason<Wanted>; 2] = [
    ("secret tls -> /etc/istio/certs", |w| !w.self_signed, "the certificate that another program issues"),
    (
        "configMap dapr-trust-bundle -> /var/run/secrets/dapr.io/tls",
        |w| w.dapr == Some("current"),
        "the trust anchors of sidecars",
    ),
];

pub(crate) fn of_the_manifests() {
    check(&parse(&INJECTOR.manifest()), PLAIN);
}

pub(crate) fn of_the_chart() {
    check(&INJECTOR.render(&[r#"certificate.secret="tls""#]), Wanted { self_signed: false, ..PLAIN });
    check(&INJECTOR.render(&[r#"injectConfigMapName="injection""#]), Wanted { config_maps: true, ..PLAIN });
    check(&INJECTOR.render(&[r#"nativeSidecars="false""#]), Wanted { auto: false, ..PLAIN });
    check(&INJECTOR.render(&[r#"global.platform="openshift""#]), Wanted { openshift: true, ..PLAIN });
    for release in ["current", "1.4"] {
        let values = format!("dapr.release={release:?}");
        let objects = INJECTOR.render(&[DAPR.as_slice(), &[&values]].concat());
        check(&objects, Wanted { dapr: Some(release), ..PLAIN });
    }
    for deletes in [false, true] {
        let delete = format!("dapr.watchdog.deletePods={deletes}");
        let objects = INJECTOR.render(&[DAPR.as_slice(), &[WATCHDOG, &delete]].concat());
        check(&objects, Wanted { dapr: Some("current"), watchdog: Some(deletes), ..PLAIN });
    }
}

fn check(objects: &[Value], wanted: Wanted) {
    objects.iter().for_each(is_known);
    let injector = Injector::of(objects);
    assert_eq!(rules(objects), needed(&RULES, wanted));
    assert_eq!(mounts(&injector), needed(&MOUNTS, wanted));
    bound(objects, injector.template["spec"]["serviceAccountName"].as_str().unwrap());
    confined(&injector, wanted);
}

/// Checks the requirements of PodSecurity's level `restricted`, and a read-only root file system.
fn confined(injector: &Injector, wanted: Wanted) {
    let (pod, context) = (&injector.template["spec"], &injector.container["securityContext"]);
    for (field, value) in [("privileged", false), ("allowPrivilegeEscalation", false), ("readOnlyRootFilesystem", true)]
    {
        assert_eq!(context[field], value, "{field}");
    }
    assert_eq!(context["capabilities"], json!({ "drop": ["ALL"] }));
    let mut of_pod = json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    // On OpenShift the namespace determines user and group.
    if !wanted.openshift {
        (of_pod["runAsUser"], of_pod["runAsGroup"]) = (json!(1337), json!(1337));
    }
    assert_eq!(pod["securityContext"], of_pod);
    for field in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
        assert!(pod.get(field).is_none(), "{field}");
    }
    assert_eq!(pod["enableServiceLinks"], false);
    let ports = injector.container["ports"].as_array().unwrap();
    assert!(ports.iter().all(|port| port.get("hostPort").is_none() && port["containerPort"].as_u64() > Some(1023)));
    assert_eq!(strings(&injector.container["command"]), ["sidecar-injector"]);
}

/// Returns each mount as `KIND NAME -> PATH`; asserts that all are read-only.
fn mounts(injector: &Injector) -> BTreeSet<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let volumes = list(&injector.template["spec"]["volumes"]);
    let of = |mount: Value| {
        assert_eq!(mount["readOnly"], true, "{mount}");
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let (kind, name) = match (&volume["secret"]["secretName"], &volume["configMap"]["name"]) {
            (Value::String(name), _) => ("secret", name),
            (_, Value::String(name)) => ("configMap", name),
            _ => panic!("neither a secret nor a ConfigMap: {volume}"),
        };
        format!("{kind} {name} -> {}", mount["mountPath"].as_str().unwrap())
    };
    let mounts: BTreeSet<String> = list(&injector.container["volumeMounts"]).into_iter().map(of).collect();
    assert_eq!(mounts.len(), volumes.len(), "every volume is mounted, in {NAMESPACE}");
    mounts
}
