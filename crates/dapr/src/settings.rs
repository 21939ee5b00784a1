//! Settings of the injector, parsed from the environment variables of Dapr's chart.

use std::collections::BTreeMap;

use super::accounts::{Allowed, PatternError};
use super::era::{Era, truthy};
use super::pod::Toleration;

/// The image pull policy of the sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    Never,
    IfNotPresent,
}

impl PullPolicy {
    /// Returns the policy's name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::Never => "Never",
            Self::IfNotPresent => "IfNotPresent",
        }
    }
}

/// The service that sidecars use for actor placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actors {
    /// Actors are disabled.
    Off,
    /// Dapr's placement service at this address.
    Placement(String),
    /// Another service, `name:address`.
    Service(String),
}

/// The control plane's namespace and domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlane {
    pub namespace: String,
    pub domain: String,
    /// The trust domain of the control plane's identities.
    pub trust_domain: String,
}

/// The security context of the sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Security {
    pub run_as_non_root: bool,
    /// The user, if not the image's.
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    /// `readOnlyRootFilesystem`
    pub read_only_root: bool,
    /// Whether to drop all capabilities.
    pub drop_all: bool,
}

/// Settings of the injector.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The release of the sidecars.
    pub era: Era,
    /// `daprd`'s image.
    pub image: String,
    pub pull_policy: PullPolicy,
    pub control_plane: ControlPlane,
    /// The users who may create pods with a sidecar.
    pub allowed: Allowed,
    /// The tolerations by which a pod tolerates nodes that ignore an image's entry point.
    pub ignore_entrypoint: Vec<Toleration>,
    pub actors: Actors,
    /// The reminders service, `name:address`.
    pub reminders: Option<String>,
    pub security: Security,
    /// Whether the sidecar gets the pod's address.
    pub host_ip: bool,
    /// Whether the sidecar is a native one, an init container with restart policy `Always`.
    pub native: bool,
    /// Whether a native sidecar precedes the pod's init containers, so that they can use it.
    pub native_first: bool,
    /// Whether sidecars get the scheduler's address.
    pub scheduler: bool,
    /// Whether sidecars get their own token; off if the control plane is not in Kubernetes.
    pub identity_token: bool,
    /// The default directory of component sockets.
    pub sockets_folder: String,
    /// Warnings about ignored settings, for the log.
    pub warnings: Vec<String>,
}

/// Invalid environment variables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A required variable is missing.
    #[error("{0} is not set or empty: set it")]
    Missing(&'static str),
    #[error("{variable}")]
    Accounts {
        variable: &'static str,
        #[source]
        source: PatternError,
    },
    #[error("{variable}={value:?} is not the number of a user or group")]
    Number { variable: &'static str, value: String },
    #[error("{variable}={value:?}: expected <name>:<port>, with a port above 0")]
    Service { variable: &'static str, value: String },
}

/// The environment variables that the operator sets.
struct Environment<'a>(&'a BTreeMap<String, String>);

impl<'a> Environment<'a> {
    fn get(&self, name: &str) -> &'a str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn required(&self, name: &'static str) -> Result<String, SettingsError> {
        Some(self.get(name)).filter(|value| !value.is_empty()).map(str::to_owned).ok_or(SettingsError::Missing(name))
    }

    fn or(&self, name: &str, default: &str) -> String {
        Some(self.get(name)).filter(|value| !value.is_empty()).unwrap_or(default).to_owned()
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        let value = self.get(name);
        if value.is_empty() { default } else { truthy(value) }
    }

    fn number(&self, variable: &'static str) -> Result<Option<i64>, SettingsError> {
        let value = self.get(variable);
        let wrong = || SettingsError::Number { variable, value: value.to_owned() };
        Some(value).filter(|value| !value.is_empty()).map(|value| value.parse().map_err(|_| wrong())).transpose()
    }
}

impl Settings {
    /// Parses the variables of Dapr's chart. `resolv_conf` is the content of `/etc/resolv.conf`, from which the
    /// cluster's domain is taken if `KUBE_CLUSTER_DOMAIN` is not set.
    ///
    /// # Errors
    /// A required variable is missing, or a value is invalid.
    pub fn from_env(env: &BTreeMap<String, String>, resolv_conf: &str, era: Era) -> Result<Self, SettingsError> {
        let env = Environment(env);
        let control_plane = ControlPlane {
            namespace: env.required("NAMESPACE")?,
            domain: env.or("KUBE_CLUSTER_DOMAIN", cluster_domain(resolv_conf)),
            trust_domain: env.or("DAPR_CONTROL_PLANE_TRUST_DOMAIN", "cluster.local"),
        };
        let mut warnings = Vec::new();
        Ok(Self {
            era,
            image: env.required("SIDECAR_IMAGE")?,
            pull_policy: pull_policy(&env),
            allowed: allowed(&env, era)?,
            ignore_entrypoint: tolerations(env.get("IGNORE_ENTRYPOINT_TOLERATIONS"), &mut warnings),
            actors: actors(&env, &control_plane)?,
            reminders: reminders(&env, &control_plane)?,
            security: Security::read(&env)?,
            host_ip: env.flag("ENABLE_K8S_DOWNWARD_APIS", false),
            native: env.flag("NATIVE_SIDECAR_ENABLED", false),
            native_first: env.flag("NATIVE_SIDECAR_FIRST", false),
            scheduler: true,
            identity_token: true,
            sockets_folder: env.or("DAPR_COMPONENT_SOCKETS_FOLDER", "/tmp/dapr-components-sockets"),
            control_plane,
            warnings,
        })
    }
}

