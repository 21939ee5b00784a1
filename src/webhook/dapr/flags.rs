//! Flags of Dapr's injection, off by default. The rest is the environment that Dapr's chart sets.
//!
//! The binary flattens them into its command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::watch::Places;
use crate::inject::dapr::{Era, Settings, SettingsError};
use crate::webhook::Selection;

/// Where Dapr's chart mounts the trust anchors.
const ANCHORS: &str = "/var/run/secrets/dapr.io/tls/ca.crt";

/// Flags of Dapr's injection.
#[derive(Debug, Clone, Args)]
#[group(skip)]
#[command(next_help_heading = "Dapr")]
pub struct Flags {
    /// Inject Dapr's sidecar, too, into pods that are reviewed at /mutate
    #[arg(long, env = "DAPR_INJECTOR", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    dapr: bool,
    /// Release of Dapr's control plane: 1.4, or today's
    #[arg(long = "daprRelease", env = "DAPR_RELEASE", value_parser = release, default_value = "current")]
    dapr_release: Era,
    /// File of the mesh's trust anchors
    #[arg(long = "daprTrustAnchors", env = "DAPR_TRUST_ANCHORS_FILE", default_value = ANCHORS)]
    dapr_trust_anchors: PathBuf,
    /// MutatingWebhookConfiguration of Dapr's injection whose caBundle is kept right; empty: none
    #[arg(long = "daprWebhookConfigName", env = "DAPR_WEBHOOK_CONFIG_NAME", default_value = "dapr-sidecar-injector")]
    dapr_webhook_config_name: String,
    /// What the names of its webhooks end with
    #[arg(long = "daprWebhookName", default_value = "sidecar-injector.dapr.io")]
    dapr_webhook_name: String,
    /// Service by which the API server connects to Dapr's injection, where it is another than the one of --serviceName
    #[arg(long = "daprServiceName", env = "DAPR_INJECTOR_SERVICE", default_value = "", hide_default_value = true)]
    dapr_service_name: String,
    /// Tell Dapr's sidecars where the scheduler is
    #[arg(long = "scheduler-enabled", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    scheduler_enabled: bool,
}

fn release(release: &str) -> Result<Era, String> {
    match release {
        "current" => Ok(Era::Current),
        "1.4" | "1.4.2" => Ok(Era::V1_4_2),
        _ => Err(format!("{release:?} is neither current nor 1.4")),
    }
}

impl Flags {
    /// Whether Dapr's sidecars are wanted.
    pub fn enabled(&self) -> bool {
        self.dapr
    }

    /// What is injected. `resolv_conf`: text of `/etc/resolv.conf`.
    ///
    /// # Errors
    /// A variable is missing or cannot be understood.
    pub fn settings(&self, env: &BTreeMap<String, String>, resolv_conf: &str) -> Result<Settings, SettingsError> {
        Ok(Settings { scheduler: self.scheduler_enabled, ..Settings::from_env(env, resolv_conf, self.dapr_release)? })
    }

    /// Webhook configurations that lead here, if any.
    pub fn selection(&self) -> Option<Selection> {
        let (name, webhook) = (self.dapr_webhook_config_name.clone(), self.dapr_webhook_name.clone());
        Some(Selection { name, labels: String::new(), webhook }).filter(|all| self.dapr && all.is_some())
    }

    /// The service by which the API server connects, where it has one of its own.
    pub fn service(&self) -> Option<&str> {
        Some(&*self.dapr_service_name).filter(|name| self.dapr && !name.is_empty())
    }

    /// Where trust comes from.
    pub fn places(&self) -> Places {
        Places { anchors: self.dapr_trust_anchors.clone() }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        _webhook: crate::webhook::Flags,
        #[command(flatten)]
        dapr: Flags,
        #[command(flatten)]
        _log: crate::serve::log::Flags,
    }

    fn flags(line: &str) -> Flags {
        Program::parse_from(format!("x {line}").split_whitespace()).dapr
    }

    #[test]
    fn flags_of_both_injections_go_together() {
        Program::command().debug_assert();
        assert!(flags("--dapr").enabled() && flags("--dapr=true").enabled() && !flags("--dapr=false").enabled());
        assert_eq!(flags("--daprTrustAnchors=/a").places(), Places { anchors: "/a".into() });
    }

    #[test]
    fn configurations_and_services_are_named_where_dapr_is_wanted() {
        let wanted = flags("--dapr --daprServiceName=d");
        assert_eq!(wanted.selection().map(|all| all.to_string()).as_deref(), Some("named dapr-sidecar-injector"));
        assert_eq!(wanted.service(), Some("d"));
        assert_eq!(flags("--dapr --daprWebhookConfigName=").selection(), None);
        let unwanted = flags("--daprServiceName=d");
        assert_eq!((unwanted.selection(), unwanted.service()), (None, None));
    }

    #[test]
    fn settings_are_of_the_release_that_is_asked_for() {
        let env = [("NAMESPACE", "n"), ("SIDECAR_IMAGE", "i")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = |line: &str| flags(line).settings(&env.clone().into(), "").expect("settings");
        let today = settings("");
        assert_eq!((today.era, today.scheduler), (Era::Current, true));
        let old = settings("--daprRelease=1.4 --scheduler-enabled=false");
        assert_eq!((old.era, old.scheduler), (Era::V1_4_2, false));
        assert!(Program::try_parse_from(["x", "--daprRelease=0.9"]).is_err());
    }
}
