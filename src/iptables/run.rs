//! One run: settings, rules, proof, and what each of them says in the end.

#![expect(clippy::disallowed_methods, reason = "writes the file that DRY_RUN_FILE_PATH names")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;

use super::{Action, Error, Etc, Flags, Settings};
use crate::converge::{self, Change, OnDifference, Options, Outcome};
use crate::diagnostics::chain;
use crate::netfilter::{nft, restore};
use crate::netns::{HostAddresses, addresses};
use crate::redirect::Redirect;
use crate::{contract, rules, validate};

/// All that a run knows of the world, the netns that its thread is in aside.
pub struct World<'a> {
    /// The command line, program name first.
    pub argv: Vec<OsString>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// `/etc`
    pub etc: &'a Path,
    /// Standard output: the rules of a dry run, the findings of validation.
    pub out: &'a mut dyn Write,
    /// Standard error: warnings and errors.
    pub err: &'a mut dyn Write,
}

/// Does what the command line says, and returns the exit code: 0 done, 1 error, 126 validation failed, 255 bad usage.
/// It is over with the last line: a stream that takes no text changes nothing of what was done.
pub fn run(world: World<'_>) -> u8 {
    let World { argv, env, etc, out, err } = world;
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
    match follow(&flags, &env, etc, out, err) {
        Ok(Proof::Failed) => contract::EXIT_VALIDATION,
        Ok(Proof::Given | Proof::NotAsked) => 0,
        Err(error) => {
            let _ = writeln!(err, "istio-iptables: {}", chain(&error));
            1
        }
    }
}

/// What validation said.
enum Proof {
    NotAsked,
    Given,
    Failed,
}

fn follow(
    flags: &Flags,
    env: &BTreeMap<String, String>,
    etc: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Proof, Error> {
    let etc = Etc::read(etc);
    let settings = Settings::parse(flags, env, &etc)?;
    for warning in &settings.warnings {
        let _ = writeln!(err, "istio-iptables: warning: {warning}");
    }
    act(&settings, &etc, out, err)?;
    prove(&settings, out)
}

fn act(settings: &Settings, etc: &Etc, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Error> {
    match &settings.action {
        Action::Leave => Ok(()),
        Action::Print(file) => print(settings, file.as_deref(), out, err),
        Action::Clean => clean(&resolved(settings, etc)?, out),
        Action::Program { replace } => program(settings, &resolved(settings, etc)?, *replace, out, err),
    }
}

/// With ids in the place of names.
fn resolved(settings: &Settings, etc: &Etc) -> Result<Redirect, Error> {
    let mut redirect = settings.redirect.clone();
    etc.resolve(&mut redirect)?;
    Ok(redirect)
}

fn clean(redirect: &Redirect, out: &mut dyn Write) -> Result<(), Error> {
    converge::cleanup(redirect)?;
    let _ = writeln!(out, "Istio's rules, routes and addresses are removed.");
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
        on_difference: if replace { OnDifference::Mend } else { OnDifference::Refuse },
    };
    let done = converge::apply(redirect, options)?;
    for warning in &done.warnings {
        let _ = writeln!(err, "istio-iptables: warning: {warning}");
    }
    let _ = writeln!(out, "{}", sentence(&done));
    Ok(())
}

/// What was done, for those who read an init container's log.
fn sentence(done: &Outcome) -> String {
    let families = if done.ipv6 { "IPv4 and IPv6" } else { "IPv4" };
    match &done.change {
        Change::Added => format!("Traffic is redirected ({families})."),
        Change::Mended(found) => format!("Redirection was mended ({families}): {}", converge::list(found)),
        Change::None => format!("The rules are there already ({families}): nothing was changed."),
    }
}

/// The rules as text, with owners as they were named.
fn print(settings: &Settings, file: Option<&Path>, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Error> {
    let built = rules::build(&settings.redirect, host(settings)?.ipv6);
    for warning in &built.warnings {
        let _ = writeln!(err, "istio-iptables: warning: {warning}");
    }
    let text = if settings.native_nftables { nft::render(&built.rules) } else { restore::dry_run(&built.rules) };
    out.write_all(text.as_bytes()).map_err(|source| Error::Print { path: "standard output".to_owned(), source })?;
    let Some(file) = file else { return Ok(()) };
    fs::write(file, text).map_err(|source| Error::Print { path: file.display().to_string(), source })
}

fn prove(settings: &Settings, out: &mut dyn Write) -> Result<Proof, Error> {
    let Some(probe) = &settings.validation else { return Ok(Proof::NotAsked) };
    let families = validate::families(&addresses::read()?, host(settings)?);
    let report = validate::run(probe, &families);
    let _ = write!(out, "{report}");
    Ok(if report.is_proven() { Proof::Given } else { Proof::Failed })
}

fn host(settings: &Settings) -> Result<HostAddresses, Error> {
    Ok(addresses::families(&addresses::read()?, settings.redirect.dual_stack)?)
}
