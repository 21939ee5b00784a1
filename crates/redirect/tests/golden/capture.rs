//! Compares rules with the expected input of `iptables-restore` and of nft in the tests of Istio's package `capture`.

use libtest_mimic::Failed;
use redirect::{Redirect, rules};
use ruleset::{nft, restore};

use crate::same;
use test_cases::configuration;

pub(crate) fn iptables(name: &str, expected: &str) -> Result<(), Failed> {
    let (redirect, ipv6) = case(name)?;
    same(expected, &restore::dry_run(&rules::build(&redirect, ipv6)))
}

pub(crate) fn nftables(name: &str, expected: &str) -> Result<(), Failed> {
    let (redirect, ipv6) = case(name)?;
    same(expected, &nft::render(&rules::build(&redirect, ipv6)))
}

fn case(name: &str) -> Result<(Redirect, bool), Failed> {
    configuration(name).ok_or_else(|| Failed::from(format!("no configuration is known for the case {name:?}")))
}
