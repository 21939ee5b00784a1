//! Template functions for lists of ports.

use gotemplate::{Args, Budget, Functions, List, Reason, Value, sprint};

use super::map;

/// The sidecar's name.
const PROXY: &str = "istio-proxy";

pub(super) fn register(functions: Functions) -> Functions {
    functions
        .with("excludeInboundPort", 2, 2, exclude)
        .with("proxyPort", 3, 3, of_proxy)
        .with("includeInboundPorts", 1, 1, |budget, args| ports(budget, args, true))
        .with("applicationPorts", 1, 1, |budget, args| ports(budget, args, false))
}

/// Appends a port to a list, unless the port is empty, zero or already in the list.
fn exclude<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<Value<'a>, Reason> {
    let port = sprint(args.any(0), budget)?;
    let (port, list) = (port.trim(), args.text(1)?);
    let present = list.as_str().split(',').any(|present| present == port);
    if port.is_empty() || port == "0" || present {
        return Ok(Value::Text(list.clone()));
    }
    let ports = list.as_str().split(',').map(str::trim).filter(|port| !port.is_empty()).chain([port]);
    Ok(Value::from(ports.collect::<Vec<_>>().join(",")))
}

/// Returns the port in a variable of `proxyMetadata`, parsed as the agent parses it, or the default if it is not a valid port.
fn of_proxy<'a>(_: &mut Budget, args: Args<'_, 'a>) -> Result<Value<'a>, Reason> {
    let (name, default) = (args.str(1)?, args.int(2)?);
    let variable = map(args.any(0))?.and_then(|metadata| metadata.get(name));
    let port = variable.as_ref().and_then(Value::as_str).and_then(|text| text.parse::<u16>().ok());
    Ok(Value::from(port.filter(|port| *port != 0).map_or(default, i64::from)))
}

/// Returns the containers' TCP ports, including the sidecar's only if `proxy` is set.
fn ports<'a>(budget: &mut Budget, args: Args<'_, 'a>, proxy: bool) -> Result<Value<'a>, Reason> {
    let containers = list(args.any(0))?;
    let mut ports = Vec::new();
    for container in containers.iter().flat_map(List::iter) {
        if !proxy && container.field("Name")?.as_str() == Some(PROXY) {
            continue;
        }
        for port in list(&container.field("Ports")?)?.iter().flat_map(List::iter) {
            if !matches!(port.field("Protocol")?.as_str(), Some("UDP" | "SCTP")) {
                ports.push(sprint(&port.field("ContainerPort")?, budget)?);
            }
        }
    }
    Ok(Value::from(ports.join(",")))
}

fn list<'a>(value: &Value<'a>) -> Result<Option<List<'a>>, Reason> {
    match value {
        Value::List(list) => Ok(Some(list.clone())),
        Value::Missing | Value::Nil => Ok(None),
        other => Err(other.type_error("list")),
    }
}
