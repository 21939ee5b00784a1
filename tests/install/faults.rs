//! File systems that refuse.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use istio_cni::install::files::{Error, Files};
use istio_cni::install::plan::{self, Plan};
use istio_cni::install::record;
use istio_cni::install::settings::{Mode, OWNED};
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{Scope, remove};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::keeping::{Kept, until};
use super::stage::{CONF, LIST, Node, PLUGIN, install, program};

const PATIENCE: Duration = Duration::from_secs(10);

/// A small file system of its own, unmounted in the end.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf, size: &str) -> Option<Self> {
        let done = mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some(format!("size={size}").as_str()));
        match done {
            Ok(()) => Some(Self(path)),
            Err(nix::errno::Errno::EPERM) if std::env::var_os("REQUIRE_TIERS").is_none() => {
                eprintln!("ignored: mounting needs root");
                None
            }
            Err(error) => panic!("cannot mount {}: {error}", path.display()),
        }
    }

    fn make_read_only(&self) {
        mount(None::<&str>, &self.0, None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Carries out up to the first failure.
fn fail(plan: &Plan) -> Error {
    let done: Result<(), Error> = plan.steps.iter().try_for_each(|step| Files::new().perform(&step.operation));
    done.unwrap_err()
}

#[test]
fn a_full_node_keeps_its_network_and_nothing_half_written() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let Some(_small) = Small::mount(node.path("bin"), "16k") else { return };
    let plan = plan::install(&node.chained(), &Snapshot::take(&node.chained()));
    let error = fail(&plan).to_string();
    assert!(error.starts_with("cannot copy ") && error.contains("/bin/istio-cni"), "{error}");
    assert!(error.ends_with("; free space on the node"), "{error}");
    assert_eq!(node.names("bin"), [""; 0]);
    assert_eq!(node.read("net/10-net.conflist"), LIST);
}

#[test]
fn a_read_only_directory_is_named_with_the_setting_that_moves_it() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let Some(small) = Small::mount(node.path("bin"), "1m") else { return };
    small.make_read_only();
    let error = fail(&plan::install(&node.chained(), &Snapshot::take(&node.chained()))).to_string();
    assert!(error.contains("Set global.platform or cniBinDir"), "{error}");
    assert_eq!(node.read("net/10-net.conflist"), LIST);
}

#[test]
fn a_refused_access_is_named_with_what_may_be_missing() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    // Somebody who may look at everything, and change nothing.
    fs::set_permissions(node.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = {
        fs::copy(program(), node.path("program")).unwrap();
        node.path("program")
    };
    let mut command = std::process::Command::new(program);
    command.args(["install", "chained"]).arg(node.path("")).arg("999").uid(65534);
    let start = Instant::now();
    let output = loop {
        match command.output() {
            // A child that another test has just forked still has the copy open for writing.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && start.elapsed() < PATIENCE => {}
            output => break output.unwrap(),
        }
    };
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/bin/istio-cni: Permission denied") && said.contains("DAC_OVERRIDE, SELinux"), "{said}");
    assert_eq!((node.names("bin"), node.read("net/10-net.conflist")), (Vec::new(), LIST.to_owned()));
}

#[test]
fn a_plugin_that_a_chain_still_names_stays() {
    let node = Node::new();
    let Some(small) = Small::mount(node.path("net"), "1m") else { return };
    node.network("10-net.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    small.make_read_only();
    let errors: Vec<String> =
        remove(&node.chained(), Scope::ALL, Duration::ZERO).iter().map(ToString::to_string).collect();
    assert!(errors[0].starts_with("cannot write ") && errors[0].contains("10-net.conflist"), "{errors:?}");
    assert_eq!(errors.iter().filter(|error| error.contains("still names it")).count(), 2, "{errors:?}");
    assert_eq!(fs::read(node.path("bin/istio-cni")).unwrap(), PLUGIN);
}

#[test]
fn an_entry_that_another_writer_puts_back_during_the_removal_goes_all_the_same() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    let chained = node.read("net/10-net.conflist");
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| remove(&node.chained(), Scope::ALL, Duration::from_secs(1)));
        let deadline = Instant::now() + Duration::from_secs(5);
        while node.read("net/10-net.conflist") == chained {
            assert!(Instant::now() < deadline, "the entry is still there");
        }
        assert_eq!(fs::read(node.path("bin/istio-cni")).unwrap(), PLUGIN);
        node.network("10-net.conflist", &chained);
        assert!(removed.join().unwrap().is_empty());
    });
    assert_eq!((node.read("net/10-net.conflist").as_str(), node.names("bin").len()), (LIST, 0));
}

