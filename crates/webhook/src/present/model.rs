//! Tests certificate rotation with a model: two replicas share a Secret and a caBundle. They crash between any two
//! steps, lose the connection to the API server, and continue with objects that they read before.
//!
//! [`Network`] is the model: the time, and which replicas reach the API server. [`Cluster`] holds the Secret, the
//! configuration and the replicas, which use the deciding functions of `certificates` and `present`.

use std::collections::VecDeque;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use serde_json::json;

use super::super::certificates;
use super::super::issue::{Issued, Lifetime};
use super::super::presentation::{Choice, Presentation};
use super::*;

const LIFETIME: Lifetime = Lifetime(Duration::from_secs(600));
const SETTLE: Duration = Duration::from_secs(10);
/// The time after which no API server uses a former caBundle; less than [`SETTLE`].
const LAG: Duration = Duration::from_secs(5);
/// The time between two turns. In a turn, each replica performs all steps.
const TURN: Duration = Duration::from_secs(5);
/// The time without the API server after which a replica may present an expired certificate: a third of [`LIFETIME`],
/// which remains when a certificate is due for renewal, minus two turns.
const OUTAGE: Duration = Duration::from_secs(190);

#[derive(Debug, Clone)]
struct Network {
    now: Duration,
    /// For each replica, the time since which it does not reach the API server; `None` if it does.
    lost: [Option<Duration>; 2],
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Load,
    Save,
    List,
    Decide,
    Patch,
    Present,
}

#[derive(Debug, Clone)]
enum Event {
    /// Time passes: after each [`TURN`], each replica performs all steps.
    Wait(Duration),
    /// One step of one replica.
    One(usize, Step),
    Crash(usize),
    Lose(usize),
    Reach(usize),
}

impl ReferenceStateMachine for Network {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self { now: Duration::ZERO, lost: [None, None] }).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Event> {
        let step = proptest::sample::select(
            &[Step::Load, Step::Save, Step::List, Step::Decide, Step::Patch, Step::Present][..],
        );
        let replica = 0..2_usize;
        prop_oneof![
            3 => (1..120_u64).prop_map(|seconds| Event::Wait(Duration::from_secs(seconds))),
            12 => (replica.clone(), step).prop_map(|(replica, step)| Event::One(replica, step)),
            2 => replica.clone().prop_map(Event::Crash),
            2 => replica.clone().prop_map(Event::Lose),
            2 => replica.prop_map(Event::Reach),
        ]
        .boxed()
    }

    fn apply(mut network: Self, event: &Event) -> Self {
        match event {
            Event::Wait(time) => network.now += *time,
            Event::Lose(replica) => {
                network.lost[*replica].get_or_insert(network.now);
            }
            Event::Reach(replica) => network.lost[*replica] = None,
            Event::One(..) | Event::Crash(_) => {}
        }
        network
    }
}

/// The API server's objects, the replicas, and the caBundles that API servers may use.
struct Cluster {
    now: Duration,
    start: Instant,
    secret: (u32, Option<Issued>),
    configuration: MutatingWebhookConfiguration,
    version: u32,
    /// The configurations that were replaced within the last [`LAG`], with the times of the replacement. API servers
    /// may still use them.
    former: VecDeque<(Duration, MutatingWebhookConfiguration)>,
    replicas: [Replica; 2],
    /// Patches that were applied.
    patches: u32,
}

struct Replica {
    newest: Option<Arc<Identity>>,
    /// A new certificate, with the version of the Secret that it replaces.
    made: Option<(u32, Issued)>,
    patches: Vec<BundlePatch>,
    watched: Watched,
    presentation: Presentation,
    /// Whether all API servers trusted the presented certificate at the last check.
    is_trusted: bool,
}

impl Replica {
    fn new() -> Self {
        let selection = Selection { name: "i".into(), labels: String::new(), webhook: "i.example.com".into() };
        Self {
            newest: None,
            made: None,
            patches: Vec::new(),
            watched: Watched::new(selection, false),
            presentation: Presentation::new(SETTLE),
            is_trusted: false,
        }
    }
}

fn names() -> Vec<String> {
    vec!["injector.istio-system.svc".to_owned()]
}

fn hooks(replica: &Replica, configuration: &MutatingWebhookConfiguration) -> Vec<Hook> {
    replica.watched.selection.hooks([configuration])
}

