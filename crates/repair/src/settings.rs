//! Settings of repair, parsed from flags and environment variables.

use std::num::NonZeroU32;
use std::sync::Arc;

use contract::diagnostics::Documented;

use super::flags::{Given, RepairFlags};
use super::reprogram::Reprogram;
use super::selector::{self, Selector};

/// The reaction to broken pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Evict; disruption budgets apply.
    Evict,
    Delete,
    Label,
    /// Program the rules in the pod's netns as the plugin would.
    Repair,
    /// Like [`Repair`](Self::Repair), then evict if validation still fails.
    RepairOrEvict,
    /// Only log.
    Observe,
    /// Record an event; only for Dapr's watchdog.
    Report,
    /// Delete if a working replacement is expected, otherwise record an event; only for Dapr's watchdog.
    DeleteOrReport,
}

impl Mode {
    /// The modes of `--repair-mode`.
    const ALL: [Self; 6] = [Self::Evict, Self::Delete, Self::Label, Self::Repair, Self::RepairOrEvict, Self::Observe];

    /// Returns the name in flags and logs.
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

/// The property by which a pod is detected as broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Symptom {
    /// The validation container failed.
    Validation(Validation),
    /// The pod requests Dapr's sidecar but lacks it.
    NoSidecar,
}

/// Filters for failed validation containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// An annotation that the pod must have, with any value; empty: none.
    pub annotation: String,
    /// The init container's name; empty: any.
    pub container: String,
    /// The exit code; 0: any failure.
    pub exit_code: i32,
    /// The termination message without surrounding whitespace; empty: any.
    pub message: String,
}

/// The parsed settings.
#[derive(Debug, Clone)]
pub struct RepairSettings {
    /// If false, no pods are watched.
    pub enabled: bool,
    pub mode: Mode,
    /// Log actions without performing them.
    pub dry_run: bool,
    /// Whether pods without a controller may be evicted or deleted.
    pub standalone: bool,
    /// Maximum actions per minute.
    pub budget: u32,
    /// The node whose pods are watched; empty: all nodes.
    pub node: String,
    /// The label that mode `label` adds.
    pub label_key: String,
    pub label_value: String,
    pub symptom: Symptom,
    /// Filters the pods of an existing watch.
    pub selector: Selector,
    /// The label selector of repair's own watch.
    pub label_selector: String,
    /// The field selector of repair's own watch, including the node name.
    pub field_selector: String,
    /// Repairs pods in place, for the modes `repair` and `repair-or-evict`.
    pub reprogram: Option<Arc<dyn Reprogram>>,
}

impl RepairSettings {
    /// Logs the program's version and the settings that decide what is done with which pods.
    pub(super) fn log(&self) {
        let label = (self.mode == Mode::Label).then(|| format!("{}={}", self.label_key, self.label_value));
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            mode = self.mode.as_str(),
            label,
            node = not_empty(&self.node),
            dry_run = self.dry_run,
            standalone_pods = self.standalone,
            budget_per_minute = self.budget,
            label_selectors = not_empty(&self.label_selector),
            field_selectors = not_empty(&self.field_selector),
            "looking for broken pods"
        );
    }
}

/// Returns `None` for an empty string, so that log lines omit the field.
fn not_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Invalid settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("--repair-mode {0}: allowed are evict, delete, label, repair, repair-or-evict and observe")]
    Mode(String),
    /// Repair in place requires the node, because only its namespaces are accessible.
    #[error("mode {} needs the name of the node: set REPAIR_NODE_NAME from spec.nodeName", .0.as_str())]
    NoNode(Mode),
    #[error("--repair-broken-pod-label-key is empty: mode label needs one")]
    NoLabelKey,
    /// A budget of 0 would never allow an action.
    #[error("--repair-budget 0: allowed is 1 or more; to do nothing, use --repair-dry-run or --repair-enabled=false")]
    NoBudget,
    #[error("--repair-label-selectors, --repair-field-selectors: {0}")]
    Selector(selector::Error),
}

impl Documented for Error {
    const ENTRY: &'static str = "repair-settings-error";
}

impl RepairSettings {
    /// Validates the flags. The program sets [`reprogram`](Self::reprogram).
    pub fn parse(flags: &RepairFlags) -> Result<Self, Error> {
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
            reprogram: None,
        };
        settings.validate()
    }

    /// Returns the settings of Dapr's watchdog, for the pods of all nodes. `delete`: delete pods instead of only recording events.
    /// `budget`: maximum actions per minute.
    pub fn of_dapr_watchdog(delete: bool, budget: NonZeroU32) -> Self {
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
            reprogram: None,
        }
    }

    fn validate(self) -> Result<Self, Error> {
        match self.mode {
            Mode::Repair | Mode::RepairOrEvict if self.node.is_empty() => Err(Error::NoNode(self.mode)),
            Mode::Label if self.label_key.is_empty() => Err(Error::NoLabelKey),
            _ if self.budget == 0 => Err(Error::NoBudget),
            _ => Ok(self),
        }
    }
}

/// The default number of actions per minute, above the kubelet's default limit of 110 pods per node. A single namespace gets at
/// most half of it (`budget`).
const DEFAULT_BUDGET: u32 = 120;

fn is_set(given: Given<bool>) -> bool {
    given.0 == Some(true)
}

/// Returns the mode of `--repair-mode`, or else of the first of Istio's switches that is on. If any switch is given and
/// none is on, the mode is `observe`, as in Istio; without any switch, it is `evict`.
fn mode(flags: &RepairFlags) -> Result<Mode, Error> {
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

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: RepairFlags,
    }

    /// Parses settings from a command line.
    pub(crate) fn settings(line: &str) -> Result<RepairSettings, Error> {
        RepairSettings::parse(&Program::parse_from(format!("x {line}").split_whitespace()).flags)
    }

    #[test]
    fn istios_switches_have_a_precedence_and_all_off_is_observe() {
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
    fn invalid_settings_name_the_flag() {
        for (line, error) in [
            ("--repair-mode mend", Error::Mode("mend".into())),
            ("--repair-mode repair", Error::NoNode(Mode::Repair)),
            ("--repair-repair-pods", Error::NoNode(Mode::Repair)),
            ("--repair-label-pods --repair-broken-pod-label-key=", Error::NoLabelKey),
            ("--repair-budget 0", Error::NoBudget),
            ("--repair-field-selectors a=b", Error::Selector(selector::Error::Field("a=b".into()))),
        ] {
            assert_eq!(settings(line).unwrap_err(), error, "{line}");
        }
    }

    #[test]
    fn the_node_name_is_added_to_the_field_selector() {
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
