//! Collects the files of a guest: installed programs of this machine at the same paths, with their libraries, programs
//! that are built here, and a kernel's modules. The guest gets them as its initial RAM file system.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::debian::{Kernel, output};

/// A directory that becomes a guest's root.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Creates the directories of a Linux system with merged `/usr`, as in Debian. Removes existing files in `root`.
    pub(crate) fn new(root: PathBuf) -> Result<Self> {
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        for dir in ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "run", "tmp", "etc", "root"] {
            fs::create_dir_all(root.join(dir))?;
        }
        // Each archive needs these links, because the kernel replaces a link with a directory of the same name from a later archive.
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), root.join(name))?;
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
        fs::write(root.join("etc/group"), "root:x:0:\n")?;
        Ok(Self { root })
    }

    /// Copies programs with the symbolic links to them and their libraries.
    pub(crate) fn programs(&self, paths: &[PathBuf]) -> Result<()> {
        paths.iter().try_for_each(|path| self.copy(path))?;
        self.libraries(paths)
    }

    /// Copies the libraries of programs.
    pub(crate) fn libraries(&self, paths: &[PathBuf]) -> Result<()> {
        let listed = Command::new("ldd").args(paths).output().context("running ldd")?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut libraries = listed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
        libraries.try_for_each(|library| self.copy(Path::new(library)))
    }

    /// Copies a program to `at` without its symbols, which saves memory in the guest.
    pub(crate) fn stripped(&self, path: &Path, at: &Path) -> Result<()> {
        let place = self.place(at)?;
        output(Command::new("strip").arg("-o").arg(place).arg(path)).map(drop)
    }

    /// Copies all files of a directory.
    pub(crate) fn directory(&self, dir: &Path) -> Result<()> {
        let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
        entries.flatten().try_for_each(|entry| self.copy(&entry.path()))
    }

    /// Writes an executable file.
    pub(crate) fn script(&self, path: &str, text: &str) -> Result<()> {
        let place = self.place(Path::new(path))?;
        fs::write(&place, text)?;
        Ok(fs::set_permissions(place, fs::Permissions::from_mode(0o755))?)
    }

    /// Copies a kernel's networking modules, except those for which `is_left_out` returns true, and their
    /// dependencies.
    pub(crate) fn modules(&self, kernel: &Kernel, is_left_out: impl Fn(&str) -> bool) -> Result<()> {
        const PARTS: [&str; 7] =
            ["net/netfilter", "net/ipv4", "net/ipv6", "drivers/net/veth", "lib", "crypto", "arch/x86/crypto"];
        let (from, to) = (kernel.modules(), self.root.join("lib/modules").join(&kernel.release));
        for path in files(&from)? {
            let relative = path.strip_prefix(&from)?;
            let name = relative.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
            let is_wanted = match relative.strip_prefix("kernel") {
                Ok(in_kernel) => PARTS.iter().any(|part| in_kernel.to_string_lossy().starts_with(part)),
                // The files `modules.*`, which depmod reads.
                Err(_) => name.starts_with("modules."),
            };
            if is_wanted && !is_left_out(name.split('.').next().unwrap_or_default()) {
                let place = to.join(relative);
                fs::create_dir_all(place.parent().unwrap_or(&to))?;
                fs::copy(&path, &place)?;
            }
        }
        output(Command::new("depmod").arg("-b").arg(&self.root).arg(&kernel.release)).map(drop)
    }

    /// Returns the tree as a `newc` archive.
    pub(crate) fn archive(&self) -> Result<Vec<u8>> {
        let mut cpio = Command::new("cpio");
        cpio.args(["--create", "--format=newc", "--owner=0:0", "--quiet"]).current_dir(&self.root);
        let mut child = cpio.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("running cpio")?;
        let mut names = child.stdin.take().context("cpio's standard input")?;
        let list = entries(&self.root)?.into_iter().map(|path| Ok(path.strip_prefix(&self.root)?.to_owned()));
        let list: Vec<PathBuf> = list.collect::<Result<_>>()?;
        let writer = std::thread::spawn(move || list.iter().try_for_each(|path| writeln!(names, "{}", path.display())));
        let output = child.wait_with_output()?;
        writer.join().map_err(|_| anyhow::anyhow!("the list of files"))??;
        ensure!(output.status.success(), "cpio: {}", output.status);
        Ok(output.stdout)
    }

    fn copy(&self, path: &Path) -> Result<()> {
        let place = self.place(path)?;
        if place.symlink_metadata().is_ok() {
            return Ok(());
        }
        let described = || path.display().to_string();
        if path.symlink_metadata().with_context(described)?.is_symlink() {
            let target = fs::read_link(path)?;
            symlink(&target, &place)?;
            return self.copy(&path.parent().unwrap_or(Path::new("/")).join(target));
        }
        fs::copy(path, &place).with_context(described)?;
        Ok(())
    }

    /// Returns the path in the tree for an absolute path of the guest, and creates its parent directory.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let place = self.root.join(path.strip_prefix("/")?);
        fs::create_dir_all(place.parent().context("a path without a directory")?)?;
        Ok(place)
    }
}

/// Lists all entries below a directory, each directory before its contents, without following links.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let entry = entry?;
            found.push(entry.path());
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// Returns the files among [`entries`].
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(dir)?.into_iter().filter(|path| path.is_file()).collect())
}
