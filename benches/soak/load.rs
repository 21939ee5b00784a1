//! Generates the load of a soak run, at a separate rate for each kind of work: pods, reviews, rotations of certificate
//! and token, and disturbances.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::api::Api;
use test_support::client::Connection;
use test_support::daemon::{Node, pod, until};
use test_support::netns::TestNetns;
use test_support::plugin::{Call, conf};

use crate::count;
use crate::injector::Injector;

/// The number of reviews on one connection.
const REVIEWS_PER_CONNECTION: u64 = 20;

pub(crate) struct Load<'a> {
    pub(crate) api: &'a Api,
    pub(crate) node: &'a Node,
    pub(crate) injector: &'a Injector,
    /// Set at the end of the run; all kinds of work then stop.
    pub(crate) done: AtomicBool,
}

/// The number of finished units of each kind of work.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) pods: AtomicU64,
    pub(crate) reviews: AtomicU64,
    pub(crate) rotations: AtomicU64,
    pub(crate) disturbances: AtomicU64,
}

/// A limit on the rate of a kind of work: the minimum time from one unit to the next.
#[derive(Clone, Copy)]
pub(crate) struct Rate(Duration);

impl Rate {
    pub(crate) fn each_second(units: u32) -> Self {
        Self(Duration::from_secs(1) / units)
    }

    /// Returns the pause before the next unit, for a unit that began at `begin`.
    fn rest(self, begin: Instant) -> Duration {
        self.0.saturating_sub(begin.elapsed())
    }
}

impl Load<'_> {
    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// Runs a unit of work repeatedly, at most at this rate, until the run is done.
    fn repeat(&self, rate: Rate, counter: &AtomicU64, mut unit: impl FnMut(u64)) {
        for number in 0.. {
            let begin = Instant::now();
            if self.is_done() {
                return;
            }
            unit(number);
            count(counter);
            thread::sleep(rate.rest(begin));
        }
    }

    /// Creates pods, each with a netns, calls the plugin's ADD, CHECK and DEL, and deletes them.
    pub(crate) fn pods(&self, rate: Rate, counter: &AtomicU64) {
        self.repeat(rate, counter, |number| {
            let (name, uid) = (format!("web-{number}"), format!("uid-{number}"));
            self.api.put(pod(&name, &uid));
            let netns = TestNetns::new();
            let link = "link add eth0 type veth peer name peer0\nlink set eth0 up\naddress add 10.9.0.2/24 dev eth0\n";
            netns.feed("ip", &["-batch", "-"], link);
            let mut conf: Value = serde_json::from_str(&conf("1.0.0", &self.node.path("run"), &json!({}))).unwrap();
            conf["prevResult"] = json!({ "cniVersion": "1.0.0", "ips": [{ "address": "10.9.0.2/24" }] });
            let id = format!("K8S_POD_UID={uid};IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name}");
            for verb in ["ADD", "CHECK", "DEL"] {
                let call = Call::new(verb, netns.path().to_str().unwrap(), conf.to_string());
                let reply = call.env("CNI_ARGS", &id).env("CNI_CONTAINERID", &uid).run();
                assert_eq!(reply.code, 0, "{verb} of {name}: {reply:?}");
            }
            assert!(netns.run("nft", &["list", "ruleset"]).contains("ISTIO_REDIRECT"), "{name} is not redirected");
            self.api.remove("pods", "shop", &name);
        });
    }

    /// Sends reviews, [`REVIEWS_PER_CONNECTION`] on each connection.
    pub(crate) async fn reviews(&self, rate: Rate, counter: &AtomicU64) {
        while !self.is_done() {
            let mut connection = Connection::open(self.injector.address, &self.injector.trust()).await.unwrap();
            for number in 0..REVIEWS_PER_CONNECTION {
                let begin = Instant::now();
                let review = connection.review("/inject", &review(counter.load(Ordering::Relaxed) + number)).await;
                let patch = &review.unwrap()["response"]["patch"];
                assert!(patch.as_str().is_some_and(|patch| patch.len() > 1000), "no patch: {patch}");
                count(counter);
                tokio::time::sleep(rate.rest(begin)).await;
            }
        }
    }

    /// Rotates the injector's certificate and the agent's token.
    pub(crate) fn rotations(&self, counter: &AtomicU64) {
        self.repeat(Rate(Duration::from_secs(3)), counter, |number| {
            self.injector.rotate();
            let (token, new) = (self.node.path("account/token"), self.node.path("account/new"));
            fs::write(&new, format!("token-{number}")).unwrap();
            fs::rename(&new, token).unwrap();
        });
    }

    /// Removes the chain entry, which the agent must restore, and ends or expires the watches of the API server.
    pub(crate) fn disturbances(&self, counter: &AtomicU64) {
        self.repeat(Rate(Duration::from_secs(5)), counter, |number| {
            self.node.remove_entry();
            let list = self.node.path("net/10-net.conflist");
            until("the chain entry", || {
                let text = fs::read_to_string(&list).map_err(|error| error.to_string())?;
                if text.contains("istio-cni") { Ok(()) } else { Err(text) }
            });
            match number % 4 {
                0 => self.api.expire_watches(),
                2 => self.api.break_watches(),
                _ => self.api.bookmark(),
            }
        });
    }
}

/// Returns a review for one of 1000 workloads, too many for the injector's caches.
fn review(number: u64) -> Value {
    let image = format!("registry.example.com/app-{}:1", number % 1000);
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": format!("u-{number}"), "namespace": "shop", "operation": "CREATE",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "apiVersion": "v1", "kind": "Pod",
                "metadata": { "generateName": "web-", "labels": { "app": format!("web-{}", number % 1000) } },
                "spec": { "containers": [{ "name": "app", "image": image }] } },
        },
    })
}
