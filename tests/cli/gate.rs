//! Tests of the scripts of `make test`: the table of a gate, and the second try of failed trials. A script stands in for
//! Cargo and prints what a suite would print.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::files::sources;

const CARGO: &str = r#"#!/bin/sh
cd "${0%/*}"
echo "$*" >> calls
case "$*" in
*--list) cat list; cat list-errors >&2; exit "$(cat list-status)" ;;
*--exact*) cat again; exit "$(cat again-status)" ;;
*) cat all; exit "$(cat all-status)" ;;
esac
"#;

const PASSED_AGAIN: &str = "test result: ok. 1 passed; 0 failed\n";

/// A directory with a stand-in for Cargo, whose outputs are files.
struct Stage {
    dir: TempDir,
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/make")
}

/// Returns the output of a suite in which these trials failed, each with its error.
fn failures(failed: &[(&str, &str)]) -> String {
    let reports: Vec<String> = failed.iter().map(|(name, error)| format!("---- {name} ----\n{error}\n")).collect();
    let names: Vec<String> = failed.iter().map(|(name, _)| format!("    {name}\n")).collect();
    format!(
        "running 9 tests\n\nfailures:\n\n{}\n\nfailures:\n{}\ntest result: FAILED. 7 passed; {} failed; 0 ignored\n",
        reports.join("\n"),
        names.concat(),
        failed.len()
    )
}

impl Stage {
    /// Creates a suite that lists three tests and prints `all`; its failed trials print `again` when they run alone.
    fn new(all: (&str, i32), again: (&str, i32)) -> Self {
        let stage = Self { dir: tempfile::tempdir().unwrap() };
        stage.write("cargo", CARGO);
        fs::set_permissions(stage.path("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, (text, status)) in [("all", all), ("again", again), ("list", ("a: test\nb: test\nc: test\n", 0))] {
            stage.write(name, text);
            stage.write(&format!("{name}-status"), &status.to_string());
        }
        stage.write("list-errors", "");
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the exit code and the output of a script that has this directory as the gate's directory.
    fn run(&self, script: &str, args: &[&str]) -> (Option<i32>, String) {
        let path = format!("{}:{}", self.dir.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(scripts().join(script));
        command.args(args).env("PATH", path).env("GATE_DIR", self.dir.path());
        text(&command.output().unwrap())
    }

    fn suite(&self, name: &str) -> (Option<i32>, String) {
        self.run("suite", &[name, "3", "--include-ignored"])
    }

    /// Returns the number of trials that ran once more.
    fn second_tries(&self) -> usize {
        self.read("calls").matches("--exact").count()
    }
}

fn text(output: &Output) -> (Option<i32>, String) {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output.status.code(), out + &err)
}

#[test]
fn a_trial_that_passes_alone_is_named_with_its_first_error() {
    let all = failures(&[("pods_start", "timed out after 60 s; last seen: none"), ("pods_end", "no route to host")]);
    let stage = Stage::new((&all, 101), (PASSED_AGAIN, 0));
    let (code, printed) = stage.suite("cluster");
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(stage.second_tries(), 2, "{}", stage.read("calls"));
    let flaky = stage.read("flaky");
    assert_eq!(
        flaky,
        "FLAKY cluster/pods_end: no route to host\n\
         FLAKY cluster/pods_start: timed out after 60 s; last seen: none\n"
    );
    assert!(printed.contains("FLAKY cluster/pods_end"), "{printed}");
}

#[test]
fn a_trial_that_fails_alone_or_does_not_run_fails_the_suite() {
    let all = failures(&[("pods_start", "no route to host")]);
    for again in [("test result: FAILED. 0 passed; 1 failed\n", 101), ("test result: ok. 0 passed; 0 failed\n", 0)] {
        let stage = Stage::new((&all, 101), again);
        let (code, printed) = stage.suite("netns");
        assert_eq!((code, stage.second_tries()), (Some(1), 1), "{printed}");
        assert_eq!(stage.read("flaky"), "", "{printed}");
    }
}

#[test]
fn several_failures_with_a_common_cause_have_no_second_try() {
    let three = failures(&[("one", "no route"), ("two", "no address"), ("three", "no link")]);
    let same = failures(&[("one", "no route"), ("two", "no route")]);
    let one = failures(&[("one", "no route")]);
    let same_in_modules = failures(&[("ipv4::a", "no route"), ("ipv4::b: c", "no route")]);
    let no_message = failures(&[("one", ""), ("two", "")]);
    let cases =
        [("cri", &three), ("cri", &same), ("netns", &same_in_modules), ("netns", &no_message), ("inject", &one)];
    for (suite, all) in cases {
        let stage = Stage::new((all, 101), (PASSED_AGAIN, 0));
        let (code, printed) = stage.suite(suite);
        assert_eq!((code, stage.second_tries()), (Some(1), 0), "{suite}: {printed}");
    }
}

#[test]
fn a_suite_that_does_not_name_all_failed_trials_has_no_second_try() {
    let report_of_another = "running 9 tests\n---- a ----\nno route\n";
    let joined = failures(&[("one", "no route"), ("two", "no link")]).replace("\n---- two", "\nexiting---- two");
    for (all, status) in [("running 9 tests\n", 134), (report_of_another, 139), (&joined, 101)] {
        let stage = Stage::new((all, status), (PASSED_AGAIN, 0));
        let (code, printed) = stage.suite("netns");
        assert_eq!((code, stage.second_tries()), (Some(1), 0), "{printed}");
    }
}

#[test]
fn a_suite_that_succeeds_without_a_result_fails() {
    let stage = Stage::new(("running 9 tests\n....\n", 0), ("", 0));
    let (code, printed) = stage.suite("inject");
    assert_eq!(code, Some(1));
    assert!(printed.contains("✗ suite inject has ended without a result"), "{printed}");
    stage.write("all", "test result: ok. 9 passed; 0 failed\n");
    assert_eq!(stage.suite("inject").0, Some(0));
}

#[test]
fn every_suite_is_counted_and_runs() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let metadata: serde_json::Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let targets = metadata["packages"].as_array().unwrap().iter().flat_map(|of| of["targets"].as_array().unwrap());
    let suites = targets.filter(|target| target["kind"][0] == "test").map(|target| target["name"].as_str().unwrap());
    let counts = fs::read_to_string(scripts().join("../../counts")).unwrap();
    let counted = counts.lines().filter_map(|line| line.split(' ').next());
    assert_eq!(
        counted.collect::<BTreeSet<_>>(),
        suites.collect::<BTreeSet<_>>(),
        "tests/counts and the suites of Cargo.toml"
    );

    let stage = Stage::new(("test result: ok. 9 passed\n", 0), ("", 0));
    stage.write("counts", "netns 3\ncluster 3");
    let counts = stage.path("counts").display().to_string();
    let (code, printed) = stage.run("suites", &[&counts, "plugin", "netfilter"]);
    assert_eq!(code, Some(0), "{printed}");
    let of_the_plugin = "test --quiet --lib --package=plugin --package=netfilter\n";
    assert!(stage.read("calls").contains(of_the_plugin), "{}", stage.read("calls"));
    assert!(stage.read("passed").contains("✓ tests: cluster"), "{printed}");
    for missing in ["", "no-such-file"] {
        stage.write("counts", "");
        let (code, printed) = stage.run("suites", &[&format!("{counts}{missing}")]);
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains("lists no suites"), "{printed}");
    }
}

