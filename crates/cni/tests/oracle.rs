//! Tests the plugin's protocol with the CNI types of an independent crate, `rscni-plugin`: they parse the plugin's
//! replies and serialize its input.
//!
//! Known differences: that crate does not represent results older than 0.3.0, drops unknown fields, and omits an empty
//! `dns` from 1.0.0 on.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cni::reply::{self, Failure};
use cni::{Call, Code, Command, Error, NetConf, Version};
use rscni_plugin::error::Error as OracleError;
use rscni_plugin::types::{CNIResultWithVersion, Cmd, ErrorResult, GcAttachment, NetConf as OracleConf};
use rscni_plugin::version::SpecVersion;
use serde_json::{Value, json};

const VERBS: [&str; 6] = ["ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION"];

fn oracle_version(version: Version) -> SpecVersion {
    version.as_str().parse().unwrap()
}

fn call(verb: &str) -> Result<Call, Error> {
    Call::parse(&|name| match name {
        "CNI_COMMAND" => Some(verb.to_owned()),
        "CNI_ARGS" => None,
        "CNI_NETNS_OVERRIDE" => Some("0".to_owned()),
        _ => Some("x1".to_owned()),
    })
}

fn command(verb: &str) -> Command {
    call(verb).unwrap().command()
}

/// Returns a network configuration in the types of `rscni-plugin`, with a prevResult that has every kind of field.
fn oracle_conf(version: Version) -> OracleConf {
    let ip_version = matches!(version, Version::V0_3_0 | Version::V0_3_1 | Version::V0_4_0);
    let mut ip = json!({"address": "10.222.0.3/24", "gateway": "10.222.0.1", "interface": 1});
    if ip_version {
        ip["version"] = "4".into();
    }
    serde_json::from_value(json!({
        "cniVersion": version.as_str(),
        "name": "e2e",
        "type": "istio-cni",
        "capabilities": {"io.kubernetes.cri.pod-annotations": true},
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"sidecar.istio.io/status": "{}"}},
        "prevResult": {
            "cniVersion": version.as_str(),
            "interfaces": [{"name": "veth1", "mac": "b6:93:64:63:5a:3f"}, {"name": "eth0", "sandbox": "/run/netns/x"}],
            "ips": [ip],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dns": {"nameservers": ["10.96.0.10"]},
        },
        "exclude_namespaces": ["kube-system"],
    }))
    .unwrap()
}

#[test]
fn verbs_and_what_each_version_permits_agree() {
    for verb in VERBS {
        let theirs: Cmd = verb.parse().unwrap();
        for version in Version::ALL {
            let ours = command(verb).allowed_by(version);
            let expected = oracle_version(version).allows(theirs);
            assert_eq!(ours.is_ok(), expected.is_ok(), "{verb} {version}");
            if let (Err(ours), Err(expected)) = (ours, expected) {
                assert_eq!(ours.code().number(), u32::from(&expected));
                assert_eq!(ours.to_string(), expected.details(), "{verb} {version}");
            }
        }
    }
    for verb in ["add", "PING"] {
        let theirs = verb.parse::<Cmd>().unwrap_err();
        let ours = call(verb).unwrap_err();
        assert_eq!((ours.code().number(), ours.to_string().as_str()), (u32::from(&theirs), theirs.details()));
    }
}

#[test]
fn a_configuration_written_by_the_oracle_is_read_alike() {
    for version in Version::ALL {
        let mut theirs = oracle_conf(version);
        theirs.valid_attachments = Some(vec![GcAttachment { container_id: "c1".into(), ifname: "eth0".into() }]);
        let bytes = serde_json::to_vec(&theirs).unwrap();
        let ours = NetConf::parse(&bytes).unwrap();
        assert_eq!(ours.version.as_str(), theirs.cni_version);
        assert_eq!(ours.name, theirs.name);
        assert_eq!(ours.pod_annotations.unwrap()["sidecar.istio.io/status"], "{}");
        assert_eq!(ours.settings.exclude_namespaces, ["kube-system"]);
    }
}

