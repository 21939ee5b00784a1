//! Go's text/template as a process: one request a line, one answer a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result};
use gotemplate::{Budget, Delims, Error, Functions, Template, Value, write_yaml};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use test_support::go as module;

/// A template with its data.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Request {
    pub(crate) text: String,
    pub(crate) left: &'static str,
    pub(crate) right: &'static str,
    /// With sprig's functions, and `toYaml`.
    pub(crate) sprig: bool,
    pub(crate) data: Json,
}

impl Request {
    pub(crate) fn new(text: &str, data: Json) -> Self {
        Self::with_delims(text, Delims::BRACES, data)
    }

    pub(crate) fn with_sprig(text: &str, data: Json) -> Self {
        Self { sprig: true, ..Self::new(text, data) }
    }

    pub(crate) fn with_delims(text: &str, delims: Delims, data: Json) -> Self {
        Self { text: text.to_owned(), left: delims.left, right: delims.right, sprig: false, data }
    }
}

#[derive(Debug, Deserialize)]
struct Answer {
    out: String,
    #[serde(default)]
    parse: String,
    #[serde(default)]
    execute: String,
}

/// What becomes of a template, to be compared: the words of errors are every implementation's own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Rendered(String),
    /// Refused when it was parsed.
    Refused,
    /// Ended while it was rendered.
    Failed,
}

/// Ours, with the words of its error.
pub(crate) fn ours(request: &Request) -> (Outcome, String) {
    let delims = Delims { left: request.left, right: request.right };
    let functions = match request.sprig {
        true => Functions::go()
            .with_sprig()
            .with("toYaml", 1, 1, |budget, args| Ok(Value::from(write_yaml(args.any(0), budget)?))),
        false => Functions::go(),
    };
    let parsed = Template::parse("test", &request.text, delims, &functions);
    if let Ok(template) = &parsed
        && !template.undefined().is_empty()
    {
        // Go refuses the template, ours the call.
        return (Outcome::Refused, format!("{:?} are not defined", template.undefined()));
    }
    let rendered = parsed.and_then(|template| template.render(&Value::json(&request.data), &mut Budget::default()));
    match rendered {
        Ok(text) => (Outcome::Rendered(text), String::new()),
        Err(error @ Error::Syntax { .. }) => (Outcome::Refused, error.to_string()),
        Err(error @ Error::Render(_)) => (Outcome::Failed, error.to_string()),
    }
}

struct Process {
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/gotemplate");

/// The reason why the program cannot be built here.
pub(crate) fn missing() -> Option<String> {
    module::missing(MODULE)
}

/// Go's, with the words of its error.
pub(crate) fn theirs(request: &Request) -> Result<(Outcome, String)> {
    static PROCESS: OnceLock<Mutex<Process>> = OnceLock::new();
    if PROCESS.get().is_none() {
        let _ = PROCESS.set(Mutex::new(start()?));
    }
    let mut process =
        PROCESS.get().context("started above")?.lock().map_err(|_| anyhow::anyhow!("another trial ended"))?;
    let line = serde_json::to_string(request)?;
    writeln!(process.stdin, "{line}")?;
    process.stdin.flush()?;
    let mut answer = String::new();
    process.stdout.read_line(&mut answer)?;
    let answer: Answer =
        serde_json::from_str(&answer).with_context(|| format!("the answer to {line} is {answer:?}"))?;
    Ok(match (answer.parse.is_empty(), answer.execute.is_empty()) {
        (false, _) => (Outcome::Refused, answer.parse),
        (true, false) => (Outcome::Failed, answer.execute),
        (true, true) => (Outcome::Rendered(answer.out), String::new()),
    })
}

/// The program is built outside of the repository. It ends with its stdin, that is with this process.
fn start() -> Result<Process> {
    let built = tempfile::tempdir()?;
    let program = built.path().join("gotemplate");
    module::build(MODULE, &program)?;
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take().context("stdin is piped")?;
    let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
    Ok(Process { _child: child, stdin, stdout })
}
