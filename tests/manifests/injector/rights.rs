//! What the webhook may do in the cluster and on its node: each right in a table, with its reason.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{DAPR, Injector, WATCHDOG};
use crate::helm::{INJECTOR, NAMESPACE};
use crate::objects::{is_known, parse, strings};
use crate::rights::{Reason, bound, needed, rules};

/// What decides which rights are needed.
#[derive(Clone, Copy)]
struct Wanted {
    /// Its certificate is its own.
    self_signed: bool,
    /// Its configuration is in ConfigMaps.
    config_maps: bool,
    /// Sidecars are native where every node can.
    auto: bool,
    openshift: bool,
    /// Dapr's sidecars, of this release.
    dapr: Option<&'static str>,
    /// Its watchdog, and whether that deletes.
    watchdog: Option<bool>,
}

impl Wanted {
    fn dapr(self) -> bool {
        self.dapr.is_some()
    }
}

const PLAIN: Wanted =
    Wanted { self_signed: true, config_maps: false, auto: true, openshift: false, dapr: None, watchdog: None };

/// As [`rules`] writes them.
const RULES: [Reason<Wanted>; 37] = [
    ("kube-system /secrets[sidecar-injector-certificate] get", |w| w.self_signed, "its certificate, before a renewal"),
    ("kube-system /secrets[sidecar-injector-certificate] list", |w| w.self_signed, "one of another replica is there"),
    ("kube-system /secrets[sidecar-injector-certificate] watch", |w| w.self_signed, "the same, kept"),
    ("kube-system /secrets[sidecar-injector-certificate] update", |w| w.self_signed, "its renewal"),
    ("kube-system /secrets create", |w| w.self_signed, "the first one; creation knows no names"),
    ("kube-system /secrets get", |_| false, "others' secrets"),
    ("kube-system /secrets list", |_| false, "others' secrets"),
    ("kube-system /configmaps[injection,istio] list", |w| w.config_maps, "templates, values and mesh"),
    ("kube-system /configmaps[injection,istio] watch", |w| w.config_maps, "the same, kept"),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[istio-sidecar-injector-kube-system] list",
        |_| true,
        "whether the API server believes the certificate",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[istio-sidecar-injector-kube-system] watch",
        |_| true,
        "the same, kept",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[istio-sidecar-injector-kube-system] patch",
        |_| true,
        "the caBundle",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[dapr-sidecar-injector] list",
        Wanted::dapr,
        "whether the API server believes the certificate there",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[dapr-sidecar-injector] watch",
        Wanted::dapr,
        "the same, kept",
    ),
    (
        "cluster admissionregistration.k8s.io/mutatingwebhookconfigurations[dapr-sidecar-injector] patch",
        Wanted::dapr,
        "the caBundle of Dapr's webhook",
    ),
    ("cluster admissionregistration.k8s.io/mutatingwebhookconfigurations patch", |_| false, "others' webhooks"),
    ("cluster networking.istio.io/proxyconfigs list", |_| true, "what users say of proxies"),
    ("cluster networking.istio.io/proxyconfigs watch", |_| true, "the same, kept"),
    ("cluster /nodes list", |w| w.auto, "whether every kubelet runs native sidecars"),
    ("cluster /nodes watch", |w| w.auto, "the same, kept"),
    ("cluster /namespaces list", |w| w.openshift, "users of a namespace are in its annotations"),
    ("cluster /namespaces watch", |w| w.openshift, "the same, kept"),
    ("cluster /serviceaccounts list", Wanted::dapr, "UIDs of the accounts whose pods get Dapr's sidecar"),
    ("cluster /serviceaccounts watch", Wanted::dapr, "the same, kept"),
    ("cluster dapr.io/components list", Wanted::dapr, "containers that components bring"),
    ("cluster dapr.io/components watch", Wanted::dapr, "the same, kept"),
    ("dapr-system dapr.io/configurations[daprsystem] list", Wanted::dapr, "whether there is mTLS"),
    ("dapr-system dapr.io/configurations[daprsystem] watch", Wanted::dapr, "the same, kept"),
    ("dapr-system /secrets[dapr-trust-bundle] list", |w| w.dapr == Some("1.4"), "the issuer that 1.4's sidecars have"),
    ("dapr-system /secrets[dapr-trust-bundle] watch", |w| w.dapr == Some("1.4"), "the same, kept"),
    ("cluster /pods list", |w| w.watchdog.is_some(), "pods that ask for Dapr's sidecar and have none"),
    ("cluster /pods watch", |w| w.watchdog.is_some(), "the same, kept"),
    ("cluster /pods delete", |w| w.watchdog == Some(true), "those that a controller replaces"),
    ("cluster /events create", |_| true, "why pods get no sidecar is said on their owners"),
    ("cluster /pods create", |_| false, "a webhook creates nothing"),
    ("cluster /secrets get", |_| false, "none of its concerns"),
    ("cluster /configmaps list", |_| false, "it reads those of its namespace"),
];

/// As [`mounts`] writes them.
const MOUNTS: [Reason<Wanted>; 2] = [
    ("secret tls -> /etc/istio/certs", |w| !w.self_signed, "the certificate that somebody else keeps"),
    (
        "configMap dapr-trust-bundle -> /var/run/secrets/dapr.io/tls",
        |w| w.dapr == Some("current"),
        "the trust anchors that sidecars get",
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

/// As PodSecurity's level `restricted` asks it, and more.
fn confined(injector: &Injector, wanted: Wanted) {
    let (pod, context) = (&injector.template["spec"], &injector.container["securityContext"]);
    for (field, value) in [("privileged", false), ("allowPrivilegeEscalation", false), ("readOnlyRootFilesystem", true)]
    {
        assert_eq!(context[field], value, "{field}");
    }
    assert_eq!(context["capabilities"], json!({ "drop": ["ALL"] }));
    let mut of_pod = json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    // There the namespace says who it is.
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

/// Each mount as `kind name -> its own path`; none can be written to.
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
