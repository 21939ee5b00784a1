//! Tests that `istio-cnictl explain` and `kube-inject` report the same about pods that are not redirected, or do not start.

use serde_json::{Value, json};

use super::cnictl::{POD, cnictl, text};
use super::explain::{injected, json_of, said};

#[test]
fn a_pod_in_a_sandbox_is_not_redirected() {
    let explain = |pod: &str, form: &str| cnictl(&["explain", "-f", "-", "--builtIn", "-o", form], pod, None);
    let of = |pod: &str, class: &str| pod.replace("spec: {", &format!("spec: {{runtimeClassName: {class}, "));
    let reason = "rules of the node's kernel do not reach the sandbox of runtimeClassName";
    for class in ["gvisor", "kata-qemu"] {
        let before = of(POD, class);
        let after = text(&cnictl(&["kube-inject", "-f", "-", "--builtIn"], &before, None).stdout);
        let unvalidated = of(&injected("u1"), class);
        for (pod, starts) in [(&before, false), (&after, false), (&unvalidated, true)] {
            let done = explain(pod, "text");
            let shown = said(&done);
            assert!(shown.contains(&format!("  redirected: no: sandbox ({reason} \"{class}\"")), "{shown}");
            assert_eq!(
                shown.contains("where istio-validation never succeeds: the pod does not start)"),
                !starts,
                "{shown}"
            );
            assert_eq!(
                shown.contains("istio-validation never succeeds in it, so that the pod does not start"),
                !starts
            );
            assert_eq!(shown.contains("and the pod's traffic passes the proxy by"), starts, "{shown}");
            assert!(!shown.contains("istio-cnictl trace") && !shown.contains("  rules ("), "{shown}");
            assert!(shown.contains("  next:       remove runtimeClassName from the pod's template"), "{shown}");
            assert_eq!(done.status.code(), Some(if starts { 0 } else { 3 }), "{shown}");
            let redirection = &json_of(&explain(pod, "json"))[0]["redirection"];
            assert_eq!((&redirection["redirected"], &redirection["reason"]), (&json!(false), &json!("sandbox")));
            assert!(redirection["meaning"].as_str().unwrap().starts_with(reason), "{redirection}");
            let traced = cnictl(&["trace", "-f", "-", "--builtIn", "--outbound", "192.0.2.1:80"], pod, None);
            assert!(text(&traced.stdout).contains(&format!("not redirected: no: sandbox ({reason}")), "{traced:?}");
        }
    }
    let gateway = of(POD, "gvisor").replace("namespace: shop}", "annotations: {inject.istio.io/templates: gateway}}");
    assert!(said(&explain(&gateway, "text")).contains("redirected: no: not_sidecar"), "a gateway needs no redirection");
}

#[test]
fn an_application_that_runs_as_the_proxy_is_named() {
    for (context, words) in [
        ("runAsUser: 1337", Some("container \"app\" runs as user 1337")),
        ("runAsGroup: 1337", Some("container \"app\" runs in group 1337")),
        ("runAsUser: 1338", None),
    ] {
        let pod = POD.replace("spec: {", &format!("spec: {{securityContext: {{{context}}}, "));
        let injected = text(&cnictl(&["kube-inject", "-f", "-", "--builtIn"], &pod, None).stdout).to_owned();
        for pod in [pod, injected] {
            let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn"], &pod, None));
            assert_eq!(shown.contains("container \"app\" runs "), words.is_some(), "{shown}");
            assert!(shown.contains(words.unwrap_or_default()), "{shown}");
        }
    }
}

#[test]
fn pod_level_limits_are_checked_as_the_webhook_sees_them() {
    let limits = "spec: {resources: {limits: {cpu: '4'}}, ";
    let pod = POD.replace("spec: {", limits).replace("image: a", "image: a, resources: {requests: {cpu: 100m}}");
    let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn"], &pod, None));
    let refused = "the containers request 200m cpu with the injected ones, more than the 100m of the whole pod";
    assert!(shown.contains(refused), "{shown}");
    let injected = cnictl(&["kube-inject", "-f", "-", "--builtIn"], &pod, None);
    assert_eq!(injected.status.code(), Some(0), "the API server derives the requests of all containers: {injected:?}");
    let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn"], &text(&injected.stdout), None));
    assert!(shown.contains("  redirected: yes"), "{shown}");
}

/// Returns the document into which `kube-inject` turns [`POD`].
fn injected_by_hand() -> Value {
    let done = cnictl(&["kube-inject", "-f", "-", "--builtIn"], POD, None);
    serde_saphyr::from_str(text(&done.stdout).trim_end().trim_end_matches("---")).unwrap()
}

