//! The function for the list of networks in Multus' annotation.

use gotemplate::{Args, Budget, Functions, Reason, Value};
use serde_json::Value as Json;

pub(super) fn register(functions: Functions) -> Functions {
    functions.with("appendMultusNetwork", 2, 2, append)
}

/// Appends a network in the list's format, names or JSON. Invalid JSON stays unchanged.
fn append<'a>(_: &mut Budget, args: Args<'_, 'a>) -> Result<Value<'a>, Reason> {
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
    match serde_json::from_str::<Vec<serde_json::Map<String, Json>>>(text) {
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
