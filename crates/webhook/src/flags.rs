//! The flags of `sidecar-injector`, with the names of Istio's discontinued program `sidecar-injector`, and the settings
//! that they select.
//!
//! `program` flattens them into the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use inject::istio::{BuiltIn, Era, Platform};
use serve::cluster::{self, client};

use super::bundle::Selection;
use super::certificates::Certificates;
use super::cluster_state::Native;
use super::files::CertificateFiles;
use super::issue::Lifetime;
use super::istio;
use super::report::StatusPage;
use super::store::CertificateStore;

mod source;

use source::Configuration;
pub use source::Unused;

/// The time within which every API server has received a new caBundle through its watch. A certificate that requires
/// the new caBundle is presented only after this time.
const SETTLE: Duration = Duration::from_secs(5);

/// Flags of the server.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct WebhookFlags {
    /// Port of the webhook
    #[arg(long, env = "INJECTOR_PORT", default_value_t = 443)]
    port: u16,
    /// Port of /metrics, /healthz, /readyz and the status page
    #[arg(long = "monitoringPort", env = "INJECTOR_MONITORING_PORT", default_value_t = 15014)]
    monitoring_port: u16,
    /// Serve the injector's state on the monitoring port, as /status and /status.json, to everybody who reaches the port
    #[arg(long = "statusPage", env = "STATUS_PAGE", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    status_page: bool,
    /// kubeconfig of the API server; that of the cluster by default
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of this server, its ConfigMaps and its Secret
    #[arg(long, env = "POD_NAMESPACE", default_value = "istio-system")]
    namespace: String,
    #[command(flatten)]
    injection: Injection,
    /// Time for which requests are still accepted after SIGTERM
    #[arg(long, env = "INJECTOR_LINGER_SECONDS", value_name = "SECONDS", default_value_t = 5)]
    linger: u64,
    #[command(flatten)]
    configuration: Configuration,
    #[command(flatten)]
    certificate: Certificate,
    #[command(flatten)]
    webhook: Webhook,
    #[command(flatten)]
    ignored: Ignored,
}

