//! Istio's logging flags.

use contract::diagnostics::Level;

use super::{AGENT_SCOPE, Levels, PLUGIN_SCOPE};

/// Logging options.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Logging")]
#[group(skip)]
pub struct LogFlags {
    /// Output of log lines: `stdout`, `stderr` or a file; may be given more than once
    #[arg(long = "log_target", default_value = "stdout", value_delimiter = ',')]
    pub log_target: Vec<String>,
    /// Write lines as JSON
    #[arg(long = "log_as_json", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub log_as_json: bool,
    /// Minimum levels, as `scope:level,…`; `all` stands for every scope; debug, info, warn, error, fatal, none
    #[arg(long = "log_output_level", default_value = "default:info,grpc:none")]
    pub log_output_level: Levels,
    /// Accepted for compatibility with Istio, without effect: there are no stack traces
    #[arg(long = "log_stacktrace_level", default_value = "default:none")]
    pub log_stacktrace_level: Levels,
    /// Scopes whose lines contain their source location; `all` stands for every scope
    #[arg(long = "log_caller", default_value = "", hide_default_value = true, value_delimiter = ',')]
    pub log_caller: Vec<String>,
}

impl LogFlags {
    /// Returns the level for the plugin's lines, which the plugin itself applies.
    pub fn plugin_level(&self) -> Level {
        self.log_output_level.of(PLUGIN_SCOPE)
    }

    /// Returns this process's levels. The plugin has already filtered its lines, so they get the agent's level.
    pub(super) fn levels(&self) -> Levels {
        self.log_output_level.clone().alike(PLUGIN_SCOPE, AGENT_SCOPE)
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: LogFlags,
    }

    #[test]
    fn istios_flags_are_accepted() {
        Program::command().debug_assert();
        let line = "x --log_target=stdout --log_target stderr --log_as_json --log_output_level=all:debug \
                    --log_stacktrace_level=default:none --log_caller=install,repair";
        let flags = Program::parse_from(line.split_whitespace()).flags;
        assert_eq!(flags.log_target, ["stdout", "stderr"]);
        assert!(flags.log_as_json);
        assert_eq!(flags.plugin_level(), Level::Debug);
        assert_eq!(flags.log_caller, ["install", "repair"]);
        assert!(!Program::parse_from(["x", "--log_as_json=false"]).flags.log_as_json);
        assert!(Program::try_parse_from(["x", "--log_output_level=default:loud"]).is_err());
    }

    #[test]
    fn the_plugin_has_the_agents_level() {
        let flags = Program::parse_from(["x", "--log_output_level=cni-plugin:error"]).flags;
        assert_eq!((flags.plugin_level(), flags.levels().of(PLUGIN_SCOPE)), (Level::Error, Level::Info));
    }
}
