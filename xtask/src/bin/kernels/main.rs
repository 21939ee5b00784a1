//! `make kernels`: runs trials of the netns tier on other kernels, in virtual machines.
//!
//! Debian's kernels 5.10, 6.1 and 6.12 boot under qemu without hardware virtualisation. Their root file system
//! contains the tier's test program and the programs that it runs, copied from this machine. On 6.1 the tier also runs
//! without parts of the kernel. The printed table is the support matrix.
//!
//! Needs root to preserve the owners of copied files, and the packages of the Makefile's `kernels`. `KERNELS` is the
//! cache of kernels, `ISTIO_CNI` the plugin, with `istio-iptables` in the same directory. Arguments select variants
//! such as `6.1 without IPv6`; the default is all.

#![expect(clippy::disallowed_methods, reason = "runs programs, writes files and reads its environment")]
#![expect(clippy::print_stdout, reason = "prints the table")]

mod debian;
mod guest;
mod report;
mod tree;
mod variant;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use debian::{Kernel, output};
use report::Outcome;
use tree::Tree;
use variant::{SKIPPED, Variant};

/// The time limit of a guest.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// The guest's directory of the programs that are built here. It is not their directory on this machine, because the guest mounts file
/// systems over some of this machine's directories, such as `/tmp`.
const PROGRAMS: &str = "/programs";
/// The name of the tier's test program in [`PROGRAMS`].
const TEST: &str = "netns";

fn main() -> Result<ExitCode> {
    let words: Vec<String> = env::args().skip(1).collect();
    let is_selected = |variant: &Variant| words.is_empty() || words.iter().any(|w| variant.to_string() == *w);
    let variants: Vec<Variant> = variant::ALL.into_iter().filter(is_selected).collect();
    let stage = Stage::new()?;
    // Downloads the kernels one after the other, before the guests start, because several variants use the same kernel.
    variants.iter().try_for_each(|variant| Kernel::of(variant.suite, &stage.cache).map(drop))?;
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let boot_next = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(variant) = variants.get(i) else { return };
            if let Some(row) = stage.show(variant) {
                rows.lock().unwrap_or_else(PoisonError::into_inner).push((i, row));
            }
        }
    };
    // At most one guest runs on each processor.
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(boot_next))));
    for (reason, words) in SKIPPED {
        println!("not run, because {reason}: {}", words.join(", "));
    }
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    let is_complete = !rows.is_empty() && rows.len() == variants.len();
    println!("\n{}", report::table(rows));
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The directories and programs that all guests share.
struct Stage {
    /// The cache of kernels, which persists between runs.
    cache: PathBuf,
    /// The directory for the files of the guests.
    work: PathBuf,
    /// The archive that [`programs`] returns.
    programs: Vec<u8>,
}

impl Stage {
    fn new() -> Result<Self> {
        let cache = PathBuf::from(env::var_os("KERNELS").context("KERNELS names no cache of kernels")?);
        let test = test_program()?;
        check_selection(&test)?;
        let work = test.ancestors().nth(3).context("cargo's target directory")?.join("kernels");
        let programs = programs(&test, &work.join("programs"))?;
        Ok(Self { cache, work, programs })
    }

    /// Runs a variant's trials and prints the result. Returns the row of the table if the result is the expected one.
    fn show(&self, variant: &Variant) -> Option<String> {
        let begin = Instant::now();
        let ran = self.run(variant);
        let took = begin.elapsed().as_secs();
        let (kernel, outcome) = match ran {
            Ok(ran) => ran,
            Err(error) => {
                println!("{variant}: FAILED after {took} s: {error:#}");
                return None;
            }
        };
        println!("{variant}: {} in {took} s", outcome.summary());
        if let Some(fault) = outcome.fault(variant) {
            println!("{variant}: FAILED, {fault}; see {}", self.dir(variant).join("console").display());
            return None;
        }
        Some(outcome.row(variant, &kernel.release))
    }

