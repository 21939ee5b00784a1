//! Programs that trials run: one that is missing makes them ignored, with the reason, unless `REQUIRE_TIERS` names it.

use std::env;
use std::path::PathBuf;

use libtest_mimic::Trial;
use test_support::tier;

/// A program of another project.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    /// Its name on the `PATH`, and that of its tier.
    name: &'static str,
    /// The variable that names its path.
    variable: &'static str,
}

pub(crate) const HELM: Tool = Tool { name: "helm", variable: "HELM" };
/// Checks Prometheus rules and runs their tests.
pub(crate) const PROMTOOL: Tool = Tool { name: "promtool", variable: "PROMTOOL" };

impl Tool {
    pub(crate) fn program(self) -> Option<PathBuf> {
        let on_path =
            || env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(self.name)).find(|path| path.is_file());
        env::var_os(self.variable).map(PathBuf::from).filter(|path| path.is_file()).or_else(on_path)
    }

    /// A trial that runs the program.
    pub(crate) fn trial(self, name: &str, body: impl FnOnce() + Send + 'static) -> Trial {
        let Self { name: tool, variable } = self;
        let missing =
            self.program().is_none().then(|| format!("{tool} is neither named by {variable} nor on the PATH"));
        tier::trial(tool, name, missing, || {
            body();
            Ok(())
        })
    }
}
