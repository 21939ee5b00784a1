//! Parses and evaluates label and field selectors in Kubernetes' syntax. They filter the pods of an existing watch, to
//! which the API server applies other selectors.
//!
//! Pure. `kube` evaluates expressions but has no parser for them.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, SelectorExt as _};

use super::pod::Pod;

/// The fields by which the API server selects pods.
const FIELDS: [&str; 10] = [
    "metadata.name",
    "metadata.namespace",
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
];

/// An invalid selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0:?}: expected key, !key, key=value, key!=value, key in (a,b) or key notin (a,b), separated by commas")]
    Label(String),
    /// Invalid syntax, or a field that the API server does not select by.
    #[error("{0:?}: expected field=value or field!=value, separated by commas; fields are {fields}", fields = FIELDS.join(", "))]
    Field(String),
}

/// A label and a field selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Expression>,
    fields: Vec<Expression>,
}

impl Selector {
    /// Parses both selectors; an empty one selects all pods.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, Error> {
        let label = |term: &str| expression(term).ok_or_else(|| Error::Label(term.to_owned()));
        let field = |term: &str| field(term).ok_or_else(|| Error::Field(term.to_owned()));
        let labels = terms(labels).into_iter().map(label).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields: terms(fields).into_iter().map(field).collect::<Result<_, _>>()? })
    }

    pub(super) fn selects(&self, pod: &Pod) -> bool {
        let none = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        self.labels.iter().all(|expression| expression.matches(labels))
            && (self.fields.is_empty() || self.fields.iter().all(|expression| expression.matches(&fields_of(pod))))
    }
}

fn fields_of(Pod { metadata, spec, status }: &Pod) -> BTreeMap<String, String> {
    let host_network = spec.host_network.to_string();
    let values = [
        &metadata.name,
        &metadata.namespace,
        &host_network,
        &spec.node_name,
        &spec.restart_policy,
        &spec.scheduler_name,
        &spec.service_account_name,
        &status.nominated_node_name,
        &status.phase,
        &status.pod_ip,
    ];
    FIELDS.map(str::to_owned).into_iter().zip(values.map(Clone::clone)).collect()
}

/// Splits terms at commas outside parentheses.
fn terms(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut terms) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms.into_iter().map(str::trim).filter(|term| !term.is_empty()).collect()
}

fn expression(term: &str) -> Option<Expression> {
    if let Some((key, list)) = term.strip_suffix(')').and_then(|head| head.split_once('(')) {
        let values: BTreeSet<String> = list.split(',').map(value).collect::<Option<_>>()?;
        let mut tokens = key.split_whitespace();
        return match (tokens.next().and_then(name)?, tokens.next()?, tokens.next()) {
            (key, "in", None) => Some(Expression::In(key, values)),
            (key, "notin", None) => Some(Expression::NotIn(key, values)),
            _ => None,
        };
    }
    equality(term).or_else(|| match term.strip_prefix('!') {
        Some(key) => name(key).map(Expression::DoesNotExist),
        None => name(term).map(Expression::Exists),
    })
}

fn equality(term: &str) -> Option<Expression> {
    if let Some((key, unequal)) = term.split_once("!=") {
        return Some(Expression::NotEqual(name(key)?, value(unequal)?));
    }
    let (key, equal) = term.split_once('=')?;
    Some(Expression::Equal(name(key)?, value(equal.strip_prefix('=').unwrap_or(equal))?))
}

fn field(term: &str) -> Option<Expression> {
    let expression = equality(term)?;
    let (Expression::Equal(key, _) | Expression::NotEqual(key, _)) = &expression else { return None };
    FIELDS.contains(&key.as_str()).then_some(expression)
}

fn name(text: &str) -> Option<String> {
    value(text).filter(|name| !name.is_empty())
}

fn value(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.contains(|c: char| c.is_whitespace() || "=!(),".contains(c))).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let json = r#"{"metadata":{"namespace":"shop","name":"web","labels":{"app":"web","tier":"front"}},
            "spec":{"nodeName":"n1","serviceAccountName":"web"},"status":{"phase":"Pending"}}"#;
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn labels_and_fields_select_as_the_api_server_does() {
        for (labels, fields, selects) in [
            ("", "", true),
            ("app=web,tier==front", "", true),
            ("app=web, tier!=front", "", false),
            ("app", "", true),
            ("!app", "", false),
            ("!gone, gone!=x", "", true),
            ("app in (db, web),tier notin (back)", "", true),
            ("app in (db)", "", false),
            ("gone notin (x)", "", true),
            ("app=", "", false),
            ("", "status.phase!=Failed,spec.nodeName=n1", true),
            ("", "metadata.namespace=other", false),
            ("", "spec.serviceAccountName=web,spec.hostNetwork=false", true),
            ("", "status.podIP=", true),
        ] {
            assert_eq!(Selector::parse(labels, fields).unwrap().selects(&pod()), selects, "{labels:?} {fields:?}");
        }
    }

    #[test]
    fn an_invalid_selector_names_its_term() {
        for labels in ["=x", "a b", "a in b", "a in (b", "a has (b)", "a=b=c", "!"] {
            assert_eq!(Selector::parse(labels, ""), Err(Error::Label(labels.to_owned())));
        }
        for fields in ["status.reason=x", "spec.nodeName", "metadata.name in (a)"] {
            assert_eq!(Selector::parse("", fields), Err(Error::Field(fields.to_owned())));
        }
    }
}