#[test]
fn an_injected_pod_starts_unless_kube_inject_refuses_it() {
    let pod = injected_by_hand();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = pod.clone();
        change(&mut changed);
        changed
    };
    let init = json!({"name": "istio-init", "image": "own:1"});
    for (changed, reason) in [
        (with(&|_| {}), None),
        (
            with(&|pod| pod["metadata"]["labels"]["sidecar.istio.io/inject"] = "false".into()),
            Some("would find no redirection, because the plugin skips this pod (inject_declined)"),
        ),
        (
            with(&|pod| pod["spec"]["hostNetwork"] = true.into()),
            Some("would find no redirection: it uses the host's network"),
        ),
        (
            with(&|pod| pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "windows"})),
            Some("would find no redirection: it runs on Windows"),
        ),
        (
            with(&|pod| pod["spec"]["initContainers"].as_array_mut().unwrap().push(init.clone())),
            Some("because the plugin skips this pod (has_istio_init)"),
        ),
        (
            with(&|pod| {
                pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeOutboundPorts"] = "5432,".into();
            }),
            Some("traffic.sidecar.istio.io/excludeOutboundPorts"),
        ),
        (
            with(&|pod| pod["metadata"]["annotations"]["sidecar.istio.io/status"] = "injected".into()),
            Some("is no record of an injection"),
        ),
    ] {
        let text_of = serde_json::to_string(&changed).unwrap();
        let explained = cnictl(&["explain", "-f", "-", "--builtIn"], &text_of, None);
        let by_hand = cnictl(&["kube-inject", "-f", "-", "--builtIn"], &text_of, None);
        let codes = if reason.is_some() { (Some(3), Some(1)) } else { (Some(0), Some(0)) };
        assert_eq!((explained.status.code(), by_hand.status.code()), codes, "{reason:?}: {explained:?}, {by_hand:?}");
        let (shown, refused) = (text(&explained.stdout), text(&by_hand.stderr));
        let fails =
            shown.lines().find(|line| line.starts_with("  redirected: it does not start: ")).unwrap_or_default();
        let reason = reason.unwrap_or_default();
        assert!(fails.contains(reason) && refused.contains(reason), "{reason}: {shown}\n{refused}");
        assert_eq!(fails.is_empty(), reason.is_empty(), "{shown}");
    }
    let twice = with(&|pod| {
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.extend(containers.iter().find(|container| container["name"] == "istio-proxy").cloned());
    });
    let explained = cnictl(&["explain", "-f", "-", "--builtIn"], &twice.to_string(), None);
    assert!(said(&explained).contains("two containers are named \"istio-proxy\""), "{explained:?}");
}

#[test]
fn the_namespace_of_a_workload_is_that_of_its_pods() {
    let workload = |kind: &str, own: &str, template: &str| {
        let pod = format!("{{metadata: {{{template}}}, spec: {{containers: [{{name: a, image: i}}]}}}}");
        let (version, spec) = match kind {
            "CronJob" => ("batch/v1", format!("{{jobTemplate: {{spec: {{template: {pod}}}}}}}")),
            "Job" => ("batch/v1", format!("{{template: {pod}}}")),
            _ => ("apps/v1", format!("{{template: {pod}}}")),
        };
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: w{own}}}\nspec: {spec}\n")
    };
    for kind in ["Deployment", "Job", "CronJob"] {
        for (own, template, is_skipped) in [
            (", namespace: kube-system", "", true),
            (", namespace: kube-system", "namespace: shop", true),
            ("", "namespace: kube-system", true),
            (", namespace: shop", "namespace: kube-system", false),
            ("", "", false),
        ] {
            let document = workload(kind, own, template);
            let done = cnictl(&["kube-inject", "-f", "-", "--builtIn"], &document, None);
            let name = own
                .rsplit(' ')
                .next()
                .filter(|name| !name.is_empty())
                .map_or("w".to_owned(), |name| format!("{name}/w"));
            let reason = "namespace kube-system is a system namespace";
            let skipped = format!("\n===> Skipping injection of {kind} \"{name}\", because {reason}\n");
            let (said_by, written) = (text(&done.stderr), text(&done.stdout));
            assert_eq!(said_by == skipped, is_skipped, "{document}: {said_by}");
            assert_eq!(written.contains("name: istio-proxy"), !is_skipped, "{document}");
            for document in [&document, &written] {
                let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn"], document, None));
                assert_eq!(shown.contains(&format!("injected:   no: {reason}\n")), is_skipped, "{document}: {shown}");
                assert_eq!(shown.contains("redirected: yes"), !is_skipped, "{document}: {shown}");
            }
        }
    }
    let mut before = injected_by_hand();
    before["metadata"]["namespace"] = "kube-system".into();
    let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn"], &before.to_string(), None));
    assert!(
        shown.contains("  warning:    namespace kube-system is a system namespace, in which no pod is injected"),
        "{shown}"
    );
}

#[test]
fn a_skipped_pod_that_requests_a_templates_image_gets_a_warning() {
    let gateway = POD.replace("{name: app, image: a}", "{name: app, image: a}, {name: istio-proxy, image: auto}");
    let warning =
        "container \"istio-proxy\" has the image \"auto\", which stands for that of a template; nobody sets it";
    for (pod, is_skipped) in [
        (gateway.replace("{containers", "{hostNetwork: true, containers"), true),
        (gateway.replace("shop}", "shop, labels: {sidecar.istio.io/inject: \"false\"}}"), true),
        (gateway.replace("shop}", "kube-system}"), true),
        (gateway.clone(), false),
        (POD.replace("{containers", "{hostNetwork: true, containers"), false),
    ] {
        let by_hand = text(&cnictl(&["kube-inject", "-f", "-", "--builtIn"], &pod, None).stderr);
        let shown = said(&cnictl(&["explain", "-f", "-", "--builtIn"], &pod, None));
        assert_eq!(
            (by_hand.contains(warning), shown.contains(warning)),
            (is_skipped, is_skipped),
            "{pod}: {by_hand}\n{shown}"
        );
    }
}
