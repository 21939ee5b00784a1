//! Tests of valid configurations, and of the errors of invalid ones.

use std::io;

use super::*;

fn parse(json: &str) -> NetConf<'_> {
    NetConf::parse(json.as_bytes()).unwrap()
}

fn failure(json: &str) -> (u32, String) {
    let error = NetConf::parse(json.as_bytes()).unwrap_err();
    (error.code().number(), error.to_string())
}

#[test]
fn only_the_name_is_required() {
    let conf = parse(r#"{"name":"n"}"#);
    assert_eq!(conf.version, Version::V0_1_0);
    assert_eq!(conf.name, "n");
    assert!(conf.prev_result.is_none() && conf.pod_annotations.is_none());
    let defaults = PluginSettings {
        log_level: Level::Info,
        run_dir: "/var/run/istio-cni".into(),
        exclude_namespaces: vec![],
        agent_namespace: None,
        native_nftables: false,
        ambient_enabled: false,
        iptables_binary: None,
        refuse_sandboxes: false,
    };
    assert_eq!(conf.settings, defaults);
}

#[test]
fn the_installers_keys_are_read() {
    let conf = parse(
        r#"{"cniVersion":"1.0.0","name":"k8s-pod-network","type":"istio-cni","plugin_log_level":"debug",
            "cni_agent_run_dir":"/run/x","ambient_enabled":false,"enablement_selectors":[],
            "exclude_namespaces":["kube-system","istio-system"],"pod_namespace":"istio-system","native_nftables":true,
            "enable_ambient_detection_retry":false,"force_iptables_binary":"legacy","refuse_sandboxes":true,
            "kubernetes":{"cni_bin_dir":"/opt"},"capabilities":{"dns":true}}"#,
    );
    assert_eq!(conf.version, Version::V1_0_0);
    let expected = PluginSettings {
        log_level: Level::Debug,
        run_dir: "/run/x".into(),
        exclude_namespaces: vec!["kube-system".into(), "istio-system".into()],
        agent_namespace: Some("istio-system".into()),
        native_nftables: true,
        ambient_enabled: false,
        iptables_binary: Some(IptablesBinary::Legacy),
        refuse_sandboxes: true,
    };
    assert_eq!(conf.settings, expected);
}

