//! The installer's flags and environment variables, with Istio's names, parsed into [`InstallSettings`].
//!
//! `daemon` flattens them into the command line. A flag takes precedence over its variable. An empty variable is treated as unset,
//! because an empty key of a ConfigMap does not mean `false`.

use std::path::PathBuf;

use clap::Args;
use contract::diagnostics::{Documented, page};

use super::server::{InvalidHost, Server};
use super::settings::{
    Asked, Entry, Given, InstallSettings, KubeconfigSettings, Mode, OWNED, OfRuntime, RESYNC_INTERVAL,
};
use crate::runtime_config;

/// The flag's value for a directory that the container runtime's configuration determines.
const AUTO: &str = "auto";
/// The default name of the standalone configuration.
const STANDALONE: &str = "YYY-istio-cni.conf";

/// Flags of installing.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Installing")]
#[group(skip)]
pub struct InstallFlags {
    /// The CNI configuration file to chain into, or to write if not chained. Empty: the file that the runtime uses.
    #[arg(long, env = "CNI_CONF_NAME", default_value = "", value_parser = file_name)]
    cni_conf_name: String,
    /// Add the plugin to the chain of the node's network; otherwise write a configuration of the plugin alone.
    #[arg(long, env = "CHAINED_CNI_PLUGIN", default_value = "true", value_parser = true_by_default, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    chained_cni_plugin: bool,
    /// Chain into a copy of the node's network configuration, which sorts before the original.
    #[arg(long, env = "ISTIO_OWNED_CNI_CONFIG", default_value = "false", value_parser = false_by_default, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    istio_owned_cni_config: bool,
    /// The name of that copy.
    #[arg(long, env = "ISTIO_OWNED_CNI_CONFIG_FILENAME", default_value = "", value_parser = file_name)]
    istio_owned_cni_config_filename: String,
    /// The same, as spelt by Istio's chart.
    #[arg(long, env = "ISTIO_OWNED_CNI_CONF_FILENAME", default_value = "", hide = true, value_parser = file_name)]
    istio_owned_cni_conf_filename: String,
    /// The node's CNI configuration directory, as mounted in this container. `auto`: the one that the container runtime's
    /// configuration names.
    #[arg(long, env = "MOUNTED_CNI_NET_DIR", default_value = "/host/etc/cni/net.d")]
    mounted_cni_net_dir: PathBuf,
    /// The node's plugin directory, as mounted in this container. `auto`: the one that the container runtime's configuration names.
    #[arg(long, env = "MOUNTED_CNI_BIN_DIR", default_value = "/host/opt/cni/bin", hide = true)]
    mounted_cni_bin_dir: PathBuf,
    /// The path on the node of the CNI configuration directory, for comparison with the container runtime's configuration. Empty:
    /// unknown.
    #[arg(long, env = "HOST_CNI_NET_DIR", default_value = "", hide = true)]
    host_cni_net_dir: String,
    /// Likewise, of the plugin directory.
    #[arg(long, env = "HOST_CNI_BIN_DIR", default_value = "", hide = true)]
    host_cni_bin_dir: String,
    /// The directory at which the node's root is mounted, or the parts of it with the configurations of container runtimes. Empty: `/`
    /// where a directory is `auto`, and for a check; otherwise the agent reads no configuration of a runtime.
    #[arg(long, env = "HOST_ROOT", value_name = "DIRECTORY", default_value = "", hide_default_value = true)]
    host_root: String,
    /// The runtime's cache of attachments (libcni), as mounted in this container. A removal takes the plugin out of cached chains.
    #[arg(long, env = "MOUNTED_CNI_CACHE_DIR", default_value = "/host/var/lib/cni")]
    mounted_cni_cache_dir: PathBuf,
    /// The directory of the plugin in the image.
    #[arg(long, env = "CNI_BIN_SOURCE_DIR", default_value = "/opt/cni/bin", hide = true)]
    cni_bin_source_dir: PathBuf,
    /// The service account's directory.
    #[arg(
        long,
        env = "SERVICE_ACCOUNT_DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount",
        hide = true
    )]
    service_account_dir: PathBuf,
    /// The directory of sockets, kubeconfig and log, which has the same path on the node and in this container.
    #[arg(long, env = "CNI_AGENT_RUN_DIR", default_value = contract::RUN_DIR)]
    cni_agent_run_dir: PathBuf,
    /// The access mode of the plugin's kubeconfig.
    #[arg(long, env = "KUBECONFIG_MODE", default_value = "0600", value_parser = access_mode)]
    kubeconfig_mode: u32,
    /// Let the group read CNI configuration files that this program creates: 0640 instead of 0600.
    #[arg(long, env = "CNI_CONF_GROUP_READ", default_value = "false", value_parser = false_by_default, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    cni_conf_group_read: bool,
    /// The CA file of the API server. Empty: the service account's.
    #[arg(long, env = "KUBE_CA_FILE", default_value = "")]
    kube_ca_file: String,
    /// Let the plugin accept any certificate of the API server.
    #[arg(long, env = "SKIP_TLS_VERIFY", default_value = "false", value_parser = false_by_default, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    skip_tls_verify: bool,
    /// Namespaces whose pods are not redirected, separated by commas.
    #[arg(long, env = "EXCLUDE_NAMESPACES", default_value = "")]
    exclude_namespaces: String,
    /// The namespace of this daemon's pods, which the plugin never redirects.
    #[arg(long, env = "POD_NAMESPACE", default_value = "")]
    pod_namespace: String,
    /// Use native nftables tables instead of those of iptables.
    #[arg(long, env = "NATIVE_NFTABLES", default_value = "false", value_parser = false_by_default, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    native_nftables: bool,
    /// The iptables implementation, `legacy` or `nft`. Empty: detected for each pod.
    #[arg(long, env = "FORCE_IPTABLES_BINARY", default_value = "", value_parser = ["", "legacy", "nft"])]
    force_iptables_binary: String,
    /// Let ADD fail for pods in sandboxes that rules of the node's kernel do not reach (gVisor, Kata Containers).
    #[arg(long, env = "REFUSE_SANDBOXES", default_value = "false", value_parser = false_by_default, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    refuse_sandboxes: bool,
    /// The protocol of the API server.
    #[arg(long, env = "KUBERNETES_SERVICE_PROTOCOL", default_value = "https", hide = true)]
    kubernetes_service_protocol: String,
    /// The API server's host, which Kubernetes sets in each pod.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", default_value = "", hide = true)]
    kubernetes_service_host: String,
    /// The API server's port, which Kubernetes sets in each pod.
    #[arg(long, env = "KUBERNETES_SERVICE_PORT", default_value = "", hide = true)]
    kubernetes_service_port: String,
    #[command(flatten)]
    ignored: Ignored,
}

