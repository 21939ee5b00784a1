//! Tests of the installer on full and read-only file systems, with other writers, and with files that are not regular.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use istio_cni::install::files::{Error, Files};
use istio_cni::install::operation::Operation;
use istio_cni::install::plan::{self, Plan};
use istio_cni::install::record;
use istio_cni::install::settings::{Mode, OWNED};
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{Scope, remove};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::node::{CONF, LIST, Node, PLUGIN, install, program};
use super::reconcile::{Installer, until};
use test_support::DEADLINE;
use test_support::program::as_user;

pub(crate) struct SmallFilesystem(PathBuf);

impl SmallFilesystem {
    pub(crate) fn mount(path: PathBuf, size: &str) -> Self {
        let options = format!("size={size}");
        mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .unwrap_or_else(|error| panic!("cannot mount {}: {error}", path.display()));
        Self(path)
    }

    pub(crate) fn make_read_only(&self) {
        mount(None::<&str>, &self.0, None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>).unwrap();
    }
}

impl Drop for SmallFilesystem {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Applies the steps of a plan up to the first one that fails, and returns the error.
fn first_failure(plan: &Plan) -> Error {
    let done: Result<(), Error> = plan.steps.iter().try_for_each(|step| Files::new().apply(&step.operation));
    done.unwrap_err()
}

#[test]
#[ignore = "mounts a file system, which requires root"]
fn on_a_full_file_system_the_network_stays_and_no_incomplete_file() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let _filesystem = SmallFilesystem::mount(node.path("bin"), "16k");
    let plan = plan::install(&node.chained(), &Snapshot::take(&node.chained()));
    let error = first_failure(&plan).to_string();
    assert!(error.starts_with("cannot copy ") && error.contains("/bin/istio-cni"), "{error}");
    assert!(error.ends_with("; free space on the node"), "{error}");
    assert_eq!(node.names("bin"), [""; 0]);
    assert_eq!(node.read("net/10-net.conflist"), LIST);
}

#[test]
#[ignore = "mounts a file system, which requires root"]
fn the_error_of_a_read_only_directory_names_the_setting() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let filesystem = SmallFilesystem::mount(node.path("bin"), "1m");
    filesystem.make_read_only();
    let error = first_failure(&plan::install(&node.chained(), &Snapshot::take(&node.chained()))).to_string();
    assert!(error.contains("Set global.platform or cniBinDir"), "{error}");
    assert_eq!(node.read("net/10-net.conflist"), LIST);
}

#[test]
fn the_error_of_a_denied_access_names_the_possible_causes() {
    use std::os::unix::fs::PermissionsExt as _;
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    // The installer runs as a user who has permission to read all files and to write none.
    fs::set_permissions(node.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = as_user(&program(), 65534, 65534);
    let output = command.args(["install", "chained"]).arg(node.path("")).arg("999").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/bin/istio-cni: Permission denied") && text.contains("DAC_OVERRIDE, or SELinux"), "{text}");
    assert_eq!((node.names("bin"), node.read("net/10-net.conflist")), (Vec::new(), LIST.to_owned()));
}

#[test]
#[ignore = "mounts a file system, which requires root"]
fn a_plugin_that_a_chain_still_names_stays() {
    let node = Node::new();
    let filesystem = SmallFilesystem::mount(node.path("net"), "1m");
    node.network("10-net.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    filesystem.make_read_only();
    let errors: Vec<String> =
        remove(&node.chained(), Scope::ALL, Duration::ZERO).iter().map(ToString::to_string).collect();
    assert!(errors[0].starts_with("cannot write ") && errors[0].contains("10-net.conflist"), "{errors:?}");
    assert_eq!(errors.iter().filter(|error| error.contains("still names it")).count(), 3, "{errors:?}");
    assert_eq!(fs::read(node.path("bin/istio-cni")).unwrap(), PLUGIN);
}

#[test]
fn an_entry_that_another_writer_restores_during_the_removal_is_removed() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    let chained = node.read("net/10-net.conflist");
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| remove(&node.chained(), Scope::ALL, Duration::from_secs(5)));
        let deadline = Instant::now() + DEADLINE;
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
fn another_writers_change_is_not_overwritten() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let plan = plan::install(&node.chained(), &Snapshot::take(&node.chained()));
    let theirs = LIST.replace("1500.0", "9000");
    node.network("10-net.conflist", &theirs);
    let error = first_failure(&plan).to_string();
    assert!(error.contains("another program has just changed "), "{error}");
    assert_eq!(node.read("net/10-net.conflist"), theirs);
    assert!(install(&node.chained()).is_empty());
    assert!(node.read("net/10-net.conflist").contains("9000"));
}

