//! Writes the tables of `docs/reference`, and the schemas and defaults of the charts.

use anyhow::Result;
use istio_cni_tools::reference;

fn main() -> Result<()> {
    reference::write()
}
