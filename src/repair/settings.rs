//! What repair is to do: flags and variables, read once and checked.

use std::num::NonZeroU32;
use std::path::PathBuf;

use super::flags::{Flags, Given};
use super::selector::{self, Selector};
use crate::contract;
use crate::converge::{OnDifference, Options};
use crate::netfilter::Forced;
use crate::netns::find::SearchPaths;

/// What becomes of broken pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are evicted; disruption budgets hold.
    Evict,
    /// They are deleted.
    Delete,
    /// They get a label.
    Label,
    /// Their netns is programmed, as the plugin would have done it.
    Repair,
    /// The same, and they are evicted where validation fails all the same.
    RepairOrEvict,
    /// They are logged.
    Observe,
    /// They are told as events; of the watchdog alone.
    Report,
    /// They are deleted where that helps, and told as events where it does not; of the watchdog alone.
    DeleteOrReport,
}

impl Mode {
    /// Those of repair.
    const ALL: [Self; 6] = [Self::Evict, Self::Delete, Self::Label, Self::Repair, Self::RepairOrEvict, Self::Observe];

    /// As in flags and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Evict => "evict",
            Self::Delete => "delete",
            Self::Label => "label",
            Self::Repair => "repair",
            Self::RepairOrEvict => "repair-or-evict",
            Self::Observe => "observe",
            Self::Report => "report",
            Self::DeleteOrReport => "delete-or-report",
        }
    }
}

/// What a broken pod is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Symptom {
    /// It found out itself that it has no redirection.
    Validation(Validation),
    /// It asks for Dapr's sidecar and has none.
    NoSidecar,
}

/// The validation whose failure counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// Annotation that pods must have, whatever its value; empty: none.
    pub annotation: String,
    /// Name of the validating init container; empty: any.
    pub container: String,
    /// Its exit code; 0: any but success.
    pub exit_code: i32,
    /// Its termination message, blanks around it aside; empty: any.
    pub message: String,
}

/// How broken pods are found, and what becomes of them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Off: nothing is watched.
    pub enabled: bool,
    /// What becomes of broken pods.
    pub mode: Mode,
    /// Decisions are logged, and nothing is done.
    pub dry_run: bool,
    /// Pods without a controller may be evicted or deleted, too.
    pub standalone: bool,
    /// Actions in a minute, at most.
    pub budget: u32,
    /// The node whose pods count; empty: all.
    pub node: String,
    /// Key of the label of broken pods.
    pub label_key: String,
    /// Its value.
    pub label_value: String,
    /// By what they are known.
    pub symptom: Symptom,
    /// The pods that are looked at, of those that a watch shows.
    pub selector: Selector,
    /// Label selector of a watch of repair's own.
    pub label_selector: String,
    /// Field selector of such a watch, the node's name included.
    pub field_selector: String,
    /// Where the node's network namespaces are found.
    pub places: SearchPaths,
    /// How rules get into a pod's kernel.
    pub rules: Options,
}

/// Why settings cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such mode.
    #[error("--repair-mode {0}: allowed are evict, delete, label, repair, repair-or-evict and observe")]
    Mode(String),
    /// In place is where the namespaces are.
    #[error("mode {} needs the node: set REPAIR_NODE_NAME from spec.nodeName", .0.as_str())]
    NoNode(Mode),
    /// A label needs a key.
    #[error("--repair-broken-pod-label-key is empty: mode label needs one")]
    NoLabelKey,
    /// Nothing could ever be done.
    #[error("--repair-budget 0: allowed is 1 or more; to do nothing, use --repair-dry-run or --repair-enabled=false")]
    NoBudget,
    /// The selectors are not understood.
    #[error("--repair-label-selectors, --repair-field-selectors: {0}")]
    Selector(selector::Error),
    /// No such flavour.
    #[error("FORCE_IPTABLES_BINARY {0}: allowed are legacy and nft")]
    Forced(String),
}

