//! Formats the explanation of a pod as text or JSON.

use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::netfilter::restore;
use crate::plugin::SkipReason;
use crate::redirect::{CidrSelector, DnsCapture, InterceptionMode, OwnerGroups, PortSelector, Redirect};
use crate::rules::{Family, RuleSet};

/// The explanation of a pod.
pub(super) struct Explained {
    /// `namespace/name`
    pub(super) subject: String,
    /// Addresses; none before the pod has a network.
    pub(super) ips: Vec<IpAddr>,
    /// Istio's sidecar.
    pub(super) injection: Injection,
    /// Dapr's sidecar, if the pod uses Dapr.
    pub(super) dapr: Option<Injection>,
    /// Warnings of the webhook.
    pub(super) warnings: Vec<String>,
    pub(super) redirection: Redirection,
}

/// The webhook's decision.
pub(super) enum Injection {
    /// The pod already has the sidecar.
    Already,
    Yes {
        rule: &'static str,
        reason: String,
        added: Vec<String>,
    },
    No {
        rule: &'static str,
        reason: String,
    },
    /// The webhook refuses the pod.
    Fails(String),
}

/// The plugin's decision.
pub(super) enum Redirection {
    Yes {
        redirect: Box<Redirect>,
        rules: RuleSet,
        warnings: Vec<String>,
    },
    No(SkipReason),
    /// The plugin refuses the pod's sandbox.
    Fails(String),
    /// The webhook refuses the pod, so the plugin is not called.
    NoPod,
}

impl Explained {
    /// Formats as text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("pod {}\n", self.subject);
        let _ = writeln!(text, "  injected:   {}", self.injection.sentence());
        if let Some(dapr) = &self.dapr {
            let _ = writeln!(text, "  dapr:       {}", dapr.sentence());
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "  warning:    {warning}");
        }
        let _ = writeln!(text, "  redirected: {}", self.redirection.sentence());
        if let Redirection::Yes { redirect, rules, warnings } = &self.redirection {
            for warning in warnings {
                let _ = writeln!(text, "  warning:    {warning}");
            }
            text += "  parameters:\n";
            for (name, value) in parameters(redirect) {
                let _ = writeln!(text, "    {name:<24} {}", shown(&value));
            }
            for (family, title) in families(rules) {
                let _ = writeln!(text, "  rules ({title}):");
                for line in restore::render(rules, family).lines() {
                    let _ = writeln!(text, "    {line}");
                }
            }
        }
        text
    }

    /// Formats as JSON.
    pub(super) fn json(&self) -> Value {
        let mut json =
            json!({ "pod": self.subject, "injection": self.injection.json(), "redirection": self.redirection.json() });
        if let Some(dapr) = &self.dapr {
            json["dapr"] = dapr.json();
        }
        json["warnings"] = json!(self.warnings);
        json
    }
}

impl Injection {
    fn sentence(&self) -> String {
        match self {
            Self::Already => "already".to_owned(),
            Self::Yes { reason, added, .. } => format!("yes: {reason}; it gets {}", added.join(", ")),
            Self::No { reason, .. } => format!("no: {reason}"),
            Self::Fails(error) => format!("it is refused: {error}"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Already => json!({ "injected": true, "rule": "already" }),
            Self::Yes { rule, reason, added } => {
                json!({ "injected": true, "rule": rule, "reason": reason, "containers": added })
            }
            Self::No { rule, reason } => json!({ "injected": false, "rule": rule, "reason": reason }),
            Self::Fails(error) => json!({ "injected": false, "rule": "error", "reason": error }),
        }
    }
}

impl Redirection {
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Yes { redirect, rules, .. } => {
                format!("yes, by {} with {} rules", mode(redirect), rules.rules.len())
            }
            Self::No(reason) => format!("no: {reason}"),
            Self::Fails(error) => format!("it does not start: {error}"),
            Self::NoPod => "there is no pod".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Yes { redirect, rules, warnings } => {
                let of = |(family, title): (Family, &str)| {
                    let lines: Vec<String> = restore::render(rules, family).lines().map(str::to_owned).collect();
                    (title.to_owned(), json!(lines))
                };
                let parameters = parameters(redirect).into_iter().map(|(name, value)| (name.to_owned(), value));
                json!({
                    "redirected": true, "warnings": warnings,
                    "parameters": Value::Object(parameters.collect()),
                    "rules": Value::Object(families(rules).into_iter().map(of).collect()),
                })
            }
            Self::No(reason) => json!({ "redirected": false, "reason": reason.as_str() }),
            Self::Fails(error) => json!({ "redirected": false, "reason": "error", "error": error }),
            Self::NoPod => json!({ "redirected": false, "reason": "no_pod" }),
        }
    }
}

