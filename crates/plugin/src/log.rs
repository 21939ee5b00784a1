//! The plugin's log: JSON lines with Istio's keys, to standard error, the run directory's file and the agent.
//!
//! Best effort: a failing sink is skipped, and no failure changes the reply. Standard output is never written to.
#![expect(clippy::disallowed_methods, reason = "owns the log file and the clock of its lines")]

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contract::diagnostics::Level;
use podfacts::requests;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

/// The lines of one invocation, written at its end.
#[derive(Debug)]
pub struct Log {
    begin: Instant,
    threshold: Level,
    labels: Vec<(&'static str, String)>,
    lines: Vec<Kept>,
}

/// A line of the log. `is_logged` is false for a report and for a verdict below the threshold: such lines are sent only to
/// the agent, which does not log them.
#[derive(Debug)]
struct Kept {
    text: String,
    is_logged: bool,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Field<'a> {
    Text(Cow<'a, str>),
    Number(u64),
    Flag(bool),
}

impl<'a> From<&'a str> for Field<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Field<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u32> for Field<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Field<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

struct Line<'a> {
    level: Level,
    time: jiff::Timestamp,
    message: &'a str,
    labels: &'a [(&'static str, String)],
    fields: &'a [(&'static str, Field<'a>)],
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("level", self.level.as_str())?;
        line.serialize_entry("time", &self.time.to_string())?;
        line.serialize_entry("scope", "cni-plugin")?;
        line.serialize_entry("msg", self.message)?;
        self.labels.iter().try_for_each(|(key, label)| line.serialize_entry(key, label))?;
        self.fields.iter().try_for_each(|(key, field)| line.serialize_entry(key, field))?;
        line.end()
    }
}

impl Log {
    /// Size at which the file is renamed and a new one started, in bytes.
    const FILE_LIMIT: u64 = 10 << 20;
    /// Time limit for sending to the agent.
    const AGENT_TIMEOUT: Duration = Duration::from_millis(100);

    /// Creates an empty log that keeps lines of at least `threshold`.
    pub fn new(threshold: Level) -> Self {
        Self { begin: Instant::now(), threshold, labels: Vec::new(), lines: Vec::new() }
    }

    /// Changes the threshold of later lines.
    pub fn threshold(&mut self, threshold: Level) {
        self.threshold = threshold;
    }

    /// Adds a field to all later lines.
    pub fn label(&mut self, key: &'static str, value: impl Into<String>) {
        self.labels.push((key, value.into()));
    }

    /// Returns a field with the time since the start of the invocation, in microseconds.
    pub fn elapsed(&self) -> (&'static str, Field<'static>) {
        ("elapsed_us", Field::Number(u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)))
    }

    /// Adds a line.
    pub fn line(&mut self, level: Level, message: &str, fields: &[(&'static str, Field<'_>)]) {
        if level >= self.threshold {
            self.keep(level, message, fields, true);
        }
    }

    /// Adds the line with the outcome of the invocation. The agent gets it at any threshold, because it reports the
    /// pod's state.
    pub fn verdict(&mut self, level: Level, message: &str, fields: &[(&'static str, Field<'_>)]) {
        match level < self.threshold {
            true => self.report(level, message, fields),
            false => self.keep(level, message, fields, true),
        }
    }

    /// Adds a line for the agent only, which does not log it.
    pub fn report(&mut self, level: Level, message: &str, fields: &[(&'static str, Field<'_>)]) {
        self.keep(level, message, &[fields, &[(contract::UNLOGGED, true.into())]].concat(), false);
    }

    fn keep(&mut self, level: Level, message: &str, fields: &[(&'static str, Field<'_>)], is_logged: bool) {
        let line = Line { level, time: jiff::Timestamp::now(), message, labels: &self.labels, fields };
        let text = serde_json::to_string(&line);
        self.lines.extend(text.map(|text| Kept { text, is_logged }));
    }

    /// Writes the lines to all sinks.
    pub fn flush(self, run_dir: &Path) {
        let logged = self.lines.iter().filter(|line| line.is_logged);
        let text = logged.fold(String::new(), |text, line| text + &line.text + "\n");
        if !text.is_empty() {
            let _ = std::io::stderr().write_all(text.as_bytes());
            let _ = append(&run_dir.join(contract::LOG_FILE), text.as_bytes());
        }
        if !self.lines.is_empty() {
            let all: Vec<&str> = self.lines.iter().map(|line| line.text.as_str()).collect();
            let _ = send(&run_dir.join(contract::LOG_SOCKET), &all);
        }
    }
}

