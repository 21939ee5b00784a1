//! Logs `tracing` events and the plugin's lines in Istio's format, with Istio's flags.
//!
//! Each binary calls [`Log::start`] once, with the scopes of its modules. `agent` passes in the plugin's lines, which have their
//! own times.
#![expect(
    clippy::disallowed_methods,
    reason = "owns the clock of log lines, the files that they go to, and the panic hook"
)]

mod flags;
mod levels;
mod record;

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{self, PanicHookInfo};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use contract::diagnostics::{Level, LogScope, chain};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use super::recent::Recent;

use levels::level_of;

pub use flags::LogFlags;
pub use levels::Levels;
pub use record::{Line, Record, printable_line};

/// The scope of the plugin's lines.
pub const PLUGIN_SCOPE: &str = "cni-plugin";
/// The scope of the node agent's own lines.
pub const AGENT_SCOPE: &str = "cni-agent";

/// The number of errors that a log keeps for reports.
const ERRORS: usize = 20;

/// Logging could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("log target {} cannot be opened: {cause}", path.display())]
    Target { path: PathBuf, cause: io::Error },
    #[error("logging has been started before: {0}")]
    Started(tracing::subscriber::SetGlobalDefaultError),
}

/// The process's log; clones share the targets.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    levels: Levels,
    json: bool,
    callers: Vec<String>,
    scopes: Vec<LogScope>,
    targets: Mutex<Vec<Box<dyn Write + Send>>>,
    errors: Recent<Line>,
}

impl Log {
    /// Opens the targets, and becomes `tracing`'s global subscriber and the process's panic hook.
    pub fn start(flags: &LogFlags, scopes: &[LogScope]) -> Result<Self, Error> {
        let targets = flags.log_target.iter().map(|name| open(name)).collect::<Result<_, _>>()?;
        let log = Self::new(flags, scopes, targets);
        let subscriber = Registry::default().with(Events(log.clone()));
        tracing::subscriber::set_global_default(subscriber).map_err(Error::Started)?;
        let former = panic::take_hook();
        let is_traced = env::var_os("RUST_BACKTRACE").is_some();
        panic::set_hook(Box::new(move |panic| {
            log_panic(panic);
            // The former hook prints backtraces, and the panic if the log's level hides it.
            if is_traced || !tracing::enabled!(tracing::Level::ERROR) {
                former(panic);
            }
        }));
        Ok(log)
    }

    /// Creates a log with these targets, without subscribing to `tracing`.
    fn new(flags: &LogFlags, scopes: &[LogScope], targets: Vec<Box<dyn Write + Send>>) -> Self {
        let (callers, scopes) = (flags.log_caller.clone(), scopes.to_vec());
        let (levels, json, targets) = (flags.levels(), flags.log_as_json, Mutex::new(targets));
        Self(Arc::new(Inner { levels, json, callers, scopes, targets, errors: Recent::new(ERRORS) }))
    }

    /// Returns an event's scope: its module's scope, or the crate's name if the module has none.
    fn scope<'a>(&self, target: &'a str) -> &'a str {
        let of_crate = || target.split("::").next().unwrap_or_default();
        LogScope::of(target, &self.0.scopes).unwrap_or_else(of_crate)
    }

    /// Returns the latest errors that were logged, the latest one first.
    pub fn errors(&self) -> Vec<Line> {
        self.0.errors.latest_first()
    }

    /// Writes a line if its scope's level allows it.
    pub fn record(&self, record: &Record) {
        if !self.0.levels.allow(&record.scope, record.level) {
            return;
        }
        if record.level >= Level::Error {
            self.0.errors.push(record.line());
        }
        let line = if self.0.json { record.to_json() } else { record.to_text() } + "\n";
        for target in self.0.targets.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            // An error is ignored, because there is no other log to report it to.
            let _ = target.write_all(line.as_bytes());
        }
    }
}

