//! Tests of the plans for states of a node: the steps, their order, and the obstacles.

mod conversion;
mod modes;
mod multus;
mod runtimes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::install::installed::Installed;
use crate::install::kubeconfig::Account;
use crate::install::memory;
use crate::install::record::{self, Record};
use crate::install::scope::Scope;
use crate::install::server::{Endpoint, Resolution, Server};
use crate::install::set_aside::SetAside;
use crate::install::settings::{Asked, Given, KubeconfigSettings, Mode};
use crate::install::snapshot::NetworkFile;

const LIST: &str = r#"{"cniVersion":"0.3.1","name":"net","plugins":[{"type":"ptp"}]}"#;
const CONF: &str = r#"{"cniVersion":"0.3.1","name":"net","type":"bridge"}"#;

fn settings(mode: Mode) -> InstallSettings {
    let of_node = memory::settings(0, 0);
    let server = Server::new("https", "10.0.0.1", 1).unwrap();
    let kubeconfig = KubeconfigSettings { server, ..of_node.kubeconfig };
    let asked = |on_node: &str| Asked { is_auto: false, on_node: Some(on_node.into()) };
    let given = Given { root: None, conf: asked("/etc/cni/net.d"), bin: asked("/opt/cni/bin") };
    InstallSettings { net_dir: "/net".into(), bin_dir: "/bin".into(), given, mode, kubeconfig, ..of_node }
}

fn chained() -> InstallSettings {
    settings(Mode::Chained { primary: None })
}

fn file(name: &str, content: &str) -> NetworkFile {
    NetworkFile {
        name: name.to_owned(),
        content: content.as_bytes().to_vec(),
        mode: 0o644,
        is_recent: false,
        unread: None,
    }
}

fn node(state: BinaryState, networks: Vec<NetworkFile>) -> Snapshot {
    Snapshot {
        networks: Ok(networks),
        set_aside: Vec::new(),
        record: None,
        drop_ins: BTreeMap::new(),
        plugins: ["ptp", "bridge", "a", "b"].map(str::to_owned).into(),
        searched: BTreeSet::new(),
        binaries: Ok(vec![Binary { name: "istio-cni".to_owned(), mode: 0o755, state }]),
        account: Ok(Account { token: "t".to_owned(), ca: None }),
        server: chained().kubeconfig.server.without_lookup(),
        kubeconfig: None,
        directories: None,
        installed: Ok(Installed::default()),
        stale: Vec::new(),
    }
}

fn steps(plan: &Plan) -> Vec<(Reason, String)> {
    plan.steps.iter().map(|step| (step.reason, format!("{:?}", step.operation))).collect()
}

fn step(reason: Reason, operation: &str) -> (Reason, String) {
    (reason, operation.to_owned())
}

/// Applies a plan to a snapshot, as `Files` does to a node.
fn after(settings: &InstallSettings, mut node: Snapshot) -> Snapshot {
    for step in install(settings, &node).steps {
        apply(settings, &mut node, step.operation);
    }
    node
}

