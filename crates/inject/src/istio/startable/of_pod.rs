//! The values that the API server allows for the fields of the pod itself (`ValidatePodSpec`), if the injection changes them.

use std::collections::HashSet;

use podfacts::name::{is_dns_label, is_subdomain};
use serde_json::Value;

use super::change::{Change, POD};
use super::fields::{ID, PROFILES, demand, is_id, profile};
use super::names::{is_address, is_search, is_sysctl, one_of, text};
use super::{Unstartable, scheduling};
use crate::pod;

const RESTARTS: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
const LABEL: &str = "a DNS label of at most 63 bytes";
const SUBDOMAIN: &str = "a DNS subdomain of at most 253 bytes";
// The limits of `dnsConfig`.
const SERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_BYTES: usize = 2048;

/// A string field: its key, its condition, and the condition's description. An absent field is not checked.
type Text = (&'static str, fn(&str) -> bool, &'static str);

const TEXTS: [Text; 7] = [
    ("preemptionPolicy", |text| matches!(text, "PreemptLowerPriority" | "Never"), "PreemptLowerPriority or Never"),
    ("hostname", |text| text.is_empty() || is_dns_label(text), LABEL),
    ("subdomain", |text| text.is_empty() || is_dns_label(text), LABEL),
    ("serviceAccountName", |text| text.is_empty() || is_subdomain(text), SUBDOMAIN),
    ("priorityClassName", |text| text.is_empty() || is_subdomain(text), SUBDOMAIN),
    ("nodeName", |text| text.is_empty() || is_subdomain(text), SUBDOMAIN),
    ("runtimeClassName", is_subdomain, SUBDOMAIN),
];
const HOST: Text =
    ("hostnameOverride", |text| text.len() <= 64 && is_subdomain(text), "a DNS subdomain of at most 64 bytes");
/// The policies of the pod's security context.
const CONTEXT: [Text; 3] = [
    ("fsGroupChangePolicy", |text| matches!(text, "OnRootMismatch" | "Always"), "OnRootMismatch or Always"),
    ("supplementalGroupsPolicy", |text| matches!(text, "Merge" | "Strict"), "Merge or Strict"),
    ("seLinuxChangePolicy", |text| matches!(text, "Recursive" | "MountOption"), "Recursive or MountOption"),
];

/// Checks the fields of the pod's spec that the injection changes.
pub(super) fn check(author: &Value, merged: &Value) -> Result<(), Unstartable> {
    let spec = Change::new(pod::spec(author), pod::spec(merged));
    security_context(spec)?;
    pull_secrets(spec)?;
    policies(spec)?;
    TEXTS.iter().chain([&HOST]).try_for_each(|field| of_text(spec, "", field))?;
    if let Some(system) = spec.value("os") {
        let name = Value::from(pod::text(system, "name"));
        demand(POD, "os.name", &name, |name| name == "linux" || name == "windows", "linux or windows")?;
    }
    let is_deadline = |seconds: &Value| seconds.as_i64().is_none_or(|seconds| seconds >= 1 && is_id(&seconds.into()));
    spec.require("activeDeadlineSeconds", "activeDeadlineSeconds", (&is_deadline, "from 1 to 2147483647"))?;
    let is_none = |containers: &Value| containers.as_array().is_none_or(Vec::is_empty);
    spec.require("ephemeralContainers", "ephemeralContainers", (&is_none, "absent in a new pod"))?;
    host(spec)?;
    dns(spec.within("dnsConfig"))?;
    for alias in spec.items("hostAliases") {
        let address = Value::from(pod::text(alias, "ip"));
        demand(POD, "hostAliases.ip", &address, text(is_address), "an IP address")?;
        let mut names = pod::list(alias, "hostnames").iter();
        names.try_for_each(|name| demand(POD, "hostAliases.hostnames", name, text(is_subdomain), SUBDOMAIN))?;
    }
    scheduling::check(spec)
}

fn of_text(part: Change<'_>, path: &str, (key, is_valid, allowed): &Text) -> Result<(), Unstartable> {
    part.require(key, &format!("{path}{key}"), (&text(is_valid), allowed))
}

