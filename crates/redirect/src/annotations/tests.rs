//! Tests of the settings that annotations and variables result in, and of the values that are refused.

use std::collections::BTreeMap;

use ruleset::Interface;

use super::*;

/// The fields of a test's pod.
#[derive(Default)]
struct Fields {
    annotations: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
    run_as_user: Option<u32>,
    run_as_group: Option<u32>,
}

impl Fields {
    fn settings(&self) -> PodSettings<'_> {
        let Self { annotations, env, run_as_user, run_as_group } = self;
        PodSettings { annotations, env: Some(env), run_as_user: *run_as_user, run_as_group: *run_as_group }
    }
}

fn fields(annotations: &[(&str, &str)], env: &[(&str, &str)]) -> Fields {
    let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Fields { annotations: owned(annotations), env: owned(env), ..Fields::default() }
}

fn parse(fields: &Fields) -> (Redirect, Vec<Error>) {
    match from_pod(fields.settings()).unwrap() {
        Interception::Redirect { redirect, warnings } => (*redirect, warnings),
        Interception::None => panic!("no redirection was requested"),
    }
}

fn annotated(key: &str, value: &str) -> Redirect {
    let (redirect, warnings) = parse(&fields(&[(key, value)], &[]));
    assert_eq!(warnings, []);
    redirect
}

fn refused(key: &str, value: &str) -> Error {
    let error = from_pod(fields(&[(key, value)], &[]).settings()).unwrap_err();
    assert_eq!(error.key, key);
    error
}

fn ports(numbers: &[u16]) -> Vec<Port> {
    numbers.iter().copied().map(Port).collect()
}

const PORT_LISTS: [&str; 4] = [
    annotation::INCLUDE_INBOUND_PORTS,
    annotation::EXCLUDE_INBOUND_PORTS,
    annotation::INCLUDE_OUTBOUND_PORTS,
    annotation::EXCLUDE_OUTBOUND_PORTS,
];

#[test]
fn without_annotations_all_tcp_is_redirected() {
    let (redirect, warnings) = parse(&Fields::default());
    let expected = Redirect {
        inbound_ports: PortSelector::All,
        inbound_ports_exclude: ports(&[15020, 15021, 15090]),
        outbound_ports_exclude: ports(&[15020]),
        outbound_cidrs: CidrSelector::All,
        ..Redirect::default()
    };
    assert_eq!((redirect, warnings), (expected, Vec::new()));
}

#[test]
fn included_inbound_ports_are_all_none_or_a_list() {
    let inbound = |value| annotated(annotation::INCLUDE_INBOUND_PORTS, value).inbound_ports;
    assert_eq!(inbound("*"), PortSelector::All);
    assert_eq!(inbound(""), PortSelector::None);
    assert_eq!(inbound("3306"), PortSelector::List(ports(&[3306])));
    assert_eq!(inbound(" 80 , 8080 "), PortSelector::List(ports(&[80, 8080])));
}

#[test]
fn status_ports_are_always_excluded_once_and_last() {
    let excluded = |value| annotated(annotation::EXCLUDE_INBOUND_PORTS, value).inbound_ports_exclude;
    assert_eq!(excluded(""), ports(&[15020, 15021, 15090]));
    assert_eq!(excluded("3306"), ports(&[3306, 15020, 15021, 15090]));
    assert_eq!(excluded("15021,3306,15021"), ports(&[15021, 3306, 15020, 15090]));
    assert_eq!(excluded("15090,15021,15020"), ports(&[15090, 15021, 15020]));
    assert_eq!(excluded("1,2,1,2"), ports(&[1, 2, 15020, 15021, 15090]));
}

#[test]
fn an_empty_exclusion_of_outbound_ports_replaces_the_default() {
    assert_eq!(annotated(annotation::EXCLUDE_OUTBOUND_PORTS, "").outbound_ports_exclude, []);
    assert_eq!(annotated(annotation::EXCLUDE_OUTBOUND_PORTS, "25").outbound_ports_exclude, ports(&[25]));
}

