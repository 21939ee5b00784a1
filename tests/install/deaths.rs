//! A death before each single step, as by SIGKILL or a power cut: what is left lets pods start, and the next life
//! finishes the work.

use std::fs;
use std::process::Command;

use istio_cni::install::settings::Mode;

use super::stage::{CONF, LIST, Node, PLUGIN, has_entry, install};

/// Runs the installer's program and kills it before step `number`; whether it had ended before.
fn run(node: &Node, what: &str, mode: &str, number: usize) -> bool {
    let program = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/installer");
    let status = Command::new(&program).args([what, mode]).arg(node.path("")).arg(number.to_string()).status();
    let status = status.unwrap_or_else(|error| panic!("{}: {error}; `make programs` builds it", program.display()));
    match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
        (Some(0), _) => true,
        (_, Some(9)) => false,
        _ => panic!("{what} {mode} {number}: {status}"),
    }
}

/// What must hold at each instant for pods to start and never to pass the proxy by once it has been promised.
fn check(node: &Node, at: &str) {
    let mut entries = 0;
    for name in node.names("net") {
        let read = [".conf", ".conflist", ".json"].iter().any(|ending| name.ends_with(ending));
        assert!(read || name.ends_with(".tmp"), "{at}: {name}");
        entries += usize::from(read && has_entry(&node.path("net").join(&name)));
    }
    assert!(entries <= 1, "{at}: {:?}", node.names("net"));
    if entries == 1 {
        assert!(fs::read(node.path("bin/istio-cni")).unwrap() == PLUGIN, "{at}: the plugin is not whole");
        assert_eq!(node.mode("bin/istio-cni"), 0o755, "{at}");
        assert_eq!(node.mode("run/istio-cni-kubeconfig"), 0o600, "{at}");
    }
}

fn every_death(mode: &str, file: &str, content: &str) {
    let settings = |node: &Node| match mode {
        "owned" => node.settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() }),
        _ => node.chained(),
    };
    let mut deaths = 0;
    for number in 0.. {
        let node = Node::new();
        node.network(file, content);
        let ended = run(&node, "install", mode, number);
        let at = format!("{mode} {file}, install killed before step {number}");
        check(&node, &at);
        let plan = install(&settings(&node));
        assert!(plan.is_empty(), "{at}: {plan:?}");
        let hidden: Vec<String> = ["net", "bin", "run"].iter().flat_map(|dir| node.names(dir)).collect();
        assert!(!hidden.iter().any(|name| name.ends_with(".tmp")), "{at}: {hidden:?}");

        let removed = run(&node, "remove", mode, number);
        let at = format!("{mode} {file}, removal killed before step {number}");
        check(&node, &at);
        assert!(run(&node, "remove", mode, usize::MAX), "{at}");
        assert_eq!((node.names("bin"), node.names("run")), (Vec::new(), Vec::new()), "{at}");
        if ended && removed {
            break;
        }
        deaths = number;
    }
    assert!(deaths >= 12, "only {deaths} steps were seen");
}

#[test]
fn a_list() {
    every_death("chained", "10-net.conflist", LIST);
}

#[test]
fn a_single_plugin() {
    every_death("chained", "10-net.conf", CONF);
}

#[test]
fn an_owned_copy() {
    every_death("owned", "10-net.conflist", LIST);
}