/// Checks the users, groups, profiles, policies and sysctls of the pod's security context.
fn security_context(spec: Change<'_>) -> Result<(), Unstartable> {
    let context = spec.within("securityContext");
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        context.require(field, field, (&is_id, ID))?;
    }
    context.items("supplementalGroups").try_for_each(|id| demand(POD, "supplementalGroups", id, is_id, ID))?;
    PROFILES.into_iter().try_for_each(|field| profile(POD, field, context.value(field)))?;
    CONTEXT.iter().try_for_each(|field| of_text(context, "securityContext.", field))?;
    if context.value("sysctls").is_none() {
        return Ok(());
    }
    let mut seen = HashSet::new();
    let mut names = pod::list(context.merged, "sysctls").iter().map(|sysctl| Value::from(pod::name(sysctl)));
    names.try_for_each(|name| {
        let is_valid = text(is_sysctl)(&name) && seen.insert(name.clone());
        demand(POD, "securityContext.sysctls", &name, |_| is_valid, "the name of a sysctl, and each only once")
    })
}

/// Checks the names of the pull secrets that the injection adds: the kubelet could not find a Secret with an invalid name.
fn pull_secrets(spec: Change<'_>) -> Result<(), Unstartable> {
    // Upper-case letters are accepted, because Istio's own expected outputs have such a name.
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name = |name: &Value| name.as_str().is_some_and(|name| !name.is_empty() && name.chars().all(is_part));
    spec.items("imagePullSecrets").try_for_each(|secret| {
        let name = secret.get("name").unwrap_or(&Value::Null);
        demand(POD, "imagePullSecrets", name, is_name, "the name of a Secret")
    })
}

fn policies(spec: Change<'_>) -> Result<(), Unstartable> {
    let is_restart = one_of(&RESTARTS);
    spec.require("restartPolicy", "restartPolicy", (&is_restart, "Always, OnFailure or Never"))?;
    let allowed = "ClusterFirst, ClusterFirstWithHostNet, Default or None";
    spec.require("dnsPolicy", "dnsPolicy", (&one_of(&DNS_POLICIES), allowed))?;
    let servers = pod::list(spec.merged.get("dnsConfig").unwrap_or(&Value::Null), "nameservers");
    let has_servers = |policy: &Value| policy != "None" || !servers.is_empty();
    spec.require("dnsPolicy", "dnsPolicy", (&has_servers, "another one, or have dnsConfig.nameservers"))
}

/// Checks the combinations of shared namespaces and of host name settings.
fn host(spec: Change<'_>) -> Result<(), Unstartable> {
    let is_true = |key: &str| spec.merged.get(key) == Some(&Value::Bool(true));
    let own_users = spec.merged.get("hostUsers") == Some(&Value::Bool(false));
    let excluded = own_users && (is_true("hostPID") || is_true("hostIPC"));
    let shared = is_true("shareProcessNamespace") && is_true("hostPID");
    for key in ["hostPID", "hostIPC", "hostUsers", "shareProcessNamespace"] {
        let is_of_shared = matches!(key, "hostPID" | "shareProcessNamespace");
        let is_valid = |_: &Value| !(excluded || shared && is_of_shared);
        let allowed = "one that hostPID, hostIPC, hostUsers and shareProcessNamespace allow together";
        spec.require(key, key, (&is_valid, allowed))?;
    }
    let is_alone = |_: &Value| !is_true("setHostnameAsFQDN") && !is_true("hostNetwork");
    spec.require("hostnameOverride", "hostnameOverride", (&is_alone, "unset with setHostnameAsFQDN and hostNetwork"))
}

/// Checks the changes to `dnsConfig`.
fn dns(config: Change<'_>) -> Result<(), Unstartable> {
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    let bytes = |list: &Value| {
        let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| name.len() + 1).sum::<usize>()
    };
    config.require("nameservers", "dnsConfig.nameservers", (&|list| count(list) <= SERVERS, "at most 3 addresses"))?;
    let is_short = |list: &Value| count(list) <= SEARCHES && bytes(list) <= SEARCH_BYTES + 1;
    config.require("searches", "dnsConfig.searches", (&is_short, "at most 32 domains of together 2048 bytes"))?;
    let mut servers = config.items("nameservers");
    servers.try_for_each(|server| demand(POD, "dnsConfig.nameservers", server, text(is_address), "an IP address"))?;
    let mut searches = config.items("searches");
    searches.try_for_each(|domain| demand(POD, "dnsConfig.searches", domain, text(is_search), "a domain"))?;
    let is_named = |option: &Value| !pod::name(option).is_empty();
    config.items("options").try_for_each(|option| demand(POD, "dnsConfig.options", option, is_named, "one with a name"))
}
