//! Generates the table of environment variables: those of flags, and those of the proxy's container that change the rules.

use contract::{iptables_env, proxy_env};
use redirect::iptables;

use super::flags::{commands, help, listed};
use super::table::{code, head, sentence, table};

pub(super) fn page() -> String {
    let mut text = head("Environment variables", "the command lines' definitions and `crates/contract`");
    text.push_str("A flag takes precedence over its variable.\n\n");
    for command in commands() {
        let mut rows: Vec<[String; 3]> = Vec::new();
        for level in std::iter::once(&command).chain(command.get_subcommands()) {
            for flag in listed(level) {
                let name = match command.get_name() {
                    "istio-iptables" => iptables::variable_of(flag.get_id().as_str()),
                    _ => flag.get_env().and_then(|name| name.to_str()).map(str::to_owned),
                };
                let Some(name) = name else { continue };
                let row =
                    [code(&name), code(&format!("--{}", flag.get_long().unwrap_or_default())), sentence(&help(flag).0)];
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
        text.push_str(&format!("## {}\n\n", command.get_name()));
        text.push_str(&table(["Variable", "Flag", "Description"], &rows));
        if command.get_name() == "istio-iptables" {
            text.push_str("These variables have no flag.\n\n");
            text.push_str(&documented(iptables_env::ALL));
        }
    }
    text.push_str(
        "## istio-proxy\n\nThe plugin reads these variables from the pod's container `istio-proxy`, `istio-iptables` from its \
         own environment.\n\n",
    );
    text.push_str(&documented(proxy_env::ALL));
    text.trim_end().to_owned() + "\n"
}

fn documented(variables: &[(&str, &str)]) -> String {
    let rows: Vec<_> = variables.iter().map(|(name, effect)| [code(name), sentence(effect)]).collect();
    table(["Variable", "Description"], &rows)
}
