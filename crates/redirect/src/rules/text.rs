//! Tests that in the formatted rules of random settings no value becomes more than one word.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use contract::annotation;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use ruleset::restore::{dry_run, render, save_form, written_form};
use ruleset::{At, Family, Match, Spelling, Target, nft};

use super::build;
use crate::annotations::{Interception, from_pod};
use crate::{DnsCapture, PodSettings, Redirect};

/// Generates annotations with valid lists or with noise; noise that passes the parsers becomes part of a rule.
fn annotated() -> impl Strategy<Value = (String, String)> {
    let port = any::<u16>().prop_map(|p| p.to_string());
    let v4 = (any::<[u8; 4]>(), 0..=32u8).prop_map(|(a, p)| format!("{}/{p}", Ipv4Addr::from(a)));
    let v6 = (any::<[u8; 16]>(), 0..=128u8).prop_map(|(a, p)| format!("{}/{p}", Ipv6Addr::from(a)));
    let cut = select(vec![" ", "\n", "\t", "\0", "\u{a0}", ";", " -j ACCEPT "]);
    let two_words = ("[a-z0-9]{1,2}", cut, "[a-z0-9]{0,4}").prop_map(|(a, cut, b)| format!("{a}{cut}{b}"));
    let noise = prop_oneof![1 => Just("*".to_owned()), 8 => two_words, 1 => any::<String>()];
    let list = |element: BoxedStrategy<String>| vec(element, 0..4).prop_map(|parts| parts.join(", "));
    let ports = select(vec![
        annotation::INCLUDE_INBOUND_PORTS,
        annotation::EXCLUDE_INBOUND_PORTS,
        annotation::INCLUDE_OUTBOUND_PORTS,
        annotation::EXCLUDE_OUTBOUND_PORTS,
    ]);
    let cidrs = select(vec![annotation::INCLUDE_OUTBOUND_CIDRS, annotation::EXCLUDE_OUTBOUND_CIDRS]);
    let nics = select(vec![annotation::EXCLUDE_INTERFACES, annotation::REROUTE_VIRTUAL_INTERFACES]);
    let any_key = prop_oneof![ports.clone(), cidrs.clone(), nics.clone()];
    prop_oneof![
        2 => (Just(annotation::INTERCEPTION_MODE), select(vec!["TPROXY", "REDIRECT"]).prop_map(str::to_owned)),
        4 => (ports, list(port.boxed())),
        4 => (cidrs, list(prop_oneof![v4, v6].boxed())),
        4 => (nics, list("[a-zA-Z][a-zA-Z0-9_.-]{0,14}".boxed())),
        4 => (any_key, noise),
    ]
    .prop_map(|(key, value)| (key.to_owned(), value))
}

fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    vec(annotated(), 0..6).prop_map(|pairs| pairs.into_iter().collect())
}

/// Generates a pod's settings, including some that only the command line can set.
fn redirects() -> impl Strategy<Value = Redirect> {
    let dns = (vec(any::<[u8; 4]>(), 0..3), vec(any::<[u8; 16]>(), 0..3)).prop_map(|(v4, v6)| DnsCapture::Servers {
        v4: v4.into_iter().map(Into::into).collect(),
        v6: v6.into_iter().map(Into::into).collect(),
    });
    (annotations(), dns, any::<bool>(), any::<u32>()).prop_filter_map(
        "refused",
        |(annotations, dns, drop_invalid, mark)| match from_pod(PodSettings {
            annotations: &annotations,
            env: None,
            run_as_user: None,
            run_as_group: None,
        }) {
            Ok(Interception::Redirect { redirect, .. }) => {
                Some(Redirect { dns, drop_invalid, tproxy_mark: mark, ..*redirect })
            }
            _ => None,
        },
    )
}

proptest! {
    #[test]
    fn no_value_becomes_more_than_one_word(redirect in redirects(), ipv6 in any::<bool>()) {
        let rules = build(&redirect, ipv6);
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./:,!*{} \n".contains(c);
        for text in [dry_run(&rules), nft::render(&rules).replace(['=', ';'], "")] {
            prop_assert!(text.chars().all(allowed), "{}", text);
        }
        for family in [Family::V4, Family::V6] {
            let text = render(&rules, family);
            let rule_lines = text.lines().filter(|l| l.starts_with("-A ") || l.starts_with("-I ")).count();
            prop_assert_eq!(rule_lines, rules.of(family).count());
            for rule in rules.of(family) {
                // The number of words if each value is one word.
                let words = written_form(rule, family, Spelling::Sidecar).split(' ').count();
                let expected = 2
                    + usize::from(rule.at != At::End)
                    + rule.matches.iter().map(words_of_match).sum::<usize>()
                    + words_of_target(&rule.target);
                prop_assert_eq!(words, expected);
                prop_assert!(save_form(rule, family).chars().all(allowed));
            }
        }
    }
}

fn words_of_match(m: &Match) -> usize {
    match m {
        Match::InInterface(_) | Match::OutInterface(_) | Match::Source(_) | Match::Protocol(_) => 2,
        Match::Destination { negated, .. } | Match::DestinationPort { negated, .. } => 2 + usize::from(*negated),
        Match::NotDestinationPorts(_) => 5,
        Match::SourcePort(_) | Match::Extension(_) => 2,
        Match::NotOutInterface(_) => 3,
        Match::Uid { negated, .. }
        | Match::Gid { negated, .. }
        | Match::Mark { negated, .. }
        | Match::ConnMark { negated, .. } => 4 + usize::from(*negated),
        Match::CtState(_) => 4,
    }
}

fn words_of_target(target: &Target) -> usize {
    match target {
        Target::Return | Target::Accept | Target::Drop | Target::Jump(_) => 2,
        Target::SaveMark | Target::RestoreMark => 3,
        Target::RedirectTo(_) | Target::SetMark { .. } | Target::SetConnMark { .. } | Target::CtZone(_) => 4,
        Target::Tproxy { .. } => 6,
    }
}
