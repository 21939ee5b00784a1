//! Tests of the statements and the example in a published description of the injector of Dapr 1.4, one trial for each.
//! Trials that correct an error in the description are marked.

use std::collections::{BTreeMap, BTreeSet};

use dapr::{
    Authority, Decision, Era, Facts, InjectionOutcome, Issuer, Request, Settings, Skip, Trust, User, mtls_enabled,
    review,
};
use inject::{apply, yaml};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::property::equal;

const SEED: &str = "Dapr's sidecar injector (1.4)";

type Check = fn() -> Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 12] = [
        ("an account on the list may create pods with sidecars", account_on_the_list),
        (
            "a member of system:masters may as well (corrected: the shown call has its arguments in the wrong order)",
            masters,
        ),
        ("any other account gets its pod without a sidecar", unlisted_account),
        ("a review of another kind than Pod has no patch", another_kind),
        ("dapr.io/enabled that is not true has no patch", not_enabled),
        ("a pod that has the sidecar has no patch", has_sidecar),
        ("the sidecar is added behind the containers, then the variables", patch_order),
        ("a pod without containers gets the list", no_containers),
        ("mTLS is what the Configuration says", mtls),
        ("the identity is namespace and service account", identity),
        ("the arguments stand in the order of the shown code, with values of the annotations", arguments),
        ("the example's deployment pythonapp gets daprd", example),
    ];
    checks.into_iter().map(|(name, check)| Trial::test(format!("{SEED}: {name}"), check)).collect()
}

/// The ReplicaSet controller as a user, with a UID that is on the list of allowed accounts.
const LISTED: User<'static> =
    User { username: "system:serviceaccount:kube-system:replicaset-controller", uid: "listed", groups: &[] };

/// The pod in the description's example.
const EXAMPLE: &str = "metadata: {generateName: pythonapp-5d8f7c-, labels: {app: python}, annotations: {dapr.io/enabled: 'true', dapr.io/app-id: pythonapp}}
spec:
  tolerations:
  - {effect: NoSchedule, key: sigma.ali/resource-pool, value: ackee_pool}
  - {effect: NoSchedule, key: sigma.ali/is-ecs, operator: Exists}
  containers: [{name: python, image: 'dapriosamples/hello-k8s-python:1.2.0'}]
";

fn pod() -> Result<Value, Failed> {
    Ok(yaml::value(EXAMPLE)?)
}

fn reviewed(kind: &str, user: User<'_>, pod: &Value, mtls: bool) -> Result<InjectionOutcome, Failed> {
    let env = [("SIDECAR_IMAGE", "daprio/daprd:1.4.2"), ("NAMESPACE", "dapr-system")];
    let env: BTreeMap<_, _> = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let settings = Settings::from_env(&env, "", Era::V1_4_2)?;
    let issuer = Issuer { chain: "CHAIN".to_owned(), key: "KEY".to_owned() };
    let trust = Trust { anchors: Some("ANCHORS".to_owned()), issuer: Some(issuer), mtls };
    let accounts = BTreeSet::from(["listed".to_owned()]);
    let request = Request { kind, namespace: "youku-smart-asi", user, object: Some(pod) };
    Ok(review(&request, &settings, &Facts { accounts: &accounts, trust: &trust, components: None }))
}

/// Returns the pod after a review of its creation by the ReplicaSet controller.
fn injected(pod: &Value, mtls: bool) -> Result<Value, Failed> {
    Ok(apply(pod.clone(), &reviewed("Pod", LISTED, pod, mtls)?.patch)?)
}

fn passed(outcome: &InjectionOutcome, reason: &Skip) -> Result<(), Failed> {
    let same = outcome.decision == Decision::Skip(reason.clone()) && outcome.patch.is_empty();
    same.then_some(()).ok_or_else(|| format!("{outcome:?}").into())
}

