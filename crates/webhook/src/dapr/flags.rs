//! Flags of Dapr's injection, which is off by default. Other settings are the environment variables of Dapr's chart.
//!
//! The binary flattens these flags into its command line.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use dapr::{Era, Settings, SettingsError};
use gocompat::duration;
use repair::RepairSettings;

use super::watch::TrustFiles;
use crate::Selection;

/// The mount path of the trust anchors in Dapr's chart.
const ANCHORS: &str = "/var/run/secrets/dapr.io/tls/ca.crt";

/// Flags of Dapr's injection.
#[derive(Debug, Clone, Args)]
#[group(skip)]
#[command(next_help_heading = "Dapr")]
pub struct DaprFlags {
    /// Also inject Dapr's sidecar, into pods of reviews at /mutate
    #[arg(long, env = "DAPR_INJECTOR", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    dapr: bool,
    /// Release of Dapr's control plane: 1.4, or the current one
    #[arg(long = "daprRelease", env = "DAPR_RELEASE", value_parser = release, default_value = "current")]
    dapr_release: Era,
    /// Allow release 1.4 without --clientCAFile, although responses contain the issuer's key and every client that reaches the
    /// port is served
    #[arg(long = "daprIssuerKeyForAnyone", env = "DAPR_ISSUER_KEY_FOR_ANYONE", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    dapr_issuer_key_for_anyone: bool,
    /// File of the mesh's trust anchors
    #[arg(long = "daprTrustAnchors", env = "DAPR_TRUST_ANCHORS_FILE", default_value = ANCHORS)]
    dapr_trust_anchors: PathBuf,
    /// MutatingWebhookConfiguration of Dapr's injection whose caBundle is managed; empty: none
    #[arg(long = "daprWebhookConfigName", env = "DAPR_WEBHOOK_CONFIG_NAME", default_value = "dapr-sidecar-injector")]
    dapr_webhook_config_name: String,
    /// Suffix of the names of the configuration's webhooks
    #[arg(long = "daprWebhookName", default_value = "sidecar-injector.dapr.io")]
    dapr_webhook_name: String,
    /// Service through which the API server connects to Dapr's injection, if it differs from --serviceName
    #[arg(long = "daprServiceName", env = "DAPR_INJECTOR_SERVICE", default_value = "", hide_default_value = true)]
    dapr_service_name: String,
    /// Pass the scheduler's address to Dapr's sidecars
    #[arg(long = "scheduler-enabled", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    scheduler_enabled: bool,
    /// Interval of the search for pods with Dapr enabled and without its sidecar, which are reported by events: 0 turns it
    /// off, any other value, such as 2m, turns it on
    #[arg(long = "watch-interval", env = "DAPR_WATCH_INTERVAL", default_value = "0", value_parser = interval)]
    watch_interval: Duration,
    /// Delete such pods if a controller replaces them
    #[arg(long = "watchdog-delete-pods", env = "DAPR_WATCHDOG_DELETE_PODS", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    watchdog_delete_pods: bool,
    /// Maximum number of such pods that are reported or deleted per minute
    #[arg(long = "max-pod-restarts-per-minute", env = "DAPR_MAX_POD_RESTARTS_PER_MINUTE", default_value = "20")]
    max_pod_restarts_per_minute: NonZeroU32,
}

/// Unauthenticated callers would get the issuer's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "responses for release 1.4 of Dapr contain the issuer's private key, and without --clientCAFile every client that reaches the port \
     gets them: set --clientCAFile to the CA of the API servers' client certificates, or allow this by --daprIssuerKeyForAnyone"
)]
pub struct Unguarded;

fn interval(text: &str) -> Result<Duration, String> {
    match text {
        "once" => {
            Err("`once` is not supported, because pods that start later would not be found: set an interval such as 2m"
                .to_owned())
        }
        _ => duration::parse(text).map_err(str::to_owned),
    }
}

fn release(release: &str) -> Result<Era, String> {
    match release {
        "current" => Ok(Era::Current),
        "1.4" | "1.4.2" => Ok(Era::V1_4_2),
        _ => Err(format!("{release:?} is neither current nor 1.4")),
    }
}

impl DaprFlags {
    /// Whether Dapr's injection is enabled.
    pub fn enabled(&self) -> bool {
        self.dapr
    }

    /// Checks that Dapr's injection may start. `is_required`: whether callers must present a certificate.
    ///
    /// # Errors
    /// Responses to unauthenticated callers would contain the issuer's key.
    pub fn check_callers(&self, is_required: bool) -> Result<(), Unguarded> {
        let exposes_key = self.dapr && self.dapr_release == Era::V1_4_2;
        if exposes_key && !is_required && !self.dapr_issuer_key_for_anyone { Err(Unguarded) } else { Ok(()) }
    }

