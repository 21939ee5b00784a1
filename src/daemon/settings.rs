//! The daemon's settings, parsed and validated once from flags and variables.

use std::path::PathBuf;
use std::sync::Arc;

use repair::RepairSettings;

use super::{AgentFlags, Error};
use crate::in_place::InPlace;
use crate::install;

/// The settings of the daemon.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    pub install: Arc<install::InstallSettings>,
    pub repair: RepairSettings,
    /// The node's name.
    pub node: String,
    /// The plugin's service account; `None`: its kubeconfig holds the daemon's own token.
    pub plugin_account: Option<String>,
    /// The name of the daemon's own pod; empty if unknown.
    pub pod: String,
    /// The port of `/healthz` and `/readyz`.
    pub health_port: u16,
    /// The port of `/metrics`.
    pub monitoring_port: Option<u16>,
    /// Whether the monitoring port serves `/status` and `/status.json`.
    pub status_page: bool,
    /// The key of the taint that is removed once pods can start.
    pub startup_taint: Option<String>,
    /// The kubeconfig for the API server; `None`: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
}

impl AgentSettings {
    /// Parses the flags; also returns warnings about flags without effect.
    pub fn parse(flags: AgentFlags) -> Result<(Self, Vec<String>), Error> {
        let AgentFlags { own, install, mut repair, in_place, log } = flags;
        let (install, mut warnings) = install.settings(log.plugin_level().as_str())?;
        if install.entry.pod_namespace.is_empty() {
            let warning = "POD_NAMESPACE is empty: set it from metadata.namespace; without it, the plugin does not let \
                           this daemon's own pod start while the agent does not respond";
            warnings.push(warning.to_owned());
        }
        let names = [own.node_name, own.kubernetes_node_name, repair.repair_node_name.clone()];
        let node = names.into_iter().find(|name| !name.is_empty()).ok_or(Error::NoNode)?;
        // A daemon repairs only pods on its node, because it watches only those.
        if !repair.repair_node_name.is_empty() && repair.repair_node_name != node {
            let other = &repair.repair_node_name;
            warnings.push(format!(
                "REPAIR_NODE_NAME is {other}, but this node is {node}: repair acts only on pods of {node}"
            ));
        }
        repair.repair_node_name.clone_from(&node);
        if own.plugin_service_account.is_empty() {
            let warning = "PLUGIN_SERVICE_ACCOUNT is empty: the plugin's kubeconfig on this node holds this daemon's own \
                           token, with all its rights";
            warnings.push(warning.to_owned());
        }
        let settings = Self {
            install: Arc::new(install),
            repair: RepairSettings {
                reprogram: Some(Arc::new(InPlace::parse(&in_place)?)),
                ..RepairSettings::parse(&repair)?
            },
            node,
            pod: if own.pod_name.is_empty() { own.hostname } else { own.pod_name },
            plugin_account: Some(own.plugin_service_account).filter(|name| !name.is_empty()),
            health_port: own.health_port,
            monitoring_port: Some(own.monitoring_port).filter(|port| *port != 0),
            status_page: own.status_page,
            startup_taint: Some(own.startup_taint).filter(|key| !key.is_empty()),
            kubeconfig: own.kubeconfig.filter(|path| !path.as_os_str().is_empty()),
        };
        Ok((settings, warnings))
    }

    /// Returns the namespace of the daemon's own pod, and of its DaemonSet.
    pub(super) fn namespace(&self) -> &str {
        &self.install.entry.pod_namespace
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: AgentFlags,
    }

    fn settings(line: &str) -> Result<AgentSettings, Error> {
        let line = format!("x --kubernetes-service-host=10.0.0.1 --kubernetes-service-port=443 {line}");
        AgentSettings::parse(Program::parse_from(line.split_whitespace()).flags).map(|(settings, _)| settings)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Program::command().debug_assert();
    }

    #[test]
    fn the_nodes_name_is_required_and_applies_to_repair() {
        for (line, node, repaired) in [
            ("--node-name n1", "n1", "n1"),
            ("--kubernetes-node-name n2 --node-name=", "n2", "n2"),
            ("--repair-node-name n3", "n3", "n3"),
            ("--node-name n1 --repair-node-name n3", "n1", "n1"),
        ] {
            let settings = settings(line).unwrap();
            assert_eq!((settings.node.as_str(), settings.repair.node.as_str()), (node, repaired), "{line}");
        }
        assert!(matches!(settings("").unwrap_err(), Error::NoNode));
    }

    #[test]
    fn default_ports_are_istios_and_metrics_can_be_disabled() {
        for (line, health, monitoring) in [
            ("", 8000, Some(15014)),
            ("--monitoring-port= --health-port=", 8000, Some(15014)),
            ("--monitoring-port=0 --health-port=8001", 8001, None),
            ("--monitoring-port -1", 8000, None),
            ("--monitoring-port 9090 --ctrlz_port 9876 --ctrlz_address localhost", 8000, Some(9090)),
        ] {
            let settings = settings(&format!("--node-name n1 {line}")).unwrap();
            assert_eq!((settings.health_port, settings.monitoring_port), (health, monitoring), "{line}");
        }
    }

    #[test]
    fn an_empty_taint_is_none() {
        let taint = |line: &str| settings(&format!("--node-name n1 {line}")).unwrap().startup_taint;
        assert_eq!((taint(""), taint("--startup-taint=")), (None, None));
        assert_eq!(taint("--startup-taint cni.istio.io/not-ready").as_deref(), Some("cni.istio.io/not-ready"));
    }
}
