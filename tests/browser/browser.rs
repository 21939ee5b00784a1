//! A headless Chromium with one tab, controlled by the WebDriver protocol.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The part of chromedriver's output before its port.
const STARTED: &str = "started successfully on port ";
/// The timeout of a command.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A browser, closed when the value is dropped.
pub(crate) struct Browser {
    driver: Driver,
    session: String,
    /// The browser's profile.
    _profile: TempDir,
}

/// A chromedriver, killed when the value is dropped.
struct Driver {
    child: Child,
    port: u16,
}

impl Browser {
    pub(crate) fn start() -> Result<Self> {
        let (driver, profile) = (Driver::start()?, tempfile::tempdir()?);
        // Chromium's sandbox does not start for root; /dev/shm is small in containers.
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": TIMEOUT.as_secs() * 1000, "pageLoad": TIMEOUT.as_secs() * 1000 },
        } } });
        let started = driver.request("POST", "/session", &wanted)?;
        let session = started["sessionId"].as_str().with_context(|| started.to_string())?.to_owned();
        Ok(Self { driver, session, _profile: profile })
    }

    fn post(&self, command: &str, body: &Value) -> Result<Value> {
        self.driver.request("POST", &format!("/session/{}/{command}", self.session), body)
    }

    /// Loads a page.
    pub(crate) fn open(&self, url: &str) -> Result<()> {
        self.post("url", &json!({ "url": url })).map(drop)
    }

    /// Runs the body of a function and returns its value.
    pub(crate) fn run(&self, script: &str) -> Result<Value> {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs the body of a function whose last argument is called with the value.
    pub(crate) fn run_async(&self, script: &str) -> Result<Value> {
        self.post("execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Sends a command of the DevTools protocol.
    pub(crate) fn command(&self, name: &str, parameters: &Value) -> Result<Value> {
        self.post("goog/cdp/execute", &json!({ "cmd": name, "params": parameters }))
    }

    /// Returns the messages on the console since the last call.
    pub(crate) fn console(&self) -> Result<Value> {
        self.post("se/log", &json!({ "type": "browser" }))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.request("DELETE", &format!("/session/{}", self.session), &json!({}));
    }
}

impl Driver {
    fn start() -> Result<Self> {
        let mut command = Command::new("chromedriver");
        let mut child = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = child.stdout.take().context("chromedriver has no output")?;
        let mut driver = Self { child, port: 0 };
        for line in BufReader::new(output).lines() {
            let line = line?;
            if let Some((_, port)) = line.split_once(STARTED) {
                driver.port = port.trim_end_matches('.').parse()?;
                return Ok(driver);
            }
        }
        bail!("chromedriver ended without a port")
    }

    /// Sends a request and returns the member `value` of the response.
    fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let (stream, body) = (TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?, body.to_string());
        stream.set_read_timeout(Some(2 * TIMEOUT))?;
        let (host, length) = (format!("localhost:{}", self.port), body.len());
        write!(&stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}")?;
        let (status, body) = response(&stream).with_context(|| format!("{method} {path}"))?;
        let mut response: Value = serde_json::from_slice(&body)?;
        ensure!(status == 200, "{method} {path}: {status} {}", response["value"]["message"]);
        Ok(response["value"].take())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a response by its length, because chromedriver keeps the connection open.
fn response(stream: &TcpStream) -> Result<(u16, Vec<u8>)> {
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).with_context(|| line.clone())?;
    let mut length = 0;
    loop {
        line.clear();
        ensure!(reader.read_line(&mut line)? > 0, "the head of the response is not complete");
        match line.trim_end().split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse()?,
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((status, body))
}
