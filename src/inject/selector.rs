//! Kubernetes' label selectors.
//!
//! Selectors are parsed when the configuration is read, so that an invalid one is a warning then instead of an error per pod.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A label selector. In contrast to Kubernetes, an empty one matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// The required value of each label.
    #[serde(default)]
    match_labels: std::collections::BTreeMap<String, String>,
    /// Further conditions, which must all be met.
    #[serde(default)]
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// An invalid selector.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field has another type, or the operator is unknown.
    #[error(transparent)]
    Shape(#[from] serde_json::Error),
    /// `In` and `NotIn` require values, other operators none.
    #[error("operator {operator} of {key:?} has {count} values")]
    Values {
        /// The label.
        key: String,
        /// The operator's name.
        operator: String,
        /// The number of values.
        count: usize,
    },
}

impl Selector {
    /// Parses a selector of the configuration.
    ///
    /// # Errors
    /// The value is not a selector, or the number of values does not match the operator.
    pub fn parse(value: &Value) -> Result<Self, Error> {
        let selector = Self::deserialize(value)?;
        for expression in &selector.match_expressions {
            let wants = matches!(expression.operator, Operator::In | Operator::NotIn);
            if wants == expression.values.is_empty() {
                return Err(Error::Values {
                    key: expression.key.clone(),
                    operator: format!("{:?}", expression.operator),
                    count: expression.values.len(),
                });
            }
        }
        Ok(selector)
    }

    /// Whether the selector matches these labels.
    pub fn matches(&self, labels: &Map<String, Value>) -> bool {
        if self.match_labels.is_empty() && self.match_expressions.is_empty() {
            return false;
        }
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|e| e.matches(label(&e.key)))
    }
}

impl Expression {
    fn matches(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values.iter().any(|v| v == value));
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
    use serde_json::json;

    use super::*;

    fn matches(selector: &Value, labels: &Value) -> bool {
        Selector::parse(selector).unwrap().matches(labels.as_object().unwrap())
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
        assert!(matches(&expression("DoesNotExist", json!([])), &json!({"b": ""})));
        assert!(matches(&json!({"matchLabels": {"a": "x"}}), &json!({"a": "x", "b": "y"})));
    }

    #[test]
    fn an_empty_selector_matches_nothing() {
        assert!(!matches(&json!({}), &json!({"a": "x"})));
    }

    #[test]
    fn the_number_of_values_must_match_the_operator() {
        let error = Selector::parse(&json!({"matchExpressions": [{"key": "a", "operator": "In"}]})).unwrap_err();
        assert_eq!(error.to_string(), "operator In of \"a\" has 0 values");
    }
}
