//! Settings of an injection that vary, and injections with them.

use std::path::Path;

use inject::istio::{BuiltIn, Config, Document, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};
use libtest_mimic::Failed;
use serde_json::{Value, json};

/// An injector, with the support for native sidecars that its requests state.
pub(super) struct Injection {
    pub(super) name: String,
    pub(super) injector: Injector,
    pub(super) native: bool,
    /// How the sidecar is declined, if it is.
    pub(super) declined: Option<Declined>,
}

/// A setting with which pods get no sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declined {
    /// The policy is `disabled`.
    Policy,
    /// The pod has the label that `neverInjectSelector` selects.
    Selector,
    /// The pod has the label `sidecar.istio.io/inject: "false"`.
    Label,
}

impl Declined {
    /// Returns the injections with each of these settings.
    pub(super) fn all() -> Result<Vec<Injection>, Failed> {
        let of = |declined: Self| {
            let policy = if declined == Self::Policy { "disabled" } else { "enabled" };
            let never = json!([{"matchLabels": {"kept": "away"}}]);
            let settings = json!({"policy": policy, "neverInjectSelector": never, "templates": BuiltIn::templates()});
            let settings = Settings::parse(&settings.to_string(), None)?;
            let injector = Injector::new(Config { settings, ..BuiltIn::default().config()? });
            Ok(Injection { name: format!("{declined:?}"), injector, native: false, declined: Some(declined) })
        };
        [Self::Policy, Self::Selector, Self::Label].into_iter().map(of).collect()
    }
}

impl Injection {
    /// Returns the pod with the label that declines the sidecar; unchanged if the policy declines it, or nothing does.
    pub(super) fn asked(&self, pod: &Value) -> Value {
        let mut asked = pod.clone();
        match self.declined {
            Some(Declined::Label) => asked["metadata"]["labels"]["sidecar.istio.io/inject"] = "false".into(),
            Some(Declined::Selector) => asked["metadata"]["labels"]["kept"] = "away".into(),
            Some(Declined::Policy) | None => {}
        }
        asked
    }

    /// Returns the pod with an image in place of `auto` in its own sidecar, if no template of this injection replaces
    /// `auto`: such a pod would be refused.
    pub(super) fn with_image(&self, mut pod: Value) -> Value {
        let containers = pod["spec"]["containers"].as_array_mut().into_iter().flatten();
        let auto = containers.filter(|container| container["image"] == "auto");
        auto.filter(|_| self.name.contains("grpc-simple")).for_each(|container| container["image"] = "own".into());
        pod
    }
}

/// The settings that vary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    template: &'static str,
    native: bool,
    cni: bool,
    mode: &'static str,
    hold: bool,
    merge: bool,
    rewrite: bool,
}

/// Settings in which most pairs of values of two members occur together.
pub(super) const CHOICES: [Choice; 12] = [
    Choice {
        template: "sidecar",
        native: false,
        cni: false,
        mode: "REDIRECT",
        hold: false,
        merge: true,
        rewrite: true,
    },
    Choice { template: "sidecar", native: true, cni: false, mode: "REDIRECT", hold: true, merge: true, rewrite: true },
    Choice { template: "sidecar", native: false, cni: true, mode: "TPROXY", hold: true, merge: false, rewrite: true },
    Choice { template: "sidecar", native: true, cni: true, mode: "TPROXY", hold: false, merge: true, rewrite: false },
    Choice { template: "sidecar", native: false, cni: true, mode: "NONE", hold: true, merge: false, rewrite: false },
    Choice { template: "sidecar", native: true, cni: true, mode: "NONE", hold: false, merge: true, rewrite: true },
    Choice {
        template: "sidecar,team",
        native: true,
        cni: true,
        mode: "REDIRECT",
        hold: false,
        merge: false,
        rewrite: false,
    },
    Choice {
        template: "sidecar,team",
        native: false,
        cni: false,
        mode: "TPROXY",
        hold: true,
        merge: true,
        rewrite: true,
    },
    Choice {
        template: "gateway",
        native: false,
        cni: false,
        mode: "REDIRECT",
        hold: false,
        merge: true,
        rewrite: false,
    },
    Choice {
        template: "gateway,team",
        native: true,
        cni: true,
        mode: "REDIRECT",
        hold: true,
        merge: false,
        rewrite: true,
    },
    Choice {
        template: "grpc-simple",
        native: false,
        cni: false,
        mode: "REDIRECT",
        hold: false,
        merge: true,
        rewrite: true,
    },
    Choice {
        template: "grpc-agent",
        native: true,
        cni: true,
        mode: "REDIRECT",
        hold: true,
        merge: true,
        rewrite: true,
    },
];

