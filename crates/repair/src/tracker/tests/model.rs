//! A model of repair: pods break, recover and vanish while actions run, fail and are refused, the watch is lost, the node
//! loses its readiness, and the process crashes.
//!
//! [`Cluster`] is the model: the pods that are broken. [`Process`] is the tracker, together with what the control loop
//! does because of its decisions. The invariants are in [`Process::start`], [`Repair::check_invariants`] and
//! [`Repair::teardown`].

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use super::*;

const BUDGET: usize = 3;
const MODES: [&str; 5] = ["evict", "delete", "label", "repair", "repair-or-evict"];
const MINUTE: Duration = Duration::from_secs(60);

/// The API server's state, apart from the effects of actions.
#[derive(Debug, Clone)]
struct Cluster {
    mode: &'static str,
    now: Duration,
    ready: bool,
    watched: bool,
    /// The broken pods by number, each with its incarnation, which is unique, and its version, which counts its
    /// failures.
    broken: BTreeMap<u8, (u32, u32)>,
    incarnations: u32,
}

#[derive(Debug, Clone)]
enum Event {
    Wait(Duration),
    /// A new pod takes the place of the former pod with this number, and fails its validation.
    Breaks(u8),
    /// Validation fails once more.
    FailsAgain(u8),
    Recovers(u8),
    Ready(bool),
    WatchEnds,
    WatchBegins,
    /// The control loop starts the due actions.
    Starts,
    Finishes(Index, ApiResponse),
    /// The process starts anew. `performed`: the API server carried out the actions that were running.
    Crash {
        performed: bool,
    },
}

/// The API server's response to an action.
#[derive(Debug, Clone)]
enum ApiResponse {
    Done,
    NotFound,
    Conflict,
    /// A refusal such as 429, by which a disruption budget refuses an eviction, with the delay that the response
    /// requests.
    Refused(Option<Duration>),
}

impl ReferenceStateMachine for Cluster {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        let cluster = |mode| Self {
            mode,
            now: Duration::ZERO,
            ready: true,
            watched: true,
            broken: BTreeMap::new(),
            incarnations: 0,
        };
        proptest::sample::select(&MODES[..]).prop_map(cluster).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Event> {
        let pod = 0..8_u8;
        let response = prop_oneof![
            3 => Just(ApiResponse::Done),
            1 => Just(ApiResponse::NotFound),
            1 => Just(ApiResponse::Conflict),
            2 => proptest::option::of((0..100_u64).prop_map(second)).prop_map(ApiResponse::Refused),
        ];
        prop_oneof![
            4 => (1..90_000_u64).prop_map(|millis| Event::Wait(Duration::from_millis(millis))),
            6 => pod.clone().prop_map(Event::Breaks),
            2 => pod.clone().prop_map(Event::FailsAgain),
            1 => pod.prop_map(Event::Recovers),
            1 => any::<bool>().prop_map(Event::Ready),
            1 => Just(Event::WatchEnds),
            2 => Just(Event::WatchBegins),
            6 => Just(Event::Starts),
            6 => (any::<Index>(), response).prop_map(|(which, response)| Event::Finishes(which, response)),
            1 => any::<bool>().prop_map(|performed| Event::Crash { performed }),
        ]
        .boxed()
    }

    fn apply(mut cluster: Self, event: &Event) -> Self {
        match event {
            Event::Wait(time) => cluster.now += *time,
            Event::Breaks(pod) => {
                cluster.incarnations += 1;
                cluster.broken.insert(*pod, (cluster.incarnations, 1));
            }
            Event::FailsAgain(pod) => {
                if let Some((_, version)) = cluster.broken.get_mut(pod) {
                    *version += 1;
                }
            }
            Event::Recovers(pod) => drop(cluster.broken.remove(pod)),
            Event::Ready(ready) => cluster.ready = *ready,
            Event::WatchEnds => cluster.watched = false,
            Event::WatchBegins | Event::Crash { .. } => cluster.watched = true,
            Event::Starts | Event::Finishes(..) => {}
        }
        cluster
    }
}

impl Cluster {
    fn pods(&self) -> impl Iterator<Item = Broken> {
        self.broken.iter().map(|(number, (incarnation, version))| self.pod(*number, *incarnation, *version))
    }