    /// Boots a variant and reads the outcome of its trials.
    fn run(&self, variant: &Variant) -> Result<(Kernel, Outcome)> {
        let kernel = Kernel::of(variant.suite, &self.cache)?;
        let dir = self.dir(variant);
        let tree = Tree::new(dir.join("root"))?;
        tree.modules(&kernel, |module| variant.is_without(module))?;
        tree.script("/init", &guest::init(&variant.command(&Path::new(PROGRAMS).join(TEST))))?;
        let initrd = dir.join("initrd");
        // The kernel unpacks concatenated archives.
        fs::write(&initrd, [&self.programs[..], &tree.archive()?].concat())?;
        let mut log = fs::File::create(dir.join("console"))?;
        let console = guest::boot(&kernel.image(), &initrd, variant.parameters(), LIMIT, &mut log);
        fs::remove_file(&initrd)?;
        Ok((kernel, Outcome::read(&console?)?))
    }

    fn dir(&self, variant: &Variant) -> PathBuf {
        self.work.join(variant.to_string().replace(' ', "-"))
    }
}

/// Returns the tier's test program, built by cargo if necessary.
fn test_program() -> Result<PathBuf> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let built = output(cargo.args(["test", "--quiet", "--no-run", "--test", "netns", "--message-format=json"]))?;
    let messages = built.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut tests = messages.filter(|message| message["target"]["name"] == "netns");
    let path = tests.find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    path.context("cargo built no test program of the netns tier")
}

/// Fails if a word in [`SKIPPED`] occurs in no trial's name.
fn check_selection(test: &Path) -> Result<()> {
    let listed = output(Command::new(test).arg("--list"))?;
    let words = SKIPPED.iter().flat_map(|(_, words)| *words);
    let unknown: Vec<_> = words.filter(|word| !listed.contains(**word)).collect();
    ensure!(unknown.is_empty(), "no trial's name contains {unknown:?}");
    Ok(())
}

/// Returns an archive of all programs that a guest needs.
fn programs(test: &Path, root: &Path) -> Result<Vec<u8>> {
    const INSTALLED: [&str; 12] = [
        "sh",
        "bash",
        "cat",
        "mount",
        "ip",
        "nft",
        "nsenter",
        "setpriv",
        "unshare",
        "modprobe",
        "xtables-nft-multi",
        "xtables-legacy-multi",
    ];
    let tree = Tree::new(root.to_owned())?;
    tree.stripped(test, &Path::new(PROGRAMS).join(TEST))?;
    // Static builds of the test programs replace the dynamic ones, because they start faster. The plugin is the release
    // build.
    let shipped = PathBuf::from(env::var_os("ISTIO_CNI").context("ISTIO_CNI does not name the plugin: `make build`")?);
    let built = shipped.ancestors().nth(2).context("the directory of static programs")?;
    let [plugin, release, debug] = ["plugin", "release", "debug"];
    let pairs = [
        (plugin, "istio-cni"),
        (plugin, "istio-iptables"),
        (release, "istio-cnictl"),
        (debug, "respond"),
        (debug, "connect"),
    ];
    for (from, name) in pairs {
        tree.stripped(&built.join(from).join(name), &Path::new(PROGRAMS).join(name))?;
    }
    let iptables = ["iptables", "ip6tables"].into_iter().flat_map(|family| {
        let kinds = ["", "-nft", "-legacy"].into_iter();
        kinds.flat_map(move |kind| ["", "-save", "-restore"].map(|verb| format!("{family}{kind}{verb}")))
    });
    let names = INSTALLED.map(str::to_owned).into_iter().chain(iptables);
    let paths = names.map(|name| installed(&name)).collect::<Result<Vec<_>>>()?;
    tree.programs(&paths)?;
    tree.libraries(&[test.to_owned()])?;
    tree.directory(&extensions()?)?;
    tree.archive()
}

/// Returns the path of an installed program.
fn installed(name: &str) -> Result<PathBuf> {
    let places = ["/usr/sbin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
    let place = places.into_iter().find(|path| path.exists());
    place.with_context(|| format!("{name} is not installed: `make setup` does it"))
}

/// Returns the directory of iptables' extensions.
fn extensions() -> Result<PathBuf> {
    let lib = Path::new("/usr/lib");
    let places = fs::read_dir(lib)?.flatten().map(|entry| entry.path().join("xtables"));
    let place = places.into_iter().find(|path| path.is_dir());
    place.context("no directory of iptables' extensions below /usr/lib")
}
