//! Tests of injected pods that the API server, the kubelet or Multus would refuse, and of similar pods that they
//! accept.

use contract::annotation;
use inject::istio::{BuiltIn, Config, InjectionOutcome, Injector, Platform, Request, Settings, Values};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("refused/a text leaves its place in YAML whatever its spaces are", spliced),
        Trial::test("refused/a text with one space at both ends does not leave its quotes", harmless),
        Trial::test("refused/a revision and a namespace may be numbers", numbers),
        Trial::test("refused/networks that Multus cannot read", networks),
        Trial::test("refused/resource claims that the pod does not have", claims),
        Trial::test("refused/volumes of the sidecar that the API server refuses", volumes),
        Trial::test("refused/an absolute path of a volume's file is named", absolute),
        Trial::test("refused/a restriction of ours gives way to what the author sets", restricted),
        Trial::test("refused/a validation of a former injection in kube-system", excluded),
    ]
}

fn review(injector: &Injector, pod: &Value) -> Result<Result<(Value, Vec<String>), String>, Failed> {
    match injector.review(&Request::new(pod, "shop")) {
        Ok(InjectionOutcome::Injected { injected, .. }) => Ok(Ok((injected.pod, injected.warnings))),
        Ok(InjectionOutcome::Skipped(decision)) => Err(decision.sentence().into()),
        Err(error) => Ok(Err(error.to_string())),
    }
}

fn pod(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "app", "image": "a:1"}]}})
}

fn built_in(values: Value) -> Result<Injector, Failed> {
    Ok(Injector::new(BuiltIn::config_with(Values::new(values), None, None)?))
}

fn openshift() -> Result<Injector, Failed> {
    Ok(Injector::new(BuiltIn::config_with(Values::default(), None, Some(Platform::OpenShift))?))
}

