//! Real pods through a real container runtime: what the plugin does when containerd calls it.

#[path = "../support/cri/runtime.rs"]
mod runtime;

use std::net::SocketAddr;

use runtime::conflist::Families;
use runtime::node::Node;
use runtime::pod::Pod;
use runtime::programs::Programs;

fn main() -> anyhow::Result<()> {
    let programs = Programs::find(Some(env!("CARGO_BIN_EXE_istio-cni"))).map_err(anyhow::Error::msg)?;
    let node = Node::start(&programs)?;
    println!("{}", node.cri().version()?);
    node.load_chain(Families::V4, None)?;
    let outside = runtime::outside::Outside::start(node.netns(), "198.51.100.10:7070".parse::<SocketAddr>()?)?;
    let mut sandbox = node.run(&Pod::injected("shop", "web-0"))?;
    sandbox.start_containers()?;
    println!("{:?}", sandbox.ips()?);
    println!("{}", sandbox.ask("app", outside.address())?);
    println!("{}", runtime::outside::ask(node.netns(), sandbox.ips()?[0], 8080)?);
    println!("{}", sandbox.rules("iptables-save")?);
    sandbox.remove()?;
    println!("{:?}", node.leftovers()?);
    Ok(())
}
