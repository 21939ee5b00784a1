//! Tests of the container image: its architecture is that of its programs, it contains no other files, and the
//! manifests use it.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use tar::Archive;

use crate::agent::Agent;
use crate::helm::{AGENT, INJECTOR};
use crate::injector::Injector;
use crate::objects::parse;
use test_support::runtime::image;

/// The path of the image's entry point.
const INSTALLER: &str = "usr/local/bin/install-cni";

pub(crate) fn is_what_its_programs_are_built_for() {
    let dir = tempfile::tempdir().unwrap();
    for (machine, expected) in [(62_u8, "amd64"), (183, "arm64")] {
        let (program, archive) = (dir.path().join("program"), dir.path().join("image.tar"));
        let mut header = [&b"\x7fELF"[..], &[0; 60]].concat();
        header[18] = machine;
        fs::write(&program, header).unwrap();
        image::write(&archive, "x/y:1", &[(INSTALLER, &program), ("opt/cni/bin/istio-cni", &program)], &[], "SIGTERM")
            .unwrap();
        let (manifest, config, layer) = open(&archive);
        assert_eq!(
            (&config["architecture"], &manifest["platform"]["architecture"]),
            (&expected.into(), &expected.into())
        );
        assert_eq!(manifest["annotations"]["io.containerd.image.name"], "x/y:1");
        assert_eq!(config["config"]["Entrypoint"], serde_json::json!([format!("/{INSTALLER}")]));
        let directories = ["dev", "etc", "proc", "sys", "tmp"];
        assert_eq!(layer, [&directories[..], &[INSTALLER, "opt/cni/bin/istio-cni"]].concat());
    }
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\necho a script needs a shell\n").unwrap();
    let error =
        image::write(&dir.path().join("x"), "x", &[("script", &script)], &[], "SIGTERM").unwrap_err().to_string();
    assert!(error.contains("not an ELF program for amd64 or arm64"), "{error}");
}

/// Manifests, charts, Makefile and Dockerfile use the same image, of the crate's version.
pub(crate) fn is_the_one_that_manifests_name() {
    let objects = parse(&AGENT.manifest());
    let agent = Agent::of(&objects);
    let named = agent.container["image"].as_str().unwrap();
    assert!(named.ends_with(&format!("/install-cni:{}", env!("CARGO_PKG_VERSION"))), "{named}");
    let makefile = fs::read_to_string("Makefile").unwrap();
    assert!(makefile.lines().any(|line| line.strip_prefix("IMAGE ") == Some(&format!("     ?= {named}"))), "{named}");
    for chart in [AGENT, INJECTOR] {
        let text = fs::read_to_string(format!("{}/Chart.yaml", chart.directory())).unwrap();
        let chart: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!((&chart["version"], &chart["appVersion"]), (&env!("CARGO_PKG_VERSION").into(), &chart["version"]));
    }
    let webhook = Injector::of(&parse(&INJECTOR.manifest()));
    assert_eq!(webhook.container["image"], named, "agent and webhook use the same image");
    for program in [&agent.line()[0], &webhook.line()[0]] {
        let listed = fs::read_to_string("xtask/src/bin/image.rs").unwrap();
        assert!(listed.contains(&format!("\"usr/local/bin/{program}\"")), "{program} is not in the image");
    }
    let dockerfile = fs::read_to_string("install/Dockerfile").unwrap();
    assert!(dockerfile.contains(&format!("ENTRYPOINT [\"/{INSTALLER}\"]")), "{dockerfile}");
    assert!(dockerfile.contains("\nFROM scratch\n"), "{dockerfile}");
}

/// Returns the image's entry in the archive's index, the image's configuration, and the names of the files in its
/// layer.
fn open(archive: &Path) -> (Value, Value, Vec<String>) {
    let read = |name: &str| -> Vec<u8> {
        let mut tar = Archive::new(File::open(archive).unwrap());
        let mut entry =
            tar.entries().unwrap().map(Result::unwrap).find(|e| e.path().unwrap() == Path::new(name)).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        content
    };
    let json = |bytes: Vec<u8>| -> Value { serde_json::from_slice(&bytes).unwrap() };
    let blob =
        |descriptor: &Value| read(&format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/")));
    let entry = json(read("index.json"))["manifests"][0].clone();
    let manifest = json(blob(&entry));
    let layer = blob(&manifest["layers"][0]);
    let mut layer = Archive::new(layer.as_slice());
    let names = layer.entries().unwrap().map(|e| e.unwrap().path().unwrap().to_string_lossy().into_owned()).collect();
    (entry, json(blob(&manifest["config"])), names)
}