    /// Returns a pod. The pods are in three namespaces, and have one of two controllers or, from number 6, none.
    fn pod(&self, number: u8, incarnation: u32, version: u32) -> Broken {
        let created = jiff::Timestamp::from_second(incarnation.into()).unwrap();
        let lineage = Lineage { controller: format!("c{}", number % 2), created };
        let mut pod = pod(&format!("u{number}-{incarnation}"), &version.to_string());
        pod.pod.namespace = format!("n{}", number % 3);
        pod.lineage = (number < 6).then(|| Box::new(lineage));
        Broken { attempt: version, restarts: version, ..pod }
    }
}

/// The controller's process since its last start, and the effects of all actions, including those before that start.
struct Process {
    tracker: Tracker,
    acting: Vec<Step>,
    /// The broken pods that the watch passed to the tracker.
    delivered: Vec<Broken>,
    /// The actions since the process started: time and namespace.
    started: Vec<(Duration, String)>,
    /// The ends of the back-offs since the process started, by UID.
    not_before: BTreeMap<String, Duration>,
    /// Pods that need no further action of this process, by UID.
    settled: BTreeSet<String>,
    /// Pods that were evicted or deleted, by UID.
    ended: BTreeSet<String>,
    /// Pods that have the label, by UID.
    labelled: BTreeSet<String>,
}

impl Process {
    fn new(cluster: &Cluster) -> Self {
        Self {
            tracker: tracker(&format!("--repair-budget {BUDGET} --repair-mode {}", cluster.mode)),
            acting: Vec::new(),
            delivered: Vec::new(),
            started: Vec::new(),
            not_before: BTreeMap::new(),
            settled: BTreeSet::new(),
            ended: BTreeSet::new(),
            labelled: BTreeSet::new(),
        }
    }

    /// Returns the process after a restart, which lists all pods first.
    fn restarted(self, cluster: &Cluster) -> Self {
        let mut fresh = Self { ended: self.ended, labelled: self.labelled, ..Self::new(cluster) };
        fresh.list(cluster);
        fresh
    }

    /// Returns the broken pods that the API server still has.
    fn broken(&self, cluster: &Cluster) -> Vec<Broken> {
        let live = cluster.pods().filter(|pod| !self.ended.contains(&pod.uid));
        live.map(|pod| Broken { labelled: self.labelled.contains(&pod.uid), ..pod }).collect()
    }

    fn list(&mut self, cluster: &Cluster) {
        self.tracker.set_node_ready(cluster.ready, cluster.now);
        self.tracker.start_list();
        self.delivered = self.broken(cluster);
        for pod in &self.delivered {
            self.tracker.insert(pod.clone(), cluster.now);
        }
        self.tracker.end_list();
    }

    /// Passes the changes since the last call to the tracker, as the watch does.
    fn deliver(&mut self, cluster: &Cluster) {
        let broken = self.broken(cluster);
        let former = std::mem::replace(&mut self.delivered, broken);
        let Self { tracker, delivered, .. } = self;
        for gone in former.iter().filter(|old| !delivered.iter().any(|pod| pod.uid == old.uid)) {
            tracker.remove(&gone.uid);
        }
        for pod in delivered.iter().filter(|pod| !former.contains(pod)) {
            tracker.insert(pod.clone(), cluster.now);
        }
    }

    fn start(&mut self, cluster: &Cluster) {
        while self.acting.len() < 10
            && let Some(step) = self.tracker.take(cluster.now)
        {
            if let Decision::Act(_) = step.decision {
                self.check_start(&step, cluster);
                self.started.push((cluster.now, step.broken.pod.namespace.clone()));
                self.acting.push(step);
            }
        }
    }

    /// Checks the limits of actions.
    fn check_start(&self, step: &Step, cluster: &Cluster) {
        let (now, uid, namespace) = (cluster.now, &step.broken.uid, &step.broken.pod.namespace);
        assert!(cluster.ready, "{uid}: the node is not ready");
        assert!(!self.acting.iter().any(|other| other.broken.uid == *uid), "{uid}: two actions at once");
        assert!(!self.settled.contains(uid), "{uid}: the action is repeated");
        assert!(self.not_before.get(uid).is_none_or(|end| *end <= now), "{uid}: within the back-off");
        let known = self.broken(cluster);
        assert!(!cluster.watched || known.iter().any(|pod| pod == &step.broken), "{uid}: it is not broken, or newer");
        let recent: Vec<&String> =
            self.started.iter().filter(|(at, _)| *at + MINUTE > now).map(|(_, namespace)| namespace).collect();
        assert!(recent.len() < BUDGET, "{uid}: beyond the budget");
        let share = recent.iter().filter(|other| **other == namespace).count();
        assert!(share < BUDGET.div_ceil(2), "{uid}: one namespace takes the whole budget");
    }

