//! One run: parses settings, programs rules, validates redirection, and prints the results.

#![expect(clippy::disallowed_methods, reason = "reads files of /etc, and writes the file that DRY_RUN_FILE_PATH names")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::Path;

use contract::diagnostics::chain;
use podnet::converge::{self, Change, Cleanup, OnDifference, Options, Outcome};
use podnet::netns::{HostAddresses, addresses};
use podnet::validate;
use redirect::iptables::{Action, Etc, Flags, Settings};
use redirect::{Redirect, istio, rules};
use ruleset::{nft, restore};

use super::Error;

/// The inputs and outputs of a run, apart from the netns of its thread.
pub struct Invocation<'a> {
    /// The command line, program name first.
    pub argv: Vec<OsString>,
    pub env: BTreeMap<String, String>,
    /// `/etc`
    pub etc: &'a Path,
    /// Standard output: the rules of a dry run, the findings of validation.
    pub out: &'a mut dyn Write,
    /// Standard error: warnings and errors.
    pub err: &'a mut dyn Write,
}

/// Runs the program and returns its exit code: 0 done, 1 error, 126 validation failed, 255 bad usage. A message that
/// cannot be written does not change the code, because the work is done by then; rules that a dry run cannot print do.
pub fn run(invocation: Invocation<'_>) -> u8 {
    let Invocation { argv, env, etc, out, err } = invocation;
    let flags = match Flags::parse_argv(argv) {
        Ok(flags) => flags,
        Err(help) if !help.use_stderr() => {
            let _ = write!(out, "{help}");
            return 0;
        }
        Err(error) => {
            let _ = write!(err, "{error}");
            return contract::EXIT_USAGE;
        }
    };
    match execute(&flags, &env, etc, out, err) {
        Ok(Validation::Failed) => contract::EXIT_VALIDATION,
        Ok(Validation::Passed | Validation::NotRequested) => 0,
        Err(error) => {
            let _ = writeln!(err, "istio-iptables: {}", chain(&error));
            1
        }
    }
}

/// Whether the redirection was validated, and with what result.
enum Validation {
    NotRequested,
    Passed,
    Failed,
}

fn execute(
    flags: &Flags,
    env: &BTreeMap<String, String>,
    etc: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Validation, Error> {
    let etc = read_etc(etc);
    let settings = Settings::parse(flags, env, &etc)?;
    warn(&settings.warnings, err);
    apply_action(&settings, &etc, out, err)?;
    validate_redirection(&settings, out)
}

fn warn(warnings: impl IntoIterator<Item: Display>, err: &mut dyn Write) {
    for warning in warnings {
        let _ = writeln!(err, "istio-iptables: warning: {warning}");
    }
}

/// Reads the files of `dir`, which is `/etc` outside of tests.
fn read_etc(dir: &Path) -> Etc {
    let optional = |name| fs::read_to_string(dir.join(name)).unwrap_or_default();
    Etc::new(optional("passwd"), optional("group"), fs::read_to_string(dir.join("resolv.conf")))
}

fn apply_action(settings: &Settings, etc: &Etc, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Error> {
    match &settings.action {
        Action::Skip => Ok(()),
        Action::Print(file) => print(settings, file.as_deref(), out, err),
        Action::Clean => clean(&resolved(settings, etc)?, out, err),
        Action::Program { replace } => program(settings, &resolved(settings, etc)?, *replace, out, err),
    }
}

/// Returns the redirection with the names of users and groups replaced by their IDs.
fn resolved(settings: &Settings, etc: &Etc) -> Result<Redirect, Error> {
    let mut redirect = settings.redirect.clone();
    etc.resolve(&mut redirect)?;
    Ok(redirect)
}

fn clean(redirect: &Redirect, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Error> {
    match converge::cleanup(&redirect.desired(), &istio::OWNED)? {
        Cleanup::Complete => {
            let _ = writeln!(out, "Istio's rules, routes and addresses are removed.");
        }
        Cleanup::LegacyUnread => {
            let _ = writeln!(
                err,
                "istio-iptables: warning: tables of iptables-legacy were not read: iptables-legacy-save and \
                 iptables-legacy-restore are not installed; rules of Istio in these tables stay"
            );
            let _ = writeln!(out, "Istio's rules by nf_tables, routes and addresses are removed.");
        }
        Cleanup::MangleUnread => return Err(Error::MangleUnread),
    }
    Ok(())
}

fn program(
    settings: &Settings,
    redirect: &Redirect,
    replace: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Error> {
    let options = Options {
        native_nftables: settings.native_nftables,
        forced: settings.forced,
        on_difference: if replace { OnDifference::Reconcile } else { OnDifference::Refuse },
        owned: &istio::OWNED,
    };
    let done = converge::apply(&redirect.desired(), options)?;
    warn(rules::warning(redirect), err);
    warn(done.warning, err);
    let _ = writeln!(out, "{}", sentence(&done));
    Ok(())
}

/// Describes the outcome for readers of an init container's log.
fn sentence(done: &Outcome) -> String {
    let families = if done.ipv6 { "IPv4 and IPv6" } else { "IPv4" };
    match &done.change {
        Change::Added => format!("Traffic is redirected ({families})."),
        Change::Reconciled(found) => format!("Redirection was reconciled ({families}): {}", converge::list(found)),
        Change::None => format!("The rules exist already ({families}): nothing was changed."),
    }
}

/// Prints the rules; owners are printed as given, by name or ID.
fn print(settings: &Settings, file: Option<&Path>, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Error> {
    let rules = rules::build(&settings.redirect, host(settings)?.ipv6);
    warn(rules::warning(&settings.redirect), err);
    let text = if settings.native_nftables { nft::render(&rules) } else { restore::dry_run(&rules) };
    out.write_all(text.as_bytes()).map_err(|source| Error::Print { path: "standard output".to_owned(), source })?;
    let Some(file) = file else { return Ok(()) };
    fs::write(file, text).map_err(|source| Error::Print { path: file.display().to_string(), source })
}

fn validate_redirection(settings: &Settings, out: &mut dyn Write) -> Result<Validation, Error> {
    let Some(probe) = &settings.validation else { return Ok(Validation::NotRequested) };
    let families = validate::families(&addresses::read()?, host(settings)?);
    let report = validate::run(probe, &families);
    let _ = write!(out, "{report}");
    Ok(if report.is_proven() { Validation::Passed } else { Validation::Failed })
}

fn host(settings: &Settings) -> Result<HostAddresses, Error> {
    Ok(addresses::families(&addresses::read()?, settings.redirect.dual_stack)?)
}
