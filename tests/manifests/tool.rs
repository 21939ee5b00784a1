//! External programs that trials run. A trial whose program is missing is ignored with the reason, unless
//! `REQUIRE_TIERS` contains the program's name.

use std::env;
use std::path::PathBuf;

use libtest_mimic::Trial;

/// A program of another project.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    /// The program's name on the `PATH`, which is also its name in `REQUIRE_TIERS`.
    name: &'static str,
    /// The environment variable that may contain the program's path.
    variable: &'static str,
}

pub(crate) const HELM: Tool = Tool { name: "helm", variable: "HELM" };
/// promtool checks Prometheus rules and runs their tests.
pub(crate) const PROMTOOL: Tool = Tool { name: "promtool", variable: "PROMTOOL" };

impl Tool {
    pub(crate) fn program(self) -> Option<PathBuf> {
        let on_path =
            || env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(self.name)).find(|path| path.is_file());
        env::var_os(self.variable).map(PathBuf::from).filter(|path| path.is_file()).or_else(on_path)
    }

    /// Returns a trial that runs the program.
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
