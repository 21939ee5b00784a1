//! The forms in which commands write explanations: text, text with more detail, JSON or YAML.

use clap::{Args, ValueEnum};
use contract::diagnostics::terminal::Style;
use serde_json::Value;

use super::{Error, Streams, text};

/// The form of explanations.
#[derive(Debug, Clone, Args)]
pub(super) struct Output {
    /// Text for people, which `wide` extends; or JSON or YAML
    #[arg(long = "output", short = 'o', value_name = "FORM", default_value = "text")]
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Wide,
    Json,
    Yaml,
}

/// The level of detail of text output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Usual,
    /// Adds the meaning of each annotation and variable that sets a pod's parameter; lists all pods of a node that have
    /// problems.
    Wide,
}

impl Output {
    /// Writes explanations in this form.
    pub(super) fn write<T>(
        &self,
        explained: &[T],
        text: impl Fn(&T, Detail, Style) -> String,
        json: impl Fn(&T) -> Value,
        streams: &mut Streams<'_>,
    ) -> Result<(), Error> {
        let texts = |detail| explained.iter().map(|it| text(it, detail, streams.style)).collect::<Vec<_>>().join("\n");
        let output = match self.form {
            Form::Text => texts(Detail::Usual),
            Form::Wide => texts(Detail::Wide),
            Form::Json => text::json(&explained.iter().map(json).collect::<Vec<Value>>())?,
            Form::Yaml => text::yaml(explained.iter().map(json))?,
        };
        text::write(None, &output, streams)
    }
}
