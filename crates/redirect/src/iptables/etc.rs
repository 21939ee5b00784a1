//! Users, groups and resolvers from files in `/etc`, which are parsed here so that no name service is queried.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ruleset::Owner;

use super::Error;
use crate::{OwnerGroups, Redirect};

/// The contents of `passwd`, `group` and `resolv.conf`.
#[derive(Debug)]
pub struct Etc {
    passwd: String,
    group: String,
    resolv_conf: io::Result<String>,
}

impl Etc {
    /// Takes the files' contents. `passwd` and `group` are empty strings if the image lacks them, which is normal.
    pub fn new(passwd: String, group: String, resolv_conf: io::Result<String>) -> Self {
        Self { passwd, group, resolv_conf }
    }

    /// Returns empty files, to check settings without an image.
    pub fn none() -> Self {
        Self::new(String::new(), String::new(), Ok(String::new()))
    }

    /// Returns a user's uid.
    pub(super) fn user(&self, name: &str) -> Option<u32> {
        id(&self.passwd, name)
    }

    /// Returns the resolvers by family.
    pub(super) fn resolvers(&self) -> Result<(Vec<Ipv4Addr>, Vec<Ipv6Addr>), Error> {
        match &self.resolv_conf {
            Ok(text) => Ok(nameservers(text)),
            Err(error) => Err(Error::ResolvConf(error.kind().into())),
        }
    }

    /// Replaces names with ids, because the kernel accepts only ids.
    pub fn resolve(&self, redirect: &mut Redirect) -> Result<(), Error> {
        let groups = match &mut redirect.owner_groups {
            OwnerGroups::AllBut(groups) | OwnerGroups::Only(groups) => groups,
        };
        for owner in redirect.proxy_uids.iter_mut() {
            resolve(owner, &self.passwd, "/etc/passwd")?;
        }
        for owner in redirect.proxy_gids.iter_mut().chain(groups) {
            resolve(owner, &self.group, "/etc/group")?;
        }
        Ok(())
    }
}

fn resolve(owner: &mut Owner, text: &str, file: &'static str) -> Result<(), Error> {
    if let Owner::Name(name) = owner {
        *owner = Owner::Id(id(text, name).ok_or_else(|| Error::NoSuchOwner { name: name.clone(), file })?);
    }
    Ok(())
}

/// Returns the id of a name; in both files the name is the first field and the id the third.
fn id(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.trim().parse().ok()).flatten()
    })
}

/// Parses the addresses of the resolvers; ignores invalid lines, as libc does, and an address's zone (`fe80::1%eth0`), which
/// no rule can match.
fn nameservers(text: &str) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some("nameserver") = words.next() else { continue };
        match words.next().and_then(|word| word.split('%').next()?.parse().ok()) {
            Some(IpAddr::V4(ip)) => v4.push(ip),
            Some(IpAddr::V6(ip)) => v6.push(ip),
            None => {}
        }
    }
    (v4, v6)
}

#[cfg(test)]
impl Etc {
    pub(super) fn of(passwd: &str, group: &str, resolv_conf: Option<&str>) -> Self {
        let resolv_conf = resolv_conf.map(str::to_owned).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        Self::new(passwd.to_owned(), group.to_owned(), resolv_conf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nistio-proxy:x:4711:4712::/:/sbin/nologin\n";
    const GROUP: &str = "root:x:0:\njava:x:202:a,b\n";

    #[test]
    fn names_are_replaced_by_ids() {
        let mut redirect = Redirect {
            proxy_uids: vec![Owner::Name("istio-proxy".to_owned()), Owner::Id(7)],
            owner_groups: OwnerGroups::Only(vec![Owner::Name("java".to_owned())]),
            ..Redirect::default()
        };
        Etc::of(PASSWD, GROUP, None).resolve(&mut redirect).unwrap();
        assert_eq!(redirect.proxy_uids, [Owner::Id(4711), Owner::Id(7)]);
        assert_eq!(redirect.owner_groups, OwnerGroups::Only(vec![Owner::Id(202)]));
    }

    #[test]
    fn a_user_is_not_a_group() {
        let mut redirect = Redirect { proxy_gids: vec![Owner::Name("istio-proxy".to_owned())], ..Redirect::default() };
        let error = Etc::of(PASSWD, GROUP, None).resolve(&mut redirect).unwrap_err();
        assert_eq!(error.to_string(), "\"istio-proxy\" is not in /etc/group; give its numeric id");
    }

    #[test]
    fn resolvers_are_split_by_family_and_other_lines_ignored() {
        let text = "# a comment\nsearch svc\nnameserver 10.96.0.10\n nameserver\t::1 \nnameserver fe80::1%eth0\nnameserver host\nnameserver\n";
        let (v4, v6) = Etc::of("", "", Some(text)).resolvers().unwrap();
        assert_eq!(v4, ["10.96.0.10".parse::<Ipv4Addr>().unwrap()]);
        assert_eq!(v6, ["::1", "fe80::1"].map(|text| text.parse::<Ipv6Addr>().unwrap()));
    }

    #[test]
    fn no_resolv_conf_is_an_error() {
        assert!(matches!(Etc::of("", "", None).resolvers(), Err(Error::ResolvConf(_))));
    }
}