impl Settings {
    /// Reads the flags.
    pub fn parse(flags: &Flags) -> Result<Self, Error> {
        let settings = Self {
            enabled: flags.repair_enabled.0.unwrap_or(true),
            mode: mode(flags)?,
            dry_run: is_set(flags.repair_dry_run),
            standalone: is_set(flags.repair_standalone_pods),
            budget: flags.repair_budget.0.unwrap_or(DEFAULT_BUDGET),
            node: flags.repair_node_name.clone(),
            label_key: flags.repair_broken_pod_label_key.clone(),
            label_value: flags.repair_broken_pod_label_value.clone(),
            symptom: Symptom::Validation(Validation {
                annotation: flags.repair_sidecar_annotation.clone(),
                container: flags.repair_init_container_name.clone(),
                exit_code: flags.repair_init_container_exit_code.0.unwrap_or(i32::from(contract::EXIT_VALIDATION)),
                message: flags.repair_init_container_termination_message.clone(),
            }),
            selector: Selector::parse(&flags.repair_label_selectors, &flags.repair_field_selectors)
                .map_err(Error::Selector)?,
            label_selector: flags.repair_label_selectors.clone(),
            field_selector: field_selector(&flags.repair_field_selectors, &flags.repair_node_name),
            places: SearchPaths {
                dirs: flags.repair_netns_dirs.split(',').filter(|dir| !dir.is_empty()).map(PathBuf::from).collect(),
                proc: PathBuf::from(&flags.repair_proc),
            },
            rules: Options {
                native_nftables: is_set(flags.repair_native_nftables),
                forced: forced(&flags.repair_force_iptables_binary)?,
                on_difference: OnDifference::Reconcile,
            },
        };
        settings.checked()
    }

    /// For pods of all nodes that ask for Dapr's sidecar and have none. `delete`: they are not only told as events.
    /// `budget`: actions in a minute, 1 or more.
    pub fn of_sidecars(delete: bool, budget: NonZeroU32) -> Self {
        Self {
            enabled: true,
            mode: if delete { Mode::DeleteOrReport } else { Mode::Report },
            dry_run: false,
            standalone: false,
            budget: budget.get(),
            node: String::new(),
            label_key: String::new(),
            label_value: String::new(),
            symptom: Symptom::NoSidecar,
            selector: Selector::default(),
            label_selector: format!("!{},!{}", contract::dapr::INJECTED, contract::dapr::WATCHED),
            field_selector: String::new(),
            places: SearchPaths { dirs: Vec::new(), proc: PathBuf::new() },
            rules: Options { native_nftables: false, forced: None, on_difference: OnDifference::Reconcile },
        }
    }

    fn checked(self) -> Result<Self, Error> {
        match self.mode {
            Mode::Repair | Mode::RepairOrEvict if self.node.is_empty() => Err(Error::NoNode(self.mode)),
            Mode::Label if self.label_key.is_empty() => Err(Error::NoLabelKey),
            _ if self.budget == 0 => Err(Error::NoBudget),
            _ => Ok(self),
        }
    }
}

/// Of actions in a minute: all pods of a large node at once.
const DEFAULT_BUDGET: u32 = 120;

fn is_set(given: Given<bool>) -> bool {
    given.0 == Some(true)
}

/// The mode by name; else the first of Istio's switches that is on; else nothing where one of them was turned off, for
/// that is what all off means there; else eviction.
fn mode(flags: &Flags) -> Result<Mode, Error> {
    let name = flags.repair_mode.trim();
    if !name.is_empty() {
        let mode = Mode::ALL.into_iter().find(|mode| mode.as_str() == name);
        return mode.ok_or_else(|| Error::Mode(name.to_owned()));
    }
    let switches = [
        (flags.repair_repair_pods, Mode::Repair),
        (flags.repair_delete_pods, Mode::Delete),
        (flags.repair_label_pods, Mode::Label),
    ];
    let first = switches.iter().find(|(given, _)| is_set(*given)).map(|(_, mode)| *mode);
    let any = switches.iter().any(|(given, _)| given.0.is_some());
    Ok(first.unwrap_or(if any { Mode::Observe } else { Mode::Evict }))
}

