//! Elements of status pages: sections, tables and lists of terms. Pure. Problems, the values of terms and the cells of
//! [`timed_row`] are escaped; all other arguments are HTML.

use std::fmt::Write as _;

use super::Escaped;

/// Returns the first section of a page: whether all is well, the problems, and a list of terms with their values.
pub fn state(problems: &[String], terms: &[(&str, String)]) -> String {
    let (class, state) =
        if problems.is_empty() { ("good", "✓ All is well.") } else { ("bad", "✗ Not all is well.") };
    let mut html = format!("<section aria-labelledby=state><h2 id=state>State</h2><p class={class}>{state}</p>");
    if !problems.is_empty() {
        let items: String = problems.iter().map(|problem| format!("<li>{}", Escaped(problem))).collect();
        html += &format!("<ul>{items}</ul>");
    }
    html + &self::terms(terms) + "</section>"
}

/// Returns a list of terms with their values.
pub fn terms(terms: &[(&str, String)]) -> String {
    let mut html = "<dl>".to_owned();
    for (term, text) in terms {
        // Writing to a string cannot fail.
        let _ = write!(html, "<dt>{term}<dd>{}", Escaped(text));
    }
    html + "</dl>"
}

/// Returns a section with a table, or with the sentence `none` if there are no rows.
pub fn section(id: &str, title: &str, none: &str, rows: &str, table: impl Fn(&str) -> String) -> String {
    let content = if rows.is_empty() { format!("<p>{none}</p>") } else { table(rows) };
    format!("<section aria-labelledby={id}><h2 id={id}>{title}</h2>{content}</section>")
}

/// Returns a table with a caption and a header for each column; `rows` are whole `<tr>` elements. In a narrow window the table
/// scrolls, and not the page.
pub fn table(id: &str, caption: &str, columns: &[&str], rows: &str) -> String {
    let heads: String = columns.iter().map(|column| format!("<th scope=col>{column}")).collect();
    format!(
        "<div class=scroll role=region aria-labelledby={id} tabindex=0><table><caption id={id}>{caption}</caption>\
         <thead><tr>{heads}<tbody>{rows}</table></div>"
    )
}

/// Returns a row whose first cell is a time.
pub fn timed_row(texts: &[&str]) -> String {
    let cells = texts.iter().enumerate().map(|(column, text)| match column {
        0 => format!("<td class=num>{}", Escaped(to_seconds(text))),
        _ => format!("<td>{}", Escaped(text)),
    });
    format!("<tr>{}", cells.collect::<String>())
}

/// Formats a time in RFC 3339 with offset `Z` as `2026-01-01 00:00:00 UTC`; returns other strings unchanged.
pub fn utc(time: &str) -> String {
    let is_time = time.ends_with('Z') && time.as_bytes().get(10) == Some(&b'T');
    if is_time { format!("{} UTC", to_seconds(time).replacen('T', " ", 1)) } else { time.to_owned() }
}

/// Returns a time in RFC 3339 without fractions of a second and without the offset `Z`, which all times have.
pub fn to_seconds(time: &str) -> &str {
    time.split_once('.').map_or(time.trim_end_matches('Z'), |(seconds, _)| seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_rows_terms_and_problems_are_escaped() {
        let html = timed_row(&["<t>", "<x>"]) + &state(&["<p>".to_owned()], &[("Version", "<v>".to_owned())]);
        for part in ["&lt;t&gt;", "&lt;x&gt;", "<li>&lt;p&gt;", "<dt>Version<dd>&lt;v&gt;"] {
            assert!(html.contains(part), "{part} in\n{html}");
        }
    }

    #[test]
    fn times_have_whole_seconds() {
        assert_eq!(utc("not yet"), "not yet");
        for time in ["2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00Z"] {
            assert_eq!((to_seconds(time), utc(time)), ("2026-01-01T00:00:00", "2026-01-01 00:00:00 UTC".to_owned()));
        }
    }
}
