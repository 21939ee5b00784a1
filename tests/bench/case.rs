//! The two pods that are measured, and the rules that they get, as bytes and as text.
//!
//! A directory of recordings holds batches and rule files captured from iptables-nft; where there is none, the plugin's
//! own encoder makes them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use istio_cni::netfilter::batch::{self, Change, Position};
use istio_cni::netfilter::image::Image;
use istio_cni::netfilter::{self, Backend, restore};
use istio_cni::redirect::annotations::{self, Asked};
use istio_cni::rules::{self, Family};

use crate::netns::PodNetns;
use crate::pod;
use crate::run::{self, Step};

/// A pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Dual stack, DNS capture: 31 rules a family.
    DualDns,
    /// IPv4, Istio's defaults: 20 rules.
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

    /// Key in the machine-readable report.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::DualDns => "dual_dns",
            Self::V4 => "v4",
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

    /// Programs that iptables-restore is, a family each.
    pub(crate) fn families(self) -> &'static [&'static str] {
        match self {
            Self::DualDns => &["iptables", "ip6tables"],
            Self::V4 => &["iptables"],
        }
    }
}

/// Where a recording comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// iptables-nft, whose batches were captured.
    Captured,
    /// The plugin's own encoder.
    Encoded,
}

/// The rules of a case, to be replayed and restored.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// One nf_tables batch that asks for one acknowledgement.
    pub(crate) batch: Vec<u8>,
    /// Input of `iptables-restore`, a family each in the order of [`Case::families`].
    pub(crate) restore: Vec<Vec<u8>>,
}

impl Recording {
    /// Of all cases: what was captured, where the directory is there, else what the encoder makes.
    pub(crate) fn of_all(perf_dir: &Path) -> Result<(Origin, [Self; 2])> {
        let [dual, v4] = Case::ALL;
        if perf_dir.join("batch").is_dir() {
            return Ok((Origin::Captured, [Self::captured(perf_dir, dual)?, Self::captured(perf_dir, v4)?]));
        }
        Ok((Origin::Encoded, [Self::encoded(dual)?, Self::encoded(v4)?]))
    }

    fn captured(perf_dir: &Path, case: Case) -> Result<Self> {
        let read = |name: &str| {
            let path = perf_dir.join(name);
            fs::read(&path).with_context(|| path.display().to_string())
        };
        Ok(match case {
            Case::DualDns => Self {
                batch: read("batch/std-real.v46")?,
                restore: vec![read("rules/std-real.v4")?, read("rules/std-real.v6")?],
            },
            Case::V4 => Self { batch: read("batch/nodns-real.v4")?, restore: vec![read("rules/nodns-real.v4")?] },
        })
    }

    fn encoded(case: Case) -> Result<Self> {
        let Asked::Redirect { redirect, .. } = annotations::from_pod(&pod::facts(case)?)? else {
            bail!("{}: the pod asks for nothing", case.name());
        };
        let rules = rules::build(&redirect, case.dual_stack()).rules;
        let families = if case.dual_stack() { &[Family::V4, Family::V6][..] } else { &[Family::V4] };
        let restore = families.iter().map(|family| restore::render(&rules, *family).into_bytes()).collect();
        let image = netfilter::image(Backend::IptablesNft, &rules)?;
        let batch = batch::encode(&additions(&image), None)?.bytes;
        Ok(Self { batch, restore })
    }
}

/// What fills an empty netns: tables, chains, then the rules that may jump to them.
fn additions<'a>(image: &'a Image<'a>) -> Vec<Change<'a>> {
    let mut changes: Vec<Change<'_>> = image.tables.iter().map(|table| Change::AddTable(table.id)).collect();
    let chains = || image.tables.iter().flat_map(|table| table.chains.iter().map(|chain| (table.id, chain)));
    changes.extend(chains().map(|(table, chain)| Change::AddChain(table, chain)));
    for (table, chain) in chains() {
        changes.extend(chain.rules.iter().map(|rule| Change::AddRule(table, chain.name, rule, Position::Last)));
    }
    changes
}

/// Fails unless the netns has the case's rules, counted by `iptables-nft-save`.
pub(crate) fn verify(case: Case, netns: &PodNetns) -> Result<()> {
    let mut rules = 0;
    for family in ["iptables", "ip6tables"] {
        let save = Step { program: format!("{family}-nft-save").into(), ..Step::default() };
        rules += run::output(netns, &save)?.lines().filter(|line| line.starts_with("-A ")).count();
    }
    ensure!(rules == case.rules(), "{}: {rules} rules were left, not {}", case.name(), case.rules());
    Ok(())
}
