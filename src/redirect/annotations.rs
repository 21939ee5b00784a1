//! Pod facts → [`Redirect`]: the annotations and the proxy's environment, read the way Istio's plugin reads them.
//!
//! Pure; called by the plugin, by repair and by whoever explains a pod. Annotations are written by whoever may create
//! pods: each value is taken apart into types here, bounded in number, or refused with its key and what is allowed.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::{
    CidrSelector, DnsCapture, Error, InterceptionMode, Interface, Owner, OwnerGroups, Port, PortSelector, Redirect,
    parse_cidrs, parse_loopback,
};
use crate::contract::{PROXY_ID, annotation, port, proxy_env};
use crate::pod::PodFacts;

/// How long a list may be.
struct Bound {
    most: usize,
    said: &'static str,
}

/// Of ports, ranges or groups. Each becomes up to four rules that new connections of the pod are held against: more is
/// a mistake or an attack, and the node would pay for it.
const MANY: Bound = Bound { most: 1024, said: "at most 1024 elements" };
/// Of interfaces; virtual ones are multiplied by the ranges.
const SOME: Bound = Bound { most: 32, said: "at most 32 interfaces" };
/// What is excluded where a pod names nothing: the proxy's merged metrics.
const SPARED: &str = "15020";

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// No rules: interception mode `NONE`.
    Nothing,
    /// These rules.
    Redirect {
        /// What decides the rules.
        redirect: Box<Redirect>,
        /// Values that were passed over, as Istio does; for the log.
        warnings: Vec<Error>,
    },
}

/// What the pod's annotations and its proxy's environment and ids ask for.
///
/// # Errors
/// A value that is not allowed. The pod must not start then: whoever wrote it believes that traffic is redirected.
pub fn from_pod(facts: &PodFacts) -> Result<Asked, Error> {
    let pod = Pod(facts);
    let Some(mode) = pod.mode()? else {
        return Ok(Asked::Nothing);
    };
    let (owner_groups, group_warning) = pod.owner_groups();
    let (loopback_v4, loopback_warning) = pod.loopback();
    let switches = [proxy_env::DNS_CAPTURE, proxy_env::DUAL_STACK, proxy_env::INVALID_DROP].map(|key| pod.switch(key));
    let [dns, dual_stack, drop_invalid] = switches.clone().map(|s| s.unwrap_or(false));
    let redirect = Redirect {
        mode,
        proxy_uids: vec![proxy_id(facts.proxy.as_ref().and_then(|p| p.run_as_user))],
        proxy_gids: vec![proxy_id(facts.proxy.as_ref().and_then(|p| p.run_as_group))],
        inbound_ports: pod.list(annotation::INCLUDE_INBOUND_PORTS, "*", &MANY, PortSelector::parse)?,
        inbound_ports_exclude: pod.inbound_ports_exclude()?,
        outbound_ports_include: pod.list(annotation::INCLUDE_OUTBOUND_PORTS, "", &MANY, Port::parse_list)?,
        outbound_ports_exclude: pod.list(annotation::EXCLUDE_OUTBOUND_PORTS, SPARED, &MANY, Port::parse_list)?,
        outbound_cidrs: pod.list(annotation::INCLUDE_OUTBOUND_CIDRS, "*", &MANY, CidrSelector::parse)?,
        outbound_cidrs_exclude: pod.list(annotation::EXCLUDE_OUTBOUND_CIDRS, "", &MANY, parse_cidrs)?,
        exclude_interfaces: pod.list(annotation::EXCLUDE_INTERFACES, "", &SOME, Interface::parse_list)?,
        virtual_interfaces: pod.list(pod.virtual_key(), "", &SOME, Interface::parse_list)?,
        // A plugin does not see the pod's /etc/resolv.conf: all DNS or none.
        dns: if dns { DnsCapture::All } else { DnsCapture::Off },
        dual_stack,
        drop_invalid,
        owner_groups,
        loopback_v4,
        ..Redirect::default()
    };
    let warnings = switches.into_iter().filter_map(Result::err).chain(group_warning).chain(loopback_warning).collect();
    Ok(Asked::Redirect { redirect: Box::new(redirect), warnings })
}

/// A boolean as Go's `strconv.ParseBool` reads one.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// No user and user 0 are both "not said": the proxy never runs as root.
fn proxy_id(given: Option<u32>) -> Owner {
    Owner::Id(given.filter(|id| *id != 0).unwrap_or(PROXY_ID))
}

/// The facts, as they are asked here.
struct Pod<'a>(&'a PodFacts);

