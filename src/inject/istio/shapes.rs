//! Go's types of the data that injection templates are rendered with.

pub mod mesh;
pub mod pod;
