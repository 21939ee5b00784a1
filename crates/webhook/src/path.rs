//! Parses the webhook's URL, `/inject/k/v…?timeout=10s`, which contains environment variables for the sidecar and the
//! API server's timeout.
//!
//! Variables have Istio's current format, `/k/v`, or its former one, `:ENV:k=v`. Other parts of the path are ignored.

use std::collections::BTreeMap;
use std::time::Duration;

/// Returns the timeout that the API server adds to the URL. The API server rounds it up to whole seconds and never
/// sends zero; a zero from another client is treated as no timeout.
pub(super) fn timeout(query: Option<&str>) -> Option<Duration> {
    let seconds = query?.split('&').find_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s'))?;
    seconds.parse().ok().filter(|seconds| *seconds != 0).map(Duration::from_secs)
}

/// Returns the variables that a path sets, by their names in the proxy's environment: `net` becomes
/// `ISTIO_META_NETWORK`.
pub fn variables(path: &str) -> BTreeMap<String, String> {
    let path = decoded(path);
    let Some(rest) = path.trim_end_matches('/').splitn(3, '/').nth(2) else { return BTreeMap::new() };
    let pairs: Vec<(String, String)> = match rest.strip_prefix(":ENV:") {
        Some(rest) => rest.split(":ENV:").filter_map(|pair| pair.split_once('=')).map(owned).collect(),
        None => pairs(rest),
    };
    pairs.into_iter().filter(|(key, _)| !key.is_empty()).map(|(key, value)| (name(&key), value)).collect()
}

fn pairs(rest: &str) -> Vec<(String, String)> {
    let segments: Vec<&str> = rest.split('/').collect();
    if segments.len() % 2 == 1 && segments != [""] {
        tracing::warn!(path = rest, "the last key in the webhook's path has no value and is ignored");
    }
    let pair = |pair: &[&str]| (pair[0].to_owned(), pair[1].replace("--slash--", "/"));
    segments.chunks_exact(2).map(pair).collect()
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn name(key: &str) -> String {
    match key {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => "ISTIO_META_NETWORK".to_owned(),
        key => key.to_uppercase(),
    }
}

/// Decodes percent-encoding; invalid encodings stay unchanged.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match hex.filter(|_| byte == b'%') {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_says_how_long_the_api_server_waits() {
        for (query, seconds) in [
            (Some("timeout=10s"), Some(10)),
            (Some("a=b&timeout=3s"), Some(3)),
            (Some("timeout=1m"), None),
            (Some("timeout=0s"), None),
            (Some("timeout="), None),
            (None, None),
        ] {
            assert_eq!(timeout(query), seconds.map(Duration::from_secs), "{query:?}");
        }
    }

    #[test]
    fn a_path_sets_variables() {
        for (path, expected) in [
            ("/", &[][..]),
            ("/inject", &[]),
            ("/inject/", &[]),
            ("/inject/cluster", &[]),
            ("/inject/cluster/c1/net/n1", &[("ISTIO_META_CLUSTER_ID", "c1"), ("ISTIO_META_NETWORK", "n1")]),
            ("/inject/cluster/c1/net/", &[("ISTIO_META_CLUSTER_ID", "c1")]),
            ("/inject/custom_env/foo", &[("CUSTOM_ENV", "foo")]),
            ("/inject/rootpage/--slash--foo--slash--bar", &[("ROOTPAGE", "/foo/bar")]),
            ("/inject//v/a/b", &[("A", "b")]),
            ("/inject/a/b%20c", &[("A", "b c")]),
            ("/inject/a/b%zz%", &[("A", "b%zz%")]),
            (
                "/inject/:ENV:cluster=c1:ENV:rootpage=/foo/bar",
                &[("ISTIO_META_CLUSTER_ID", "c1"), ("ROOTPAGE", "/foo/bar")],
            ),
            ("/inject/:ENV:a=b=c:ENV:empty=:ENV:=x:ENV:none", &[("A", "b=c"), ("EMPTY", "")]),
        ] {
            let expected: BTreeMap<_, _> = expected.iter().copied().map(owned).collect();
            assert_eq!(variables(path), expected, "{path}");
        }
    }
}
