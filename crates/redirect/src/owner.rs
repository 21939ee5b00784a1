//! Lists of users and groups.

use ruleset::Owner;

use super::Error;

/// Parses a comma-separated list; ignores spaces around elements and empty elements.
pub fn parse_owners(key: &str, text: &str) -> Result<Vec<Owner>, Error> {
    const ALLOWED: &str = "a comma-separated list of numeric ids or of user or group names";
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts.map(|p| Owner::new(p).ok_or_else(|| Error::new(key, p, ALLOWED))).collect()
}

/// The groups whose outbound traffic is redirected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerGroups {
    /// All groups but these: `*` with the exclude list.
    AllBut(Vec<Owner>),
    /// Only these groups; the exclude list is ignored.
    Only(Vec<Owner>),
}

impl OwnerGroups {
    /// The maximum number of included groups, as in Istio: each is a match in the same rule.
    const MAX: usize = 64;

    /// Parses two pairs of key and value: `include` lists the redirected groups (or is `*`), and `exclude` the groups
    /// that are not redirected.
    pub fn parse(include: (&str, &str), exclude: (&str, &str)) -> Result<Self, Error> {
        if include.1.trim() == "*" {
            return parse_owners(exclude.0, exclude.1).map(Self::AllBut);
        }
        let groups = parse_owners(include.0, include.1)?;
        if groups.len() > Self::MAX {
            return Err(Error::new(include.0, include.1, "`*` or at most 64 groups"));
        }
        Ok(Self::Only(groups))
    }
}

impl Default for OwnerGroups {
    fn default() -> Self {
        Self::AllBut(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(include: &str, exclude: &str) -> Result<OwnerGroups, Error> {
        OwnerGroups::parse(("INCLUDE", include), ("EXCLUDE", exclude))
    }

    fn numbers(n: u32) -> String {
        (1..=n).map(|i| i.to_string()).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn at_most_64_groups_are_included_and_any_number_excluded() {
        for n in [63, 64] {
            assert!(matches!(groups(&numbers(n), ""), Ok(OwnerGroups::Only(ids)) if ids.len() == n as usize));
        }
        for n in [65, 100] {
            let error = groups(&numbers(n), "").unwrap_err();
            assert_eq!((&*error.key, error.allowed), ("INCLUDE", "`*` or at most 64 groups"));
        }
        assert!(matches!(groups("*", &numbers(100)), Ok(OwnerGroups::AllBut(ids)) if ids.len() == 100));
    }

    #[test]
    fn an_empty_inclusion_means_no_group_whatever_the_exclusion() {
        assert_eq!(groups("", "888"), Ok(OwnerGroups::Only(Vec::new())));
        assert_eq!(groups("*", ""), Ok(OwnerGroups::default()));
    }

    #[test]
    fn a_name_that_could_be_an_option_is_refused_by_its_key() {
        let error = parse_owners("key", "1, -j").unwrap_err();
        assert_eq!((&*error.key, &*error.value), ("key", "-j"));
    }
}
