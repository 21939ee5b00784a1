//! Builds the settings of a run from flags, environment and `/etc`.
//!
//! Pure. Precedence: the flag, its additional variable, its own variable, the default. An invalid variable is ignored
//! with a warning, as in Istio; an invalid flag is an error.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use contract::{IptablesBinary, iptables_env, proxy_env};
use gocompat::duration;
use ruleset::{Interface, Owner, Port, Probe};

use super::Error;
use super::etc::Etc;
use super::flags::{Flags, parse_bool};
use crate::{
    CidrSelector, DnsCapture, InterceptionMode, OwnerGroups, PortSelector, Redirect, parse_cidrs, parse_interface,
    parse_loopback, parse_owners, parse_ports,
};

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The desired rules; owners may still be names.
    pub redirect: Redirect,
    pub action: Action,
    /// The validation after the action, if any.
    pub validation: Option<Probe>,
    /// Use native nftables tables instead of iptables' tables.
    pub native_nftables: bool,
    /// The required iptables implementation; without one it is detected.
    pub forced: Option<IptablesBinary>,
    /// Variables that were ignored.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `--skip-rule-apply`: change no rules.
    Skip,
    /// `--dry-run`: print the rules, and write them to the file that `DRY_RUN_FILE_PATH` names, if it is set.
    Print(Option<PathBuf>),
    /// `--cleanup-only`: remove the rules.
    Clean,
    /// Ensure that the rules exist.
    Program {
        /// `--reconcile`, `--force-apply`: replace differing rules of Istio instead of refusing.
        replace: bool,
    },
}

impl Settings {
    /// Combines flags, environment and files.
    pub fn parse(flags: &Flags, env: &BTreeMap<String, String>, etc: &Etc) -> Result<Self, Error> {
        let mut source = Source { env, warnings: Vec::new() };
        let redirect = redirect(flags, &mut source, etc)?;
        let flavour = source.text(&flags.force_iptables_binary, &["FORCE_IPTABLES_BINARY"], "");
        Ok(Self {
            redirect,
            action: action(flags, &mut source),
            validation: validation(flags, &mut source)?,
            native_nftables: source.flag(flags.native_nftables, &["NATIVE_NFTABLES"]),
            forced: forced(&flavour)?,
            warnings: source.warnings,
        })
    }
}

fn forced(text: &str) -> Result<Option<IptablesBinary>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    IptablesBinary::named(text).map(Some).ok_or_else(|| Error::Flavour { given: text.to_owned() })
}

fn action(flags: &Flags, source: &mut Source) -> Action {
    let reconcile = source.flag(flags.reconcile, &["RECONCILE"]);
    let force = source.flag(flags.force_apply, &["FORCE_APPLY"]);
    let clean = source.flag(flags.cleanup_only, &["CLEANUP_ONLY"]);
    if source.flag(flags.skip_rule_apply, &["SKIP_RULE_APPLY"]) {
        return Action::Skip;
    }
    if source.flag(flags.dry_run, &["DRY_RUN"]) {
        let file = source.env.get(iptables_env::DRY_RUN_FILE).filter(|path| !path.is_empty());
        return Action::Print(file.map(PathBuf::from));
    }
    if clean { Action::Clean } else { Action::Program { replace: reconcile || force } }
}

fn validation(flags: &Flags, source: &mut Source) -> Result<Option<Probe>, Error> {
    let probe = Probe {
        proxy_port: proxy_port(flags, source)?,
        inbound_capture_port: capture_port(flags, source)?,
        probe_port: Port(source.value(
            flags.iptables_probe_port,
            &["IPTABLES_PROBE_PORT"],
            contract::port::PROBE,
            |text| text.parse().ok(),
        )),
        timeout: source
            .value(flags.probe_timeout, &["PROBE_TIMEOUT"], Duration::from_secs(5), |text| duration::parse(text).ok()),
    };
    Ok(source.flag(flags.run_validation, &["RUN_VALIDATION"]).then_some(probe))
}

