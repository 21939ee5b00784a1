//! Downloads and unpacks kernels of Debian releases into a cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The Debian metapackage that depends on the newest kernel of a release for virtual machines.
const META: &str = "linux-image-cloud-amd64";

/// An unpacked kernel.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// The kernel's release, as `uname -r` prints it.
    pub(crate) release: String,
    dir: PathBuf,
}

impl Kernel {
    /// Returns the kernel of a Debian release such as `bookworm`. The first call downloads it; later ones find it in `cache`.
    pub(crate) fn of(suite: &str, cache: &Path) -> Result<Self> {
        let link = cache.join(suite);
        if !link.exists() {
            fetch(suite, cache, &link).with_context(|| format!("fetching the kernel of Debian {suite}"))?;
        }
        let dir = fs::canonicalize(&link)?;
        let release = dir.file_name().context("a directory for the kernel")?.to_string_lossy().into_owned();
        Ok(Self { release, dir })
    }

    /// Returns the path of the bootable image.
    pub(crate) fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// Returns the directory of modules, `/lib/modules/RELEASE` on a running system.
    pub(crate) fn modules(&self) -> PathBuf {
        self.dir.join("modules")
    }
}

/// Downloads and unpacks the newest kernel of a release in a temporary directory, and moves it into the cache. The
/// symbolic link to it is created last, so that an aborted download leaves no link.
fn fetch(suite: &str, cache: &Path, link: &Path) -> Result<()> {
    fs::create_dir_all(cache)?;
    let work = tempfile::tempdir_in(cache)?;
    let apt = Apt::new(work.path(), suite)?;
    apt.run("apt-get", &["update"])?;
    let depends = apt.run("apt-cache", &["depends", META])?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.with_context(|| format!("{META} depends on no kernel:\n{depends}"))?;
    let release = package.strip_prefix("linux-image-").context("the name of a kernel's package")?;
    apt.run("apt-get", &["download", package])?;
    let deb = fs::read_dir(work.path())?.flatten().map(|entry| entry.path());
    let deb = deb.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb")).context("no package")?;
    let unpacked = work.path().join("unpacked");
    output(Command::new("dpkg").arg("-x").args([&deb, &unpacked]))?;
    let dir = work.path().join("kernel");
    fs::create_dir(&dir)?;
    fs::rename(unpacked.join("boot").join(format!("vmlinuz-{release}")), dir.join("vmlinuz"))?;
    let parents = ["usr/lib/modules", "lib/modules"].map(|parent| unpacked.join(parent).join(release));
    let modules = parents.iter().find(|path| path.is_dir()).context("a package without modules")?;
    fs::rename(modules, dir.join("modules"))?;
    let place = cache.join(release);
    if !place.exists() {
        fs::rename(&dir, &place)?;
    }
    std::os::unix::fs::symlink(release, link)?;
    Ok(())
}

/// apt with one Debian release as its only source, and with its own state, so that it does not depend on the machine's
/// configuration.
struct Apt<'a> {
    dir: &'a Path,
    options: Vec<String>,
}

impl<'a> Apt<'a> {
    fn new(dir: &'a Path, suite: &str) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(part))?;
        }
        let list = dir.join("sources.list");
        fs::write(&list, format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n"))?;
        let options = [
            ("Dir::Etc::sourcelist", list),
            ("Dir::Etc::sourceparts", "-".into()),
            ("Dir::State::lists", dir.join("lists")),
            ("Dir::Cache", dir.join("cache")),
            ("APT::Sandbox::User", "root".into()),
        ];
        let options = options.map(|(key, value)| format!("-o{key}={}", value.display())).into();
        Ok(Self { dir, options })
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        output(Command::new(program).arg("-qq").args(&self.options).args(arguments).current_dir(self.dir))
    }
}

/// Runs a program, which must succeed, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