impl<'a> Pod<'a> {
    fn annotation(&self, key: &str) -> Option<&'a str> {
        self.0.annotations.get(key).map(String::as_str)
    }

    fn env(&self, key: &str) -> Option<&'a str> {
        self.0.proxy.as_ref()?.env.get(key).map(String::as_str)
    }

    /// Nothing where the pod wants no interception.
    fn mode(&self) -> Result<Option<InterceptionMode>, Error> {
        let key = annotation::INTERCEPTION_MODE;
        match self.annotation(key) {
            None | Some("REDIRECT") => Ok(Some(InterceptionMode::Redirect)),
            Some("TPROXY") => Ok(Some(InterceptionMode::Tproxy)),
            // Istio's plugin fails here, though its injector writes it.
            Some("NONE") => Ok(None),
            Some(other) => Err(Error::new(key, other, "REDIRECT, TPROXY or NONE")),
        }
    }

    /// An annotation that holds a list. Istio refuses an empty element here (it does not on the command line), and so
    /// do we: it is what a template leaves behind that lost a value.
    fn list<T>(
        &self,
        key: &str,
        default: &str,
        bound: &Bound,
        parse: fn(&str, &str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let text = self.annotation(key).unwrap_or(default);
        bounded(key, text, bound)?;
        if !text.trim().is_empty() && text.split(',').any(|part| part.trim().is_empty()) {
            return Err(Error::new(key, text, "a comma-separated list without empty elements"));
        }
        parse(key, text)
    }

    /// What the pod excludes, then the ports that are always excluded, each once.
    fn inbound_ports_exclude(&self) -> Result<Vec<Port>, Error> {
        let mut ports = Vec::new();
        let given = self.list(annotation::EXCLUDE_INBOUND_PORTS, SPARED, &MANY, Port::parse_list)?;
        for port in given.into_iter().chain(port::NEVER_INBOUND.map(Port)) {
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        Ok(ports)
    }

    /// The older name counts only where the newer is absent, not where it is empty.
    fn virtual_key(&self) -> &'static str {
        match self.annotation(annotation::REROUTE_VIRTUAL_INTERFACES) {
            Some(_) => annotation::REROUTE_VIRTUAL_INTERFACES,
            None => annotation::KUBEVIRT_INTERFACES,
        }
    }

    /// A boolean of the proxy's environment, as Go reads one; `Err` is to be logged and taken as false.
    fn switch(&self, key: &str) -> Result<bool, Error> {
        let Some(text) = self.env(key) else { return Ok(false) };
        parse_bool(text).ok_or_else(|| Error::new(key, text, "true or false; taken as false"))
    }

    /// From the pod's own proxy. Istio's plugin looks into the environment of the container runtime instead, so that no
    /// value of the pod's keeps it from starting. What cannot be taken is passed over in the way that redirects more.
    fn owner_groups(&self) -> (OwnerGroups, Option<Error>) {
        const NUMBERS: &str =
            "1 to 64 group ids, or `*` (nobody can resolve the names of a pod's image here); taken as `*`";
        const SPARED: &str = "at most 1024 group ids (nobody can resolve the names of a pod's image here); what is none is \
                              redirected";
        let [include, exclude] = [(proxy_env::OWNER_GROUPS, "*"), (proxy_env::OWNER_GROUPS_EXCLUDE, "")]
            .map(|(key, default)| (key, self.env(key).unwrap_or(default)));
        let passed_over = |(key, text): (&str, &str), said| Some(Error::new(key, text, said));
        let is_id = |owner: &Owner| matches!(owner, Owner::Id(_));
        if include.1.trim() != "*" {
            return match OwnerGroups::parse(include, ("", "")) {
                // An empty list would exempt all outbound traffic.
                Ok(OwnerGroups::Only(groups)) if !groups.is_empty() && groups.iter().all(is_id) => {
                    (OwnerGroups::Only(groups), None)
                }
                _ => (OwnerGroups::default(), passed_over(include, NUMBERS)),
            };
        }
        match bounded(exclude.0, exclude.1, &MANY).and_then(|()| Owner::parse_list(exclude.0, exclude.1)) {
            Ok(groups) if groups.iter().all(is_id) => (OwnerGroups::AllBut(groups), None),
            Ok(mut groups) => {
                groups.retain(is_id);
                (OwnerGroups::AllBut(groups), passed_over(exclude, SPARED))
            }
            Err(_) => (OwnerGroups::default(), passed_over(exclude, SPARED)),
        }
    }

    /// From the pod's own proxy, as the groups are.
    fn loopback(&self) -> (Ipv4Net, Option<Error>) {
        /// Validation connects to it, from every image of Istio's: where it is loopback, that fails for ever.
        const PROBED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
        const ALLOWED: &str = "a CIDR within 127.0.0.0/8 that does not hold 127.0.0.6, which validation connects to; taken \
                               as 127.0.0.1/32";
        let (key, default) = (proxy_env::LOOPBACK_CIDR, Redirect::default().loopback_v4);
        let Some(text) = self.env(key) else { return (default, None) };
        match parse_loopback(key, text) {
            Ok(net) if !net.contains(&PROBED) => (net, None),
            _ => (default, Some(Error::new(key, text, ALLOWED))),
        }
    }
}

fn bounded(key: &str, text: &str, bound: &Bound) -> Result<(), Error> {
    let fits = text.split(',').count() <= bound.most;
    if fits { Ok(()) } else { Err(Error::new(key, text, bound.said)) }
}

#[cfg(test)]
mod tests;
