//! Compares the matching of name patterns with Go's `path.Match`, on random patterns and names.
//!
//! A Go program that the test builds calls `path.Match`; without Go the trial is ignored.

#![expect(clippy::disallowed_methods, reason = "Go's compiler is outside")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result};
use gocompat::glob::Glob;
use libtest_mimic::{Arguments, Failed};
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use serde_json::{Value, json};
use tier::go;

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gomatch");

fn main() {
    let args = Arguments::from_args();
    let missing = go::missing(MODULE);
    let trial = tier::trial("go", "globs_match_what_gos_match", missing, globs);
    libtest_mimic::run(&args, vec![trial]).exit();
}

/// Whether a name matches; `None` if the pattern is invalid.
type Matched = Option<bool>;

struct Go {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Go {
    /// Builds the Go program in `directory`, outside the repository, and starts it.
    fn start(directory: &Path) -> Result<Self> {
        let program = directory.join("gomatch");
        go::build(MODULE, &program)?;
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Self { child, stdin, stdout })
    }

    fn compare(&mut self, pattern: &str, name: &str) -> Result<Matched> {
        writeln!(self.stdin, "{}", json!({"pattern": pattern, "name": name}))?;
        self.stdin.flush()?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let response: Value = serde_json::from_str(&line).with_context(|| format!("the response is {line:?}"))?;
        let bad = response["bad"].as_bool().context("bad")?;
        Ok((!bad).then_some(response["matched"].as_bool().context("matched")?))
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ours(pattern: &str, name: &str) -> Matched {
    Glob::parse(pattern).ok().map(|glob| glob.matches(name))
}

/// Generates patterns from a few letters, so that some match, and from all special characters.
fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-c*?/\\[\\]^\\\\-]{0,10}",
        4 => "([a-c]|\\*|\\?|\\[\\^?[a-c](-[a-c])?\\]|\\\\.){0,6}",
        1 => any::<String>(),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[a-c/]{0,8}", 1 => "[a-cäß\\]^*-]{0,6}", 1 => any::<String>()]
}

fn globs() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let go = Mutex::new(Go::start(directory.path()).map_err(|error| format!("{error:#}"))?);
    let fail = |error: String| TestCaseError::fail(error);
    let kept = FileFailurePersistence::Direct(concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/glob.txt"));
    let config = Config { cases: 20_000, failure_persistence: Some(Box::new(kept)), ..Config::default() };
    let mut runner = TestRunner::new(config);
    let compare = |(pattern, name): (String, String)| {
        let mut go = go.lock().map_err(|_| fail("no response from Go".to_owned()))?;
        let theirs = go.compare(&pattern, &name).map_err(|error| fail(format!("{error:#}")))?;
        let ours = ours(&pattern, &name);
        if ours == theirs { Ok(()) } else { Err(fail(format!("{pattern:?} {name:?}: ours {ours:?}, Go's {theirs:?}"))) }
    };
    Ok(runner.run(&(pattern(), name()), compare).map_err(|error| error.to_string())?)
}
