//! Tests of traversals of small rule sets.

use ruleset::Proto;

use super::*;

fn outbound(to: &str, uid: u32) -> Connection {
    let source = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 40000);
    let direction = Direction::Outbound { interface: "eth0".to_owned(), uid, gid: uid };
    Connection { direction, protocol: Proto::Tcp, source, destination: to.parse().unwrap() }
}

fn inbound(to: &str) -> Connection {
    let direction = Direction::Inbound { interface: "eth0".to_owned() };
    Connection { direction, ..outbound(to, 0) }
}

fn walked(rules: &str, connection: &Connection) -> Trace {
    trace(&Ruleset::parse(rules).unwrap(), connection)
}

/// Returns the matching rules, each as `table/chain/number`.
fn path(trace: &Trace) -> Vec<String> {
    let matching = trace.hops.iter().filter(|hop| matches!(hop.effect, Effect::Match { .. }));
    matching.map(|hop| format!("{}/{}/{}", hop.table, hop.chain, hop.number.unwrap_or(0))).collect()
}

const NAT: &str = "*nat\n:OUTPUT ACCEPT [0:0]\n:OWN - [0:0]\n-A OUTPUT -p tcp -j OWN\n\
                   -A OWN -m owner --uid-owner 1337 -j RETURN\n-A OWN -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n";

#[test]
fn the_first_matching_rule_of_a_chain_applies() {
    let redirected = walked(NAT, &outbound("10.1.1.1:80", 1000));
    assert_eq!(redirected.verdict, Verdict::Redirected { port: 15001 });
    assert_eq!(path(&redirected), ["nat/OUTPUT/1", "nat/OWN/2"]);
    let of_proxy = walked(NAT, &outbound("10.1.1.1:80", 1337));
    assert_eq!(of_proxy.verdict, Verdict::Direct);
    assert_eq!(path(&of_proxy), ["nat/OUTPUT/1", "nat/OWN/1"]);
}

#[test]
fn a_chain_returns_to_the_caller_after_a_jump_and_to_its_caller_after_a_goto() {
    let rules = |how: &str| {
        format!(
            "*nat\n:A - [0:0]\n-A OUTPUT {how} A\n-A OUTPUT -p tcp -j REDIRECT --to-ports 1\n-A A -j RETURN\nCOMMIT"
        )
    };
    assert_eq!(walked(&rules("-j"), &outbound("10.1.1.1:80", 1)).verdict, Verdict::Redirected { port: 1 });
    assert_eq!(walked(&rules("-g"), &outbound("10.1.1.1:80", 1)).verdict, Verdict::Direct);
}

#[test]
fn an_unknown_condition_makes_the_verdict_undetermined_only_where_it_decides() {
    let rules = "*filter\n-A OUTPUT -d 10.9.0.0/16 -m set --match-set x dst -j DROP\nCOMMIT";
    assert_eq!(walked(rules, &outbound("10.1.1.1:80", 1)).verdict, Verdict::Direct);
    let undetermined = walked(rules, &outbound("10.9.1.1:80", 1));
    assert_eq!(undetermined.verdict, Verdict::Undetermined);
    let last = undetermined.hops.last().unwrap();
    assert_eq!(last.effect, Effect::Undetermined { condition: "--match-set x dst".to_owned() });
    let logged = "*filter\n-A OUTPUT -m limit --limit 5/min -j LOG --log-prefix \"a -j b\"\n-A OUTPUT -j DROP\nCOMMIT";
    assert_eq!(walked(logged, &outbound("10.9.1.1:80", 1)).verdict, Verdict::Dropped);
}

#[test]
fn policies_and_filter_rules_drop() {
    let policy =
        walked("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 80 -j ACCEPT\nCOMMIT", &inbound("10.0.0.2:81"));
    assert_eq!((policy.verdict, policy.hops.last().unwrap().number), (Verdict::Dropped, None));
    let accepted =
        walked("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 80 -j ACCEPT\nCOMMIT", &inbound("10.0.0.2:80"));
    assert_eq!(accepted.verdict, Verdict::Direct);
    assert_eq!(walked("*filter\n-A OUTPUT -j REJECT\nCOMMIT", &outbound("10.1.1.1:80", 1)).verdict, Verdict::Dropped);
}

#[test]
fn marks_are_set_and_compared_under_their_masks() {
    let rules = "*mangle\n-A OUTPUT -j MARK --set-xmark 0x539/0xfff\n-A OUTPUT -m mark --mark 0x539/0xff -j DROP\n\
                 -A OUTPUT -m mark ! --mark 0x539/0xfff -j DROP\n-A OUTPUT -j CONNMARK --save-mark\n\
                 -A OUTPUT -m connmark --mark 0x539 -j ACCEPT\n-A OUTPUT -j DROP\nCOMMIT";
    assert_eq!(walked(rules, &outbound("10.1.1.1:80", 1)).verdict, Verdict::Direct);
}

