//! Reads the state of a cluster ([`Facts`]) from the API server. A failed request does not end the check: its reason
//! becomes part of the state.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use podfacts::is_sandbox;

use super::decide::{Agents, Facts, NodeFacts, Service, Webhook};
use super::rights::{RIGHTS, Right};
use crate::configuration::await_response;
use webhook::bundle_ends;

/// The suffix of the names of sidecar injectors' webhooks.
const INJECTOR: &str = "sidecar-injector.istio.io";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// The maximum number of objects of a kind that are listed; further objects are not checked.
const MAX_OBJECTS: u32 = 500;

/// Performs all requests, each with its own timeout.
pub(super) async fn gather(client: &Client, namespace: &str) -> Facts {
    let (agents, pod_security, webhooks, rights, nodes, sandboxes, cilium) = futures::join!(
        agents(client, namespace),
        pod_security(client, namespace),
        webhooks(client),
        join_all(RIGHTS.map(|right| allowed(client, namespace, right))),
        nodes(client),
        sandboxes(client),
        cilium(client),
    );
    Facts { namespace: namespace.to_owned(), agents, pod_security, webhooks, rights, nodes, sandboxes, cilium }
}

async fn agents(client: &Client, namespace: &str) -> Result<Option<Agents>, String> {
    let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    let found = await_response(sets.get_opt(contract::DAEMON_SET)).await?;
    Ok(found.map(|set| {
        let status = set.status.unwrap_or_default();
        Agents {
            current: status.observed_generation >= set.metadata.generation,
            desired: status.desired_number_scheduled,
            ready: status.number_ready,
            updated: status.updated_number_scheduled.unwrap_or_default(),
        }
    }))
}

/// Returns the PodSecurity level that the namespace enforces; `None` without the label or without the namespace.
async fn pod_security(client: &Client, namespace: &str) -> Result<Option<String>, String> {
    let found = await_response(Api::<Namespace>::all(client.clone()).get_opt(namespace)).await?;
    Ok(found.and_then(|namespace| namespace.metadata.labels?.remove(ENFORCE)))
}

async fn webhooks(client: &Client) -> Result<Vec<Webhook>, String> {
    let all = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let found = await_response(all.list(&ListParams::default().limit(MAX_OBJECTS))).await?;
    let of = |configuration: MutatingWebhookConfiguration| {
        let name = configuration.metadata.name.unwrap_or_default();
        let ours = configuration.webhooks.unwrap_or_default().into_iter().filter(|hook| hook.name.ends_with(INJECTOR));
        ours.map(|hook| (name.clone(), hook)).collect::<Vec<_>>()
    };
    let hooks = found.items.into_iter().flat_map(of);
    Ok(join_all(hooks.map(|(configuration, hook)| webhook(client, configuration, hook))).await)
}

async fn webhook(client: &Client, configuration: String, hook: MutatingWebhook) -> Webhook {
    let bundle = hook.client_config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default();
    let ends = bundle_ends(&bundle).map_err(|error| error.to_string());
    let service = match hook.client_config.service {
        Some(service) => {
            let ready = endpoints(client, &service.namespace, &service.name).await;
            Some(Service { name: format!("{}/{}", service.namespace, service.name), ready })
        }
        None => None,
    };
    Webhook {
        configuration,
        name: hook.name,
        ends: ends.map(|ends| ends.into_iter().max().unwrap_or_default()),
        refuses: hook.failure_policy.as_deref() != Some("Ignore"),
        service,
    }
}

/// Returns the number of a service's endpoints that are ready.
async fn endpoints(client: &Client, namespace: &str, service: &str) -> Result<usize, String> {
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&format!("kubernetes.io/service-name={service}")).limit(MAX_OBJECTS);
    let found = await_response(slices.list(&params)).await?;
    let endpoints = found.items.iter().flat_map(|slice| &slice.endpoints);
    // The API defines that an endpoint without the condition `ready` is treated as ready.
    let is_ready = |ready: Option<bool>| ready.unwrap_or(true);
    Ok(endpoints.filter(|endpoint| is_ready(endpoint.conditions.as_ref().and_then(|found| found.ready))).count())
}

async fn allowed(client: &Client, namespace: &str, right: Right) -> (Right, Result<bool, String>) {
    let (resource, subresource) =
        right.resource.split_once('/').map_or((right.resource, None), |(resource, sub)| (resource, Some(sub)));
    let attributes = ResourceAttributes {
        group: Some(right.group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        verb: Some(right.verb.to_owned()),
        namespace: right.namespaced.then(|| namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
        ..SelfSubjectAccessReview::default()
    };
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let reviewed = await_response(reviews.create(&PostParams::default(), &review)).await;
    (right, reviewed.map(|review| review.status.is_some_and(|status| status.allowed)))
}

async fn nodes(client: &Client) -> Result<Vec<NodeFacts>, String> {
    let found =
        await_response(Api::<Node>::all(client.clone()).list(&ListParams::default().limit(MAX_OBJECTS))).await?;
    let of = |node: Node| {
        let system = node.status.and_then(|status| status.node_info)?;
        (system.operating_system != "windows").then(|| NodeFacts {
            name: node.metadata.name.unwrap_or_default(),
            kernel: system.kernel_version,
            runtime: system.container_runtime_version,
            kubelet: system.kubelet_version,
            image: system.os_image,
        })
    };
    Ok(found.items.into_iter().filter_map(of).collect())
}

/// Returns the names of RuntimeClasses with a sandboxed runtime.
async fn sandboxes(client: &Client) -> Result<Vec<String>, String> {
    let found =
        await_response(Api::<RuntimeClass>::all(client.clone()).list(&ListParams::default().limit(MAX_OBJECTS)))
            .await?;
    let sandboxes = found.items.into_iter().filter(|class| is_sandbox(&class.handler));
    Ok(sandboxes.filter_map(|class| class.metadata.name).collect())
}

/// Returns Cilium's configuration; `None` without Cilium.
async fn cilium(client: &Client) -> Result<Option<BTreeMap<String, String>>, String> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    Ok(await_response(maps.get_opt("cilium-config")).await?.map(|map| map.data.unwrap_or_default()))
}
