//! Tests of the installed programs and of the kubeconfig.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use clap::Parser as _;
use istio_cni::install::InstallFlags;
use istio_cni::install::server::Server;

use super::faults::SmallFilesystem;
use super::node::{LIST, Node, PLUGIN, has_entry, install};
use super::reconcile::Installer;

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    flags: InstallFlags,
}

/// Parses these flags.
fn settings(flags: &[&str]) -> Result<istio_cni::install::InstallSettings, String> {
    let program = Program::try_parse_from(["install-cni"].iter().chain(flags)).map_err(|error| error.to_string())?;
    program.flags.settings("info").map(|(settings, _)| settings).map_err(|error| error.to_string())
}

fn installed(before: impl FnOnce(&Node)) -> Node {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    before(&node);
    assert!(install(&node.chained()).is_empty());
    node
}

#[test]
fn all_programs_of_the_image_are_copied() {
    let node = installed(|node| fs::write(node.path("image/another"), "another program").unwrap());
    assert_eq!(node.names("bin"), ["another", "istio-cni"]);
    assert_eq!((node.read("bin/another").as_str(), node.mode("bin/istio-cni")), ("another program", 0o755));
    assert_eq!(fs::read(node.path("bin/istio-cni")).unwrap(), PLUGIN);
}

#[test]
fn an_older_program_is_replaced_and_others_stay() {
    let node = installed(|node| {
        fs::write(node.path("bin/istio-cni"), "an older one").unwrap();
        fs::write(node.path("bin/bridge"), "another program").unwrap();
    });
    assert_eq!(fs::read(node.path("bin/istio-cni")).unwrap(), PLUGIN);
    assert_eq!(node.read("bin/bridge"), "another program");
}

/// The chain must not get the entry: no pod starts with a chain that names a plugin that cannot be executed.
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_gets_no_entry_while_a_directory_has_the_plugins_name() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    fs::create_dir_all(node.path("bin/istio-cni/x")).unwrap();
    let mut installer = Installer::start(node.chained());
    installer.waits_for("remove this directory").await;
    assert_eq!(node.read("net/10-net.conflist"), LIST);
    fs::remove_dir_all(node.path("bin/istio-cni")).unwrap();
    installer.ready().await;
    installer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts a file system, which requires root"]
async fn a_chain_gets_an_entry_if_the_plugin_that_cannot_be_replaced_can_be_executed() {
    for (content, mode, expected) in
        [(PLUGIN, 0o644, false), (b"", 0o755, false), (b"text", 0o755, false), (&PLUGIN[..900], 0o755, true)]
    {
        let node = Node::new();
        node.network("10-net.conflist", LIST);
        let filesystem = SmallFilesystem::mount(node.path("bin"), "1m");
        fs::write(node.path("bin/ptp"), "").unwrap();
        fs::write(node.path("bin/istio-cni"), content).unwrap();
        fs::set_permissions(node.path("bin/istio-cni"), fs::Permissions::from_mode(mode)).unwrap();
        filesystem.make_read_only();
        let mut installer = Installer::start(node.chained());
        installer.waits_for("Read-only file system").await;
        assert_eq!(has_entry(&node.path("net/10-net.conflist")), expected, "{} bytes, mode {mode:o}", content.len());
        installer.stop().await;
    }
}

#[test]
fn stale_temporary_files_are_removed() {
    let node = installed(|node| {
        for name in ["istio-cni.tmp.1", "istio-cni.tmp.3816169537"] {
            fs::write(node.path("bin").join(name), "half").unwrap();
            // A temporary file that was changed a moment ago may be in use, so the file gets an older modification
            // time.
            let file = fs::File::options().write(true).open(node.path("bin").join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(120)).unwrap();
        }
    });
    assert_eq!(node.names("bin"), ["istio-cni"]);
}

#[test]
fn a_kubeconfig_needs_the_api_servers_host() {
    let error = settings(&["--kubernetes-service-host=", "--kubernetes-service-port=443"]).unwrap_err();
    assert_eq!(error, "KUBERNETES_SERVICE_HOST is not set: is this process in a pod?");
}

#[test]
fn a_kubeconfig_needs_the_api_servers_port() {
    let error = settings(&["--kubernetes-service-host=10.0.0.1", "--kubernetes-service-port="]).unwrap_err();
    assert_eq!(error, "KUBERNETES_SERVICE_PORT is not set: is this process in a pod?");
}

/// Returns the `key: value` lines of a node's kubeconfig.
fn kubeconfig(node: &Node) -> BTreeMap<String, String> {
    let text = node.read("run/istio-cni-kubeconfig");
    let pairs = text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).split_once(": "));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_kubeconfig_has_the_accounts_ca_and_token() {
    let found = kubeconfig(&installed(|_| {}));
    assert_eq!(found["certificate-authority-data"], "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==");
    assert_eq!((found["token"].as_str(), found["server"].as_str()), ("token-1", "https://10.0.0.1:443"));
    assert!(!found.contains_key("insecure-skip-tls-verify"), "{found:?}");
}

#[test]
fn a_kubeconfig_without_verification_has_no_ca() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let mut settings = node.chained();
    settings.kubeconfig.skip_verify = true;
    assert!(install(&settings).is_empty());
    let found = kubeconfig(&node);
    assert_eq!(found["insecure-skip-tls-verify"], "true");
    assert!(!found.contains_key("certificate-authority-data"), "{found:?}");
}

#[test]
fn a_kubeconfig_is_updated_with_the_server_and_the_ca_file() {
    let node = installed(|_| {});
    fs::write(node.path("another.crt"), "another\n").unwrap();
    let mut settings = node.chained();
    settings.kubeconfig.server = Server::new("https", "50.76.2.1", 443).unwrap();
    settings.kubeconfig.ca_file = Some(node.path("another.crt"));
    assert!(install(&settings).is_empty());
    let found = kubeconfig(&node);
    assert_eq!(found["server"], "https://50.76.2.1:443");
    assert_eq!(found["certificate-authority-data"], "YW5vdGhlcgo=");
}

#[test]
fn excluded_namespaces_are_separated_by_commas() {
    for (given, expected) in [
        ("", &[][..]),
        ("a,b", &["a", "b"]),
        (" a , b ", &["a", "b"]),
        ("a,b,", &["a", "b"]),
        (",a,b", &["a", "b"]),
        ("a,,b", &["a", "b"]),
        (" , ,", &[]),
    ] {
        let flag = format!("--exclude-namespaces={given}");
        let base = ["--kubernetes-service-host=10.0.0.1", "--kubernetes-service-port=443", &flag];
        assert_eq!(settings(&base).unwrap().entry.exclude_namespaces, expected, "{given:?}");
    }
}