fn authority(user: User<'_>, expected: &Authority) -> Result<(), Failed> {
    let outcome = reviewed("Pod", user, &pod()?, true)?;
    match &outcome.decision {
        Decision::Inject { authority, .. } if authority == expected => Ok(()),
        _ => Err(format!("{outcome:?}").into()),
    }
}

fn account_on_the_list() -> Result<(), Failed> {
    authority(LISTED, &Authority::Uid)
}

fn masters() -> Result<(), Failed> {
    authority(User { groups: &["system:masters".to_owned()], ..User::default() }, &Authority::Masters)
}

fn unlisted_account() -> Result<(), Failed> {
    let user = User { username: "system:serviceaccount:shop:builder", uid: "another", groups: &[] };
    passed(&reviewed("Pod", user, &pod()?, true)?, &Skip::Unauthorized { username: user.username.to_owned() })
}

fn another_kind() -> Result<(), Failed> {
    passed(&reviewed("Deployment", LISTED, &pod()?, true)?, &Skip::NotAPod("Deployment".to_owned()))
}

fn not_enabled() -> Result<(), Failed> {
    let mut pod = pod()?;
    pod["metadata"]["annotations"]["dapr.io/enabled"] = "false".into();
    passed(&reviewed("Pod", LISTED, &pod, true)?, &Skip::NotEnabled(Some("false".to_owned())))?;
    pod["metadata"]["annotations"].as_object_mut().and_then(|annotations| annotations.shift_remove("dapr.io/enabled"));
    passed(&reviewed("Pod", LISTED, &pod, true)?, &Skip::NotEnabled(None))
}

fn has_sidecar() -> Result<(), Failed> {
    let pod = injected(&pod()?, true)?;
    passed(&reviewed("Pod", LISTED, &pod, true)?, &Skip::AlreadyInjected("containers"))
}

fn patch_order() -> Result<(), Failed> {
    let mut pod = pod()?;
    let variables = json!([{"name": "OWN", "value": "x"}]);
    pod["spec"]["containers"] = json!([{"name": "a"}, {"name": "b", "env": variables}]);
    let patch = serde_json::to_value(reviewed("Pod", LISTED, &pod, true)?.patch)?;
    let operations = patch.as_array().map_or(&[][..], Vec::as_slice);
    let paths: Vec<&Value> = operations.iter().map(|operation| &operation["path"]).collect();
    let expected =
        ["/spec/containers/-", "/spec/containers/0/env", "/spec/containers/1/env/-", "/spec/containers/1/env/-"];
    equal(&json!(expected), &json!(paths), "the patch")?;
    let ports = json!([{"name": "DAPR_HTTP_PORT", "value": "3500"}, {"name": "DAPR_GRPC_PORT", "value": "50001"}]);
    equal(&ports, &operations[1]["value"], "the patch")
}

fn no_containers() -> Result<(), Failed> {
    let mut pod = pod()?;
    pod["spec"]["containers"] = json!([]);
    let patch = serde_json::to_value(reviewed("Pod", LISTED, &pod, true)?.patch)?;
    equal(&json!(1), &json!(patch.as_array().map(Vec::len)), "the number of operations")?;
    equal(&json!("/spec/containers"), &patch[0]["path"], "the patch")?;
    equal(&json!("daprd"), &patch[0]["value"][0]["name"], "the patch")
}

fn mtls() -> Result<(), Failed> {
    for (configuration, expected) in
        [(json!({"spec": {"mtls": {"enabled": true}}}), true), (json!({"spec": {"mtls": {"enabled": false}}}), false)]
    {
        let pod = injected(&pod()?, mtls_enabled(Some(&configuration)))?;
        let args = pod["spec"]["containers"][1]["args"].as_array().map_or(&[][..], Vec::as_slice);
        equal(&json!(expected), &json!(args.contains(&json!("--enable-mtls"))), &configuration.to_string())?;
    }
    Ok(())
}

