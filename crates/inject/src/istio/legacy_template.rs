//! The single template of Istio up to 1.8: `settings` compiles it, `legacy` injects with it. Pure.

use gotemplate::{Delims, Functions, Template};

use super::{Error, Values};

/// The pod's `fsGroup`, which can read the tokens mounted for the sidecar.
pub(super) const GROUP: u32 = 1337;

/// A legacy template, compiled.
#[derive(Debug)]
pub(super) struct LegacyTemplate {
    pub(super) compiled: Template,
    /// The template's version in the status annotation: its SHA-256 in hexadecimal.
    pub(super) version: String,
    /// Whether the template's actions are in `[[…]]` instead of `{{…}}`, as up to Istio 1.1.
    brackets: bool,
    /// Whether the template renders the CNI plugin's annotations, as since Istio 1.4.
    redirects: bool,
}

impl LegacyTemplate {
    /// Returns the names of undefined functions that the template calls.
    pub(super) fn undefined(&self) -> &[String] {
        self.compiled.undefined()
    }

    /// Compiles a template.
    ///
    /// # Errors
    /// The template is invalid.
    pub(super) fn parse(text: &str, functions: &Functions) -> Result<Self, Error> {
        // Templates up to Istio 1.1 use brackets because Helm, which renders them first, uses braces.
        let brackets = text.contains("[[") && !text.contains("{{");
        let delims = if brackets { Delims::BRACKETS } else { Delims::BRACES };
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        Ok(Self {
            compiled: Template::parse("sidecar", text, delims, &functions.clone().with_render())?,
            version: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
            brackets,
            redirects: text.contains("podRedirectAnnot"),
        })
    }

    /// Infers the minor version of the configuration's Istio 1 release from the template's delimiters, the image tag in the values, and
    /// whether the template renders the plugin's annotations. The last release with a single template is 1.8.
    pub(super) fn release(&self, values: &Values) -> u32 {
        match (self.brackets, values.release(), self.redirects) {
            (true, ..) => 1,
            (false, Some(minor), _) => minor.clamp(2, 8),
            (false, None, true) => 7,
            (false, None, false) => 8,
        }
    }

    /// Whether the template uses `.Values`, as templates since Istio 1.2 do.
    pub(super) fn needs_values(&self) -> bool {
        !self.brackets
    }
}
