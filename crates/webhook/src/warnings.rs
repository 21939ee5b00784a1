//! Limits the warnings of a response to what the API server passes on: the API server cuts long warnings, and drops
//! those with control characters.
//!
//! `review` calls this module.

/// The length of a warning, in characters, above which the API server may cut it.
const MAX_LENGTH: usize = 256;
/// The total length, in characters, above which the API server drops warnings.
const MAX_TOTAL: usize = 4096;
/// The number of warnings that are within the total even if each has the maximum length.
const MAX_COUNT: usize = MAX_TOTAL / MAX_LENGTH;

/// Returns `text` on one line, cut to `longest` characters.
pub(super) fn clipped(text: &str, longest: usize) -> String {
    let line = |c: char| if c.is_control() { ' ' } else { c };
    match text.char_indices().nth(longest) {
        None => text.chars().map(line).collect(),
        Some(_) => text.chars().map(line).take(longest.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Returns the warnings of a response; if there are too many, the last one states how many were left out.
pub(super) fn limited<'a>(warnings: impl ExactSizeIterator<Item = &'a str>) -> Vec<String> {
    let count = warnings.len();
    let kept = if count > MAX_COUNT { MAX_COUNT - 1 } else { count };
    let mut limited: Vec<String> = warnings.take(kept).map(|text| clipped(text, MAX_LENGTH)).collect();
    if count > kept {
        limited.push(format!("{} more warnings are in the log of the injector", count - kept));
    }
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_one_line_of_limited_length() {
        let all = ["two\nlines\u{7f}", &"ä".repeat(256), &"ä".repeat(257)];
        let limited = limited(all.into_iter());
        assert_eq!(limited[0], "two lines ");
        assert_eq!(limited[1], "ä".repeat(256));
        assert_eq!(limited[2], "ä".repeat(255) + "…");
    }

    #[test]
    fn all_warnings_are_within_the_total_length() {
        let long = "x".repeat(1000);
        for (count, kept) in [(0, 0), (1, 1), (16, 16), (17, 16), (1000, 16)] {
            let limited = limited(vec![long.as_str(); count].into_iter());
            assert_eq!(limited.len(), kept, "{count}");
            assert!(limited.iter().map(|text| text.chars().count()).sum::<usize>() <= MAX_TOTAL);
        }
        let many = limited(vec!["x"; 1000].into_iter());
        assert_eq!(many[15], "985 more warnings are in the log of the injector");
    }
}
