//! The programs and the browser that all trials share: started by the first trial, stopped after the last.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use test_support::daemon::exchange;

use crate::browser::Browser;
use crate::injector::Injector;
use crate::node::Agent;

/// The size limit of a page in bytes.
const MAX_SIZE: usize = 100_000;
/// The limit on the shortest of several response times.
const MAX_TIME: Duration = Duration::from_millis(50);

/// A page under test.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Page {
    Node,
    Injector,
}

impl Page {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Injector => "injector",
        }
    }
}

/// The running programs and the browser.
pub(crate) struct Pages {
    pub(crate) browser: Browser,
    /// The source of axe-core.
    pub(crate) axe: String,
    agent: Agent,
    injector: Injector,
}

impl Pages {
    fn start() -> Result<Self> {
        let path = axe().context("AXE names no file")?;
        let axe = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let (agent, injector) = (Agent::start(), Injector::start());
        Ok(Self { browser: Browser::start()?, axe, agent, injector })
    }

    fn address(&self, page: Page) -> SocketAddr {
        let port = match page {
            Page::Node => self.agent.port(),
            Page::Injector => self.injector.port(),
        };
        (Ipv4Addr::LOCALHOST, port).into()
    }

    pub(crate) fn url(&self, page: Page) -> String {
        format!("http://{}/status", self.address(page))
    }

    /// Checks size and response time of a page.
    pub(crate) fn measure(&self, page: Page) -> Result<()> {
        let (mut fastest, mut size) = (Duration::MAX, 0);
        for _ in 0..20 {
            let begin = Instant::now();
            let (status, html) = exchange(TcpStream::connect(self.address(page))?, "GET /status", "");
            ensure!(status == 200, "{status} {html}");
            (fastest, size) = (fastest.min(begin.elapsed()), html.len());
        }
        println!("  {}: {size} bytes, {fastest:?}", page.name());
        ensure!(size < MAX_SIZE, "{size} bytes");
        ensure!(fastest < MAX_TIME, "{fastest:?}");
        Ok(())
    }
}

/// The shared state, which the first trial starts.
#[derive(Default)]
pub(crate) struct Stage(Arc<Mutex<Option<Pages>>>);

impl Stage {
    pub(crate) fn trial(&self, name: String, body: impl FnOnce(&Pages) -> Result<()> + Send + 'static) -> Trial {
        let shared = Arc::clone(&self.0);
        tier::trial("browser", name, missing(), move || {
            let mut slot = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let pages = match slot.take() {
                Some(pages) => pages,
                None => Pages::start().map_err(|error| format!("{error:#}"))?,
            };
            body(slot.insert(pages)).map_err(|error| format!("{error:#}").into())
        })
    }
}

/// Returns why no trial can run; `None` if all can.
fn missing() -> Option<String> {
    let absent = ["chromium", "chromedriver"].into_iter().find(|name| !is_on_path(name));
    absent.map(|name| format!("{name} is not on the PATH")).or_else(|| match axe() {
        None => Some("AXE names no file of axe-core".to_owned()),
        Some(path) => {
            (!path.is_file()).then(|| format!("AXE names {}, which does not exist: make axe", path.display()))
        }
    })
}

fn axe() -> Option<PathBuf> {
    std::env::var_os("AXE").map(PathBuf::from)
}

fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
