//! The command line of `istio-iptables`, with the same flags as Istio's.
//!
//! Every flag is optional: `settings` adds environment and defaults.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use gocompat::duration;

/// Redirects a pod's traffic to its proxy, in the network namespace that it is started in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Parser)]
#[command(name = "istio-iptables", args_override_self = true, disable_version_flag = true)]
#[command(
    after_help = "Each flag has an environment variable: its name in capitals, `-` as `_` (but none for --envoy-port).
Exit codes: 0 done, 1 error, 126 validation failed, 255 unknown flag.

Examples:
    istio-iptables --istio-service-cidr * --istio-inbound-ports * --dry-run
    istio-iptables --run-validation
    istio-iptables --cleanup-only"
)]
pub struct Flags {
    /// Port to which outbound TCP traffic is redirected [default: 15001]
    #[arg(long, short = 'p', allow_hyphen_values = true)]
    pub envoy_port: Option<String>,
    /// Port to which inbound TCP traffic is redirected [default: 15006]
    #[arg(long, short = 'z', allow_hyphen_values = true)]
    pub inbound_capture_port: Option<String>,
    /// Port of HBONE, never redirected [default: 15008]
    #[arg(long, short = 'e', allow_hyphen_values = true)]
    pub inbound_tunnel_port: Option<String>,
    /// Users whose traffic is the proxy's own, by id or name [default: user $ENVOY_USER, else 1337]
    #[arg(long, short = 'u', allow_hyphen_values = true)]
    pub proxy_uid: Option<String>,
    /// Groups whose traffic is the proxy's own, by id or name [default: as --proxy-uid]
    #[arg(long, short = 'g', allow_hyphen_values = true)]
    pub proxy_gid: Option<String>,
    /// REDIRECT or TPROXY
    #[arg(long, short = 'm', allow_hyphen_values = true)]
    pub istio_inbound_interception_mode: Option<String>,
    /// Inbound ports that are redirected: a list, `*`, or nothing
    #[arg(long, short = 'b', allow_hyphen_values = true)]
    pub istio_inbound_ports: Option<String>,
    /// Inbound ports that are not redirected, if --istio-inbound-ports is `*`
    #[arg(long, short = 'd', allow_hyphen_values = true)]
    pub istio_local_exclude_ports: Option<String>,
    /// Interfaces whose traffic is not redirected
    #[arg(long, short = 'c', allow_hyphen_values = true)]
    pub istio_exclude_interfaces: Option<String>,
    /// Outbound destinations that are redirected: CIDRs, `*`, or nothing
    #[arg(long, short = 'i', allow_hyphen_values = true)]
    pub istio_service_cidr: Option<String>,
    /// Outbound destinations that are not redirected: CIDRs
    #[arg(long, short = 'x', allow_hyphen_values = true)]
    pub istio_service_exclude_cidr: Option<String>,
    /// Outbound ports that are redirected whatever their destination
    #[arg(long, short = 'q', allow_hyphen_values = true)]
    pub istio_outbound_ports: Option<String>,
    /// Outbound ports that are not redirected
    #[arg(long, short = 'o', allow_hyphen_values = true)]
    pub istio_local_outbound_ports_exclude: Option<String>,
    /// Interfaces of virtual machines, whose inbound traffic is handled as outbound
    #[arg(long, short = 'k', allow_hyphen_values = true)]
    pub kube_virt_interfaces: Option<String>,
    /// Packet mark of TPROXY [default: 1337]
    #[arg(long, short = 't', allow_hyphen_values = true)]
    pub istio_inbound_tproxy_mark: Option<String>,
    /// Routing table of TPROXY [default: 133]
    #[arg(long, short = 'r', allow_hyphen_values = true)]
    pub istio_inbound_tproxy_route_table: Option<String>,
    /// Print the rules and change nothing
    #[arg(long, short = 'n', num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub dry_run: Option<bool>,
    /// Port that validation connects to [default: 15002]
    #[arg(long, allow_hyphen_values = true)]
    pub iptables_probe_port: Option<u16>,
    /// Time limit of validation, such as 5s or 1m30s [default: 5s]
    #[arg(long, allow_hyphen_values = true, value_parser = duration::parse)]
    pub probe_timeout: Option<Duration>,
    /// Do not change the rules
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub skip_rule_apply: Option<bool>,
    /// Verify redirection; run this as the proxy's user
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub run_validation: Option<bool>,
    /// Redirect DNS to the agent (also ISTIO_META_DNS_CAPTURE)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub redirect_dns: Option<bool>,
    /// Redirect all DNS requests (port 53), not only those to the servers of /etc/resolv.conf
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub capture_all_dns: Option<bool>,
    /// Drop packets in conntrack state INVALID (also INVALID_DROP)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub drop_invalid: Option<bool>,
    /// Redirect each family that has an address, not only that of the first address (also ISTIO_DUAL_STACK)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub dual_stack: Option<bool>,
    /// Accepted for compatibility; the program always uses its own network namespace
    #[arg(long, allow_hyphen_values = true)]
    pub network_namespace: Option<String>,
    /// Accepted for compatibility; nothing depends on the image's files
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub cni_mode: Option<bool>,
    /// Replace differing rules of Istio instead of refusing
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub reconcile: Option<bool>,
    /// Remove Istio's rules, routes and addresses
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub cleanup_only: Option<bool>,
    /// Never refuse: differing rules are replaced, equal ones stay, because they are compared in the kernel itself
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub force_apply: Option<bool>,
    /// Use native nftables tables instead of iptables' tables
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub native_nftables: Option<bool>,
    /// Use `legacy` or `nft` instead of the implementation that the netns already uses
    #[arg(long, allow_hyphen_values = true)]
    pub force_iptables_binary: Option<String>,
    #[command(flatten)]
    log: Log,
}

