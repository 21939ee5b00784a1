//! The functions of sprig that look neither at the world nor at the clock.
//!
//! Left out are dates, of which most read the clock or the machine's time zone, random numbers and texts, the environment,
//! host names, and what makes or uses keys, passwords and certificates.

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
    /// With those of sprig that look neither at the world nor at the clock.
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