/// Appends to the log file, readable only by root; a missing run directory is not created.
fn append(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut file = open(path)?;
    if file.metadata()?.len() > Log::FILE_LIMIT {
        rotate(path, &file)?;
        file = open(path)?;
    }
    file.write_all(text)
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Renames a full file, unless another invocation does so or has done so: a second rename would replace the full file by the
/// new one.
fn rotate(path: &Path, full: &File) -> std::io::Result<()> {
    // The kernel releases the lock when the file is closed. If another process holds it, this invocation appends without
    // rotating, so that no pod waits for that process.
    match full.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (full, current) = match (full.metadata()?, fs::metadata(path)) {
        (_, Err(error)) if error.kind() == ErrorKind::NotFound => return Ok(()),
        (full, current) => (full, current?),
    };
    if (full.dev(), full.ino()) != (current.dev(), current.ino()) {
        return Ok(());
    }
    let mut old = PathBuf::from(path).into_os_string();
    old.push(".1");
    fs::rename(path, old)
}

/// Sends the lines to the agent without waiting for a response: the agent reads them later from the socket's buffer.
fn send(socket: &Path, lines: &[&str]) -> std::io::Result<()> {
    let body = serde_json::to_string(lines)?;
    // The time limit of `dial` also applies to writing.
    let mut stream = lookup::agent::dial(socket, Log::AGENT_TIMEOUT)?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: unix\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        requests::LOG,
        body.len()
    );
    stream.write_all((head + &body).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_below_the_threshold_are_dropped() {
        let mut log = Log::new(Level::Warn);
        log.label("pod", "shop/web-0");
        log.line(Level::Info, "skipped", &[]);
        log.line(Level::Error, "refused", &[("code", 7_u32.into()), ("again", false.into())]);
        assert_eq!(log.lines.len(), 1, "{:?}", log.lines);
        let line: serde_json::Value = serde_json::from_str(&log.lines[0].text).unwrap();
        assert_eq!((&line["level"], &line["msg"]), (&"error".into(), &"refused".into()));
        assert_eq!((&line["pod"], &line["code"]), (&"shop/web-0".into(), &7.into()));
        assert_eq!((&line["scope"], &line["again"]), (&"cni-plugin".into(), &false.into()));
        assert!(line["time"].as_str().is_some_and(|time| time.parse::<jiff::Timestamp>().is_ok()), "{line}");
    }

    #[test]
    fn level_none_drops_all_lines() {
        let mut log = Log::new(Level::None);
        log.line(Level::Error, "refused", &[]);
        assert!(log.lines.is_empty(), "{:?}", log.lines);
    }

    #[test]
    fn a_verdict_below_the_threshold_is_for_the_agent_alone() {
        let dir = tempfile::tempdir().unwrap();
        let socket = std::os::unix::net::UnixListener::bind(dir.path().join(contract::LOG_SOCKET)).unwrap();
        let mut log = Log::new(Level::Error);
        log.verdict(Level::Info, "quiet", &[]);
        log.verdict(Level::Error, "loud", &[]);
        log.flush(dir.path());
        let file = fs::read_to_string(dir.path().join(contract::LOG_FILE)).unwrap();
        assert!(file.contains("loud") && !file.contains("quiet"), "{file}");
        let mut sent = String::new();
        std::io::Read::read_to_string(&mut socket.accept().unwrap().0, &mut sent).unwrap();
        let lines: Vec<String> = serde_json::from_str(sent.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let marked: Vec<bool> = lines.iter().map(|line| line.contains(r#""unlogged":true"#)).collect();
        assert_eq!(marked, [true, false], "{lines:?}");
    }

    #[test]
    fn a_full_file_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("istio-cni.log");
        File::create(&path).unwrap().set_len(Log::FILE_LIMIT + 1).unwrap();
        append(&path, b"first\n").unwrap();
        append(&path, b"second\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first\nsecond\n");
        assert_eq!(fs::metadata(dir.path().join("istio-cni.log.1")).unwrap().len(), Log::FILE_LIMIT + 1);
    }

    #[test]
    fn rotation_does_not_wait_for_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("istio-cni.log");
        let (held, full) = (open(&path).unwrap(), open(&path).unwrap());
        held.lock().unwrap();
        rotate(&path, &full).unwrap();
        assert!(!dir.path().join("istio-cni.log.1").exists());
        drop(held);
        rotate(&path, &full).unwrap();
        assert!(dir.path().join("istio-cni.log.1").exists());
    }

    /// An invocation that renamed the full file ended before it created the new one.
    #[test]
    fn a_full_file_that_is_already_renamed_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("istio-cni.log");
        let full = open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        rotate(&path, &full).unwrap();
        assert!(!dir.path().join("istio-cni.log.1").exists());
    }

    /// Two invocations opened the full file before either renamed it.
    #[test]
    fn a_full_file_is_rotated_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("istio-cni.log");
        File::create(&path).unwrap().set_len(Log::FILE_LIMIT + 1).unwrap();
        let (first, second) = (open(&path).unwrap(), open(&path).unwrap());
        rotate(&path, &first).unwrap();
        drop(first);
        open(&path).unwrap().write_all(b"first\n").unwrap();
        rotate(&path, &second).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first\n");
        assert_eq!(fs::metadata(dir.path().join("istio-cni.log.1")).unwrap().len(), Log::FILE_LIMIT + 1);
    }
}