/// Logging flags of all Istio programs, accepted and ignored: this program has no log levels.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
struct Log {
    #[arg(long = "log_as_json", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    as_json: Option<String>,
    #[arg(long = "log_caller", hide = true, allow_hyphen_values = true)]
    caller: Option<String>,
    #[arg(long = "log_output_level", hide = true, allow_hyphen_values = true)]
    output_level: Option<String>,
    #[arg(long = "log_stacktrace_level", hide = true, allow_hyphen_values = true)]
    stacktrace_level: Option<String>,
    #[arg(long = "log_target", hide = true, allow_hyphen_values = true)]
    target: Vec<String>,
    #[arg(long = "vklog", hide = true, allow_hyphen_values = true)]
    vklog: Option<String>,
}

impl Flags {
    /// Parses `argv`, which may also be that of `pilot-agent istio-iptables …`.
    pub fn parse_argv(argv: Vec<OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(own_argv(argv)?)
    }
}

/// Removes the program's name from `pilot-agent istio-iptables …`. Injected pods call this command line, and an image
/// may provide this program under the name `pilot-agent`. Refuses any other command of `pilot-agent`.
fn own_argv(mut argv: Vec<OsString>) -> Result<Vec<OsString>, clap::Error> {
    let as_agent = argv.first().and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == "pilot-agent");
    let named = argv.get(1).is_some_and(|argument| argument == "istio-iptables");
    if named {
        argv.remove(0);
    } else if as_agent {
        let message = "this pilot-agent has one command: istio-iptables\n";
        return Err(clap::Error::raw(clap::error::ErrorKind::InvalidSubcommand, message));
    }
    Ok(argv)
}

/// Returns the environment variable of the flag with this clap id.
pub fn variable_of(flag: &str) -> Option<String> {
    let unused = ["envoy_port", "network_namespace", "cni_mode"];
    (!unused.contains(&flag)).then(|| flag.to_uppercase())
}

/// Parses a boolean as in annotations.
pub(super) fn parse_bool(text: &str) -> Result<bool, &'static str> {
    gocompat::parse_bool(text).ok_or("neither true nor false")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, clap::Error> {
        Flags::parse_argv(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn istio_inits_command_line_is_accepted() {
        let flags = parse(
            "pilot-agent istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x  -b * -d 15090,15021,15020 \
             --log_output_level=default:info --run-validation --skip-rule-apply",
        )
        .unwrap();
        assert_eq!(flags.envoy_port.as_deref(), Some("15001"));
        assert_eq!(flags.istio_service_exclude_cidr.as_deref(), Some(""));
        assert_eq!(flags.istio_local_exclude_ports.as_deref(), Some("15090,15021,15020"));
        assert_eq!((flags.run_validation, flags.skip_rule_apply, flags.dry_run), (Some(true), Some(true), None));
    }

    #[test]
    fn flags_in_gos_syntax_are_accepted() {
        assert_eq!(parse("x -n").unwrap().dry_run, Some(true));
        assert_eq!(parse("x --dry-run=false").unwrap().dry_run, Some(false));
        assert_eq!(parse("x --dry-run=T").unwrap().dry_run, Some(true));
        assert_eq!(parse("x -p=1 -p2 -p 3").unwrap().envoy_port.as_deref(), Some("3"));
        assert_eq!(parse("x --probe-timeout 1m30s").unwrap().probe_timeout, Some(Duration::from_secs(90)));
    }

    #[test]
    fn a_value_may_start_with_a_dash() {
        let flags = parse("x -b -1 --istio-local-exclude-ports -d -c --dry-run").unwrap();
        let ports = (flags.istio_inbound_ports.as_deref(), flags.istio_local_exclude_ports.as_deref());
        assert_eq!(ports, (Some("-1"), Some("-d")));
        assert_eq!((flags.istio_exclude_interfaces.as_deref(), flags.dry_run), (Some("--dry-run"), None));
        assert!(parse("x --iptables-probe-port -1").unwrap_err().to_string().contains("invalid value '-1'"));
    }

    #[test]
    fn the_program_may_be_called_pilot_agent() {
        for line in ["istio-iptables -n", "/usr/local/bin/pilot-agent istio-iptables -n", "box istio-iptables -n"] {
            assert_eq!(parse(line).unwrap().dry_run, Some(true), "{line}");
        }
        assert!(parse("pilot-agent proxy sidecar").unwrap_err().to_string().contains("one command: istio-iptables"));
    }

    #[test]
    fn unknown_flags_and_invalid_values_are_refused() {
        for line in [
            "x --no-such-flag",
            "x --dry-run=maybe",
            "x --iptables-probe-port 70000",
            "x --probe-timeout soon",
            "x stray",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn claps_checks_pass() {
        <Flags as clap::CommandFactory>::command().debug_assert();
    }
}