#[test]
fn marks_of_connections_are_set_saved_and_restored_under_their_masks() {
    let verdict = |rules: &str| {
        let text =
            format!("*mangle\n-A OUTPUT -j MARK --set-xmark 0x1234/0xffffffff\n{rules}\n-A OUTPUT -j DROP\nCOMMIT");
        walked(&text, &outbound("10.1.1.1:80", 1)).verdict
    };
    for rules in [
        "-A OUTPUT -j CONNMARK --set-xmark 0x111/0xfff\n-A OUTPUT -m connmark --mark 0x111 -j ACCEPT",
        "-A OUTPUT -j CONNMARK --set-mark 0x111\n-A OUTPUT -m connmark --mark 0x111 -j ACCEPT",
        "-A OUTPUT -j CONNMARK --or-mark 0x3\n-A OUTPUT -m connmark --mark 0x3 -j ACCEPT",
        "-A OUTPUT -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xffffffff\n-A OUTPUT -m connmark --mark 0x34 -j ACCEPT",
        "-A OUTPUT -j CONNMARK --set-xmark 0x9/0xff\n-A OUTPUT -j CONNMARK --restore-mark --mask 0xff\n\
         -A OUTPUT -m mark --mark 0x1209 -j ACCEPT",
    ] {
        assert_eq!(verdict(rules), Verdict::Direct, "{rules}");
    }
    assert_eq!(verdict("-A OUTPUT -j CONNMARK --save-mark --mask x"), Verdict::Undetermined);
    assert_eq!(verdict("-A OUTPUT -j CONNMARK"), Verdict::Undetermined);
}

#[test]
fn a_cycle_of_chains_makes_the_verdict_undetermined() {
    let rules = "*nat\n:A - [0:0]\n:B - [0:0]\n-A OUTPUT -j A\n-A A -j B\n-A B -j A\nCOMMIT";
    assert_eq!(walked(rules, &outbound("10.1.1.1:80", 1)).verdict, Verdict::Undetermined);
}

#[test]
fn other_translations_are_reported_as_such() {
    let to = |rule: &str| walked(&format!("*nat\n-A PREROUTING {rule}\nCOMMIT"), &inbound("10.0.0.2:80")).verdict;
    assert_eq!(
        to("-p tcp -j DNAT --to-destination 10.0.0.9:81"),
        Verdict::Rewritten { to: "10.0.0.9:81".parse().unwrap() }
    );
    assert_eq!(to("-p udp -j DNAT --to-destination 10.0.0.9:81"), Verdict::Direct);
    assert_eq!(to("-j DNAT --to-destination 10.0.0.1-10.0.0.9"), Verdict::Undetermined);
    assert_eq!(to("-p tcp -j REDIRECT"), Verdict::Redirected { port: 80 });
}

/// Traces a connection through `rule` and then a rule that redirects it to port 15001.
fn before_redirect(rule: &str) -> Trace {
    let rules = format!("*nat\n-A OUTPUT {rule}\n-A OUTPUT -p tcp -j REDIRECT --to-ports 15001\nCOMMIT");
    walked(&rules, &outbound("10.1.1.1:80", 1))
}

#[test]
fn what_cannot_be_printed_makes_the_verdict_undetermined() {
    for (rule, expected) in [
        ("-p tcp -m tcp [...] -j RETURN", "-m tcp [...]"),
        ("-m tcp --dport 80 [...] -j ACCEPT", "-m tcp [...]"),
        ("-p tcp [range] -j ACCEPT", "[range]"),
        ("-m tcp --dport 80 [ct] [comparison] -j ACCEPT", "[ct]"),
        ("-d 10.0.0.0/8 [fib] -j ACCEPT", "[fib]"),
        ("-j REDIRECT [...]", "-j REDIRECT"),
        ("-j CT --zone 1 [...]", "-j CT"),
        ("-j [nat]", "-j [nat]"),
        ("-j [queue]", "-j [queue]"),
        ("-j MARK --set-xmark 0x1/0x1 -j ACCEPT", "-j MARK -j ACCEPT"),
        ("-j CT --notrack", "-j CT"),
        ("-j NOTRACK", "-j NOTRACK"),
        ("-j TPROXY --on-port 1 --tproxy-mark x", "-j TPROXY"),
    ] {
        let traced = before_redirect(rule);
        assert_eq!(traced.verdict, Verdict::Undetermined, "{rule}");
        let last = traced.hops.last().unwrap();
        assert_eq!(last.effect, Effect::Undetermined { condition: expected.to_owned() }, "{rule}");
    }
}

#[test]
fn what_cannot_be_printed_decides_nothing_if_the_rule_does_not_match_or_continues() {
    for rule in [
        "-m tcp --dport 81 [ct] -j [nat]",
        "-p udplite -m udp [...] -j RETURN",
        "-j LOG [...]",
        "-m limit [...] -j TCPMSS [...]",
        "-j CT --zone 1",
    ] {
        assert_eq!(before_redirect(rule).verdict, Verdict::Redirected { port: 15001 }, "{rule}");
    }
    // A comment has no condition.
    assert_eq!(before_redirect("-m comment [...] -j RETURN").verdict, Verdict::Direct);
    assert_eq!(before_redirect("-m tcp --dport 80:90 -j REDIRECT").verdict, Verdict::Redirected { port: 80 });
    let rewritten = Verdict::Rewritten { to: "[fd00::1]:81".parse().unwrap() };
    assert_eq!(before_redirect("-j DNAT --to-destination [fd00::1]:81").verdict, rewritten);
}