impl Cluster {
    fn new() -> Self {
        let configuration = json!({ "metadata": { "name": "i", "resourceVersion": "0" }, "webhooks": [{
            "name": "i.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": { "name": "injector", "namespace": "istio-system" } },
        }]});
        Self {
            now: Duration::ZERO,
            start: Instant::now(),
            secret: (0, None),
            configuration: serde_json::from_value(configuration).unwrap(),
            version: 0,
            former: VecDeque::new(),
            replicas: [Replica::new(), Replica::new()],
            patches: 0,
        }
    }

    fn unix(&self) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000) + self.now)
    }

    fn perform(&mut self, at: usize, step: Step, is_lost: bool) {
        match step {
            Step::Load if !is_lost => self.load(at),
            Step::Save if !is_lost => self.save(at),
            Step::List if !is_lost => {
                let watched = &mut self.replicas[at].watched;
                watched.known = BTreeMap::from([("i".to_owned(), self.configuration.clone())]);
                watched.listed = true;
            }
            Step::Patch if !is_lost => self.patch(at),
            Step::Decide => self.decide(at),
            Step::Present => self.present(at),
            Step::Load | Step::Save | Step::List | Step::Patch => {}
        }
    }

    fn load(&mut self, at: usize) {
        let step = certificates::next(self.secret.1.as_ref(), &names(), LIFETIME, self.unix()).unwrap();
        let replica = &mut self.replicas[at];
        replica.made = None;
        match step {
            certificates::Step::Store(made) => replica.made = Some((self.secret.0, made)),
            certificates::Step::Use(identity) => replica.renew(identity),
        }
    }

    fn save(&mut self, at: usize) {
        let Some((read, made)) = self.replicas[at].made.take() else { return };
        // If another replica has written the Secret since, the API server responds with a conflict, and the replica
        // loads the Secret again.
        if read == self.secret.0 {
            let identity = made.identity().unwrap();
            self.secret = (read + 1, Some(made));
            self.replicas[at].renew(identity);
        }
    }

    fn decide(&mut self, at: usize) {
        let now = self.unix();
        let replica = &mut self.replicas[at];
        if let Some(newest) = replica.newest.clone().filter(|_| replica.watched.listed) {
            replica.patches = replica.watched.patches(&newest, now);
        }
    }

    fn patch(&mut self, at: usize) {
        for BundlePatch { patch, .. } in std::mem::take(&mut self.replicas[at].patches) {
            let mut object = serde_json::to_value(&self.configuration).unwrap();
            let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
            // A patch tests the version that the replica has read, so it fails if the configuration has changed since.
            if json_patch::patch(&mut object, &patch).is_err() {
                continue;
            }
            self.version += 1;
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            let written: MutatingWebhookConfiguration = serde_json::from_value(object).unwrap();
            self.former.push_back((self.now, std::mem::replace(&mut self.configuration, written.clone())));
            self.replicas[at].watched.known.insert("i".to_owned(), written);
            self.patches += 1;
        }
    }

    fn present(&mut self, at: usize) {
        let (now, clock) = (self.unix(), self.start + self.now);
        let was_trusted = self.replicas[at].is_trusted;
        let replica = &mut self.replicas[at];
        let Some(newest) = replica.newest.clone() else { return };
        let hooks = replica.watched.listed.then(|| replica.watched.hooks());
        if replica.presentation.choose(&newest, hooks.as_deref(), now, clock) == Choice::Present {
            let is_trusted = self.is_trusted(at);
            assert!(is_trusted || !was_trusted, "replica {at} replaces a trusted certificate by one that is not");
            self.replicas[at].is_trusted = is_trusted;
        }
    }

    /// Whether every API server trusts the certificate that the replica presents.
    fn is_trusted(&self, at: usize) -> bool {
        let replica = &self.replicas[at];
        let former = self.former.iter().map(|(_, configuration)| configuration);
        replica.presentation.presented().is_some_and(|presented| {
            let mut used = former.chain([&self.configuration]);
            used.all(|used| bundle::verify(presented, &hooks(replica, used), self.unix()).is_ok())
        })
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
        let oldest = self.now.saturating_sub(LAG);
        self.former.retain(|(replaced, _)| *replaced > oldest);
    }

    fn turn(&mut self, lost: [bool; 2]) {
        self.advance(TURN);
        for (at, is_lost) in lost.into_iter().enumerate() {
            for step in [Step::Load, Step::Save, Step::Load, Step::List, Step::Decide, Step::Patch, Step::Present] {
                self.perform(at, step, is_lost);
            }
        }
        self.check([false; 2]);
    }

    /// Checks that a certificate that API servers trust stays trusted until the replica presents another one. The
    /// certificate of a replica in `is_exempt` may lose this trust.
    fn check(&mut self, is_exempt: [bool; 2]) {
        for (at, is_exempt) in is_exempt.into_iter().enumerate() {
            let is_trusted = self.is_trusted(at);
            let replica = &mut self.replicas[at];
            assert!(is_trusted || !replica.is_trusted || is_exempt, "API servers no longer trust replica {at}");
            replica.is_trusted = is_trusted;
        }
    }
}

