//! Compares the table by which ProxyConfigs are decoded with the protobuf definition that Istio publishes.
//!
//! A Go program prints the definition; without Go the trial is ignored.

use std::path::Path;

use libtest_mimic::{Failed, Trial};
use tier::go;

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/gomesh");
const NAME: &str = "the table of the mesh's configuration is the published definition";

pub(crate) fn trial() -> Trial {
    tier::trial("go", NAME, go::missing(MODULE), table)
}

fn table() -> Result<(), Failed> {
    let root = Path::new(crate::REPOSITORY);
    let printed = go::command(MODULE).args(["run", "."]).output()?;
    if !printed.status.success() {
        return Err(format!("go run: {}", String::from_utf8_lossy(&printed.stderr)).into());
    }
    let table = std::fs::read_to_string(root.join("crates/inject/src/istio/proto/mesh.txt"))?;
    let printed = String::from_utf8(printed.stdout)?;
    let different = table.lines().zip(printed.lines()).find(|(ours, published)| ours != published);
    match different {
        None if table == printed => Ok(()),
        different => Err(format!("the table differs first at {different:?} (ours, published)").into()),
    }
}