/// Istio's flags without effect, which are accepted for Istio's manifests: probes use `/readyz`.
#[derive(Debug, Clone, Args)]
struct Ignored {
    #[arg(long = "healthCheckInterval", hide = true)]
    health_check_interval: Option<String>,
    #[arg(long = "healthCheckFile", hide = true)]
    health_check_file: Option<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Injection")]
struct Injection {
    /// Revision of the control plane that sidecars belong to
    #[arg(long, env = "REVISION", default_value = "default")]
    revision: String,
    /// Sidecars as init containers that keep running; auto: if every node supports them
    #[arg(long = "nativeSidecars", env = "ENABLE_NATIVE_SIDECARS", default_value = "auto")]
    native_sidecars: String,
    /// Platform: `openshift`, or empty
    #[arg(long, env = "PLATFORM", default_value = "")]
    platform: String,
    /// Compliance policy, such as fips-140-3
    #[arg(long = "compliancePolicy", env = "COMPLIANCE_POLICY", default_value = "")]
    compliance_policy: String,
    /// Refuse pods whose runtime class is that of a sandbox, by its handler or, where that is not known, by its name, instead of
    /// warning: rules of the node's kernel do not reach such a sandbox
    #[arg(long = "refuseSandboxes", env = "REFUSE_SANDBOXES", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    refuse_sandboxes: bool,
    /// Release of Istio whose injection policy applies; by default the one that the configuration's format implies
    #[arg(long = "era", value_parser = era)]
    release: Option<Era>,
    /// Image of the proxy in the built-in configuration
    #[arg(long = "proxyImage", env = "PROXY_IMAGE")]
    proxy_image: Option<String>,
    /// Image of istio-validation in the built-in configuration
    #[arg(long = "validationImage", env = "VALIDATION_IMAGE")]
    validation_image: Option<String>,
    /// host:port of istiod in the built-in configuration, by default that of the revision; empty: no mesh
    #[arg(long = "discoveryAddress", env = "DISCOVERY_ADDRESS")]
    discovery_address: Option<String>,
}

/// Parses a release, such as `1.8`.
fn era(release: &str) -> Result<Era, String> {
    let wrong = || format!("{release:?} is not a release of Istio, such as 1.8");
    let (major, minor) = release.split_once('.').ok_or_else(wrong)?;
    match (major.parse::<u32>().map_err(|_| wrong())?, minor.parse::<u32>().map_err(|_| wrong())?) {
        (0, _) | (1, 0) => Ok(Era::V0_8),
        (1, 1..=8) => Ok(Era::V1_1),
        (1, 9..=11) => Ok(Era::V1_9),
        (1, 12..=26) => Ok(Era::V1_12),
        _ => Ok(Era::V1_27),
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Certificate")]
struct Certificate {
    /// File of the certificate
    #[arg(long = "tlsCertFile", default_value = "/etc/istio/certs/cert-chain.pem")]
    tls_cert_file: PathBuf,
    /// File of the certificate's key
    #[arg(long = "tlsKeyFile", default_value = "/etc/istio/certs/key.pem")]
    tls_key_file: PathBuf,
    /// File of the CA, which becomes the caBundle
    #[arg(long = "caCertFile", default_value = "/etc/istio/certs/root-cert.pem")]
    ca_cert_file: PathBuf,
    /// File of the CAs that must have signed the client certificates of callers. API servers present one if configured to.
    /// The CAs should sign for API servers only. Without this file every client that reaches the port is served
    #[arg(long = "clientCAFile", env = "INJECTOR_CLIENT_CA_FILE")]
    client_ca_file: Option<PathBuf>,
    /// Issue and renew a certificate instead of reading files
    #[arg(long = "selfSigned", env = "INJECTOR_SELF_SIGNED", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    self_signed: bool,
    /// Secret that stores the issued certificate
    #[arg(long = "selfSignedSecret", default_value = "sidecar-injector-certificate")]
    self_signed_secret: String,
    /// Directory that stores the issued certificate instead of the Secret
    #[arg(long = "selfSignedDirectory")]
    self_signed_directory: Option<PathBuf>,
    /// Lifetime of the issued certificate; it is renewed when a third of it remains
    #[arg(long = "selfSignedDays", value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    self_signed_days: u32,
    /// Service through which the API server connects
    #[arg(long = "serviceName", env = "INJECTOR_SERVICE", default_value = "istio-sidecar-injector")]
    service_name: String,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Webhook configuration")]
struct Webhook {
    /// MutatingWebhookConfiguration whose caBundle is managed, or several: that of a revision and those of its tags
    #[arg(
        long = "webhookConfigName",
        env = "INJECTION_WEBHOOK_CONFIG_NAME",
        default_value = "istio-sidecar-injector",
        value_delimiter = ','
    )]
    webhook_config_name: Vec<String>,
    /// Label selector for these configurations, if no name is given
    #[arg(long = "webhookConfigSelector", default_value = "")]
    webhook_config_selector: String,
    /// Suffix of the names of the configuration's webhooks
    #[arg(long = "webhookName", default_value = "sidecar-injector.istio.io")]
    webhook_name: String,
    /// Manage the caBundle
    #[arg(long = "reconcileWebhookConfig", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    reconcile_webhook_config: bool,
}

impl Webhook {
    /// Returns one selection for each name. Each selection is watched and patched on its own, because a role may permit
    /// only configurations with certain names.
    fn selections(&self) -> impl Iterator<Item = Selection> {
        let Self { webhook_config_name, webhook_config_selector: labels, webhook_name: webhook, .. } = self;
        let of = |name: &String| Selection { name: name.clone(), labels: labels.clone(), webhook: webhook.clone() };
        webhook_config_name.iter().map(of).filter(Selection::is_some)
    }
}

impl WebhookFlags {
    /// Returns the given flags that have no effect.
    pub fn ignored(&self) -> Vec<&'static str> {
        let Ignored { health_check_interval, health_check_file } = &self.ignored;
        let given = [("--healthCheckInterval", health_check_interval), ("--healthCheckFile", health_check_file)];
        given.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect()
    }

    /// Returns the port of the webhook, and the port of metrics and probes.
    pub fn ports(&self) -> (u16, u16) {
        (self.port, self.monitoring_port)
    }

    /// Returns the settings of the status page; `None` if it is not served.
    pub fn status_page(&self) -> Option<StatusPage> {
        self.status_page.then(|| StatusPage { revision: self.injection.revision.clone() })
    }

    /// Returns the time for which requests are served after shutdown is requested.
    pub fn linger(&self) -> Duration {
        Duration::from_secs(self.linger)
    }

    /// Returns the delay from the patch of a caBundle to the presentation of a certificate that requires it.
    pub fn settle(&self) -> Duration {
        SETTLE
    }

    /// Returns the settings of the injection, with an empty environment.
    pub fn injection(&self) -> istio::Options {
        let flags = self.injection.clone();
        let mut built_in = BuiltIn { discovery: flags.discovery_address, ..BuiltIn::default() };
        if let Some(namespace) = self.configuration.istio_namespace.as_deref().filter(|namespace| !namespace.is_empty())
        {
            built_in.namespace = namespace.to_owned();
        }
        if flags.revision != "default" {
            built_in.revision.clone_from(&flags.revision);
        }
        if let Some(image) = flags.proxy_image {
            built_in.validation_image.clone_from(&image);
            built_in.proxy_image = image;
        }
        built_in.validation_image = flags.validation_image.unwrap_or(built_in.validation_image);
        let platform = Platform::named(&flags.platform);
        let (revision, compliance_policy) = (flags.revision, flags.compliance_policy);
        let environment = std::collections::BTreeMap::new();
        let (era, refuse_sandboxes) = (flags.release, flags.refuse_sandboxes);
        istio::Options { revision, platform, compliance_policy, era, built_in, environment, refuse_sandboxes }
    }

    /// Returns the name of istiod's object for this revision: `name`, or `name-REVISION` for a revision other than the
    /// default.
    fn revised(&self, name: &str) -> String {
        match &*self.injection.revision {
            "" | "default" => name.to_owned(),
            revision => format!("{name}-{revision}"),
        }
    }

    /// Returns whether sidecars are native. Values of the flag other than `true` and `auto` disable native sidecars.
    pub fn native(&self) -> Native {
        match &*self.injection.native_sidecars {
            "true" => Native::On,
            "auto" => Native::Auto,
            _ => Native::Off,
        }
    }

    /// Creates a client of the API server.
    ///
    /// # Errors
    /// No client can be created from the kubeconfig or, without one, from the pod's service account.
    pub async fn client(&self) -> Result<kube::Client, cluster::Error> {
        client(self.kubeconfig.as_deref()).await
    }

    /// Returns the source of the certificate. `services`: other Services through which the API server connects, in
    /// addition to `--serviceName`.
    ///
    /// # Errors
    /// The store is a Secret, and no client can be created.
    pub async fn certificates(&self, services: &[&str]) -> Result<Certificates, cluster::Error> {
        let Certificate { tls_cert_file, tls_key_file, ca_cert_file, .. } = self.certificate.clone();
        if !self.certificate.self_signed {
            let files = CertificateFiles { certificate: tls_cert_file, key: tls_key_file, authorities: ca_cert_file };
            return Ok(Certificates::Files(files));
        }
        let store = match &self.certificate.self_signed_directory {
            Some(directory) => CertificateStore::Directory(directory.clone()),
            None => CertificateStore::Secret {
                client: self.client().await?,
                namespace: self.namespace.clone(),
                name: self.certificate.self_signed_secret.clone(),
            },
        };
        let lifetime = Lifetime(Duration::from_secs(u64::from(self.certificate.self_signed_days) * 86_400));
        Ok(Certificates::SelfSigned { store, names: self.names(services), lifetime })
    }

    /// Returns the file of the CAs that must have signed callers' certificates; `None` if callers need no certificate.
    pub fn callers(&self) -> Option<PathBuf> {
        self.certificate.client_ca_file.clone().filter(|path| !path.as_os_str().is_empty())
    }

    /// Returns the DNS names of each service, `--serviceName` first.
    fn names(&self, services: &[&str]) -> Vec<String> {
        let namespace = &self.namespace;
        let suffixes = [
            format!(".{namespace}.svc"),
            format!(".{namespace}.svc.cluster.local"),
            format!(".{namespace}"),
            String::new(),
        ];
        let own = self.certificate.service_name.as_str();
        let others = services.iter().copied().filter(|service| *service != own);
        let all = std::iter::once(own).chain(others);
        all.flat_map(|service| suffixes.iter().map(move |suffix| format!("{service}{suffix}"))).collect()
    }

    /// Returns the webhook configurations whose caBundle is managed, if any. `others` selects configurations in
    /// addition to those of the flags, such as Dapr's.
    ///
    /// # Errors
    /// A configuration is selected, and no client can be created.
    pub async fn bundles(
        &self,
        others: Option<Selection>,
    ) -> Result<Option<(kube::Client, Vec<Selection>)>, cluster::Error> {
        let all: Vec<Selection> = self.webhook.selections().chain(others).collect();
        if !self.webhook.reconcile_webhook_config || all.is_empty() {
            return Ok(None);
        }
        Ok(Some((self.client().await?, all)))
    }
}

#[cfg(test)]
mod tests;
