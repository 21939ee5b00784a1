//! Kubernetes' label selectors.
//!
//! Pure. A selector is checked when it is parsed, with the rules of the API server, so that an invalid one is reported
//! with the configuration that contains it and not for each pod.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::name::{is_key, is_label_value};

/// A label selector (`metav1.LabelSelector`). An empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct LabelSelector {
    /// Conditions that must all be met.
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Requirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A selector as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unchecked {
    /// The required value of each label.
    #[serde(default)]
    match_labels: Option<BTreeMap<String, String>>,
    /// Additional conditions.
    #[serde(default)]
    match_expressions: Option<Vec<Requirement>>,
}

/// An invalid selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `In` and `NotIn` require values, other operators none.
    #[error("operator {operator} of {key:?} has {count} values: In and NotIn require values, other operators none")]
    Values {
        /// The label.
        key: String,
        /// The operator's name.
        operator: String,
        /// The number of values.
        count: usize,
    },
    #[error(
        "{0:?} is not a label: expected at most 63 letters, digits, `-`, `_` and `.`, optionally after a DNS name and `/`"
    )]
    Key(String),
    #[error("{value:?} is not a value of the label {key:?}: expected at most 63 letters, digits, `-`, `_` and `.`")]
    Value {
        /// The label.
        key: String,
        value: String,
    },
}

impl TryFrom<Unchecked> for LabelSelector {
    type Error = Error;

    fn try_from(from: Unchecked) -> Result<Self, Error> {
        let equal = |(key, value)| Requirement { key, operator: Operator::In, values: Some(vec![value]) };
        let labels = from.match_labels.unwrap_or_default().into_iter().map(equal);
        let requirements: Vec<_> = labels.chain(from.match_expressions.unwrap_or_default()).collect();
        requirements.iter().try_for_each(Requirement::check)?;
        Ok(Self { requirements })
    }
}

impl LabelSelector {
    /// Whether the selector has no conditions.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the selector matches; `label` returns a label's value.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.unmet(label).is_none()
    }

    /// Returns the label of the first condition that is not met.
    pub fn unmet<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> Option<&str> {
        self.requirements
            .iter()
            .map(|requirement| (requirement, label(&requirement.key)))
            .find(|(requirement, value)| !requirement.is_met(*value))
            .map(|(requirement, _)| &*requirement.key)
    }
}

impl Requirement {
    fn values(&self) -> &[String] {
        self.values.as_deref().unwrap_or_default()
    }

    fn check(&self) -> Result<(), Error> {
        let (key, count) = (self.key.clone(), self.values().len());
        if !is_key(&key) {
            return Err(Error::Key(key));
        }
        if matches!(self.operator, Operator::In | Operator::NotIn) == (count == 0) {
            return Err(Error::Values { key, operator: format!("{:?}", self.operator), count });
        }
        match self.values().iter().find(|value| !is_label_value(value)) {
            Some(value) => Err(Error::Value { key, value: value.clone() }),
            None => Ok(()),
        }
    }

    fn is_met(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values().iter().any(|v| v == value));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(selector: &Value) -> Result<LabelSelector, String> {
        LabelSelector::deserialize(selector).map_err(|error| error.to_string())
    }

    fn matches(selector: &Value, labels: &Value) -> bool {
        parse(selector).unwrap().matches(|key| labels.get(key).and_then(Value::as_str))
    }

    #[test]
    fn each_operator_matches_by_the_label() {
        let expression =
            |operator, values| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        assert!(matches(&expression("In", json!(["x", "y"])), &json!({"a": "y"})));
        assert!(!matches(&expression("In", json!(["x"])), &json!({})));
        assert!(matches(&expression("NotIn", json!(["x"])), &json!({})));
        assert!(!matches(&expression("NotIn", json!(["x"])), &json!({"a": "x"})));
        assert!(matches(&expression("Exists", json!([])), &json!({"a": ""})));
        assert!(matches(&expression("DoesNotExist", json!(null)), &json!({"b": ""})));
        let both = parse(&json!({"matchLabels": {"a": "x", "b": "y"}})).unwrap();
        assert_eq!(both.unmet(|key| Some(if key == "a" { "x" } else { "z" })), Some("b"));
        assert!(matches(&json!({"matchLabels": {"a": "x"}}), &json!({"a": "x", "b": "y"})));
        assert!(!matches(&json!({"matchLabels": {"a": "x", "b": ""}}), &json!({"a": "x"})));
    }

    #[test]
    fn an_empty_selector_matches_everything() {
        for empty in [json!({}), json!({"matchLabels": null, "matchExpressions": []})] {
            assert!(matches(&empty, &json!({})));
            assert!(parse(&empty).unwrap().is_empty());
        }
    }

    #[test]
    fn the_number_of_values_must_match_the_operator() {
        let expression =
            |operator, values| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        assert_eq!(
            parse(&expression("In", json!([]))).unwrap_err(),
            "operator In of \"a\" has 0 values: In and NotIn require values, other operators none"
        );
        assert_eq!(
            parse(&expression("Exists", json!(["x"]))).unwrap_err(),
            "operator Exists of \"a\" has 1 values: In and NotIn require values, other operators none"
        );
    }

    #[test]
    fn keys_and_values_must_be_those_of_labels() {
        let (name, long) = ("n".repeat(63), "n".repeat(64));
        for key in ["a", "A_b.c-9", "istio.io/dataplane-mode", &name, &format!("x.y/{name}")] {
            assert!(parse(&json!({"matchLabels": {key: ""}})).is_ok(), "{key}");
        }
        for key in
            ["", "-a", "a.", "a b", "/a", "Istio.io/a", "a/b/c", "a..b/c", &long, &format!("{}/a", "n".repeat(254))]
        {
            let error = parse(&json!({"matchLabels": {key: "x"}})).unwrap_err();
            assert!(error.starts_with(&format!("{key:?} is not a label")), "{error}");
        }
        for value in ["a b", "_", &long] {
            let error = parse(&json!({"matchLabels": {"k": value}})).unwrap_err();
            assert!(error.starts_with(&format!("{value:?} is not a value of the label \"k\"")), "{error}");
        }
    }
}