#[test]
fn the_kernels_run_for_code_that_exists() {
    let script = fs::read_to_string(scripts().join("../../../.ci/run")).unwrap();
    let names = script.lines().find_map(|line| line.strip_prefix("names=(")?.strip_suffix(')')).unwrap();
    assert!(names.split(' ').count() > 5, "{names}");
    let mut files = Vec::new();
    for directory in ["src", "crates"] {
        sources(Path::new(directory), &mut files);
    }
    let exists =
        |name: &&str| files.iter().any(|file| file.with_extension("").iter().any(|part| part.to_str() == Some(name)));
    let missing: Vec<&str> = names.split(' ').filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "no file or directory in src and crates is named {missing:?}");
}

#[test]
fn a_suite_with_removed_tests_or_a_build_error_does_not_run() {
    let stage = Stage::new(("", 0), ("", 0));
    let (code, printed) = stage.run("suite", &["netns", "4"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("suite netns lists 3 tests, fewer than 4"), "{printed}");

    stage.write("list-status", "101");
    stage.write("list-errors", "error[E0425]: cannot find value `x` in this scope\n");
    let (code, printed) = stage.suite("netns");
    assert_eq!(code, Some(1));
    for part in ["error[E0425]: cannot find value `x`", "suite netns cannot be listed"] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    assert!(!stage.read("calls").contains("--include-ignored"), "{}", stage.read("calls"));
}

#[test]
fn the_demo_runs_once_more_and_the_failure_is_named() {
    let stage = Stage::new(("", 0), ("", 0));
    let marker = stage.path("tried").display().to_string();
    let script = "[ -e \"$0\" ] && exit 0; touch \"$0\"; echo '✗ no address is left'; exit 1";
    let (code, printed) = stage.run("twice", &["demo", "sh", "-c", script, &marker]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(stage.read("flaky"), "FLAKY demo: ✗ no address is left\n");
    let (code, printed) = stage.run("twice", &["demo", "false"]);
    assert_eq!(code, Some(1), "{printed}");
}

#[test]
fn the_first_error_is_that_of_the_test_the_compiler_or_the_script() {
    let panic = "running 2 tests\n\nfailures:\n\n---- a::b stdout ----\n\n\
                 thread 'a::b' (12) panicked at src/a.rs:3:9:\nassertion failed: x\n\n---- a::c stdout ----\n\nlater\n";
    let cases = [
        (panic, "a::b: thread 'a::b' (12) panicked at src/a.rs:3:9: assertion failed: x\n"),
        (&failures(&[("ipv4/pods start", "no route\nsecond line")]), "ipv4/pods start: no route\n"),
        (
            "   Compiling x\nerror[E0425]: cannot find\n   --> src/a.rs:3:9\nerror: could not compile\n",
            "error[E0425]: cannot find --> src/a.rs:3:9\n",
        ),
        (
            "thread 'main' (7) panicked at src/b.rs:1:2:\nno node\nnote: run with\n",
            "thread 'main' (7) panicked at src/b.rs:1:2: no node\n",
        ),
        (
            "error: test failed, to rerun\n\nCaused by:\n  process didn't exit successfully: `x` (signal: 11, SIGSEGV)\n",
            "process didn't exit successfully: `x` (signal: 11, SIGSEGV)\n",
        ),
        ("---- nested ----\nignored\n\nfailures:\n\n---- a ----\n\nfailures:\n    a\n", "a: no message\n"),
        ("\x1b[1m\x1b[31merror\x1b[0m: no such crate\nlast\n", "error: no such crate\n"),
        ("  installing x\n✗ packages cannot be installed: x\nmore\n", "✗ packages cannot be installed: x\n"),
        ("first\nlast\n\n", "last\n"),
    ];
    let stage = Stage::new(("", 0), ("", 0));
    for (output, first) in cases {
        stage.write("output", output);
        let (_, printed) = stage.run("first-error", &[&stage.path("output").display().to_string()]);
        assert_eq!(printed, first, "{output}");
    }
}

#[test]
fn a_gate_goes_on_after_a_failure_and_ends_with_a_table() {
    let stage = Stage::new(("", 0), ("", 0));
    let phase = scripts().join("phase").display().to_string();
    let makefile = format!(
        "first:\n\t@{phase} 'good one' true\n\
         second:\n\t@{phase} 'bad one' sh -c 'echo \"✗ no disk is left\"; exit 3'\n\
         third:\n\t@echo 'FLAKY netns/x: y' >> $$GATE_DIR/flaky; {phase} 'good two' true\n\
         fourth:\n\t@false\n\
         fifth:\n\t@{phase} --silent 'a check' true; {phase} --silent 'a fetch' sh -c 'echo \"✗ no network\"; exit 4'\n"
    );
    stage.write("Makefile", &makefile);
    let mut command = Command::new(scripts().join("gate"));
    command.args(["first", "second", "third", "fourth", "fifth"]).current_dir(&stage.dir);
    command.env_remove("GATE_DIR").env("TOOLS", stage.path("tools"));
    let (code, printed) = text(&command.output().unwrap());
    assert_eq!(code, Some(1), "{printed}");
    let (_, table) =
        printed.split_once("phases of make first second third fourth fifth").unwrap_or_else(|| panic!("{printed}"));
    let rows = [
        "✗ bad one",
        "✗ no disk is left",
        "bad-one.log",
        "✗ make fourth",
        "✗ a fetch",
        "✗ no network",
        "✓ good one",
        "✓ good two",
        "FLAKY netns/x: y",
    ];
    let positions = rows.map(|row| table.find(row).unwrap_or_else(|| panic!("{row:?} is not in {table}")));
    assert!(positions.is_sorted(), "{table}");
    assert!(!printed.contains("a check"), "{printed}");
}

#[test]
fn a_gate_removes_outputs_of_a_week_ago() {
    let stage = Stage::new(("", 0), ("", 0));
    stage.write("Makefile", "all:\n\t@true\n");
    let log = stage.path("tools/log");
    for name in ["gate-old-1", "gate-new-2"] {
        fs::create_dir_all(log.join(name)).unwrap();
    }
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 24 * 3600);
    fs::File::open(log.join("gate-old-1")).unwrap().set_modified(old).unwrap();
    let mut command = Command::new(scripts().join("gate"));
    command.arg("all").current_dir(&stage.dir).env_remove("GATE_DIR").env("TOOLS", stage.path("tools"));
    let (code, printed) = text(&command.output().unwrap());
    assert_eq!(code, Some(0), "{printed}");
    assert!(!log.join("gate-old-1").exists(), "{printed}");
    assert!(log.join("gate-new-2").exists(), "{printed}");
}