impl Security {
    fn read(env: &Environment<'_>) -> Result<Self, SettingsError> {
        Ok(Self {
            run_as_non_root: env.flag("SIDECAR_RUN_AS_NON_ROOT", true),
            run_as_user: env.number("SIDECAR_RUN_AS_USER")?,
            run_as_group: env.number("SIDECAR_RUN_AS_GROUP")?,
            read_only_root: env.flag("SIDECAR_READ_ONLY_ROOT_FILESYSTEM", true),
            drop_all: env.flag("SIDECAR_DROP_ALL_CAPABILITIES", false),
        })
    }
}

impl ControlPlane {
    /// Returns the address of a control plane service.
    pub(super) fn address(&self, service: &str, port: u16) -> String {
        format!("{service}.{}.svc.{}:{port}", self.namespace, self.domain)
    }
}

/// Returns the cluster's DNS domain from the search list of `resolv.conf`: the first in alphabetical order, as in Dapr.
fn cluster_domain(resolv_conf: &str) -> &str {
    let mut lists = resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("search")).then_some(words)
    });
    lists.next_back().and_then(Iterator::min).unwrap_or("cluster.local")
}

/// Returns the image pull policy. If the variable is not set, the policy is `Always`, the default in Dapr's code; if
/// its value is unknown, the policy is `IfNotPresent`, the default in Dapr's chart.
fn pull_policy(env: &Environment<'_>) -> PullPolicy {
    match env.0.get("SIDECAR_IMAGE_PULL_POLICY").map(String::as_str) {
        None | Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some(_) => PullPolicy::IfNotPresent,
    }
}

fn allowed(env: &Environment<'_>, era: Era) -> Result<Allowed, SettingsError> {
    let variable = "ALLOWED_SERVICE_ACCOUNTS";
    let mut allowed =
        Allowed::built_in(era).map_err(|source| SettingsError::Accounts { variable: "the built-in list", source })?;
    for variable in [variable, "ALLOWED_SERVICE_ACCOUNTS_PREFIX_NAMES"] {
        allowed.add(env.get(variable)).map_err(|source| SettingsError::Accounts { variable, source })?;
    }
    Ok(allowed)
}

fn tolerations(text: &str, warnings: &mut Vec<String>) -> Vec<Toleration> {
    if text.is_empty() {
        return Vec::new();
    }
    serde_json::from_str(text).unwrap_or_else(|error| {
        warnings.push(format!("IGNORE_ENTRYPOINT_TOLERATIONS is not a list of tolerations and is ignored: {error}"));
        Vec::new()
    })
}

fn actors(env: &Environment<'_>, control_plane: &ControlPlane) -> Result<Actors, SettingsError> {
    let name = env.get("ACTORS_SERVICE_NAME");
    if !env.flag("ACTORS_ENABLED", true) {
        return Ok(Actors::Off);
    }
    if name.is_empty() {
        return Ok(Actors::Placement(control_plane.address("dapr-placement-server", 50005)));
    }
    let address = service(env, "ACTORS_SERVICE_ADDRESS", control_plane)?;
    Ok(if name == "placement" { Actors::Placement(address) } else { Actors::Service(format!("{name}:{address}")) })
}

/// Returns the reminders service. The name `default` selects the sidecar's own default, which needs no option.
fn reminders(env: &Environment<'_>, control_plane: &ControlPlane) -> Result<Option<String>, SettingsError> {
    match env.get("REMINDERS_SERVICE_NAME") {
        "" | "default" => Ok(None),
        name => Ok(Some(format!("{name}:{}", service(env, "REMINDERS_SERVICE_ADDRESS", control_plane)?))),
    }
}

fn service(
    env: &Environment<'_>,
    variable: &'static str,
    control_plane: &ControlPlane,
) -> Result<String, SettingsError> {
    let value = env.get(variable);
    let parsed = value.split_once(':').and_then(|(name, port)| {
        let port: u16 = port.parse().ok()?;
        (!name.is_empty() && port > 0).then(|| control_plane.address(name, port))
    });
    parsed.ok_or_else(|| SettingsError::Service { variable, value: value.to_owned() })
}
