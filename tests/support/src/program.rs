//! Paths of the programs that tests run.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Returns a command that runs a program with this UID and GID.
///
/// The command names a descriptor of this process instead of the program's path: the user may be unable to enter the
/// directory of the checkout, for example below `/root`. The descriptor closes when the program starts.
///
/// # Panics
///
/// If the program cannot be opened.
pub fn as_user(program: &Path, uid: u32, gid: u32) -> Command {
    static OPENED: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let open = || File::open(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let descriptor = opened.entry(program.to_owned()).or_insert_with(open).as_raw_fd();
    let mut command = Command::new(format!("/proc/self/fd/{descriptor}"));
    command.arg0(program).uid(uid).gid(gid);
    command
}

/// Prints a program's log if the test that ran it has failed. Called when the program's value is dropped, hence after the
/// test has printed its error; a log that cannot be read does not hide that error.
#[expect(clippy::print_stderr, reason = "the test harness shows it below the error")]
pub fn show_log_of_failure(name: &str, log: &Path) {
    if std::thread::panicking() {
        match std::fs::read(log) {
            Ok(text) => eprintln!("the log of {name}:\n{}", String::from_utf8_lossy(&text)),
            Err(error) => eprintln!("the log of {name}, {}, cannot be read: {error}", log.display()),
        }
    }
}

/// Returns the path of a program under test: the one that the environment names, as `ISTIO_CNI` does for `istio-cni`,
/// otherwise Cargo's build for the running test.
///
/// # Panics
///
/// If the program is not built.
pub fn under_test(name: &str) -> PathBuf {
    let variable = name.to_uppercase().replace('-', "_");
    let Some(path) = std::env::var_os(&variable).map(PathBuf::from) else { return built(name) };
    assert!(path.is_file(), "{variable} names {}, which is not built: make build", path.display());
    path
}

/// Returns the path of a program that was built with the running test, bench or tool.
///
/// # Panics
///
/// If the program is not built.
pub fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    // Tests and benches are in `deps` of the profile's directory.
    let path = own.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
    path.unwrap_or_else(|| panic!("{name} is not built beside {}: make build programs", own.display()))
}
