//! Samples the resources of a process over time and reports those that grow.

use std::fs;
use std::path::{Path, PathBuf};

/// A sampled process.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    /// The process's directory in `/proc`.
    pub(crate) proc: PathBuf,
    /// The directory of the process's files. The names of its log files start with `log`.
    pub(crate) directory: PathBuf,
}

/// A measured resource.
struct Resource {
    name: &'static str,
    read: fn(&Process) -> u64,
    /// Whether each value is the growth since the previous sample.
    is_rate: bool,
    /// Returns how much the highest value of the last third may exceed the highest value of the second third. The
    /// latter is the argument.
    slack: fn(u64) -> u64,
}

const RESOURCES: [Resource; 6] = [
    // Allows for pages that the allocator and the kernel keep. Their number depends on the number of concurrent
    // requests.
    Resource { name: "resident memory, KiB", read: resident, is_rate: false, slack: |before| before / 20 + 512 },
    // Allows for connections and child processes that exist at the time of the sample.
    Resource { name: "descriptors", read: descriptors, is_rate: false, slack: |_| 4 },
    // Allows for threads that tokio starts for blocking work and ends when they are idle.
    Resource { name: "threads", read: threads, is_rate: false, slack: |_| 2 },
    Resource { name: "inotify watches", read: watches, is_rate: false, slack: |_| 0 },
    // Allows for temporary files of writes at the time of the sample.
    Resource { name: "files", read: files, is_rate: false, slack: |_| 2 },
    // Each value is the number of bytes logged since the previous sample. Allows for the log lines of one more restored
    // chain entry in an interval.
    Resource { name: "log, bytes a sample", read: log, is_rate: true, slack: |before| before / 4 + 16_384 },
];

/// The samples of a process.
pub(crate) struct Samples {
    process: Process,
    /// One list of values for each of [`RESOURCES`].
    values: [Vec<u64>; RESOURCES.len()],
    log: u64,
}

impl Samples {
    pub(crate) fn of(process: Process) -> Self {
        let log = log(&process);
        Self { process, values: Default::default(), log }
    }

    pub(crate) fn take(&mut self) {
        for (resource, values) in RESOURCES.iter().zip(&mut self.values) {
            let mut value = (resource.read)(&self.process);
            if resource.is_rate {
                (value, self.log) = (value - self.log, value);
            }
            values.push(value);
        }
    }

    /// Prints the highest value of each third, and returns the resources that grow.
    pub(crate) fn report(&self) -> Vec<String> {
        println!("{:<44} {:>10} {:>10} {:>10}", self.process.name, "1st third", "2nd third", "3rd third");
        let mut growth = Vec::new();
        for (resource, values) in RESOURCES.iter().zip(&self.values) {
            let highest = thirds(values);
            let [first, second, third] = highest;
            println!("  {:<42} {first:>10} {second:>10} {third:>10}", resource.name);
            if third > second + (resource.slack)(second) {
                growth.push(format!("{}: {}: {second}, then {third}", self.process.name, resource.name));
            }
        }
        growth
    }
}

/// Returns the highest value of each third of the samples.
fn thirds(values: &[u64]) -> [u64; 3] {
    let third = values.len() / 3;
    [0, 1, 2].map(|number| {
        let end = if number == 2 { values.len() } else { (number + 1) * third };
        values[number * third..end].iter().copied().max().unwrap_or_default()
    })
}

fn resident(process: &Process) -> u64 {
    let status = fs::read_to_string(process.proc.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn descriptors(process: &Process) -> u64 {
    entries(&process.proc.join("fd"))
}

fn threads(process: &Process) -> u64 {
    entries(&process.proc.join("task"))
}

/// Returns the number of watches of all inotify instances: each is a line in the `fdinfo` of the instance's descriptor.
fn watches(process: &Process) -> u64 {
    let descriptors = fs::read_dir(process.proc.join("fdinfo")).unwrap();
    // A descriptor may be closed meanwhile.
    let texts = descriptors.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok());
    texts.map(|text| text.lines().filter(|line| line.starts_with("inotify ")).count() as u64).sum()
}

fn files(process: &Process) -> u64 {
    below(&process.directory).len() as u64
}

fn log(process: &Process) -> u64 {
    let is_log = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log"));
    let logs = below(&process.directory).into_iter().filter(is_log);
    logs.filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum()
}

fn entries(directory: &Path) -> u64 {
    fs::read_dir(directory).unwrap().count() as u64
}

/// Returns all files below a directory.
fn below(directory: &Path) -> Vec<PathBuf> {
    // An entry may be removed meanwhile.
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.flat_map(|path| if path.is_dir() && !path.is_symlink() { below(&path) } else { vec![path] }).collect()
}
