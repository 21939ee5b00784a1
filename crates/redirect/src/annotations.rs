//! Builds a [`Redirect`] from pod facts: annotations and the proxy's environment, as Istio's plugin reads them.
//!
//! Pure; for the plugin, repair and `explain`. Annotations come from anyone who may create pods: each value is parsed
//! into types of bounded size here, or refused with its key and the valid values.

use std::net::Ipv4Addr;

use contract::{PROXY_ID, annotation, port, proxy_env};
use gocompat::parse_bool;
use ipnet::Ipv4Net;
use ruleset::{Owner, Port};

use super::{
    CidrSelector, DnsCapture, Error, InterceptionMode, OwnerGroups, PodSettings, PortSelector, Redirect, parse_cidrs,
    parse_interfaces, parse_loopback, parse_owners, parse_ports,
};

/// The maximum number of elements in a list, and the error's description of it.
struct Bound {
    max: usize,
    allowed: &'static str,
}

/// Bound on the number of ports, ranges or groups in a list. Each becomes up to four rules, which every new connection
/// of the pod traverses; a longer list is a mistake or an attack on the node.
const ELEMENTS: Bound = Bound { max: 1024, allowed: "at most 1024 elements" };
/// Bound on the number of interfaces in a list. Rules for virtual interfaces are needed for each pair of interface and
/// address range.
const INTERFACES: Bound = Bound { max: 32, allowed: "at most 32 interfaces" };
/// The port that is excluded by default, inbound and outbound: the port of the proxy's merged metrics.
const DEFAULT_EXCLUDED: &str = "15020";

/// The interception that a pod requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interception {
    /// Interception mode `NONE`: no rules.
    None,
    Redirect {
        redirect: Box<Redirect>,
        /// Values that were ignored as in Istio, for the log.
        warnings: Vec<Error>,
    },
}

/// Builds the settings from the pod's annotations and from its proxy's environment and ids.
///
/// # Errors
/// Fails for a value that is not allowed. The pod must not start then: its author expects its traffic to be redirected.
pub fn from_pod(settings: PodSettings<'_>) -> Result<Interception, Error> {
    let pod = Pod(settings);
    let Some(mode) = pod.mode()? else {
        return Ok(Interception::None);
    };
    let (owner_groups, group_warning) = pod.owner_groups();
    let (loopback_v4, loopback_warning) = pod.loopback();
    let switches = [proxy_env::DNS_CAPTURE, proxy_env::DUAL_STACK, proxy_env::INVALID_DROP].map(|key| pod.boolean(key));
    let [dns, dual_stack, drop_invalid] = switches.clone().map(|s| s.unwrap_or(false));
    let redirect = Redirect {
        mode,
        proxy_uids: vec![proxy_id(settings.run_as_user)],
        proxy_gids: vec![proxy_id(settings.run_as_group)],
        inbound_ports: pod.list(annotation::INCLUDE_INBOUND_PORTS, "*", PortSelector::parse)?,
        inbound_ports_exclude: pod.inbound_ports_exclude()?,
        outbound_ports_include: pod.list(annotation::INCLUDE_OUTBOUND_PORTS, "", parse_ports)?,
        outbound_ports_exclude: pod.list(annotation::EXCLUDE_OUTBOUND_PORTS, DEFAULT_EXCLUDED, parse_ports)?,
        outbound_cidrs: pod.list(annotation::INCLUDE_OUTBOUND_CIDRS, "*", CidrSelector::parse)?,
        outbound_cidrs_exclude: pod.list(annotation::EXCLUDE_OUTBOUND_CIDRS, "", parse_cidrs)?,
        exclude_interfaces: pod.list(annotation::EXCLUDE_INTERFACES, "", parse_interfaces)?,
        virtual_interfaces: pod.list(pod.virtual_key(), "", parse_interfaces)?,
        // The plugin cannot see the pod's /etc/resolv.conf, so it captures all DNS or none.
        dns: if dns { DnsCapture::All } else { DnsCapture::Off },
        dual_stack,
        drop_invalid,
        owner_groups,
        loopback_v4,
        ..Redirect::default()
    };
    let warnings = switches.into_iter().filter_map(Result::err).chain(group_warning).chain(loopback_warning).collect();
    Ok(Interception::Redirect { redirect: Box::new(redirect), warnings })
}

