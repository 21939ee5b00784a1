//! The command line and environment of repair, with Istio's names and those of this project. `daemon` flattens these
//! flags into its own; `settings` parses and validates them.

use std::str::FromStr;

use contract::{annotation, container};

/// A flag's value; `None` if the flag or its variable is missing or empty, as from a ConfigMap's key with an empty value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Given<T>(pub Option<T>);

/// Flags of the detection and the handling of broken pods.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Repair")]
#[group(skip)]
pub struct RepairFlags {
    /// Enable repair
    #[arg(long, env, default_value = "true", value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub repair_enabled: Given<bool>,
    /// `evict`, `delete`, `label`, `repair` (in place), `repair-or-evict`, or `observe` [default: evict, unless one of the next three is set]
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub repair_mode: String,
    /// Istio's name for mode `repair`; goes before the next two
    #[arg(long, env, default_value = "", hide_default_value = true, value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub repair_repair_pods: Given<bool>,
    /// Istio's name for mode `delete`; goes before the next one
    #[arg(long, env, default_value = "", hide_default_value = true, value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub repair_delete_pods: Given<bool>,
    /// Istio's name for mode `label`
    #[arg(long, env, default_value = "", hide_default_value = true, value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub repair_label_pods: Given<bool>,
    /// Log actions without performing them
    #[arg(long, env, default_value = "false", value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub repair_dry_run: Given<bool>,
    /// Also evict or delete pods that no controller replaces
    #[arg(long, env, default_value = "false", value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub repair_standalone_pods: Given<bool>,
    /// Maximum number of actions per minute
    #[arg(long, env, default_value = "120", value_parser = number::<u32>)]
    pub repair_budget: Given<u32>,
    /// Key of the label of mode `label`
    #[arg(long, env, default_value = "cni.istio.io/uninitialized")]
    pub repair_broken_pod_label_key: String,
    /// Value of the label of mode `label`
    #[arg(long, env, default_value = "true")]
    pub repair_broken_pod_label_value: String,
    /// The node whose pods are watched; empty: all nodes, without in-place repair
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub repair_node_name: String,
    /// Annotation of pods with a sidecar; empty: all pods
    #[arg(long, env, default_value = annotation::STATUS)]
    pub repair_sidecar_annotation: String,
    /// Name of the init container that validates; empty: any
    #[arg(long, env, default_value = container::VALIDATION)]
    pub repair_init_container_name: String,
    /// Required termination message of that container; empty: any
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub repair_init_container_termination_message: String,
    /// Exit code for missing redirection; 0: any except success
    #[arg(long, env, default_value = "126", value_parser = number::<i32>, allow_negative_numbers = true)]
    pub repair_init_container_exit_code: Given<i32>,
    /// Label selector of the watched pods
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub repair_label_selectors: String,
    /// Field selector of the watched pods, in addition to the node's name
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub repair_field_selectors: String,
}

/// Parses a boolean like Go's `strconv.ParseBool`; an empty string is treated as missing.
pub fn switch(text: &str) -> Result<Given<bool>, &'static str> {
    if text.is_empty() {
        return Ok(Given(None));
    }
    gocompat::parse_bool(text).map(|on| Given(Some(on))).ok_or("neither true nor false")
}

fn number<T: FromStr>(text: &str) -> Result<Given<T>, T::Err> {
    if text.is_empty() { Ok(Given(None)) } else { text.trim().parse().map(|number| Given(Some(number))) }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: RepairFlags,
    }

    #[test]
    fn reads_istios_environment_variables() {
        let command = Program::command();
        command.clone().debug_assert();
        let named: Vec<_> = command.get_arguments().filter_map(|a| a.get_env()?.to_str()).collect();
        for variable in [
            "REPAIR_ENABLED",
            "REPAIR_MODE",
            "REPAIR_REPAIR_PODS",
            "REPAIR_DELETE_PODS",
            "REPAIR_LABEL_PODS",
            "REPAIR_BROKEN_POD_LABEL_KEY",
            "REPAIR_BROKEN_POD_LABEL_VALUE",
            "REPAIR_NODE_NAME",
            "REPAIR_SIDECAR_ANNOTATION",
            "REPAIR_INIT_CONTAINER_NAME",
            "REPAIR_INIT_CONTAINER_TERMINATION_MESSAGE",
            "REPAIR_INIT_CONTAINER_EXIT_CODE",
            "REPAIR_LABEL_SELECTORS",
            "REPAIR_FIELD_SELECTORS",
            "REPAIR_DRY_RUN",
            "REPAIR_BUDGET",
            "REPAIR_STANDALONE_PODS",
        ] {
            assert!(named.contains(&variable), "{variable} is not among {named:?}");
        }
    }

    #[test]
    fn an_empty_value_counts_as_missing() {
        let line = ["x", "--repair-delete-pods=", "--repair-label-pods=F", "--repair-repair-pods", "--repair-budget="];
        let flags = Program::parse_from(line).flags;
        assert_eq!(flags.repair_delete_pods, Given(None));
        assert_eq!(flags.repair_label_pods, Given(Some(false)));
        assert_eq!(flags.repair_repair_pods, Given(Some(true)));
        assert_eq!(flags.repair_budget, Given(None));
        assert!(Program::try_parse_from(["x", "--repair-delete-pods=maybe"]).is_err());
        assert!(Program::try_parse_from(["x", "--repair-budget", "many"]).is_err());
    }
}
