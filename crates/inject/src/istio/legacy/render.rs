//! The output of a legacy template, converted to Go's types.

use contract::container;
use gotemplate::{Budget, Template};
use serde_json::{Map, Value, json};

use crate::istio::config::Config;
use crate::istio::data::Data;
use crate::istio::splice::Spliced;
use crate::istio::status;
use crate::istio::subject::Subject;
use crate::istio::{Error, values};
use crate::pod::{self, CONTAINERS, IMAGE_PULL_SECRETS, INIT_CONTAINERS, VOLUMES};
use crate::typed::Struct;
use crate::yaml;

/// The fields of a pod with numbers or booleans. In all other fields, a number or boolean is converted to a string.
const SCALARS: [&str; 35] = [
    "allowPrivilegeEscalation",
    "containerPort",
    "defaultMode",
    "enableServiceLinks",
    "expirationSeconds",
    "failureThreshold",
    "fsGroup",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "mode",
    "optional",
    "partition",
    "periodSeconds",
    "port",
    "priority",
    "privileged",
    "readOnly",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seconds",
    "shareProcessNamespace",
    "stdin",
    "stdinOnce",
    "successThreshold",
    "supplementalGroups",
    "terminationGracePeriodSeconds",
    "timeoutSeconds",
    "tolerationSeconds",
    "tty",
    "weight",
];

/// The fields that Go's types omit if they are zero or false. Empty strings and lists are omitted in all fields.
const OMITTED: [&str; 10] = [
    "failureThreshold",
    "hostPort",
    "initialDelaySeconds",
    "periodSeconds",
    "readOnly",
    "stdin",
    "stdinOnce",
    "successThreshold",
    "timeoutSeconds",
    "tty",
];

/// The items to add to the pod.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) rewrite_probes: bool,
    /// Whether applications wait for the proxy.
    pub(super) hold: bool,
    init_containers: Vec<Value>,
    containers: Vec<Value>,
    volumes: Vec<Value>,
    pull_secrets: Vec<Value>,
    pub(super) dns_config: Option<Value>,
    /// The CNI plugin's annotations.
    pub(super) redirect: Map<String, Value>,
}

/// Renders the template and parses the output.
pub(super) fn render(
    config: &Config,
    template: &Template,
    subject: &Subject<'_>,
    budget: &mut Budget,
) -> Result<Parts, Error> {
    let data = Data::new(config, subject, subject.pod);
    let output = template.render_recorded(&data.value(), None, budget)?;
    if let Some(spliced) = Spliced::of(config, subject, subject.pod, budget)? {
        spliced.check(template, &output, budget)?;
    }
    let (text, missing) = (output.text, output.missing);
    let rendered = yaml::value_within(&text, budget).map_err(|error| Error::rendered(template.name(), error))?;
    let mut rendered = match rendered {
        Value::Object(rendered) => rendered,
        Value::Null => Map::new(),
        _ => return Err(Error::Type("it is not a map".to_owned())),
    };
    let flag = |key: &str| rendered.get(key).and_then(Value::as_bool).unwrap_or_default();
    let (rewrite_probes, hold) = (flag("rewriteAppHTTPProbe"), flag("holdApplicationUntilProxyStarts"));
    let mut list = |key: &str| take_list(&mut rendered, key);
    let mut parts = Parts {
        rewrite_probes,
        hold,
        init_containers: list(INIT_CONTAINERS)?,
        containers: list(CONTAINERS)?,
        volumes: list(VOLUMES)?,
        pull_secrets: list(IMAGE_PULL_SECRETS)?,
        dns_config: None,
        redirect: Map::new(),
    };
    if let Some(Value::Object(redirect)) = rendered.shift_remove("podRedirectAnnot").map(typed) {
        parts.redirect = redirect;
    }
    parts.dns_config = rendered.shift_remove("dnsConfig").filter(|config| !config.is_null()).map(typed);
    parts.check()?;
    for container in parts.init_containers.iter_mut().chain(&mut parts.containers) {
        values::check_image(container, &missing)?;
        pod::object(container).entry("resources").or_insert_with(|| json!({}));
    }
    if let Some(sidecar) = parts.sidecar() {
        limit_concurrency(sidecar);
    }
    Ok(parts)
}

