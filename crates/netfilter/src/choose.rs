//! Selects the backend from the features of the kernel and the tables that the netns uses.

use contract::IptablesBinary;
use netlink::{self, Protocol, Socket, Writer, flag};
use ruleset::Family;

use super::uapi::*;
use super::{Backend, Error, legacy};

/// The properties of the kernel, the netns and the installed programs that determine the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelFacts {
    /// The netns has iptables-legacy tables of either family.
    pub legacy_in_use: bool,
    /// The programs of iptables-legacy are installed under their `-legacy` names.
    pub legacy_programs: bool,
    /// The programs of iptables-legacy are installed as plain `iptables-restore` and `iptables-save`.
    pub plain_programs: bool,
    /// The kernel supports nf_tables.
    pub nf_tables: bool,
    /// nf_tables supports the iptables extensions that every rule set needs (`CONFIG_NFT_COMPAT`): owner match and
    /// nat's REDIRECT.
    pub compat: bool,
}

/// Why no backend is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The kernel has no nf_tables, which the required backend needs.
    #[error("the kernel has no nf_tables: load the module nf_tables")]
    NfTables,
    #[error("the kernel's nf_tables has no iptables extensions: load the modules nft_compat, xt_owner and xt_REDIRECT")]
    Compat,
    #[error("iptables-legacy-restore is not installed")]
    LegacyPrograms,
    #[error(
        "the kernel has no nf_tables (module nf_tables), and neither iptables-legacy-restore nor iptables-restore is \
         installed: load the former or install one of the latter"
    )]
    All,
}

impl Unavailable {
    /// Whether a program is missing in the process's mount namespace.
    pub fn is_missing_program(self) -> bool {
        matches!(self, Self::LegacyPrograms | Self::All)
    }
}

/// Selects the first of the [`candidates`].
pub fn choose(native: bool, forced: Option<IptablesBinary>, facts: &KernelFacts) -> Result<Backend, Unavailable> {
    candidates(native, forced, facts)?.first().copied().ok_or(Unavailable::All)
}

/// Lists the usable backends, the preferred one first. A required backend has no alternative. Otherwise the order is:
/// iptables-legacy if the netns has its tables, iptables-nft, iptables-legacy, native tables, and last the
/// iptables-legacy programs with plain names, which may be of any age.
pub fn candidates(
    native: bool,
    forced: Option<IptablesBinary>,
    facts: &KernelFacts,
) -> Result<Vec<Backend>, Unavailable> {
    let plain = facts.plain_programs.then_some(Backend::IptablesLegacy);
    let legacy = facts.legacy_programs.then_some(Backend::IptablesLegacy);
    let nft = match (facts.nf_tables, facts.compat) {
        (false, _) => Err(Unavailable::NfTables),
        (true, false) => Err(Unavailable::Compat),
        (true, true) => Ok(Backend::IptablesNft),
    };
    match forced {
        _ if native && facts.nf_tables => return Ok(vec![Backend::NativeNft]),
        _ if native => return Err(Unavailable::NfTables),
        Some(IptablesBinary::Nft) => return nft.map(|nft| vec![nft]),
        Some(IptablesBinary::Legacy) => return legacy.or(plain).map(|l| vec![l]).ok_or(Unavailable::LegacyPrograms),
        None => {}
    }
    let in_use = legacy.or(plain).filter(|_| facts.legacy_in_use);
    let fallback = facts.nf_tables.then_some(Backend::NativeFallback);
    let mut found: Vec<Backend> = Vec::new();
    for backend in [in_use, nft.ok(), legacy, fallback, plain].into_iter().flatten() {
        if !found.contains(&backend) {
            found.push(backend);
        }
    }
    if found.is_empty() { Err(Unavailable::All) } else { Ok(found) }
}

/// Selects the backend for a typical kernel, without querying the kernel. If it lacks a feature, [`probe`] and
/// [`candidates`] give the alternatives.
pub fn presume(native: bool, forced: Option<IptablesBinary>, legacy_in_use: bool) -> Backend {
    match forced {
        _ if native => Backend::NativeNft,
        Some(IptablesBinary::Nft) => Backend::IptablesNft,
        Some(IptablesBinary::Legacy) => Backend::IptablesLegacy,
        None if legacy_in_use => Backend::IptablesLegacy,
        None => Backend::IptablesNft,
    }
}