fn apply(settings: &InstallSettings, node: &mut Snapshot, operation: Operation) {
    let files = node.networks.as_mut().unwrap();
    let name = operation.path().file_name().unwrap().to_str().unwrap().to_owned();
    let network = operation.path().parent() == Some(&settings.net_dir);
    match operation {
        Operation::Write { content, .. } if name == record::FILE => node.record = Some(Record::parse(&content)),
        Operation::Remove { .. } if name == record::FILE => node.record = None,
        Operation::Copy { .. } => node.binaries.as_mut().unwrap()[0].state = BinaryState::Same,
        Operation::Write { content, mode, .. } if network => {
            files.retain(|file| file.name != name);
            files.push(NetworkFile { name, content, mode, is_recent: false, unread: None });
            files.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Operation::Write { content, mode, .. } => node.kubeconfig = Some((content, mode)),
        Operation::Remove { path, replaced_by, .. } => {
            if let Some(by) = replaced_by.filter(|by| !by.path.ends_with(record::FILE)) {
                let replacement = files.iter().find(|file| settings.net_dir.join(&file.name) == by.path);
                assert!(
                    replacement.is_some_and(|file| file.content == by.content),
                    "{} is not replaced",
                    path.display()
                );
            }
            node.stale.retain(|stale| *stale != path);
            files.retain(|file| !network || file.name != name);
        }
    }
}

#[test]
fn binary_and_kubeconfig_come_before_the_entry() {
    let plan = install(&chained(), &node(BinaryState::Missing, vec![file("10-a.conflist", LIST)]));
    let expected = [
        step(Reason::BinaryMissing, "copy /bin/istio-cni"),
        step(Reason::KubeconfigMissing, "write /run/istio-cni-kubeconfig"),
        step(Reason::EntryMissing, "write /net/10-a.conflist"),
    ];
    assert_eq!(steps(&plan), expected);
    assert_eq!((plan.obstacles.len(), plan.network), (0, Some(PathBuf::from("/net/10-a.conflist"))));
}

#[test]
fn an_applied_plan_is_followed_by_an_empty_one_in_every_mode() {
    let owned = |file: &str| settings(Mode::Owned { primary: None, file: file.to_owned() });
    let alone = settings(Mode::Standalone { file: "YYY-istio-cni.conf".to_owned() });
    for settings in [chained(), owned("02-istio-cni.conflist"), alone] {
        for (name, content) in [("10-a.conflist", LIST), ("10-a.conf", CONF)] {
            let node =
                after(&settings, node(BinaryState::Different, vec![file(name, content), file("20-b.conf", CONF)]));
            let plan = install(&settings, &node);
            assert!(plan.is_empty(), "{:?} {name}: {plan:?}", settings.mode);
            let removal = removal(&settings, &node, Scope::ALL, None);
            let last = removal.steps.last().unwrap();
            assert_eq!(format!("{:?}", last.operation), "remove /bin/istio-cni");
            assert_eq!(last.reason, Reason::Removal);
        }
    }
}

#[test]
fn the_selected_file_is_the_one_that_the_runtime_loads() {
    let bad = file("01-bad.conf", r#"{"name":"x"}"#);
    for (primary, files, target) in [
        (None, vec![file("10-a.conflist", LIST), file("20-b.conf", CONF)], "/net/10-a.conflist"),
        (None, vec![file("10-b.conf", CONF), file("20-a.conflist", LIST)], "/net/10-b.conflist"),
        (None, vec![bad.clone(), file("20-a.conflist", LIST)], "/net/20-a.conflist"),
        (Some("a.conf"), vec![file("0.conflist", LIST), file("a.conflist", LIST)], "/net/a.conflist"),
        (Some("a.conflist"), vec![file("0.conflist", LIST), file("a.conf", CONF)], "/net/a.conflist"),
        (Some("undetectable.file"), vec![file("undetectable.file", LIST)], "/net/undetectable.file"),
        // No runtime accepts a list in a `.conf`, so it becomes a `.conflist`.
        (Some("a.conf"), vec![file("a.conf", LIST)], "/net/a.conflist"),
    ] {
        let settings = settings(Mode::Chained { primary: primary.map(str::to_owned) });
        let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        let plan = install(&settings, &node(BinaryState::Same, files));
        assert_eq!(plan.network, Some(target.into()), "{primary:?} {names:?}: {plan:?}");
    }
}

#[test]
fn the_entry_moves_to_a_network_that_sorts_first() {
    let settings = chained();
    let mut node = after(&settings, node(BinaryState::Same, vec![file("50-a.conflist", LIST)]));
    node.networks.as_mut().unwrap().insert(0, file("10-new.conflist", LIST));
    let expected = [
        step(Reason::EntryMissing, "write /net/10-new.conflist"),
        step(Reason::LeftBehind, "write /net/50-a.conflist"),
    ];
    assert_eq!(steps(&install(&settings, &node)), expected);
    let node = after(&settings, node);
    assert!(install(&settings, &node).is_empty());
    assert_eq!(node.networks.unwrap()[1].content, LIST.as_bytes());
}

#[test]
fn each_obstacle_is_named() {
    let fresh = NetworkFile { is_recent: true, ..file("05-cilium.conflist", "{\"name\": \"ci") };
    for (files, primary, expected) in [
        (Vec::new(), None, "/net has no network configuration yet"),
        (
            vec![file("a.conf", "{")],
            None,
            "/net has no network configuration yet; a.conf: the file is not JSON: it ends too early",
        ),
        (vec![fresh, file("99-loopback.conf", CONF)], None, "/net/05-cilium.conflist is not valid JSON yet"),
        (
            vec![file("a.conflist", LIST)],
            Some("b.conf"),
            "/net/b.conf does not exist yet, neither with .conf nor with .conflist; CNI_CONF_NAME requires it; the directory holds \
             a.conflist",
        ),
        (vec![file("b.conflist", "{}")], Some("b.conf"), "the plugin cannot be added to /net/b.conflist: `name`"),
        (vec![file("a.conf", CONF), file("a.conflist", LIST)], None, "both /net/a.conf and /net/a.conflist exist"),
    ] {
        let settings = settings(Mode::Chained { primary: primary.map(str::to_owned) });
        let plan = install(&settings, &node(BinaryState::Same, files));
        let texts: Vec<String> = plan.obstacles.iter().map(ToString::to_string).collect();
        assert!(texts.len() == 1 && texts[0].starts_with(expected), "{texts:?} for {expected}");
        assert!(plan.steps.iter().all(|step| step.reason == Reason::KubeconfigMissing), "{plan:?}");
        assert!(plan.affects_pods());
    }
}

#[test]
fn a_chain_whose_other_plugins_are_all_in_another_directory_is_not_edited() {
    let owned = settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() });
    let list = LIST.replace(r#"{"type":"ptp"}"#, r#"{"type":"ptp"},{"type":"bridge"}"#);
    let mut chained_node = after(&chained(), node(BinaryState::Same, vec![file("10-a.conflist", &list)]));
    for mut node in [node(BinaryState::Same, vec![file("10-a.conflist", &list)]), chained_node.clone()] {
        node.plugins = ["host-local".to_owned(), "istio-cni".to_owned()].into();
        for settings in [chained(), owned.clone()] {
            let plan = install(&settings, &node);
            let [obstacle] = plan.obstacles.as_slice() else { panic!("{plan:?}") };
            let texts = obstacle.to_string();
            assert!(
                ["/net/10-a.conflist", " /bin (ptp, bridge)", "cniBinDir"].iter().all(|part| texts.contains(part)),
                "{texts}"
            );
            assert!(plan.steps.iter().all(|step| step.reason == Reason::KubeconfigMissing), "{plan:?}");
        }
    }
    // One of the plugins suffices, because a runtime may search several directories.
    for one in ["ptp", "bridge"] {
        chained_node.plugins = [one.to_owned()].into();
        assert!(install(&chained(), &chained_node).is_empty());
    }
    let alone = settings(Mode::Standalone { file: "YYY-istio-cni.conf".to_owned() });
    chained_node.plugins.clear();
    assert_eq!(install(&alone, &chained_node).obstacles, [], "a file of its own has no other plugins");
}

#[test]
fn a_fresh_node_waits_for_the_kubeconfig() {
    let unread = || Unread { path: "/account/token".into(), reason: "gone".to_owned(), is_denied: false };
    let mut no_token = node(BinaryState::Missing, vec![file("10-a.conflist", LIST)]);
    no_token.account = Err(unread().into());
    let mut no_image = node(BinaryState::Same, vec![file("10-a.conflist", LIST)]);
    no_image.binaries = Err(unread());
    let of_account = Obstacle::Account(unread().into());
    for (node, obstacle) in [(no_token.clone(), of_account), (no_image, Obstacle::Unread(unread()))] {
        let plan = install(&chained(), &node);
        assert_eq!(plan.obstacles, [obstacle]);
        assert!(steps(&plan).iter().all(|(reason, _)| *reason == Reason::KubeconfigMissing), "{plan:?}");
    }
    // A kubeconfig that cannot be renewed is kept.
    no_token.kubeconfig = Some((b"old".to_vec(), 0o600));
    let expected =
        [step(Reason::BinaryMissing, "copy /bin/istio-cni"), step(Reason::EntryMissing, "write /net/10-a.conflist")];
    assert_eq!(steps(&install(&chained(), &no_token)), expected);
}

/// After a reboot the plugin queries the agent first. Pods that wait are better than pods without redirection.
#[test]
fn an_entry_is_restored_without_a_kubeconfig_if_the_plugin_was_installed_before() {
    let settings = chained();
    for reason in ["no token has been requested yet", "403"] {
        let mut node = node(BinaryState::Same, vec![file("10-a.conflist", LIST)]);
        node.account = Err(NoAccount::NotIssued(reason.to_owned()));
        let plan = install(&settings, &node);
        assert_eq!(steps(&plan), [step(Reason::EntryMissing, "write /net/10-a.conflist")]);
        assert_eq!(plan.obstacles.len(), 1, "{plan:?}");
        // A missing binary is restored, because no pod starts while a chain names it.
        let mut node = after(&settings, node);
        node.binaries.as_mut().unwrap()[0].state = BinaryState::Missing;
        assert_eq!(steps(&install(&settings, &node)), [step(Reason::BinaryMissing, "copy /bin/istio-cni")]);
    }
}

#[test]
fn an_owned_copy_is_updated_with_its_network_and_must_sort_first() {
    let settings = settings(Mode::Owned { primary: None, file: "02-istio-cni.conflist".to_owned() });
    let mut node = after(&settings, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]));
    let files = node.networks.as_mut().unwrap();
    assert_eq!(files[1].content, LIST.as_bytes(), "the network's own file is left alone");
    files[1].content = LIST.replace("ptp", "bridge").into_bytes();
    let plan = install(&settings, &node);
    assert_eq!(steps(&plan), [step(Reason::EntryDiffers, "write /net/02-istio-cni.conflist")]);
    node.networks.as_mut().unwrap().insert(0, file("00-first.conflist", LIST));
    let plan = install(&settings, &node);
    assert!(plan.obstacles[0].to_string().contains("/net/00-first.conflist sorts before"), "{plan:?}");
}

