//! The table by which proxies' configuration is decoded, against the definition that Istio publishes.
//!
//! A small Go program prints it; without Go the trial is ignored.

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

const NAME: &str = "the table of the mesh's configuration is the published definition";

pub(crate) fn trial() -> Trial {
    let missing = Command::new("go").arg("version").output().err();
    let name = missing.as_ref().map_or_else(|| NAME.to_owned(), |error| format!("{NAME} [needs Go: {error}]"));
    Trial::test(name, table).with_ignored_flag(missing.is_some())
}

fn table() -> Result<(), Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("tests/support/gomesh");
    let printed = Command::new("go").args(["run", "."]).current_dir(source).env("GOTOOLCHAIN", "local").output()?;
    if !printed.status.success() {
        return Err(format!("go run: {}", String::from_utf8_lossy(&printed.stderr)).into());
    }
    let table = std::fs::read_to_string(root.join("src/inject/istio/proto/mesh.txt"))?;
    let printed = String::from_utf8(printed.stdout)?;
    let different = table.lines().zip(printed.lines()).find(|(ours, published)| ours != published);
    match different {
        None if table == printed => Ok(()),
        different => Err(format!("the table differs first at {different:?} (ours, published)").into()),
    }
}
