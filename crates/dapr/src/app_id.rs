//! Determines the app id, the name by which other applications call this one.

use super::pod::Pod;

/// The size limit of a DNS label.
const MAX_LABEL: usize = 63;

/// The label whose value a ReplicaSet appends to its Deployment's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The source of an app id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `dapr.io/app-id`
    Annotation,
    Name,
    /// `generateName` without its trailing dashes and, for ReplicaSets, without the template hash.
    GenerateName,
}

/// An app id for which `<id>-dapr` is a valid name of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppId {
    pub id: String,
    pub source: Source,
}

/// The pod has no valid app id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppIdError {
    /// Both the annotation and the pod's name are empty.
    #[error("value for the dapr.io/app-id annotation is empty")]
    Empty,
    /// The name of the app's Service, the app id with the suffix `-dapr`, would be invalid.
    #[error("invalid app id (input: '{id}', service: '{id}-dapr'): {}", faults(*.too_long, *.malformed))]
    Invalid {
        id: String,
        /// Whether the id with `-dapr` has more than 63 characters.
        too_long: bool,
        /// Whether the id starts with a dash, or has other characters than lower case letters, digits and dashes.
        malformed: bool,
    },
}

fn faults(too_long: bool, malformed: bool) -> String {
    let long = too_long.then(|| format!("must be no more than {MAX_LABEL} characters"));
    let shape = malformed.then(|| {
        "must be lower case letters, digits and '-', and start with a letter or digit (e.g. 'my-name')".to_owned()
    });
    long.into_iter().chain(shape).collect::<Vec<_>>().join("\n")
}

/// Returns a pod's app id.
///
/// # Errors
/// The app id is empty, or `<id>-dapr` is not a valid Service name.
pub(super) fn of(pod: &Pod<'_>, annotation: &str) -> Result<AppId, AppIdError> {
    let generated = without_suffix(pod);
    let sources =
        [(annotation, Source::Annotation), (pod.metadata.name, Source::Name), (generated, Source::GenerateName)];
    let (id, source) = sources.into_iter().find(|(id, _)| !id.is_empty()).ok_or(AppIdError::Empty)?;
    check(id)?;
    Ok(AppId { id: id.to_owned(), source })
}

/// Returns `generateName` without its trailing dashes and, for ReplicaSets, without the template hash: the part that
/// all replicas and revisions share.
fn without_suffix<'a>(pod: &Pod<'a>) -> &'a str {
    let base = pod.metadata.generate_name.trim_end_matches('-');
    let hash = pod.metadata.labels.get(TEMPLATE_HASH).copied().flatten().filter(|hash| !hash.is_empty());
    let owner = hash.and_then(|hash| base.strip_suffix(hash)?.strip_suffix('-'));
    owner.unwrap_or(base)
}

fn check(id: &str) -> Result<(), AppIdError> {
    let too_long = id.len() + "-dapr".len() > MAX_LABEL;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let malformed = !id.starts_with(plain) || !id.chars().all(|c| plain(c) || c == '-');
    if too_long || malformed {
        return Err(AppIdError::Invalid { id: id.to_owned(), too_long, malformed });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_ids_are_reported_with_every_reason() {
        assert_eq!(check(&"a".repeat(58)), Ok(()));
        for (id, long, shape) in [
            ("a".repeat(59), true, false),
            ("a".repeat(64), true, false),
            ("a.b".into(), false, true),
            ("-a".into(), false, true),
            ("A".repeat(64), true, true),
        ] {
            let expected = AppIdError::Invalid { id: id.clone(), too_long: long, malformed: shape };
            assert_eq!(check(&id), Err(expected), "{id}");
        }
        let both = check(&"A".repeat(64)).expect_err("two faults").to_string();
        assert_eq!(both.lines().count(), 2, "{both}");
    }
}