#[test]
fn a_rotated_token_affects_no_pod() {
    let settings = chained();
    let mut node = after(&settings, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]));
    node.account = Ok(Account { token: "new".to_owned(), ca: None });
    let plan = install(&settings, &node);
    assert_eq!(steps(&plan), [step(Reason::KubeconfigDiffers, "write /run/istio-cni-kubeconfig")]);
    assert!(!plan.affects_pods());
}

#[test]
fn a_removal_starts_with_the_entry_and_ends_with_the_binary() {
    let settings = chained();
    let mut node = after(&settings, node(BinaryState::Same, vec![file("10-a.conflist", LIST)]));
    node.stale = vec!["/net/.istio-cni-x.tmp".into()];
    let expected = [
        step(Reason::Removal, "write /net/10-a.conflist"),
        step(Reason::Removal, "remove /run/istio-cni-kubeconfig"),
        step(Reason::Removal, "remove /bin/istio-cni"),
        step(Reason::Stale, "remove /net/.istio-cni-x.tmp"),
    ];
    let plan = removal(&settings, &node, Scope::ALL, None);
    assert_eq!(steps(&plan), expected);
    let Operation::Write { content, .. } = &plan.steps[0].operation else { panic!() };
    assert_eq!(content, LIST.as_bytes());
}

