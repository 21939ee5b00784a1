//! Runs the programs of iptables-legacy in the calling thread's netns.
//!
//! A program is started without a shell and inherits no descriptor, because the plugin's standard output belongs to the
//! CNI protocol. It runs in a mount namespace of its own, in which `/etc/nsswitch.conf` is hidden, so that no name
//! service is queried over a pod's network. In that mount namespace the netns file is mounted over the lock file, for
//! versions that do not support `XTABLES_LOCKFILE`. A program that exceeds its time limit is killed.

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

use super::super::{Error, Retry};

const RESTORE: &str = "iptables-legacy-restore";
/// The option that limits the wait for the lock, in seconds. It is one word: before iptables 1.6.2 a restore skips an
/// unknown option, but reads a separate word as the name of its input file.
pub(super) const WAIT: &str = "--wait=30";
/// Time limit of a program, including the wait for the lock.
const TIMEOUT: Duration = Duration::from_secs(45);
/// Size limit of a program's output, in bytes.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;
/// The exit code `RESOURCE_PROBLEM` of iptables' `xtables.h`, such as for a lock that was not released in time.
const RESOURCE_PROBLEM: i32 = 4;
/// Maximum length of a program's error output in an error, in bytes.
const MAX_ERRORS: usize = 2000;
/// A file that differs for each netns, used as the lock.
const NETNS: &str = "/proc/self/ns/net";
/// Directories in which programs are searched after those of PATH, because a runtime may start the plugin with any
/// PATH.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];

/// Whether the programs are installed under their `-legacy` names.
pub(crate) fn is_installed() -> bool {
    find(RESTORE).is_some()
}

/// Whether the plain programs are those of iptables-legacy, which had no other name before iptables 1.8. The version string
/// of iptables-nft contains `nf_tables`.
pub(crate) fn is_installed_plainly() -> bool {
    let version = |path: PathBuf| run_at(RESTORE, &path, &["--version"], "").unwrap_or_default();
    find(&plain_name(RESTORE)).is_some_and(|path| !version(path).contains("nf_tables"))
}

/// Converts `iptables-legacy-restore` to `iptables-restore`.
fn plain_name(program: &str) -> String {
    program.replace("-legacy", "")
}

/// Returns the netns's iptables-legacy tables, as the kernel lists them.
pub(crate) fn tables_in_use(names: &str) -> Vec<String> {
    fs::read_to_string(names).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Finds a program in absolute directories only: a relative one would depend on the runtime's working directory.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from));
    directories.filter(|d| d.is_absolute()).map(|d| d.join(program)).find(|p| p.is_file())
}

/// Runs a program with this standard input and returns its output.
pub(super) fn run(program: &'static str, args: &[&str], input: &str) -> Result<String, Error> {
    let plain = || is_installed_plainly().then(|| find(&plain_name(program))).flatten();
    let path = find(program).or_else(plain).ok_or(Error::NoProgram { program })?;
    run_at(program, &path, args, input)
}

fn run_at(program: &'static str, path: &Path, args: &[&str], input: &str) -> Result<String, Error> {
    let visit = || {
        hide_name_services();
        communicate(program, path, args, input)
    };
    thread::scope(|scope| scope.spawn(visit).join()).unwrap_or_else(|_| Err(failed(program, "its thread panicked")))
}

/// Moves the calling thread into a mount namespace of its own, in which it hides the name services' configuration and
/// replaces the lock file. Best effort: without the privilege the programs run without this isolation.
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
    Error::Program { program, what: what.into(), retry: Retry::Never }
}

fn communicate(program: &'static str, path: &Path, args: &[&str], input: &str) -> Result<String, Error> {
    let io = |e: std::io::Error| failed(program, e.to_string());
    let mut command = Command::new(path);
    command.args(args).env_clear().env("XTABLES_LOCKFILE", OsStr::new(NETNS));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io)?;
    let stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        // The pipe closes when this thread ends. If the program exits early, the write fails, and the program's error
        // output has the reason.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        let output = read_outputs(program, &mut child);
        if output.is_err() {
            let _ = child.kill();
        }
        output
    });
    let status = child.wait().map_err(io)?;
    let Output { printed, errors } = output?;
    if status.success() {
        return String::from_utf8(printed).map_err(|_| failed(program, "what it printed is not UTF-8"));
    }
    let errors: String = String::from_utf8_lossy(&errors).trim().chars().take(MAX_ERRORS).collect();
    let (problem, retry) = match status.code() {
        Some(2) => ("parameter problem", Retry::Never),
        Some(3) => ("version problem", Retry::Never),
        Some(RESOURCE_PROBLEM) => ("resource problem (is the lock held?)", Retry::Later),
        _ => ("problem", Retry::AfterReading),
    };
    let what = format!("{problem}, {status}: {errors}");
    Err(Error::Program { program, what, retry })
}

struct Output {
    printed: Vec<u8>,
    errors: Vec<u8>,
}

/// Reads both outputs until the program closes them.
fn read_outputs(program: &'static str, child: &mut Child) -> Result<Output, Error> {
    let deadline = Instant::now() + TIMEOUT;
    let (mut stdout, mut stderr) = (Pipe::new(child.stdout.take()), Pipe::new(child.stderr.take()));
    while stdout.is_open() || stderr.is_open() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let what = format!("killed after {} s", TIMEOUT.as_secs());
            return Err(Error::Program { program, what, retry: Retry::Later });
        }
        let mut fds: Vec<_> = [stdout.poll_fd(), stderr.poll_fd()].into_iter().flatten().collect();
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        poll(&mut fds, timeout).map_err(|e| failed(program, e.to_string()))?;
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or_default()).collect();
        let mut ready = ready.into_iter();
        let read = stdout.read_if(&mut ready).and_then(|()| stderr.read_if(&mut ready));
        read.map_err(|e| failed(program, e.to_string()))?;
        if stdout.bytes.len() + stderr.bytes.len() > MAX_OUTPUT {
            return Err(failed(program, format!("killed after {MAX_OUTPUT} bytes of output")));
        }
    }
    Ok(Output { printed: stdout.bytes, errors: stderr.bytes })
}

/// One output of a program with the bytes read so far.
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

    /// If the pipe is open, takes the next element of `ready`, and reads once if that element is true. Closes the pipe at
    /// the end of the output.
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
