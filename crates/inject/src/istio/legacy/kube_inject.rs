//! The injection of documents by `kube-inject` of Istio 1.1 to 1.7, which did not apply the webhook's patch.
//!
//! The injected containers and volumes follow the pod's own. The template's pull secrets and the annotations for
//! metrics are not added. Since Istio 1.4, the CNI plugin's annotations (`podRedirectAnnot`) are added to the pod.

use contract::{annotation, container};
use gotemplate::Budget;
use serde_json::Value;

use super::{rendered, takes_group};
use crate::istio::config::Config;
use crate::istio::legacy_template::{GROUP, LegacyTemplate};
use crate::istio::subject::Subject;
use crate::istio::{Error, annotations, startable};
use crate::patch;
use crate::pod::{self, CONTAINERS, IMAGE_PULL_SECRETS};

/// Whether a pod has a sidecar and at least one other container.
pub(in crate::istio) fn has_sidecar(pod: &Value) -> bool {
    let containers = pod::containers(pod, CONTAINERS);
    containers.len() > 1 && pod::find(containers, container::PROXY).is_some()
}

/// Returns the pod with its sidecar.
///
/// # Errors
/// An annotation of the pod or the output of the template is invalid; see [`Error`].
pub(in crate::istio) fn inject(
    config: &Config,
    template: &LegacyTemplate,
    subject: &Subject<'_>,
    budget: &mut Budget,
) -> Result<Value, Error> {
    let (mut parts, rewritten) = rendered(config, template, subject, budget)?;
    let release = template.release(&config.values);
    let mut injected = patch::apply(subject.pod.clone(), &rewritten)?;
    let spec = pod::spec_mut(&mut injected);
    for (which, items) in parts.lists().into_iter().filter(|(which, _)| *which != IMAGE_PULL_SECRETS) {
        if !items.is_empty() {
            pod::list_mut(spec, which).extend_from_slice(items);
        }
    }
    if let Some(dns) = parts.dns_config.take() {
        pod::object(spec).insert("dnsConfig".to_owned(), dns);
    }
    if takes_group(config, release) {
        pod::map_mut(spec, "securityContext").insert("fsGroup".to_owned(), GROUP.into());
    }
    let redirect = parts.redirect.iter().filter(|(name, value)| annotations::is_istios(name) && *value != "");
    let redirect: Vec<_> = redirect.map(|(name, value)| (name.clone(), value.clone())).collect();
    let own = pod::annotations_mut(&mut injected);
    own.extend(redirect.into_iter().filter(|_| release >= 4));
    own.insert(annotation::STATUS.to_owned(), parts.status(&template.version).into());
    let added = [(6, "istio.io/rev", &*config.revision), (4, "security.istio.io/tlsMode", "istio")];
    let added: Vec<_> = added.into_iter().filter(|(since, ..)| release >= *since).collect();
    if !added.is_empty() {
        let labels = pod::labels_mut(&mut injected);
        for (_, name, value) in added {
            labels.entry(name).or_insert_with(|| value.into());
        }
    }
    annotations::check_injected(&injected)?;
    startable::check_whole_pod(subject.pod, &injected)?;
    Ok(injected)
}
