//! Runs the plugin's binary as a container runtime does.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::program::under_test;

/// The exit code and the output of a plugin call.
#[derive(Debug)]
pub struct Reply {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Reply {
    /// Parses standard output as one JSON document. Like a container runtime, fails if there is any other output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("stdout is not one JSON document: {e}: {self:?}"))
    }

    /// Returns the error's message and details; asserts that the call failed with this code.
    pub fn error(&self, code: u64) -> String {
        assert_eq!(self.code, 1, "exit code: {self:?}");
        let json = self.json();
        assert_eq!(json["code"], code, "{self:?}");
        format!("{} {}", json["msg"].as_str().unwrap(), json["details"].as_str().unwrap_or(""))
    }
}

/// A call of the plugin.
pub struct Call {
    program: Vec<String>,
    env: Vec<(String, OsString)>,
    stdin: Vec<u8>,
}

impl Call {
    /// Creates a call with containerd's variables for the pod `shop/web-0`.
    pub fn new(verb: &str, netns: &str, stdin: impl Into<Vec<u8>>) -> Self {
        let program = vec![under_test("istio-cni").display().to_string()];
        let call = Self { program, env: Vec::new(), stdin: stdin.into() };
        call.env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", "0123456789abcdef")
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_ARGS", "K8S_POD_UID=uid-1;IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0")
    }

    /// Sets or replaces a variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.retain(|(k, _)| k != key);
        self.env.push((key.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs the plugin through a program with these arguments.
    pub fn under(mut self, program: &[&str]) -> Self {
        self.program.splice(..0, program.iter().map(|&word| word.to_owned()));
        self
    }

    /// Runs the plugin.
    pub fn run(self) -> Reply {
        let mut child = Command::new(&self.program[0])
            .args(&self.program[1..])
            .env_clear()
            .envs(self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The plugin may fail before it has read all of its input.
        let _ = child.stdin.take().unwrap().write_all(&self.stdin);
        let out = child.wait_with_output().unwrap();
        Reply {
            code: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8(out.stdout).unwrap(),
            stderr: String::from_utf8(out.stderr).unwrap(),
        }
    }
}

/// Returns a network configuration as the runtime passes it, with additional keys.
pub fn conf(version: &str, run_dir: &Path, more: &Value) -> String {
    let mut conf = serde_json::json!({
        "cniVersion": version, "name": "k8s-pod-network", "type": "istio-cni",
        "cni_agent_run_dir": run_dir, "exclude_namespaces": ["kube-system"], "pod_namespace": "istio-system",
    });
    conf.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    conf.to_string()
}
