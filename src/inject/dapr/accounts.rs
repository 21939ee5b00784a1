//! Who may have a sidecar put into a pod: accounts by name pattern, by UID, and cluster administrators.
//!
//! Anybody who may create pods could otherwise have the control plane's trust handed to a pod of his; so the pod's creator
//! must be one of the controllers, or be named by the operator.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::era::Era;
use super::glob::{Glob, GlobError};

/// The group whose members may do everything.
const MASTERS: &str = "system:masters";

/// How service accounts are called among users.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Kubernetes' own controllers; those of release 1.4.2 come first.
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

/// How many of [`BUILT_IN`] release 1.4.2 knew.
const BUILT_IN_1_4_2: usize = 6;

/// Who asks for a pod: `userInfo` of the admission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct User<'a> {
    /// `system:serviceaccount:<namespace>:<name>` for service accounts.
    pub username: &'a str,
    /// Of the service account; changes when it is made anew.
    pub uid: &'a str,
    /// All of the user's groups.
    pub groups: &'a [String],
}

static ALMIGHTY: LazyLock<[String; 1]> = LazyLock::new(|| [MASTERS.to_owned()]);

impl User<'static> {
    /// Somebody of whom no more is known than that he may do everything.
    pub fn master() -> Self {
        Self { groups: ALMIGHTY.as_slice(), ..Self::default() }
    }
}

/// By what a user may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The account's namespace and name match this pattern, as it was written.
    Name(String),
    /// The UID is that of an account in the list.
    Uid,
    /// The group of administrators.
    Masters,
}

/// A pattern of accounts, `namespace:name`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    namespace: Glob,
    name: Glob,
}

/// Accounts whose pods get a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    patterns: Vec<Pattern>,
    /// `namespace:name`, looked up for its UID.
    exact: BTreeSet<String>,
}

/// Why a list of accounts cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// An entry must have exactly one colon.
    #[error("entry {index}, {entry:?}: write <namespace>:<name>")]
    Shape {
        /// Place in the list, counted from 1.
        index: usize,
        /// The entry.
        entry: String,
    },
    /// One half is no pattern.
    #[error("entry {index}, {entry:?}: the {half}")]
    Glob {
        /// Place in the list, counted from 1.
        index: usize,
        /// The entry.
        entry: String,
        /// `namespace` or `name`.
        half: &'static str,
        /// What is wrong, and where in this half.
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
    /// The controllers that `era` always knows.
    pub(super) fn built_in(era: Era) -> Result<Self, PatternError> {
        // Before names could be matched, only UIDs counted for the controllers.
        let (known, by_name) = match era {
            Era::V1_4_2 => (&BUILT_IN[..BUILT_IN_1_4_2], false),
            Era::Current => (&BUILT_IN[..], true),
        };
        let matched = if by_name { known } else { &[] };
        let patterns = matched.iter().map(|name| Pattern::parse(0, name)).collect::<Result<_, _>>()?;
        Ok(Self { patterns, exact: known.iter().map(|&name| name.to_owned()).collect() })
    }

    /// Adds the operator's entries, which commas divide.
    ///
    /// # Errors
    /// An entry is no `namespace:name`, or one half of it is no pattern.
    pub(super) fn add(&mut self, list: &str) -> Result<(), PatternError> {
        for (at, entry) in list.split(',').map(str::trim).enumerate().filter(|(_, entry)| !entry.is_empty()) {
            let pattern = Pattern::parse(at + 1, entry)?;
            self.exact.insert(pattern.text.clone());
            self.patterns.push(pattern);
        }
        Ok(())
    }

    /// Whether the UID of this service account is one of those to know.
    pub fn wants_uid(&self, namespace: &str, name: &str) -> bool {
        self.exact.contains(&format!("{namespace}:{name}"))
    }

    /// By what `user` may, if at all. `uids` are those of the accounts that [`Self::wants_uid`] selects.
    pub fn authority(&self, user: User<'_>, uids: &BTreeSet<String>) -> Option<Authority> {
        if let Some(pattern) = self.matching(user.username) {
            return Some(Authority::Name(pattern.to_owned()));
        }
        if uids.contains(user.uid) {
            return Some(Authority::Uid);
        }
        user.groups.iter().any(|group| group == MASTERS).then_some(Authority::Masters)
    }

    /// The first pattern that the user's account matches.
    fn matching(&self, username: &str) -> Option<&str> {
        let mut parts = username.strip_prefix(SERVICE_ACCOUNT)?.split(':');
        let (namespace, name) = (parts.next()?, parts.next()?);
        let matches = |pattern: &&Pattern| pattern.namespace.matches(namespace) && pattern.name.matches(name);
        self.patterns.iter().find(matches).map(|pattern| pattern.text.as_str())
    }
}
