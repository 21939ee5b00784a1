//! sprig's functions that depend on nothing but their arguments.
//!
//! Dates are left out, because most of them read the clock or the time zone of the machine; so are random values, the
//! environment, host names, keys, passwords and certificates.

mod decimals;
mod encodings;
mod lists;
mod maps;
mod numbers;
mod paths;
mod regex;
mod semver;
mod strings;
mod values;
mod words;

use super::function::Functions;

impl Functions {
    /// Adds sprig's functions that depend on nothing but their arguments.
    #[must_use]
    pub fn with_sprig(self) -> Self {
        let functions = strings::register(self);
        let functions = lists::register(functions);
        let functions = maps::register(functions);
        let functions = decimals::register(numbers::register(functions));
        let functions = encodings::register(paths::register(regex::register(functions)));
        let functions = words::register(semver::register(functions));
        values::register(functions)
    }
}
