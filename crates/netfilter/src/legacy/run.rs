//! Runs the programs of iptables-legacy in the calling thread's netns.
//!
//! A program is started without a shell and inherits no descriptor, because the plugin's standard output belongs to the
//! CNI protocol. It runs in a mount namespace of its own, in which `/etc/nsswitch.conf` is hidden, so that no name
//! service is queried over a pod's network. In that mount namespace the netns file is mounted over the lock file, for
//! versions that do not support `XTABLES_LOCKFILE`. A program that exceeds its time limit is killed.

#![expect(clippy::disallowed_methods, reason = "programs, their time limit, PATH and a mount namespace live here")]

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};

use super::super::{Error, Retry, is_temporary};

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
/// of iptables-nft contains `nf_tables`. Before iptables 1.8 a restore has no option `--version` and fails.
pub(crate) fn is_installed_plainly() -> Result<bool, Error> {
    find(&plain_name(RESTORE)).map_or(Ok(false), |path| is_legacy(&path))
}

fn is_legacy(path: &Path) -> Result<bool, Error> {
    match run_at(RESTORE, path, &["--version"], "") {
        Ok(version) => Ok(!version.contains("nf_tables")),
        Err(error) if error.is_temporary() => Err(error),
        Err(_) => Ok(true),
    }
}

/// Converts `iptables-legacy-restore` to `iptables-restore`.
fn plain_name(program: &str) -> String {
    program.replace("-legacy", "")
}

/// Returns the netns's iptables-legacy tables, as the kernel lists them in the file `names`. The file does not exist if
/// the family's module is not loaded. Only root may read it; for another user the list is empty.
pub(crate) fn tables_in_use(names: &'static str) -> Result<Vec<String>, Error> {
    match fs::read_to_string(names) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(Vec::new()),
        Err(cause) => Err(Error::LegacyTables { path: names, cause }),
    }
}

/// Finds a program in absolute directories only: a relative one would depend on the runtime's working directory.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from));
    directories.filter(|d| d.is_absolute()).map(|d| d.join(program)).find(|p| p.is_file())
}

/// Runs a program with this standard input and returns its output.
pub(super) fn run(program: &'static str, args: &[&str], input: &str) -> Result<String, Error> {
    let path = match find(program) {
        None if is_installed_plainly()? => find(&plain_name(program)),
        found => found,
    };
    run_at(program, &path.ok_or(Error::NoProgram { program })?, args, input)
}

fn run_at(program: &'static str, path: &Path, args: &[&str], input: &str) -> Result<String, Error> {
    let visit = || {
        hide_name_services();
        communicate(program, path, args, input)
    };
    thread::scope(|scope| {
        let visitor = thread::Builder::new().spawn_scoped(scope, visit).map_err(|e| not_run(program, &e))?;
        visitor.join().unwrap_or_else(|_| Err(failed(program, "its thread panicked")))
    })
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

/// Converts a failure of this process to start a program or to communicate with it.
fn not_run(program: &'static str, error: &io::Error) -> Error {
    let retry = if is_temporary(error) { Retry::Later } else { Retry::Never };
    Error::Program { program, what: error.to_string(), retry }
}

fn communicate(program: &'static str, path: &Path, args: &[&str], input: &str) -> Result<String, Error> {
    let io = |e: io::Error| not_run(program, &e);
    let mut command = Command::new(path);
    command.args(args).env_clear().env("XTABLES_LOCKFILE", OsStr::new(NETNS));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io)?;
    let stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        // The pipe closes when this thread ends. If the program exits early, the write fails, and the program's error
        // output has the reason.
        let write = move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
        let writer = thread::Builder::new().spawn_scoped(scope, write).map_err(io);
        let output = writer.and_then(|_| read_outputs(program, &mut child));
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
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => continue,
            polled => polled.map_err(|e| not_run(program, &e.into()))?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or_default()).collect();
        let mut ready = ready.into_iter();
        let read = stdout.read_if(&mut ready).and_then(|()| stderr.read_if(&mut ready));
        read.map_err(|e| not_run(program, &e))?;
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

    /// If the pipe is open, takes the next element of `ready`, and reads at most once if that element is true. Closes the
    /// pipe at the end of the output.
    fn read_if(&mut self, ready: &mut impl Iterator<Item = bool>) -> io::Result<()> {
        let Some(pipe) = &mut self.open else { return Ok(()) };
        if ready.next() != Some(true) {
            return Ok(());
        }
        let mut chunk = [0; 8192];
        match pipe.read(&mut chunk) {
            Ok(0) => self.open = None,
            Ok(n) => self.bytes.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::BorrowedFd;

    use super::*;

    const SHELL: &str = "/bin/sh";

    /// Calls `f` on a thread with a descriptor table of its own, in which only `left` descriptors are free.
    fn with_free_descriptors<T: Send>(left: usize, f: impl FnOnce() -> T + Send) -> T {
        let exhausted = || {
            unshare(CloneFlags::CLONE_FILES).unwrap();
            let null = File::open("/dev/null").unwrap();
            let mut copies: Vec<_> = std::iter::from_fn(|| null.try_clone().ok()).collect();
            copies.truncate(copies.len() - left);
            f()
        };
        thread::scope(|scope| scope.spawn(exhausted).join().unwrap())
    }

    #[test]
    fn a_list_of_tables_that_cannot_be_read_is_not_an_empty_list() {
        const DIRECTORY: &str = "/proc/self";
        const ABSENT: &str = "/proc/self/net/no_such_names";
        assert!(tables_in_use(ABSENT).unwrap().is_empty());
        let error = tables_in_use(DIRECTORY).unwrap_err();
        assert!(!error.is_temporary() && error.to_string().contains(DIRECTORY), "{error}");
        let error = with_free_descriptors(0, || tables_in_use("/dev/null")).unwrap_err();
        assert!(error.is_temporary(), "{error}");
    }

    #[test]
    fn a_program_that_cannot_be_started_now_may_be_started_later() {
        let error = with_free_descriptors(2, || communicate(RESTORE, Path::new(SHELL), &["-c", ":"], "")).unwrap_err();
        assert!(error.is_temporary(), "{error}");
        for (errno, expected) in [(Errno::EAGAIN, true), (Errno::ENOMEM, true), (Errno::EACCES, false)] {
            assert_eq!(not_run(RESTORE, &errno.into()).is_temporary(), expected, "{errno}");
        }
    }

    #[test]
    fn a_program_without_an_option_for_its_version_is_iptables_legacy() {
        assert!(with_free_descriptors(2, || is_legacy(Path::new("/bin/true"))).unwrap_err().is_temporary());
        assert!(is_legacy(Path::new("/bin/true")).unwrap());
        assert!(is_legacy(Path::new("/bin/false")).unwrap());
    }

    /// A file whose first read a signal interrupts.
    struct Interrupted(File, bool);

    impl AsFd for Interrupted {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Read for Interrupted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::take(&mut self.1) { Err(Errno::EINTR.into()) } else { self.0.read(buffer) }
        }
    }

    #[test]
    fn an_interrupted_read_is_repeated() {
        let mut pipe = Pipe::new(Some(Interrupted(File::open("/proc/version").unwrap(), true)));
        while pipe.is_open() {
            pipe.read_if(&mut std::iter::once(true)).unwrap();
        }
        assert_eq!(pipe.bytes, fs::read("/proc/version").unwrap());
    }
}
