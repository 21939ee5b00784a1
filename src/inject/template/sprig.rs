//! Functions of sprig that templates of Istio and its users call.
//!
//! Left out are those that look at the world or the clock, make keys, take regular expressions, or change a map in place.

mod lists;
mod maps;
mod numbers;
mod strings;
mod values;

use super::function::Functions;

pub(super) fn register(functions: Functions) -> Functions {
    let functions = strings::register(functions);
    let functions = lists::register(functions);
    let functions = maps::register(functions);
    let functions = numbers::register(functions);
    values::register(functions)
}
