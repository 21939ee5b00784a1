//! Tests of the required, optional and invalid variables of each verb.

use std::collections::BTreeMap;

use super::*;

type Env = BTreeMap<&'static str, &'static str>;

fn env(command: &'static str) -> Env {
    BTreeMap::from([
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "c0ffee"),
        ("CNI_NETNS", "/var/run/netns/cni-1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"),
    ])
}

fn parse(env: &Env) -> Result<Call, Error> {
    Call::parse(&|name: &str| env.get(name).map(ToString::to_string))
}

fn failure(env: &Env) -> String {
    let error = parse(env).unwrap_err();
    assert_eq!(error.code().number(), 4);
    error.to_string()
}

fn eth0() -> Attachment {
    Attachment { container_id: "c0ffee".into(), ifname: "eth0".into() }
}

#[test]
fn add_and_check_have_a_target() {
    let target = Target {
        attachment: eth0(),
        netns: "/var/run/netns/cni-1".into(),
        netns_override: false,
        pod: PodArgs { name: Some("web-0".into()), namespace: Some("shop".into()), ..PodArgs::default() },
    };
    assert_eq!(parse(&env("ADD")).unwrap(), Call::Add(target.clone()));
    assert_eq!(parse(&env("CHECK")).unwrap(), Call::Check(target));
}

#[test]
fn every_verb_is_known_by_its_name() {
    for command in Command::ALL {
        assert_eq!(parse(&env(command.as_str())).unwrap().command(), command);
    }
}

#[test]
fn no_command_is_its_own_error() {
    assert!(matches!(parse(&Env::new()), Err(Error::NoCommand)));
    assert!(matches!(parse(&env("")), Err(Error::NoCommand)));
}

#[test]
fn an_unknown_command_is_named() {
    assert_eq!(failure(&env("add")), "unknown CNI_COMMAND: add");
}

#[test]
fn all_missing_variables_are_listed_together() {
    let only = |command| Env::from([("CNI_COMMAND", command), ("CNI_IFNAME", "")]);
    let add = "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing";
    assert_eq!(failure(&only("ADD")), add);
    assert_eq!(failure(&only("CHECK")), add);
    assert_eq!(failure(&only("DEL")), "required env variables [CNI_CONTAINERID,CNI_IFNAME,CNI_PATH] missing");
    assert_eq!(failure(&only("GC")), "required env variables [CNI_PATH] missing");
    assert_eq!(failure(&only("STATUS")), "required env variables [CNI_PATH] missing");
    assert_eq!(parse(&only("VERSION")).unwrap(), Call::Version);
}

#[test]
fn a_netns_that_is_gone_does_not_stop_del() {
    let mut gone = env("DEL");
    gone.insert("CNI_NETNS", "");
    assert!(matches!(parse(&gone).unwrap(), Call::Del { netns: None, attachment, .. } if attachment == eth0()));
    gone.insert("CNI_COMMAND", "ADD");
    assert_eq!(failure(&gone), "required env variables [CNI_NETNS] missing");
}

#[test]
fn malformed_args_fail_add_and_check_but_not_del() {
    let mut bad = env("DEL");
    bad.insert("CNI_ARGS", "K8S_POD_NAME");
    assert!(matches!(parse(&bad).unwrap(), Call::Del { pod, .. } if pod == PodArgs::default()));
    for command in ["ADD", "CHECK"] {
        bad.insert("CNI_COMMAND", command);
        assert!(failure(&bad).contains("invalid pair"));
    }
    for command in ["GC", "STATUS", "VERSION"] {
        bad.insert("CNI_COMMAND", command);
        assert!(parse(&bad).is_ok());
    }
}

#[test]
fn a_container_id_has_no_path_in_it() {
    let mut bad = env("ADD");
    for id in ["../x", "-a", ".a", "a b", "a/b", "é"] {
        bad.insert("CNI_CONTAINERID", id);
        let error = parse(&bad).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.details().as_str()), ("invalid characters in containerID", id));
    }
    for id in ["a", "A-b_c.d", "0"] {
        bad.insert("CNI_CONTAINERID", id);
        assert!(parse(&bad).is_ok(), "{id}");
    }
}

#[test]
fn an_interface_name_must_be_valid_for_the_kernel() {
    let mut bad = env("DEL");
    for (name, fault) in [
        ("sixteen-bytes-ab", "too long"),
        (".", "is . or .."),
        ("..", "is . or .."),
        ("a/b", "contains /"),
        ("a:b", "contains /"),
        ("a b", "contains /"),
        ("a\u{2003}b", "contains /"),
    ] {
        bad.insert("CNI_IFNAME", name);
        assert!(failure(&bad).contains(fault), "{name}");
    }
    bad.insert("CNI_IFNAME", "fifteen-bytes-a");
    assert!(parse(&bad).is_ok());
}

#[test]
fn netns_override_is_1_or_true() {
    for (value, expected) in [("1", true), ("TRUE", true), ("true", true), ("0", false), ("yes", false)] {
        let mut set = env("ADD");
        set.insert("CNI_NETNS_OVERRIDE", value);
        assert!(matches!(parse(&set).unwrap(), Call::Add(target) if target.netns_override == expected), "{value}");
    }
}

#[test]
fn old_configurations_lack_the_newer_verbs() {
    let refused =
        |command: Command, version| command.allowed_by(version).map_err(|e| (e.code().number(), e.to_string()));
    for version in Version::ALL {
        for command in [Command::Add, Command::Del, Command::Version] {
            assert_eq!(refused(command, version), Ok(()));
        }
        for (command, since) in
            [(Command::Check, Version::V0_4_0), (Command::Gc, Version::V1_1_0), (Command::Status, Version::V1_1_0)]
        {
            let expected =
                if version < since { Err((1, format!("config version does not allow {command}"))) } else { Ok(()) };
            assert_eq!(refused(command, version), expected, "{version}");
        }
    }
}
