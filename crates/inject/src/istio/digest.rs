//! The digest of an injection's settings in the status annotation, by which a later injection detects whether its own
//! settings are the same.

use contract::annotation;
use ring::digest::{Context, SHA256};
use serde_json::json;

use super::config::Config;
use super::settings::Program;
use super::subject::Subject;
use crate::pod;

/// The number of hexadecimal digits in a digest.
const DIGITS: usize = 16;

/// Returns the digest of a configuration.
pub(super) fn of_config(config: &Config) -> String {
    let mut context = Context::new(&SHA256);
    let mut add = |part: &str| {
        context.update(&part.len().to_be_bytes());
        context.update(part.as_bytes());
    };
    if let Program::Modern { templates, default, aliases } = &config.settings.program {
        for (name, template) in templates {
            add(name);
            add(template.source());
        }
        add(&json!([default, aliases, config.settings.injected_annotations]).to_string());
    }
    add(&json!([config.values.raw, config.mesh.json, config.revision, config.compliance_policy]).to_string());
    add(&format!("{:?}", config.platform));
    shown(context)
}

/// Returns the digest of a subject's settings, among them the digest of the configuration; `None` if the subject has no such digest. The
/// settings are those that an injection does not change, so the digest is the same before and after it.
pub(super) fn of_subject(subject: &Subject<'_>) -> Option<String> {
    let annotated = |name: &str| pod::annotation(subject.pod, name).unwrap_or_default();
    let modes = [annotated(annotation::INTERCEPTION_MODE), pod::text(&subject.proxy_config, "interceptionMode")];
    let mode = modes.into_iter().find(|mode| !mode.is_empty()).unwrap_or("REDIRECT");
    let annotations = [annotation::TEMPLATES, annotation::NATIVE_SIDECAR, annotation::STATUS_PORT].map(annotated);
    let settings = json!([
        subject.digest?,
        subject.templates,
        subject.env,
        subject.native,
        subject.ids.0,
        subject.ids.1,
        mode,
        annotations,
        subject.proxy_config
    ]);
    let mut context = Context::new(&SHA256);
    context.update(settings.to_string().as_bytes());
    Some(shown(context))
}

fn shown(context: Context) -> String {
    let digits = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    digits.chars().take(DIGITS).collect()
}
