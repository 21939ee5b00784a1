//! Warnings of an answer as the API server passes them on: it cuts long ones, and drops those with control characters.
//!
//! `review` calls it. Pure.

/// Characters of one warning, beyond which the API server may cut it.
const LONGEST: usize = 256;
/// Characters of all, beyond which it drops some.
const MOST: usize = 4096;
/// So many fit, however long they are.
const ROOM: usize = MOST / LONGEST;

/// `text` on one line, of at most so many characters.
pub(super) fn clipped(text: &str, longest: usize) -> String {
    let line = |c: char| if c.is_control() { ' ' } else { c };
    match text.char_indices().nth(longest) {
        None => text.chars().map(line).collect(),
        Some(_) => text.chars().map(line).take(longest.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Warnings as they go into an answer; the last says how many there was no room for.
pub(super) fn shown<'a>(warnings: impl ExactSizeIterator<Item = &'a str>) -> Vec<String> {
    let count = warnings.len();
    let kept = if count > ROOM { ROOM - 1 } else { count };
    let mut shown: Vec<String> = warnings.take(kept).map(|text| clipped(text, LONGEST)).collect();
    if count > kept {
        shown.push(format!("{} more warnings are in the log of the injector", count - kept));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_one_line_of_bounded_length() {
        let all = ["two\nlines\u{7f}", &"ä".repeat(256), &"ä".repeat(257)];
        let shown = shown(all.into_iter());
        assert_eq!(shown[0], "two lines ");
        assert_eq!(shown[1], "ä".repeat(256));
        assert_eq!(shown[2], "ä".repeat(255) + "…");
    }

    #[test]
    fn the_whole_keeps_to_what_is_passed_on() {
        let long = "x".repeat(1000);
        for (count, kept) in [(0, 0), (1, 1), (16, 16), (17, 16), (1000, 16)] {
            let shown = shown(vec![long.as_str(); count].into_iter());
            assert_eq!(shown.len(), kept, "{count}");
            assert!(shown.iter().map(|text| text.chars().count()).sum::<usize>() <= MOST);
        }
        let many = shown(vec!["x"; 1000].into_iter());
        assert_eq!(many[15], "985 more warnings are in the log of the injector");
    }
}
