//! Stores the plugin's latest verdict about each pod, taken from the plugin's log lines, and the latest of these lines.
//! The node's status report contains both. Also stores whether the plugin lacks a backend, which makes the agent not ready.
//!
//! `sockets` records the lines; `daemon` reads the verdicts. The number of pods and the sizes of strings are limited.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use serve::log::{Line, Record, printable_line};
use serve::recent::Recent;
use tokio::sync::watch;

use super::relay::{self, Sample};

/// The maximum number of pods. Further ones replace those with the oldest verdicts.
const MAX_PODS: usize = 1024;
/// The number of log lines that are kept.
const LINES: usize = 50;
/// The size limit of a pod's name, with its namespace, and of a UID, in bytes. The verdict about a pod with a longer name is not
/// recorded; a longer UID is treated as missing.
const NAME: usize = 320;

/// The outcome of an ADD.
#[derive(Debug, Clone, PartialEq)]
pub struct Added {
    pub time: Timestamp,
    /// Empty if the runtime passed none.
    pub uid: String,
    pub sample: Sample,
    /// The backend that programmed the rules.
    pub backend: Option<String>,
    /// The error of a failed ADD, or the differences that the latest CHECK found.
    pub problem: Option<Problem>,
}

/// A problem of a pod that the plugin reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// ADD failed.
    Failed(String),
    /// CHECK found differences.
    Differs(String),
}

/// The plugin's report that no backend is available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoBackend {
    pub time: Timestamp,
    /// What is missing. The string does not depend on the pod.
    pub lack: String,
}

/// The verdicts and lines of one agent; clones share them.
#[derive(Debug, Clone)]
pub struct Verdicts {
    no_backend: watch::Sender<Option<NoBackend>>,
    pods: Arc<Mutex<BTreeMap<String, Added>>>,
    lines: Recent<Line>,
}

impl Default for Verdicts {
    fn default() -> Self {
        Self { no_backend: watch::Sender::default(), pods: Arc::default(), lines: Recent::new(LINES) }
    }
}

impl Verdicts {
    /// Records a line of the plugin.
    pub(super) fn record(&self, record: &Record) {
        if relay::is_logged(record) {
            self.lines.push(record.line());
        }
        self.record_backend(record);
        let text = |key: &str| record.fields.get(key).and_then(Value::as_str).filter(|text| text.len() <= NAME);
        let Some(pod) = text("pod") else { return };
        if let Some(sample) = relay::sample(record) {
            let problem = (sample.verdict == "failed").then(|| Problem::Failed(record.message_line()));
            let (uid, backend) = (text("uid").unwrap_or_default().to_owned(), text("backend").map(relay::label));
            self.insert(pod, Added { time: record.time, uid, sample, backend, problem });
        } else if text("cmd") == Some("CHECK")
            && let Some(added) = self.pods().get_mut(pod)
            && text("uid").is_none_or(|uid| added.uid.is_empty() || added.uid == uid)
        {
            match (text("verdict"), text("reason")) {
                (_, Some(contract::DIFFERS | contract::NOT_REDIRECTED)) => {
                    added.problem = Some(Problem::Differs(record.message_line()));
                }
                (Some("verified" | "skipped"), _) => added.problem = None,
                // CHECK did not compare the pod's rules, so the former result stays.
                _ => {}
            }
        }
    }

    /// Records whether the plugin has a backend, as its lines about STATUS and ADD report.
    fn record_backend(&self, record: &Record) {
        let text = |key: &str| record.fields.get(key).and_then(Value::as_str);
        let found = match (text("cmd"), text("reason"), text("verdict")) {
            (Some("ADD" | "STATUS"), Some(contract::NO_BACKEND), _) => {
                let Some(lack) = text(contract::LACK).map(printable_line) else { return };
                Some(NoBackend { time: record.time, lack })
            }
            (Some("ADD"), _, Some("redirected")) | (Some("STATUS"), _, Some("available")) => None,
            _ => return,
        };
        self.no_backend.send_if_modified(|last| {
            let is_news = last.as_ref().map(|last| &last.lack) != found.as_ref().map(|found| &found.lack);
            *last = found;
            is_news
        });
    }

    /// Returns a receiver of the plugin's latest report about the backend; `None` if the plugin has one, or has not reported yet.
    pub fn no_backend(&self) -> watch::Receiver<Option<NoBackend>> {
        self.no_backend.subscribe()
    }

    fn insert(&self, pod: &str, added: Added) {
        let mut pods = self.pods();
        if pods.len() >= MAX_PODS
            && !pods.contains_key(pod)
            && let Some(oldest) = pods.iter().min_by_key(|(_, added)| added.time).map(|(pod, _)| pod.clone())
        {
            pods.remove(&oldest);
        }
        pods.insert(pod.to_owned(), added);
    }

    /// Returns the outcome of the latest ADD of a pod; `None` if this agent has no line about the pod, or only about an
    /// earlier pod of the same name.
    pub fn of(&self, pod: &str, uid: &str) -> Option<Added> {
        self.pods().get(pod).filter(|added| added.uid.is_empty() || added.uid == uid).cloned()
    }

    /// Returns the backend of the latest redirection.
    pub fn backend(&self) -> Option<String> {
        let pods = self.pods();
        let latest = pods.values().filter(|added| added.backend.is_some()).max_by_key(|added| added.time)?;
        latest.backend.clone()
    }