/// Whether the calling thread's netns has iptables-legacy tables of this family, according to a file in `/proc`.
pub fn legacy_in_use(family: Family) -> Result<bool, Error> {
    has_legacy_table(|programs| programs.family == family, |_| true)
}

/// Whether the calling thread's netns has a `mangle` table of iptables-legacy, in either family: only TPROXY needs it.
pub fn legacy_mangle_in_use() -> Result<bool, Error> {
    has_legacy_table(|_| true, |table| table == "mangle")
}

/// Whether the calling thread's netns has such a table of iptables-legacy in such a family.
fn has_legacy_table(family: impl Fn(&legacy::Programs) -> bool, table: impl Fn(&str) -> bool) -> Result<bool, Error> {
    for programs in legacy::FAMILIES.iter().filter(|programs| family(programs)) {
        if legacy::tables_in_use(programs.names)?.iter().any(|name| table(name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the [`KernelFacts`] of the calling thread's netns without changing it. Runs `iptables-restore --version` if no
/// program has a `-legacy` name.
pub fn probe() -> Result<KernelFacts, Error> {
    let (nf_tables, compat) = nf_tables()?;
    let legacy_in_use = has_legacy_table(|_| true, |_| true)?;
    let legacy_programs = legacy::is_installed();
    let plain_programs = !legacy_programs && legacy::is_installed_plainly()?;
    Ok(KernelFacts { legacy_in_use, legacy_programs, plain_programs, nf_tables, compat })
}

/// Returns whether the kernel supports nf_tables, and whether it supports the iptables extensions that every rule set needs.
fn nf_tables() -> Result<(bool, bool), Error> {
    const GETGEN: u16 = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN);
    const COMPAT_GET: u16 = message_type(NFNL_SUBSYS_NFT_COMPAT, NFNL_MSG_COMPAT_GET);
    /// Name, revision and type (`NFTA_COMPAT_TYPE`: 0 match, 1 target) of an extension.
    const OWNER: (&str, u32, u32) = ("owner", 1, 0);
    const REDIRECT: (&str, u32, u32) = ("REDIRECT", 0, 1);
    const NFPROTO_IPV4: u8 = 2;
    let Some(mut socket) = supported(Socket::open(Protocol::Netfilter))? else { return Ok((false, false)) };
    let has = |socket: &mut Socket, kind, family, body: &dyn Fn(&mut Writer)| {
        let mut w = Writer::with_capacity(64);
        w.message(kind, flag::REQUEST | flag::ACK, 1, |w| {
            w.raw(&[family, 0, 0, 0]);
            body(w);
        });
        let bytes = w.into_bytes().map_err(Error::Encoding)?;
        let probed = socket.request("probing the capabilities of nf_tables", &bytes, 1, |_| Ok(()));
        supported(probed).map(|has| has.is_some())
    };
    // A kernel that supports the extensions also supports nf_tables.
    let mut extension = |(name, revision, kind)| {
        has(&mut socket, COMPAT_GET, NFPROTO_IPV4, &|w| {
            w.text(NFTA_COMPAT_NAME, name);
            w.u32_be(NFTA_COMPAT_REV, revision);
            w.u32_be(NFTA_COMPAT_TYPE, kind);
        })
    };
    let compat = extension(OWNER)? && extension(REDIRECT)?;
    Ok((compat || has(&mut socket, GETGEN, 0, &|_| ())?, compat))
}

/// Returns none if the kernel lacks what was requested. Any other failure leaves that unknown, and is returned.
fn supported<T>(probed: Result<T, netlink::Error>) -> Result<Option<T>, Error> {
    match probed {
        Err(error) if error.is_unsupported() => Ok(None),
        probed => Ok(Some(probed?)),
    }
}

#[cfg(test)]
mod tests {
    use netlink::Refusal;
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_refusal_for_a_lack_of_memory_does_not_mean_a_kernel_without_nf_tables() {
        let refused =
            |errno| Err(netlink::Error::Refused { request: "x", refusal: Refusal { seq: 1, errno, text: None } });
        assert!(matches!(supported(Ok(())), Ok(Some(()))));
        for errno in [Errno::EINVAL, Errno::ENOENT, Errno::EPROTONOSUPPORT, Errno::EOPNOTSUPP] {
            assert!(matches!(supported::<()>(refused(errno)), Ok(None)), "{errno}");
        }
        for errno in [Errno::ENOMEM, Errno::EAGAIN, Errno::EBUSY, Errno::ENOBUFS, Errno::EINTR] {
            assert!(supported::<()>(refused(errno)).is_err_and(|error| error.is_temporary()), "{errno}");
        }
        assert!(supported::<()>(refused(Errno::EPERM)).is_err_and(|error| error.is_denied()));
    }

    const NODE: KernelFacts = KernelFacts {
        legacy_in_use: false,
        legacy_programs: true,
        plain_programs: false,
        nf_tables: true,
        compat: true,
    };

    #[test]
    fn legacy_is_chosen_only_if_in_use_or_as_a_fallback() {
        assert_eq!(choose(false, None, &NODE), Ok(Backend::IptablesNft));
        let in_use = KernelFacts { legacy_in_use: true, ..NODE };
        assert_eq!(choose(false, None, &in_use), Ok(Backend::IptablesLegacy));
        let unusable = KernelFacts { legacy_programs: false, ..in_use };
        assert_eq!(choose(false, None, &unusable), Ok(Backend::IptablesNft));
        let bare = KernelFacts { compat: false, ..NODE };
        assert_eq!(choose(false, None, &bare), Ok(Backend::IptablesLegacy));
        let none = KernelFacts { legacy_programs: false, nf_tables: false, ..bare };
        assert_eq!(choose(false, None, &none), Err(Unavailable::All));
    }

    #[test]
    fn native_tables_precede_plain_programs_as_fallback() {
        use Backend::{IptablesLegacy, IptablesNft, NativeFallback};
        let all = |facts| candidates(false, None, &facts).unwrap();
        assert_eq!(all(NODE), [IptablesNft, IptablesLegacy, NativeFallback]);
        let without_compat = KernelFacts { compat: false, ..NODE };
        assert_eq!(all(without_compat), [IptablesLegacy, NativeFallback]);
        let plain = KernelFacts { legacy_programs: false, plain_programs: true, ..without_compat };
        assert_eq!(all(plain), [NativeFallback, IptablesLegacy]);
        assert_eq!(all(KernelFacts { legacy_in_use: true, ..plain }), [IptablesLegacy, NativeFallback]);
        assert_eq!(all(KernelFacts { nf_tables: false, ..plain }), [IptablesLegacy]);
        assert_eq!(all(KernelFacts { plain_programs: false, ..plain }), [NativeFallback]);
        assert_eq!(candidates(false, Some(IptablesBinary::Legacy), &plain), Ok(vec![IptablesLegacy]));
    }

    #[test]
    fn a_forced_backend_has_no_fallback() {
        let old = KernelFacts { nf_tables: false, compat: false, ..NODE };
        assert_eq!(choose(false, Some(IptablesBinary::Nft), &old), Err(Unavailable::NfTables));
        assert_eq!(choose(true, Some(IptablesBinary::Legacy), &old), Err(Unavailable::NfTables));
        assert_eq!(choose(false, Some(IptablesBinary::Legacy), &old), Ok(Backend::IptablesLegacy));
        let compatless = KernelFacts { compat: false, ..NODE };
        assert_eq!(choose(false, Some(IptablesBinary::Nft), &compatless), Err(Unavailable::Compat));
        assert_eq!(choose(true, None, &compatless), Ok(Backend::NativeNft));
        let bare = KernelFacts { legacy_programs: false, ..NODE };
        assert_eq!(choose(false, Some(IptablesBinary::Legacy), &bare), Err(Unavailable::LegacyPrograms));
    }
}