#[test]
fn another_writers_change_is_not_written_over() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let plan = plan::install(&node.chained(), &Snapshot::take(&node.chained()));
    let theirs = LIST.replace("1500.0", "9000");
    node.network("10-net.conflist", &theirs);
    let error = fail(&plan).to_string();
    assert!(error.contains("another program has just changed "), "{error}");
    assert_eq!(node.read("net/10-net.conflist"), theirs);
    assert!(install(&node.chained()).is_empty());
    assert!(node.read("net/10-net.conflist").contains("9000"));
}

/// What a plan makes of a network that its owner takes away before the plan is carried out.
fn taken_away(name: &str, content: &str, take: impl FnOnce(&Node)) -> (Vec<String>, String) {
    let node = Node::new();
    node.network(name, content);
    let plan = plan::install(&node.chained(), &Snapshot::take(&node.chained()));
    take(&node);
    let error = fail(&plan).to_string();
    (node.names("net"), error)
}

#[test]
fn a_network_that_its_owner_has_removed_or_renamed_is_not_made_anew() {
    let remove = |name: &'static str| move |node: &Node| fs::remove_file(node.path("net").join(name)).unwrap();
    let (left, error) = taken_away("10-net.conflist", LIST, remove("10-net.conflist"));
    assert!(left.is_empty() && error.contains("another program has just removed "), "{left:?} {error}");

    let (left, error) = taken_away("10-net.conflist", LIST, |node| {
        fs::rename(node.path("net/10-net.conflist"), node.path("net/10-net.conflist.disabled")).unwrap();
    });
    assert_eq!(left, ["10-net.conflist.disabled"], "{error}");

    // A list of a single plugin is another file than the plugin's.
    let (left, error) = taken_away("10-net.conf", CONF, remove("10-net.conf"));
    assert!(left.is_empty() && error.contains("another program has just removed "), "{left:?} {error}");
    let (left, error) = taken_away("10-net.conf", CONF, |node| node.network("10-net.conf", "{}"));
    assert!(left == ["10-net.conf"] && error.contains("another program has just changed "), "{left:?} {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_run_directory_does_not_keep_a_lost_entry_from_coming_back() {
    let node = Node::new();
    let Some(_small) = Small::mount(node.path("run"), "16k") else { return };
    node.network("10-net.conflist", LIST);
    let mut kept = Kept::start(node.chained());
    kept.ready().await;
    let filler = fs::File::create(node.path("run/istio-cni.log")).unwrap();
    std::io::copy(&mut std::io::repeat(b'x'), &mut &filler).unwrap_err();
    // A longer token needs another page.
    node.rotate(&"token".repeat(2000));
    kept.waits_for("free space on the node").await;
    let list = node.path("net/10-net.conflist");
    fs::write(&list, LIST).unwrap();
    until("the entry is back", || has_entry_now(&list)).await;
    filler.set_len(0).unwrap();
    kept.ready().await;
    kept.stop().await;
}

/// After a reboot plugin and chain are there, and the run directory is new. Something else has filled it.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_run_directory_after_a_reboot_does_not_keep_a_lost_entry_from_coming_back() {
    let owned = Mode::Owned { primary: None, file: OWNED.to_owned() };
    for (mode, name) in [(Mode::Chained { primary: None }, "10-net.conflist"), (owned, OWNED)] {
        let node = Node::new();
        node.network("10-net.conflist", LIST);
        let settings = node.settings(mode);
        assert!(install(&settings).is_empty());
        let Some(_small) = Small::mount(node.path("run"), "16k") else { return };
        let filler = fs::File::create(node.path("run/istio-cni.log")).unwrap();
        std::io::copy(&mut std::io::repeat(b'x'), &mut &filler).unwrap_err();
        fs::remove_file(node.path("net").join(name)).unwrap();
        node.network("10-net.conflist", LIST);
        let mut kept = Kept::start(settings);
        kept.waits_for("free space on the node").await;
        let list = node.path("net").join(name);
        until("the entry is back", || has_entry_now(&list)).await;
        filler.set_len(0).unwrap();
        kept.ready().await;
        kept.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_written_does_not_keep_a_lost_copy_from_coming_back() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let settings = node.settings(Mode::Owned { primary: None, file: OWNED.to_owned() });
    assert!(install(&settings).is_empty());
    let record = node.path("net").join(record::FILE);
    fs::remove_file(&record).unwrap();
    fs::create_dir_all(record.join("full")).unwrap();
    let copy = node.path("net").join(OWNED);
    fs::remove_file(&copy).unwrap();
    let mut kept = Kept::start(settings);
    kept.waits_for(record::FILE).await;
    until("the copy is back", || has_entry_now(&copy)).await;
    fs::remove_dir_all(&record).unwrap();
    kept.ready().await;
    kept.stop().await;
    assert!(node.read("net/.istio-cni.owned").contains(OWNED));
}

fn has_entry_now(list: &std::path::Path) -> bool {
    fs::read_to_string(list).is_ok_and(|text| text.contains("istio-cni"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_temporary_that_cannot_be_removed_is_no_reason_to_wait() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let odd = node.path("net/.istio-cni-odd.tmp");
    fs::create_dir_all(odd.join("full")).unwrap();
    let mut kept = Kept::start(node.chained());
    kept.ready().await;
    let list = node.path("net/10-net.conflist");
    fs::write(&list, LIST).unwrap();
    until("the entry is back", || has_entry_now(&list)).await;
    kept.ready().await;
    kept.stop().await;
    assert!(odd.exists());
}

#[test]
fn the_temporary_of_a_living_writer_stays() {
    let node = Node::new();
    let (ours, theirs) = (node.path("net/.istio-cni-peer.tmp"), node.path("bin/istio-cni.tmp.17"));
    let writing = fs::File::create(&ours).unwrap();
    writing.lock().unwrap();
    // Istio's installer locks nothing, and fails where its file is gone.
    fs::write(&theirs, "half of it").unwrap();
    let stale = || Snapshot::take(&node.chained()).stale;
    assert_eq!(stale(), Vec::<PathBuf>::new());
    // Written after the snapshot that still found it stale.
    Files::new().perform(&plan::Operation::Remove { path: ours.clone(), over: None }).unwrap();
    assert!(ours.exists());
    drop(writing);
    let minutes = SystemTime::now() - Duration::from_secs(120);
    fs::File::options().write(true).open(&theirs).unwrap().set_modified(minutes).unwrap();
    let mut found = stale();
    found.sort();
    assert_eq!(found, [theirs, ours.clone()]);
    Files::new().perform(&plan::Operation::Remove { path: ours.clone(), over: None }).unwrap();
    assert!(!ours.exists());
}

/// Two installers in one directory, of which each looks for stale temporaries all the time.
#[test]
fn writers_do_not_remove_each_others_temporaries() {
    let node = Node::new();
    let peers = ["a", "b"].map(|name| {
        let (settings, path) = (node.chained(), node.path("net").join(name));
        std::thread::spawn(move || {
            for number in 0..500 {
                for path in Snapshot::take(&settings).stale {
                    Files::new().perform(&plan::Operation::Remove { path, over: None }).unwrap();
                }
                let content = format!("{number}").into_bytes();
                let write =
                    plan::Operation::Write { path: path.clone(), content, mode: 0o600, over: None, source: None };
                Files::new().perform(&write).unwrap();
            }
        })
    });
    peers.into_iter().for_each(|peer| peer.join().unwrap());
    assert_eq!((node.names("net"), node.read("net/a")), (vec!["a".to_owned(), "b".to_owned()], "499".to_owned()));
}

#[test]
fn an_unchanged_binary_is_not_copied_again_and_access_modes_stay() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    fs::set_permissions(node.path("net/10-net.conflist"), fs::Permissions::from_mode(0o640)).unwrap();
    install(&node.chained());
    let inode = fs::metadata(node.path("bin/istio-cni")).unwrap().ino();
    node.rotate("token-2");
    assert!(install(&node.chained()).is_empty());
    assert_eq!(fs::metadata(node.path("bin/istio-cni")).unwrap().ino(), inode);
    assert_eq!(node.mode("net/10-net.conflist"), 0o640);
    assert!(node.read("run/istio-cni-kubeconfig").contains("token-2"));
}

/// Whoever opens a pipe waits for its writer.
#[test]
fn what_is_no_regular_file_is_passed_over() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let pipe = |name: &str| nix::unistd::mkfifo(&node.path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["net/05-pipe.conflist", "net/.istio-cni-pipe.tmp", "bin/istio-cni", "run/istio-cni-kubeconfig"] {
        pipe(name);
    }
    let (settings, (sender, done)) = (node.chained(), std::sync::mpsc::channel());
    std::thread::spawn(move || sender.send(install(&settings)));
    let plan = done.recv_timeout(PATIENCE).expect("a pipe is not opened");
    assert!(plan.is_empty(), "{plan:?}");
    assert!(node.read("net/10-net.conflist").contains("istio-cni"));

    let plan = {
        node.network("10-net.conflist", LIST);
        plan::install(&node.chained(), &Snapshot::take(&node.chained()))
    };
    fs::remove_file(node.path("net/10-net.conflist")).unwrap();
    pipe("net/10-net.conflist");
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(fail(&plan).to_string()));
    let error = done.recv_timeout(PATIENCE).expect("a pipe is not opened");
    assert!(error.contains("another program has just changed "), "{error}");
}