/// Checks an annotation's value with the parser of [`from_pod`]; accepts any value of an annotation that [`from_pod`] does
/// not read.
///
/// # Errors
/// Fails for a value that [`from_pod`] refuses.
pub fn check(key: &str, text: &str) -> Result<(), Error> {
    match key {
        annotation::INTERCEPTION_MODE => mode(text).map(drop),
        annotation::INCLUDE_INBOUND_PORTS => list(key, text, PortSelector::parse).map(drop),
        annotation::EXCLUDE_INBOUND_PORTS | annotation::INCLUDE_OUTBOUND_PORTS | annotation::EXCLUDE_OUTBOUND_PORTS => {
            list(key, text, parse_ports).map(drop)
        }
        annotation::INCLUDE_OUTBOUND_CIDRS => list(key, text, CidrSelector::parse).map(drop),
        annotation::EXCLUDE_OUTBOUND_CIDRS => list(key, text, parse_cidrs).map(drop),
        annotation::EXCLUDE_INTERFACES | annotation::KUBEVIRT_INTERFACES | annotation::REROUTE_VIRTUAL_INTERFACES => {
            list(key, text, parse_interfaces).map(drop)
        }
        _ => Ok(()),
    }
}

/// Parses the interception mode; none for mode `NONE`.
fn mode(text: &str) -> Result<Option<InterceptionMode>, Error> {
    match text {
        "REDIRECT" => Ok(Some(InterceptionMode::Redirect)),
        "TPROXY" => Ok(Some(InterceptionMode::Tproxy)),
        // Istio's plugin fails here, although its injector writes this value.
        "NONE" => Ok(None),
        other => Err(Error::new(annotation::INTERCEPTION_MODE, other, "REDIRECT, TPROXY or NONE")),
    }
}

/// Parses an annotation with a list. Refuses an empty element, as Istio does (though not on the command line): such an
/// element usually comes from a template whose value is missing.
fn list<T>(key: &str, text: &str, parse: fn(&str, &str) -> Result<T, Error>) -> Result<T, Error> {
    check_length(key, text)?;
    if !text.trim().is_empty() && text.split(',').any(|part| part.trim().is_empty()) {
        return Err(Error::new(key, text, "a comma-separated list without empty elements"));
    }
    parse(key, text)
}

/// Checks the number of elements in an annotation with a list.
pub(super) fn check_length(key: &str, text: &str) -> Result<(), Error> {
    let bound = match key {
        annotation::EXCLUDE_INTERFACES | annotation::KUBEVIRT_INTERFACES | annotation::REROUTE_VIRTUAL_INTERFACES => {
            &INTERFACES
        }
        _ => &ELEMENTS,
    };
    bounded(key, text, bound)
}

/// Returns the proxy's user or group; id 0 is treated as unset, because the proxy never runs as root.
fn proxy_id(given: Option<u32>) -> Owner {
    Owner::Id(given.filter(|id| *id != 0).unwrap_or(PROXY_ID))
}

struct Pod<'a>(PodSettings<'a>);