impl Parts {
    /// Checks that the fields are those of a pod's spec.
    ///
    /// # Errors
    /// A field has the wrong type; the API server would refuse the pod.
    fn check(&self) -> Result<(), Error> {
        let lists = self.lists().into_iter().map(|(which, items)| (which.to_owned(), Value::from(items)));
        let dns = self.dns_config.iter().map(|config| ("dnsConfig".to_owned(), config.clone()));
        let spec: Map<String, Value> = lists.chain(dns).collect();
        let of_spec = Struct::named("core.PodSpec").map_or(Ok(()), |of| of.check(&Value::Object(spec)));
        of_spec.map_err(|error| Error::Type(error.to_string()))
    }

    /// Returns the proxy's container.
    pub(super) fn sidecar(&mut self) -> Option<&mut Value> {
        self.containers.iter_mut().find(|c| pod::name(c) == container::PROXY)
    }

    /// Returns the items by their field in the pod's spec, in the order in which they are added.
    pub(super) fn lists(&self) -> [(&'static str, &[Value]); 4] {
        [
            (INIT_CONTAINERS, &self.init_containers),
            (CONTAINERS, &self.containers),
            (VOLUMES, &self.volumes),
            (IMAGE_PULL_SECRETS, &self.pull_secrets),
        ]
    }

    /// Returns the status annotation's value.
    pub(super) fn status(&self, version: &str) -> String {
        let mut status = Map::from_iter([(status::VERSION.to_owned(), Value::from(version))]);
        for (which, items) in self.lists() {
            let names = if items.is_empty() { Value::Null } else { items.iter().map(pod::name).collect() };
            status.insert(which.to_owned(), names);
        }
        Value::Object(status).to_string()
    }
}

fn take_list(rendered: &mut Map<String, Value>, key: &str) -> Result<Vec<Value>, Error> {
    match rendered.shift_remove(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) if items.iter().all(Value::is_object) => Ok(items.into_iter().map(typed).collect()),
        Some(_) => Err(Error::Type(format!("{key} is not a list of maps"))),
    }
}

/// Converts a value to Go's types: removes nulls, and converts scalars in string fields to strings.
fn typed(mut value: Value) -> Value {
    pod::strip_nulls(&mut value);
    coerce(&mut value);
    value
}

fn coerce(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, field| !is_omitted(key, field));
            fields.iter_mut().filter(|(key, _)| !SCALARS.contains(&key.as_str())).for_each(|(_, field)| coerce(field));
        }
        Value::Array(items) => items.iter_mut().for_each(coerce),
        Value::Number(_) | Value::Bool(_) => *value = value.to_string().into(),
        // `strip_nulls` has removed null members, so this null is an element of a list. Go reads it as an empty string.
        Value::Null => *value = String::new().into(),
        Value::String(_) => {}
    }
}

fn is_omitted(key: &str, field: &Value) -> bool {
    match field {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(false) => OMITTED.contains(&key),
        Value::Number(number) => OMITTED.contains(&key) && number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// Sets the number of worker threads to the sidecar's CPU limit or, without one, its CPU request, unless its arguments set it.
fn limit_concurrency(sidecar: &mut Value) {
    let is_set = pod::list(sidecar, "args")
        .iter()
        .any(|arg| arg.as_str().is_some_and(|arg| arg == "--concurrency" || arg.starts_with("--concurrency=")));
    let cpus = |which: &str| {
        let quantity = sidecar.pointer(&format!("/resources/{which}/cpu"))?.as_str()?;
        let (number, unit) = quantity.strip_suffix('m').map_or((quantity, 1.0), |number| (number, 1000.0));
        number.parse::<f64>().ok().map(|number| (number / unit).ceil()).filter(|cpus| *cpus > 0.0)
    };
    if let (false, Some(cpus)) = (is_set, cpus("limits").or_else(|| cpus("requests"))) {
        pod::list_mut(sidecar, "args").extend(["--concurrency".into(), cpus.to_string().into()]);
    }
}
