//! Variables for the sidecar in the webhook's URL: how one webhook serves clusters and networks that differ.

use std::collections::BTreeMap;

const OLD: &str = ":ENV:";

/// Reads `/inject/cluster/one/net/two`, and the older `/inject/:ENV:cluster=one:ENV:net=two`. The path is decoded already;
/// `--slash--` stands for a slash in a value, and a name without a value is passed over.
pub fn variables(path: &str) -> BTreeMap<String, String> {
    let Some((_, rest)) = path.trim_matches('/').split_once('/') else { return BTreeMap::new() };
    let pairs: Vec<(&str, &str)> = match rest.strip_prefix(OLD) {
        Some(old) => old.split(OLD).filter_map(|pair| pair.split_once('=')).collect(),
        None => {
            let parts: Vec<&str> = rest.split('/').collect();
            parts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
        }
    };
    let named = pairs.into_iter().filter(|(name, _)| !name.is_empty());
    named.map(|(name, value)| (variable(name), value.replace("--slash--", "/"))).collect()
}

fn variable(name: &str) -> String {
    match name {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => "ISTIO_META_NETWORK".to_owned(),
        other => other.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Vec<(String, String)> {
        variables(path).into_iter().collect()
    }

    #[test]
    fn both_spellings_are_read() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let both = [pair("ISTIO_META_CLUSTER_ID", "one"), pair("ISTIO_META_NETWORK", "a/b")];
        assert_eq!(read("/inject/cluster/one/net/a--slash--b"), both);
        assert_eq!(read("/inject/:ENV:cluster=one:ENV:net=a--slash--b"), both);
        assert_eq!(read("/inject/custom_env/x/"), [pair("CUSTOM_ENV", "x")]);
    }

    #[test]
    fn halves_are_passed_over() {
        assert_eq!(read("/inject"), []);
        assert_eq!(read("/inject/"), []);
        assert_eq!(read("/inject/cluster"), []);
        assert_eq!(read("/inject/:ENV:=x:ENV:cluster"), []);
        assert_eq!(read("/inject/a/1/b"), [("A".to_owned(), "1".to_owned())]);
    }
}
