//! Writes OCI image archives of static programs, without an image builder: one uncompressed layer, configuration,
//! manifest, index.
//!
//! `ctr images import` reads them; the index contains the image's name (`io.containerd.image.name`).

use std::fs::File;
use std::io::{Read as _, Write};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

const TYPE: &str = "application/vnd.oci.image";

/// Writes the image `name` to `archive`. `programs` are paths in the image and their sources; the first is the entry point, with `args`.
/// `stop` is the stop signal; SIGTERM would have no effect on a process 1 that has no handler for it.
pub fn write(archive: &Path, name: &str, programs: &[(&str, &Path)], args: &[&str], stop: &str) -> Result<()> {
    let layer = layer(programs)?;
    let (first, program) = programs.first().context("an image needs a program")?;
    let architecture = architecture(program)?;
    let mut command = vec![format!("/{first}")];
    command.extend(args.iter().map(|arg| (*arg).to_owned()));
    let layer = Blob::new("layer.v1.tar", layer);
    let config = json!({
        "architecture": architecture, "os": "linux",
        "config": { "Entrypoint": command, "WorkingDir": "/", "StopSignal": stop },
        // The digest of an uncompressed layer is its diff ID.
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)] },
    });
    let config = Blob::new("config.v1+json", config.to_string().into_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": format!("{TYPE}.manifest.v1+json"),
        "config": config.descriptor(), "layers": [layer.descriptor()],
    });
    let manifest = Blob::new("manifest.v1+json", manifest.to_string().into_bytes());
    let mut entry = manifest.descriptor();
    entry["platform"] = json!({ "architecture": architecture, "os": "linux" });
    entry["annotations"] = json!({ "io.containerd.image.name": name });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] }).to_string();

    let file = File::create(archive).with_context(|| archive.display().to_string())?;
    let mut tar = Builder::new(file);
    add(&mut tar, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add(&mut tar, "index.json", 0o644, index.as_bytes())?;
    for blob in [layer, config, manifest] {
        add(&mut tar, &format!("blobs/sha256/{}", blob.digest), 0o644, &blob.content)?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

/// A blob of the OCI image, which is stored under its digest.
struct Blob {
    kind: &'static str,
    digest: String,
    content: Vec<u8>,
}

impl Blob {
    fn new(kind: &'static str, content: Vec<u8>) -> Self {
        let digest = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { kind, digest, content }
    }

    fn descriptor(&self) -> Value {
        let Self { kind, digest, content } = self;
        json!({ "mediaType": format!("{TYPE}.{kind}"), "digest": format!("sha256:{digest}"), "size": content.len() })
    }
}

fn layer(programs: &[(&str, &Path)]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    // The runtime's mount points must exist.
    for dir in ["dev", "etc", "proc", "sys", "tmp"] {
        let mut header = header(0o755, 0);
        header.set_entry_type(EntryType::Directory);
        tar.append_data(&mut header, dir, std::io::empty())?;
    }
    for (name, program) in programs {
        let content = std::fs::read(program).with_context(|| program.display().to_string())?;
        add(&mut tar, name, 0o755, &content)?;
    }
    Ok(tar.into_inner()?)
}

fn add<W: Write>(tar: &mut Builder<W>, name: &str, mode: u32, content: &[u8]) -> Result<()> {
    Ok(tar.append_data(&mut header(mode, content.len() as u64), name, content)?)
}

fn header(mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Returns the architecture in a program's ELF header.
fn architecture(program: &Path) -> Result<&'static str> {
    let mut header = [0; 20];
    let read = File::open(program).and_then(|mut file| file.read_exact(&mut header));
    read.with_context(|| program.display().to_string())?;
    match (&header[..4], u16::from_le_bytes([header[18], header[19]])) {
        (b"\x7fELF", 62) => Ok("amd64"),
        (b"\x7fELF", 183) => Ok("arm64"),
        (_, machine) => bail!("{} is not an ELF program for amd64 or arm64 (machine {machine})", program.display()),
    }
}
