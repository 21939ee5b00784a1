//! Values as Go, its libraries and Kubernetes read and write them: booleans, durations, JSON, quantities, name patterns.
//!
//! Every setting that a Go program also accepts is parsed with this crate. It performs no I/O and depends on no other
//! crate of the workspace.

pub mod duration;
pub mod glob;
pub mod json;
pub mod quantity;

/// Parses a boolean like Go's `strconv.ParseBool`.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_have_the_spellings_of_go() {
        for (text, expected) in [("1", Some(true)), ("T", Some(true)), ("False", Some(false)), ("f", Some(false))] {
            assert_eq!(parse_bool(text), expected, "{text}");
        }
        for text in ["", "yes", "tRUE", " true", "2"] {
            assert_eq!(parse_bool(text), None, "{text:?}");
        }
    }
}