impl<'a> Pod<'a> {
    fn annotation(&self, key: &str) -> Option<&'a str> {
        self.0.annotations.get(key).map(String::as_str)
    }

    fn env(&self, key: &str) -> Option<&'a str> {
        self.0.env?.get(key).map(String::as_str)
    }

    /// Returns the interception mode; none for mode `NONE`.
    fn mode(&self) -> Result<Option<InterceptionMode>, Error> {
        self.annotation(annotation::INTERCEPTION_MODE).map_or(Ok(Some(InterceptionMode::Redirect)), mode)
    }

    fn list<T>(&self, key: &str, default: &str, parse: fn(&str, &str) -> Result<T, Error>) -> Result<T, Error> {
        list(key, self.annotation(key).unwrap_or(default), parse)
    }

    /// Returns the pod's exclusions, followed by the ports that are always excluded, without duplicates.
    fn inbound_ports_exclude(&self) -> Result<Vec<Port>, Error> {
        let mut ports = Vec::new();
        let given = self.list(annotation::EXCLUDE_INBOUND_PORTS, DEFAULT_EXCLUDED, parse_ports)?;
        for port in given.into_iter().chain(port::NEVER_INBOUND.map(Port)) {
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        Ok(ports)
    }

    /// Returns the key of the annotation with the virtual interfaces. The former key is read only if the pod has no
    /// annotation with the current key, not even one with an empty value.
    fn virtual_key(&self) -> &'static str {
        match self.annotation(annotation::REROUTE_VIRTUAL_INTERFACES) {
            Some(_) => annotation::REROUTE_VIRTUAL_INTERFACES,
            None => annotation::KUBEVIRT_INTERFACES,
        }
    }

    /// Parses a boolean of the proxy's environment as Go does. The caller logs an `Err` and uses false.
    fn boolean(&self, key: &str) -> Result<bool, Error> {
        let Some(text) = self.env(key) else { return Ok(false) };
        parse_bool(text).ok_or_else(|| Error::new(key, text, "true or false; using false"))
    }

    /// Reads the owner groups from the environment of the pod's proxy. Istio's plugin reads these variables from the
    /// container runtime's environment instead, so with Istio's plugin no pod fails because of them. Therefore an
    /// invalid value does not fail the pod here, either: it is replaced by a value that redirects more traffic.
    fn owner_groups(&self) -> (OwnerGroups, Option<Error>) {
        const NUMBERS: &str = "1 to 64 group ids, or `*` (names in the pod's image cannot be resolved here); using `*`";
        const EXCLUDED: &str = "at most 1024 group ids (names in the pod's image cannot be resolved here); other entries are ignored, so \
                              that their traffic is redirected";
        let [include, exclude] = [(proxy_env::OWNER_GROUPS, "*"), (proxy_env::OWNER_GROUPS_EXCLUDE, "")]
            .map(|(key, default)| (key, self.env(key).unwrap_or(default)));
        let invalid = |(key, text): (&str, &str), allowed| Some(Error::new(key, text, allowed));
        let is_id = |owner: &Owner| matches!(owner, Owner::Id(_));
        if include.1.trim() != "*" {
            return match OwnerGroups::parse(include, ("", "")) {
                // An empty list would exempt all outbound traffic.
                Ok(OwnerGroups::Only(groups)) if !groups.is_empty() && groups.iter().all(is_id) => {
                    (OwnerGroups::Only(groups), None)
                }
                _ => (OwnerGroups::default(), invalid(include, NUMBERS)),
            };
        }
        match bounded(exclude.0, exclude.1, &ELEMENTS).and_then(|()| parse_owners(exclude.0, exclude.1)) {
            Ok(groups) if groups.iter().all(is_id) => (OwnerGroups::AllBut(groups), None),
            Ok(mut groups) => {
                groups.retain(is_id);
                (OwnerGroups::AllBut(groups), invalid(exclude, EXCLUDED))
            }
            Err(_) => (OwnerGroups::default(), invalid(exclude, EXCLUDED)),
        }
    }

    /// Reads the loopback range from the environment of the pod's proxy. An invalid range is ignored for the same
    /// reason as invalid owner groups.
    fn loopback(&self) -> (Ipv4Net, Option<Error>) {
        /// The address that every Istio image's validation connects to. If it were treated as loopback, validation
        /// would always fail.
        const PROBED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
        const ALLOWED: &str = "a CIDR within 127.0.0.0/8 that does not hold 127.0.0.6, which validation connects to; using \
                               127.0.0.1/32";
        let (key, default) = (proxy_env::LOOPBACK_CIDR, Redirect::default().loopback_v4);
        let Some(text) = self.env(key) else { return (default, None) };
        match parse_loopback(key, text) {
            Ok(net) if !net.contains(&PROBED) => (net, None),
            _ => (default, Some(Error::new(key, text, ALLOWED))),
        }
    }
}

fn bounded(key: &str, text: &str, bound: &Bound) -> Result<(), Error> {
    let fits = text.split(',').count() <= bound.max;
    if fits { Ok(()) } else { Err(Error::new(key, text, bound.allowed)) }
}

#[cfg(test)]
mod tests;
