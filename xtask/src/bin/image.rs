//! Writes the image of agent and webhook as an OCI archive, without a container engine.
//!
//! `make image` calls it with the archive, the image's name and the directory tree that becomes the image; `install/Dockerfile` builds the
//! same image from the same tree.

use std::env;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use test_support::runtime::image;

/// The programs of the image; the first is the entry point.
const PROGRAMS: [&str; 4] = [
    "usr/local/bin/install-cni",
    "usr/local/bin/istio-iptables",
    "usr/local/bin/sidecar-injector",
    "opt/cni/bin/istio-cni",
];

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [archive, name, tree] = arguments.as_slice() else {
        bail!("usage: image <archive> <name of the image> <directory tree>");
    };
    let programs = PROGRAMS.map(|program| (program, Path::new(tree).join(program)));
    for (_, path) in &programs {
        ensure!(path.is_file(), "{} is missing", path.display());
    }
    let programs: Vec<(&str, &Path)> = programs.iter().map(|(name, path)| (*name, path.as_path())).collect();
    image::write(Path::new(archive), name, &programs, &[], "SIGTERM").with_context(|| archive.clone())
}
