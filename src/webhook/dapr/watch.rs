//! Learns of a Dapr mesh: watches accounts, the mesh's Configuration, Components and the issuer's secret, and the file of
//! the trust anchors.
//!
//! The binary starts [`keep`] as a task. What cannot be watched stays unknown, and reviews that need it say so.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::sleep;

use super::mesh::{CONFIGURATION, Mesh};
use crate::inject::dapr::{Component, Era, Issuer, Settings, mtls_enabled};
use crate::serve::watch::Watch;
use crate::webhook::files::{parent, read_at_most};
use crate::webhook::surroundings::{follow, is_absent, pages};

/// The secret that holds the issuer's certificate and key, and the trust anchors of old.
const BUNDLE: &str = "dapr-trust-bundle";
/// More than this are no trust anchors.
const LARGEST: u64 = 1 << 20;
/// Between two looks at the file where no event came.
const SAFETY_NET: Duration = Duration::from_secs(30);
/// Between two looks at a file that is of no use.
const IMPATIENT: Duration = Duration::from_secs(2);
/// A mounted volume changes in several steps.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Where trust comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// File of the trust anchors, PEM. Release 1.4.2 has them in a secret, which is watched.
    pub anchors: PathBuf,
}

/// Keeps it as the cluster is. Never ends by itself.
pub async fn keep(client: Client, settings: &Settings, places: &Places, mesh: &Mesh) {
    let namespace = &settings.control_plane.namespace;
    let trust = async {
        match settings.era {
            Era::Current => anchors(places, mesh).await,
            Era::V1_4_2 => issuer(Api::namespaced(client.clone(), namespace), mesh).await,
        }
    };
    tokio::join!(
        accounts(Api::all(client.clone()), settings, mesh),
        configuration(client.clone(), namespace, mesh),
        components(client.clone(), mesh),
        trust,
    );
}

async fn accounts(api: Api<PartialObjectMeta<ServiceAccount>>, settings: &Settings, mesh: &Mesh) {
    let wanted = |account: &PartialObjectMeta<ServiceAccount>| {
        settings.allowed.wants_uid(&account.namespace().unwrap_or_default(), &account.name_any())
    };
    let uid = |account: PartialObjectMeta<ServiceAccount>| account.metadata.uid.unwrap_or_default();
    follow("serviceaccounts", watcher(api, pages()).default_backoff(), |event| match &event {
        Event::Apply(account) | Event::InitApply(account) | Event::Delete(account) if !wanted(account) => {}
        _ => mesh.learn(|learned| learned.accounts.learn(event, uid)),
    })
    .await;
}

async fn configuration(client: Client, namespace: &str, mesh: &Mesh) {
    let api = Api::<DynamicObject>::namespaced_with(client, namespace, &resource("Configuration"));
    let only = watcher::Config::default().fields(&format!("metadata.name={CONFIGURATION}"));
    let mtls = |object: DynamicObject| mtls_enabled(Some(&object.data));
    let absent = |event: &watcher::Result<Event<DynamicObject>>| {
        if event.as_ref().is_err_and(is_absent) {
            mesh.learn(|learned| {
                learned.configurations.known.get_or_insert_default();
            });
        }
    };
    let events = watcher(api, only).default_backoff().inspect(absent);
    follow("configurations of Dapr", events, |event| {
        mesh.learn(|learned| learned.configurations.learn(event, mtls));
    })
    .await;
}

async fn components(client: Client, mesh: &Mesh) {
    let api = Api::<DynamicObject>::all_with(client, &resource("Component"));
    let container = |object: DynamicObject| Component::read(&serde_json::to_value(object).unwrap_or_default());
    follow("components of Dapr", watcher(api, pages()).default_backoff(), |event| {
        mesh.learn(|learned| learned.components.learn(event, container));
    })
    .await;
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("dapr.io", "v1alpha1", kind))
}

/// The issuer of release 1.4.2, with its trust anchors.
async fn issuer(api: Api<Secret>, mesh: &Mesh) {
    let only = watcher::Config::default().fields(&format!("metadata.name={BUNDLE}"));
    follow("the secret of Dapr's issuer", watcher(api, only).default_backoff(), |event| match event {
        Event::Apply(secret) | Event::InitApply(secret) => mesh.learn(|learned| {
            let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
            learned.anchors = text("ca.crt");
            learned.issuer = text("issuer.crt").zip(text("issuer.key")).map(|(chain, key)| Issuer { chain, key });
        }),
        Event::Delete(_) => mesh.learn(|learned| (learned.anchors, learned.issuer) = (None, None)),
        Event::Init | Event::InitDone => {}
    })
    .await;
}

/// The file of the trust anchors. While it cannot be read what was read last stays good.
async fn anchors(places: &Places, mesh: &Mesh) {
    let path = &places.anchors;
    let mut watch = Watch::new([parent(path)]);
    let mut warned = false;
    loop {
        watch.renew();
        let text = read_at_most(path, LARGEST).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let poll = match text {
            Ok(text) => {
                warned = false;
                mesh.learn(|learned| learned.anchors = Some(text));
                SAFETY_NET
            }
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "the trust anchors {} cannot be read", path.display());
                }
                IMPATIENT
            }
        };
        watch.changed(poll).await;
        sleep(DEBOUNCE).await;
    }
}