fn redirect(flags: &Flags, source: &mut Source, etc: &Etc) -> Result<Redirect, Error> {
    let proxy_uids = proxy_uids(flags, source, etc)?;
    let proxy_gids = match source.text(&flags.proxy_gid, &["PROXY_GID"], "") {
        unset if unset.is_empty() => proxy_uids.clone(),
        text => parse_owners("--proxy-gid", &text)?,
    };
    let ports_exclude = source.text(&flags.istio_local_exclude_ports, &["ISTIO_LOCAL_EXCLUDE_PORTS"], "");
    let outbound = source.text(&flags.istio_outbound_ports, &["ISTIO_OUTBOUND_PORTS"], "");
    let outbound_exclude =
        source.text(&flags.istio_local_outbound_ports_exclude, &["ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"], "");
    let cidrs_exclude = source.text(&flags.istio_service_exclude_cidr, &["ISTIO_SERVICE_EXCLUDE_CIDR"], "");
    let interfaces = source.text(&flags.istio_exclude_interfaces, &["ISTIO_EXCLUDE_INTERFACES"], "");
    let virtual_interfaces = source.text(&flags.kube_virt_interfaces, &["KUBE_VIRT_INTERFACES"], "");
    let mark = source.text(&flags.istio_inbound_tproxy_mark, &["ISTIO_INBOUND_TPROXY_MARK"], "1337");
    let table = source.text(&flags.istio_inbound_tproxy_route_table, &["ISTIO_INBOUND_TPROXY_ROUTE_TABLE"], "133");
    Ok(Redirect {
        mode: mode(flags, source),
        proxy_port: proxy_port(flags, source)?,
        inbound_capture_port: capture_port(flags, source)?,
        inbound_tunnel_port: port(
            "--inbound-tunnel-port",
            &source.text(&flags.inbound_tunnel_port, &["INBOUND_TUNNEL_PORT"], "15008"),
        )?,
        proxy_uids,
        proxy_gids,
        inbound_ports: PortSelector::parse(
            "--istio-inbound-ports",
            &source.text(&flags.istio_inbound_ports, &["ISTIO_INBOUND_PORTS"], ""),
        )?,
        inbound_ports_exclude: parse_ports("--istio-local-exclude-ports", &ports_exclude)?,
        outbound_ports_include: parse_ports("--istio-outbound-ports", &outbound)?,
        outbound_ports_exclude: parse_ports("--istio-local-outbound-ports-exclude", &outbound_exclude)?,
        outbound_cidrs: CidrSelector::parse(
            "--istio-service-cidr",
            &source.text(&flags.istio_service_cidr, &["ISTIO_SERVICE_CIDR"], ""),
        )?,
        outbound_cidrs_exclude: parse_cidrs("--istio-service-exclude-cidr", &cidrs_exclude)?,
        exclude_interfaces: interfaces_of("--istio-exclude-interfaces", &interfaces)?,
        virtual_interfaces: interfaces_of("--kube-virt-interfaces", &virtual_interfaces)?,
        dns: dns(flags, source, etc)?,
        dual_stack: source.flag(flags.dual_stack, &[proxy_env::DUAL_STACK, "DUAL_STACK"]),
        drop_invalid: source.flag(flags.drop_invalid, &[proxy_env::INVALID_DROP, "DROP_INVALID"]),
        owner_groups: owner_groups(source)?,
        loopback_v4: parse_loopback(
            proxy_env::LOOPBACK_CIDR,
            &source.text(&None, &[proxy_env::LOOPBACK_CIDR], "127.0.0.1/32"),
        )?,
        tproxy_mark: number("--istio-inbound-tproxy-mark", &mark)?,
        tproxy_table: number("--istio-inbound-tproxy-route-table", &table)?,
    })
}

fn proxy_port(flags: &Flags, source: &Source) -> Result<Port, Error> {
    port("--envoy-port", &source.text(&flags.envoy_port, &[], "15001"))
}

fn capture_port(flags: &Flags, source: &Source) -> Result<Port, Error> {
    let text = source.text(&flags.inbound_capture_port, &["INBOUND_CAPTURE_PORT"], "15006");
    port("--inbound-capture-port", &text)
}

