//! Builds this repository's Go programs, whose results tests compare with their own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};

/// Returns a `go` command in a module's directory. It uses the installed toolchain and downloads no other.
pub fn command(module: &str) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module);
    go.env("GOTOOLCHAIN", "local");
    go
}

/// Returns why a module cannot be built, if Go or a required module is missing; `None` otherwise. Cached for each module.
pub fn missing(module: &'static str) -> Option<String> {
    static LOOKED_UP: Mutex<BTreeMap<&str, Option<String>>> = Mutex::new(BTreeMap::new());
    let look_up = || match command(module).args(["mod", "download"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("needs modules of Go: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Some(format!("needs Go: {error}")),
    };
    let mut looked_up = LOOKED_UP.lock().unwrap_or_else(PoisonError::into_inner);
    looked_up.entry(module).or_insert_with(look_up).clone()
}

/// Builds a module's program at a path outside the repository.
pub fn build(module: &str, program: &Path) -> Result<()> {
    let output = command(module).args(["build", "-o"]).arg(program).arg(".").output()?;
    ensure!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
