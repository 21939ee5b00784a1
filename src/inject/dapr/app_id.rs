//! The name by which other applications call this one.

use super::pod::Pod;

/// Longest label of DNS.
const LONGEST: usize = 63;

/// What a ReplicaSet appends to the name of its Deployment.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Where the app id was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `dapr.io/app-id`.
    Annotation,
    /// The pod's name.
    Name,
    /// The name that is still to be generated, without what makes it unique.
    GenerateName,
}

/// An app id that can be the name of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppId {
    /// The id itself.
    pub id: String,
    /// Where it comes from.
    pub source: Source,
}

/// Why there is no app id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppIdError {
    /// Neither annotation nor name says one.
    #[error("value for the dapr.io/app-id annotation is empty")]
    Empty,
    /// The service named after it would have a bad name.
    #[error("invalid app id (input: '{id}', service: '{id}-dapr'): {}", faults(*.too_long, *.malformed))]
    Invalid {
        /// The id.
        id: String,
        /// With `-dapr` it has more than 63 characters.
        too_long: bool,
        /// It is not made of lower case letters, digits and inner dashes.
        malformed: bool,
    },
}

fn faults(too_long: bool, malformed: bool) -> String {
    let long = too_long.then(|| format!("must be no more than {LONGEST} characters"));
    let shape = malformed.then(|| {
        "must be lower case letters, digits and '-', and start with a letter or digit (e.g. 'my-name')".to_owned()
    });
    long.into_iter().chain(shape).collect::<Vec<_>>().join("\n")
}

/// The app id of a pod.
///
/// # Errors
/// There is none, or no service could have its name.
pub(super) fn of(pod: &Pod<'_>, annotation: &str) -> Result<AppId, AppIdError> {
    let generated = without_suffix(pod);
    let sources =
        [(annotation, Source::Annotation), (pod.metadata.name, Source::Name), (generated, Source::GenerateName)];
    let (id, source) = sources.into_iter().find(|(id, _)| !id.is_empty()).ok_or(AppIdError::Empty)?;
    check(id)?;
    Ok(AppId { id: id.to_owned(), source })
}

/// `generateName` without its last dash and, below a ReplicaSet, without the hash of the template: what stays the same for
/// all replicas and after each change.
fn without_suffix<'a>(pod: &Pod<'a>) -> &'a str {
    let base = pod.metadata.generate_name.trim_end_matches('-');
    let hash = pod.metadata.labels.get(TEMPLATE_HASH).copied().flatten().filter(|hash| !hash.is_empty());
    let owner = hash.and_then(|hash| base.strip_suffix(hash)?.strip_suffix('-'));
    owner.unwrap_or(base)
}

fn check(id: &str) -> Result<(), AppIdError> {
    let too_long = id.len() + "-dapr".len() > LONGEST;
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
    fn ids_that_cannot_name_a_service_are_refused_with_every_reason() {
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