/// Generates a valid or invalid network configuration.
fn any_network() -> impl Strategy<Value = NetworkFile> {
    let content = prop::sample::select(vec![
        LIST,
        CONF,
        r#"{"name":"x","plugins":[{"type":"a"},{"type":"istio-cni","old":1},{"type":"b"}]}"#,
        r#"{"name":"x","plugins":[{"type":"istio-cni"}]}"#,
        r#"{"type":"istio-cni"}"#,
        "{\"name\": \"half",
        "",
        "[]",
    ]);
    let name = ("[0-3]0-[ab]", prop::sample::select(vec!["conf", "conflist", "json"]));
    (name, content).prop_map(|((stem, ending), content)| file(&format!("{stem}.{ending}"), content))
}

fn any_mode() -> impl Strategy<Value = Mode> {
    let primary = || prop::option::of("[0-3]0-[ab].conf(list)?");
    prop_oneof![
        primary().prop_map(|primary| Mode::Chained { primary }),
        primary().prop_map(|primary| Mode::Owned { primary, file: "02-istio-cni.conflist".to_owned() }),
        Just(Mode::Standalone { file: "YYY-istio-cni.conf".to_owned() }),
    ]
}

proptest! {
    #[test]
    fn an_applied_plan_leaves_only_obstacles(
        mode in any_mode(),
        networks in prop::collection::vec(any_network(), 0..5),
    ) {
        let settings = settings(mode);
        let unique: std::collections::BTreeMap<_, _> = networks.into_iter().map(|file| (file.name.clone(), file)).collect();
        let before = node(BinaryState::Missing, unique.into_values().collect());
        let (first, after) = (install(&settings, &before), after(&settings, before.clone()));
        let second = install(&settings, &after);
        let files: Vec<_> = before.networks.iter().flatten().map(|f| (&f.name, String::from_utf8_lossy(&f.content))).collect();
        prop_assert!(second.steps.is_empty(), "{:?} {files:?}: {:?}, then {:?}", settings.mode, steps(&first), steps(&second));
        prop_assert_eq!(&second.obstacles, &first.obstacles, "{:?} {:?}: {:?}", settings.mode, files, steps(&first));
    }
}

