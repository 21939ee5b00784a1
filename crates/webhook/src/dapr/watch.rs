//! Watches a Dapr mesh: accounts, the mesh's Configuration, Components, the issuer's Secret and the file of the trust
//! anchors.
//!
//! The binary starts [`watch_mesh`] as a task. If a resource cannot be watched, reviews that need it report that it is
//! missing.

use std::path::PathBuf;
use std::time::Duration;

use dapr::{Component, Era, Issuer, Settings, mtls_enabled};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serve::resource::watch_list;
use serve::watch::Watch;
use tokio::time::sleep;

use super::mesh::{CONFIGURATION, Mesh};
use crate::cluster_state::{is_absent, pages};
use crate::files::{parent, read_at_most};

/// The name of the Secret that contains the issuer's certificate and key, and the trust anchors, in release 1.4.2.
const BUNDLE: &str = "dapr-trust-bundle";
/// The size limit of the trust anchors' file in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// The interval at which the file is read if no event reports a change.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// The polling interval of an unreadable file.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The delay after an event, because a mounted volume changes in several steps.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The files with trust material.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFiles {
    /// The file of the trust anchors in PEM. Release 1.4.2 has the trust anchors in a Secret, which is watched instead.
    pub anchors: PathBuf,
}

/// Keeps `mesh` current. Never returns.
pub async fn watch_mesh(client: Client, settings: &Settings, trust_files: &TrustFiles, mesh: &Mesh) {
    let namespace = &settings.control_plane.namespace;
    let trust = async {
        match settings.era {
            Era::Current => watch_anchors(trust_files, mesh).await,
            Era::V1_4_2 => watch_issuer(Api::namespaced(client.clone(), namespace), mesh).await,
        }
    };
    tokio::join!(
        watch_accounts(Api::all(client.clone()), settings, mesh),
        watch_configuration(client.clone(), namespace, mesh),
        watch_components(client.clone(), mesh),
        trust,
    );
}

async fn watch_accounts(api: Api<PartialObjectMeta<ServiceAccount>>, settings: &Settings, mesh: &Mesh) {
    let wanted = |account: &PartialObjectMeta<ServiceAccount>| {
        settings.allowed.wants_uid(&account.namespace().unwrap_or_default(), &account.name_any())
    };
    let uid = |account: PartialObjectMeta<ServiceAccount>| account.metadata.uid.unwrap_or_default();
    watch_list("serviceaccounts", watcher(api, pages()).default_backoff(), |event| match &event {
        Event::Apply(account) | Event::InitApply(account) | Event::Delete(account) if !wanted(account) => {}
        _ => mesh.update(|state| state.accounts.apply(event, uid)),
    })
    .await;
}

async fn watch_configuration(client: Client, namespace: &str, mesh: &Mesh) {
    let api = Api::<DynamicObject>::namespaced_with(client, namespace, &resource("Configuration"));
    let only = watcher::Config::default().fields(&format!("metadata.name={CONFIGURATION}"));
    let mtls = |object: DynamicObject| mtls_enabled(Some(&object.data));
    let absent = |event: &watcher::Result<Event<DynamicObject>>| {
        if event.as_ref().is_err_and(is_absent) {
            mesh.update(|state| {
                state.configurations.values.get_or_insert_default();
            });
        }
    };
    let events = watcher(api, only).default_backoff().inspect(absent);
    watch_list("configurations of Dapr", events, |event| {
        mesh.update(|state| state.configurations.apply(event, mtls));
    })
    .await;
}

async fn watch_components(client: Client, mesh: &Mesh) {
    let api = Api::<DynamicObject>::all_with(client, &resource("Component"));
    let container = |object: DynamicObject| Component::read(&serde_json::to_value(object).unwrap_or_default());
    watch_list("components of Dapr", watcher(api, pages()).default_backoff(), |event| {
        mesh.update(|state| state.components.apply(event, container));
    })
    .await;
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("dapr.io", "v1alpha1", kind))
}

/// Watches the issuer and the trust anchors of release 1.4.2.
async fn watch_issuer(api: Api<Secret>, mesh: &Mesh) {
    let only = watcher::Config::default().fields(&format!("metadata.name={BUNDLE}"));
    watch_list("the secret of Dapr's issuer", watcher(api, only).default_backoff(), |event| match event {
        Event::Apply(secret) | Event::InitApply(secret) => mesh.update(|state| {
            let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
            state.anchors = text("ca.crt");
            state.issuer = text("issuer.crt").zip(text("issuer.key")).map(|(chain, key)| Issuer { chain, key });
        }),
        Event::Delete(_) => mesh.update(|state| (state.anchors, state.issuer) = (None, None)),
        Event::Init | Event::InitDone => {}
    })
    .await;
}

/// Watches the file of the trust anchors. While it is unreadable, the last content stays in effect.
async fn watch_anchors(trust_files: &TrustFiles, mesh: &Mesh) {
    let path = &trust_files.anchors;
    let mut watch = Watch::new([parent(path)]);
    let mut warned = false;
    loop {
        watch.renew();
        let text = read_at_most(path, MAX_SIZE).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let poll = match text {
            Ok(text) => {
                warned = false;
                mesh.update(|state| state.anchors = Some(text));
                RESYNC_INTERVAL
            }
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "the trust anchors {} cannot be read", path.display());
                }
                RETRY_INTERVAL
            }
        };
        watch.changed(poll).await;
        sleep(DEBOUNCE).await;
    }
}