#[test]
fn included_ranges_are_all_none_or_a_list() {
    let ranges = |value| annotated(annotation::INCLUDE_OUTBOUND_CIDRS, value).outbound_cidrs;
    assert_eq!(ranges("*"), CidrSelector::All);
    assert_eq!(ranges(""), CidrSelector::None);
    let list = vec!["10.1.2.3/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    assert_eq!(ranges("10.1.2.3/8, 2001:db8::/32"), CidrSelector::List(list));
}

#[test]
fn mode_none_has_no_redirect_and_an_unknown_mode_is_refused() {
    let mode = |value| from_pod(fields(&[(annotation::INTERCEPTION_MODE, value)], &[]).settings());
    assert_eq!(mode("NONE"), Ok(Interception::None));
    assert_eq!(annotated(annotation::INTERCEPTION_MODE, "REDIRECT").mode, InterceptionMode::Redirect);
    assert_eq!(annotated(annotation::INTERCEPTION_MODE, "TPROXY").mode, InterceptionMode::Tproxy);
    for value in ["", "tproxy", "REDIRECT,TPROXY"] {
        assert_eq!(refused(annotation::INTERCEPTION_MODE, value).allowed, "REDIRECT, TPROXY or NONE");
    }
}

#[test]
fn the_former_key_of_virtual_interfaces_is_ignored_if_the_current_key_exists() {
    let (newer, older) = (annotation::REROUTE_VIRTUAL_INTERFACES, annotation::KUBEVIRT_INTERFACES);
    let nics = |pairs: &[(&str, &str)]| {
        let (redirect, _) = parse(&fields(pairs, &[]));
        redirect.virtual_interfaces.iter().map(Interface::to_string).collect::<Vec<_>>()
    };
    assert_eq!(nics(&[(older, "net1,net2")]), ["net1", "net2"]);
    assert_eq!(nics(&[(newer, "net3"), (older, "net1")]), ["net3"]);
    assert!(nics(&[(newer, ""), (older, "net1")]).is_empty());
}

#[test]
fn proxy_ids_come_from_the_container_unless_zero() {
    let ids = |run_as_user, run_as_group| {
        let (redirect, _) = parse(&Fields { run_as_user, run_as_group, ..Fields::default() });
        (redirect.proxy_uids, redirect.proxy_gids)
    };
    let id = |n| vec![Owner::Id(n)];
    assert_eq!(ids(None, None), (id(1337), id(1337)));
    assert_eq!(ids(Some(0), Some(0)), (id(1337), id(1337)));
    assert_eq!(ids(Some(1_000_670_000), Some(1_000_670_001)), (id(1_000_670_000), id(1_000_670_001)));
}

#[test]
fn booleans_are_parsed_as_in_go() {
    for (text, on) in [("1", true), ("t", true), ("TRUE", true), ("True", true), ("0", false), ("F", false)] {
        let env = [proxy_env::DNS_CAPTURE, proxy_env::DUAL_STACK, proxy_env::INVALID_DROP].map(|key| (key, text));
        let (redirect, warnings) = parse(&fields(&[], &env));
        let dns = if on { DnsCapture::All } else { DnsCapture::Off };
        assert_eq!((redirect.dns, redirect.dual_stack, redirect.drop_invalid), (dns, on, on), "{text}");
        assert_eq!(warnings, []);
    }
}

#[test]
fn an_invalid_boolean_is_false_with_a_warning() {
    for text in ["yes", "", "tRUE", "on\u{1b}[2J"] {
        let (redirect, warnings) = parse(&fields(&[], &[(proxy_env::DUAL_STACK, text)]));
        assert!(!redirect.dual_stack);
        assert_eq!(warnings, [Error::new(proxy_env::DUAL_STACK, text, "true or false; using false")]);
    }
}

#[test]
fn groups_and_loopback_come_from_the_proxy_container() {
    let env = [(proxy_env::OWNER_GROUPS_EXCLUDE, "888,9"), (proxy_env::LOOPBACK_CIDR, "127.0.0.1/30")];
    let (redirect, warnings) = parse(&fields(&[], &env));
    assert_eq!(redirect.owner_groups, OwnerGroups::AllBut(vec![Owner::Id(888), Owner::Id(9)]));
    assert_eq!((redirect.loopback_v4, warnings), ("127.0.0.1/30".parse().unwrap(), Vec::new()));
    let env = [(proxy_env::OWNER_GROUPS, "202"), (proxy_env::OWNER_GROUPS_EXCLUDE, "ftp")];
    let (redirect, warnings) = parse(&fields(&[], &env));
    assert_eq!((redirect.owner_groups, warnings), (OwnerGroups::Only(vec![Owner::Id(202)]), Vec::new()));
}

/// Invalid values must not prevent the pod's start: Istio's plugin ignores these variables.
#[test]
fn invalid_groups_and_loopback_are_ignored_in_the_way_that_redirects_more() {
    let many = vec!["7"; 65].join(",");
    for include in ["java,202", "202,-j ACCEPT", &many, "", " ", ","] {
        let (redirect, warnings) = parse(&fields(&[], &[(proxy_env::OWNER_GROUPS, include)]));
        assert_eq!(redirect.owner_groups, OwnerGroups::AllBut(Vec::new()), "{include}");
        assert!(matches!(&warnings[..], [w] if w.key == proxy_env::OWNER_GROUPS && w.allowed.ends_with("using `*`")));
    }
    let many = vec!["7"; 1025].join(",");
    for (exclude, spared) in [("888,ftp", vec![Owner::Id(888)]), ("888,-j ACCEPT", Vec::new()), (&many, Vec::new())] {
        let (redirect, warnings) = parse(&fields(&[], &[(proxy_env::OWNER_GROUPS_EXCLUDE, exclude)]));
        assert_eq!(redirect.owner_groups, OwnerGroups::AllBut(spared), "{exclude}");
        assert!(matches!(&warnings[..], [w] if w.key == proxy_env::OWNER_GROUPS_EXCLUDE), "{warnings:?}");
    }
    for loopback in ["127.0.0.0/8", "127.0.0.1/8", "127.0.0.6/32", "10.0.0.1/8", "", "lo"] {
        let (redirect, warnings) = parse(&fields(&[], &[(proxy_env::LOOPBACK_CIDR, loopback)]));
        assert_eq!(redirect.loopback_v4, "127.0.0.1/32".parse().unwrap(), "{loopback}");
        assert!(matches!(&warnings[..], [w] if w.key == proxy_env::LOOPBACK_CIDR), "{warnings:?}");
    }
}

#[test]
fn a_star_is_refused_where_it_is_not_a_port() {
    for key in &PORT_LISTS[1..] {
        for value in ["*", "80,*"] {
            let error = refused(key, value);
            assert_eq!((&*error.value, error.allowed), ("*", "a comma-separated list of ports from 0 to 65535"));
        }
    }
    assert_eq!(refused(annotation::EXCLUDE_OUTBOUND_CIDRS, "*").value, "*");
}

#[test]
fn an_empty_element_is_refused() {
    let keys = [annotation::INCLUDE_OUTBOUND_CIDRS, annotation::EXCLUDE_INTERFACES];
    for key in PORT_LISTS.iter().chain(&keys) {
        let error = refused(key, ",");
        assert_eq!(error.allowed, "a comma-separated list without empty elements", "{key}");
    }
    assert_eq!(refused(PORT_LISTS[0], "80,,443").value, "80,,443");
    assert_eq!(refused(PORT_LISTS[0], "80,").value, "80,");
}

#[test]
fn values_that_break_out_of_a_list_are_refused() {
    let arguments = "80 -j ACCEPT";
    for key in PORT_LISTS {
        assert_eq!(refused(key, arguments).value, arguments);
        for value in ["65536", "-1", "+1", "0x50", "80;drop", "8０", "80\n443", "http"] {
            assert_eq!(refused(key, value).value, value);
        }
    }
    for value in ["10.0.0.0/33", "10.0.0.0", "10.0.0.0/8 -j ACCEPT", "::/129", "10.0.0/8", "fe80::1%eth0/64"] {
        assert_eq!(refused(annotation::INCLUDE_OUTBOUND_CIDRS, value).value, value);
    }
    for value in ["-j", "eth0 -j ACCEPT", "eth0 net1", "eth0\nnet1", "0eth", "a234567890123456", "eth+", "é"] {
        assert_eq!(refused(annotation::EXCLUDE_INTERFACES, value).value, value);
    }
}

#[test]
fn lists_over_the_bound_are_refused() {
    let list = |n: usize| vec!["80"; n].join(",");
    assert_eq!(annotated(annotation::INCLUDE_OUTBOUND_PORTS, &list(1024)).outbound_ports_include.len(), 1024);
    for key in PORT_LISTS {
        assert_eq!(refused(key, &list(1025)).allowed, "at most 1024 elements");
    }
    let nics = vec!["eth0"; 33].join(",");
    assert_eq!(refused(annotation::EXCLUDE_INTERFACES, &nics).allowed, "at most 32 interfaces");
}

#[test]
fn errors_are_short_and_printable() {
    let error = refused(annotation::EXCLUDE_INTERFACES, &"\u{1b}[31m\r\n".repeat(10_000));
    assert_eq!(error.value.chars().count(), 120);
    let text = error.to_string();
    assert!(text.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{text}");
    assert!(text.starts_with("traffic.sidecar.istio.io/excludeInterfaces: \"\\u{1b}[31m"), "{text}");
}
