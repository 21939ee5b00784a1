//! Views of a page, by colour scheme and width, and the checks of each.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::stage::{Page, Pages};

/// The directory of the screenshots.
const SCREENSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/screenshots");
/// The height of a window and the height limit of a screenshot, in pixels.
const HEIGHT: u64 = 900;
const MAX_HEIGHT: u64 = 2400;

/// A colour scheme and the width of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    scheme: &'static str,
    device: &'static str,
    /// The width in pixels.
    width: u64,
}

pub(crate) const VIEWS: [View; 4] = [
    View { scheme: "light", device: "phone", width: 390 },
    View { scheme: "dark", device: "phone", width: 390 },
    View { scheme: "light", device: "desktop", width: 1280 },
    View { scheme: "dark", device: "desktop", width: 1280 },
];

impl View {
    pub(crate) fn name(self) -> String {
        format!("{}_{}", self.device, self.scheme)
    }

    /// Opens a page in this view, writes a screenshot and checks the page.
    pub(crate) fn check(self, pages: &Pages, page: Page) -> Result<()> {
        let browser = &pages.browser;
        let size = json!({ "width": self.width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false });
        browser.command("Emulation.setDeviceMetricsOverride", &size)?;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": self.scheme }] });
        browser.command("Emulation.setEmulatedMedia", &features)?;
        browser.open(&pages.url(page))?;
        self.shoot(pages, page)?;
        let widths = browser.run("return [document.scrollingElement.scrollWidth, innerWidth]")?;
        ensure!(widths[1] == self.width && widths[0].as_u64() <= Some(self.width), "the page overflows: {widths}");
        // The page's script runs only if the Content-Security-Policy has its digest.
        let updates = browser.run("return document.getElementById('updates').textContent")?;
        ensure!(updates.as_str().is_some_and(|text| text.contains("Updated every 5 seconds.")), "{updates}");
        violations(pages)?;
        let console = browser.console()?;
        ensure!(console == json!([]), "messages on the console: {console:#}");
        Ok(())
    }

    fn shoot(self, pages: &Pages, page: Page) -> Result<()> {
        let height = pages.browser.run("return document.scrollingElement.scrollHeight")?;
        let height = height.as_u64().context("a page without a height")?.min(MAX_HEIGHT);
        let clip = json!({ "x": 0, "y": 0, "width": self.width, "height": height, "scale": 1 });
        let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let shot = pages.browser.command("Page.captureScreenshot", &parameters)?;
        let png = STANDARD.decode(shot["data"].as_str().context("no screenshot")?)?;
        std::fs::create_dir_all(SCREENSHOTS)?;
        let path = Path::new(SCREENSHOTS).join(format!("{}-{}.png", page.name(), self.name()));
        Ok(std::fs::write(path, png)?)
    }
}

/// Checks that axe-core reports no violations in the loaded page.
fn violations(pages: &Pages) -> Result<()> {
    let run = "const done = arguments[arguments.length - 1];
        axe.run(document).then((found) => done([found.passes.length, found.violations.map((one) => ({
            rule: one.id, help: one.help, elements: one.nodes.slice(0, 3).map((node) => node.html + ': ' + node.failureSummary),
        }))]), (error) => done([0, String(error)]));";
    let found: Value = pages.browser.run_async(&format!("{}\n{run}", pages.axe))?;
    ensure!(found[0].as_u64() > Some(20) && found[1] == json!([]), "axe-core: {found:#}");
    Ok(())
}