fn proxy(pod: &Value) -> Result<&Value, Failed> {
    let lists = ["initContainers", "containers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
    Ok(lists.flatten().find(|item| item["name"] == "istio-proxy").ok_or("no proxy")?)
}

fn spliced() -> Result<(), Failed> {
    const TEMPLATE: &str = "spec:\n  nodeSelector: {{ index .ObjectMeta.Annotations `example.com/sel` | default `{}` }}\n  containers:\n  - {name: istio-proxy, image: p:1, args: [proxy, sidecar]}\n";
    let config = BuiltIn::default().config()?;
    let injector = Injector::new(Config { settings: Settings::from_template(TEMPLATE)?, ..config });
    for text in [r#"{"k":"v"}"#, r#" {"k":"v"} "#, r#"  {"k":"v"}  "#, r#"{ "k": "v" }"#] {
        let reason = review(&injector, &pod(&json!({"example.com/sel": text})))?.err();
        let reason = reason.ok_or_else(|| format!("{text:?} is admitted"))?;
        reason.contains("would become YAML").then_some(()).ok_or_else(|| format!("{text:?}: {reason}"))?;
    }
    Ok(())
}

fn harmless() -> Result<(), Failed> {
    for text in [r#"[{"name":"a"}]"#, r#" [{"name":"a"}] "#, r#"  [{"name":"a"}]  "#] {
        review(&openshift()?, &pod(&json!({annotation::NETWORKS: text})))??;
    }
    for text in [" [1] ", "[1]", r#" {"a":"b"} "#] {
        let config = json!({"proxyMetadata": {"A": text}}).to_string();
        let (injected, _) = review(&built_in(json!({}))?, &pod(&json!({annotation::PROXY_CONFIG: config})))??;
        let variables = proxy(&injected)?["env"].as_array().ok_or("no variables")?;
        let found = variables.iter().find(|variable| variable["name"] == "A").map(|variable| &variable["value"]);
        (found == Some(&json!(text))).then_some(()).ok_or_else(|| format!("{text:?}: {found:?}"))?;
    }
    Ok(())
}

/// Checks a revision and a namespace that YAML reads as numbers, which Istio's template prints.
fn numbers() -> Result<(), Failed> {
    for (values, address) in [
        (json!({"revision": 5}), "istiod-5.istio-system.svc:15012"),
        (json!({"revision": 20_260_101}), "istiod-20260101.istio-system.svc:15012"),
        (json!({"global": {"istioNamespace": 5}}), "istiod.5.svc:15012"),
        (json!({"revision": 1, "global": {"istioNamespace": 7}}), "istiod-1.7.svc:15012"),
    ] {
        let (injected, _) = review(&built_in(values.clone())?, &pod(&json!({})))??;
        let variables = proxy(&injected)?["env"].as_array().ok_or("no variables")?;
        let variable = |name: &str| {
            let variable = variables.iter().find(|variable| variable["name"] == name);
            variable.and_then(|variable| variable["value"].as_str()).unwrap_or_default()
        };
        let config: Value = serde_json::from_str(variable("PROXY_CONFIG"))?;
        let discovery = config["discoveryAddress"].as_str().unwrap_or_default();
        if (variable("CA_ADDR"), discovery) != (address, address) {
            return Err(format!("{values}: {}, {discovery}", variable("CA_ADDR")).into());
        }
    }
    Ok(())
}

fn networks() -> Result<(), Failed> {
    let injector = openshift()?;
    for text in ["My_Net", "b.c", "a-", "-a", r#"[{"name":"a","ips":"10.0.0.1/24"}]"#] {
        let reason = review(&injector, &pod(&json!({annotation::NETWORKS: text})))?.err();
        let reason = reason.ok_or_else(|| format!("{text:?} is admitted"))?;
        reason.contains(annotation::NETWORKS).then_some(()).ok_or_else(|| format!("{text:?}: {reason}"))?;
    }
    Ok(())
}

fn claims() -> Result<(), Failed> {
    let resources = |claims: Value| json!({"global": {"proxy": {"resources": {"claims": claims}}}});
    let mut with_claim = pod(&json!({}));
    with_claim["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    for (claims, pod, is_admitted) in [
        (json!([{"name": "gpu"}]), &with_claim, true),
        (json!([{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}]), &with_claim, true),
        (json!([{"name": "gpu"}]), &pod(&json!({})), false),
        (json!([{"name": "nic"}]), &with_claim, false),
        (json!([{"request": "a"}]), &with_claim, false),
        (json!([{"name": "gpu"}, {"name": "gpu"}]), &with_claim, false),
        (json!([{"name": "gpu"}, {"name": "gpu", "request": "a"}]), &with_claim, false),
        (json!([{"name": "gpu", "request": "a"}, {"name": "gpu"}]), &with_claim, false),
        (json!([{"name": "gpu", "request": "A_"}]), &with_claim, false),
    ] {
        match review(&built_in(resources(claims.clone()))?, pod)? {
            Ok(_) if is_admitted => {}
            Err(reason) if !is_admitted && reason.contains("claims") => {}
            found => return Err(format!("{claims}: {found:?}").into()),
        }
    }
    Ok(())
}

fn volumes() -> Result<(), Failed> {
    let injector = built_in(json!({}))?;
    let ephemeral = |modes: Value| {
        let spec = json!({"accessModes": modes, "resources": {"requests": {"storage": "1Gi"}}});
        json!({"ephemeral": {"volumeClaimTemplate": {"spec": spec}}})
    };
    let resource = |container: &str, resource: &str| {
        let reference = json!({"containerName": container, "resource": resource});
        json!({"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": reference}]}})
    };
    let iscsi = |iqn: &str, lun: i64| json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": iqn, "lun": lun}});
    for (volume, part) in [
        (json!({"csi": {"driver": "A_b"}}), "csi.driver"),
        (json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "A_"}}}), "csi.nodePublishSecretRef.name"),
        (iscsi("bad", 0), "iscsi.iqn"),
        (iscsi("iqn.bad", 0), "iscsi.iqn"),
        (iscsi("iqn.2001-04.com.example:storage", 300), "iscsi.lun"),
        (ephemeral(json!(["x"])), "accessModes"),
        (ephemeral(json!(["ReadWriteOncePod", "ReadWriteOnce"])), "accessModes"),
        (resource("app", "limits.foo"), "limits.foo"),
        (resource("nope", "limits.cpu"), "nope"),
        (json!({"fc": {"targetWWNs": ["w"], "lun": 300}}), "fc.lun"),
        (json!({"azureDisk": {"diskName": "a", "diskURI": "b", "kind": "Managed"}}), "azureDisk.diskURI"),
    ] {
        let text = json!({"a": volume}).to_string();
        let reason = review(&injector, &pod(&json!({annotation::USER_VOLUME: text})))?.err();
        let reason = reason.ok_or_else(|| format!("{volume} is admitted"))?;
        reason.contains(part).then_some(()).ok_or_else(|| format!("{volume}: {reason}"))?;
    }
    for volume in [
        json!({"csi": {"driver": "Secrets-Store.csi.k8s.io", "nodePublishSecretRef": {"name": "a.b"}}}),
        iscsi("iqn.2001-04.com.example:storage.disk2", 255),
        iscsi("eui.0123456789abcdef", 0),
        iscsi("naa.0123456789abcdef0123456789abcdef", 0),
        ephemeral(json!(["ReadWriteOnce", "ReadOnlyMany"])),
        resource("app", "limits.cpu"),
        resource("istio-proxy", "requests.hugepages-2Mi"),
    ] {
        review(&injector, &pod(&json!({annotation::USER_VOLUME: json!({"a": volume}).to_string()})))??;
    }
    Ok(())
}

