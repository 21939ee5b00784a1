//! Writes one CycloneDX document for each shipped program, with the program's crates.
//!
//! `make sbom` runs it with a target triple and a directory. It runs `cargo tree`, which lists the crates of one package
//! with the features of its build. `cargo metadata`, which other SBOM programs read, unifies the features of the whole
//! workspace and lists crates that the program does not contain. The documents have no time and no serial number, so
//! that two runs write the same bytes.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "runs cargo, writes files and says what it has written"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use cargo_lock::Lockfile;
use serde_json::{Value, json};

/// The shipped programs, each with its package.
const PROGRAMS: [(&str, &str); 5] = [
    ("istio-cni", "plugin"),
    ("istio-iptables", "iptables"),
    ("install-cni", "istio-cni"),
    ("sidecar-injector", "webhook"),
    ("istio-cnictl", "cnictl"),
];

/// The checksums of crates, by `NAME vVERSION`. A crate of this repository has none.
type Checksums = BTreeMap<String, Option<String>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, directory] = arguments.as_slice() else { bail!("usage: sbom <target> <directory>") };
    let lock = Lockfile::load("Cargo.lock").context("Cargo.lock")?;
    let checksums: Checksums = lock
        .packages
        .iter()
        .map(|p| (format!("{} v{}", p.name, p.version), p.checksum.as_ref().map(ToString::to_string)))
        .collect();
    fs::create_dir_all(directory).with_context(|| directory.clone())?;
    for (program, package) in PROGRAMS {
        let components = components(&crates(target, package)?, &checksums)?;
        println!("{program}: {} crates", components.len());
        let path = Path::new(directory).join(format!("{program}.cdx.json"));
        let text = serde_json::to_string_pretty(&document(program, &components))?;
        fs::write(&path, text + "\n").with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the crates of a build, each as `NAME vVERSION|LICENSE|REPOSITORY`. In the output of `cargo tree`,
/// `(proc-macro)` or a path may follow the version.
fn crates(target: &str, package: &str) -> Result<BTreeSet<String>> {
    let mut cargo = Command::new("cargo");
    cargo.args([
        "tree",
        "--locked",
        "--edges=normal",
        "--prefix=none",
        "--no-dedupe",
        "--format={p}|{l}|{r}",
        "--target",
        target,
        "--package",
        package,
    ]);
    let output = cargo.output().context("cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

fn components(crates: &BTreeSet<String>, checksums: &Checksums) -> Result<Vec<Value>> {
    let components = crates.iter().map(|line| {
        let mut fields = line.splitn(3, '|');
        let mut field = || fields.next().unwrap_or_default();
        let (package, license, repository) = (field(), field(), field());
        let id = package.split(" (").next().unwrap_or_default();
        let (name, version) = id.split_once(" v").with_context(|| format!("{line:?} has no version"))?;
        let checksum = checksums.get(id).with_context(|| format!("{id} is not in Cargo.lock"))?;
        let mut component = json!({ "type": "library", "name": name, "version": version });
        if let Some(checksum) = checksum {
            component["purl"] = format!("pkg:cargo/{name}@{version}").into();
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        // Older crates separate alternative licenses with a slash.
        ensure!(!license.is_empty(), "{id} names no license");
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        if !repository.is_empty() {
            component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
        }
        Ok(component)
    });
    components.collect()
}

fn document(program: &str, components: &[Value]) -> Value {
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "name": program, "version": env!("CARGO_PKG_VERSION"),
            "licenses": [{ "expression": "Apache-2.0" }],
        } },
        "components": components,
    })
}
