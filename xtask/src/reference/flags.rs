//! Generates the tables of flags, from the command lines' own definitions, and of the keys of the plugin's configuration.

use clap::{Arg, Command};
use contract::config_key;

use super::table::{code, head, sentence, table};
use crate::commands as unbuilt;

/// Returns the command lines of all programs, with the flags that clap and their ancestors give to subcommands.
pub(super) fn commands() -> [Command; 4] {
    unbuilt().map(|mut command| {
        command.build();
        command
    })
}

/// Returns the flags that a command's help lists.
pub(super) fn listed(command: &Command) -> Vec<&Arg> {
    let own = command.get_arguments().filter(|flag| !flag.is_hide_set());
    own.filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version")).collect()
}

pub(super) fn page() -> String {
    let mut text = head("Flags", "the command lines' definitions");
    for command in commands() {
        section(&mut text, &command, command.get_name());
    }
    text.push_str(
        "## istio-cni\n\nThe plugin has no flags. `install-cni` writes these keys into its entry in the conflist.\n\n",
    );
    let row = |(key, effect): &(&str, &str)| [code(key), sentence(effect)];
    text.push_str(&table(["Key", "Effect"], &config_key::ALL.iter().map(row).collect::<Vec<_>>()));
    text.trim_end().to_owned() + "\n"
}

/// Appends the section of a command, then the sections of its subcommands.
fn section(text: &mut String, command: &Command, name: &str) {
    text.push_str(&format!("## {name}\n\n"));
    if let Some(about) = command.get_about() {
        text.push_str(&format!("{}\n\n", sentence(&about.to_string())));
    }
    let flags = listed(command);
    let mut headings: Vec<Option<&str>> = Vec::new();
    flags.iter().map(|flag| flag.get_help_heading()).for_each(|heading| {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    });
    for heading in headings {
        if let Some(heading) = heading {
            text.push_str(&format!("### {name}: {}\n\n", heading.to_lowercase()));
        }
        let rows: Vec<_> =
            flags.iter().filter(|flag| flag.get_help_heading() == heading).map(|flag| row(flag)).collect();
        text.push_str(&table(["Flag", "Value", "Default", "Variable", "Description"], &rows));
    }
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        section(text, subcommand, &format!("{name} {}", subcommand.get_name()));
    }
}

fn row(flag: &Arg) -> [String; 5] {
    let (help, default) = help(flag);
    let variable = flag.get_env().and_then(|name| name.to_str()).unwrap_or_default();
    [spelling(flag), value(flag), code(&default), code(variable), sentence(&help)]
}

/// Returns how a flag is written, such as `-p`, `--envoy-port`; or the name of a positional argument.
fn spelling(flag: &Arg) -> String {
    let short = flag.get_short().map(|short| code(&format!("-{short}")));
    let long = flag.get_long().map(|long| code(&format!("--{long}")));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    if names.is_empty() { code(&flag.get_id().as_str().to_uppercase()) } else { names.join(", ") }
}

fn value(flag: &Arg) -> String {
    let possible = flag.get_possible_values();
    if !flag.get_action().takes_values() {
        return String::new();
    }
    if flag.get_num_args().is_some_and(|count| count.min_values() == 0) {
        return "`true`, `false`".to_owned();
    }
    if !possible.is_empty() {
        return possible
            .iter()
            .map(|value| code(value.get_name()))
            .filter(|name| !name.is_empty())
            .collect::<Vec<_>>()
            .join(", ");
    }
    let own = flag.get_value_names().unwrap_or_default().join(" ");
    let name = flag.get_id().as_str().to_uppercase();
    // The default name of a value is that of its flag and is omitted.
    if own == name { String::new() } else { code(&own) }
}

/// Returns a flag's help and its default. `istio-iptables` applies its defaults itself, after the environment
/// variables, so that clap has none: its help ends with `[default: …]` instead.
pub(super) fn help(flag: &Arg) -> (String, String) {
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    if let Some((text, default)) = help.strip_suffix(']').and_then(|help| help.rsplit_once(" [default: ")) {
        return (text.to_owned(), default.to_owned());
    }
    let defaults = flag.get_default_values().iter().filter_map(|value| value.to_str());
    (help, defaults.collect::<Vec<_>>().join(","))
}
