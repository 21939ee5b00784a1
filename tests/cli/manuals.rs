//! Tests of the man pages and shell completions that `make man` writes.

use std::fs;
use std::process::Command;

use test_support::program::{built, under_test};

#[test]
fn each_program_has_a_page_with_its_flags_and_completions() {
    let dir = tempfile::tempdir().unwrap();
    let written = Command::new(built("manuals")).arg(dir.path()).output().unwrap();
    assert!(written.status.success(), "{written:?}");
    let read =
        |file: String| fs::read_to_string(dir.path().join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    for (program, flag) in [
        ("install-cni", "node-name"),
        ("sidecar-injector", "kubeconfig"),
        ("istio-iptables", "proxy-uid"),
        ("istio-cnictl", "help"),
    ] {
        let page = read(format!("man1/{program}.1")).replace("\\-", "-");
        assert!(page.contains(&format!("--{flag}")), "{program}: {page}");
        for file in [format!("bash/{program}.bash"), format!("zsh/_{program}"), format!("fish/{program}.fish")] {
            assert!(read(file).contains(flag), "{program}");
        }
    }
    let page = read("man1/istio-cnictl-explain.1".to_owned()).replace("\\-", "-");
    assert!(page.contains("istio-cnictl explain web-0 -n shop"), "the page has no examples: {page}");
}

#[test]
fn the_program_completes_its_own_commands_in_bash() {
    let script = "source <(\"$0\" completion bash)
        COMP_WORDS=(istio-cnictl kube-i) COMP_CWORD=1
        _istio__cnictl istio-cnictl kube-i istio-cnictl
        echo \"${COMPREPLY[@]}\"";
    let done = Command::new("bash").args(["-c", script]).arg(under_test("istio-cnictl")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "kube-inject\n", "{}", String::from_utf8_lossy(&done.stderr));
    for shell in ["zsh", "fish"] {
        let done = Command::new(under_test("istio-cnictl")).args(["completion", shell]).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(text.contains("kube-inject") && text.contains("injectConfigFile"), "{shell}: {text}");
    }
}