/// Flags of Istio's program without effect here. They are accepted with a warning, so that Istio's manifests work.
#[derive(Debug, Clone, Args)]
struct Ignored {
    #[arg(long, env = "CNI_NETWORK_CONFIG", hide = true)]
    cni_network_config: Option<String>,
    #[arg(long, env = "CNI_NETWORK_CONFIG_FILE", hide = true)]
    cni_network_config_file: Option<String>,
    #[arg(long, env = "LOG_LEVEL", hide = true)]
    log_level: Option<String>,
    #[arg(long, env = "AMBIENT_ENABLED", default_value = "false", hide = true, value_parser = false_by_default, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    ambient_enabled: bool,
    #[arg(long, env = "ENABLE_AMBIENT_DETECTION_RETRY", default_value = "false", hide = true, value_parser = false_by_default, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    enable_ambient_detection_retry: bool,
    #[arg(long, env = "ZTUNNEL_UDS_ADDRESS", hide = true)]
    ztunnel_uds_address: Option<String>,
}

/// The flags or the environment are invalid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable is missing that Kubernetes sets in each pod.
    #[error("{0} is not set: is this process in a pod?")]
    NotInPod(&'static str),
    #[error("KUBERNETES_SERVICE_PORT is {0:?}, not a port from 1 to 65535")]
    Port(String),
    #[error(transparent)]
    Host(#[from] InvalidHost),
}

impl Documented for Error {
    const ENTRY: &'static str = "install-flags-error";

    fn transparent(&self) -> Option<String> {
        match self {
            Self::Host(_) => Some(page("install-server-invalid-host")),
            _ => None,
        }
    }
}

impl InstallFlags {
    /// Returns the settings, and warnings about flags without effect. `plugin_log_level` is the level of the scope `cni-plugin` in
    /// the daemon's log flags.
    pub fn settings(self, plugin_log_level: &str) -> Result<(InstallSettings, Vec<String>), Error> {
        let (warnings, server) = (self.ignored.warnings(), self.server()?);
        Ok((self.with_server(server, plugin_log_level), warnings))
    }

    /// Returns the settings of a removal, which needs no API server and is possible outside of a pod.
    pub fn removal(self) -> InstallSettings {
        self.with_server(Server::unspecified(), "")
    }

    fn with_server(self, server: Server, plugin_log_level: &str) -> InstallSettings {
        let (mode, given) = (self.mode(), self.given());
        let kubeconfig = KubeconfigSettings {
            server,
            ca_file: Some(self.kube_ca_file).filter(|path| !path.is_empty()).map(PathBuf::from),
            skip_verify: self.skip_tls_verify,
            mode: self.kubeconfig_mode,
        };
        // A directory that is `auto` has its default path until it is located.
        let below_root = |path: &str| given.root().join(path.trim_start_matches('/'));
        let net_dir = if given.conf.is_auto { below_root(runtime_config::CONF_DIR) } else { self.mounted_cni_net_dir };
        let bin_dir = if given.bin.is_auto { below_root(runtime_config::BIN_DIR) } else { self.mounted_cni_bin_dir };
        let names = self.exclude_namespaces.split(',').map(str::trim).filter(|name| !name.is_empty());
        InstallSettings {
            net_dir,
            bin_source: self.cni_bin_source_dir,
            bin_dir,
            given,
            of_runtime: OfRuntime::default(),
            cache_dir: self.mounted_cni_cache_dir,
            run_dir: self.cni_agent_run_dir.clone(),
            account_dir: self.service_account_dir,
            mode,
            conf_mode: if self.cni_conf_group_read { 0o640 } else { 0o600 },
            resync: RESYNC_INTERVAL,
            kubeconfig,
            entry: Entry {
                log_level: plugin_log_level.to_owned(),
                run_dir: self.cni_agent_run_dir,
                ambient_enabled: self.ignored.ambient_enabled,
                exclude_namespaces: names.map(str::to_owned).collect(),
                pod_namespace: self.pod_namespace,
                native_nftables: self.native_nftables,
                ambient_detection_retry: self.ignored.enable_ambient_detection_retry,
                iptables_binary: non_empty(&self.force_iptables_binary),
                refuse_sandboxes: self.refuse_sandboxes,
            },
        }
    }

    fn given(&self) -> Given {
        let asked = |mounted: &PathBuf, on_node: &str| {
            let is_auto = mounted.as_os_str() == AUTO;
            Asked { is_auto, on_node: non_empty(on_node).map(PathBuf::from).filter(|_| !is_auto) }
        };
        Given {
            root: non_empty(&self.host_root).map(PathBuf::from),
            conf: asked(&self.mounted_cni_net_dir, &self.host_cni_net_dir),
            bin: asked(&self.mounted_cni_bin_dir, &self.host_cni_bin_dir),
        }
    }

    fn mode(&self) -> Mode {
        let primary = non_empty(&self.cni_conf_name);
        let owned = non_empty(&self.istio_owned_cni_config_filename).or(non_empty(&self.istio_owned_cni_conf_filename));
        match (self.chained_cni_plugin, self.istio_owned_cni_config) {
            (false, _) => Mode::Standalone { file: primary.unwrap_or_else(|| STANDALONE.to_owned()) },
            (true, true) => Mode::Owned { primary, file: owned.unwrap_or_else(|| OWNED.to_owned()) },
            (true, false) => Mode::Chained { primary },
        }
    }

    fn server(&self) -> Result<Server, Error> {
        if self.kubernetes_service_host.is_empty() {
            return Err(Error::NotInPod("KUBERNETES_SERVICE_HOST"));
        }
        if self.kubernetes_service_port.is_empty() {
            return Err(Error::NotInPod("KUBERNETES_SERVICE_PORT"));
        }
        let port = self.kubernetes_service_port.parse().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| Error::Port(self.kubernetes_service_port.clone()))?;
        let protocol = non_empty(&self.kubernetes_service_protocol).unwrap_or_else(|| "https".to_owned());
        Ok(Server::new(&protocol, &self.kubernetes_service_host, port)?)
    }
}

