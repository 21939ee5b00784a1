//! Tests of the directories that are found below a node's root, and of their changes.
#![expect(clippy::disallowed_methods, reason = "the tests own the node's files")]

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::install::memory;
use crate::install::settings::Asked;

const CONTAINERD: &str = "etc/containerd/config.toml";
const CRIO: &str = "etc/crio/crio.conf.d/10.conf";

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn containerd(conf: &str, bins: &str) -> String {
    format!("version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '{conf}'\nbin_dirs = [{bins}]\n")
}

fn crio(conf: &str) -> String {
    format!("[crio.network]\nnetwork_dir = '{conf}'\nplugin_dirs = ['/a', '/b']\n")
}

/// Returns the settings of an agent that finds both directories of the node whose root is `root`.
fn auto(root: &Path) -> InstallSettings {
    let asked = Asked { is_auto: true, on_node: None };
    let given = Given { root: Some(root.to_owned()), conf: asked.clone(), bin: asked };
    InstallSettings { given, ..memory::settings(0, 0) }
}

/// Returns the settings of an agent whose directories are given by their paths on the node.
fn given(root: &Path, conf: &str, bin: &str) -> InstallSettings {
    let asked = |path: &str| Asked { is_auto: false, on_node: Some(path.into()) };
    let given = Given { root: Some(root.to_owned()), conf: asked(conf), bin: asked(bin) };
    InstallSettings { given, ..memory::settings(0, 0) }
}

fn obstacle(settings: &mut InstallSettings) -> String {
    Located::at_start(settings).compare().obstacle.unwrap().to_string()
}

#[test]
fn the_directories_of_the_configuration_are_used() {
    for (file, text, conf, bin) in [
        (CONTAINERD, containerd("/x/net.d", "'/x/bin', '/y'"), "x/net.d", "x/bin"),
        (CRIO, crio("/c"), "c", "a"),
        (CONTAINERD, containerd("/x/net.d", ""), "x/net.d", "opt/cni/bin"),
        ("none", String::new(), "etc/cni/net.d", "opt/cni/bin"),
        (CONTAINERD, containerd("/link/net.d", "'/link'"), "real/net.d", "real"),
    ] {
        let root = tempfile::tempdir().unwrap();
        symlink("/real", root.path().join("link")).unwrap();
        write(root.path(), file, &text);
        let mut settings = auto(root.path());
        let located = Located::at_start(&mut settings);
        assert!(located.is_known());
        assert_eq!((&settings.net_dir, &settings.bin_dir), (&root.path().join(conf), &root.path().join(bin)), "{text}");
        assert!(located.compare().obstacle.is_none());
    }
}

#[test]
fn what_the_runtime_searches_and_uses_is_known() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = auto(root.path());
    Located::at_start(&mut settings);
    assert_eq!(settings.of_runtime, OfRuntime::default(), "without a configuration");
    write(root.path(), CRIO, &(crio("/c") + "cni_default_network = 'pods'\n"));
    let located = Located::at_start(&mut settings);
    let bin_dirs = ["a", "b"].map(|dir| root.path().join(dir)).to_vec();
    assert_eq!(settings.of_runtime, OfRuntime { bin_dirs, network: Some("pods".to_owned()) });
    write(root.path(), CRIO, &crio("/c"));
    let changed = located.compare().obstacle.unwrap();
    assert!(changed.ends_by_restart() && changed.to_string().contains("start /c ("), "{changed}");
    assert!(changed.to_string().ends_with("the new ones"), "{changed}");
    // A second runtime, which uses the first file.
    write(root.path(), CRIO, &(crio("/c") + "cni_default_network = 'pods'\n"));
    write(root.path(), CONTAINERD, &containerd("/c", "'/a'"));
    Located::at_start(&mut settings);
    assert_eq!(settings.of_runtime.network, None);
}

#[test]
fn a_containerd_without_cri_does_not_count() {
    for disabled in ["cri", "io.containerd.grpc.v1.cri"] {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), CONTAINERD, &format!("disabled_plugins = ['{disabled}']\n"));
        write(root.path(), CRIO, &crio("/c"));
        let mut settings = auto(root.path());
        assert!(Located::at_start(&mut settings).is_known());
        assert_eq!(settings.net_dir, root.path().join("c"));
    }
}

#[test]
fn handlers_with_networks_of_another_directory_are_warned_of() {
    let root = tempfile::tempdir().unwrap();
    let handler = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.edge]\ncni_conf_dir = '/edge'\n";
    write(root.path(), CONTAINERD, &(containerd("/c", "'/a'") + handler));
    let expected = "pods of the runtime handler edge get the network of /edge (/etc/containerd/config.toml) and are not redirected";
    for mut settings in [auto(root.path()), given(root.path(), "/c", "/a")] {
        assert_eq!(Located::at_start(&mut settings).compare().warnings, [expected]);
    }
}

#[test]
fn a_given_directory_is_kept_beside_auto() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), CONTAINERD, &containerd("/x/net.d", "'/x/bin'"));
    write(root.path(), CRIO, &crio("/x/net.d"));
    let mut settings = auto(root.path());
    settings.given.bin = Asked { is_auto: false, on_node: Some("/x/bin".into()) };
    let located = Located::at_start(&mut settings);
    assert_eq!((settings.net_dir, settings.bin_dir), (root.path().join("x/net.d"), "/bin0".into()));
    assert_eq!(located.compare().warnings, Vec::<String>::new(), "containerd reads both");
}