    /// Returns the latest lines, the latest one first.
    pub fn lines(&self) -> Vec<Line> {
        self.lines.latest_first()
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Added>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(verdicts: &Verdicts, fields: &Value) {
        let mut line = json!({ "level": "info", "msg": "m\u{1b}" });
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let body = serde_json::to_vec(&[line.to_string()]).unwrap();
        for record in relay::records(&body, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap() {
            verdicts.record(&record);
        }
    }

    fn add(pod: &str, uid: &str, second: usize) -> Value {
        let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
        json!({ "cmd": "ADD", "pod": pod, "uid": uid, "time": time, "verdict": "redirected", "change": "created",
                "backend": "iptables-nft", "elapsed_us": 2500 })
    }

    #[test]
    fn the_latest_add_of_a_pod_is_kept_for_its_uid() {
        let verdicts = Verdicts::default();
        record(&verdicts, &add("shop/web-0", "u1", 1));
        let added = verdicts.of("shop/web-0", "u1").unwrap();
        assert_eq!((added.sample.verdict.as_str(), added.sample.seconds), ("redirected", 0.0025));
        assert_eq!(
            (added.backend.as_deref(), verdicts.backend().as_deref()),
            (Some("iptables-nft"), Some("iptables-nft"))
        );
        assert_eq!(verdicts.of("shop/web-0", "u2"), None);
        assert_eq!(verdicts.of("shop/web-1", "u1"), None);
    }

    #[test]
    fn a_failure_and_a_difference_are_problems_of_the_pod() {
        let verdicts = Verdicts::default();
        let mut failed = add("shop/web-0", "u1", 1);
        failed["verdict"] = "failed".into();
        failed["reason"] = "converge".into();
        record(&verdicts, &failed);
        assert_eq!(verdicts.of("shop/web-0", "u1").unwrap().problem, Some(Problem::Failed("m\\u{1b}".into())));
        record(&verdicts, &add("shop/web-0", "u1", 2));
        assert_eq!(verdicts.of("shop/web-0", "u1").unwrap().problem, None);
        let problem = || verdicts.of("shop/web-0", "u1").unwrap().problem;
        let differs = Some(Problem::Differs("m\\u{1b}".into()));
        for (verdict, reason) in [("failed", contract::NOT_REDIRECTED), ("verified", contract::DIFFERS)] {
            record(&verdicts, &add("shop/web-0", "u1", 3));
            record(&verdicts, &json!({ "cmd": "CHECK", "pod": "shop/web-0", "verdict": verdict, "reason": reason }));
            assert_eq!(problem(), differs, "{reason}");
        }
        record(&verdicts, &json!({ "cmd": "CHECK", "pod": "shop/web-0", "verdict": "unverified", "reason": "lookup" }));
        assert_eq!(problem(), differs, "nothing was compared");
        let verified = |uid: &str| json!({ "cmd": "CHECK", "pod": "shop/web-0", "uid": uid, "verdict": "verified", "unlogged": true });
        record(&verdicts, &verified("u0"));
        assert_eq!(problem(), differs, "the CHECK of a former pod");
        let lines = verdicts.lines().len();
        record(&verdicts, &verified("u1"));
        assert_eq!((problem(), verdicts.lines().len()), (None, lines));
    }

    #[test]
    fn a_missing_backend_is_known_until_the_plugin_has_one() {
        let verdicts = Verdicts::default();
        let reported = verdicts.no_backend();
        let failed = |cmd: &str| json!({ "cmd": cmd, "verdict": "failed", "reason": "no_backend", "lack": "l\u{1b}" });
        let available = json!({ "cmd": "STATUS", "verdict": "available", "unlogged": true });
        for (lacks, has) in [(failed("STATUS"), available), (failed("ADD"), add("shop/web-0", "u1", 1))] {
            record(&verdicts, &lacks);
            assert_eq!(reported.borrow().as_ref().map(|found| found.lack.as_str()), Some("l\\u{1b}"), "{lacks}");
            record(&verdicts, &json!({ "cmd": "ADD", "verdict": "failed", "reason": "lookup" }));
            assert!(reported.borrow().is_some(), "another failure says nothing about the backend");
            record(&verdicts, &has);
            assert_eq!(*reported.borrow(), None, "{has}");
        }
    }

    #[test]
    fn the_same_lack_of_another_pod_is_no_news() {
        let verdicts = Verdicts::default();
        let mut reported = verdicts.no_backend();
        let lacks = |pod: &str, lack: &str| {
            let line = json!({ "cmd": "ADD", "pod": pod, "verdict": "failed", "reason": "no_backend", "lack": lack });
            record(&verdicts, &line);
        };
        lacks("shop/web-0", "no program");
        assert!(reported.has_changed().unwrap());
        reported.mark_unchanged();
        lacks("shop/web-1", "no program");
        assert!(!reported.has_changed().unwrap());
        lacks("shop/web-1", "no nf_tables");
        assert!(reported.has_changed().unwrap());
    }

    #[test]
    fn pods_lines_and_names_are_limited() {
        let verdicts = Verdicts::default();
        for number in 0..=MAX_PODS {
            record(&verdicts, &add(&format!("shop/web-{number}"), "u", number));
        }
        assert_eq!((verdicts.pods().len(), verdicts.lines().len()), (MAX_PODS, LINES));
        assert_eq!(verdicts.of("shop/web-0", "u"), None, "the oldest one is replaced");
        assert!(verdicts.of("shop/web-1", "u").is_some());
        let long = "x".repeat(NAME + 1);
        record(&verdicts, &add(&long, "u", 5000));
        assert_eq!(verdicts.of(&long, "u"), None);
    }
}
