//! Go's text/template as a process: one request per line, one response per line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result};
use gotemplate::{Budget, Delims, Error, Functions, Template, Value, write_yaml};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tier::go as module;

/// A template with its data.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Request {
    pub(crate) text: String,
    pub(crate) left: &'static str,
    pub(crate) right: &'static str,
    /// Whether the template may call sprig's functions and `toYaml`.
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
struct Response {
    out: String,
    #[serde(default)]
    parse: String,
    #[serde(default)]
    execute: String,
}

/// The result of a template, without the error message, which differs between implementations.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Rendered(String),
    /// The template was refused when it was parsed.
    Refused,
    /// Rendering ended with an error.
    Failed,
}

/// Returns this crate's result, with its error message.
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
        // Go refuses a template with undefined functions; this crate refuses only calls to them.
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

/// Returns why the Go program cannot be built here; `None` if it can.
pub(crate) fn missing() -> Option<String> {
    module::missing(MODULE)
}

/// Returns Go's result, with its error message.
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
    let mut text = String::new();
    process.stdout.read_line(&mut text)?;
    let response: Response =
        serde_json::from_str(&text).with_context(|| format!("the response to {line} is {text:?}"))?;
    Ok(match (response.parse.is_empty(), response.execute.is_empty()) {
        (false, _) => (Outcome::Refused, response.parse),
        (true, false) => (Outcome::Failed, response.execute),
        (true, true) => (Outcome::Rendered(response.out), String::new()),
    })
}

/// Builds the Go program outside of the repository and starts it. The program ends when its stdin is closed, at the
/// latest when this process ends.
fn start() -> Result<Process> {
    let built = tempfile::tempdir()?;
    let program = built.path().join("gotemplate");
    module::build(MODULE, &program)?;
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take().context("stdin is piped")?;
    let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
    Ok(Process { _child: child, stdin, stdout })
}
