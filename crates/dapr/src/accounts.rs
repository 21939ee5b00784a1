//! Decides which users may create pods with a sidecar: accounts by name pattern or UID, and cluster administrators.
//!
//! A sidecar gets trust material of the control plane. Therefore the pod's creator must be a built-in controller, an
//! account that the operator lists, or a cluster administrator.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use gocompat::glob::{Glob, GlobError};

use super::era::Era;

/// The group of cluster administrators.
const MASTERS: &str = "system:masters";

/// The prefix of service accounts' user names.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The accounts that are always allowed, most of them Kubernetes' controllers. Release 1.4.2 allows only the first
/// [`BUILT_IN_1_4_2`].
const BUILT_IN: [&str; 10] = [
    "kube-system:replicaset-controller",
    "kube-system:deployment-controller",
    "kube-system:cronjob-controller",
    "kube-system:job-controller",
    "kube-system:statefulset-controller",
    "kube-system:daemon-set-controller",
    "kube-system:replication-controller",
    "openshift-operator-lifecycle-manager:olm-operator-serviceaccount",
    "tekton-pipelines:tekton-pipelines-controller",
    "mirrord:mirrord-operator",
];

/// The number of entries of [`BUILT_IN`] in release 1.4.2.
const BUILT_IN_1_4_2: usize = 6;

/// The pod's creator: `userInfo` of the admission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct User<'a> {
    /// `system:serviceaccount:<namespace>:<name>` for service accounts.
    pub username: &'a str,
    /// The service account's UID, which changes when the account is recreated.
    pub uid: &'a str,
    pub groups: &'a [String],
}

static ALMIGHTY: LazyLock<[String; 1]> = LazyLock::new(|| [MASTERS.to_owned()]);

impl User<'static> {
    /// Returns a user without a name in the group of cluster administrators.
    pub fn master() -> Self {
        Self { groups: ALMIGHTY.as_slice(), ..Self::default() }
    }
}

/// The rule that allows a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The account's namespace and name match this pattern.
    Name(String),
    /// The user's UID is the UID of an account in the list.
    Uid,
    /// The user is in the group of administrators.
    Masters,
}

/// A pattern for service accounts, `namespace:name`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    namespace: Glob,
    name: Glob,
}

/// The accounts that may create pods with a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    patterns: Vec<Pattern>,
    /// All entries as `namespace:name`. An account whose namespace and name equal an entry is also allowed by its UID.
    exact: BTreeSet<String>,
}

/// An invalid list of accounts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("entry {index}, {entry:?}: expected <namespace>:<name>")]
    Shape {
        /// The position in the list, from 1; 0 for a built-in entry.
        index: usize,
        entry: String,
    },
    /// The namespace or the name in the entry is an invalid pattern.
    #[error("entry {index}, {entry:?}: the {half}")]
    Glob {
        /// The position in the list, from 1.
        index: usize,
        entry: String,
        /// `namespace` or `name`.
        half: &'static str,
        #[source]
        source: GlobError,
    },
}

impl Pattern {
    fn parse(index: usize, entry: &str) -> Result<Self, PatternError> {
        let shape = || PatternError::Shape { index, entry: entry.to_owned() };
        let (namespace, name) = entry.split_once(':').ok_or_else(shape)?;
        let (namespace, name) = (namespace.trim(), name.trim());
        if name.contains(':') || (namespace.is_empty() && name.is_empty()) {
            return Err(shape());
        }
        let glob = |half, text| {
            Glob::parse(text).map_err(|source| PatternError::Glob { index, entry: entry.to_owned(), half, source })
        };
        Ok(Self {
            text: format!("{namespace}:{name}"),
            namespace: glob("namespace", namespace)?,
            name: glob("name", name)?,
        })
    }
}

impl Allowed {
    /// Returns the built-in accounts of the release `era`.
    pub(super) fn built_in(era: Era) -> Result<Self, PatternError> {
        // Release 1.4.2 matches controllers only by UID.
        let (known, by_name) = match era {
            Era::V1_4_2 => (&BUILT_IN[..BUILT_IN_1_4_2], false),
            Era::Current => (&BUILT_IN[..], true),
        };
        let matched = if by_name { known } else { &[] };
        let patterns = matched.iter().map(|name| Pattern::parse(0, name)).collect::<Result<_, _>>()?;
        Ok(Self { patterns, exact: known.iter().map(|&name| name.to_owned()).collect() })
    }

    /// Adds the operator's comma-separated entries.
    ///
    /// # Errors
    /// An entry is not `namespace:name`, or its namespace or name is an invalid pattern.
    pub(super) fn add(&mut self, list: &str) -> Result<(), PatternError> {
        for (at, entry) in list.split(',').map(str::trim).enumerate().filter(|(_, entry)| !entry.is_empty()) {
            let pattern = Pattern::parse(at + 1, entry)?;
            self.exact.insert(pattern.text.clone());
            self.patterns.push(pattern);
        }
        Ok(())
    }

    /// Whether the list has an entry without wildcards for this service account. Such an entry also allows a user by
    /// the account's UID.
    pub fn wants_uid(&self, namespace: &str, name: &str) -> bool {
        self.exact.contains(&format!("{namespace}:{name}"))
    }

    /// Returns the rule that allows `user`, if any. `uids` are the UIDs of the accounts that [`Self::wants_uid`]
    /// selects.
    pub fn authority(&self, user: User<'_>, uids: &BTreeSet<String>) -> Option<Authority> {
        if let Some(pattern) = self.matching(user.username) {
            return Some(Authority::Name(pattern.to_owned()));
        }
        if uids.contains(user.uid) {
            return Some(Authority::Uid);
        }
        user.groups.iter().any(|group| group == MASTERS).then_some(Authority::Masters)
    }

    /// Returns the first pattern that matches the user's account.
    fn matching(&self, username: &str) -> Option<&str> {
        let mut parts = username.strip_prefix(SERVICE_ACCOUNT)?.split(':');
        let (namespace, name) = (parts.next()?, parts.next()?);
        let matches = |pattern: &&Pattern| pattern.namespace.matches(namespace) && pattern.name.matches(name);
        self.patterns.iter().find(matches).map(|pattern| pattern.text.as_str())
    }
}