fn variable<'a>(container: &'a Value, name: &str) -> &'a Value {
    let env = container["env"].as_array().into_iter().flatten();
    env.into_iter().find(|variable| variable["name"] == name).map_or(&Value::Null, |variable| &variable["value"])
}

fn identity() -> Result<(), Failed> {
    let mut pod = pod()?;
    pod["spec"]["serviceAccountName"] = "python".into();
    let pod = injected(&pod, true)?;
    let sidecar = &pod["spec"]["containers"][1];
    for (name, expected) in [
        ("SENTRY_LOCAL_IDENTITY", "youku-smart-asi:python"),
        ("NAMESPACE", "youku-smart-asi"),
        ("DAPR_TRUST_ANCHORS", "ANCHORS"),
        ("DAPR_CERT_CHAIN", "CHAIN"),
        ("DAPR_CERT_KEY", "KEY"),
    ] {
        equal(&json!(expected), variable(sidecar, name), name)?;
    }
    Ok(())
}

/// Checks that annotations set the sidecar's arguments, and the delay, timeout, period and threshold of its readiness
/// probe.
fn arguments() -> Result<(), Failed> {
    let mut pod = pod()?;
    for (name, value) in [
        ("app-port", "5000"),
        ("app-protocol", "grpc"),
        ("config", "tracing"),
        ("log-level", "debug"),
        ("app-max-concurrency", "7"),
        ("enable-metrics", "false"),
        ("metrics-port", "9191"),
        ("http-max-request-size", "8"),
        ("sidecar-readiness-probe-delay-seconds", "11"),
        ("sidecar-readiness-probe-timeout-seconds", "12"),
        ("sidecar-readiness-probe-period-seconds", "13"),
        ("sidecar-readiness-probe-threshold", "14"),
    ] {
        pod["metadata"]["annotations"][format!("dapr.io/{name}")] = value.into();
    }
    let pod = injected(&pod, false)?;
    let sidecar = &pod["spec"]["containers"][1];
    let expected = "--mode kubernetes --dapr-http-port 3500 --dapr-grpc-port 50001 --dapr-internal-grpc-port 50002 \
        --dapr-listen-addresses [::1],127.0.0.1 --dapr-public-port 3501 --app-port 5000 --app-id pythonapp \
        --control-plane-address dapr-api.dapr-system.svc.cluster.local:80 --app-protocol grpc \
        --placement-host-address dapr-placement-server.dapr-system.svc.cluster.local:50005 --config tracing \
        --log-level debug --app-max-concurrency 7 --sentry-address dapr-sentry.dapr-system.svc.cluster.local:80 \
        --enable-metrics=false --metrics-port 9191 --dapr-http-max-request-size 8";
    equal(&expected.split_whitespace().collect(), &sidecar["args"], "the arguments")?;
    let probe = &sidecar["readinessProbe"];
    let fields = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"];
    equal(&json!([11, 12, 13, 14]), &fields.iter().map(|field| probe[field].clone()).collect(), "the readiness probe")
}

fn example() -> Result<(), Failed> {
    let before = pod()?;
    let pod = injected(&before, true)?;
    let [app, sidecar] = pod["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice) else {
        return Err(pod.to_string().into());
    };
    equal(&before["spec"]["tolerations"], &pod["spec"]["tolerations"], "the tolerations")?;
    equal(&json!("3500"), variable(app, "DAPR_HTTP_PORT"), "the application's variable")?;
    for (field, expected) in [
        ("name", json!("daprd")),
        ("image", json!("daprio/daprd:1.4.2")),
        ("command", json!(["/daprd"])),
        ("securityContext", json!({"allowPrivilegeEscalation": false})),
    ] {
        equal(&expected, &sidecar[field], field)?;
    }
    let args = sidecar["args"].as_array().map_or(&[][..], Vec::as_slice);
    let id = args.iter().position(|arg| arg == "--app-id").and_then(|at| args.get(at + 1));
    equal(&json!("pythonapp"), &json!(id), "the app id")
}