    /// Returns the injection's settings. `resolv_conf`: the content of `/etc/resolv.conf`.
    ///
    /// # Errors
    /// A variable is missing or invalid.
    pub fn settings(&self, env: &BTreeMap<String, String>, resolv_conf: &str) -> Result<Settings, SettingsError> {
        Ok(Settings { scheduler: self.scheduler_enabled, ..Settings::from_env(env, resolv_conf, self.dapr_release)? })
    }

    /// Returns the selection of Dapr's webhook configurations, if any.
    pub fn selection(&self) -> Option<Selection> {
        let (name, webhook) = (self.dapr_webhook_config_name.clone(), self.dapr_webhook_name.clone());
        Some(Selection { name, labels: String::new(), webhook }).filter(|all| self.dapr && all.is_some())
    }

    /// Returns the service of Dapr's injection, if it differs from the injector's.
    pub fn service(&self) -> Option<&str> {
        Some(&*self.dapr_service_name).filter(|name| self.dapr && !name.is_empty())
    }

    /// Returns the watchdog's settings, if the watchdog is enabled.
    pub fn watchdog(&self) -> Option<RepairSettings> {
        let wanted = self.dapr && !self.watch_interval.is_zero();
        wanted.then(|| RepairSettings::of_dapr_watchdog(self.watchdog_delete_pods, self.max_pod_restarts_per_minute))
    }

    pub fn trust_files(&self) -> TrustFiles {
        TrustFiles { anchors: self.dapr_trust_anchors.clone() }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        _webhook: crate::WebhookFlags,
        #[command(flatten)]
        dapr: DaprFlags,
        #[command(flatten)]
        _log: serve::log::LogFlags,
    }

    fn flags(line: &str) -> DaprFlags {
        Program::parse_from(format!("x {line}").split_whitespace()).dapr
    }

    #[test]
    fn flags_of_both_injections_combine() {
        Program::command().debug_assert();
        assert!(flags("--dapr").enabled() && flags("--dapr=true").enabled() && !flags("--dapr=false").enabled());
        assert_eq!(flags("--daprTrustAnchors=/a").trust_files(), TrustFiles { anchors: "/a".into() });
    }

    #[test]
    fn the_issuers_key_needs_authenticated_callers_unless_allowed() {
        let check = |line: &str, demands| flags(line).check_callers(demands);
        assert_eq!(check("--dapr --daprRelease=1.4", false), Err(Unguarded));
        assert!(Unguarded.to_string().contains("allow this by --daprIssuerKeyForAnyone"));
        for line in ["--dapr", "--daprRelease=1.4", "--dapr --daprRelease=1.4 --daprIssuerKeyForAnyone"] {
            assert_eq!(check(line, false), Ok(()), "{line}");
        }
        assert_eq!(check("--dapr --daprRelease=1.4", true), Ok(()));
    }

    #[test]
    fn configurations_and_services_are_named_if_dapr_is_enabled() {
        let wanted = flags("--dapr --daprServiceName=d");
        assert_eq!(wanted.selection().map(|all| all.to_string()).as_deref(), Some("named dapr-sidecar-injector"));
        assert_eq!(wanted.service(), Some("d"));
        assert_eq!(flags("--dapr --daprWebhookConfigName=").selection(), None);
        let unwanted = flags("--daprServiceName=d");
        assert_eq!((unwanted.selection(), unwanted.service()), (None, None));
    }

    #[test]
    fn the_watchdog_needs_an_interval_and_deletes_on_request() {
        for line in ["--dapr", "--dapr --watch-interval=0", "--dapr --watchdog-delete-pods", "--watch-interval=2m"] {
            assert!(flags(line).watchdog().is_none(), "{line}");
        }
        let parsed = |line: &str| {
            let settings = flags(&format!("--dapr --watch-interval=2m {line}")).watchdog().expect("a watchdog");
            (settings.mode, settings.budget)
        };
        assert_eq!(parsed(""), (repair::Mode::Report, 20));
        assert_eq!(parsed("--watchdog-delete-pods --max-pod-restarts-per-minute=3"), (repair::Mode::DeleteOrReport, 3));
        for line in ["--watch-interval=often", "--watch-interval=once", "--max-pod-restarts-per-minute=0"] {
            assert!(Program::try_parse_from(["x", "--dapr", line]).is_err(), "{line}");
        }
    }

    #[test]
    fn settings_depend_on_the_release() {
        let env = [("NAMESPACE", "n"), ("SIDECAR_IMAGE", "i")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = |line: &str| flags(line).settings(&env.clone().into(), "").expect("settings");
        let today = settings("");
        assert_eq!((today.era, today.scheduler), (Era::Current, true));
        let old = settings("--daprRelease=1.4 --scheduler-enabled=false");
        assert_eq!((old.era, old.scheduler), (Era::V1_4_2, false));
        assert!(Program::try_parse_from(["x", "--daprRelease=0.9"]).is_err());
    }
}