/// Checks that an absolute path causes only a warning, because Istio's recorded outputs contain one.
fn absolute() -> Result<(), Failed> {
    let injector = built_in(json!({}))?;
    for volume in [
        json!({"configMap": {"name": "x", "items": [{"key": "a", "path": "/b"}]}}),
        json!({"secret": {"secretName": "x", "items": [{"key": "a", "path": "/b"}]}}),
        json!({"downwardAPI": {"items": [{"path": "/b", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
        json!({"projected": {"sources": [{"secret": {"name": "x", "items": [{"key": "a", "path": "/b"}]}}]}}),
    ] {
        let text = json!({"a": volume}).to_string();
        let (_, warnings) = review(&injector, &pod(&json!({annotation::USER_VOLUME: text})))??;
        let is_named = |warning: &String| warning.contains("\"/b\"") && warning.contains(annotation::USER_VOLUME);
        warnings.iter().any(is_named).then_some(()).ok_or_else(|| format!("{volume}: {warnings:?}"))?;
    }
    Ok(())
}

fn restricted() -> Result<(), Failed> {
    let whole = json!({"global": {"proxy": {"seccompProfile": {"type": "RuntimeDefault"}}}});
    for values in [json!({}), whole] {
        for (template, list) in [("gateway", "containers"), ("grpc-agent", "containers"), ("gateway", "initContainers")]
        {
            for (context, absent) in [
                (json!({"runAsUser": 0}), "runAsNonRoot"),
                (json!({"privileged": true}), "allowPrivilegeEscalation"),
                (json!({"capabilities": {"add": ["CAP_SYS_ADMIN"]}}), "allowPrivilegeEscalation"),
            ] {
                let mut pod = pod(&json!({annotation::TEMPLATES: template}));
                let own = json!({"name": "istio-proxy", "image": "auto", "securityContext": context});
                let others = pod["spec"].get(list).and_then(Value::as_array).cloned().unwrap_or_default();
                pod["spec"][list] = others.into_iter().chain([own]).collect();
                let (injected, _) = review(&built_in(values.clone())?, &pod)??;
                let found = &proxy(&injected)?["securityContext"];
                if found.get(absent).is_some() || found["capabilities"]["drop"] != json!(["ALL"]) {
                    return Err(format!("{template} {context}: {found}").into());
                }
                let (again, _) = review(&built_in(values.clone())?, &injected)??;
                (again == injected).then_some(()).ok_or_else(|| format!("{template} {context}: {again}"))?;
            }
        }
    }
    Ok(())
}

/// Checks that a validation of a former injection is refused in `kube-system`, whose pods the plugin skips by default.
fn excluded() -> Result<(), Failed> {
    let injector = built_in(json!({}))?;
    let (mut injected, _) = review(&injector, &pod(&json!({})))??;
    for (namespace, is_refused) in [("kube-system", true), ("kube-public", false)] {
        injected["metadata"]["namespace"] = namespace.into();
        let refused = injector.review(&Request::new(&injected, "shop")).err().map(|error| error.to_string());
        let checked = injector.check(&injected, "shop", None).err().map(|error| error.to_string());
        let is_named = |reason: &String| reason.contains("kube-system") && reason.contains("of a former injection");
        let (refused, checked) = (refused.as_ref().map(is_named), checked.as_ref().map(is_named));
        if (refused, checked) != (is_refused.then_some(true), is_refused.then_some(true)) {
            return Err(format!("{namespace}: {refused:?} {checked:?}").into());
        }
    }
    Ok(())
}
