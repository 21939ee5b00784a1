//! The output of the demo, aligned, and coloured on a terminal.
//!
//! Write errors are ignored, so the demo completes its checks and its cleanup even if the reader exits (`| head`).

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};

/// Standard output, with colours or without.
pub(crate) struct Page {
    coloured: bool,
}

impl Default for Page {
    fn default() -> Self {
        #[expect(clippy::disallowed_methods, reason = "https://no-color.org")]
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { coloured: std::io::stdout().is_terminal() && !refused }
    }
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";

impl Page {
    /// Prints the title, which is the first line.
    pub(crate) fn title(&self, name: &str, detail: &str) {
        line(&format!("{} {}\n", self.styled(BOLD, name), self.styled(DIM, detail)));
    }

    /// Prints a completed step.
    pub(crate) fn done(&self, step: &str, detail: &str) {
        line(&format!("{} {step:<22} {}", self.styled(GREEN, "✓"), self.styled(DIM, detail)));
    }

    /// Prints the heading of a section.
    pub(crate) fn heading(&self, text: &str) {
        line(&format!("\n{}", self.styled(BOLD, text)));
    }

    /// Prints rows with aligned columns.
    pub(crate) fn table<const N: usize>(&self, rows: &[[String; N]]) {
        let mut widths = [0; N];
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in rows {
            let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            line(&format!("  {}", cells.join("  ").trim_end()));
        }
    }

    /// Prints quoted lines.
    pub(crate) fn quote(&self, lines: impl IntoIterator<Item = impl Display>) {
        for quoted in lines {
            line(&format!("  {}", self.styled(DIM, &quoted.to_string())));
        }
    }

    /// Prints a blank line.
    pub(crate) fn gap(&self) {
        line("");
    }

    /// Prints the error of a failed demo.
    pub(crate) fn failed(&self, error: &str) {
        let _ = writeln!(std::io::stderr(), "{} {error}", self.styled(RED, "✗"));
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
