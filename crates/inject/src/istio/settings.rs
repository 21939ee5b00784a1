//! Istio's injection configuration, the key `config` of its ConfigMap, with templates and selectors parsed.
//!
//! Both formats are supported: `templates`, and the single `template` of Istio up to 1.8.

use std::collections::BTreeMap;

use gotemplate::{Delims, Functions, Template};
use podfacts::selector::LabelSelector;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::legacy_template::LegacyTemplate;
use super::policy::{self, Era, Policy};
use super::unused::Reads;
use super::{Error, functions};
use crate::yaml;

/// The name of the default template.
pub(super) const SIDECAR: &str = "sidecar";

/// The parsed configuration.
#[derive(Debug)]
pub struct Settings {
    /// The injection policy.
    pub policy: Policy,
    /// The annotations that each injected pod gets.
    pub(super) injected_annotations: Map<String, Value>,
    pub(super) program: Program,
    /// What each template reads of a pod.
    pub(super) reads: BTreeMap<String, Reads>,
    /// Warnings for the log about invalid parts of the configuration, which are ignored.
    pub warnings: Vec<String>,
}

/// The compiled templates.
#[derive(Debug)]
pub(super) enum Program {
    /// Templates of partial pods, which are merged one after another.
    Modern { templates: BTreeMap<String, Template>, default: Vec<String>, aliases: BTreeMap<String, Vec<String>> },
    /// The single template of lists, whose items are appended to the pod's.
    Legacy(LegacyTemplate),
}

impl Program {
    /// Returns what each template reads of a pod.
    fn reads(&self) -> BTreeMap<String, Reads> {
        match self {
            Self::Modern { templates, .. } => {
                templates.iter().map(|(name, template)| (name.clone(), Reads::of(template))).collect()
            }
            Self::Legacy(program) => BTreeMap::from([(SIDECAR.to_owned(), Reads::of(&program.compiled))]),
        }
    }

