//! The common parts of the daemons' status pages: requests, elements, escaping, style, live updates and security headers.
//!
//! A page is complete without its script, which only fetches the page again. A page loads no other resource, and its
//! Content-Security-Policy allows no style and script but the page's own, by their digests.

mod parts;
mod report;

use std::fmt::{self, Display, Write as _};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::diagnostics::terminal::is_unprintable;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use ring::digest::{SHA256, digest};

use super::http::{Response, content};

pub use parts::{section, state, table, terms, timed_row, to_seconds, utc};
pub use report::{DOCUMENT, Form, Latest, PAGE, document, requested};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/update.js");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// The header `Content-Security-Policy` of each page.
static POLICY: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
    let of = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
    let policy = format!(
        "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        of(STYLE),
        of(SCRIPT)
    );
    policy.parse().ok()
});

/// Formats a value with escapes for the content and the attributes of HTML elements.
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character {
            '&' => self.0.write_str("&amp;"),
            '<' => self.0.write_str("&lt;"),
            '>' => self.0.write_str("&gt;"),
            '"' => self.0.write_str("&quot;"),
            '\'' => self.0.write_str("&#39;"),
            other if is_unprintable(other) => write!(self.0, "{}", other.escape_default()),
            other => self.0.write_char(other),
        })
    }
}

/// Returns the response with a whole page. `main` is HTML; `title` is escaped.
pub fn page(title: &str, main: &str) -> Response {
    let title = Escaped(title);
    let html = format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>{title}</title>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\"><meta name=color-scheme content=\"light dark\">\
         <link rel=icon href=\"data:,\"><style>{STYLE}</style></head>\
         <body><header><h1>{title}</h1><p id=updates role=status></p></header>\n<main>{main}</main>\n\
         <script>{SCRIPT}</script></body></html>\n"
    );
    let mut response = content(StatusCode::OK, HTML, html);
    let headers = response.headers_mut();
    if let Some(policy) = &*POLICY {
        headers.insert(CONTENT_SECURITY_POLICY, policy.clone());
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        let text = Escaped("<script>alert(\"x\")</script>&'\u{1b}[2J\u{202e}").to_string();
        assert_eq!(text, "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39;\\u{1b}[2J\\u{202e}");
    }

    #[test]
    fn the_policy_allows_only_the_pages_own_style_and_script() {
        let response = page("Node <n1>", "<p>x</p>");
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; img-src data:; style-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
        // The browser computes the digest of an element's whole text, so the text must not end the element early.
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }
}
