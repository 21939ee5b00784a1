//! Runs a Go program that parses and serializes documents by Kubernetes' types and prints the table of these types.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tier::go;

/// A document as Go writes it, or the reason why Go refuses it.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) yaml: String,
    pub(crate) json: String,
    #[serde(default)]
    pub(crate) error: String,
}

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/kubetypes");

/// Returns why the program cannot be built; `None` if it can.
pub(crate) fn missing() -> Option<String> {
    go::missing(MODULE)
}

/// Runs the Go program with this argument, and with stdin and stdout piped.
fn spawn(argument: &str) -> Result<Child> {
    // The file is removed as soon as the program runs, because the running program is kept in a static, which is never
    // dropped.
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubetypes");
    go::build(MODULE, &path)?;
    Ok(Command::new(&path).arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// The running Go program. It exits when its standard input is closed, at the latest when this process exits.
struct Server {
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Result<Self> {
        let mut child = spawn("serve")?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Self { _child: child, stdin, stdout })
    }
}

/// Has the Go program parse a document as a type of the table and serialize it.
pub(crate) fn written(of: &str, text: &str) -> Result<Answer> {
    asked(&json!({"type": of, "text": text}))
}

/// Has the Go program apply a strategic merge patch to a document in JSON before it parses it.
pub(crate) fn patched(of: &str, text: &str, patch: &str) -> Result<Answer> {
    asked(&json!({"type": of, "text": text, "patch": patch}))
}

fn asked(request: &Value) -> Result<Answer> {
    static SERVER: OnceLock<Mutex<Option<Server>>> = OnceLock::new();
    let mut server = SERVER.get_or_init(Mutex::default).lock().map_err(|_| anyhow::anyhow!("another trial ended"))?;
    if server.is_none() {
        *server = Some(Server::start()?);
    }
    let server = server.as_mut().context("started above")?;
    writeln!(server.stdin, "{request}")?;
    server.stdin.flush()?;
    let mut response = String::new();
    server.stdout.read_line(&mut response)?;
    serde_json::from_str(&response).with_context(|| format!("the response to {request} is {response:?}"))
}

/// Returns the table that the program prints.
pub(crate) fn table() -> Result<&'static str> {
    static PRINTED: OnceLock<String> = OnceLock::new();
    if let Some(printed) = PRINTED.get() {
        return Ok(printed);
    }
    let output = spawn("table")?.wait_with_output()?;
    ensure!(output.status.success(), "kubetypes table: {}", output.status);
    let printed = String::from_utf8(output.stdout)?;
    Ok(PRINTED.get_or_init(|| printed))
}
