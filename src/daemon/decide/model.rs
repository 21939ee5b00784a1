//! A model of the handover between agents: they start, take the sockets over, install, end and crash in any order, with one or
//! two sets of directories, while the DaemonSet changes and the API server refuses or is silent.
//!
//! [`World`] is the model: the DaemonSet and the behaviour of the API server. [`Node`] has the agents and the files. The agents
//! choose their successor, decide, install and remove with the daemon's functions.

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use super::*;
use crate::daemon::successor;
use crate::install::{Scope, memory};

/// The name of the network in each of the two configuration directories. The runtime reads the first directory.
type Networks = [Option<&'static str>; 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DaemonSet {
    SelectsNode,
    SelectsOthers,
    Deleting,
    Gone,
}

#[derive(Debug, Clone, Copy)]
enum Api {
    Responds,
    Silent,
    /// The role lacks the right to read DaemonSets.
    Forbidden,
}

#[derive(Debug, Clone)]
struct World {
    networks: Networks,
    daemon_set: DaemonSet,
    api: Api,
    /// Whether all agents so far have had the same directories.
    is_one_place: bool,
}

#[derive(Debug, Clone)]
enum Event {
    /// An agent starts with these directories for configuration and plugin.
    Start(usize, usize),
    /// The agent at this index takes over the sockets from an older or a crashed agent.
    Take(usize),
    /// The agent that owns the sockets installs.
    Install,
    /// The agent at this index receives SIGTERM.
    End(usize),
    Crash(usize),
    DaemonSet(DaemonSet),
    Api(Api),
}

impl ReferenceStateMachine for World {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        let network = proptest::sample::select(&[None, Some("net"), Some("podman")][..]);
        let world = |second| Self {
            networks: [Some("net"), second],
            daemon_set: DaemonSet::SelectsNode,
            api: Api::Responds,
            is_one_place: true,
        };
        network.prop_map(world).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Event> {
        use DaemonSet::{Deleting, Gone, SelectsNode, SelectsOthers};
        let agent = 0..2_usize;
        let daemon_set = proptest::sample::select(&[SelectsNode, SelectsNode, SelectsOthers, Deleting, Gone][..]);
        let api = proptest::sample::select(&[Api::Responds, Api::Responds, Api::Silent, Api::Forbidden][..]);
        // Most agents get the same directories.
        let place = || prop_oneof![3 => Just(0_usize), 1 => Just(1_usize)];
        prop_oneof![
            4 => (place(), place()).prop_map(|(conf, bin)| Event::Start(conf, bin)),
            4 => agent.clone().prop_map(Event::Take),
            4 => Just(Event::Install),
            3 => agent.clone().prop_map(Event::End),
            1 => agent.prop_map(Event::Crash),
            1 => daemon_set.prop_map(Event::DaemonSet),
            1 => api.prop_map(Event::Api),
        ]
        .boxed()
    }

    fn apply(mut world: Self, event: &Event) -> Self {
        match event {
            Event::DaemonSet(daemon_set) => world.daemon_set = *daemon_set,
            Event::Api(api) => world.api = *api,
            Event::Start(conf, bin) => world.is_one_place &= (*conf, *bin) == (0, 0),
            _ => {}
        }
        world
    }
}

impl World {
    fn daemon_set_state(&self) -> DaemonSetState {
        match (self.api, self.daemon_set) {
            (Api::Silent, _) => DaemonSetState::Unknown("timed out".to_owned()),
            (Api::Forbidden, _) => DaemonSetState::Forbidden(403),
            (Api::Responds, DaemonSet::Gone) => DaemonSetState::NotFound,
            (Api::Responds, daemon_set) => DaemonSetState::Found {
                deleting: daemon_set == DaemonSet::Deleting,
                selects_node: daemon_set == DaemonSet::SelectsNode,
                unmounted: Vec::new(),
            },
        }
    }
}

#[derive(Debug, Clone)]
struct Agent {
    number: u32,
    conf: usize,
    bin: usize,
    was_active: bool,
    /// Whether the agent has completed its installation.
    is_installed: bool,
}

#[derive(Debug, Default)]
struct Node {
    started: u32,
    /// Running agents, the older one first.
    agents: Vec<Agent>,
    /// The number of the agent that owns the sockets.
    holder: Option<u32>,
    files: memory::Node,
    /// The plugin directory of the last agent that has installed into each configuration directory.
    bins: [Option<usize>; 2],
}

