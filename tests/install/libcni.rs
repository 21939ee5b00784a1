//! Compares verdicts about network configurations with those of `libcni` and `go-cni`, the libraries of CRI-O and containerd.
//!
//! The test builds a Go program that calls these libraries. Without Go, or without the modules of these libraries, the trials are ignored.

mod known;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use istio_cni::install::plan::Plan;
use libcni::conflist::{Invalid, List, Single, decode_drop_in, drop_in_directory};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use serde_json::{Value, json};
use tier::go;

use super::node::{LIST, Node, install};
use known::KNOWN;

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/golibcni");
const ENTRY: &str = r#"{"type":"istio-cni"}"#;

/// A trial's body, which gets the running Go program.
type Body = fn(&mut Libcni) -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let trials: [(&str, Body); 3] = [
        ("known_configurations_have_libcnis_verdict", known),
        ("random_configurations_have_libcnis_verdict", random),
        ("a_node_is_ready_if_its_runtime_runs_the_plugin", directories),
    ];
    let missing = go::missing(MODULE);
    let trial = |(name, body): (&'static str, Body)| {
        tier::trial("go", name, missing.clone(), move || {
            let directory = tempfile::tempdir()?;
            let started = Libcni::start(&directory.path().join("golibcni"));
            started.and_then(|mut libcni| body(&mut libcni)).map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    trials.into_iter().map(trial).collect()
}

struct Libcni {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// An accepted configuration: the network's name, empty for one plugin, and the types of the plugins.
type Accepted = (String, Vec<String>);

impl Libcni {
    fn start(program: &std::path::Path) -> Result<Self> {
        go::build(MODULE, program)?;
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Self { child, stdin, stdout })
    }

    fn ask(&mut self, question: &Value) -> Result<Value> {
        writeln!(self.stdin, "{question}")?;
        self.stdin.flush()?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("the response is {line:?}"))
    }

    /// Decodes a file; the error is `libcni`'s.
    fn decode(&mut self, kind: &str, content: &[u8]) -> Result<Result<Accepted, String>> {
        let content = base64::engine::general_purpose::STANDARD.encode(content);
        let answer = self.ask(&json!({"as": kind, "content": content}))?;
        Ok(match answer["error"].as_str() {
            Some("") => Ok((if kind == "list" { text(&answer["name"]) } else { String::new() }, types(&answer))),
            error => Err(error.unwrap_or_default().to_owned()),
        })
    }

    /// Compares the verdicts about `content` as a list, as a single plugin and as a drop-in plugin, and about the results of an edit.
    fn compare(&mut self, content: &[u8]) -> Result<()> {
        for kind in ["list", "single", "drop-in"] {
            let (ours, theirs) = (ours(kind, content), self.decode(kind, content)?);
            let is_same = match (&ours, &theirs) {
                (Ok(ours), Ok(theirs)) => ours == theirs,
                (Err(_), Err(_)) => true,
                _ => false,
            };
            ensure!(is_same, "{kind} {}: ours {ours:?}, libcni's {theirs:?}", content.escape_ascii());
        }
        if let Ok(list) = List::decode(content) {
            let others: Vec<String> = list.kinds().map(str::to_owned).collect();
            let with = list.with_entry(ENTRY);
            self.check_chain(&with, &others)?;
            let bare = List::decode(&with).map(|list| list.without_entry());
            ensure!(bare == Ok(Some(content.to_vec())), "{}: {bare:?}", with.escape_ascii());
        }
        if let Ok(single) = Single::decode(content) {
            self.check_chain(&single.chained(ENTRY), &[single.kind().to_owned()])?;
        }
        Ok(())
    }

    fn check_chain(&mut self, chain: &[u8], others: &[String]) -> Result<()> {
        let theirs = self.decode("list", chain)?;
        let expected = [others, &["istio-cni".to_owned()]].concat();
        ensure!(theirs.as_ref().is_ok_and(|(_, types)| *types == expected), "{}: {theirs:?}", chain.escape_ascii());
        Ok(())
    }
}

impl Drop for Libcni {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn types(answer: &Value) -> Vec<String> {
    answer["types"].as_array().into_iter().flatten().map(text).collect()
}

fn ours(kind: &str, content: &[u8]) -> Result<Accepted, Invalid> {
    match kind {
        "list" => match List::decode(content) {
            // `libcni` reads the directory of drop-in plugins later.
            Err(Invalid::DropInsOnly) => Ok((drop_in_directory(content).unwrap_or_default(), Vec::new())),
            list => list.map(|list| (list.name().to_owned(), list.kinds().map(str::to_owned).collect())),
        },
        "single" => Single::decode(content).map(|single| (String::new(), vec![single.kind().to_owned()])),
        _ => decode_drop_in(content).map(|kind| (String::new(), vec![kind])),
    }
}

fn known(libcni: &mut Libcni) -> Result<()> {
    let nested = |depth: usize| {
        let inner = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        [format!(r#"{{"name":"x","plugins":[{{"type":"a","x":{inner}}}]}}"#), format!(r#"{{"type":"a","x":{inner}}}"#)]
    };
    let large = format!(r#"{{"name":"x","plugins":[{{"type":"a","pad":"{}"}}]}}"#, "x".repeat(1_200_000));
    let depths = [9_996, 9_997, 9_998, 9_999, 10_000].into_iter().flat_map(nested);
    for text in KNOWN.iter().map(|text| (*text).to_owned()).chain(depths).chain([large]) {
        libcni.compare(text.as_bytes())?;
        // Members of a list are also tried in a plugin, and a list with a member of a plugin.
        libcni.compare(format!(r#"{{"type":"a",{}"#, text.trim_start_matches('{')).as_bytes())?;
    }
    for bytes in [
        &b"{\"name\":\"caf\xe9\",\"plugins\":[{\"type\":\"\xff\"}]}"[..],
        b"{\"name\":\"\xe2\x82\",\"plugins\":[{\"type\":\"a\"}]}",
        b"{\"nam\xe9\":\"x\",\"plugins\":[{\"type\":\"a\"}]}",
        b"\xef\xbb\xbf{\"name\":\"x\",\"plugins\":[{\"type\":\"a\"}]}",
        b"{\"name\":\"x\xed\xa0\x80\",\"plugins\":[{\"type\":\"a\"}]}\0",
    ] {
        libcni.compare(bytes)?;
    }
    Ok(())
}

/// Generates a JSON value, or bytes that are almost one.
fn value() -> impl Strategy<Value = Vec<u8>> + Clone {
    let scalar = prop::sample::select(vec![
        &b"null"[..],
        b"true",
        b"false",
        b"\"true\"",
        b"\"FALSE\"",
        b"\"x\"",
        b"\"\"",
        b"5",
        b"-0.5e3",
        b"1e999",
        b"\"caf\xe9\"",
        b"\"\\ud800\"",
        b"\"1.0.0\"",
        b"\"0.4\"",
        b"{\"type\":\"a\"}",
        b"[{\"type\":\"a\"}]",
        b"[\"1.1.0\"]",
    ]);
    let scalar = scalar.prop_map(<[u8]>::to_vec).boxed();
    scalar.prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3).prop_map(|all| between(b"[", &all, b"]"));
        prop_oneof![list, members(inner.boxed()).prop_map(|all| between(b"{", &all, b"}"))]
    })
}

fn between(open: &[u8], all: &[Vec<u8>], close: &[u8]) -> Vec<u8> {
    [open, &all.join(&b","[..]), close].concat()
}

fn members(value: BoxedStrategy<Vec<u8>>) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let key = prop::sample::select(vec![
        "name",
        "Name",
        "cniVersion",
        "cniversion",
        "cniVersions",
        "disableCheck",
        "disableGC",
        "loadOnlyInlinedPlugins",
        "plugins",
        "Plugins",
        "type",
        "TYPE",
        "typ\\u0065",
        "ipam",
        "dns",
        "dnſ",
        "capabilities",
        "prevResult",
        "nameservers",
        "domain",
        "search",
        "cni.dev/valid-attachments",
        "ifname",
        "x",
    ]);
    let member = (key, value).prop_map(|(key, value)| [&b"\""[..], key.as_bytes(), b"\":", &value].concat());
    prop::collection::vec(member, 0..3)
}

/// Generates documents. Most begin or end like a valid list or plugin; some have one changed byte.
fn document() -> impl Strategy<Value = Vec<u8>> {
    let plugin = members(value().boxed()).prop_map(|mut all| {
        all.push(b"\"type\":\"b\"".to_vec());
        between(b"\"plugins\":[{", &all, b"}]")
    });
    let valid = prop_oneof![
        3 => plugin.prop_map(|plugins| vec![b"\"name\":\"n\"".to_vec(), plugins]),
        2 => Just(vec![b"\"type\":\"a\"".to_vec()]),
        1 => Just(Vec::new()),
    ];
    let change = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>(), 0..3));
    let parts = (members(value().boxed()), valid, members(value().boxed()), change);
    parts.prop_map(|(before, valid, after, change)| {
        let mut text = between(b"{", &[before, valid, after].concat(), b"}");
        match change.map(|(at, byte, change)| (at.index(text.len()), byte, change)) {
            Some((at, byte, 0)) => text[at] = byte,
            Some((at, byte, 1)) => text.insert(at, byte),
            Some((at, ..)) => {
                text.remove(at);
            }
            None => {}
        }
        text
    })
}

fn random(libcni: &mut Libcni) -> Result<()> {
    let kept = FileFailurePersistence::Direct(concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/libcni.txt"));
    let config = Config { cases: 20_000, failure_persistence: Some(Box::new(kept)), ..Config::default() };
    let libcni = Mutex::new(libcni);
    let compare = |content: Vec<u8>| {
        let mut libcni = libcni.lock().map_err(|_| TestCaseError::fail("no response from Go"))?;
        libcni.compare(&content).map_err(|error| TestCaseError::fail(format!("{error:#}")))
    };
    TestRunner::new(config).run(&document(), compare).map_err(|error| anyhow::anyhow!("{error}"))
}

/// An entry in a directory of network configurations.
#[derive(Debug)]
enum Entry {
    File(&'static str),
    Link(&'static str),
    Directory,
    /// A directory with this file.
    DropIn(&'static str, &'static str),
}

/// The entries of a node's network directory, and the names of those that are obstacles.
struct Case(&'static [(&'static str, Entry)], &'static [&'static str]);

const OTHER: &str = r#"{"name":"other","plugins":[{"type":"bridge"}]}"#;
const BY_DIRECTORY: &str = r#"{"name":"other"}"#;
const DROP_IN: &str = r#"{"type":"bridge","mtu":1e999}"#;

const CASES: &[Case] = &[
    Case(&[], &[]),
    Case(&[("05-a.conflist", Entry::File(OTHER))], &[]),
    Case(&[("05-a.conflist", Entry::File(""))], &["05-a.conflist"]),
    Case(&[("05-a.conflist", Entry::File("{")), ("06-b.json", Entry::File("[]"))], &["05-a.conflist", "06-b.json"]),
    Case(&[("05-a.conf", Entry::File(OTHER))], &["05-a.conf"]),
    Case(&[("05-a.json", Entry::File(OTHER))], &["05-a.json"]),
    Case(&[("05-a.conf", Entry::File(r#"{"type":"bridge","name":5}"#))], &["05-a.conf"]),
    Case(&[("05-a.conflist", Entry::File(r#"{"name":"other","type":"bridge"}"#))], &["05-a.conflist"]),
    Case(&[("05-a.conf", Entry::File(r#"{"type":"bridge","name":"other"}"#))], &[]),
    Case(&[("05-a.conflist", Entry::Link("/proc/self/nowhere"))], &["05-a.conflist"]),
    Case(&[("05-a.conflist", Entry::Link("other")), ("other", Entry::Directory)], &["05-a.conflist"]),
    Case(&[("05-a.conflist", Entry::Link("x")), ("x", Entry::File(OTHER))], &[]),
    Case(&[("05-a.conflist", Entry::Directory), ("05-b.txt", Entry::File("{"))], &[]),
    Case(&[("20-a.conflist", Entry::File(""))], &[]),
    Case(&[("05-a.conflist", Entry::File(OTHER)), ("other", Entry::DropIn("x.conf", DROP_IN))], &[]),
    Case(&[("05-a.conflist", Entry::File(OTHER)), ("other", Entry::DropIn("x.conf", "{}"))], &["05-a.conflist"]),
    Case(&[("05-a.conflist", Entry::File(OTHER)), ("other", Entry::DropIn("x.json", "{}"))], &[]),
    Case(&[("05-a.conflist", Entry::File(OTHER)), ("other", Entry::File(""))], &["05-a.conflist"]),
    Case(&[("05-a.conflist", Entry::File(BY_DIRECTORY))], &["05-a.conflist"]),
    Case(&[("05-a.conflist", Entry::File(r#"{"name":"","plugins":[{"type":"bridge"}]}"#))], &[]),
    Case(
        &[
            ("05-a.conflist", Entry::File(r#"{"name":".","plugins":[{"type":"bridge"}]}"#)),
            ("20-b.conf", Entry::File("{}")),
        ],
        &["05-a.conflist"],
    ),
];

/// A node must be ready if and only if containerd loads a network. The first network that CRI-O does not skip must run the plugin. All
/// other files must stay the same.
fn directories(libcni: &mut Libcni) -> Result<()> {
    for Case(entries, expected) in CASES {
        let node = Node::new();
        node.network("10-net.conflist", LIST);
        for (name, entry) in *entries {
            create(&node, name, entry)?;
        }
        let question = json!({"dir": node.path("net")});
        let before = libcni.ask(&question)?;
        let Plan { obstacles, .. } = install(&node.chained());
        let after = libcni.ask(&question)?;
        let obstacles: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        let are_named = obstacles.len() == expected.len()
            && obstacles.iter().zip(*expected).all(|(obstacle, name)| obstacle.contains(name));
        ensure!(are_named, "{entries:?}: {obstacles:?} for {expected:?}");
        ensure!(obstacles.is_empty() == (before["error"] == ""), "{entries:?}: {obstacles:?}, go-cni's {before}");
        ensure!(
            (&before["error"], &before["name"]) == (&after["error"], &after["name"]),
            "{entries:?}: {before}, {after}"
        );
        let (first, mut chain) = (text(&after["file"]), types(&after));
        chain.retain(|kind| kind == "istio-cni");
        ensure!(chain == ["istio-cni"], "{entries:?}: CRI-O's {after}");
        for (name, entry) in *entries {
            let is_chained = first.split('.').next() == name.split('.').next();
            if let (Entry::File(content), false) = (entry, is_chained || first == "05-a.conflist") {
                ensure!(node.read(&format!("net/{name}")) == *content, "{entries:?}: {name} has changed");
            }
        }
    }
    Ok(())
}

fn create(node: &Node, name: &str, entry: &Entry) -> Result<()> {
    let path = node.path("net").join(name);
    match entry {
        Entry::File(content) => node.network(name, content),
        Entry::Link(target) => symlink(target, path)?,
        Entry::Directory => fs::create_dir(path)?,
        Entry::DropIn(file, content) => {
            fs::create_dir(&path)?;
            fs::write(path.join(file), content)?;
        }
    }
    Ok(())
}
