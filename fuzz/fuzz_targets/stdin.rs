//! Any standard input: parsed or refused, and the answer is JSON. A prevResult that is accepted comes back unchanged.
#![no_main]

use istio_cni::cni::{NetConf, reply};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn one_json_line(answer: &str) -> Value {
    assert!(answer.ends_with('\n'));
    serde_json::from_str(answer).unwrap()
}

fuzz_target!(|stdin: &[u8]| {
    let conf = match NetConf::parse(stdin) {
        Ok(conf) => conf,
        Err(error) => {
            let code = one_json_line(&reply::Failure::from(&error).to_json(None))["code"].as_u64().unwrap();
            assert!(matches!(code, 1 | 6 | 7), "{error}");
            return;
        }
    };
    match (reply::add(&conf), conf.prev_result) {
        (Ok(answer), Some(given)) => assert_eq!(answer.trim_end_matches('\n'), given.get()),
        (Ok(answer), None) => assert_eq!(one_json_line(&answer)["cniVersion"], conf.version.as_str()),
        (Err(error), given) => {
            assert!(given.is_some(), "{error}");
            assert!(matches!(error.code().number(), 6 | 7), "{error}");
        }
    }
});
