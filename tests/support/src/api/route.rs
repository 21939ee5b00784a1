//! Parses API paths: `/api/v1/…` and `/apis/<group>/<version>/…`, with optional namespace, name and subresource.

use super::store::Key;

/// A parsed path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) api_version: String,
    pub(super) namespace: Option<String>,
    pub(super) resource: String,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

impl Target {
    pub(super) fn key(&self) -> Option<Key> {
        Some(Key::new(&self.resource, self.namespace.as_deref().unwrap_or_default(), self.name.as_deref()?))
    }

    /// Returns the `kind` of a list of this resource, such as `PodList` for `pods`. Clients rarely read it.
    pub(super) fn list_kind(&self) -> String {
        let mut letters = self.resource.trim_end_matches('s').chars();
        letters.next().map(|first| format!("{}{}List", first.to_uppercase(), letters.as_str())).unwrap_or_default()
    }
}

pub(super) fn parse(path: &str) -> Option<Target> {
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (api_version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ((*version).to_owned(), rest),
        ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() && *rest != ["status"] => {
            (Some((*namespace).to_owned()), rest)
        }
        rest => (None, rest),
    };
    let (resource, rest) = rest.split_first()?;
    let part = |index: usize| rest.get(index).map(|text| (*text).to_owned());
    Some(Target { api_version, namespace, resource: (*resource).to_owned(), name: part(0), subresource: part(1) })
}