#[test]
fn without_the_servers_address_a_first_kubeconfig_is_awaited_and_an_existing_one_stays() {
    let settings = chained();
    let name = Server::new("https", "api.example.com", 443).unwrap().without_lookup();
    let pending = "the API server's name api.example.com (KUBERNETES_SERVICE_HOST) is being looked up";
    let texts = |plan: &Plan| plan.obstacles.iter().map(ToString::to_string).collect::<Vec<_>>();

    let first = Snapshot { server: name.clone(), ..node(BinaryState::Missing, vec![file("10-a.conflist", LIST)]) };
    let plan = install(&settings, &first);
    assert_eq!((steps(&plan), texts(&plan)), (vec![], vec![pending.to_owned()]), "no chain without a kubeconfig");
    let binaries = node(BinaryState::Same, Vec::new()).binaries;
    let again = Snapshot { kubeconfig: Some((b"of an earlier agent".to_vec(), 0o600)), binaries, ..first };
    let plan = install(&settings, &again);
    assert_eq!(texts(&plan), [pending]);
    assert_eq!(plan.steps.iter().map(|step| step.reason).collect::<Vec<_>>(), [Reason::EntryMissing]);

    // The token is renewed with the last known address.
    let endpoint = Some(Endpoint { url: "https://10.0.0.7:443".to_owned(), tls_server_name: Some("api".to_owned()) });
    let plan = install(&settings, &Snapshot { server: Resolution { endpoint, ..name }, ..again });
    assert_eq!(texts(&plan), [pending]);
    let Operation::Write { content, .. } = &plan.steps[0].operation else { panic!("{plan:?}") };
    let text = String::from_utf8_lossy(content);
    assert!(text.contains("    server: https://10.0.0.7:443\n    tls-server-name: api\n"), "{text}");
}
