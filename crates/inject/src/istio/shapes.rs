//! Go's types of the templates' data.

pub mod mesh;
pub mod pod;
