//! Paths of programs that Cargo builds for tests.

use std::path::PathBuf;

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
