//! Describes a rule in a phrase: the traffic that it matches, and the effect on that traffic. Pure.

use redirect::istio;
use ruleset::{CtStates, Match, Proto, Rule, Target, fmt_net};

/// Returns the phrase for a rule, such as "TCP to port 3306 is not redirected".
pub(super) fn phrase(rule: &Rule) -> String {
    let traffic = rule.protocol().map_or("traffic", |protocol| match protocol {
        Proto::Tcp => "TCP",
        Proto::Udp => "UDP",
    });
    let matches: String = rule.matches.iter().filter_map(matched).map(|matched| format!(" {matched}")).collect();
    format!("{traffic}{matches} {}", target(rule))
}

/// Returns the phrase for a condition; `None` for the protocol, which is the subject of the phrase, and for `-m tcp` or
/// `-m udp`, which restricts no traffic by itself.
fn matched(condition: &Match) -> Option<String> {
    let but = |negated: bool, kind: &str| if negated { format!("any {kind} but ") } else { format!("{kind} ") };
    Some(match condition {
        Match::Protocol(_) | Match::Extension(_) => return None,
        Match::InInterface(interface) => format!("arriving by {interface}"),
        Match::OutInterface(interface) => format!("leaving by {interface}"),
        Match::NotOutInterface(interface) => format!("leaving by any interface but {interface}"),
        Match::Source(net) => format!("from {}", fmt_net(net)),
        Match::Destination { net, negated: false } => format!("to {}", fmt_net(net)),
        Match::Destination { net, negated: true } => format!("to any address outside {}", fmt_net(net)),
        Match::DestinationPort { port, negated } => format!("to {}{port}", but(*negated, "port")),
        Match::NotDestinationPorts(ports) => {
            let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
            format!("to any port but {}", ports.join(", "))
        }
        Match::SourcePort(port) => format!("from port {port}"),
        Match::Uid { owner, negated } => format!("of {}{owner}", but(*negated, "user")),
        Match::Gid { owner, negated } => format!("of {}{owner}", but(*negated, "group")),
        Match::CtState(CtStates::Invalid) => "of no valid connection".to_owned(),
        Match::CtState(CtStates::RelatedEstablished) => "of an existing connection".to_owned(),
        Match::Mark { mark, mask, negated: false } => format!("with mark {}", bits(*mark, *mask)),
        Match::Mark { mark, mask, negated: true } => format!("without mark {}", bits(*mark, *mask)),
        Match::ConnMark { mark, mask, negated } => {
            format!("of a connection {} mark {}", if *negated { "without" } else { "with" }, bits(*mark, *mask))
        }
    })
}

/// Formats a mark, with its mask unless all bits of the mask are set.
fn bits(mark: u32, mask: u32) -> String {
    if mask == u32::MAX { mark.to_string() } else { format!("{mark:#x}/{mask:#x}") }
}

fn target(rule: &Rule) -> String {
    match &rule.target {
        Target::Return if rule.chain == istio::OUTPUT_DNS => "returns to the calling chain".to_owned(),
        Target::Return => "is not redirected".to_owned(),
        Target::Accept => "is accepted".to_owned(),
        Target::Drop => "is dropped".to_owned(),
        Target::Jump(chain) => format!("continues in {}", chain.as_str()),
        Target::RedirectTo(port) => format!("goes to port {port} of the pod"),
        Target::Tproxy { port, mark, mask } => {
            format!("goes to port {port} of the pod with its addresses, and gets mark {}", bits(*mark, *mask))
        }
        Target::SetMark { mark, mask } => format!("gets mark {}", bits(*mark, *mask)),
        Target::SaveMark => "gives its mark to its connection".to_owned(),
        Target::RestoreMark => "gets the mark of its connection".to_owned(),
        Target::SetConnMark { mark, mask } => format!("gives its connection mark {}", bits(*mark, *mask)),
        Target::CtZone(zone) => format!("is tracked in zone {zone}"),
    }
}

#[cfg(test)]
mod tests {
    use redirect::rules::build;
    use redirect::{CidrSelector, DnsCapture, InterceptionMode, PortSelector, Redirect};
    use ruleset::Port;

    use super::*;

    #[test]
    fn rules_of_a_default_pod_are_phrased() {
        let redirect = Redirect {
            inbound_ports: PortSelector::All,
            outbound_cidrs: CidrSelector::All,
            outbound_ports_exclude: vec![Port(3306)],
            ..Redirect::default()
        };
        let phrases: Vec<String> = build(&redirect, false).rules.iter().map(phrase).collect();
        for expected in [
            "TCP continues in ISTIO_INBOUND",
            "TCP to port 15008 is not redirected",
            "TCP goes to port 15006 of the pod",
            "TCP to port 3306 is not redirected",
            "traffic of user 1337 is not redirected",
            "traffic leaving by lo from 127.0.0.6/32 is not redirected",
            "traffic to 127.0.0.1/32 is not redirected",
            "traffic continues in ISTIO_REDIRECT",
            "TCP goes to port 15001 of the pod",
        ] {
            assert!(phrases.iter().any(|phrase| phrase == expected), "no {expected:?} in\n{}", phrases.join("\n"));
        }
    }

    #[test]
    fn marks_zones_and_states_are_phrased() {
        let redirect = Redirect {
            mode: InterceptionMode::Tproxy,
            inbound_ports: PortSelector::All,
            dns: DnsCapture::All,
            drop_invalid: true,
            ..Redirect::default()
        };
        let phrases: Vec<String> = build(&redirect, false).rules.iter().map(phrase).collect();
        for expected in [
            "traffic of no valid connection continues in ISTIO_DROP",
            "gets mark 1337",
            "is tracked in zone ",
            "UDP to port 53 ",
            "goes to port 15006 of the pod with its addresses",
        ] {
            assert!(
                phrases.iter().any(|phrase| phrase.contains(expected)),
                "no {expected:?} in\n{}",
                phrases.join("\n")
            );
        }
    }
}
