//! Which backend: what the kernel and the netns are like, and what follows.

use nix::errno::Errno;

use super::{Backend, Error, legacy};
use crate::netlink::{self, Protocol, Socket, Writer, flag};
use crate::rules::Family;

/// What decides the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelFacts {
    /// iptables-legacy has tables in this netns, of either family.
    pub legacy_in_use: bool,
    /// The programs of iptables-legacy are installed.
    pub legacy_programs: bool,
    /// The kernel has nf_tables.
    pub nf_tables: bool,
    /// nf_tables knows the extensions of iptables (`CONFIG_NFT_COMPAT`).
    pub compat: bool,
}

/// A backend that the user insists on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    /// iptables-nft's rules.
    Nft,
    /// iptables-legacy.
    Legacy,
}

/// No backend can do what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Asked for, or the only one left.
    #[error("the kernel has no nf_tables: load the module nf_tables")]
    NfTables,
    /// Asked for.
    #[error("the kernel's nf_tables has no iptables extensions: load the module nft_compat with xt_owner")]
    Compat,
    /// Asked for.
    #[error("iptables-legacy-restore is not installed")]
    LegacyPrograms,
    /// Neither way is open.
    #[error(
        "the kernel has no nf_tables with iptables extensions (modules nf_tables, nft_compat, xt_owner), and \
         iptables-legacy-restore is not installed: load the former or install the latter"
    )]
    All,
}

/// The backend, as Istio chooses it: what is forced; legacy where it is in use; else nf_tables; else legacy.
pub fn choose(native: bool, forced: Option<Forced>, facts: &KernelFacts) -> Result<Backend, Unavailable> {
    let nft = match (facts.nf_tables, facts.compat) {
        (false, _) => Err(Unavailable::NfTables),
        (true, false) => Err(Unavailable::Compat),
        (true, true) => Ok(Backend::IptablesNft),
    };
    let legacy = if facts.legacy_programs { Ok(Backend::IptablesLegacy) } else { Err(Unavailable::LegacyPrograms) };
    match forced {
        _ if native && facts.nf_tables => Ok(Backend::NativeNft),
        _ if native => Err(Unavailable::NfTables),
        Some(Forced::Nft) => nft,
        Some(Forced::Legacy) => legacy,
        None if facts.legacy_in_use => legacy.or(nft).or(Err(Unavailable::All)),
        None => nft.or(legacy).or(Err(Unavailable::All)),
    }
}

/// The backend that a usual kernel has, found with no question but whether legacy is in use in the pod's families: a
/// look at a file each. Where the kernel turns out to lack something, [`probe`] and [`choose`] say what is left.
pub fn presume(native: bool, forced: Option<Forced>, ipv6: bool) -> Backend {
    match forced {
        _ if native => Backend::NativeNft,
        Some(Forced::Nft) => Backend::IptablesNft,
        Some(Forced::Legacy) => Backend::IptablesLegacy,
        None if legacy_in_use(ipv6) => Backend::IptablesLegacy,
        None => Backend::IptablesNft,
    }
}

fn legacy_in_use(ipv6: bool) -> bool {
    let families = legacy::FAMILIES.iter().filter(|f| ipv6 || f.family == Family::V4);
    families.into_iter().any(|f| !legacy::tables_in_use(f.names).is_empty())
}

/// The facts of the calling thread's netns. Runs no program and changes nothing.
pub fn probe() -> Result<KernelFacts, Error> {
    let (nf_tables, compat) = nf_tables()?;
    Ok(KernelFacts { legacy_in_use: legacy_in_use(true), legacy_programs: legacy::is_installed(), nf_tables, compat })
}

/// Whether the kernel has nf_tables, and with it iptables' owner match, without which no rule set of ours is.
fn nf_tables() -> Result<(bool, bool), Error> {
    /// `NFNL_SUBSYS_NFTABLES`, `NFT_MSG_GETGEN`
    const GETGEN: u16 = 10 << 8 | 16;
    /// `NFNL_SUBSYS_NFT_COMPAT`, `NFNL_MSG_COMPAT_GET`
    const COMPAT_GET: u16 = 11 << 8;
    const NFPROTO_IPV4: u8 = 2;
    let mut socket = match Socket::open(Protocol::Netfilter) {
        Err(netlink::Error::Open { source: Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT, .. }) => {
            return Ok((false, false));
        }
        other => other?,
    };
    let has = |socket: &mut Socket, kind, family, body: fn(&mut Writer)| {
        let mut w = Writer::with_capacity(64);
        w.message(kind, flag::REQUEST | flag::ACK, 1, |w| {
            w.raw(&[family, 0, 0, 0]);
            body(w);
        });
        let bytes = w.into_bytes().map_err(Error::Encoding)?;
        match socket.ask("asking what nf_tables can do", &bytes, 1, |_| Ok(())) {
            Ok(()) => Ok(true),
            Err(netlink::Error::Refused { refusal, .. }) if refusal.errno != Errno::EPERM => Ok(false),
            Err(error) => Err(Error::from(error)),
        }
    };
    // Who answers this has the other.
    let compat = has(&mut socket, COMPAT_GET, NFPROTO_IPV4, |w| {
        w.text(1, "owner");
        w.u32_be(2, 1);
        w.u32_be(3, 0);
    })?;
    Ok((compat || has(&mut socket, GETGEN, 0, |_| ())?, compat))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: KernelFacts =
        KernelFacts { legacy_in_use: false, legacy_programs: true, nf_tables: true, compat: true };

    #[test]
    fn legacy_only_where_it_is_in_use_or_nothing_else_is_there() {
        assert_eq!(choose(false, None, &NODE), Ok(Backend::IptablesNft));
        let in_use = KernelFacts { legacy_in_use: true, ..NODE };
        assert_eq!(choose(false, None, &in_use), Ok(Backend::IptablesLegacy));
        let unusable = KernelFacts { legacy_programs: false, ..in_use };
        assert_eq!(choose(false, None, &unusable), Ok(Backend::IptablesNft));
        let bare = KernelFacts { compat: false, ..NODE };
        assert_eq!(choose(false, None, &bare), Ok(Backend::IptablesLegacy));
        let none = KernelFacts { legacy_programs: false, ..bare };
        assert_eq!(choose(false, None, &none), Err(Unavailable::All));
    }

    #[test]
    fn what_is_forced_has_no_fallback() {
        let old = KernelFacts { nf_tables: false, compat: false, ..NODE };
        assert_eq!(choose(false, Some(Forced::Nft), &old), Err(Unavailable::NfTables));
        assert_eq!(choose(true, Some(Forced::Legacy), &old), Err(Unavailable::NfTables));
        assert_eq!(choose(false, Some(Forced::Legacy), &old), Ok(Backend::IptablesLegacy));
        let compatless = KernelFacts { compat: false, ..NODE };
        assert_eq!(choose(false, Some(Forced::Nft), &compatless), Err(Unavailable::Compat));
        assert_eq!(choose(true, None, &compatless), Ok(Backend::NativeNft));
        let bare = KernelFacts { legacy_programs: false, ..NODE };
        assert_eq!(choose(false, Some(Forced::Legacy), &bare), Err(Unavailable::LegacyPrograms));
    }
}
