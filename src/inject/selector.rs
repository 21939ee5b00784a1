//! Kubernetes' label selectors.
//!
//! Parsed when the configuration is read: a selector that cannot be is a warning then, never a surprise per pod.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A label selector that can match: an empty one selects nothing here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Labels and the very value that each must have.
    #[serde(default)]
    match_labels: std::collections::BTreeMap<String, String>,
    /// Further conditions, all of which must hold.
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

/// Why a selector is not used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a selector's shape, or an operator that there is not.
    #[error(transparent)]
    Shape(#[from] serde_json::Error),
    /// `In` and `NotIn` need values, the others must have none.
    #[error("operator {operator} of {key:?} has {count} values")]
    Values {
        /// The label.
        key: String,
        /// As it is written.
        operator: String,
        /// How many values there are.
        count: usize,
    },
}

impl Selector {
    /// Reads a selector as it stands in configuration.
    ///
    /// # Errors
    /// It is no selector, or its operator and its values do not fit.
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

    /// Whether a pod with these labels is selected.
    pub fn matches(&self, labels: &Map<String, Value>) -> bool {
        if self.match_labels.is_empty() && self.match_expressions.is_empty() {
            return false;
        }
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|e| e.holds(label(&e.key)))
    }
}

impl Expression {
    fn holds(&self, value: Option<&str>) -> bool {
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
    fn every_operator_decides_by_the_label() {
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
    fn an_empty_selector_selects_nothing() {
        assert!(!matches(&json!({}), &json!({"a": "x"})));
    }

    #[test]
    fn values_must_fit_the_operator() {
        let error = Selector::parse(&json!({"matchExpressions": [{"key": "a", "operator": "In"}]})).unwrap_err();
        assert_eq!(error.to_string(), "operator In of \"a\" has 0 values");
    }
}
