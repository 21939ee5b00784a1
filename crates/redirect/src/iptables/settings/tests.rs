//! Tests of the precedence of sources, and of the settings that result.

use std::ffi::OsString;

use super::*;

fn parse_in(etc: &Etc, line: &str, env: &[(&str, &str)]) -> Result<Settings, Error> {
    let argv = ["istio-iptables"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
    let flags = Flags::parse_argv(argv.map(OsString::from).collect()).unwrap();
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings::parse(&flags, &env, etc)
}

fn parse(line: &str, env: &[(&str, &str)]) -> Result<Settings, Error> {
    parse_in(&Etc::of("", "", None), line, env)
}

fn redirect(line: &str, env: &[(&str, &str)]) -> Redirect {
    parse(line, env).unwrap().redirect
}

fn refusal(line: &str, env: &[(&str, &str)]) -> String {
    parse(line, env).unwrap_err().to_string()
}

#[test]
fn no_input_gives_istios_base_configuration() {
    let settings = parse("", &[]).unwrap();
    assert_eq!(settings.redirect, Redirect::default());
    assert_eq!(settings.action, Action::Program { replace: false });
    assert_eq!((settings.validation, settings.forced, settings.native_nftables), (None, None, false));
    assert_eq!(parse("--force-iptables-binary legacy", &[]).unwrap().forced, Some(IptablesBinary::Legacy));
}

#[test]
fn precedence_is_flag_additional_variable_variable_default() {
    let both = [("ISTIO_META_DNS_CAPTURE", "true"), ("REDIRECT_DNS", "false"), ("CAPTURE_ALL_DNS", "1")];
    assert_eq!(redirect("", &both).dns, DnsCapture::All);
    assert_eq!(redirect("--redirect-dns=false", &both).dns, DnsCapture::Off);
    assert_eq!(redirect("", &both[1..]).dns, DnsCapture::Off);
    let port = [("INBOUND_CAPTURE_PORT", "7")];
    assert_eq!(redirect("", &port).inbound_capture_port, Port(7));
    assert_eq!(redirect("-z 8", &port).inbound_capture_port, Port(8));
}

#[test]
fn the_proxys_port_has_no_variable() {
    assert_eq!(redirect("", &[("ENVOY_PORT", "7")]).proxy_port, Port(15001));
}

#[test]
fn an_invalid_variable_is_ignored_with_a_warning() {
    let settings = parse("", &[("ISTIO_DUAL_STACK", "maybe"), ("DUAL_STACK", "true"), ("PROBE_TIMEOUT", "5")]).unwrap();
    assert!(settings.redirect.dual_stack);
    let wanted = ["ISTIO_DUAL_STACK: \"maybe\" is invalid and ignored", "PROBE_TIMEOUT: \"5\" is invalid and ignored"];
    assert_eq!(settings.warnings, wanted);
}

#[test]
fn each_flag_has_the_variable_that_the_reference_names() {
    let command = <Flags as clap::CommandFactory>::command();
    let of = |env: &[(&str, &str)]| parse("", env).map_err(|error| error.to_string());
    for flag in command.get_arguments().filter(|flag| !flag.is_hide_set() && flag.get_id() != "help") {
        let name = flag.get_id().as_str();
        let values = ["true", "7", "*", "TPROXY", "10.1.0.0/16", "eth9", "5m", "legacy"];
        // CAPTURE_ALL_DNS has an effect only if DNS is captured, and the parameters of validation only if validation
        // runs.
        let with = [("REDIRECT_DNS", "true"), ("CAPTURE_ALL_DNS", "true"), ("RUN_VALIDATION", "true")];
        let with: Vec<_> = with.into_iter().filter(|(other, _)| *other != name.to_uppercase()).collect();
        let effect = |value: &&str| {
            let upper = name.to_uppercase();
            let given: Vec<_> = with.iter().copied().chain([(&*upper, *value)]).collect();
            of(&given) != of(&with)
        };
        assert_eq!(values.iter().any(effect), super::super::variable_of(name).is_some(), "{name}");
    }
}

#[test]
fn every_variable_is_read() {
    let redirect = redirect(
        "",
        &[
            ("INBOUND_TUNNEL_PORT", "1"),
            ("PROXY_UID", "2,3"),
            ("PROXY_GID", "4"),
            ("ISTIO_INBOUND_INTERCEPTION_MODE", "TPROXY"),
            ("ISTIO_INBOUND_PORTS", "*"),
            ("ISTIO_LOCAL_EXCLUDE_PORTS", "5,6,"),
            ("ISTIO_EXCLUDE_INTERFACES", "eth1,"),
            ("ISTIO_SERVICE_CIDR", "10.0.0.1/8"),
            ("ISTIO_SERVICE_EXCLUDE_CIDR", "fd00::/8"),
            ("ISTIO_OUTBOUND_PORTS", "7"),
            ("ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE", "8"),
            ("KUBE_VIRT_INTERFACES", "net1"),
            ("ISTIO_INBOUND_TPROXY_MARK", "9"),
            ("ISTIO_INBOUND_TPROXY_ROUTE_TABLE", "10"),
            ("INVALID_DROP", "true"),
            ("ISTIO_OUTBOUND_OWNER_GROUPS", "java,202"),
            ("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.1/8"),
        ],
    );
    let wanted = Redirect {
        mode: InterceptionMode::Tproxy,
        inbound_tunnel_port: Port(1),
        proxy_uids: vec![Owner::Id(2), Owner::Id(3)],
        proxy_gids: vec![Owner::Id(4)],
        inbound_ports: PortSelector::All,
        inbound_ports_exclude: vec![Port(5), Port(6)],
        outbound_ports_include: vec![Port(7)],
        outbound_ports_exclude: vec![Port(8)],
        outbound_cidrs: CidrSelector::List(vec!["10.0.0.1/8".parse().unwrap()]),
        outbound_cidrs_exclude: vec!["fd00::/8".parse().unwrap()],
        exclude_interfaces: vec![Interface::new("eth1").unwrap()],
        virtual_interfaces: vec![Interface::new("net1").unwrap()],
        drop_invalid: true,
        owner_groups: OwnerGroups::Only(vec![Owner::Name("java".to_owned()), Owner::Id(202)]),
        loopback_v4: "127.0.0.1/8".parse().unwrap(),
        tproxy_mark: 9,
        tproxy_table: 10,
        ..Redirect::default()
    };
    assert_eq!(redirect, wanted);
}

#[test]
fn the_proxys_user_is_the_flag_or_from_passwd_or_1337() {
    let etc = Etc::of("istio-proxy:x:4711:1::/:/bin/sh\nenvoy:x:4712:1::/:/bin/sh\n", "", None);
    let uids = |line, env: &[(&str, &str)]| {
        let redirect = parse_in(&etc, line, env).unwrap().redirect;
        assert_eq!(redirect.proxy_gids, redirect.proxy_uids, "{line}");
        redirect.proxy_uids
    };
    assert_eq!(uids("", &[]), [Owner::Id(4711)]);
    assert_eq!(uids("", &[("ENVOY_USER", "envoy")]), [Owner::Id(4712)]);
    assert_eq!(uids("", &[("ENVOY_USER", "nobody")]), [Owner::Id(1337)]);
    assert_eq!(uids("-u 1,app", &[]), [Owner::Id(1), Owner::Name("app".to_owned())]);
}

#[test]
fn resolvers_are_read_only_for_capture_by_resolver() {
    let etc = Etc::of("", "", Some("nameserver 10.96.0.10\n"));
    let dns = |line| parse_in(&etc, line, &[]).unwrap().redirect.dns;
    assert_eq!(dns("--redirect-dns"), DnsCapture::Servers { v4: vec!["10.96.0.10".parse().unwrap()], v6: vec![] });
    assert_eq!(dns("--redirect-dns --capture-all-dns"), DnsCapture::All);
    assert_eq!(dns("--capture-all-dns"), DnsCapture::Off);
    assert!(refusal("--redirect-dns", &[]).starts_with("/etc/resolv.conf cannot be read"));
}

#[test]
fn actions_follow_their_flags() {
    let action = |line| parse(line, &[]).unwrap().action;
    assert_eq!(action("--reconcile"), Action::Program { replace: true });
    assert_eq!(action("--force-apply"), Action::Program { replace: true });
    assert_eq!(action("--cleanup-only"), Action::Clean);
    assert_eq!(action("--cleanup-only -n"), Action::Print(None));
    assert_eq!(action("--skip-rule-apply --cleanup-only"), Action::Skip);
    let to_file = parse("-n", &[("DRY_RUN_FILE_PATH", "/tmp/rules")]).unwrap().action;
    assert_eq!(to_file, Action::Print(Some("/tmp/rules".into())));
}

#[test]
fn validation_probes_the_ports_of_the_rules() {
    let probe = parse("--run-validation -p 1 -z 2 --iptables-probe-port 3 --probe-timeout 7s", &[]).unwrap().validation;
    let wanted = Probe {
        proxy_port: Port(1),
        inbound_capture_port: Port(2),
        probe_port: Port(3),
        timeout: Duration::from_secs(7),
    };
    assert_eq!(probe, Some(wanted));
}

#[test]
fn invalid_values_are_refused_with_their_flag() {
    for (line, wanted) in [
        ("-x *", "--istio-service-exclude-cidr: \"*\" is not allowed"),
        ("-i 10.0.0.0/33", "--istio-service-cidr: \"10.0.0.0/33\""),
        ("-b 70000", "--istio-inbound-ports: \"70000\""),
        ("-o *", "--istio-local-outbound-ports-exclude: \"*\""),
        ("-p 1,2", "--envoy-port: \"1,2\" is not allowed: expected one port"),
        ("-p= ", "--envoy-port: \"\" is not allowed: expected one port"),
        ("-t 0x539", "--istio-inbound-tproxy-mark: \"0x539\""),
        ("-k eth0;reboot", "--kube-virt-interfaces: \"eth0;reboot\""),
        ("-u 1;2", "--proxy-uid: \"1;2\""),
        ("--force-iptables-binary ebtables", "--force-iptables-binary: \"ebtables\""),
    ] {
        let text = refusal(line, &[]);
        assert!(text.starts_with(wanted), "{line}: {text}");
    }
}

#[test]
fn groups_share_a_rule_and_are_bounded() {
    let groups = |count: u32| (0..count).map(|group| group.to_string()).collect::<Vec<_>>().join(",");
    for (count, ok) in [(63, true), (64, true), (65, false), (100, false)] {
        assert_eq!(parse("", &[("ISTIO_OUTBOUND_OWNER_GROUPS", &groups(count))]).is_ok(), ok, "{count}");
        assert!(parse("", &[("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", &groups(count))]).is_ok(), "{count}");
    }
}

#[test]
fn loopback_ranges_are_within_127() {
    for text in ["192.168.1.1/24", "10.0.0.1/7", "172.16.0.1/40", "127.0.0.1/7"] {
        let refused = refusal("", &[("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", text)]);
        assert!(refused.starts_with("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"), "{refused}");
    }
}
