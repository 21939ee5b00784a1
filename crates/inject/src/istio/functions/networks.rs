//! The template function that appends to the list of networks in Multus' annotation.

use gotemplate::{Args, Budget, Functions, Reason, Value};
use serde_json::Value as Json;

use crate::gojson;

pub(super) fn register(functions: Functions) -> Functions {
    functions.with("appendMultusNetwork", 2, 2, append)
}

/// Appends a network to the list in the list's own format, which is names or JSON. A list in invalid JSON stays
/// unchanged.
fn append<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<Value<'a>, Reason> {
    let (existing, network) = (args.text(0)?, args.text(1)?);
    let unchanged = Value::Text(existing.clone());
    let (text, network_name) = (existing.as_str(), network.as_str());
    if text.is_empty() {
        return Ok(Value::Text(network.clone()));
    }
    let Some(end) = text.rfind(']') else {
        let present = text.split(',').any(|present| present.trim() == network_name);
        return Ok(if present { unchanged } else { Value::from(format!("{text}, {network_name}")) });
    };
    let (namespace, name) =
        network_name.split_once('/').map_or((None, network_name), |(namespace, name)| (Some(namespace), name));
    let same = |entry: &serde_json::Map<String, Json>| {
        let text = |key: &str| entry.get(key).and_then(Json::as_str);
        text("name") == Some(name) && text("namespace") == namespace
    };
    match gojson::decode::<Vec<serde_json::Map<String, Json>>>(text, budget)? {
        Ok(entries) if !entries.iter().any(same) => {
            let separator = if entries.is_empty() { "" } else { ", " };
            let namespace =
                namespace.map_or(String::new(), |namespace| format!(", \"namespace\": {}", Json::from(namespace)));
            let entry = format!("{{\"name\": {}{namespace}}}", Json::from(name));
            Ok(Value::from(format!("{}{separator}{entry}{}", &text[..end], &text[end..])))
        }
        _ => Ok(unchanged),
    }
}