#[test]
fn missing_versions_and_invalid_names_are_handled_alike() {
    for conf in [
        json!({"name": "n", "type": "t"}),
        json!({"name": "n", "type": "t", "cniVersion": ""}),
        json!({"name": "", "type": "t"}),
        json!({"name": "a b", "type": "t"}),
        json!({"name": "-a", "type": "t"}),
    ] {
        let theirs: OracleConf = serde_json::from_value(conf.clone()).unwrap();
        let bytes = serde_json::to_vec(&conf).unwrap();
        match (NetConf::parse(&bytes), theirs.validate_name()) {
            (Ok(ours), Ok(())) => assert_eq!(oracle_version(ours.version), theirs.version().unwrap()),
            (Err(ours), Err(theirs)) => assert_eq!(ours.code().number(), u32::from(&theirs), "{conf}"),
            (ours, theirs) => panic!("{conf}: {:?} against {theirs:?}", ours.map(|conf| conf.name)),
        }
    }
}

#[test]
fn the_oracle_reads_back_its_result_from_add() {
    for version in Version::ALL.into_iter().filter(|version| oracle_version(*version).is_supported()) {
        let theirs = oracle_conf(version);
        let given = theirs.prev_result.clone().unwrap();
        let written = CNIResultWithVersion::new(oracle_version(version), given.clone());
        let mut conf = serde_json::to_value(&theirs).unwrap();
        conf["prevResult"] = serde_json::to_value(&written).unwrap();
        let bytes = serde_json::to_vec(&conf).unwrap();
        let reply = reply::add(&NetConf::parse(&bytes).unwrap()).unwrap();
        assert_eq!(serde_json::from_str::<CNIResultWithVersion>(&reply).unwrap(), written, "{version}");
    }
}

#[test]
fn the_oracle_reads_an_add_without_prev_result_as_empty() {
    for version in Version::ALL {
        let bytes = serde_json::to_vec(&json!({"cniVersion": version.as_str(), "name": "n"})).unwrap();
        let reply = reply::add(&NetConf::parse(&bytes).unwrap()).unwrap();
        let read: CNIResultWithVersion = serde_json::from_str(&reply).unwrap();
        assert_eq!(read.cni_version(), oracle_version(version));
        assert!(read.result().interfaces.is_empty() && read.result().ips.is_empty(), "{version}");
    }
}

#[test]
fn the_oracle_reads_every_failure_as_the_same_code() {
    let codes = [
        (Code::IncompatibleVersion, OracleError::IncompatibleVersion("d".into())),
        (Code::UnknownContainer, OracleError::NotExist("d".into())),
        (Code::InvalidEnvironment, OracleError::InvalidEnvValue("d".into())),
        (Code::Io, OracleError::IOFailure("d".into())),
        (Code::Decode, OracleError::FailedToDecode("d".into())),
        (Code::InvalidConfig, OracleError::InvalidNetworkConfig("d".into())),
        (Code::InvalidNetns, OracleError::InvalidNetNS("d".into())),
        (Code::TryAgainLater, OracleError::TryAgainLater("d".into())),
        (Code::Plugin, OracleError::Custom(999, "m".into(), "d".into())),
    ];
    for version in Version::ALL {
        for (code, theirs) in &codes {
            assert_eq!(code.number(), u32::from(theirs));
            let ours = Failure { code: *code, msg: "m".into(), details: "d".into() };
            let reply = ours.to_json(Some(version));
            let read: ErrorResult = serde_json::from_str(&reply).unwrap();
            assert_eq!(&OracleError::from(read), theirs);

            let mut written = serde_json::to_value(ErrorResult::new(oracle_version(version), theirs)).unwrap();
            written["msg"] = "m".into();
            assert_eq!(serde_json::from_str::<Value>(&reply).unwrap(), written, "{version}");
        }
    }
}

#[test]
fn missing_variables_are_listed_alike() {
    let error = Call::parse(&|name| (name == "CNI_COMMAND").then(|| "ADD".to_owned())).unwrap_err();
    let theirs = OracleError::missing_env(&["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"]);
    assert_eq!(error.to_string(), theirs.details());
    assert_eq!(error.code().number(), u32::from(&theirs));
}
