//! Paths of the programs that tests run.

use std::path::PathBuf;

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
