//! What the operator of the injector sets, parsed once from the environment in the names that Dapr's chart uses.

use std::collections::BTreeMap;

use super::accounts::{Allowed, PatternError};
use super::era::{Era, truthy};
use super::pod::Toleration;

/// Where the kubelet is to take the sidecar's image from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// From the registry at each start.
    Always,
    /// From the node alone.
    Never,
    /// From the registry where the node has none.
    IfNotPresent,
}

impl PullPolicy {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::Never => "Never",
            Self::IfNotPresent => "IfNotPresent",
        }
    }
}

/// How sidecars find the actors' placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actors {
    /// There are no actors.
    Off,
    /// Dapr's own placement service at this address.
    Placement(String),
    /// Another service, `name:address`.
    Service(String),
}

/// Names and addresses of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlane {
    /// Its namespace.
    pub namespace: String,
    /// The cluster's DNS domain.
    pub domain: String,
    /// Of its own identities.
    pub trust_domain: String,
}

/// What containers made here may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Security {
    /// The sidecar must not be root.
    pub run_as_non_root: bool,
    /// The sidecar's user, where the image is not to choose it.
    pub run_as_user: Option<i64>,
    /// The sidecar's group.
    pub run_as_group: Option<i64>,
    /// The sidecar cannot write to its image.
    pub read_only_root: bool,
    /// The sidecar has no capability.
    pub drop_all: bool,
}

/// Settings of the injector.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Whose sidecars these are.
    pub era: Era,
    /// `daprd`'s image.
    pub image: String,
    /// Of that image.
    pub pull_policy: PullPolicy,
    /// Where the control plane is.
    pub control_plane: ControlPlane,
    /// Whose pods get a sidecar.
    pub allowed: Allowed,
    /// Pods that tolerate one of these run where an image's entry point does not count.
    pub ignore_entrypoint: Vec<Toleration>,
    /// How sidecars find placement.
    pub actors: Actors,
    /// How sidecars find reminders, `name:address`.
    pub reminders: Option<String>,
    /// What the sidecar may do.
    pub security: Security,
    /// The sidecar learns the pod's address.
    pub host_ip: bool,
    /// The sidecar starts before the pod's containers, as an init container that stays.
    pub native: bool,
    /// A native sidecar comes before the pod's own init containers, which can use it then.
    pub native_first: bool,
    /// Sidecars are told where the scheduler is.
    pub scheduler: bool,
    /// Sidecars get a token of their own; off where the control plane is not in Kubernetes.
    pub identity_token: bool,
    /// Where the sockets of pluggable components are when a pod does not say.
    pub sockets_folder: String,
    /// What was passed over; for the log.
    pub warnings: Vec<String>,
}

/// Why the environment cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A variable without which nothing can be injected.
    #[error("{0} is not set or empty: set it")]
    Missing(&'static str),
    /// A list of accounts.
    #[error("{variable}")]
    Accounts {
        /// The variable.
        variable: &'static str,
        /// Which entry, and what is wrong with it.
        #[source]
        source: PatternError,
    },
    /// A user or group.
    #[error("{variable}={value:?} is no number of a user or group")]
    Number {
        /// The variable.
        variable: &'static str,
        /// What it says.
        value: String,
    },
    /// A service.
    #[error("{variable}={value:?}: write <name>:<port>, with a port above 0")]
    Service {
        /// The variable.
        variable: &'static str,
        /// What it says.
        value: String,
    },
}

/// Set by the operator, or not.
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
    /// Reads the variables of Dapr's chart. `resolv_conf` is the text of `/etc/resolv.conf`, which says the cluster's domain
    /// where `KUBE_CLUSTER_DOMAIN` does not.
    ///
    /// # Errors
    /// Something that is needed is missing, or cannot be understood.
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
    /// The address of one of its services.
    pub(super) fn address(&self, service: &str, port: u16) -> String {
        format!("{service}.{}.svc.{}:{port}", self.namespace, self.domain)
    }
}

/// The cluster's DNS domain by the search list of `resolv.conf`: the first in alphabetical order, as Dapr takes it.
fn cluster_domain(resolv_conf: &str) -> &str {
    let mut lists = resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("search")).then_some(words)
    });
    lists.next_back().and_then(Iterator::min).unwrap_or("cluster.local")
}

/// Unset means what the original's code says, everything unknown what its chart says.
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
        warnings.push(format!("IGNORE_ENTRYPOINT_TOLERATIONS is no list of tolerations and is passed over: {error}"));
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

/// `default` is the sidecar's own idea of reminders, which it has without being told.
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
