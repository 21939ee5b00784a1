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
    /// `hub` and `tag` of the spec, which replace those of values from another source.
    pub(super) image: Map<String, Value>,
}

impl Operator {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |cause| Error::Configuration { what: FLAG.to_owned(), cause };
        let no_map = || wrong(istio::Error::NoMap("spec of the IstioOperator"));
        let resource =
            yaml::value(text).map_err(|error| wrong(istio::Error::Configuration { what: "IstioOperator", error }))?;
        let spec = resource.get("spec").and_then(Value::as_object).ok_or_else(no_map)?;
        let part = |key: &str| spec.get(key).filter(|part| !part.is_null());
        let image: Map<_, _> =
            ["hub", "tag"].iter().filter_map(|key| Some(((*key).to_owned(), part(key)?.clone()))).collect();
        let values = part("values").map(|values| Values::parse(&with_image(values, &image).to_string()).map_err(wrong));
        let mesh = part("meshConfig").map(|mesh| Mesh::parse(&mesh.to_string()).map_err(wrong));
        Ok(Self { values: values.transpose()?, mesh: mesh.transpose()?, image })
    }
}

/// Returns the values, with `hub` and `tag` of the resource's spec as defaults.
fn with_image(values: &Value, image: &Map<String, Value>) -> Value {
    let mut values = values.clone();
    if let Some(values) = values.as_object_mut()
        && let Some(global) = values.entry("global").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
    {
        for (key, own) in image {
            global.entry(key).or_insert_with(|| own.clone());
        }
    }
    values
}
