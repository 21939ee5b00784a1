//! Parses any YAML text with this project's one-pass reader and with a YAML library. Checks that both return the same
//! value or both fail. If the reader succeeds within a budget, it must return the same value as without one.

use gotemplate::{Budget, Limits};
use inject::yaml;

use crate::text;

const LIMITS: Limits = Limits { steps: 20_000, bytes: 1 << 20, depth: 250 };

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let text = text(input);
    let (ours, library) = (yaml::value(text), yaml::library::value(text));
    match (&ours, &library) {
        (Ok(ours), Ok(library)) => assert_eq!(ours, library, "{text:?}"),
        (Err(_), Err(_)) => {}
        (ours, library) => panic!("{text:?}: {ours:?}, and by the library {library:?}"),
    }
    if let Ok(bounded) = yaml::value_within(text, &mut Budget::new(LIMITS)) {
        assert_eq!(Some(bounded), ours.ok(), "{text:?}");
    }
}
