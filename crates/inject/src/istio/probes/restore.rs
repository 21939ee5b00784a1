//! Restores the original probes and lifecycle hooks from the sidecar's record of them.

use std::collections::{HashMap, HashSet};

use contract::port;
use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value};

use super::PROBERS;
use crate::istio::handler::{self, HANDLERS, Handler, is_of_other_host};
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Replaces the requests to the agent with their recorded originals. The path of such a request is the key of its original in the record,
/// even if the container was renamed since. Any other handler was written after the injection and stays. `ports`: the ports of all
/// `containers` at the time of the injection, one container after another, from which recorded port numbers get their names.
pub(in crate::istio) fn restore(pod: &mut Value, recorded: &Map<String, Value>, ports: &[Value]) {
    if recorded.is_empty() {
        return;
    }
    let mut former = former(pod, ports).into_iter();
    let requests = Requests::of(pod, recorded);
    for which in [CONTAINERS, INIT_CONTAINERS] {
        for container in pod::containers_mut(pod, which) {
            let own = match which {
                CONTAINERS => former.next().unwrap_or_default(),
                // `ports` has no ports of init containers.
                _ => pod::list(container, "ports").to_vec(),
            };
            for handler in &HANDLERS {
                let Some(original) = requests.original(container, handler) else { continue };
                let Some(Value::Object(probe)) = container.pointer_mut(handler.pointer) else { continue };
                let kind = handler.actions().iter().find(|kind| original.get(**kind).is_some_and(Value::is_object));
                if let Some(kind) = kind {
                    probe.shift_remove("httpGet");
                    let mut action = original.get(*kind).cloned().unwrap_or_default();
                    pod::strip_nulls(&mut action);
                    if let (false, Some(name)) = (*kind == "grpc", name_of(&action, &own)) {
                        action["port"] = name.into();
                    }
                    probe.insert((*kind).to_owned(), action);
                }
            }
        }
    }
}

/// The requests to the agent with which a former injection replaced handlers.
struct Requests<'r> {
    recorded: &'r Map<String, Value>,
    /// The ports on which the agent may listen.
    agents: HashSet<u64>,
}

impl<'r> Requests<'r> {
    /// Finds the agent's port in the requests of a pod: the port of each request to the recorded path with the name of its own container.
    /// If all such containers were renamed, the port of each other request to a recorded path, and the port in the annotation or else the
    /// default.
    fn of(pod: &Value, recorded: &'r Map<String, Value>) -> Self {
        let containers = [CONTAINERS, INIT_CONTAINERS].into_iter().flat_map(|which| pod::containers(pod, which));
        let handlers = containers.flat_map(|container| HANDLERS.iter().map(move |handler| (container, handler)));
        let (mut agents, mut others) = (HashSet::new(), HashSet::new());
        for (container, handler) in handlers {
            let Some(path) = path(container, handler).filter(|path| recorded.contains_key(*path)) else { continue };
            let port = container.pointer(handler.pointer).and_then(|probe| probe.pointer("/httpGet/port")?.as_u64());
            if handler.path(pod::name(container)) == path {
                agents.extend(port);
            } else if !is_of_other_host(container, handler.pointer) {
                others.extend(port);
            }
        }
        if agents.is_empty() {
            agents = others;
            agents.extend(handler::target(pod, port::STATUS).map(u64::from));
        }
        Self { recorded, agents }
    }

    /// Returns the original of a handler that is a request to the agent. A handler with a host is such a request only if its original has
    /// the same host, as Istio writes it: this injector does not rewrite an HTTP request to another host.
    fn original(&self, container: &Value, handler: &Handler) -> Option<&'r Map<String, Value>> {
        let original = self.recorded.get(path(container, handler)?)?.as_object()?;
        let action = container.pointer(handler.pointer)?.get("httpGet")?;
        let host = pod::text(action, "host");
        let is_request = match host {
            "" => action.get("port")?.as_u64().is_some_and(|port| self.agents.contains(&port)),
            host => original.get("httpGet").is_some_and(|original| pod::text(original, "host") == host),
        };
        is_request.then_some(original)
    }
}

/// Returns the path of a handler's HTTP request.
fn path<'c>(container: &'c Value, handler: &Handler) -> Option<&'c str> {
    container.pointer(handler.pointer)?.pointer("/httpGet/path")?.as_str()
}

