//! Parses any standard input of the plugin. Checks that each reply is JSON, and that an accepted prevResult is returned
//! unchanged.

use cni::{NetConf, reply};
use serde_json::Value;

fn one_json_line(reply: &str) -> Value {
    assert!(reply.ends_with('\n'));
    serde_json::from_str(reply).unwrap()
}

/// Checks the properties for one input.
pub fn property(stdin: &[u8]) {
    let conf = match NetConf::parse(stdin) {
        Ok(conf) => conf,
        Err(error) => {
            let code = one_json_line(&reply::Failure::from(&error).to_json(None))["code"].as_u64().unwrap();
            assert!(matches!(code, 1 | 6 | 7), "{error}");
            return;
        }
    };
    match (reply::add(&conf), conf.prev_result) {
        (Ok(reply), Some(given)) => assert_eq!(reply.trim_end_matches('\n'), given.get()),
        (Ok(reply), None) => assert_eq!(one_json_line(&reply)["cniVersion"], conf.version.as_str()),
        (Err(error), given) => {
            assert!(given.is_some(), "{error}");
            assert!(matches!(error.code().number(), 6 | 7), "{error}");
        }
    }
}