/// Returns the proxy's users; the default is the uid of Envoy's user, or 1337 if the image has no such user.
fn proxy_uids(flags: &Flags, source: &Source, etc: &Etc) -> Result<Vec<Owner>, Error> {
    let text = source.text(&flags.proxy_uid, &["PROXY_UID"], "");
    if !text.is_empty() {
        return Ok(parse_owners("--proxy-uid", &text)?);
    }
    let user = source.text(&None, &[iptables_env::PROXY_USER], contract::container::PROXY);
    Ok(vec![Owner::Id(etc.user(&user).unwrap_or(contract::PROXY_ID))])
}

/// Like Istio, treats every word except TPROXY as REDIRECT.
fn mode(flags: &Flags, source: &mut Source) -> InterceptionMode {
    let text = source.text(&flags.istio_inbound_interception_mode, &["ISTIO_INBOUND_INTERCEPTION_MODE"], "");
    match text.as_str() {
        "TPROXY" => return InterceptionMode::Tproxy,
        "" | "REDIRECT" => {}
        other => source.warnings.push(format!("--istio-inbound-interception-mode: {other:?} is treated as REDIRECT")),
    }
    InterceptionMode::Redirect
}

/// Reads `/etc/resolv.conf` only if DNS is captured by resolver.
fn dns(flags: &Flags, source: &mut Source, etc: &Etc) -> Result<DnsCapture, Error> {
    let on = source.flag(flags.redirect_dns, &[proxy_env::DNS_CAPTURE, "REDIRECT_DNS"]);
    let all = source.flag(flags.capture_all_dns, &["CAPTURE_ALL_DNS"]);
    match (on, all) {
        (false, _) => Ok(DnsCapture::Off),
        (true, true) => Ok(DnsCapture::All),
        (true, false) => etc.resolvers().map(|(v4, v6)| DnsCapture::Servers { v4, v6 }),
    }
}

fn owner_groups(source: &Source) -> Result<OwnerGroups, Error> {
    let include = source.text(&None, &[proxy_env::OWNER_GROUPS], "*");
    let exclude = source.text(&None, &[proxy_env::OWNER_GROUPS_EXCLUDE], "");
    Ok(OwnerGroups::parse((proxy_env::OWNER_GROUPS, &include), (proxy_env::OWNER_GROUPS_EXCLUDE, &exclude))?)
}

/// Parses interface names; unlike in an annotation, the list may have empty elements.
fn interfaces_of(key: &str, text: &str) -> Result<Vec<Interface>, Error> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(names.map(|name| parse_interface(key, name)).collect::<Result<_, _>>()?)
}

fn port(flag: &'static str, text: &str) -> Result<Port, Error> {
    match parse_ports(flag, text)?[..] {
        [port] => Ok(port),
        _ => Err(Error::Number { flag, given: text.to_owned(), allowed: "one port" }),
    }
}

fn number(flag: &'static str, text: &str) -> Result<u32, Error> {
    text.parse().map_err(|_| Error::Number { flag, given: text.to_owned(), allowed: "a decimal number" })
}

/// The environment, with warnings about invalid variables.
struct Source<'a> {
    env: &'a BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl Source<'_> {
    /// Returns the flag's value, else the value of the first variable that is set, even to an empty string, else the default.
    fn text(&self, flag: &Option<String>, names: &[&str], default: &str) -> String {
        let variable = || names.iter().find_map(|name| self.env.get(*name)).map(String::as_str);
        flag.as_deref().or_else(variable).unwrap_or(default).to_owned()
    }

    fn flag(&mut self, flag: Option<bool>, names: &[&str]) -> bool {
        self.value(flag, names, false, |text| parse_bool(text).ok())
    }

    fn value<T>(&mut self, flag: Option<T>, names: &[&str], default: T, parse: impl Fn(&str) -> Option<T>) -> T {
        if let Some(value) = flag {
            return value;
        }
        for name in names {
            let Some(text) = self.env.get(*name) else { continue };
            match parse(text) {
                Some(value) => return value,
                None => self.warnings.push(format!("{name}: {text:?} is invalid and ignored")),
            }
        }
        default
    }
}

#[cfg(test)]
mod tests;
