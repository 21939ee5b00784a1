//! Validates image references as the kubelet does: with the grammar of github.com/distribution/reference v0.6.0, in the
//! normalized form (`ParseNormalizedNamed`).
//!
//! The API server accepts almost any string as an image. A pod with an invalid one is created, and its container stays
//! in `InvalidImageName`.

/// The domain of an image that names none.
const DEFAULT_DOMAIN: &str = "docker.io";
/// The first path component of an image of the default domain that consists of a single name.
const OFFICIAL: &str = "library";
/// The maximum length of a path, in bytes (`RepositoryNameTotalLengthMax`).
const PATH: usize = 255;
/// The maximum length of a tag, in bytes.
const TAG: usize = 128;
/// The number of digits of an image ID, which is not a reference.
const ID: usize = 64;
/// The digest algorithms that the kubelet supports, with the number of hexadecimal digits of each.
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// The part that makes a string an invalid image reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("64 hexadecimal digits are the ID of an image, which is no reference")]
    Id,
    #[error(
        "the name before tag and digest must be path components of lower-case letters, digits and single separators (. _ __ -), with a \
         registry's host[:port] before them"
    )]
    Name,
    #[error("the path has upper-case letters")]
    UpperCase,
    #[error("the path has more than 255 characters")]
    Long,
    #[error(
        "the tag must have 1 to 128 letters, digits, underscores, periods and dashes, and start with a letter, digit or underscore"
    )]
    Tag,
    #[error("the digest must be sha256:, sha384: or sha512: with 64, 96 or 128 lower-case hexadecimal digits")]
    Digest,
}

/// Checks an image reference.
///
/// # Errors
/// The kubelet would refuse the image.
pub(super) fn check(image: &str) -> Result<(), Invalid> {
    if image.len() == ID && image.bytes().all(is_hexadecimal) {
        return Err(Invalid::Id);
    }
    let (domain, remote) = split_domain(image);
    let (named, digest) = remote.split_once('@').map_or((remote, None), |(named, digest)| (named, Some(digest)));
    let (path, tag) = named.split_once(':').map_or((named, None), |(path, tag)| (path, Some(tag)));
    // An image of the default domain whose path is a single name is in the path `library`.
    let prefix = if domain == DEFAULT_DOMAIN && !remote.contains('/') { OFFICIAL.len() + 1 } else { 0 };
    let length = match (is_domain(domain), path.split('/').all(is_component)) {
        (_, false) if path.to_ascii_lowercase().split('/').all(is_component) => return Err(Invalid::UpperCase),
        (_, false) => return Err(Invalid::Name),
        (true, true) => prefix + path.len(),
        // What looks like a domain may still be a path component, such as `a.b_c`.
        (false, true) if is_component(domain) => domain.len() + 1 + path.len(),
        (false, true) => return Err(Invalid::Name),
    };
    match (tag, digest) {
        (Some(tag), _) if !is_tag(tag) => Err(Invalid::Tag),
        (_, Some(digest)) if !is_digest(digest) => Err(Invalid::Digest),
        _ if length > PATH => Err(Invalid::Long),
        _ => Ok(()),
    }
}

/// Splits a reference into its domain and the rest. The first component is a domain if it has a period, a colon or an
/// upper-case letter, or is `localhost`.
fn split_domain(image: &str) -> (&str, &str) {
    match image.split_once('/') {
        Some(("index.docker.io", rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest))
            if first == "localhost" || first.contains(['.', ':']) || first.chars().any(char::is_uppercase) =>
        {
            (first, rest)
        }
        _ => (DEFAULT_DOMAIN, image),
    }
}

/// Whether a string is `host`, `host:port`, `[IPv6 address]` or `[IPv6 address]:port`.
fn is_domain(domain: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit());
    if let Some(rest) = domain.strip_prefix('[') {
        let Some((address, behind)) = rest.split_once(']') else { return false };
        let is_address = !address.is_empty() && address.bytes().all(|c| c.is_ascii_hexdigit() || c == b':');
        return is_address && (behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = domain.split_once(':').map_or((domain, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        let inside = label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        inside && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Whether a string consists of lower-case letters and digits, separated by a period, one or two underscores, or
/// dashes.
fn is_component(component: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = component.starts_with(is_alphanumeric) && component.ends_with(is_alphanumeric);
    let mut separators = component.split(is_alphanumeric);
    ends && separators
        .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|c| c == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    tag.bytes().next().is_some_and(is_word)
        && tag.len() <= TAG
        && tag.bytes().all(|c| is_word(c) || c == b'.' || c == b'-')
}

fn is_digest(digest: &str) -> bool {
    let parts = digest.split_once(':');
    parts.is_some_and(|(algorithm, digits)| {
        DIGESTS.contains(&(algorithm, digits.len())) && digits.bytes().all(is_hexadecimal)
    })
}

fn is_hexadecimal(c: u8) -> bool {
    c.is_ascii_digit() || (b'a'..=b'f').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images with the verdict of distribution/reference v0.6.0, one per line: `+` or `-`, a space, the image as a JSON
    /// string.
    const CASES: &str = include_str!("image/cases.txt");

    #[test]
    fn each_verdict_equals_that_of_the_kubelets_library() {
        let mut seen = [0; 2];
        for line in CASES.lines() {
            let (verdict, image) = line.split_once(' ').unwrap();
            let image: String = serde_json::from_str(image).unwrap();
            let found = check(&image);
            assert_eq!(found.is_ok(), verdict == "+", "{image:?}: {found:?}");
            seen[usize::from(found.is_ok())] += 1;
        }
        assert!(seen.iter().all(|count| *count > 40), "{seen:?}");
    }

    #[test]
    fn the_part_that_is_wrong_is_named() {
        let long = format!("r.io/{}", "a".repeat(256));
        for (image, expected) in [
            ("a".repeat(64).as_str(), Invalid::Id),
            (" ", Invalid::Name),
            ("", Invalid::Name),
            ("a b", Invalid::Name),
            ("docker.io/istio/Proxy:1", Invalid::UpperCase),
            ("image:", Invalid::Tag),
            ("image:1 ", Invalid::Tag),
            ("img@sha256:xyz", Invalid::Digest),
            (&long, Invalid::Long),
        ] {
            assert_eq!(check(image), Err(expected), "{image}");
        }
    }
}