/// Makes a plan, calls `take` to change the network configuration, and applies the plan; returns the files and the error.
fn with_concurrent_change(name: &str, content: &str, take: impl FnOnce(&Node)) -> (Vec<String>, String) {
    let node = Node::new();
    node.network(name, content);
    let plan = plan::install(&node.chained(), &Snapshot::take(&node.chained()));
    take(&node);
    let error = first_failure(&plan).to_string();
    (node.names("net"), error)
}

#[test]
#[ignore = "mounts a file system, which requires root"]
fn a_network_that_its_owner_has_removed_or_renamed_is_not_created_again() {
    let remove = |name: &'static str| move |node: &Node| fs::remove_file(node.path("net").join(name)).unwrap();
    let (left, error) = with_concurrent_change("10-net.conflist", LIST, remove("10-net.conflist"));
    assert!(left.is_empty() && error.contains("another program has just removed "), "{left:?} {error}");

    let (left, error) = with_concurrent_change("10-net.conflist", LIST, |node| {
        fs::rename(node.path("net/10-net.conflist"), node.path("net/10-net.conflist.disabled")).unwrap();
    });
    assert_eq!(left, ["10-net.conflist.disabled"], "{error}");

    // The configuration of a single plugin is converted to a list in another file.
    let (left, error) = with_concurrent_change("10-net.conf", CONF, remove("10-net.conf"));
    assert!(left.is_empty() && error.contains("another program has just removed "), "{left:?} {error}");
    let (left, error) = with_concurrent_change("10-net.conf", CONF, |node| node.network("10-net.conf", "{}"));
    assert!(left == ["10-net.conf"] && error.contains("another program has just changed "), "{left:?} {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_restored_while_the_run_directory_is_full() {
    let node = Node::new();
    let _filesystem = SmallFilesystem::mount(node.path("run"), "32k");
    node.network("10-net.conflist", LIST);
    let mut installer = Installer::start(node.chained());
    installer.ready().await;
    let filler = fs::File::create(node.path("run/istio-cni.log")).unwrap();
    std::io::copy(&mut std::io::repeat(b'x'), &mut &filler).unwrap_err();
    // A longer token needs one more page of the full file system.
    node.rotate(&"token".repeat(2000));
    installer.waits_for("free space on the node").await;
    let list = node.path("net/10-net.conflist");
    fs::write(&list, LIST).unwrap();
    until("the entry is restored", || contains_entry(&list)).await;
    filler.set_len(0).unwrap();
    installer.ready().await;
    installer.stop().await;
}

/// After a reboot, plugin and chain exist, and the run directory is a new file system, which other files have filled. The entry must be
/// restored nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_restored_after_a_reboot_while_the_run_directory_is_full() {
    let owned = Mode::Owned { primary: None, file: OWNED.to_owned() };
    for (mode, name) in [(Mode::Chained { primary: None }, "10-net.conflist"), (owned, OWNED)] {
        let node = Node::new();
        node.network("10-net.conflist", LIST);
        let settings = node.settings(mode);
        assert!(install(&settings).is_empty());
        let _filesystem = SmallFilesystem::mount(node.path("run"), "16k");
        let filler = fs::File::create(node.path("run/istio-cni.log")).unwrap();
        std::io::copy(&mut std::io::repeat(b'x'), &mut &filler).unwrap_err();
        fs::remove_file(node.path("net").join(name)).unwrap();
        node.network("10-net.conflist", LIST);
        let mut installer = Installer::start(settings);
        installer.waits_for("free space on the node").await;
        let list = node.path("net").join(name);
        until("the entry is restored", || contains_entry(&list)).await;
        filler.set_len(0).unwrap();
        installer.ready().await;
        installer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_restored_while_the_record_cannot_be_written() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let settings = node.settings(Mode::Owned { primary: None, file: OWNED.to_owned() });
    assert!(install(&settings).is_empty());
    let record = node.path("net").join(record::FILE);
    fs::remove_file(&record).unwrap();
    fs::create_dir_all(record.join("full")).unwrap();
    let copy = node.path("net").join(OWNED);
    fs::remove_file(&copy).unwrap();
    let mut installer = Installer::start(settings);
    installer.waits_for(record::FILE).await;
    until("the copy is restored", || contains_entry(&copy)).await;
    fs::remove_dir_all(&record).unwrap();
    installer.ready().await;
    installer.stop().await;
    assert!(node.read("net/.istio-cni.owned").contains(OWNED));
}

fn contains_entry(list: &std::path::Path) -> bool {
    fs::read_to_string(list).is_ok_and(|text| text.contains("istio-cni"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_temporary_file_that_cannot_be_removed_does_not_affect_readiness() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let odd = node.path("net/.istio-cni-odd.tmp");
    fs::create_dir_all(odd.join("full")).unwrap();
    let mut installer = Installer::start(node.chained());
    installer.ready().await;
    let list = node.path("net/10-net.conflist");
    fs::write(&list, LIST).unwrap();
    until("the entry is restored", || contains_entry(&list)).await;
    installer.ready().await;
    installer.stop().await;
    assert!(odd.exists());
}

#[test]
fn the_temporary_file_of_a_running_writer_stays() {
    let node = Node::new();
    let (ours, theirs) = (node.path("net/.istio-cni-peer.tmp"), node.path("bin/istio-cni.tmp.17"));
    let writing = fs::File::create(&ours).unwrap();
    writing.lock().unwrap();
    // Istio's installer does not lock its temporary file, and fails if the file disappears. A recently modified file is
    // therefore not treated as stale.
    fs::write(&theirs, "half of it").unwrap();
    let stale = || Snapshot::take(&node.chained()).stale;
    assert_eq!(stale(), Vec::<PathBuf>::new());
    // A temporary file is not removed if it has been locked since a snapshot found it stale.
    Files::new().apply(&Operation::Remove { path: ours.clone(), expected: None, replaced_by: None }).unwrap();
    assert!(ours.exists());
    drop(writing);
    let minutes = SystemTime::now() - Duration::from_secs(120);
    fs::File::options().write(true).open(&theirs).unwrap().set_modified(minutes).unwrap();
    let mut found = stale();
    found.sort();
    assert_eq!(found, [theirs, ours.clone()]);
    Files::new().apply(&Operation::Remove { path: ours.clone(), expected: None, replaced_by: None }).unwrap();
    assert!(!ours.exists());
}

/// Two writers in one directory that also remove stale temporary files must not remove those of the other writer.
#[test]
fn writers_do_not_remove_each_others_temporary_files() {
    let node = Node::new();
    let peers = ["a", "b"].map(|name| {
        let (settings, path) = (node.chained(), node.path("net").join(name));
        std::thread::spawn(move || {
            for number in 0..500 {
                for path in Snapshot::take(&settings).stale {
                    Files::new().apply(&Operation::Remove { path, expected: None, replaced_by: None }).unwrap();
                }
                let content = format!("{number}").into_bytes();
                let write = Operation::Write { path: path.clone(), content, mode: 0o600, expected: None, source: None };
                Files::new().apply(&write).unwrap();
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

/// Opening a named pipe waits for its writer, so the installer must not open one.
#[test]
fn files_that_are_not_regular_are_not_opened() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let pipe = |name: &str| nix::unistd::mkfifo(&node.path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["net/05-pipe.conflist", "net/.istio-cni-pipe.tmp", "bin/istio-cni", "run/istio-cni-kubeconfig"] {
        pipe(name);
    }
    let (settings, (sender, done)) = (node.chained(), std::sync::mpsc::channel());
    std::thread::spawn(move || sender.send(install(&settings)));
    let plan = done.recv_timeout(DEADLINE).expect("a pipe is not opened");
    let obstacles: Vec<String> = plan.obstacles.iter().map(ToString::to_string).collect();
    assert!(
        matches!(obstacles.as_slice(), [only] if only.contains("05-pipe.conflist: no regular file")),
        "{obstacles:?}"
    );
    assert!(node.read("net/10-net.conflist").contains("istio-cni"));
    fs::remove_file(node.path("net/05-pipe.conflist")).unwrap();

    let plan = {
        node.network("10-net.conflist", LIST);
        plan::install(&node.chained(), &Snapshot::take(&node.chained()))
    };
    fs::remove_file(node.path("net/10-net.conflist")).unwrap();
    pipe("net/10-net.conflist");
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(first_failure(&plan).to_string()));
    let error = done.recv_timeout(DEADLINE).expect("a pipe is not opened");
    assert!(error.contains("another program has just changed "), "{error}");
}

#[test]
fn an_installation_continues_without_a_legible_record_and_reports_this() {
    let record = "run/.istio-cni.installed";
    for (content, said) in [(Some("[{ \"conf\": {"), "is no record of installations: EOF"), (None, "no regular file")] {
        let node = Node::new();
        node.network("10-net.conflist", LIST);
        match content {
            Some(text) => fs::write(node.path(record), text).unwrap(),
            None => fs::create_dir(node.path(record)).unwrap(),
        }
        let settings = node.chained();
        let first = plan::install(&settings, &Snapshot::take(&settings));
        assert!(first.warnings.len() == 1 && first.warnings[0].contains(said), "{:?}", first.warnings);
        let last = install(&settings);
        assert!(last.is_empty() && node.read("net/10-net.conflist").contains("istio-cni"), "{last:?}");
        assert_eq!(last.warnings.is_empty(), content.is_some(), "{:?}", last.warnings);
        let errors = remove(&settings, Scope::ALL, Duration::ZERO);
        assert!(errors.is_empty() && !node.read("net/10-net.conflist").contains("istio-cni"), "{errors:?}");
        assert_eq!(node.path(record).exists(), content.is_none());
    }
}

#[test]
fn a_network_that_cannot_be_read_is_reported_with_the_reason() {
    let node = Node::new();
    node.network("10-net.conflist", &" ".repeat((8 << 20) + 1));
    let plan = plan::install(&node.chained(), &Snapshot::take(&node.chained()));
    let obstacles: Vec<String> = plan.obstacles.iter().map(ToString::to_string).collect();
    assert!(obstacles[0].ends_with("; 10-net.conflist: more than 8 MiB"), "{obstacles:?}");
    assert!(plan.warnings[0].contains("10-net.conflist: more than 8 MiB"), "{:?}", plan.warnings);
    let named = node.settings(Mode::Chained { primary: Some("10-net.conflist".to_owned()) });
    let plan = plan::install(&named, &Snapshot::take(&named));
    assert!(plan.obstacles[0].to_string().ends_with(": more than 8 MiB"), "{:?}", plan.obstacles);
}

#[tokio::test]
async fn the_liveness_probe_watches_the_installer_from_its_first_access_on() {
    let node = Node::new();
    fs::remove_dir_all(node.path("net")).unwrap();
    // A named pipe in place of the directory simulates a file system that hangs on a sync: opening the pipe blocks
    // until another process opens it for writing.
    nix::unistd::mkfifo(&node.path("net"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let installer = Installer::start(node.chained());
    let end = Instant::now() + DEADLINE;
    while installer.liveness.report().is_none() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let late = installer.liveness.report();
    drop(fs::File::options().read(true).write(true).open(node.path("net")).unwrap());
    assert!(late.as_ref().is_some_and(|late| late.starts_with("installer: late")), "{late:?}");
    installer.stop().await;
}