fn field_selector(given: &str, node: &str) -> String {
    let of_node = (!node.is_empty()).then(|| format!("spec.nodeName={node}"));
    let terms = [Some(given.to_owned()).filter(|text| !text.is_empty()), of_node];
    terms.into_iter().flatten().collect::<Vec<_>>().join(",")
}

fn forced(text: &str) -> Result<Option<Forced>, Error> {
    match text {
        "" => Ok(None),
        "legacy" => Ok(Some(Forced::Legacy)),
        "nft" => Ok(Some(Forced::Nft)),
        other => Err(Error::Forced(other.to_owned())),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: Flags,
    }

    /// Settings as of a command line.
    pub(in crate::repair) fn settings(line: &str) -> Result<Settings, Error> {
        Settings::parse(&Program::parse_from(format!("x {line}").split_whitespace()).flags)
    }

    #[test]
    fn istios_switches_go_by_precedence_and_all_off_is_off() {
        for (line, mode) in [
            ("", Mode::Evict),
            ("--repair-repair-pods --repair-delete-pods --repair-label-pods --repair-node-name n", Mode::Repair),
            ("--repair-repair-pods=false --repair-delete-pods --repair-label-pods", Mode::Delete),
            ("--repair-delete-pods= --repair-label-pods=true", Mode::Label),
            ("--repair-repair-pods=false --repair-delete-pods=false --repair-label-pods=false", Mode::Observe),
            ("--repair-delete-pods --repair-mode evict", Mode::Evict),
            ("--repair-mode repair-or-evict --repair-node-name n", Mode::RepairOrEvict),
            ("--repair-mode observe", Mode::Observe),
        ] {
            assert_eq!(settings(line).unwrap().mode, mode, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_named() {
        for (line, error) in [
            ("--repair-mode mend", Error::Mode("mend".into())),
            ("--repair-mode repair", Error::NoNode(Mode::Repair)),
            ("--repair-repair-pods", Error::NoNode(Mode::Repair)),
            ("--repair-label-pods --repair-broken-pod-label-key=", Error::NoLabelKey),
            ("--repair-budget 0", Error::NoBudget),
            ("--repair-force-iptables-binary xtables", Error::Forced("xtables".into())),
            ("--repair-field-selectors a=b", Error::Selector(selector::Error::Field("a=b".into()))),
        ] {
            assert_eq!(settings(line).unwrap_err(), error, "{line}");
        }
    }

    #[test]
    fn the_nodes_name_joins_the_other_fields_and_none_is_all_nodes() {
        for (line, fields) in [
            ("", ""),
            ("--repair-node-name n1", "spec.nodeName=n1"),
            ("--repair-field-selectors status.phase!=Failed", "status.phase!=Failed"),
            (
                "--repair-field-selectors metadata.name=b,status.phase=c --repair-node-name n1",
                "metadata.name=b,status.phase=c,spec.nodeName=n1",
            ),
        ] {
            assert_eq!(settings(line).unwrap().field_selector, fields, "{line}");
        }
    }

    #[test]
    fn defaults_are_istios() {
        let settings = settings("").unwrap();
        assert!(settings.enabled && !settings.dry_run && !settings.standalone);
        let validation = Validation {
            annotation: "sidecar.istio.io/status".into(),
            container: "istio-validation".into(),
            exit_code: 126,
            message: String::new(),
        };
        assert_eq!(settings.symptom, Symptom::Validation(validation));
        assert_eq!(
            (settings.label_key.as_str(), settings.label_value.as_str()),
            ("cni.istio.io/uninitialized", "true")
        );
    }
}
