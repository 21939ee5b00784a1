//! Tests of the resources of the whole pod; the suite `cluster` compares with the API server.

use serde_json::json;

use super::*;

/// Returns a pod with resources of its own and these lists of containers.
fn pod(resources: &Value, inits: &[&Value], containers: &[&Value]) -> Value {
    json!({"spec": {"resources": resources, "initContainers": inits, "containers": containers}})
}

/// Returns the error message; empty if the pod is accepted.
fn refused(author: &Value, merged: &Value) -> String {
    check(author, merged).map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn a_limit_above_that_of_the_whole_pod_is_refused() {
    let proxy = json!({"name": "istio-proxy", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}});
    let logger = json!({"name": "logger", "resources": {"limits": {"memory": "2Gi"}}});
    let app = json!({"name": "app", "resources": {"limits": {"cpu": "7"}}});
    let small = json!({"limits": {"cpu": "1500m", "memory": "1024Mi"}});
    let author = pod(&small, &[], &[&app]);
    assert_eq!(refused(&author, &author), "", "the author's own limit is left to the API server");
    assert_eq!(
        refused(&author, &pod(&small, &[], &[&app, &proxy])),
        "container istio-proxy has a limit of 2 cpu, more than the 1500m of the whole pod (spec.resources.limits): raise that of the pod, or \
         lower the sidecar's with sidecar.istio.io/proxyCPULimit"
    );
    let of_logger = refused(&author, &pod(&small, &[], &[&app, &logger]));
    assert!(of_logger.ends_with("(spec.resources.limits): raise that of the pod"), "{of_logger}");
    let own_proxy = pod(&small, &[], &[&app, &proxy]);
    assert_eq!(refused(&own_proxy, &own_proxy), "", "the author's own sidecar");
    let large = json!({"limits": {"cpu": 9}});
    assert_eq!(refused(&pod(&large, &[], &[&app]), &pod(&large, &[], &[&app, &proxy])), "");
    let mut native = proxy.clone();
    native["restartPolicy"] = "Always".into();
    native["resources"]["requests"] = json!({"cpu": "10m", "memory": "64Mi"});
    assert_eq!(refused(&author, &pod(&small, &[&native], &[&app])), "", "of init containers only requests count");
    let unlimited = pod(&Value::Null, &[], &[&app]);
    assert_ne!(refused(&unlimited, &author), "", "a template sets the resources of the pod");
}

#[test]
fn requests_that_exceed_the_pods_with_the_injected_ones_are_refused() {
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let of = |name: &str, resources: Value| json!({"name": name, "resources": resources});
    let (app, beside) = (of("app", requests("300m")), of("istio-proxy", requests("100m")));
    let (logger, heavy) = (of("logger", requests("100m")), of("heavy", requests("1")));
    let only_limit = of("istio-proxy", json!({"limits": {"cpu": "100m"}}));
    let mut native = beside.clone();
    native["restartPolicy"] = "Always".into();
    let is_refused = |of_pod: &str, author: [&[&Value]; 2], merged: [&[&Value]; 2]| {
        let [author, merged] = [author, merged].map(|[inits, all]| pod(&requests(of_pod), inits, all));
        check(&author, &merged).is_err()
    };
    let alone: [&[&Value]; 2] = [&[], &[&app]];
    assert!(is_refused("399m", alone, [&[], &[&app, &beside]]));
    assert!(!is_refused("400m", alone, [&[], &[&app, &beside]]));
    assert!(is_refused("499m", alone, [&[], &[&app, &beside, &logger]]), "whatever the container's name is");
    assert!(is_refused("399m", alone, [&[&native], &[&app]]));
    assert!(is_refused("399m", alone, [&[], &[&app, &only_limit]]));
    assert!(!is_refused("200m", alone, [&[], &[&app, &beside]]), "the pod's own request is too small");
    assert!(
        !is_refused("1", [&[&heavy], &[&app]], [&[&heavy, &native], &[&app]]),
        "an init container that ends before"
    );
    assert!(is_refused("1", [&[&heavy], &[&app]], [&[&native, &heavy], &[&app]]), "one that runs beside the sidecar");
}