fn families(rules: &RuleSet) -> Vec<(Family, &'static str)> {
    let all = [(Family::V4, "IPv4"), (Family::V6, "IPv6")];
    all.into_iter().filter(|(family, _)| *family == Family::V4 || rules.ipv6).collect()
}

fn mode(redirect: &Redirect) -> &'static str {
    match redirect.mode {
        InterceptionMode::Redirect => "REDIRECT",
        InterceptionMode::Tproxy => "TPROXY",
    }
}

/// Returns the parameters by their `istio-iptables` flag names.
fn parameters(redirect: &Redirect) -> Vec<(&'static str, Value)> {
    let ports = |ports: &PortSelector| match ports {
        PortSelector::None => json!([]),
        PortSelector::All => json!("*"),
        PortSelector::List(ports) => list(ports),
    };
    let cidrs = |cidrs: &CidrSelector| match cidrs {
        CidrSelector::None => json!([]),
        CidrSelector::All => json!("*"),
        CidrSelector::List(nets) => list(nets),
    };
    let groups = match &redirect.owner_groups {
        OwnerGroups::AllBut(groups) if groups.is_empty() => json!("*"),
        OwnerGroups::AllBut(groups) => json!({ "allBut": list(groups) }),
        OwnerGroups::Only(groups) => list(groups),
    };
    let dns = match &redirect.dns {
        DnsCapture::Off => json!(false),
        DnsCapture::All => json!(true),
        DnsCapture::Servers { v4, v6 } => {
            json!(v4.iter().map(ToString::to_string).chain(v6.iter().map(ToString::to_string)).collect::<Vec<_>>())
        }
    };
    vec![
        ("interception-mode", json!(mode(redirect))),
        ("proxy-port", json!(redirect.proxy_port.0)),
        ("inbound-capture-port", json!(redirect.inbound_capture_port.0)),
        ("proxy-uid", list(&redirect.proxy_uids)),
        ("proxy-gid", list(&redirect.proxy_gids)),
        ("inbound-ports", ports(&redirect.inbound_ports)),
        ("inbound-ports-exclude", list(&redirect.inbound_ports_exclude)),
        ("outbound-ports", list(&redirect.outbound_ports_include)),
        ("outbound-ports-exclude", list(&redirect.outbound_ports_exclude)),
        ("outbound-ranges", cidrs(&redirect.outbound_cidrs)),
        ("outbound-ranges-exclude", list(&redirect.outbound_cidrs_exclude)),
        ("outbound-owner-groups", groups),
        ("exclude-interfaces", list(&redirect.exclude_interfaces)),
        ("virtual-interfaces", list(&redirect.virtual_interfaces)),
        ("capture-dns", dns),
        ("dual-stack", json!(redirect.dual_stack)),
        ("drop-invalid", json!(redirect.drop_invalid)),
    ]
}

fn list<T: Display>(items: &[T]) -> Value {
    items.iter().map(ToString::to_string).collect()
}

/// Formats a value of [`parameters`] as text.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        Value::String(text) => text.clone(),
        Value::Object(map) => format!("all but {}", map.values().map(shown).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
