//! Programs that trials run: one that is missing makes them ignored, with the reason, unless `REQUIRE_TIERS` names it.

use std::env;
use std::path::PathBuf;

use libtest_mimic::{Completion, Failed, Trial};

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
        Trial::ignorable_test(name, move || {
            if self.program().is_some() {
                body();
                return Ok(Completion::Completed);
            }
            let Self { name, variable } = self;
            let missing = format!("{name} is neither named by {variable} nor on the PATH");
            let required = env::var("REQUIRE_TIERS").unwrap_or_default();
            if required.split(',').any(|tier| tier == name) {
                return Err(Failed::from(format!("REQUIRE_TIERS names {name}, but {missing}")));
            }
            Ok(Completion::ignored_with(missing))
        })
    }
}
