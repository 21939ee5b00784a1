//! Runs the programs of a subject one after the other and times them from the first spawn to the last exit.
//!
//! All subjects are started by the same code. In a sequential run, a new thread starts the programs, and pipes that
//! hold the programs' input are created before the clock starts. In a concurrent run, files replace the pipes, see
//! [`Laid`].

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{PipeReader, Read as _, Write as _, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::netns::{PodNetns, in_thread};

/// One program to start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// All environment variables of the program; `None` if the program inherits the bench's variables.
    pub(crate) env: Option<Vec<(String, OsString)>>,
    pub(crate) stdin: Vec<u8>,
}

impl Step {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if let Some(env) = &self.env {
            command.env_clear().envs(env.iter().cloned());
        }
        command
    }
}

/// The netns in which a run's programs are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// In the bench's netns; the programs enter the pod's netns themselves.
    Outside,
    /// In the pod's netns; entering it is not timed.
    Inside,
}

/// The times of a sequential run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) wall: Duration,
    /// The sum of the user and system times of all programs.
    pub(crate) cpu: Duration,
}

/// Runs `steps` in order and fails if one of them fails.
pub(crate) fn run(netns: &PodNetns, start: Start, steps: &[Step]) -> Result<Taken> {
    let timed = || {
        let mut ready = steps.iter().map(Ready::new).collect::<Result<Vec<_>>>()?;
        let cpu = cpu_of_children()?;
        let clock = Instant::now();
        let failed = ready.iter_mut().position(|step| !step.run());
        let wall = clock.elapsed();
        let cpu = cpu_of_children()?.saturating_sub(cpu);
        match failed {
            Some(at) => bail!("{:?} failed: {}", steps[at], ready.swap_remove(at).said()),
            None => Ok(Taken { wall, cpu }),
        }
    };
    match start {
        Start::Outside => in_thread(timed),
        Start::Inside => netns.inside(timed),
    }
}

/// Returns the standard output of a program in a netns, to check the state after a run.
pub(crate) fn output(netns: &PodNetns, step: &Step) -> Result<String> {
    netns.inside(|| {
        let mut ready = Ready::new(step)?;
        if !ready.run() {
            bail!("{step:?} failed: {}", ready.said());
        }
        drop(ready.command);
        let mut text = String::new();
        ready.stdout.read_to_string(&mut text)?;
        Ok(text)
    })
}

/// A program whose standard streams are pipes. Its input is already written; its output must fit into a pipe, because
/// it is read after the exit.
struct Ready {
    command: Command,
    stdout: PipeReader,
    stderr: PipeReader,
}

impl Ready {
    fn new(step: &Step) -> Result<Self> {
        let (stdin, mut feed) = pipe()?;
        feed.write_all(&step.stdin).context("standard input does not fit into a pipe")?;
        let ((stdout, out), (stderr, err)) = (pipe()?, pipe()?);
        let mut command = step.command();
        command.stdin(stdin).stdout(out).stderr(err);
        Ok(Self { command, stdout, stderr })
    }

    fn run(&mut self) -> bool {
        self.command.spawn().and_then(|mut child| child.wait()).is_ok_and(|status| status.success())
    }

    /// Returns the program's standard output followed by its standard error.
    fn said(self) -> String {
        let Self { command, mut stdout, mut stderr } = self;
        drop(command);
        let mut said = String::new();
        let _ = stdout.read_to_string(&mut said);
        let _ = stderr.read_to_string(&mut said);
        said
    }
}

/// The programs of one concurrent run, with their input in files of a directory. The bench runs on the same cores as
/// the programs, so it does as little as possible: it creates no thread, and reads a program's output only if the
/// program fails.
pub(crate) struct Laid {
    steps: Vec<Step>,
    dir: PathBuf,
}

impl Laid {
    /// Writes the programs' input into a new directory.
    pub(crate) fn out(steps: Vec<Step>, dir: PathBuf) -> Result<Self> {
        fs::create_dir(&dir)?;
        for (at, step) in steps.iter().enumerate() {
            fs::write(dir.join(at.to_string()), &step.stdin)?;
        }
        Ok(Self { steps, dir })
    }

    /// Starts the programs in the netns of the calling thread.
    pub(crate) fn run(&self) -> Result<()> {
        for (at, step) in self.steps.iter().enumerate() {
            let said = self.dir.join("said");
            let stdin = File::open(self.dir.join(at.to_string()))?;
            let mut command = step.command();
            command.stdin(stdin).stdout(Stdio::null()).stderr(File::create(&said)?);
            if !command.spawn()?.wait()?.success() {
                bail!("{step:?} failed: {}", fs::read_to_string(&said)?);
            }
        }
        Ok(())
    }
}

/// Returns the peak resident memory of a program in KiB, measured by `bench_peak`.
pub(crate) fn peak(parent: &Path, netns: &PodNetns, start: Start, step: &Step) -> Result<u64> {
    let mut measured = Step { program: parent.to_owned(), args: vec![step.program.clone().into()], ..step.clone() };
    measured.args.extend(step.args.iter().cloned());
    let measure = || {
        let mut ready = Ready::new(&measured)?;
        ready.command.stdout(Stdio::null());
        let well = ready.run();
        let said = ready.said();
        match said.trim().parse() {
            Ok(peak) if well => Ok(peak),
            _ => bail!("{measured:?} failed: {said}"),
        }
    };
    match start {
        Start::Outside => in_thread(measure),
        Start::Inside => netns.inside(measure),
    }
}

fn cpu_of_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}