/// A user's template, with fields that no other template has.
const TEAM: &str = "metadata: {labels: {team: a}, annotations: {team/of: '{{ .DeploymentMeta.Name }}'}}
spec:
  dnsPolicy: ClusterFirstWithHostNet
  hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]
  imagePullSecrets: [{name: team}, {name: mine}]
  initContainers: [{name: team-init, image: t}]
  containers: [{name: istio-proxy, env: [{name: TEAM, value: a}]}]
  volumes: [{name: team, emptyDir: {}}, {name: mine, emptyDir: {medium: Memory}}]
";

impl Choice {
    /// Returns the injection with these settings and those in a directory of the corpus.
    pub(super) fn of_corpus(self, directory: &Path) -> Result<Injection, Failed> {
        let read = |name: &str| std::fs::read_to_string(directory.join(name));
        let mut config: Value = inject::yaml::value(&read("config.yaml")?)?;
        config["templates"]["team"] = TEAM.into();
        config["defaultTemplates"] = self.template.split(',').collect();
        config["injectedAnnotations"] = json!({"injected": format!("{self:?}")});
        let mut values: Value = serde_json::from_str(&read("values.json")?)?;
        values["pilot"]["cni"]["enabled"] = self.cni.into();
        values["global"]["network"] = if self.template.contains("team") { "network" } else { "" }.into();
        values["sidecarInjectorWebhook"]["rewriteAppHTTPProbe"] = self.rewrite.into();
        let config = Config {
            settings: Settings::parse(&config.to_string(), None)?,
            values: Values::parse(&values.to_string())?,
            mesh: self.mesh()?,
            revision: if self.merge { "r1" } else { "" }.to_owned(),
            platform: Platform::Kubernetes,
            compliance_policy: String::new(),
        };
        Ok(Injection {
            name: format!("{self:?}"),
            injector: Injector::new(config),
            native: self.native,
            declined: None,
        })
    }

    pub(super) fn of_built_in(self) -> Result<Injection, Failed> {
        let config = Config { mesh: self.mesh()?, ..BuiltIn::default().config()? };
        Ok(Injection {
            name: format!("built-in {self:?}"),
            injector: Injector::new(config),
            native: self.native,
            declined: None,
        })
    }

    fn mesh(self) -> Result<Mesh, Failed> {
        let proxy = json!({"interceptionMode": self.mode, "holdApplicationUntilProxyStarts": self.hold});
        Ok(Mesh::parse(&json!({"defaultConfig": proxy, "enablePrometheusMerge": self.merge}).to_string())?)
    }
}

impl Injection {
    /// Returns the pod after the injection. Settings that decline the sidecar leave the pod as it is.
    pub(super) fn inject(&self, pod: &Value) -> Result<Value, Failed> {
        let asked = self.asked(pod);
        let request = Request { native_sidecars: self.native, ..Request::new(&asked, "shop") };
        match self.injector.review(&request)? {
            InjectionOutcome::Injected { injected, .. } => Ok(injected.pod),
            InjectionOutcome::Skipped(_) if self.declined.is_some() => Ok(pod.clone()),
            InjectionOutcome::Skipped(decision) => Err(decision.sentence().into()),
        }
    }

    /// Returns the document that `kube-inject` makes of a pod.
    pub(super) fn kube_inject(&self, pod: &Value) -> Result<Value, Failed> {
        let mut document = pod.clone();
        document["apiVersion"] = "v1".into();
        document["kind"] = "Pod".into();
        match self.injector.inject_document(document, &|_| self.native)? {
            Document::Workload { mut document, skipped, .. } if skipped.is_empty() => {
                let members = document.as_object_mut().ok_or("it is no map")?;
                ["apiVersion", "kind"].iter().for_each(|key| drop(members.shift_remove(*key)));
                Ok(document)
            }
            other => Err(format!("{other:?}").into()),
        }
    }
}
