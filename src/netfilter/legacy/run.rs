//! Running iptables-legacy's programs in the calling thread's netns.
//!
//! No shell, no inherited descriptor: what the plugin prints belongs to the CNI protocol. A thread with a mount
//! namespace of its own hides `/etc/nsswitch.conf`, so that no name service is asked from a pod's network, and gives
//! programs that know no `XTABLES_LOCKFILE` the netns for a lock. A program ends in time or is killed.

#![expect(clippy::disallowed_methods, reason = "programs, their time limit, PATH and a mount namespace live here")]

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};

use super::super::Error;

const RESTORE: &str = "iptables-legacy-restore";
/// How long a program waits for the lock, in seconds. One word: a restore before iptables 1.6.2 skips an option that it does
/// not know, but takes a word of its own for the file to read.
pub(super) const WAIT: &str = "--wait=30";
/// How long a program may run, the wait for the lock included.
const PATIENCE: Duration = Duration::from_secs(45);
/// The longest output that is kept, in bytes.
const OUTPUT: usize = 16 * 1024 * 1024;
/// `RESOURCE_PROBLEM` of iptables' `xtables.h`.
const RESOURCE_PROBLEM: i32 = 4;
/// The part of a program's complaints that an error repeats, in bytes.
const COMPLAINT: usize = 2000;
/// The netns of whoever opens it, as a lock that no other netns shares.
const NETNS: &str = "/proc/self/ns/net";
/// Where programs are, besides the directories of PATH: a CNI plugin's PATH may be anything.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];

/// Whether the programs of iptables-legacy are there under their own names.
pub(in crate::netfilter) fn is_installed() -> bool {
    find(RESTORE).is_some()
}

/// Whether the plain programs are there and are those of iptables-legacy, as before iptables 1.8, where they had no other
/// name. Those of iptables-nft name nf_tables in their version.
pub(in crate::netfilter) fn is_installed_plainly() -> bool {
    let version = |path: PathBuf| run_at(RESTORE, &path, &["--version"], "").unwrap_or_default();
    find(&plain_name(RESTORE)).is_some_and(|path| !version(path).contains("nf_tables"))
}

/// `iptables-restore` for `iptables-legacy-restore`.
fn plain_name(program: &str) -> String {
    program.replace("-legacy", "")
}

/// The tables that the netns has by iptables-legacy, as the kernel lists them.
pub(in crate::netfilter) fn tables_in_use(names: &str) -> Vec<String> {
    fs::read_to_string(names).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Absolute directories alone: what a relative one holds is up to the directory that a runtime was started in.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from));
    directories.filter(|d| d.is_absolute()).map(|d| d.join(program)).find(|p| p.is_file())
}

/// Feeds a program and returns what it prints.
pub(super) fn run(program: &'static str, args: &[&str], input: &str) -> Result<String, Error> {
    let plain = || is_installed_plainly().then(|| find(&plain_name(program))).flatten();
    let path = find(program).or_else(plain).ok_or(Error::NoProgram { program })?;
    run_at(program, &path, args, input)
}

fn run_at(program: &'static str, path: &Path, args: &[&str], input: &str) -> Result<String, Error> {
    let visit = || {
        hide_name_services();
        converse(program, path, args, input)
    };
    thread::scope(|scope| scope.spawn(visit).join()).unwrap_or_else(|_| Err(failed(program, "its thread panicked")))
}

/// Best effort: without the privilege the programs run all the same.
fn hide_name_services() {
    let none = None::<&Path>;
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        return;
    }
    let apart = |how| mount(none, "/", none, how | MsFlags::MS_REC, none);
    if apart(MsFlags::MS_PRIVATE).or_else(|_| apart(MsFlags::MS_SLAVE)).is_err() {
        return;
    }
    for (over, what) in [("/dev/null", "/etc/nsswitch.conf"), ("/proc/thread-self/ns/net", "/run/xtables.lock")] {
        let _ = mount(Some(over), what, none, MsFlags::MS_BIND, none);
    }
}

fn failed(program: &'static str, what: impl Into<String>) -> Error {
    Error::Program { program, what: what.into(), passing: false }
}

fn converse(program: &'static str, path: &Path, args: &[&str], input: &str) -> Result<String, Error> {
    let io = |e: std::io::Error| failed(program, e.to_string());
    let mut command = Command::new(path);
    command.args(args).env_clear().env("XTABLES_LOCKFILE", OsStr::new(NETNS));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io)?;
    let stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        // The pipe ends with this thread; a program that dies early makes the write fail, and its complaint says why.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        let output = listen(program, &mut child);
        if output.is_err() {
            let _ = child.kill();
        }
        output
    });
    let status = child.wait().map_err(io)?;
    let Output { printed, complaint } = output?;
    if status.success() {
        return String::from_utf8(printed).map_err(|_| failed(program, "what it printed is not UTF-8"));
    }
    let complaint: String = String::from_utf8_lossy(&complaint).trim().chars().take(COMPLAINT).collect();
    let problem = match status.code() {
        Some(2) => "parameter problem",
        Some(3) => "version problem",
        Some(RESOURCE_PROBLEM) => "resource problem (is the lock held?)",
        _ => "problem",
    };
    let what = format!("{problem}, {status}: {complaint}");
    Err(Error::Program { program, what, passing: status.code() == Some(RESOURCE_PROBLEM) })
}

struct Output {
    printed: Vec<u8>,
    complaint: Vec<u8>,
}

/// Reads until the program has closed both outputs.
fn listen(program: &'static str, child: &mut Child) -> Result<Output, Error> {
    let deadline = Instant::now() + PATIENCE;
    let (mut stdout, mut stderr) = (Pipe::new(child.stdout.take()), Pipe::new(child.stderr.take()));
    while stdout.is_open() || stderr.is_open() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let what = format!("killed after {} s", PATIENCE.as_secs());
            return Err(Error::Program { program, what, passing: true });
        }
        let mut fds: Vec<_> = [stdout.poll_fd(), stderr.poll_fd()].into_iter().flatten().collect();
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        poll(&mut fds, timeout).map_err(|e| failed(program, e.to_string()))?;
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or_default()).collect();
        let mut ready = ready.into_iter();
        let read = stdout.read_if(&mut ready).and_then(|()| stderr.read_if(&mut ready));
        read.map_err(|e| failed(program, e.to_string()))?;
        if stdout.bytes.len() + stderr.bytes.len() > OUTPUT {
            return Err(failed(program, format!("killed after {OUTPUT} bytes of output")));
        }
    }
    Ok(Output { printed: stdout.bytes, complaint: stderr.bytes })
}

/// One output of a program, and what it has held so far.
struct Pipe<R> {
    open: Option<R>,
    bytes: Vec<u8>,
}

impl<R: Read + AsFd> Pipe<R> {
    fn new(open: Option<R>) -> Self {
        Self { open, bytes: Vec::new() }
    }

    fn is_open(&self) -> bool {
        self.open.is_some()
    }

    fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.open.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN))
    }

    /// Reads once if the pipe is open and the next of `ready`, which is its own, says so; closes it at its end.
    fn read_if(&mut self, ready: &mut impl Iterator<Item = bool>) -> std::io::Result<()> {
        let Some(pipe) = &mut self.open else { return Ok(()) };
        if ready.next() != Some(true) {
            return Ok(());
        }
        let mut chunk = [0; 8192];
        match pipe.read(&mut chunk)? {
            0 => self.open = None,
            n => self.bytes.extend_from_slice(chunk.get(..n).unwrap_or_default()),
        }
        Ok(())
    }
}
