//! Parses any command line of `istio-iptables`, including the flags of its validation. Checks that an error message is not much longer than
//! the input. Checks that each line of the rules begins with one of the words that this project writes, so that arguments cannot add lines.
//! Checks that environment variables have the same effect as the equivalent flags.
//!
//! The input is a list of arguments, separated by zero bytes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::sync::LazyLock;

use redirect::iptables::{Etc, Flags, Settings};
use redirect::rules;
use ruleset::{Family, restore};

use crate::text;

type Env = BTreeMap<String, String>;

static ETC: LazyLock<Etc> = LazyLock::new(|| Etc::new(String::new(), String::new(), Err(ErrorKind::NotFound.into())));

fn check_rules(settings: &Settings) {
    let rules = rules::build(&settings.redirect, true);
    for family in [Family::V4, Family::V6] {
        for line in restore::render(&rules, family).lines() {
            let is_ours = line == "COMMIT" || ["* ", "-N ", "-A ", "-I "].iter().any(|start| line.starts_with(start));
            assert!(is_ours && !line.contains(['\0', '\r', ';', '`', '$']), "{line:?}");
        }
    }
}

/// Returns the environment variables that are equivalent to the arguments `--flag=value`; `None` if an argument has
/// another form or its flag has no variable.
fn variables(arguments: &[&str]) -> Option<Env> {
    let mut env = Env::new();
    for argument in arguments {
        let (name, value) = argument.strip_prefix("--")?.split_once('=')?;
        let has_variable = !matches!(name, "envoy-port" | "network-namespace" | "cni-mode") && !name.contains('_');
        let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        env.insert(
            has_variable.then(|| name.to_ascii_uppercase().replace('-', "_")).filter(|_| plain)?,
            value.to_owned(),
        );
    }
    Some(env)
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let input = text(input);
    let arguments: Vec<&str> = input.split('\0').collect();
    let argv = ["istio-iptables"].iter().chain(&arguments).map(OsString::from).collect();
    let flags = match Flags::parse_argv(argv) {
        Ok(flags) => flags,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let settings = Settings::parse(&flags, &Env::new(), &ETC);
    match &settings {
        Ok(settings) => check_rules(settings),
        Err(error) => assert!(error.to_string().len() < 2000 + input.len(), "{error}"),
    }
    let Some(env) = variables(&arguments) else { return };
    let by_variables = Settings::parse(&Flags::default(), &env, &ETC);
    match (settings, by_variables) {
        (Ok(flags), Ok(variables)) => assert_eq!(flags, variables, "{env:?}"),
        (Err(flag), Err(variable)) => assert_eq!(flag.to_string(), variable.to_string()),
        (flags, variables) => panic!("{env:?}: {flags:?} and {variables:?}"),
    }
}
