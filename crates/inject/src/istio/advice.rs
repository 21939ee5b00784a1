//! Warnings about injected pods that may not work as their authors expect: a sandboxed runtime that the node's rules do not reach,
//! applications that run with the proxy's user or group, an image that the kubelet cannot parse, and a pod without containers.
//!
//! The functions are pure. They run for each injection, and for `explain` of an injected pod.

use contract::{PROXY_ID, container};
use serde_json::Value;

use super::sandbox::redirected_sandbox;
use super::{annotations, proxy};
use crate::image;
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Returns the warnings about a pod with a sidecar. `is_sandboxed`: see [`super::sandbox::sandbox`].
pub(super) fn warnings(pod: &Value, is_sandboxed: Option<bool>) -> Vec<String> {
    redirected_sandbox(pod, is_sandboxed)
        .map(|class| sandboxed(pod, class))
        .into_iter()
        .chain(as_proxy(pod))
        .chain(upper_case(pod))
        .chain(no_container(pod))
        .collect()
}

fn sandboxed(pod: &Value, class: &str) -> String {
    let result = match annotations::is_validated(pod) {
        true => "istio-validation never succeeds in it, so that the pod does not start",
        false => "the pod's traffic passes the proxy by",
    };
    format!(
        "runtimeClassName {class:?} is a sandbox with a network stack of its own: rules of the node's kernel do not reach it, and \
         {result}"
    )
}

/// Returns a warning for each application that runs with the proxy's user or group. The rules match the user and the
/// group of the process that owns a socket; `fsGroup` and `supplementalGroups` change neither. Init containers that end
/// before the proxy starts are left out: they run as the proxy to bypass it. Those after a native sidecar can reach the
/// network through the proxy.
fn as_proxy(pod: &Value) -> Vec<String> {
    let is_proxy = |item: &&Value| pod::name(item) == container::PROXY;
    let Some(sidecar) = pod::sidecar(pod).filter(|_| proxy::is_redirected(pod)) else { return Vec::new() };
    let inits = pod::containers(pod, INIT_CONTAINERS);
    let native = inits.iter().position(|item| is_proxy(&item));
    let beside = |(at, item): &(usize, &Value)| {
        let is_after = native.is_some_and(|native| *at > native) && !container::INJECTED.contains(&pod::name(item));
        is_after || pod::text(item, "restartPolicy") == "Always"
    };
    let applications = pod::containers(pod, CONTAINERS)
        .iter()
        .chain(inits.iter().enumerate().filter(beside).map(|(_, item)| item))
        .filter(|item| !is_proxy(item));
    let warning = |item: &Value| {
        let (user, group) = (("runAsUser", "as user"), ("runAsGroup", "in group"));
        let same = [user, group].into_iter().filter_map(|(field, words)| {
            let id = id_of(item, field).or_else(|| id_of(pod::spec(pod), field))?;
            (id == id_of(sidecar, field).filter(|id| *id != 0).unwrap_or(PROXY_ID.into()))
                .then(|| format!("{words} {id}"))
        });
        let same = same.collect::<Vec<_>>().join(" and ");
        (!same.is_empty()).then(|| {
            format!(
                "container {:?} runs {same}, as the proxy does: its outbound traffic passes the proxy by",
                pod::name(item)
            )
        })
    };
    applications.filter_map(warning).collect()
}

/// Returns a warning for each injected container whose image has a path with upper-case letters.
fn upper_case(pod: &Value) -> Vec<String> {
    let all = [INIT_CONTAINERS, CONTAINERS].into_iter().flat_map(|which| pod::containers(pod, which));
    let wrong = all.filter(|item| {
        container::INJECTED.contains(&pod::name(item))
            && image::check(pod::text(item, "image")) == Err(image::Invalid::UpperCase)
    });
    let warning = |item: &Value| {
        let (name, image) = (pod::name(item), pod::text(item, "image"));
        format!(
            "container {name:?} has the image {image:?}, which no kubelet can parse: the path has upper-case letters"
        )
    };
    wrong.map(warning).collect()
}

