//! Tests of lists of accounts.

use super::*;
use crate::{Fault, GlobError, PatternError, SettingsError};

fn fault(list: &str) -> PatternError {
    match parse_settings(&[("ALLOWED_SERVICE_ACCOUNTS", list)], Era::Current) {
        Err(SettingsError::Accounts { source, .. }) => source,
        other => panic!("{list}: {other:?}"),
    }
}

#[test]
fn an_invalid_entry_is_reported_with_its_position() {
    for entry in ["namespace", "ns:sa:extra", ":"] {
        let expected = PatternError::Shape { index: 2, entry: entry.into() };
        assert_eq!(fault(&format!("a:b, {entry} ,c:d")), expected);
    }
    for (entry, half, position, fault_expected) in [
        ("ns-[:sa", "namespace", 3, Fault::Unclosed),
        ("ns:sa-[invalid", "name", 3, Fault::Unclosed),
        ("ns:[]", "name", 1, Fault::NoCharacter),
        ("ns:a\\", "name", 1, Fault::Escape),
    ] {
        let source = GlobError { position, fault: fault_expected };
        let expected = PatternError::Glob { index: 1, entry: entry.into(), half, source };
        assert_eq!(fault(entry), expected, "{entry}");
    }
}

#[test]
fn entries_are_trimmed_and_empty_ones_ignored() {
    for (list, account, expected) in [
        ("", "ns:sa", false),
        ("   ", "ns:sa", false),
        (" ns : sa ", "ns:sa", true),
        (",,ns:sa,", "ns:sa", true),
        ("ns:sa", "ns:sa-extra", false),
        ("ns-*:sa", "ns-:sa", true),
        ("ns:sa-[a-z]", "ns:sa-m", true),
        (":sa", "ns:sa", false),
        (":sa", ":sa", true),
        ("ns:sa", "ns:sa:more", true),
        ("*:*", "ns", false),
    ] {
        let settings = settings(&[("ALLOWED_SERVICE_ACCOUNTS_PREFIX_NAMES", list)]);
        let username = format!("system:serviceaccount:{account}");
        let user = User { username: &username, ..User::default() };
        let authority = settings.allowed.authority(user, &BTreeSet::new());
        assert_eq!(authority.is_some(), expected, "{list:?} {account}");
    }
}

#[test]
fn uids_are_used_for_accounts_without_patterns() {
    let there = ["kube-system:replicaset-controller", "tekton-pipelines:tekton-pipelines-controller", "test:test"];
    for (list, expected) in [("", 2), ("test:test", 3), ("abc:abc", 2), ("test:test,abc:abc", 3), ("t*:test", 2)] {
        let allowed = settings(&[("ALLOWED_SERVICE_ACCOUNTS", list)]).allowed;
        let known = there.iter().filter_map(|account| account.split_once(':'));
        assert_eq!(known.filter(|(namespace, name)| allowed.wants_uid(namespace, name)).count(), expected, "{list}");
    }
}