impl Ignored {
    fn warnings(&self) -> Vec<String> {
        let is_set = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
        let ignored = [
            ("--cni-network-config", is_set(&self.cni_network_config)),
            ("--cni-network-config-file", is_set(&self.cni_network_config_file)),
            ("--log-level", is_set(&self.log_level)),
            ("--ztunnel-uds-address", is_set(&self.ztunnel_uds_address)),
        ];
        let mut warnings: Vec<String> =
            ignored.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| format!("{flag} has no effect")).collect();
        if self.ambient_enabled {
            warnings.push("AMBIENT_ENABLED: pods of the ambient mode are not served, sidecars are".to_owned());
        }
        warnings
    }
}

fn non_empty(text: &str) -> Option<String> {
    Some(text).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn true_by_default(text: &str) -> Result<bool, String> {
    boolean(text, true)
}

fn false_by_default(text: &str) -> Result<bool, String> {
    boolean(text, false)
}

/// Parses a boolean in the spellings of Go's `strconv.ParseBool`; an empty string is `default`.
fn boolean(text: &str, default: bool) -> Result<bool, String> {
    match text {
        "" => Ok(default),
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

/// Accepts a file name, and refuses a path, which could lead out of the configuration directory.
fn file_name(text: &str) -> Result<String, String> {
    if text.contains('/') || text == ".." || text == "." {
        return Err(format!("{text:?} is not the name of a file in the CNI configuration directory"));
    }
    Ok(text.to_owned())
}

/// Parses permission bits as Go's flags do: octal with a leading `0` or `0o`, otherwise decimal (384 is 0600).
fn access_mode(text: &str) -> Result<u32, String> {
    let octal = text.strip_prefix("0o").or_else(|| text.strip_prefix('0'));
    let mode = match (text, octal) {
        ("", _) => Ok(0o600),
        (_, Some(digits)) => u32::from_str_radix(digits, 8),
        (decimal, None) => decimal.parse(),
    };
    mode.ok().filter(|mode| *mode <= 0o777).ok_or_else(|| format!("{text:?} is not an access mode such as 0600"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: InstallFlags,
    }

    fn settings(args: &[&str]) -> (InstallSettings, Vec<String>) {
        let base = ["install-cni", "--kubernetes-service-host=fd00::1", "--kubernetes-service-port=443"];
        let cli = Cli::try_parse_from(base.iter().chain(args)).unwrap();
        cli.flags.settings("info").unwrap()
    }

    #[test]
    fn flags_select_the_mode() {
        let chained = |primary: Option<&str>| Mode::Chained { primary: primary.map(str::to_owned) };
        let standalone = |file: &str| Mode::Standalone { file: file.to_owned() };
        let owned = |file: &str| Mode::Owned { primary: None, file: file.to_owned() };
        for (args, expected) in [
            (&[][..], chained(None)),
            (&["--cni-conf-name=10-x.conf"], chained(Some("10-x.conf"))),
            (&["--chained-cni-plugin=false"], standalone(STANDALONE)),
            (&["--chained-cni-plugin=", "--cni-conf-name="], chained(None)),
            (&["--chained-cni-plugin=0", "--cni-conf-name=istio-cni.conf"], standalone("istio-cni.conf")),
            (&["--istio-owned-cni-config"], owned(OWNED)),
            (
                &["--istio-owned-cni-config=true", "--istio-owned-cni-conf-filename=01-i.conflist"],
                owned("01-i.conflist"),
            ),
            (&["--istio-owned-cni-config", "--istio-owned-cni-config-filename=00-i.conflist"], owned("00-i.conflist")),
            (&["--istio-owned-cni-config", "--chained-cni-plugin=false"], standalone(STANDALONE)),
        ] {
            assert_eq!(settings(args).0.mode, expected, "{args:?}");
        }
    }

    #[test]
    fn values_are_parsed() {
        let (settings, warnings) = settings(&[
            "--kubeconfig-mode=384",
            "--cni-conf-group-read",
            "--exclude-namespaces= kube-system, ,a,",
            "--log-level=debug",
        ]);
        assert_eq!((settings.kubeconfig.mode, settings.conf_mode), (0o600, 0o640));
        assert_eq!(settings.entry.exclude_namespaces, ["kube-system", "a"]);
        assert_eq!(settings.kubeconfig.server, Server::new("https", "fd00::1", 443).unwrap());
        assert_eq!(warnings, ["--log-level has no effect"]);
    }

    #[test]
    fn directories_are_given_or_found() {
        let auto = ["--mounted-cni-net-dir=auto", "--mounted-cni-bin-dir=auto", "--host-root=/host/root"];
        let (found, _) = settings(&auto);
        assert!(found.given.conf.is_auto && found.given.bin.is_auto);
        assert_eq!(
            (found.net_dir, found.bin_dir),
            ("/host/root/etc/cni/net.d".into(), "/host/root/opt/cni/bin".into()),
            "until they are found"
        );
        let (given, _) = settings(&["--host-root=", "--host-cni-net-dir=/etc/x", "--mounted-cni-net-dir=/auto"]);
        assert_eq!((given.given.root, given.given.conf.on_node), (None, Some("/etc/x".into())));
        assert_eq!((given.net_dir, given.bin_dir), ("/auto".into(), "/host/opt/cni/bin".into()));
    }

    #[test]
    fn an_invalid_value_is_refused_by_name() {
        for (arg, reason) in [
            ("--cni-conf-name=../passwd", "not the name of a file"),
            ("--skip-tls-verify=perhaps", "neither true nor false"),
            ("--kubeconfig-mode=rw", "not an access mode"),
            ("--kubeconfig-mode=07777", "not an access mode"),
            ("--force-iptables-binary=ipchains", "possible values"),
        ] {
            let error = Cli::try_parse_from(["install-cni", arg]).err().unwrap().to_string();
            assert!(error.contains(reason), "{arg}: {error}");
        }
        let outside = Cli::try_parse_from(["install-cni"]).unwrap().flags.settings("info").unwrap_err();
        assert!(matches!(outside, Error::NotInPod("KUBERNETES_SERVICE_HOST")), "{outside}");
    }
}