#[test]
fn a_refusal_says_which_amount_of_the_pod_is_exceeded() {
    let of = |name: &str, resources: Value| json!({"name": name, "resources": resources});
    let app = of("app", json!({"requests": {"cpu": "300m", "memory": "64Mi"}}));
    let proxy = of("istio-proxy", json!({"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}));
    let logger = of("logger", json!({"requests": {"cpu": "100m"}}));
    let text = |of_pod: Value, added: &Value| refused(&pod(&of_pod, &[], &[&app]), &pod(&of_pod, &[], &[&app, added]));
    let cpu = |request: &str| json!({"cpu": request});
    let more = "the containers request 400m cpu with the injected ones, more than the";
    let or_lower = ", or lower the sidecar's with sidecar.istio.io/proxyCPU";
    assert_eq!(
        text(json!({"limits": {"cpu": "350m"}}), &proxy),
        format!("{more} 350m of the whole pod (spec.resources.limits): raise that of the pod{or_lower}")
    );
    assert_eq!(
        text(json!({"requests": cpu("350m"), "limits": cpu("4")}), &logger),
        format!("{more} 350m of the whole pod (spec.resources.requests): raise that of the pod")
    );
    assert_eq!(
        text(json!({"requests": cpu("300m"), "limits": {"memory": "4Gi"}}), &proxy),
        format!(
            "{more} 300m of the whole pod (spec.resources.requests, which the API server derives from the containers of a pod with \
             only limits): state a sufficient request of the pod{or_lower}"
        )
    );
    assert_eq!(
        text(json!({"requests": {"memory": "100Mi"}}), &proxy),
        "the containers request 128Mi memory with the injected ones, more than the 100Mi of the whole pod (spec.resources.requests): raise \
         that of the pod, or lower the sidecar's with sidecar.istio.io/proxyMemoryLimit"
    );
}

#[test]
fn amounts_are_rounded_as_the_api_server_rounds_them() {
    let of = |cpu: &str| json!({"name": "a", "resources": {"requests": {"cpu": cpu}}});
    let is_refused = |resources: Value, own: &str, added: &str| {
        let [own, added] = [of(own), of(added)];
        check(&pod(&resources, &[], &[&own]), &pod(&resources, &[], &[&own, &added])).is_err()
    };
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    assert!(!is_refused(requests("101500u"), "2m", "100m"), "the request of the pod becomes 102m");
    assert!(!is_refused(json!({"limits": {"cpu": "0.1995"}}), "0", "200m"), "the limit of the pod becomes 200m");
    assert!(is_refused(requests("103m"), "102m", "1500u"), "a container's request becomes 2m");
    assert!(is_refused(json!({"limits": {"cpu": 1}}), "1500u", "1500u"), "3m are derived, and 4m requested");
}

#[test]
fn resources_that_a_template_makes_invalid_are_refused() {
    let app = json!({"name": "app"});
    let of = |resources: &Value| pod(resources, &[], &[&app]);
    let requests = json!({"requests": {"cpu": 2}});
    for (author, merged, reason) in [
        (
            &requests,
            json!({"requests": {"cpu": 2}, "limits": {"cpu": 1}}),
            "the pod requests 2 cpu, more than its limit of 1",
        ),
        (
            &requests,
            json!({"requests": {"cpu": 2}, "limits": {"ephemeral-storage": "1Gi"}}),
            "the pod has a resource in limits \"ephemeral-storage\", which must be cpu, memory or hugepages-SIZE for the whole pod",
        ),
        (&Value::Null, json!({"limits": {"cpu": -1}}), "the pod has limits.cpu -1, which must be 0 or more"),
        (
            &Value::Null,
            json!({"claims": [{"name": "x"}]}),
            "the pod has resources.claims [{\"name\":\"x\"}], which must be absent: only containers claim devices",
        ),
        (
            &Value::Null,
            json!({"limits": {"hugepages-2Mi": "2Mi"}}),
            "the pod has resources {\"limits\":{\"hugepages-2Mi\":\"2Mi\"},\"requests\":{\"hugepages-2Mi\":\"2Mi\"}}, which must be with cpu \
             or memory beside huge pages",
        ),
        (&Value::Null, json!({"limits": {"cpu": 1, "hugepages-2Mi": "4Mi"}}), ""),
        (&Value::Null, json!({"limits": {"cpu": 1, "memory": "64Mi"}, "requests": {"cpu": "500m"}}), ""),
    ] {
        assert_eq!(refused(&of(author), &of(&merged)), reason, "{merged}");
        assert_eq!(refused(&of(&merged), &of(&merged)), "", "{merged} of the author");
    }
}

#[test]
fn the_resources_of_a_pod_are_derived_as_the_api_server_derives_them() {
    let app = json!({"name": "app", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}});
    let idle = json!({"name": "idle", "resources": {"requests": {"cpu": 0}}});
    let paged =
        json!({"name": "paged", "resources": {"requests": {"memory": "64Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}});
    let none = json!({"name": "none"});
    let derived = |resources: Value, container: &Value| {
        with_derived_resources(&pod(&resources, &[], &[container]))["spec"]["resources"].clone()
    };
    let limits = json!({"cpu": "4", "memory": "4Gi"});
    assert_eq!(
        derived(json!({"limits": limits}), &app),
        json!({"limits": limits, "requests": {"cpu": "250m", "memory": "64Mi"}})
    );
    assert_eq!(derived(json!({"limits": limits, "requests": {"cpu": "1"}}), &app)["requests"]["cpu"], "1");
    assert_eq!(derived(json!({"requests": {"cpu": "1"}}), &app), json!({"requests": {"cpu": "1"}}), "no limits");
    assert_eq!(derived(Value::Null, &app), Value::Null);
    assert_eq!(
        derived(json!({"limits": {"cpu": "4"}}), &idle)["requests"],
        json!({"cpu": "0"}),
        "a request of nothing"
    );
    assert_eq!(derived(json!({"limits": limits}), &none)["requests"], limits, "no container requests anything");
    assert_eq!(
        derived(json!({"requests": {"cpu": "2"}}), &paged),
        json!({"requests": {"cpu": "2", "memory": "64Mi", "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}})
    );
    let beside = json!({"name": "istio-proxy", "resources": {"requests": {"cpu": "100m"}}});
    let limited = pod(&json!({"limits": limits}), &[], &[&app]);
    assert_eq!(refused(&limited, &pod(&json!({"limits": limits}), &[], &[&app, &beside])), "");
    let author = with_derived_resources(&limited);
    let merged = pod(&author["spec"]["resources"], &[], &[&app, &beside]);
    assert_ne!(refused(&author, &merged), "", "the webhook sees the derived requests");
}

#[test]
fn many_resources_of_many_containers_are_added_up_once() {
    // If the time grew with the product of the two numbers, this would take a quarter of an hour.
    const COUNT: usize = 20_000;
    let requests: Map<String, Value> = (0..COUNT).map(|at| (format!("r{at}"), 1.into())).collect();
    let of = |at: usize| json!({"name": format!("c{at}"), "resources": {"limits": {format!("hugepages-{at}"): 1}}});
    let containers: Vec<Value> = (0..COUNT).map(of).collect();
    let author = json!({"spec": {"resources": {"requests": requests}, "containers": containers}});
    assert_eq!(check(&author, &author), Ok(()), "what its author wrote is left to the API server");
}