impl Node {
    fn new(networks: Networks) -> Self {
        let mut node = Self::default();
        for (number, network) in networks.into_iter().enumerate() {
            node.files.write(&format!("/bin{number}/ptp"), "");
            if let Some(name) = network {
                let list = format!(r#"{{"cniVersion": "1.0.0", "name": "{name}", "plugins": [{{"type": "ptp"}}]}}"#);
                node.files.write(&format!("/net{number}/10-net.conflist"), &list);
            }
        }
        node
    }

    fn start(&mut self, conf: usize, bin: usize) {
        if self.agents.len() < 2 {
            self.started += 1;
            let agent = Agent { number: self.started, conf, bin, was_active: false, is_installed: false };
            self.agents.push(agent);
        }
    }

    /// Lets the agent at this index take over the sockets from an older or a crashed agent.
    fn take(&mut self, at: usize) {
        let Some(agent) = self.agents.get_mut(at) else { return };
        if self.holder.is_none_or(|holder| agent.number > holder) {
            self.holder = Some(agent.number);
            (agent.was_active, agent.is_installed) = (true, false);
        }
    }

    fn install(&mut self) {
        let holder = self.holder;
        let Some(agent) = self.agents.iter_mut().find(|agent| Some(agent.number) == holder) else { return };
        agent.is_installed = self.files.install(agent.conf, agent.bin);
        if self.files.is_chained(agent.conf) {
            self.bins[agent.conf] = Some(agent.bin);
        }
    }

    fn holder(&self) -> Option<&Agent> {
        self.agents.iter().find(|agent| Some(agent.number) == self.holder)
    }

    /// Returns the successor as the agent that shuts down determines it.
    fn successor(&self, agent: &Agent) -> Successor {
        let holder = self.holder();
        successor::without_query(holder.is_some(), agent.was_active).unwrap_or_else(|| {
            let ready = holder.filter(|other| other.is_installed).ok_or_else(|| "not yet".to_owned());
            let response = ready.map(|other| self.files.directories(other.conf, other.bin));
            successor::from_response(self.files.directories(agent.conf, agent.bin), response)
        })
    }

    fn end(&mut self, at: usize, world: &World) {
        if at >= self.agents.len() {
            return;
        }
        let agent = self.agents.remove(at);
        self.holder = self.holder.filter(|holder| *holder != agent.number);
        let was_chained = self.files.is_chained(0);
        let mut action = decide(self.successor(&agent), &world.daemon_set_state());
        if matches!(action, Action::RemoveAll(_)) && !self.agents.is_empty() {
            // The other agent takes the offer.
            self.take(0);
            self.install();
            action = decide(self.successor(&agent), &world.daemon_set_state());
        }
        match &action {
            Action::Keep(_) => {}
            Action::RemoveFormer(Relocation { former, .. }) => self.files.remove(agent.conf, agent.bin, *former),
            Action::RemoveAll(_) => self.files.remove(agent.conf, agent.bin, Scope::ALL),
        }
        self.check_end(&agent, &action, was_chained, world);
    }

    fn has_plugin(&self, bin: usize) -> bool {
        self.files.read(format!("/bin{bin}/istio-cni")).is_some()
    }

    fn has_kubeconfig(&self) -> bool {
        self.files.read("/run/istio-cni-kubeconfig").is_some()
    }

    fn check_end(&self, agent: &Agent, action: &Action, was_chained: bool, world: &World) {
        let holder = self.holder();
        if let Some(other) = holder.filter(|other| other.is_installed) {
            let is_complete = self.files.is_chained(other.conf) && self.has_plugin(other.bin) && self.has_kubeconfig();
            assert!(is_complete, "{action}: the files of agent {} are damaged: {self:?}", other.number);
        }
        // The runtime's chain loses its entry only if the DaemonSet does not cover the node and no other agent is left, or another
        // agent has chained the plugin into the same network.
        let was_lost = was_chained && !self.files.is_chained(0);
        let is_uncovered = world.daemon_set != DaemonSet::SelectsNode && matches!(world.api, Api::Responds);
        let is_last = self.agents.is_empty();
        let has_moved = holder.is_some_and(|other| other.is_installed && world.networks[other.conf] == Some("net"));
        assert!(
            !was_lost || (is_uncovered && is_last) || has_moved,
            "{action}: pods would start without redirection: {self:?}"
        );
        if is_uncovered && holder.is_none() {
            let [kubeconfig, plugin] = self.files.is_needed_by_others(agent.conf, agent.bin);
            assert!(!self.files.is_chained(agent.conf), "{action}: the chain entry stays behind: {self:?}");
            assert!(plugin || !self.has_plugin(agent.bin), "{action}: the plugin stays behind: {self:?}");
            assert!(kubeconfig || !self.has_kubeconfig(), "{action}: the kubeconfig stays behind: {self:?}");
        }
    }
}

struct Handover;

impl StateMachineTest for Handover {
    type SystemUnderTest = Node;
    type Reference = World;

    fn init_test(world: &World) -> Node {
        Node::new(world.networks)
    }

    fn apply(mut node: Node, world: &World, event: Event) -> Node {
        match event {
            Event::Start(conf, bin) => node.start(conf, bin),
            Event::Take(at) => node.take(at),
            Event::Install => node.install(),
            Event::End(at) => node.end(at, world),
            Event::Crash(at) if at < node.agents.len() => {
                let agent = node.agents.remove(at);
                node.holder = node.holder.filter(|holder| *holder != agent.number);
            }
            Event::Crash(_) | Event::DaemonSet(_) | Event::Api(_) => {}
        }
        node
    }

    fn check_invariants(node: &Node, _: &World) {
        for (conf, bin) in node.bins.iter().enumerate().filter(|(conf, _)| node.files.is_chained(*conf)) {
            assert!(bin.is_some_and(|bin| node.has_plugin(bin)), "chain {conf} names a missing plugin: {node:?}");
            assert!(node.has_kubeconfig(), "the plugin of chain {conf} has no kubeconfig: {node:?}");
        }
    }

    /// Once the DaemonSet is deleted and all agents have ended, no file remains in directories that all of them used.
    fn teardown(mut node: Node, world: World) {
        let world = World { daemon_set: DaemonSet::Gone, api: Api::Responds, ..world };
        node.start(0, 0);
        while !node.agents.is_empty() {
            node.take(0);
            node.end(0, &world);
        }
        let is_clean = !node.files.is_chained(0) && !node.has_plugin(0) && node.files.has_empty_run_dir();
        assert!(is_clean || !world.is_one_place, "files stay behind: {node:?}");
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn pods_stay_redirected_while_agents_hand_over(sequential 1..40 => Handover);
}
