//! Tests of the comparison with existing routing rules and routes.

use super::*;

const ROUTE: MarkRoute = MarkRoute::exact(1337, 133);
const MASKED: MarkRoute = MarkRoute { mark: 0x111, mask: 0xfff, table: 100, priority: Some(32764) };

fn both() -> Vec<Entry> {
    entries(Routes { passthrough: true, marked: Some(ROUTE) }, true)
}

fn masked(ipv6: bool) -> Vec<Entry> {
    entries(Routes { passthrough: false, marked: Some(MASKED) }, ipv6)
}

#[test]
fn only_equivalent_rules_match() {
    let other = MarkRoute { mark: 1338, ..ROUTE };
    let elsewhere = MarkRoute { table: 134, ..ROUTE };
    let wide = MarkRoute { table: 1000, ..ROUTE };
    let ours = Entry::Rule(Family::V4, ROUTE);
    for route in [ROUTE, other, elsewhere, wide] {
        let body = Entry::Rule(Family::V4, route).body("").unwrap();
        assert_eq!(ours.is(&body), Ok(route == ROUTE), "{route:?}");
        assert_eq!(Entry::Rule(Family::V4, route).is(&body), Ok(true), "{route:?}");
        assert_eq!(Entry::Rule(Family::V6, route).is(&body), Ok(false), "{route:?}");
    }
    let body = ours.body("").unwrap();
    for (at, what) in [(1, "to a prefix"), (2, "from a prefix"), (3, "of a tos"), (7, "blackhole"), (8, "inverted")] {
        let mut narrower = body.clone();
        narrower[at] ^= 2;
        assert_eq!(ours.is(&narrower), Ok(false), "{what}");
    }
    let mut masked = Writer::default();
    masked.raw(&body);
    masked.attr(FRA_FWMASK, &0xffff_u32.to_ne_bytes());
    assert_eq!(ours.is(&masked.into_bytes().unwrap()), Ok(false), "of a part of the mark");
}

#[test]
fn a_rule_with_mask_and_priority_is_only_equivalent_to_the_same() {
    let ours = Entry::Rule(Family::V4, MASKED);
    let others = [
        MarkRoute { priority: Some(32763), ..MASKED },
        MarkRoute { priority: None, ..MASKED },
        MarkRoute { mask: u32::MAX, ..MASKED },
    ];
    for other in others {
        assert_eq!(ours.is(&Entry::Rule(Family::V4, other).body("").unwrap()), Ok(false), "{other:?}");
    }
    let any_priority = Entry::Rule(Family::V4, MarkRoute { priority: None, ..MASKED });
    assert_eq!(any_priority.is(&ours.body("").unwrap()), Ok(true));
}

#[test]
fn written_entries_are_read_back_and_truncated_ones_refused() {
    for entry in both().into_iter().chain(masked(true)) {
        let body = entry.body("").unwrap();
        assert_eq!(entry.is(&body), Ok(true), "{entry}");
        assert!(entry.is(&body[..7]).is_err(), "{entry}");
    }
}

#[test]
fn entries_are_printed_in_the_syntax_of_ip() {
    let printed = both().into_iter().chain(masked(false)).map(|entry| entry.to_string()).collect::<Vec<_>>();
    let expected = [
        "address ::6/128 of lo",
        "IPv4 routing rule `fwmark 0x539 lookup 133`",
        "IPv4 route `local default dev lo` of table 133",
        "IPv6 routing rule `fwmark 0x539 lookup 133`",
        "IPv6 route `local default dev lo` of table 133",
        "IPv4 routing rule `fwmark 0x111/0xfff lookup 100 priority 32764`",
        "IPv4 route `local default dev lo` of table 100",
    ];
    assert_eq!(printed, expected);
}
