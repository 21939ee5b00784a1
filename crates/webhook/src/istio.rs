//! Serves Istio's injection at `/inject`.
//!
//! Builds an [`Injector`] from the configuration's [`Texts`], and converts reviews to the injector's requests and the
//! injector's outcomes to the webhook's.

use std::collections::BTreeMap;
use std::sync::Arc;

use inject::istio::{self, BuiltIn, Config, Era, Injector, Mesh, Platform, Request, Settings, Values};
use serde_json::Value;

use super::cluster_state::ClusterState;
use super::configuration::{Build, Texts};
use super::patch;
use super::review::{AdmissionOutcome, OVER_BUDGET, Profile, Review, Verdict};

/// The settings of the injection from the command line.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The control plane's revision.
    pub revision: String,
    pub platform: Platform,
    /// `COMPLIANCE_POLICY`; empty: none.
    pub compliance_policy: String,
    /// The releases of Istio whose injection policy applies; by default the latest releases that use the
    /// configuration's format.
    pub era: Option<Era>,
    /// The built-in configuration, which applies if no other one is given.
    pub built_in: BuiltIn,
    /// The variables for the templates' function `env`.
    pub environment: BTreeMap<String, String>,
    /// Whether pods whose runtime class is a sandboxed runtime are refused.
    pub refuse_sandboxes: bool,
}

/// Returns the function that builds profiles from Istio's configuration.
pub fn build(options: Options, cluster_state: ClusterState) -> Build {
    Arc::new(move |texts| {
        let config = config(&options, texts).map_err(|error| error.to_string())?;
        config.warnings().for_each(|warning| tracing::warn!("{warning}"));
        let injector = Injector::new(config).with_sandboxes_refused(options.refuse_sandboxes);
        Ok(Box::new(Istio { injector, cluster_state: cluster_state.clone() }) as Box<dyn Profile>)
    })
}

/// Parses the configuration; without `texts.config`, returns the built-in configuration.
///
/// # Errors
/// A part of the configuration is invalid.
pub fn config(options: &Options, texts: &Texts) -> Result<Config, istio::Error> {
    let (revision, compliance_policy) = (options.revision.clone(), options.compliance_policy.clone());
    let platform = options.platform;
    let Some(config) = &texts.config else {
        let built_in = BuiltIn { platform, ..options.built_in.clone() };
        let mut config = Config { revision, compliance_policy, ..built_in.config()? };
        config.settings.warnings.push(assumption(&options.built_in));
        return Ok(config);
    };
    Ok(Config {
        settings: Settings::with_environment(config, options.era, options.environment.clone())?,
        values: Values::parse(texts.values.as_deref().unwrap_or_default())?,
        mesh: Mesh::parse(texts.mesh.as_deref().unwrap_or_default())?,
        revision,
        platform,
        compliance_policy,
    })
}

/// Returns a warning that lists the assumptions of the built-in configuration about the cluster.
fn assumption(built_in: &BuiltIn) -> String {
    let (proxy_image, discovery) = (&built_in.proxy_image, built_in.address());
    let rest = if discovery.is_empty() {
        "belongs to no mesh".to_owned()
    } else {
        format!(
            "assumes istiod and its CA at {discovery}, the ConfigMap istio-ca-root-cert in each namespace, and trust domain \
             cluster.local"
        )
    };
    format!("there is no injection configuration, so pods get the compiled-in sidecar: {proxy_image}, which {rest}")
}

struct Istio {
    injector: Injector,
    cluster_state: ClusterState,
}

impl Profile for Istio {
    fn review(&self, review: &Review) -> AdmissionOutcome {
        if !matches!(&*review.kind, "Pod" | "") {
            let reason = format!("a {} gets no sidecar", review.kind);
            return AdmissionOutcome { verdict: Verdict::Skip, rule: "no_pod", reason, warnings: Vec::new() };
        }
        if !review.object.is_object() {
            return refused("the AdmissionReview contains no pod".to_owned());
        }
        let namespace = &*review.namespace;
        let node = review.object.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty());
        let class = review.object.pointer("/spec/runtimeClassName").and_then(Value::as_str);
        let annotations = self.cluster_state.annotations(namespace);
        let proxy_configs = self.cluster_state.proxy_configs([self.injector.config().mesh.root_namespace(), namespace]);
        let request = Request {
            pod: &review.object,
            namespace,
            namespace_annotations: annotations.as_deref(),
            proxy_configs: &proxy_configs,
            env: review.variables.clone(),
            native_sidecars: self.cluster_state.native_sidecars_of(node),
            sandbox: class.and_then(|class| self.cluster_state.is_sandbox(class)),
            budget: review.budget.clone(),
        };
        match self.injector.review(&request) {
            Ok(outcome) => outcome_of(outcome),
            Err(error) if error.is_exceeded() => AdmissionOutcome::refused(OVER_BUDGET, error.to_string()),
            Err(error) => refused(error.to_string()),
        }
    }
}

fn outcome_of(outcome: istio::InjectionOutcome<'_>) -> AdmissionOutcome {
    let (decision, injected) = match outcome {
        istio::InjectionOutcome::Skipped(decision) => (decision, None),
        istio::InjectionOutcome::Injected { decision, injected } => (decision, Some(injected)),
    };
    let (rule, mut reason) = (decision.reason.label(), decision.reason.to_string());
    let mut warnings: Vec<String> = decision.warning_sentences().collect();
    for warning in &decision.warnings {
        reason += &format!("; {warning}");
    }
    warnings.extend(injected.iter().flat_map(|injected| injected.warnings.iter().cloned()));
    let written = |injected: istio::Injected<'_>| {
        patch::written(&injected.patch_within(patch::JSON_LIMIT).ok_or_else(patch::too_long)?)
    };
    let verdict = match injected.map(written) {
        None => Verdict::Skip,
        Some(Ok(patch)) => patch,
        Some(Err(refusal)) => return *refusal,
    };
    AdmissionOutcome { verdict, rule, reason, warnings }
}

fn refused(reason: String) -> AdmissionOutcome {
    AdmissionOutcome::refused("error", reason)
}