#[test]
fn null_is_the_same_as_absence() {
    let keys = ["cniVersion", "prevResult", "exclude_namespaces", "native_nftables", "pod_namespace", "runtimeConfig"];
    for key in keys {
        let conf = parse(&format!(r#"{{"name":"n","{key}":null}}"#)).settings.clone();
        assert_eq!(conf, parse(r#"{"name":"n"}"#).settings, "{key}");
    }
    assert!(parse(r#"{"name":"n","prevResult": null}"#).prev_result.is_none());
}

#[test]
fn the_last_value_of_a_repeated_key_is_used() {
    assert_eq!(parse(r#"{"name":"a","name":"b"}"#).name, "b");
}

#[test]
fn prev_result_keeps_its_bytes() {
    let raw = "{ \"cniVersion\":\"1.0.0\",\n\t\"x\":1.50, \"ips\":[{\"address\":\"10.0.0.2/24\"}] }";
    let json = format!(r#"{{"name":"n","prevResult":{raw}}}"#);
    assert_eq!(parse(&json).prev_result.unwrap().get(), raw);
}

#[test]
fn a_key_of_another_type_is_named() {
    for (key, value) in [
        ("cniVersion", "1"),
        ("name", "7"),
        ("plugin_log_level", "{}"),
        ("cni_agent_run_dir", "true"),
        ("exclude_namespaces", r#""a,b""#),
        ("exclude_namespaces", "[1]"),
        ("pod_namespace", "[]"),
        ("native_nftables", r#""true""#),
        ("ambient_enabled", "1"),
        ("force_iptables_binary", "true"),
        ("refuse_sandboxes", r#""yes""#),
    ] {
        let (code, message) = failure(&format!(r#"{{"name":"n","{key}":{value}}}"#));
        assert_eq!(code, 6, "{key}: {message}");
        assert!(message.contains(&format!("{key:?}")), "{message}");
    }
}

#[test]
fn anything_but_a_json_object_is_a_decoding_failure() {
    let whole = r#"{"cniVersion":"1.0.0","name":"n","prevResult":{"a":[1]}}"#;
    for json in (0..whole.len()).map(|end| &whole[..end]).chain(["[]", "1", "{} x"]) {
        let (code, message) = failure(json);
        assert_eq!(code, 6, "{json}");
        assert!(message.starts_with("error unmarshall network config: "), "{message}");
    }
}

#[test]
fn the_network_name_is_an_identifier() {
    assert_eq!(failure("{}"), (7, "missing network name".into()));
    assert_eq!(failure(r#"{"name":""}"#), (7, "missing network name".into()));
    assert_eq!(failure(r#"{"name":"../n"}"#), (7, "invalid characters found in network name".into()));
}

#[test]
fn an_unknown_version_is_incompatible() {
    assert_eq!(failure(r#"{"name":"n","cniVersion":"2.0.0"}"#), (1, "incompatible CNI versions".into()));
}

#[test]
fn a_missing_version_means_0_1_0() {
    assert_eq!(version("").unwrap(), Version::V0_1_0);
}

#[test]
fn an_unknown_version_is_reported_with_the_supported_ones() {
    let error = version("0.9.9").unwrap_err();
    assert_eq!(error.code().number(), 1);
    assert_eq!(
        error.details(),
        r#"config is "0.9.9", plugin supports ["0.1.0" "0.2.0" "0.3.0" "0.3.1" "0.4.0" "1.0.0" "1.1.0"]"#
    );
}

#[test]
fn only_the_two_iptables_can_be_forced() {
    assert_eq!(parse(r#"{"name":"n","force_iptables_binary":""}"#).settings.iptables_binary, None);
    let (code, message) = failure(r#"{"name":"n","force_iptables_binary":"ipfw"}"#);
    assert_eq!(code, 7);
    assert!(message.contains(r#"force_iptables_binary="ipfw""#) && message.contains("legacy or nft"), "{message}");
}

#[test]
fn log_levels_are_istios_and_unknown_ones_mean_info() {
    for (text, level) in [("warn", Level::Warn), ("none", Level::None), ("loud", Level::Info)] {
        let json = format!(r#"{{"name":"n","plugin_log_level":"{text}"}}"#);
        assert_eq!(parse(&json).settings.log_level, level);
    }
}

#[test]
fn annotations_of_the_right_shape_come_from_the_runtime_config() {
    let with = |config: &str| {
        let json = format!(r#"{{"name":"n","runtimeConfig":{config}}}"#);
        parse(&json).pod_annotations.map(|all| all.into_iter().collect::<Vec<_>>())
    };
    let given = with(r#"{"portMappings":[{"HostPort":1}],"io.kubernetes.cri.pod-annotations":{"a":"1","b":""}}"#);
    assert_eq!(given, Some(vec![("a".into(), "1".into()), ("b".into(), String::new())]));
    assert_eq!(with(r#"{"io.kubernetes.cri.pod-annotations":{}}"#), Some(vec![]));
    for other in [
        "{}",
        "[]",
        "true",
        r#"{"io.kubernetes.cri.pod-annotations":null}"#,
        r#"{"io.kubernetes.cri.pod-annotations":["a"]}"#,
        r#"{"io.kubernetes.cri.pod-annotations":{"a":1}}"#,
    ] {
        assert_eq!(with(other), None, "{other}");
    }
}

#[test]
fn stdin_is_read_to_its_end_within_a_limit() {
    assert_eq!(read(&b"{}"[..]).unwrap(), b"{}");
    assert_eq!(read(&vec![b' '; MAX_STDIN][..]).unwrap().len(), MAX_STDIN);
    let error = read(io::repeat(b' ')).unwrap_err();
    assert_eq!((error.code().number(), error.to_string().contains("8388608 bytes")), (6, true));
}

#[test]
fn deep_nesting_in_foreign_keys_is_skipped_without_recursion() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let json = format!(r#"{{"name":"n","foreign":{deep},"prevResult":{{"x":{deep}}}}}"#);
    assert!(parse(&json).prev_result.is_some());
}
