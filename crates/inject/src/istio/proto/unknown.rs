//! Fields that the definition of a message lacks.

use serde_json::{Map, Value};

use super::{Cardinality, DEFINITION, DEPTH, camel_cased};

/// Returns the paths of the fields of a message that its definition lacks, at any depth, such as `tracing.zipkin.adress`.
pub(in crate::istio) fn unknown(message: &str, fields: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    search(message, fields, &mut Vec::new(), &mut found);
    found
}

fn search<'f>(message: &str, fields: &'f Map<String, Value>, path: &mut Vec<&'f str>, found: &mut Vec<String>) {
    let Some(known) = DEFINITION.messages.get(message).filter(|_| path.len() < DEPTH) else { return };
    for (name, value) in fields {
        path.push(name);
        match known.iter().find(|field| field.name == camel_cased(name)) {
            Some(field) => match (field.cardinality, value) {
                (Cardinality::One, Value::Object(fields)) => search(field.kind, fields, path, found),
                (Cardinality::List, Value::Array(items)) => {
                    items.iter().filter_map(Value::as_object).for_each(|item| search(field.kind, item, path, found));
                }
                (Cardinality::Map, Value::Object(members)) => {
                    for (key, member) in members.iter().filter_map(|(key, value)| Some((key, value.as_object()?))) {
                        path.push(key);
                        search(field.kind, member, path, found);
                        path.pop();
                    }
                }
                _ => {}
            },
            None => found.push(path.join(".")),
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MESH_CONFIG, PROXY_CONFIG};
    use super::*;
    use crate::yaml;

    #[test]
    fn a_misspelt_field_is_found_at_any_depth() {
        for (message, text, paths) in [
            (PROXY_CONFIG, "{drainDuration: 1s, drain_duration: 1s, proxyMetadata: {anything: x}}", &[][..]),
            (
                PROXY_CONFIG,
                "{concurency: 2, holdapplicationuntilproxystarts: true}",
                &["concurency", "holdapplicationuntilproxystarts"],
            ),
            (PROXY_CONFIG, "{tracing: {zipkin: {adress: x}, sampling: 1}}", &["tracing.zipkin.adress"]),
            (
                MESH_CONFIG,
                "{defaultConfig: {statusport: 1}, acessLogFile: x}",
                &["defaultConfig.statusport", "acessLogFile"],
            ),
            (
                MESH_CONFIG,
                "{extensionProviders: [{name: a, zipkin: {servce: b}}]}",
                &["extensionProviders.zipkin.servce"],
            ),
        ] {
            let Value::Object(fields) = yaml::value(text).unwrap() else { panic!("{text}") };
            assert_eq!(unknown(message, &fields), paths, "{text}");
        }
    }
}
