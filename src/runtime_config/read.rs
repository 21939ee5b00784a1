//! Reads the configuration files of the runtimes on a node.
#![expect(clippy::disallowed_methods, reason = "reads the node's files")]

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use super::root::{is_missing, resolve};
use super::{Directories, Error, File, containerd, crio};

/// The size limit of a file, in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// The largest number of files in a configuration, and of names in a directory.
const MAX_FILES: usize = 64;

/// A runtime's main file, and its socket: both as paths on the node.
struct Source {
    runtime: &'static str,
    file: &'static str,
    socket: &'static str,
}

const CONTAINERD: [Source; 5] = [
    source("containerd", "/etc/containerd/config.toml", "/run/containerd/containerd.sock"),
    source("containerd of k3s", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", K3S),
    source("containerd of RKE2", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", K3S),
    source("containerd of k0s", "/etc/k0s/containerd.toml", "/run/k0s/containerd.sock"),
    source(
        "containerd of MicroK8s",
        "/var/snap/microk8s/current/args/containerd-template.toml",
        "/var/snap/microk8s/common/run/containerd.sock",
    ),
];
const K3S: &str = "/run/k3s/containerd/containerd.sock";
/// The templates from which k3s and RKE2 render containerd's file, in its directory; the first one that exists is used.
const TEMPLATES: [&str; 2] = ["config-v3.toml.tmpl", "config.toml.tmpl"];
const CRIO: Source = source("CRI-O", "/etc/crio/crio.conf", "/run/crio/crio.sock");
const CRIO_DROP_INS: &str = "/etc/crio/crio.conf.d";

const fn source(runtime: &'static str, file: &'static str, socket: &'static str) -> Source {
    Source { runtime, file, socket }
}

/// Returns the directories that the runtimes read on the node whose root is mounted at `root`. A runtime without a socket is
/// included only if no runtime has one, because a removed runtime leaves its configuration behind.
pub fn read(root: &Path) -> Vec<Result<Directories, Error>> {
    let node = Node { root };
    let runs = |source: &Source| node.metadata(Path::new(source.socket)).is_ok();
    let none_runs = !CONTAINERD.iter().any(runs) && !runs(&CRIO);
    let is_read = |source: &&Source| none_runs || runs(source);
    let mut found = Vec::new();
    for source in CONTAINERD.iter().filter(is_read) {
        match node.containerd(source) {
            Ok(directories) => found.extend(directories.into_iter().map(Ok)),
            Err(error) => found.push(Err(error)),
        }
    }
    if is_read(&&CRIO) {
        found.extend(node.crio().transpose());
    }
    found
}

/// A node, by the directory at which its root is mounted.
struct Node<'a> {
    root: &'a Path,
}

impl Node<'_> {
    /// Returns the path in this process's mounts of an absolute path on the node.
    fn path(&self, path: &Path) -> io::Result<PathBuf> {
        resolve(self.root, path)
    }

    fn metadata(&self, path: &Path) -> io::Result<fs::Metadata> {
        fs::metadata(self.path(path)?)
    }

    /// Whether a file exists; one that cannot be examined is taken to exist, so that reading it shows the reason.
    fn exists(&self, path: &Path) -> bool {
        self.metadata(path).map_or_else(|error| !is_missing(&error), |_| true)
    }

    fn containerd(&self, source: &Source) -> Result<Vec<Directories>, Error> {
        let main = Path::new(source.file);
        if !self.exists(main) {
            return Ok(Vec::new());
        }
        let mut pending = VecDeque::from([main.to_owned()]);
        let mut files: Vec<File> = Vec::new();
        while let Some(path) = pending.pop_front() {
            // containerd, too, loads a file once, which ends circular imports.
            if files.iter().any(|file| file.path == path) {
                continue;
            }
            if files.len() == MAX_FILES {
                return Err(Error::TooMany { path: main.to_owned(), max: MAX_FILES });
            }
            let file = self.file(path)?;
            for import in containerd::imports(&file)? {
                pending.extend(self.import(&file.path, &import)?);
            }
            files.push(file);
        }
        if containerd::is_without_cri(&files)? {
            return Ok(Vec::new());
        }
        let mut found = containerd::directories(source.runtime, &files)?;
        if source.socket == K3S {
            let mut templates = TEMPLATES.into_iter().map(|name| main.with_file_name(name));
            let template = templates.find(|path| self.metadata(path).is_ok());
            found.iter_mut().for_each(|found| found.networks.rendered_from.clone_from(&template));
        }
        Ok(found)
    }

    /// Reads CRI-O's configuration; `None` if it has no files.
    fn crio(&self) -> Result<Option<Directories>, Error> {
        let main = Path::new(CRIO.file);
        let mut paths: Vec<PathBuf> = self.exists(main).then(|| main.to_owned()).into_iter().collect();
        paths.extend(self.tree(Path::new(CRIO_DROP_INS))?);
        if paths.is_empty() {
            return Ok(None);
        }
        let files = paths.into_iter().map(|path| self.file(path)).collect::<Result<Vec<_>, _>>()?;
        crio::directories(CRIO.runtime, &files).map(Some)
    }

    /// Returns the files that the entry `import` in the file `parent` names; a pattern may match none.
    fn import(&self, parent: &Path, import: &str) -> Result<Vec<PathBuf>, Error> {
        let path = clean(&parent.parent().unwrap_or(parent).join(import));
        if !import.contains('*') {
            return Ok(vec![path]);
        }
        let unsupported = || Error::Pattern { path: parent.to_owned(), import: import.to_owned() };
        let name = path.file_name().and_then(|name| name.to_str());
        let (dir, pattern) = path.parent().zip(name).ok_or_else(unsupported)?;
        if dir.to_string_lossy().contains('*') || pattern.contains(['?', '[', '\\']) {
            return Err(unsupported());
        }
        let names = self.names(dir)?.into_iter().filter(|name| matches(pattern, name));
        Ok(names.map(|name| dir.join(name)).collect())
    }

    /// Returns the names of the files in a directory, sorted; none if the directory does not exist.
    fn names(&self, dir: &Path) -> Result<Vec<String>, Error> {
        let is_file = |name: &String| self.metadata(&dir.join(name)).is_ok_and(|found| found.is_file());
        Ok(self.entries(dir)?.into_iter().map(|(name, _)| name).filter(is_file).collect())
    }

    /// Returns the files below a directory in the order of Go's `filepath.Walk`, which enters directories, but no links to them.
    fn tree(&self, dir: &Path) -> Result<Vec<PathBuf>, Error> {
        let within = |dir: &Path| {
            let entries = self.entries(dir)?.into_iter().rev();
            Ok(entries.map(|(name, is_dir)| (dir.join(name), is_dir)).collect::<Vec<_>>())
        };
        let (mut pending, mut files, mut entered) = (within(dir)?, Vec::new(), 0);
        while let Some((path, is_dir)) = pending.pop() {
            entered += 1;
            if entered > MAX_FILES {
                return Err(Error::TooMany { path: dir.to_owned(), max: MAX_FILES });
            }
            if is_dir {
                pending.extend(within(&path)?);
            } else if self.metadata(&path).is_ok_and(|found| found.is_file()) {
                files.push(path);
            }
        }
        Ok(files)
    }

    /// Returns the names in a directory, sorted, and whether each is a directory's; none if the directory does not exist.
    fn entries(&self, dir: &Path) -> Result<Vec<(String, bool)>, Error> {
        let entries = match self.path(dir).and_then(fs::read_dir) {
            Ok(entries) => entries,
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(unread(dir)(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(unread(dir))?;
            if found.len() == MAX_FILES {
                return Err(Error::TooMany { path: dir.to_owned(), max: MAX_FILES });
            }
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            found.push((entry.file_name().to_string_lossy().into_owned(), is_dir));
        }
        found.sort();
        Ok(found)
    }

    fn file(&self, path: PathBuf) -> Result<File, Error> {
        let content = self.content(&path).map_err(unread(&path))?;
        // MicroK8s replaces its variable when it starts containerd.
        let text = String::from_utf8_lossy(&content).replace("${SNAP_DATA}", "/var/snap/microk8s/current");
        File::parse(path, text.as_bytes())
    }

    fn content(&self, path: &Path) -> io::Result<Vec<u8>> {
        let path = self.path(path)?;
        // Opening a pipe would wait for its writer.
        if !fs::metadata(&path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
        }
        let mut content = Vec::new();
        fs::File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_SIZE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {} MiB", MAX_SIZE >> 20)));
        }
        Ok(content)
    }
}

fn unread(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::Unread { path: path.to_owned(), reason: error.to_string() }
}

/// Removes `.` and `..` from an absolute path, as Go's `filepath.Clean` does.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => cleaned.push(name),
            Component::ParentDir => drop(cleaned.pop()),
            _ => {}
        }
    }
    cleaned
}