/// Returns the ports of each container with the numbers that they had at the injection; `ports` lists all of them. Names are unique only
/// within a container, and the list does not show which container a port belongs to.
///
/// A port that the list has is unchanged, and one whose name the list lacks keeps its present number. Any other port has changed its number
/// since: it had the number at the same position if the list has the present names in the present order, or else the number of the only
/// listed port with its name. If several listed ports have its name, it is left out.
fn former(pod: &Value, ports: &[Value]) -> Vec<Vec<Value>> {
    let key = |port: &Value| (pod::name(port).to_owned(), port.get("containerPort").and_then(Value::as_u64));
    let known: HashSet<_> = ports.iter().map(key).collect();
    let mut by_name: HashMap<&str, Vec<&Value>> = HashMap::new();
    ports.iter().for_each(|port| by_name.entry(pod::name(port)).or_default().push(port));
    let lists = || pod::containers(pod, CONTAINERS).iter().map(|container| pod::list(container, "ports"));
    let is_aligned = lists().flatten().map(pod::name).eq(ports.iter().map(pod::name));
    let mut at = 0;
    let mut of_port = |present: &Value| {
        let place = ports.get(at).filter(|_| is_aligned);
        at += 1;
        match (known.contains(&key(present)), place, by_name.get(pod::name(present)).map(Vec::as_slice)) {
            (true, ..) | (_, _, None) => Some(present.clone()),
            (_, Some(former), _) | (_, _, Some(&[former])) => Some(former.clone()),
            _ => None,
        }
    };
    lists().map(|list| list.iter().filter_map(&mut of_port).collect()).collect()
}

/// Returns the name of an action's port number among `own`, the ports that its container had at the injection.
fn name_of(action: &Value, own: &[Value]) -> Option<String> {
    let number = action.get("port").filter(|port| port.is_u64())?;
    let is_it = |port: &&Value| !pod::name(port).is_empty() && port.get("containerPort") == Some(number);
    own.iter().find(is_it).map(|port| pod::name(port).to_owned())
}

/// Restores the handlers that the pod `before` a former injection with the same settings has, and removes the record of
/// their originals. [`rewrite`](super::rewrite) then rewrites and records them again.
///
/// # Errors
/// The budget is spent.
pub(in crate::istio) fn renew(pod: &mut Value, before: &Value, budget: &mut Budget) -> Result<(), Exceeded> {
    let recorded = super::recorded(pod, budget)?;
    if recorded.is_empty() {
        return Ok(());
    }
    let requests = Requests::of(pod, &recorded);
    for which in [INIT_CONTAINERS, CONTAINERS] {
        let own: HashMap<&str, &Value> =
            pod::containers(before, which).iter().rev().map(|own| (pod::name(own), own)).collect();
        for container in pod::containers_mut(pod, which) {
            let Some(own) = own.get(pod::name(container)) else { continue };
            for handler in &HANDLERS {
                let is_recorded = requests.original(container, handler).is_some();
                let parts = (own.pointer(handler.pointer), container.pointer_mut(handler.pointer));
                if let (true, (Some(own), Some(probe))) = (is_recorded, parts) {
                    probe.clone_from(own);
                }
            }
        }
    }
    if let Some(sidecar) = pod::sidecar_mut(pod) {
        pod::remove_env(sidecar, PROBERS);
    }
    Ok(())
}