#[test]
fn what_prevents_auto_is_named_with_the_value_to_set() {
    for (files, expected) in [
        (
            vec![(CONTAINERD, containerd("/x", "'/a'")), (CRIO, crio("/y"))],
            "the runtimes' configurations name different directories (/x (containerd, /etc/containerd/config.toml); /y (CRI-O, \
             /etc/crio/crio.conf.d/10.conf)): set cniConfDir to the one",
        ),
        (vec![(CONTAINERD, containerd("/y", "'/x'")), (CRIO, crio("/y"))], "set cniBinDir to the one"),
        (vec![(CONTAINERD, "version = ".to_owned())], "/etc/containerd/config.toml: invalid TOML"),
        (vec![(CONTAINERD, "version = ".to_owned())], "correct the file, or set cniConfDir and cniBinDir"),
        (
            vec![(CONTAINERD, containerd("net.d", "'/x'"))],
            "net.d (containerd, /etc/containerd/config.toml) is no absolute path",
        ),
        (vec![(CONTAINERD, containerd("/loop/x", "'/x'"))], "cannot be reached: more than 40 links; set cniConfDir"),
    ] {
        let root = tempfile::tempdir().unwrap();
        symlink("loop", root.path().join("loop")).unwrap();
        files.iter().for_each(|(file, text)| write(root.path(), file, text));
        let mut settings = auto(root.path());
        let text = obstacle(&mut settings);
        assert_eq!(Located::at_start(&mut settings).compare().warnings, [""; 0]);
        assert!(text.contains(expected), "{text}");
        assert!(!Located::at_start(&mut settings).is_known());
    }
}

#[test]
fn a_change_ends_by_a_restart_and_a_broken_file_does_not() {
    let root = tempfile::tempdir().unwrap();
    symlink("7", root.path().join("current")).unwrap();
    write(root.path(), CONTAINERD, &containerd("/current/net.d", "'/x'"));
    let located = Located::at_start(&mut auto(root.path()));
    let changed = || located.compare().obstacle.unwrap();
    write(root.path(), CONTAINERD, &containerd("/new", "'/x'"));
    assert!(changed().ends_by_restart());
    let text = changed().to_string();
    for part in
        ["/current/net.d (containerd", "changed: /new (containerd, /etc/containerd/config.toml), /x (", "restarts"]
    {
        assert!(text.contains(part), "{text}");
    }
    write(root.path(), CONTAINERD, "version = ");
    assert!(!changed().ends_by_restart());
    write(root.path(), CONTAINERD, &containerd("/current/net.d", "'/x'"));
    assert!(located.compare().obstacle.is_none(), "the former configuration");
    fs::remove_file(root.path().join("current")).unwrap();
    symlink("8", root.path().join("current")).unwrap();
    assert!(changed().ends_by_restart(), "a link leads elsewhere");
}

#[test]
fn directories_that_become_known_end_by_a_restart() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), CONTAINERD, "version = ");
    let located = Located::at_start(&mut auto(root.path()));
    assert!(!located.compare().obstacle.unwrap().ends_by_restart());
    write(root.path(), CONTAINERD, "version = 3");
    let known = located.compare().obstacle.unwrap();
    assert!(known.ends_by_restart() && known.to_string().contains("are known now: /etc/cni/net.d ("), "{known}");
}

#[test]
fn given_directories_are_compared_and_are_no_obstacle() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), CONTAINERD, &containerd("/x/net.d", "'/x/bin'"));
    let warnings = |conf: &str, bin: &str| {
        let mut settings = given(root.path(), conf, bin);
        let compared = Located::at_start(&mut settings).compare();
        assert_eq!((compared.obstacle, &settings.net_dir), (None, &"/net0".into()));
        compared.warnings
    };
    assert_eq!(warnings("/x/net.d/", "/x/bin"), Vec::<String>::new());
    let found = warnings("/etc/cni/net.d", "/x/bin");
    let expected = "containerd reads /x/net.d (/etc/containerd/config.toml) and runs plugins of /x/bin (/etc/containerd/config.toml); \
                    given: /etc/cni/net.d and /x/bin: if that runtime starts the pods, they are not redirected; set cniConfDir to /x/net.d";
    assert_eq!(found, [expected]);
    write(root.path(), CRIO, &crio("/etc/cni/net.d"));
    assert_eq!(warnings("/etc/cni/net.d", "/b"), Vec::<String>::new(), "CRI-O reads both");
    write(root.path(), CRIO, "[");
    assert!(warnings("/etc/cni/net.d", "/x")[1].contains("not compared with the runtime's: /etc/crio"));
}

#[test]
fn without_a_root_no_configuration_is_read() {
    let mut settings = memory::settings(0, 0);
    let located = Located::at_start(&mut settings);
    let compared = located.compare();
    assert!(located.is_known() && compared.obstacle.is_none() && compared.warnings.is_empty());
    assert_eq!(settings.given.on_node("/host/root/x"), "/host/root/x");
}

#[test]
fn texts_name_paths_of_the_node() {
    let given = auto(Path::new("/host/root")).given;
    assert_eq!(
        given.on_node("write /host/root/etc/x, /run/y and /host/rooted"),
        "write /etc/x, /run/y and /host/rooted"
    );
    assert_eq!(given.path_on_node(Path::new("/host/root/etc/x")), Path::new("/etc/x"));
    let of_node = auto(Path::new("/")).given;
    assert_eq!(of_node.on_node("/etc/x"), "/etc/x");
}
