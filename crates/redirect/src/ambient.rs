//! The settings that determine the rules of an ambient pod: the node's settings, which the pod's annotations override.
//!
//! Pure. Annotations come from anyone who may create pods: each is parsed into types here, and lists are bounded in length.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use contract::ambient::{BYPASS_INBOUND_CAPTURE, DNS_CAPTURE, PROBE_V4, PROBE_V6};
use contract::annotation::REROUTE_VIRTUAL_INTERFACES;
use gocompat::parse_bool;
use ruleset::Interface;

use super::annotations::check_length;
use super::{Error, parse_interface};

/// The settings that, together with the address families of the netns, determine an ambient pod's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmbientRedirect {
    /// Redirect IPv6, too, if the netns has it.
    pub ipv6: bool,
    /// Redirect DNS to ztunnel.
    pub dns: bool,
    /// Redirect inbound connections; false for ingress mode.
    pub inbound: bool,
    /// Interfaces of virtual machines; their inbound traffic is handled as outbound.
    pub virtual_interfaces: Vec<Interface>,
    /// Source addresses of the kubelet's probes, which are not redirected.
    pub probe_v4: Ipv4Addr,
    pub probe_v6: Ipv6Addr,
}

impl Default for AmbientRedirect {
    /// Istio's settings for a pod without annotations on a node without settings.
    fn default() -> Self {
        Self {
            ipv6: false,
            dns: false,
            inbound: true,
            virtual_interfaces: Vec::new(),
            probe_v4: PROBE_V4,
            probe_v6: PROBE_V6,
        }
    }
}

impl AmbientRedirect {
    /// Returns the node's settings with the overrides of a pod's annotations, and the annotation values that were ignored,
    /// as in Istio, for the log.
    ///
    /// # Errors
    /// Fails if the list of virtual interfaces has a name that no interface can have, or too many names. Istio copies such
    /// names into its rules.
    pub fn of_pod(&self, annotations: &BTreeMap<String, String>) -> Result<(Self, Vec<Error>), Error> {
        let boolean = |key| annotations.get(key).map(|text| switch(key, text)).transpose();
        let (dns, bypass) = (boolean(DNS_CAPTURE), boolean(BYPASS_INBOUND_CAPTURE));
        let virtual_interfaces = match annotations.get(REROUTE_VIRTUAL_INTERFACES) {
            Some(text) => interfaces(text)?,
            None => self.virtual_interfaces.clone(),
        };
        let of_pod = Self {
            dns: dns.as_ref().ok().copied().flatten().unwrap_or(self.dns),
            inbound: bypass.as_ref().ok().copied().flatten().map_or(self.inbound, |bypass| !bypass),
            virtual_interfaces,
            ..self.clone()
        };
        Ok((of_pod, [dns, bypass].into_iter().filter_map(Result::err).collect()))
    }
}

fn switch(key: &str, text: &str) -> Result<bool, Error> {
    parse_bool(text).ok_or_else(|| Error::new(key, text, "true or false; using the node's setting"))
}

/// Parses a list of interfaces; ignores empty elements, as Istio does.
fn interfaces(text: &str) -> Result<Vec<Interface>, Error> {
    check_length(REROUTE_VIRTUAL_INTERFACES, text)?;
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| parse_interface(REROUTE_VIRTUAL_INTERFACES, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pod(node: &AmbientRedirect, annotations: &[(&str, &str)]) -> Result<(AmbientRedirect, Vec<Error>), Error> {
        node.of_pod(&annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn annotations_override_the_nodes_settings() {
        let on = AmbientRedirect { dns: true, ..AmbientRedirect::default() };
        let off = AmbientRedirect::default();
        for node in [&on, &off] {
            assert_eq!(of_pod(node, &[]).unwrap(), (node.clone(), vec![]));
            assert!(of_pod(node, &[(DNS_CAPTURE, "true")]).unwrap().0.dns);
            assert!(!of_pod(node, &[(DNS_CAPTURE, "F")]).unwrap().0.dns);
            assert!(!of_pod(node, &[(BYPASS_INBOUND_CAPTURE, "1")]).unwrap().0.inbound);
            assert!(of_pod(node, &[(BYPASS_INBOUND_CAPTURE, "false")]).unwrap().0.inbound);
        }
    }

    #[test]
    fn an_invalid_boolean_is_ignored_with_a_warning() {
        let node = AmbientRedirect { dns: true, ..AmbientRedirect::default() };
        let (redirect, warnings) = of_pod(&node, &[(DNS_CAPTURE, "no"), (BYPASS_INBOUND_CAPTURE, "")]).unwrap();
        assert_eq!(redirect, node);
        let keys: Vec<_> = warnings.iter().map(|warning| warning.key.as_str()).collect();
        assert_eq!(keys, [DNS_CAPTURE, BYPASS_INBOUND_CAPTURE]);
    }

    #[test]
    fn interfaces_are_trimmed_and_checked() {
        let parse = |text: &str| of_pod(&AmbientRedirect::default(), &[(REROUTE_VIRTUAL_INTERFACES, text)]);
        let names =
            |text| parse(text).unwrap().0.virtual_interfaces.iter().map(Interface::to_string).collect::<Vec<_>>();
        assert_eq!(names(" en0ps1 ,, en1ps1,"), ["en0ps1", "en1ps1"]);
        assert_eq!(names(""), Vec::<String>::new());
        for junk in ["eth0 -j ACCEPT", "a;b", "sixteen-letters-", "-o", "e\nadd rule"] {
            let error = parse(junk).unwrap_err();
            assert_eq!((error.key.as_str(), error.value.as_str()), (REROUTE_VIRTUAL_INTERFACES, junk));
        }
        assert!(parse(&vec!["a"; 32].join(",")).is_ok());
        assert_eq!(parse(&vec!["a"; 33].join(",")).unwrap_err().allowed, "at most 32 interfaces");
    }
}
