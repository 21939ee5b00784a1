//! The two measured pods and their recorded rules, as a netlink batch and as input of `iptables-restore`.
//!
//! The batch was recorded from iptables-nft, so that the time of [`Subject::Floor`](crate::subject::Subject::Floor)
//! does not change when the plugin's own encoder does.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::netns::PodNetns;
use crate::run::{self, Step};

/// A measured pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// A dual-stack pod with DNS capture: 31 rules for each family.
    DualDns,
    /// An IPv4 pod with Istio's default settings: 20 rules.
    V4,
}

impl Case {
    pub(crate) const ALL: [Self; 2] = [Self::DualDns, Self::V4];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DualDns => "dual stack, DNS capture",
            Self::V4 => "IPv4, defaults",
        }
    }

    /// Returns the case's key in the JSON report.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::DualDns => "dual_dns",
            Self::V4 => "v4",
        }
    }

    /// Returns the target for our ADD, in milliseconds, on two processors of a virtual machine.
    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::DualDns => 1.5,
            Self::V4 => 1.1,
        }
    }

    pub(crate) fn dual_stack(self) -> bool {
        self == Self::DualDns
    }

    pub(crate) fn rules(self) -> usize {
        match self {
            Self::DualDns => 62,
            Self::V4 => 20,
        }
    }

    /// Returns the prefixes of the restore programs' names, one for each family of the pod.
    pub(crate) fn families(self) -> &'static [&'static str] {
        match self {
            Self::DualDns => &["iptables", "ip6tables"],
            Self::V4 => &["iptables"],
        }
    }
}

/// The recorded rules of a measured pod.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// One nf_tables batch that requests one acknowledgement.
    pub(crate) batch: Vec<u8>,
    /// The input of `iptables-restore` for each family, in the order of [`Case::families`].
    pub(crate) restore: Vec<Vec<u8>>,
}

impl Recording {
    /// Reads the recording of a case.
    pub(crate) fn read(dir: &Path, case: Case) -> Result<Self> {
        let (batch, restore) = match case {
            Case::DualDns => ("batch/std-real.v46", &["rules/std-real.v4", "rules/std-real.v6"][..]),
            Case::V4 => ("batch/nodns-real.v4", &["rules/nodns-real.v4"][..]),
        };
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read(&path).with_context(|| path.display().to_string())
        };
        Ok(Self { batch: read(batch)?, restore: restore.iter().map(|name| read(name)).collect::<Result<_>>()? })
    }
}

/// Fails unless the netns has as many rules as the case, counted with `iptables-nft-save`.
pub(crate) fn verify(case: Case, netns: &PodNetns) -> Result<()> {
    let mut rules = 0;
    for family in ["iptables", "ip6tables"] {
        let save = Step { program: format!("{family}-nft-save").into(), ..Step::default() };
        rules += run::output(netns, &save)?.lines().filter(|line| line.starts_with("-A ")).count();
    }
    ensure!(rules == case.rules(), "{}: {rules} rules were left, not {}", case.name(), case.rules());
    Ok(())
}
