//! Flags of Dapr's injection, off by default. The rest is the environment that Dapr's chart sets.
//!
//! The binary flattens them into its command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::watch::Places;
use crate::inject::dapr::{Era, Settings, SettingsError};

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
    #[arg(long = "daprRelease", env = "DAPR_RELEASE", value_parser = era, default_value = "current")]
    era: Era,
    /// File of the mesh's trust anchors
    #[arg(long = "daprTrustAnchors", env = "DAPR_TRUST_ANCHORS_FILE", default_value = ANCHORS)]
    anchors: PathBuf,
    /// Tell Dapr's sidecars where the scheduler is
    #[arg(long = "scheduler-enabled", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    scheduler: bool,
}

fn era(release: &str) -> Result<Era, String> {
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
        Ok(Settings { scheduler: self.scheduler, ..Settings::from_env(env, resolv_conf, self.era)? })
    }

    /// Where trust comes from.
    pub fn places(&self) -> Places {
        Places { anchors: self.anchors.clone() }
    }
}