    /// Returns each undefined function with the name of the template that calls it.
    fn undefined(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Modern { templates, .. } => {
                let all = templates.iter().flat_map(|(name, template)| {
                    template.undefined().iter().map(move |function| (name.as_str(), function.as_str()))
                });
                all.collect()
            }
            Self::Legacy(program) => program.undefined().iter().map(|function| (SIDECAR, function.as_str())).collect(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    policy: Option<String>,
    #[serde(default)]
    template: Option<String>,
    #[serde(default)]
    templates: Option<BTreeMap<String, String>>,
    #[serde(default)]
    default_templates: Option<Vec<String>>,
    #[serde(default)]
    aliases: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    never_inject_selector: Option<Vec<Value>>,
    #[serde(default)]
    always_inject_selector: Option<Vec<Value>>,
    #[serde(default)]
    injected_annotations: Option<Map<String, Value>>,
}

impl Settings {
    /// Parses the configuration. `era`: the releases whose policy rules apply; by default the latest ones with this
    /// format.
    ///
    /// # Errors
    /// The YAML is not a configuration, or a template is invalid.
    pub fn parse(text: &str, era: Option<Era>) -> Result<Self, Error> {
        Self::with_environment(text, era, BTreeMap::new())
    }

    /// Parses the configuration like [`Settings::parse`], with the variables for the templates' function `env`.
    ///
    /// # Errors
    /// See [`Settings::parse`].
    pub fn with_environment(
        text: &str,
        era: Option<Era>,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let document: Document = yaml::read(text).map_err(|error| Error::Configuration { what: "injection", error })?;
        Self::new(document, era, environment)
    }

    /// Makes the settings for a single template, which `kube-inject` accepts instead of a configuration.
    ///
    /// # Errors
    /// The template is invalid.
    pub fn from_template(text: &str) -> Result<Self, Error> {
        let templates = Some(BTreeMap::from([(SIDECAR.to_owned(), text.to_owned())]));
        let none = Document {
            // A single template has no policy, and without a policy no pod would be injected.
            policy: Some("enabled".to_owned()),
            template: None,
            templates,
            default_templates: None,
            aliases: None,
            never_inject_selector: None,
            always_inject_selector: None,
            injected_annotations: None,
        };
        Self::new(none, None, BTreeMap::new())
    }

    /// Whether the templates use `.Values`, as in all but the first releases.
    pub fn needs_values(&self) -> bool {
        match &self.program {
            Program::Modern { .. } => true,
            Program::Legacy(program) => program.needs_values(),
        }
    }

    fn new(document: Document, era: Option<Era>, environment: BTreeMap<String, String>) -> Result<Self, Error> {
        let functions = functions::all(environment);
        let mut warnings = Vec::new();
        let mut selectors = |name: &str, selectors: Option<Vec<Value>>| {
            let parse = |selector: &Value| LabelSelector::deserialize(selector);
            let mut valid = Vec::new();
            for (at, selector) in selectors.unwrap_or_default().iter().map(parse).enumerate() {
                match selector {
                    Ok(selector) => valid.push(selector),
                    Err(error) => warnings.push(format!("{name} {at} is not used: {error}")),
                }
            }
            valid
        };
        let never = selectors("neverInjectSelector", document.never_inject_selector);
        let always = selectors("alwaysInjectSelector", document.always_inject_selector);
        let templates = document.templates.filter(|templates| !templates.is_empty());
        let (program, default_era) = match (templates, document.template.filter(|text| !text.is_empty())) {
            (Some(templates), _) => (
                modern(templates, document.default_templates, document.aliases.unwrap_or_default(), &functions)?,
                Era::V1_27,
            ),
            (None, Some(text)) => (Program::Legacy(LegacyTemplate::parse(&text, &functions)?), Era::V1_1),
            (None, None) => return Err(Error::NoTemplates),
        };
        warnings.extend(program.undefined().into_iter().map(|(template, function)| {
            format!(
                "template {template} calls the unknown function {function:?}: pods for which this call is evaluated are refused"
            )
        }));
        let default = match document.policy.as_deref() {
            Some("enabled") => policy::Default::Enabled,
            Some("disabled") => policy::Default::Disabled,
            word => policy::Default::Invalid(word.unwrap_or_default().to_owned()),
        };
        if let policy::Default::Invalid(word) = &default {
            warnings.push(format!("policy {word:?} is neither \"enabled\" nor \"disabled\": nothing will be injected"));
        }
        Ok(Self {
            policy: Policy { era: era.unwrap_or(default_era), default, never, always },
            injected_annotations: document.injected_annotations.unwrap_or_default(),
            reads: program.reads(),
            program,
            warnings,
        })
    }
}

fn modern(
    texts: BTreeMap<String, String>,
    default: Option<Vec<String>>,
    aliases: BTreeMap<String, Vec<String>>,
    functions: &Functions,
) -> Result<Program, Error> {
    let mut templates = BTreeMap::new();
    for (name, text) in texts {
        let template = Template::parse(&name, &text, Delims::BRACES, functions)?;
        templates.insert(name, template);
    }
    let default = default.filter(|names| !names.is_empty()).unwrap_or_else(|| vec![SIDECAR.to_owned()]);
    Ok(Program::Modern { templates, default, aliases })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_decides_the_era_unless_a_flag_does() {
        let era = |text: &str, era| Settings::parse(text, era).unwrap().policy.era;
        assert_eq!(era("templates: {sidecar: 'spec: {}'}", None), Era::V1_27);
        assert_eq!(era("template: 'containers: []'", None), Era::V1_1);
        assert_eq!(era("template: '{{ poison }}'\ntemplates: {sidecar: 'spec: {}'}", Some(Era::V1_12)), Era::V1_12);
    }

    #[test]
    fn without_a_policy_nothing_is_injected() {
        let settings = Settings::parse("templates: {sidecar: 'spec: {}'}", None).unwrap();
        assert_eq!(settings.policy.default, policy::Default::Invalid(String::new()));
        assert_eq!(settings.warnings.len(), 1);
        assert!(settings.warnings[0].starts_with("policy \"\" is neither"), "{:?}", settings.warnings);
        let template = Settings::from_template("spec: {}").unwrap();
        assert_eq!((template.policy.default, template.warnings.len()), (policy::Default::Enabled, 0));
    }

    #[test]
    fn an_invalid_configuration_is_refused_and_invalid_parts_are_warnings() {
        assert!(matches!(Settings::parse("policy: enabled", None), Err(Error::NoTemplates)));
        assert!(matches!(Settings::parse("templates: [", None), Err(Error::Configuration { .. })));
        assert!(matches!(Settings::parse("templates: {a: '{{ . }'}", None), Err(Error::Template(_))));
        for text in ["templates: {sidecar: '{{ nosuch }}'}", "template: '{{ nosuch }}'"] {
            let warnings = Settings::parse(text, None).unwrap().warnings;
            assert!(warnings[0].starts_with("template sidecar calls the unknown function \"nosuch\""), "{warnings:?}");
        }
        let settings =
            Settings::parse("{policy: disable, templates: {a: b}, neverInjectSelector: [{matchExpressions: 1}]}", None);
        let warnings = settings.unwrap().warnings;
        assert!(warnings[0].starts_with("neverInjectSelector 0 is not used: "), "{warnings:?}");
        assert!(warnings[1].starts_with("policy \"disable\" is neither"), "{warnings:?}");
    }
}