/// Returns the warning about a pod whose only container is the sidecar, which the injection made an init container.
fn no_container(pod: &Value) -> Option<String> {
    let native = pod::find(pod::containers(pod, INIT_CONTAINERS), container::PROXY);
    (native.is_some() && pod::containers(pod, CONTAINERS).is_empty()).then(|| {
        "the pod has no container beside the native sidecar, which is an init container: the API server refuses a pod without \
         containers; add one, or set sidecar.istio.io/nativeSidecar to \"false\""
            .to_owned()
    })
}

fn id_of(of: &Value, field: &str) -> Option<i64> {
    of.get("securityContext")?.get(field)?.as_i64()
}

#[cfg(test)]
mod tests {
    use contract::annotation;
    use serde_json::json;

    use super::*;

    fn warnings(pod: &Value) -> Vec<String> {
        super::warnings(pod, None)
    }

    /// Returns the warnings about a pod with these security contexts: its own, its application's and its proxy's.
    fn of(pod: &Value, application: &Value, proxy: &Value) -> Vec<String> {
        let containers =
            json!([{"name": "app", "securityContext": application}, {"name": "istio-proxy", "securityContext": proxy}]);
        warnings(&json!({"spec": {"securityContext": pod, "containers": containers}}))
    }

    #[test]
    fn an_application_that_runs_as_the_proxy_is_named() {
        let (none, user, group) = (json!({}), json!({"runAsUser": 1337}), json!({"runAsGroup": 1337}));
        let text = |same: &str| {
            vec![format!("container \"app\" runs {same}, as the proxy does: its outbound traffic passes the proxy by")]
        };
        assert_eq!(of(&none, &user, &none), text("as user 1337"));
        assert_eq!(of(&group, &none, &user), text("in group 1337"));
        assert_eq!(of(&user, &group, &none), text("as user 1337 and in group 1337"));
        let own = json!({"runAsUser": 1000, "runAsGroup": 1000});
        assert_eq!(of(&none, &own, &own), text("as user 1000 and in group 1000"));
        for (pod, application, proxy) in [
            (&user, &json!({"runAsUser": 1000}), &none),
            (&none, &user, &own),
            (&json!({"fsGroup": 1337, "supplementalGroups": [1337]}), &none, &none),
            (&none, &json!({"runAsUser": 0}), &json!({"runAsUser": 0})),
        ] {
            assert_eq!(of(pod, application, proxy), [""; 0], "{pod} {application} {proxy}");
        }
    }

    #[test]
    fn an_init_container_may_run_as_the_proxy_unless_it_keeps_running() {
        let init = |policy: Value| {
            let context = json!({"runAsUser": 1337});
            let init = json!([{"name": "early", "restartPolicy": policy, "securityContext": context}]);
            warnings(&json!({"spec": {"initContainers": init, "containers": [{"name": "istio-proxy"}]}})).len()
        };
        assert_eq!((init(Value::Null), init("Always".into())), (0, 1));
    }

    #[test]
    fn an_init_container_after_a_native_sidecar_does_not_run_as_the_proxy() {
        let init = |name: &str| json!({"name": name, "securityContext": {"runAsUser": 1337}});
        let proxy = json!({"name": "istio-proxy", "restartPolicy": "Always"});
        let inits = [init("istio-validation"), init("early"), proxy, init("istio-init"), init("late")];
        let found = warnings(&json!({"spec": {"initContainers": inits, "containers": [{"name": "app"}]}}));
        assert_eq!(
            found,
            ["container \"late\" runs as user 1337, as the proxy does: its outbound traffic passes the proxy by"]
        );
    }

