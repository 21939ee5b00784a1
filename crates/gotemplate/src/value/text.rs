//! Strings of templates, borrowed or shared.

use std::sync::Arc;

/// A string from the data, the template or a function. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    /// A borrowed string, such as one in the data.
    Borrowed(&'a str),
    /// A literal of the template, or the result of a function.
    Shared(Arc<str>),
}

impl Text<'_> {
    /// Returns the contents.
    #[inline]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}
