//! Generates the page of annotations and labels of pods, from `contract`, the annotations that the plugin reads and the
//! injector's checks.

use contract::annotation;
use inject::istio::{allowed, is_of_templates};
use podfacts::ANNOTATIONS;

use super::table::{code, head, sentence, table};

pub(super) fn page() -> String {
    let mut text = head("Annotations and labels", "`crates/contract`, the plugin's facts and the injector's checks");
    text.push_str(
        "The plugin refuses a pod whose annotation has another value; so does the injector, before a template uses the \
         value. An annotation of `template` has no effect with a configuration whose templates do not read it; the injector \
         only checks its value.\n\n",
    );
    let row = |(name, effect): &(&str, &str)| {
        let readers = match name {
            name if ANNOTATIONS.contains(name) => "plugin, injector",
            name if is_of_templates(name) => "template",
            _ => "injector",
        };
        let value = allowed(name).unwrap_or_default().replace('*', "\\*");
        [code(name), readers.to_owned(), value, sentence(effect)]
    };
    let rows: Vec<_> = annotation::ALL.iter().map(row).collect();
    text.push_str(&table(["Name", "Read by", "Value", "Effect"], &rows));
    text.trim_end().to_owned() + "\n"
}

#[test]
fn each_annotation_that_is_read_is_listed() {
    for name in ANNOTATIONS {
        assert!(annotation::ALL.iter().any(|(listed, _)| *listed == name), "{name} is not in contract::annotation");
    }
}
