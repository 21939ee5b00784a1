//! The directories that a removal covers. Pure.

use std::path::PathBuf;

use super::settings::InstallSettings;

/// The directories that a removal covers.
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
    /// All files that an installer leaves on a node.
    pub const ALL: Self = Self { conf: true, bin: true, run: true };

    /// Whether the scope covers no directory.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The covered directories, by the paths under which this process has them mounted.
    pub fn paths(self, settings: &InstallSettings) -> Vec<PathBuf> {
        let InstallSettings { net_dir, bin_dir, run_dir, .. } = settings;
        let all = [(self.conf, net_dir), (self.bin, bin_dir), (self.run, run_dir)];
        all.into_iter().filter(|(covered, _)| *covered).map(|(_, path)| path.clone()).collect()
    }
}
