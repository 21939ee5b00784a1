//! A model of the handover between agents: they start, take the sockets over, install, end and crash in any order, with one or
//! two sets of directories, while the DaemonSet changes and the API server refuses or is silent.
//!
//! [`World`] is the model: the DaemonSet and the behaviour of the API server. [`Node`] has the files and the agents,
//! whose shutdowns call [`decide`].

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use super::*;
use crate::install::Scope;

/// The network in each of two configuration directories. The runtime reads the first one.
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
    Answers,
    Silent,
    /// The role lacks the right to read DaemonSets.
    Forbidden,
}

#[derive(Debug, Clone)]
struct World {
    networks: Networks,
    daemon_set: DaemonSet,
    api: Api,
    /// Whether all agents have had the same directories.
    is_one_place: bool,
}

#[derive(Debug, Clone)]
enum Event {
    /// An agent starts with these directories for configuration and plugin.
    Start(usize, usize),
    /// The newest agent takes over the sockets, or a standby agent those of a crashed one.
    Take(usize),
    /// The agent that owns the sockets installs.
    Install,
    /// SIGTERM.
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
            api: Api::Answers,
            is_one_place: true,
        };
        network.prop_map(world).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Event> {
        use DaemonSet::{Deleting, Gone, SelectsNode, SelectsOthers};
        let agent = 0..2_usize;
        let daemon_set = proptest::sample::select(&[SelectsNode, SelectsNode, SelectsOthers, Deleting, Gone][..]);
        let api = proptest::sample::select(&[Api::Answers, Api::Answers, Api::Silent, Api::Forbidden][..]);
        // Mostly the same directories.
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
            (Api::Answers, DaemonSet::Gone) => DaemonSetState::NotFound,
            (Api::Answers, daemon_set) => DaemonSetState::Found {
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
    /// Whether it has completed its installation.
    is_installed: bool,
}

#[derive(Debug, Default)]
struct Node {
    started: u32,
    /// Running agents, the older one first.
    agents: Vec<Agent>,
    /// The number of the agent that owns the sockets.
    holder: Option<u32>,
    /// For each configuration directory, the plugin directory that its chain names.
    chains: [Option<usize>; 2],
    plugins: [bool; 2],
    kubeconfig: bool,
}

impl Node {
    fn start(&mut self, conf: usize, bin: usize) {
        if self.agents.len() < 2 {
            self.started += 1;
            let agent = Agent { number: self.started, conf, bin, was_active: false, is_installed: false };
            self.agents.push(agent);
        }
    }

    /// An agent takes over the sockets of an older or of a crashed one.
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
        agent.is_installed = true;
        (self.plugins[agent.bin], self.kubeconfig) = (true, true);
        self.chains[agent.conf] = Some(agent.bin);
    }

    /// The successor from the view of the agent that shuts down.
    fn successor(&self, agent: &Agent, networks: Networks) -> Successor {
        let other = self.agents.iter().find(|other| Some(other.number) == self.holder);
        match other {
            None => Successor::None,
            Some(_) if !agent.was_active => Successor::Installed(Relocation::default()),
            Some(other) if !other.is_installed => Successor::Unknown("not yet".to_owned()),
            Some(other) => {
                let place = |agent: &Agent| Place {
                    conf: format!("/{}", agent.conf).into(),
                    bin: format!("/{}", agent.bin).into(),
                    network: networks[agent.conf].filter(|_| self.chains[agent.conf].is_some()).map(str::to_owned),
                };
                let former = Scope { conf: agent.conf != other.conf, bin: agent.bin != other.bin, run: false };
                Successor::Installed(Relocation { former, from: place(agent), to: place(other) })
            }
        }
    }

    fn end(&mut self, at: usize, world: &World) {
        if at >= self.agents.len() {
            return;
        }
        let agent = self.agents.remove(at);
        self.holder = self.holder.filter(|holder| *holder != agent.number);
        let successor = self.successor(&agent, world.networks);
        let before = self.chains;
        let action = decide(successor.clone(), &world.daemon_set_state());
        match &action {
            Action::Keep(_) => {}
            Action::RemoveFormer(Relocation { former, .. }) => self.remove(&agent, *former),
            Action::RemoveAll(_) => self.remove(&agent, Scope::ALL),
        }
        self.check_end(&agent, &action, before, world);
    }

    /// Removes like `install::remove`: a plugin stays while a chain of the agent's directory names it.
    fn remove(&mut self, agent: &Agent, scope: Scope) {
        if scope.conf {
            self.chains[agent.conf] = None;
        }
        if scope.bin && self.chains[agent.conf] != Some(agent.bin) {
            self.plugins[agent.bin] = false;
        }
        self.kubeconfig &= !scope.run;
    }

    fn check_end(&self, agent: &Agent, action: &Action, before: [Option<usize>; 2], world: &World) {
        let holder = self.agents.iter().find(|other| Some(other.number) == self.holder);
        if let Some(other) = holder.filter(|other| other.is_installed) {
            let is_complete = self.chains[other.conf] == Some(other.bin) && self.plugins[other.bin] && self.kubeconfig;
            assert!(is_complete, "{action}: the files of agent {} are damaged: {self:?}", other.number);
        }
        // The runtime's chain loses its entry only if the DaemonSet does not cover the node, or the network has moved.
        let was_lost = before[0].is_some() && self.chains[0].is_none();
        let is_uncovered = world.daemon_set != DaemonSet::SelectsNode && matches!(world.api, Api::Answers);
        let has_moved = holder.is_some_and(|other| other.is_installed && world.networks[other.conf] == Some("net"));
        assert!(!was_lost || is_uncovered || has_moved, "{action}: pods would start without redirection: {self:?}");
        if is_uncovered && holder.is_none() {
            let is_clean = self.chains[agent.conf].is_none() && !self.plugins[agent.bin] && !self.kubeconfig;
            assert!(is_clean, "{action}: files stay behind: {self:?}");
        }
    }
}

struct Handover;

impl StateMachineTest for Handover {
    type SystemUnderTest = Node;
    type Reference = World;

    fn init_test(_: &World) -> Node {
        Node::default()
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

    fn check_invariants(node: &Node, world: &World) {
        // An agent cannot know chains in directories that only former agents mounted.
        for bin in node.chains.into_iter().flatten().filter(|_| world.is_one_place) {
            assert!(node.plugins[bin], "a chain names a missing plugin: {node:?}");
        }
    }

    /// Once the DaemonSet is deleted and all agents have ended, no file remains in directories that all of them used.
    fn teardown(mut node: Node, world: World) {
        let world = World { daemon_set: DaemonSet::Gone, api: Api::Answers, ..world };
        node.start(0, 0);
        while !node.agents.is_empty() {
            node.take(0);
            node.end(0, &world);
        }
        let is_clean = node.chains == [None; 2] && node.plugins == [false; 2] && !node.kubeconfig;
        assert!(is_clean || !world.is_one_place, "files stay behind: {node:?}");
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn pods_stay_redirected_while_agents_hand_over(sequential 1..40 => Handover);
}
