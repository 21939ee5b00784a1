//! Network namespaces for tests, and the check of their prerequisites.
//!
//! A [`TestNetns`] has no name in the file system and ends with its last descriptor and process, so that tests can run
//! concurrently and leave nothing behind.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use contract::IptablesBinary;
use netfilter::Backend;
use podnet::converge::{OnDifference, Options};
use podnet::netns::Netns;
use redirect::istio;
use ruleset::Family;

use libtest_mimic::{Completion, Failed, Trial};
use nix::sched::{CloneFlags, unshare};

/// A network namespace with only `lo`, which is up.
pub struct TestNetns {
    file: File,
}

impl TestNetns {
    pub fn new() -> Self {
        let bare = Self::bare();
        bare.run("ip", &["link", "set", "lo", "up"]);
        bare
    }

    /// Creates a namespace as the kernel does, with `lo` down.
    pub fn bare() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("unshare(CLONE_NEWNET)");
            File::open("/proc/thread-self/ns/net").expect("open the new netns")
        });
        Self { file: made.join().expect("a thread with a netns of its own") }
    }

    /// Returns a path to the namespace, valid as long as the value exists.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Runs `visit` in the namespace and propagates its panic.
    pub fn inside<T: Send>(&self, visit: impl FnOnce() -> T + Send) -> T {
        Netns::open(&self.path()).and_then(|netns| netns.enter(visit)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a program in the namespace, which must succeed, and returns its standard output.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        self.feed(program, args, "")
    }

    /// Runs a program like [`Self::run`], with `input` on its standard input.
    pub fn feed(&self, program: &str, args: &[&str], input: &str) -> String {
        self.try_feed(program, args, input).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a program like [`Self::feed`], but returns the details of a failure as an error.
    pub fn try_feed(&self, program: &str, args: &[&str], input: &str) -> Result<String, String> {
        self.inside(|| {
            let command = Command::new(program)
                .args(args)
                // By default iptables-legacy uses one lock for the whole machine, on which concurrent tests would wait.
                .env("XTABLES_LOCKFILE", self.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut child = command.map_err(|error| format!("{program}: {error}"))?;
            let mut stdin = child.stdin.take().ok_or("no standard input")?;
            stdin.write_all(input.as_bytes()).map_err(|error| format!("{program}: {error}"))?;
            drop(stdin);
            let output = child.wait_with_output().map_err(|error| format!("{program}: {error}"))?;
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            let stderr = String::from_utf8_lossy(&output.stderr);
            if output.status.success() {
                return Ok(stdout);
            }
            Err(format!("{program} {args:?}: {}\n{stdout}{stderr}{input}", output.status))
        })
    }
}

/// A user namespace like that of a pod with `hostUsers: false`. It exists as long as the value.
pub struct Users(Child);

impl Users {
    /// Creates a user namespace and a netns that it owns.
    pub fn with_netns() -> (Self, TestNetns) {
        let mut command = Command::new("unshare");
        command.args(["-U", "-n", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        // Once the process echoes its input, unshare has created the namespaces.
        process.stdin.as_mut().unwrap().write_all(b".").unwrap();
        process.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let proc = PathBuf::from(format!("/proc/{}", process.id()));
        for map in ["uid_map", "gid_map"] {
            fs::write(proc.join(map), "0 100000 65536").unwrap();
        }
        let netns = TestNetns { file: File::open(proc.join("ns/net")).unwrap() };
        netns.run("ip", &["link", "set", "lo", "up"]);
        (Self(process), netns)
    }

    /// Returns a command that runs a program as the user and group `id` of this user namespace, in the calling thread's
    /// netns.
    pub fn command(&self, id: &str, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--user=/proc/{}/ns/user", self.0.id())).args(["setpriv", "--clear-groups"]);
        command.args(["--reuid", id, "--regid", id]).args(program);
        command
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Returns options for `converge` that select a backend.
pub fn by(backend: Backend) -> Options {
    let forced = (backend == Backend::IptablesLegacy).then_some(IptablesBinary::Legacy);
    Options {
        native_nftables: backend == Backend::NativeNft,
        forced,
        on_difference: OnDifference::Refuse,
        owned: &istio::OWNED,
    }
}

/// The name in `KERNEL_LACKS` for the kernel module with which nf_tables runs iptables' extensions.
pub const NFT_COMPAT: &str = "nft_compat";
/// The name in `KERNEL_LACKS` for the kernel's tables of iptables-legacy.
pub const LEGACY_TABLES: &str = "legacy tables";
/// The name in `KERNEL_LACKS` for IPv6.
pub const IPV6: &str = "IPv6";
const PARTS: [&str; 3] = [NFT_COMPAT, LEGACY_TABLES, IPV6];

/// Whether `KERNEL_LACKS` names a part of the kernel. The variable lists the parts that `make kernels` leaves out of a
/// kernel, separated by commas.
pub fn lacks(part: &str) -> bool {
    std::env::var("KERNEL_LACKS").is_ok_and(|parts| parts.split(',').any(|lacking| lacking == part))
}

/// Returns the IP families that the kernel supports.
pub fn families() -> &'static [Family] {
    if lacks(IPV6) { &[Family::V4] } else { &[Family::V4, Family::V6] }
}

/// Creates a trial that is ignored with a reason if a program or a part of the kernel is missing, unless
/// `REQUIRE_TIERS` contains `netns`. A part that `KERNEL_LACKS` names is never required.
pub fn trial(name: impl Into<String>, needs: &'static [&'static str], body: impl FnOnce() + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || {
        if let Some(part) = PARTS.iter().find(|part| lacks(part) && needs.iter().any(|need| is_of(need, part))) {
            return Ok(Completion::ignored_with(format!("the kernel lacks {part}")));
        }
        let Err(missing) = prerequisites(needs) else {
            body();
            return Ok(Completion::Completed);
        };
        if tier::required("netns") {
            return Err(Failed::from(format!("REQUIRE_TIERS names netns, but {missing}")));
        }
        Ok(Completion::ignored_with(missing))
    })
}

/// Whether a trial's need is this part of the kernel, or a program that needs the part.
fn is_of(need: &str, part: &str) -> bool {
    match part {
        _ if need == part => true,
        NFT_COMPAT => need.contains("tables-nft"),
        LEGACY_TABLES => need.contains("tables-legacy"),
        _ => need.starts_with("ip6tables"),
    }
}

fn prerequisites(needs: &[&str]) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("namespaces are made by root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let is_there = |program: &str| dirs.iter().any(|dir| dir.join(program).exists());
    let programs = needs.iter().filter(|need| !PARTS.contains(need));
    match ["ip"].iter().chain(programs).find(|program| !is_there(program)) {
        Some(program) => Err(format!("{program} is not installed")),
        None => Ok(()),
    }
}
