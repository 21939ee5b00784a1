//! The tested kernels, the parts that are removed from each, and the selected trials.

use std::fmt::{self, Write as _};
use std::path::Path;

/// A part of the kernel that nodes may lack, by its name in `KERNEL_LACKS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// iptables' extensions in nf_tables.
    NftCompat,
    /// iptables-legacy's tables.
    LegacyTables,
    /// IPv6, which is built into Debian's kernels.
    Ipv6,
}

impl Part {
    fn as_str(self) -> &'static str {
        match self {
            Self::NftCompat => "nft_compat",
            Self::LegacyTables => "legacy tables",
            Self::Ipv6 => "IPv6",
        }
    }

    fn has(self, module: &str) -> bool {
        match self {
            Self::NftCompat => module == "nft_compat",
            Self::LegacyTables => {
                ["ip_tables", "ip6_tables", "iptable_", "ip6table_"].iter().any(|m| module.starts_with(m))
            }
            Self::Ipv6 => false,
        }
    }
}

/// A kernel to boot, with or without some of its parts.
#[derive(Debug)]
pub(crate) struct Variant {
    /// The release of Debian that has the kernel.
    pub(crate) suite: &'static str,
    version: &'static str,
    pub(crate) lacks: &'static [Part],
    /// The minimum number of trials that must pass.
    pub(crate) at_least: usize,
}

use Part::{Ipv6, LegacyTables, NftCompat};

pub(crate) const ALL: [Variant; 7] = [
    Variant { suite: "bullseye", version: "5.10", lacks: &[], at_least: 70 },
    Variant { suite: "bookworm", version: "6.1", lacks: &[], at_least: 70 },
    Variant { suite: "trixie", version: "6.12", lacks: &[], at_least: 70 },
    Variant { suite: "bookworm", version: "6.1", lacks: &[NftCompat], at_least: 45 },
    Variant { suite: "bookworm", version: "6.1", lacks: &[LegacyTables], at_least: 40 },
    Variant { suite: "bookworm", version: "6.1", lacks: &[NftCompat, LegacyTables], at_least: 30 },
    Variant { suite: "bookworm", version: "6.1", lacks: &[Ipv6], at_least: 25 },
];

/// Trials that do not run in a guest, by parts of their names, with the reasons. A guest is ten times as slow as this
/// machine.
pub(crate) const SKIPPED: [(&str, &[&str]); 5] = [
    (
        "they depend on no part of netfilter",
        &[
            "find::",
            "visit::",
            "repair::",
            "a_faulty_agent",
            "invalid_settings",
            "a_pod_without_facts",
            "an_invalid_netns",
            "its_own_netns",
            "the_api_server_is_asked",
            "used_ports",
            "refused_to_another_user",
            "another_programs_listener",
        ],
    ),
    (
        "they compare many rule sets as text, and the truth table has the same expressions",
        &["encoder/", "apply_is_idempotent", "three_thousand_rules", "reconciles/", "printed_as_saved", "iptables::"],
    ),
    ("programs of iptables and nftables load their rules", &["::iptables-nft", "::iptables-legacy", "::nft"]),
    (
        "other configurations of the truth table have the same expressions",
        &[
            "::nothing::",
            "loopback_range",
            "outbound_ranges",
            "virtual_interface",
            "dns_servers",
            "tproxy_ports",
            "owner_groups_exclude",
            "proxy_ids",
        ],
    ),
    (
        "they exceed time limits in a guest",
        &["concurrent_calls", "refused_without_rules", "retries_until_rules", "dropped_connections"],
    ),
];

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version)?;
        for (i, part) in self.lacks.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { " without " } else { " and " }, part.as_str())?;
        }
        Ok(())
    }
}

impl Variant {
    /// Whether the variant lacks a module.
    pub(crate) fn is_without(&self, module: &str) -> bool {
        self.lacks.iter().any(|part| part.has(module))
    }

    /// Returns additional parameters of the kernel's command line.
    pub(crate) fn parameters(&self) -> &'static str {
        if self.lacks.contains(&Ipv6) { "ipv6.disable=1" } else { "" }
    }

    /// Returns the command that runs the trials in the guest. Trials are ignored only for parts that the variant lacks;
    /// anything else that is missing makes them fail.
    pub(crate) fn command(&self, test: &Path) -> String {
        let lacks: Vec<&str> = self.lacks.iter().map(|part| part.as_str()).collect();
        let skipped: String = SKIPPED.iter().flat_map(|(_, words)| *words).fold(String::new(), |mut text, word| {
            let _ = write!(text, " --skip {word}");
            text
        });
        let (lacks, test) = (lacks.join(","), test.display());
        format!("REQUIRE_TIERS=netns KERNEL_LACKS='{lacks}' {test} --color=never --test-threads=2{skipped}")
    }

    /// Returns the backend that the plugin chooses on this kernel without configuration. The trials of the truth table
    /// check it.
    pub(crate) fn chosen(&self) -> &'static str {
        match (self.lacks.contains(&NftCompat), self.lacks.contains(&LegacyTables)) {
            (false, _) => "iptables-nft",
            (true, false) => "iptables-legacy",
            (true, true) => "native nftables",
        }
    }

    /// Returns the address families that can be redirected on this kernel, for the table.
    pub(crate) fn families(&self) -> &'static str {
        if self.lacks.contains(&Ipv6) { "IPv4" } else { "IPv4, IPv6" }
    }
}
