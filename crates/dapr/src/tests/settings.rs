//! Tests of the injector's environment variables.

use super::*;
use crate::{Actors, PullPolicy, SettingsError};

fn fault(env: &[(&str, &str)]) -> SettingsError {
    parse_settings(env, Era::Current).expect_err("bad settings")
}

#[test]
fn required_variables_must_be_set() {
    assert_eq!(fault(&[("SIDECAR_IMAGE", "")]), SettingsError::Missing("SIDECAR_IMAGE"));
    assert_eq!(fault(&[("NAMESPACE", "")]), SettingsError::Missing("NAMESPACE"));
    assert_eq!(Settings::from_env(&BTreeMap::new(), "", Era::Current), Err(SettingsError::Missing("NAMESPACE")));
}

#[test]
fn defaults_equal_daprs() {
    let settings = settings(&[]);
    assert_eq!(settings.pull_policy, PullPolicy::Always);
    assert_eq!(
        (settings.host_ip, settings.native, settings.native_first, settings.scheduler),
        (false, false, false, true)
    );
    let security = settings.security;
    assert!(security.run_as_non_root && security.read_only_root && !security.drop_all);
    assert_eq!((security.run_as_user, security.run_as_group), (None, None));
    assert_eq!(settings.reminders, None);
}

#[test]
fn switches_have_defaults() {
    for (value, non_root, native) in
        [("", true, false), ("true", true, true), ("0", false, false), ("1", true, true), ("no", false, false)]
    {
        let settings = settings(&[("SIDECAR_RUN_AS_NON_ROOT", value), ("NATIVE_SIDECAR_ENABLED", value)]);
        assert_eq!((settings.security.run_as_non_root, settings.native), (non_root, native), "{value:?}");
    }
}

#[test]
fn user_ids_must_be_numbers() {
    let both = settings(&[("SIDECAR_RUN_AS_USER", "1000"), ("SIDECAR_RUN_AS_GROUP", "3000")]).security;
    assert_eq!((both.run_as_user, both.run_as_group), (Some(1000), Some(3000)));
    for variable in ["SIDECAR_RUN_AS_USER", "SIDECAR_RUN_AS_GROUP"] {
        let found = fault(&[(variable, "invalid")]);
        assert!(
            matches!(&found, SettingsError::Number { variable: at, value } if *at == variable && value == "invalid")
        );
    }
}

#[test]
fn invalid_tolerations_are_ignored() {
    for (text, count, warnings) in [
        ("", 0, 0),
        (r#"[{"key":"a","Effect":"NoSchedule"}]"#, 1, 0),
        (r#"[{"key":"a"},{"key":"b","operator":"Exists"}]"#, 2, 0),
        ("hi", 0, 1),
        ("{}", 0, 1),
    ] {
        let settings = settings(&[("IGNORE_ENTRYPOINT_TOLERATIONS", text)]);
        assert_eq!((settings.ignore_entrypoint.len(), settings.warnings.len()), (count, warnings), "{text}");
    }
}

#[test]
fn services_have_a_name_and_a_port() {
    for bad in ["", "invalid", "name:", ":80", "name:0", "name:x", "name:-1"] {
        let name = ("ACTORS_SERVICE_NAME", "custom");
        let expected = SettingsError::Service { variable: "ACTORS_SERVICE_ADDRESS", value: bad.into() };
        assert_eq!(fault(&[name, ("ACTORS_SERVICE_ADDRESS", bad)]), expected);
    }
    let service = [("ACTORS_SERVICE_NAME", "c"), ("ACTORS_SERVICE_ADDRESS", "a:80"), ("NAMESPACE", "b")];
    assert_eq!(settings(&service).actors, Actors::Service("c:a.b.svc.cluster.local:80".into()));
    assert_eq!(settings(&[("ACTORS_ENABLED", "false")]).actors, Actors::Off);
    assert_eq!(settings(&[("REMINDERS_SERVICE_NAME", "default")]).reminders, None);
    let memo = [("REMINDERS_SERVICE_NAME", "memo"), ("REMINDERS_SERVICE_ADDRESS", "m:1")];
    assert_eq!(settings(&memo).reminders.as_deref(), Some("memo:m.example.svc.cluster.local:1"));
}

#[test]
fn the_cluster_domain_is_set_or_derived() {
    let domain = |given: &str, resolv_conf: &str| {
        let env = [("SIDECAR_IMAGE", "i"), ("NAMESPACE", "n"), ("KUBE_CLUSTER_DOMAIN", given)];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Settings::from_env(&env, resolv_conf, Era::Current).expect("settings").control_plane.domain
    };
    let kubelet = "nameserver 10.96.0.10\nsearch n.svc.k8s.test svc.k8s.test k8s.test\noptions ndots:5\n";
    assert_eq!(domain("", ""), "cluster.local");
    assert_eq!(domain("", "nameserver 1.1.1.1\n"), "cluster.local");
    assert_eq!(domain("", kubelet), "k8s.test");
    assert_eq!(domain("said.test", kubelet), "said.test");
}
