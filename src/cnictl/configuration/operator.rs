//! Parses values and mesh configuration of an `IstioOperator` resource (`--operatorFileName`).

use serde_json::{Map, Value};

use super::super::Error;
use crate::inject::istio::{self, Mesh, Values};
use crate::inject::yaml;

const FLAG: &str = "--operatorFileName";

/// The parts of the configuration in the resource.
#[derive(Debug, Default)]
pub(super) struct Operator {
    pub(super) values: Option<Values>,
    pub(super) mesh: Option<Mesh>,
}

impl Operator {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |cause| Error::Configuration { what: FLAG.to_owned(), cause };
        let no_map = || wrong(istio::Error::NoMap("spec of the IstioOperator"));
        let resource =
            yaml::value(text).map_err(|error| wrong(istio::Error::Configuration { what: "IstioOperator", error }))?;
        let spec = resource.get("spec").and_then(Value::as_object).ok_or_else(no_map)?;
        let part = |key: &str| spec.get(key).filter(|part| !part.is_null());
        let values = part("values").map(|values| Values::parse(&with_image(values, spec).to_string()).map_err(wrong));
        let mesh = part("meshConfig").map(|mesh| Mesh::parse(&mesh.to_string()).map_err(wrong));
        Ok(Self { values: values.transpose()?, mesh: mesh.transpose()? })
    }
}

/// Returns the values, with `hub` and `tag` from the resource's spec as defaults.
fn with_image(values: &Value, spec: &Map<String, Value>) -> Value {
    let mut values = values.clone();
    for key in ["hub", "tag"] {
        let Some(own) = spec.get(key).filter(|own| !own.is_null()) else { continue };
        let Some(values) = values.as_object_mut() else { continue };
        let global = values.entry("global").or_insert_with(|| Value::Object(Map::new()));
        if let Some(global) = global.as_object_mut() {
            global.entry(key).or_insert_with(|| own.clone());
        }
    }
    values
}