/// Whether a name matches a pattern in which `*` stands for any string.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| matches(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a node's root with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn only(root: &Path) -> Result<Directories, Error> {
        let found = read(root);
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    }

    const MAIN: &str = "etc/containerd/config.toml";

    #[test]
    fn imports_are_read_after_their_file_and_only_once() {
        let root = root(&[
            (MAIN, "version = 3\nimports = ['config.toml', 'd/*.toml', '../../../etc/x.toml']"),
            ("etc/containerd/d/1.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/one'"),
            ("etc/containerd/d/2.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/two'"),
            ("etc/containerd/d/3.txt", "no TOML"),
            ("etc/x.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/x']"),
        ]);
        let found = only(root.path()).unwrap();
        assert_eq!(found.conf.value, Path::new("/two"));
        assert_eq!(found.conf.file.as_deref(), Some(Path::new("/etc/containerd/d/2.toml")));
        assert_eq!(found.bin.value, [Path::new("/x")]);
    }

    #[test]
    fn links_are_those_of_the_node() {
        let text = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/linked'\n";
        let root = root(&[("etc/real/config.toml", &format!("imports = ['d/*']\n{text}")), ("opt/drop-in", "bad")]);
        std::os::unix::fs::symlink("/etc/real", root.path().join("etc/containerd")).unwrap();
        assert_eq!(only(root.path()).unwrap().conf.value, Path::new("/linked"));
        fs::create_dir(root.path().join("etc/real/d")).unwrap();
        std::os::unix::fs::symlink("/opt/drop-in", root.path().join("etc/real/d/1.toml")).unwrap();
        let error = only(root.path()).unwrap_err().to_string();
        assert!(error.starts_with("/etc/containerd/d/1.toml: invalid TOML"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, reason) in [
            ("imports = ['missing.toml']", "cannot read /etc/containerd/missing.toml: No such file"),
            ("imports = ['*/a.toml']", "pattern is supported in the last part"),
            ("imports = 'a'", "imports is string, not a list of strings"),
            ("a = 1\nversion = ", "/etc/containerd/config.toml: invalid TOML: line 2: "),
            ("imports = ['d']", "cannot read /etc/containerd/d: no regular file"),
        ] {
            let root = root(&[(MAIN, text), ("etc/containerd/d/a", "")]);
            let error = only(root.path()).unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains('\n'), "{text}: {error}");
        }
        let large = root(&[(MAIN, &"#".repeat((MAX_SIZE + 1) as usize))]);
        assert!(only(large.path()).unwrap_err().to_string().contains("more than 1 MiB"));
    }

    #[test]
    fn the_number_of_imports_is_limited() {
        let imports: Vec<String> = (0..MAX_FILES).map(|number| format!("'{number}.toml'")).collect();
        let root = root(&[(MAIN, &format!("imports = [{}]", imports.join(",")))]);
        for number in 0..MAX_FILES {
            fs::write(root.path().join(format!("etc/containerd/{number}.toml")), "").unwrap();
        }
        assert_eq!(only(root.path()), Err(Error::TooMany { path: format!("/{MAIN}").into(), max: MAX_FILES }));
    }

    #[test]
    fn drop_ins_of_crio_are_read_below_their_directory() {
        let network = |name: &str| format!("[crio.network]\ncni_default_network = '{name}'\n");
        let dir = "etc/crio/crio.conf.d";
        let files = ["10.conf", "20/a/b.conf", "20/z.conf", "15/c.conf"];
        let paths = files.map(|file| format!("{dir}/{file}"));
        let texts = files.map(network);
        let root = root(&std::array::from_fn::<_, 4, _>(|at| (paths[at].as_str(), texts[at].as_str())));
        // A link to a directory is not entered.
        std::os::unix::fs::symlink("20", root.path().join(dir).join("99")).unwrap();
        let found = only(root.path()).unwrap();
        assert_eq!(found.networks.default.unwrap().value, "20/z.conf");
    }

    #[test]
    fn a_runtime_that_does_not_run_counts_only_if_none_runs() {
        const K3S_FILE: &str = "var/lib/rancher/k3s/agent/etc/containerd/config.toml";
        let files = [(MAIN, ""), (K3S_FILE, "version = 3"), ("etc/crio/crio.conf.d/1.conf", "")];
        let names = |root: &Path| {
            let found = read(root).into_iter().map(|found| found.unwrap().runtime);
            found.collect::<Vec<_>>()
        };
        assert_eq!(names(root(&files).path()), ["containerd", "containerd of k3s", "CRI-O"]);
        let socket = ("run/k3s/containerd/containerd.sock", "");
        assert_eq!(names(root(&[&files[..], &[socket]].concat()).path()), ["containerd of k3s"]);
    }

    #[test]
    fn the_template_of_k3s_is_found() {
        const K3S_DIR: &str = "var/lib/rancher/k3s/agent/etc/containerd";
        let [rendered, old, new] = ["config.toml", TEMPLATES[1], TEMPLATES[0]].map(|name| format!("{K3S_DIR}/{name}"));
        let files = [(rendered.as_str(), "version = 3"), (old.as_str(), "{{ broken"), (new.as_str(), "")];
        let template = |files: &[(&str, &str)]| only(root(files).path()).unwrap().networks.rendered_from;
        assert_eq!(template(&files[..1]), None);
        assert_eq!(template(&files[..2]), Some(format!("/{old}").into()));
        assert_eq!(template(&files), Some(format!("/{new}").into()));
        assert_eq!(template(&[(MAIN, ""), ("etc/containerd/config.toml.tmpl", "")]), None);
    }

    #[test]
    fn the_variable_of_microk8s_is_replaced() {
        let text = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '${SNAP_DATA}/opt/cni/bin'";
        let root = root(&[("var/snap/microk8s/current/args/containerd-template.toml", text)]);
        let found = only(root.path()).unwrap();
        assert_eq!(found.bin.value, [Path::new("/var/snap/microk8s/current/opt/cni/bin")]);
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in
            [("*.toml", "a.toml", true), ("*.toml", "a.conf", false), ("a*b*", "axbx", true), ("a*", "b", false)]
        {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