/// Logs a panic of any thread; a text of several lines would be several log lines.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current().name().unwrap_or("unnamed").to_owned();
    let place = panic.location().map(ToString::to_string);
    tracing::error!(thread, place, "panic: {}", panic.payload_as_str().unwrap_or("a value that is no text"));
}

fn open(name: &str) -> Result<Box<dyn Write + Send>, Error> {
    Ok(match name {
        "stdout" => Box::new(io::stdout()),
        "stderr" => Box::new(io::stderr()),
        path => {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            Box::new(file.map_err(|cause| Error::Target { path: path.into(), cause })?)
        }
    })
}

/// A `tracing` layer that converts events to records.
struct Events(Log);

impl<S: Subscriber> Layer<S> for Events {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.0.0.levels.allow(self.0.scope(metadata.target()), level_of(metadata))
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let scope = self.0.scope(metadata.target());
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, mut fields } = fields;
        if let (Some(file), Some(line)) = (metadata.file(), metadata.line())
            && self.0.0.callers.iter().any(|wanted| wanted == "all" || wanted == scope)
        {
            fields.insert("caller".to_owned(), format!("{file}:{line}").into());
        }
        let (level, time) = (level_of(metadata), jiff::Timestamp::now());
        self.0.record(&Record { level, time, scope: scope.to_owned(), message, fields });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    fields: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" { self.message = value } else { self.put(field, value) }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" { value.clone_into(&mut self.message) } else { self.put(field, value) }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, chain(value));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        flags: LogFlags,
    }

    fn logged(line: &[&str], log_events: impl FnOnce()) -> Vec<Value> {
        let flags = Program::parse_from([&["x", "--log_as_json"], line].concat()).flags;
        let page = Page::default();
        let scopes = [("program", "default"), ("istio_cni::repair", "repair"), ("istio_cni::daemon", AGENT_SCOPE)];
        let scopes = scopes.map(|(module, name)| LogScope::new(module, name));
        let log = Log::new(&flags, &scopes, vec![Box::new(page.clone())]);
        tracing::subscriber::with_default(Registry::default().with(Events(log)), log_events);
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn events_have_istios_keys_and_own_fields() {
        let lines =
            logged(&[], || tracing::info!(target: "install", pod = "shop/web-0", count = 3, "put in {}", "place"));
        assert_eq!((&lines[0]["level"], &lines[0]["scope"]), (&"info".into(), &"install".into()));
        assert_eq!((&lines[0]["msg"], &lines[0]["count"]), (&"put in place".into(), &3.into()));
        assert!(lines[0]["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{lines:?}");
    }

    #[test]
    fn a_level_applies_only_to_its_scope() {
        let lines = logged(&["--log_output_level=default:error,repair:debug,kube:none"], || {
            tracing::debug!(target: "istio_cni::repair::act", "kept");
            tracing::debug!(target: "istio_cni::daemon::run", "dropped");
            tracing::info!(target: "istio_cni::daemon", "kept");
            tracing::error!(target: "kube::client", "dropped");
            tracing::warn!(target: "program", "dropped");
        });
        let kept: Vec<_> = lines.iter().map(|line| (line["scope"].as_str(), line["msg"].as_str())).collect();
        assert_eq!(kept, [(Some("repair"), Some("kept")), (Some("cni-agent"), Some("kept"))]);
    }

    #[test]
    fn lines_of_selected_scopes_have_the_caller() {
        let log_events = || {
            tracing::info!(target: "repair", "a");
            tracing::info!(target: "install", "b");
        };
        let lines = logged(&["--log_caller=repair"], log_events);
        assert!(lines[0]["caller"].as_str().unwrap().contains("log.rs:"), "{lines:?}");
        assert_eq!(lines[1].get("caller"), None);
    }

    #[test]
    fn an_error_is_logged_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("above")]
        struct Above(#[source] io::Error);
        let error = Above(io::Error::other("deep below"));
        let lines = logged(&[], || tracing::warn!(error = &error as &dyn std::error::Error, "no"));
        assert!(lines[0]["error"].as_str().unwrap().ends_with("deep below"), "{lines:?}");
    }
}