/// Returns the port of the first probe or hook of a container that is a request to the agent.
pub(in crate::istio) fn rewritten_port(container: &Value) -> Option<u64> {
    HANDLERS.iter().find_map(|handler| {
        let is_agents = path(container, handler)?.starts_with(&format!("/{}/", handler.path.0));
        let is_own = path(container, handler) == Some(&handler.path(pod::name(container)));
        let is_kept = is_of_other_host(container, handler.pointer) && !is_own;
        let port = container.pointer(handler.pointer)?.pointer("/httpGet/port")?;
        Some(port).filter(|_| is_agents && !is_kept)?.as_u64()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the port of the liveness probe of the container `b` after its restoration from a record with the port `recorded`.
    fn restored(list: &str, ports: [Value; 2], recorded: u16) -> Value {
        let [a, b] = ports;
        let probe = json!({"httpGet": {"path": "/app-health/b/livez", "port": 15020}});
        let b = json!({"name": "b", "ports": b, "livenessProbe": probe});
        let mut pod = json!({"spec": {"containers": [{"name": "a", "ports": a}]}});
        pod["spec"][list] =
            pod["spec"].get(list).and_then(Value::as_array).into_iter().flatten().cloned().chain([b]).collect();
        let record = json!({"/app-health/b/livez": {"httpGet": {"path": "/x", "port": recorded}}});
        let former = [json!({"name": "http", "containerPort": 8080}), json!({"name": "http", "containerPort": 9000})];
        let former = if list == CONTAINERS { &former[..] } else { &former[..1] };
        restore(&mut pod, record.as_object().unwrap(), former);
        let containers = pod["spec"][list].as_array().unwrap();
        containers.last().unwrap()["livenessProbe"]["httpGet"]["port"].clone()
    }

    #[test]
    fn a_request_to_the_agent_is_recognized_by_its_port_or_host() {
        let path = "/app-health/app/livez";
        let request = |port: u16| json!({"httpGet": {"path": path, "port": port}});
        let with_host = |host: &str, port: u16| json!({"httpGet": {"path": path, "port": port, "host": host}});
        let original = json!({"httpGet": {"path": "/x", "port": 8080}});
        let of_istio = json!({"httpGet": {"path": "/x", "port": 8080, "host": "10.0.0.9"}});
        // The original, the probes of `app` and of `side`, and whether each becomes the original.
        for (original, app, side, expected) in [
            (&original, Some(request(15020)), request(9000), (true, false)),
            (&original, Some(request(15020)), with_host("x.example.com", 9000), (true, false)),
            (&original, None, with_host("x.example.com", 15020), (false, false)),
            // The container was renamed since.
            (&original, None, request(15020), (false, true)),
            (&of_istio, None, with_host("10.0.0.9", 15500), (false, true)),
            (&of_istio, None, with_host("10.0.0.8", 15020), (false, false)),
            // `side` is a copy of `app`.
            (&original, Some(request(15500)), request(15500), (true, true)),
            (&original, Some(request(15500)), request(15020), (true, false)),
            (&of_istio, Some(with_host("10.0.0.9", 15020)), with_host("10.0.0.9", 15020), (true, true)),
        ] {
            let mut container = json!({"name": "app"});
            app.iter().for_each(|probe| container["livenessProbe"] = probe.clone());
            let mut pod = json!({"spec": {"containers": [container, {"name": "side", "livenessProbe": side}]}});
            restore(&mut pod, json!({path: original}).as_object().unwrap(), &[]);
            let probe = |at: usize| pod["spec"]["containers"][at].get("livenessProbe");
            assert_eq!((probe(0) == Some(original), probe(1) == Some(original)), expected, "{app:?} {side} {original}");
            assert!(expected.1 || probe(1) == Some(&side), "{side}");
        }
    }

    #[test]
    fn a_port_gets_the_name_back_that_it_had_in_its_own_container() {
        let http = |port: u16| json!([{"name": "http", "containerPort": port}]);
        let more = json!([{"name": "more", "containerPort": 1}, {"name": "http", "containerPort": 8080}]);
        for (list, ports, recorded, expected) in [
            (CONTAINERS, [http(8080), http(9000)], 8080, json!(8080)),
            (CONTAINERS, [http(8080), http(9000)], 9000, json!("http")),
            (CONTAINERS, [http(8080), http(9001)], 9000, json!("http")),
            (CONTAINERS, [http(8080), http(9001)], 8080, json!(8080)),
            (CONTAINERS, [more.clone(), http(9000)], 8080, json!(8080)),
            (CONTAINERS, [more.clone(), http(9000)], 9000, json!("http")),
            (CONTAINERS, [more, http(9001)], 9000, json!(9000)),
            (INIT_CONTAINERS, [http(8080), http(9000)], 8080, json!(8080)),
            (INIT_CONTAINERS, [http(8080), http(9000)], 9000, json!("http")),
        ] {
            assert_eq!(restored(list, ports.clone(), recorded), expected, "{list} {ports:?} {recorded}");
        }
    }
}
