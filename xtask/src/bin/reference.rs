//! Writes the tables of `docs/reference`, and the schemas and defaults of the charts.

use anyhow::Result;
use xtask::reference;

fn main() -> Result<()> {
    reference::write()
}