impl Replica {
    fn renew(&mut self, identity: Identity) {
        if self.newest.as_ref().is_none_or(|known| !known.is_same(&identity)) {
            self.newest = Some(Arc::new(identity));
            self.presentation.renew();
            self.watched.renew();
        }
    }
}

struct Rotation;

impl StateMachineTest for Rotation {
    type SystemUnderTest = Cluster;
    type Reference = Network;

    fn init_test(_: &Network) -> Cluster {
        Cluster::new()
    }

    fn apply(mut cluster: Cluster, network: &Network, event: Event) -> Cluster {
        let is_lost = network.lost.map(|since| since.is_some());
        match event {
            Event::Wait(_) => {
                while cluster.now + TURN <= network.now {
                    // A replica that has not reached the API server for longer than [`OUTAGE`] cannot renew its
                    // certificate, which may then expire.
                    let is_old = |since: Duration| (cluster.now + TURN).saturating_sub(since) > OUTAGE;
                    for (replica, since) in cluster.replicas.iter_mut().zip(network.lost) {
                        replica.is_trusted &= !since.is_some_and(is_old);
                    }
                    cluster.turn(is_lost);
                }
                let rest = network.now.saturating_sub(cluster.now);
                cluster.advance(rest);
            }
            Event::One(at, step) => cluster.perform(at, step, is_lost[at]),
            Event::Crash(at) => cluster.replicas[at] = Replica::new(),
            Event::Lose(_) | Event::Reach(_) => {}
        }
        let is_old = network.lost.map(|since| since.is_some_and(|since| cluster.now.saturating_sub(since) > OUTAGE));
        cluster.check(is_old);
        cluster
    }

    /// Checks that replicas that reach the API server agree on one certificate, which is trusted and does not expire
    /// soon, and stop sending patches.
    fn teardown(mut cluster: Cluster, _: Network) {
        for replica in &mut cluster.replicas {
            replica.is_trusted = false;
        }
        let settled = |cluster: &mut Cluster| {
            let (version, patches) = (cluster.secret.0, cluster.patches);
            (0..6).for_each(|_| cluster.turn([false; 2]));
            (version == cluster.secret.0).then_some(patches)
        };
        // In the first turns a certificate may be renewed, which requires patches, so these patches are not counted.
        let _ = settled(&mut cluster);
        let patches = settled(&mut cluster).or_else(|| settled(&mut cluster)).unwrap();
        assert_eq!(cluster.patches, patches, "replicas patch against each other");
        let stored = cluster.secret.1.clone().unwrap();
        stored.lasts(&names(), LIFETIME, cluster.unix()).unwrap();
        for (at, replica) in cluster.replicas.iter().enumerate() {
            let presented = replica.presentation.presented().unwrap();
            assert!(presented.is_same(&stored.identity().unwrap()), "replica {at} presents another certificate");
            assert!(cluster.is_trusted(at), "replica {at} is not trusted");
        }
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn api_servers_trust_what_replicas_present_whatever_happens(sequential 1..50 => Rotation);
}

/// Tests a replica that reads the Secret before a rotation, and the configuration after it.
#[test]
fn a_replica_that_is_behind_does_not_overwrite_a_newer_bundle() {
    let mut cluster = Cluster::new();
    (0..10).for_each(|_| cluster.turn([false; 2]));
    cluster.replicas[1] = Replica::new();
    cluster.perform(1, Step::Load, false);
    (0..100).for_each(|_| cluster.turn([false, true]));
    for step in [Step::List, Step::Decide, Step::Patch] {
        cluster.perform(1, step, false);
        cluster.check([false; 2]);
    }
    assert!(cluster.replicas[0].is_trusted);
}
