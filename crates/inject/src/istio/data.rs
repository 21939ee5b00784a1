//! The templates' data: Istio's `SidecarTemplateData`, with the pod and the configuration.

use std::borrow::Cow;

use contract::{PROXY_ID, annotation, port};
use gotemplate::{Record, Value};
use serde_json::Value as Json;

use super::config::Config;
use super::shapes::{mesh, pod as shapes};
use super::subject::Subject;
use crate::pod;

/// The data with which all templates are rendered for one pod.
#[derive(Debug)]
pub(super) struct Data<'a> {
    config: &'a Config,
    subject: &'a Subject<'a>,
    /// The pod without the additions of an earlier injection; see [`with_status_port`].
    pod: Cow<'a, Json>,
    proxy_image: String,
    init_image: String,
}

impl<'a> Data<'a> {
    pub(super) fn new(config: &'a Config, subject: &'a Subject<'a>, pod: &'a Json) -> Self {
        let image_type = pod::annotation(pod, annotation::IMAGE_TYPE);
        Self {
            config,
            subject,
            pod: with_status_port(config, subject, pod),
            proxy_image: config.values.image_of_proxy(&subject.proxy_config, image_type),
            init_image: config.values.image_of_init(image_type),
        }
    }

    /// Returns the data as a value of the template engine.
    pub(super) fn value(&self) -> Value<'_> {
        let owner = &self.subject.owner;
        let text = |text| Value::from(text);
        let id = |id: Option<i64>| Value::from(id.unwrap_or(PROXY_ID.into()));
        let type_meta = vec![("APIVersion", text(owner.api_version.as_str())), ("Kind", text(&owner.kind))];
        let deployment = vec![("Name", text(owner.name.as_str())), ("Namespace", text(&owner.namespace))];
        Record::value(
            "inject.SidecarTemplateData",
            vec![
                ("TypeMeta", Record::value("v1.TypeMeta", type_meta)),
                ("DeploymentMeta", Record::value("types.NamespacedName", deployment)),
                ("ObjectMeta", Value::shaped(pod::metadata(&self.pod), &shapes::OBJECT_META)),
                ("Spec", Value::shaped(pod::spec(&self.pod), &shapes::POD_SPEC)),
                ("ProxyConfig", Value::shaped(&self.subject.proxy_config, &mesh::PROXY_CONFIG)),
                ("MeshConfig", Value::shaped(&self.config.mesh.json, &mesh::MESH_CONFIG)),
                ("Values", Value::json(&self.config.values.raw)),
                ("Revision", text(&self.config.revision)),
                ("NativeSidecars", Value::from(self.subject.native)),
                ("ProxyImage", text(&self.proxy_image)),
                ("ProxyInitImage", text(&self.init_image)),
                ("ProxyUID", id(self.subject.ids.0)),
                ("ProxyGID", id(self.subject.ids.1)),
                ("InboundTrafficPolicyMode", text(self.config.mesh.inbound_policy())),
                ("CompliancePolicy", text(&self.config.compliance_policy)),
            ],
        )
    }
}

/// Returns the pod, with the agent's status port as annotation if templates would otherwise use another port. That is so if the pod lacks
/// the annotation, and the port in its proxy configuration is not the default, and is 0 or differs from Helm's `global.proxy.statusPort`.
/// With the annotation, exclusions, probes and metrics name the port on which the agent listens.
fn with_status_port<'a>(config: &Config, subject: &Subject<'_>, pod: &'a Json) -> Cow<'a, Json> {
    let (wanted, valued) = (subject.status_port(), config.values.raw.pointer("/global/proxy/statusPort"));
    let is_valued = valued.is_some_and(|port| *port == wanted || port.as_str() == Some(&wanted.to_string()));
    if wanted == port::STATUS || is_valued && wanted != 0 || pod::annotation(pod, annotation::STATUS_PORT).is_some() {
        return Cow::Borrowed(pod);
    }
    let mut pod = pod.clone();
    pod::annotations_mut(&mut pod).insert(annotation::STATUS_PORT.to_owned(), wanted.to_string().into());
    Cow::Owned(pod)
}
