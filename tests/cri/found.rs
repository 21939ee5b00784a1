//! Tests an agent that takes the runtime's directories from the runtime's own configuration, which names directories other than the
//! defaults.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use contract::PLUGIN_NAME;

use crate::stage::Case;
use test_support::runtime::conflist::Families;
use test_support::runtime::control_plane::ControlPlane;
use test_support::runtime::installer::Installer;
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};

pub(crate) const CASES: &[Case] = &[("an_agent_finds_the_directories_of_the_runtime", found)];

/// The link in the plugin directory to the plugin's build. The agent replaces the link; dropping the value restores it.
pub(crate) struct Link(PathBuf, PathBuf);

impl Link {
    pub(crate) fn of(node: &Node) -> Result<Self> {
        let link = node.plugins().join(PLUGIN_NAME);
        Ok(Self(fs::canonicalize(&link)?, link))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.1);
        let _ = symlink(&self.0, &self.1);
    }
}

fn found(node: &Node) -> Result<()> {
    let _link = Link::of(node)?;
    node.load_chain(Families::V4, None)?;
    let before = fs::read(node.network())?;
    let pod = Pod::injected("shop", "web-0");
    let plane = ControlPlane::start(node)?;
    plane.schedule(&pod);
    let mut installer = Installer::finding(node, plane.address(), &[])?;
    let log = || fs::read_to_string(node.dir().join("install-cni.log")).unwrap_or_default();
    installer.ready().with_context(log)?;
    let mut sandbox = node.run(&pod).with_context(log)?;
    sandbox.start_containers()?;
    let here = (sandbox.ip()?, APP_PORT).into();
    assert_eq!(outside::connect(node.netns(), here)?.hops(), [("istio-proxy/inbound", here), ("app", here)]);
    sandbox.remove()?;
    let said = log();
    let named = format!("the container runtime's directory is used: {} (", node.plugins().display());
    ensure!(said.contains(&named) && !said.contains("/root-"), "{said}");
    plane.delete_daemon_set();
    installer.end().with_context(log)?;
    assert_eq!((fs::read(node.network())?, node.plugins().join(PLUGIN_NAME).exists()), (before, false));
    plane.end();
    Ok(())
}