    #[test]
    fn nothing_is_said_about_pods_without_redirection() {
        let app = json!([{"name": "app", "securityContext": {"runAsUser": 1337}}, {"name": "istio-proxy"}]);
        let spec = json!({"runtimeClassName": "gvisor", "containers": app});
        let pod = json!({"metadata": {"annotations": {}}, "spec": spec});
        assert_eq!(warnings(&pod).len(), 2);
        let mut direct = pod.clone();
        direct["metadata"]["annotations"][annotation::INTERCEPTION_MODE] = "NONE".into();
        assert_eq!(warnings(&direct), [""; 0]);
        let mut gateway = pod.clone();
        gateway["spec"]["containers"][1]["args"] = json!(["proxy", "router"]);
        assert_eq!(warnings(&gateway), [""; 0]);
        let mut without_envoy = pod.clone();
        without_envoy["spec"]["containers"][1]["env"] = json!([{"name": "DISABLE_ENVOY", "value": "true"}]);
        assert_eq!(warnings(&without_envoy), [""; 0]);
        let mut by_init = pod;
        by_init["spec"]["initContainers"] = json!([{"name": "istio-init"}]);
        assert_eq!(warnings(&by_init).len(), 1, "istio-init programs the rules in the sandbox itself");
    }

    #[test]
    fn a_pod_whose_only_container_becomes_an_init_container_is_named() {
        let proxy = json!({"name": "istio-proxy", "restartPolicy": "Always"});
        let found = warnings(&json!({"spec": {"initContainers": [proxy], "containers": []}}));
        assert!(
            matches!(&found[..], [text] if text.starts_with("the pod has no container beside the native")),
            "{found:?}"
        );
        let app = json!({"name": "app"});
        assert_eq!(warnings(&json!({"spec": {"initContainers": [proxy], "containers": [app]}})), [""; 0]);
    }

    #[test]
    fn an_image_with_an_upper_case_path_is_named() {
        let image = |image: &str| warnings(&json!({"spec": {"containers": [{"name": "istio-proxy", "image": image}]}}));
        let text = "container \"istio-proxy\" has the image \"r.io/Proxy:1\", which no kubelet can parse: the path has upper-case letters";
        assert_eq!(image("r.io/Proxy:1"), [text]);
        assert_eq!(image("R.io/proxy:A"), [""; 0]);
    }

    #[test]
    fn a_pod_that_waits_for_its_redirection_in_a_sandbox_does_not_start() {
        let of = |inits: Value| {
            let spec =
                json!({"runtimeClassName": "kata", "initContainers": inits, "containers": [{"name": "istio-proxy"}]});
            warnings(&json!({"spec": spec})).concat()
        };
        let validation = json!({"name": "istio-validation", "args": ["istio-iptables", "--run-validation"]});
        assert!(
            of(json!([validation])).ends_with("istio-validation never succeeds in it, so that the pod does not start")
        );
        assert!(of(json!([])).ends_with("do not reach it, and the pod's traffic passes the proxy by"));
    }

    #[test]
    fn the_handler_of_a_runtime_class_decides_whatever_its_name() {
        let class =
            |class: &'static str| json!({"spec": {"runtimeClassName": class, "containers": [{"name": "istio-proxy"}]}});
        for (class, handler, is_sandboxed) in [
            (class("strict"), Some(true), true),
            (class("kata"), Some(false), false),
            (class("kata"), None, true),
            (json!({"spec": {}}), Some(true), false),
        ] {
            let found = super::warnings(&class, handler);
            assert_eq!(found.iter().any(|text| text.contains("is a sandbox")), is_sandboxed, "{class} {handler:?}");
        }
    }

    #[test]
    fn a_sandbox_is_known_by_the_name_of_its_class() {
        for (class, is_sandboxed) in [
            ("gvisor", true),
            ("runsc-ptrace", true),
            ("kata-qemu", true),
            ("KATA", true),
            ("kata2", true),
            ("my-kata", true),
            ("io.containerd.kata.v2", true),
            ("katana", false),
            ("mykatana", false),
            ("kataplasm-fc", false),
            ("nogvisor", false),
            ("runc", false),
            ("", false),
        ] {
            let sidecar = json!([{"name": "istio-proxy"}]);
            let found = warnings(&json!({"spec": {"runtimeClassName": class, "containers": sidecar}}));
            assert_eq!(
                found.iter().any(|text| text.contains(&format!("{class:?} is a sandbox"))),
                is_sandboxed,
                "{class}"
            );
        }
    }
}