    fn finish(&mut self, which: usize, response: &ApiResponse, cluster: &Cluster) {
        let step = self.acting.remove(which);
        let outcome = self.outcome(&step, response);
        let uid = step.broken.uid.clone();
        self.tracker.finish(&step, &outcome, cluster.now);
        match outcome {
            RepairOutcome::Failed { wait, .. } => {
                let wait = wait.unwrap_or_default().max(MIN_BACK_OFF);
                self.not_before.insert(uid, cluster.now + wait);
            }
            RepairOutcome::Gone => {
                self.ended.insert(uid);
            }
            RepairOutcome::Conflict => {}
            // The pod needs a further action, because its validation has failed again since this action started.
            RepairOutcome::Reprogrammed { .. }
                if !cluster.pods().any(|pod| pod.version == step.broken.version && pod.uid == uid) => {}
            _ => {
                self.settled.insert(uid);
            }
        }
    }

    fn outcome(&mut self, step: &Step, response: &ApiResponse) -> RepairOutcome {
        match response {
            ApiResponse::NotFound => RepairOutcome::Gone,
            ApiResponse::Conflict => RepairOutcome::Conflict,
            ApiResponse::Refused(wait) => RepairOutcome::Failed { error: "x".into(), wait: *wait },
            ApiResponse::Done => self.perform(step),
        }
    }

    fn perform(&mut self, step: &Step) -> RepairOutcome {
        match step.decision {
            Decision::Act(Action::Evict | Action::Delete) => {
                self.ended.insert(step.broken.uid.clone());
                RepairOutcome::Ended
            }
            Decision::Act(Action::Label) => {
                self.labelled.insert(step.broken.uid.clone());
                RepairOutcome::Labelled
            }
            Decision::Act(Action::Reprogram) => {
                RepairOutcome::Reprogrammed { restarts: step.broken.restarts, change: "added" }
            }
            other => panic!("{other:?} is not an action"),
        }
    }
}

struct Repair;

impl StateMachineTest for Repair {
    type SystemUnderTest = Process;
    type Reference = Cluster;

    fn init_test(cluster: &Cluster) -> Self::SystemUnderTest {
        Process::new(cluster)
    }

    fn apply(mut process: Process, cluster: &Cluster, event: Event) -> Process {
        match &event {
            Event::Starts => process.start(cluster),
            Event::Finishes(which, response) if !process.acting.is_empty() => {
                process.finish(which.index(process.acting.len()), response, cluster);
            }
            Event::Crash { performed } => {
                for step in std::mem::take(&mut process.acting).iter().filter(|_| *performed) {
                    process.perform(step);
                }
                process = process.restarted(cluster);
            }
            Event::WatchBegins => process.list(cluster),
            Event::FailsAgain(pod) if cluster.mode.starts_with("repair") => {
                // If validation fails after the rules were programmed, the pod needs another action.
                let prefix = format!("u{pod}-");
                process.settled.retain(|uid| !uid.starts_with(&prefix) || process.ended.contains(uid));
            }
            _ => {}
        }
        process.tracker.set_node_ready(cluster.ready, cluster.now);
        if cluster.watched {
            process.deliver(cluster);
        }
        process
    }

    fn check_invariants(process: &Process, cluster: &Cluster) {
        if cluster.watched {
            for pod in process.broken(cluster) {
                assert!(process.tracker.contains(&pod.uid), "{} is forgotten", pod.uid);
            }
            let acting = process.acting.len();
            assert!(process.tracker.len() <= process.broken(cluster).len() + acting, "pods that are gone are tracked");
        }
    }

    /// Checks that each broken pod gets an action once the node is ready and the API server carries out every action.
    fn teardown(mut process: Process, mut cluster: Cluster) {
        cluster.ready = true;
        process.tracker.set_node_ready(true, cluster.now);
        if !cluster.watched {
            process.list(&cluster);
        }
        for _ in 0..10_000 {
            process.start(&cluster);
            while !process.acting.is_empty() {
                process.finish(0, &ApiResponse::Done, &cluster);
                process.deliver(&cluster);
            }
            let Some(due) = process.tracker.next_due() else { break };
            cluster.now = cluster.now.max(due);
        }
        for pod in process.broken(&cluster) {
            let is_settled = process.settled.contains(&pod.uid) || pod.labelled;
            assert!(is_settled, "{} is never repaired", pod.uid);
        }
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn broken_pods_are_repaired_within_limits_whatever_happens(sequential 1..120 => Repair);
}
