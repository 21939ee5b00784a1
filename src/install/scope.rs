//! The directories that a removal covers. Pure.

use std::path::PathBuf;

use super::settings::InstallSettings;

/// Which directories a removal covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scope {
    /// The CNI configuration directory: chain entries, created configurations and their record.
    pub conf: bool,
    /// The plugin directory.
    pub bin: bool,
    /// The run directory: the plugin's kubeconfig.
    pub run: bool,
}

impl Scope {
    /// All directories in which an installer leaves files.
    pub const ALL: Self = Self { conf: true, bin: true, run: true };

    /// Whether the scope covers no directory.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the covered directories, by their paths in this process's mounts.
    pub fn paths(self, settings: &InstallSettings) -> Vec<PathBuf> {
        let InstallSettings { net_dir, bin_dir, run_dir, .. } = settings;
        let all = [(self.conf, net_dir), (self.bin, bin_dir), (self.run, run_dir)];
        all.into_iter().filter(|(covered, _)| *covered).map(|(_, path)| path.clone()).collect()
    }
}
