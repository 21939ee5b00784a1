//! `kube-inject`: documents of a file against the documents that Istio writes.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use istio_cni::inject::istio::Document;
use istio_cni::inject::{documents, is_empty, yaml};
use libtest_mimic::Failed;
use serde_json::Value;

use super::case::{Case, read};
use super::equal::same;

/// How many cases of this tier are equal byte for byte.
pub(crate) static SAME_BYTES: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn check(dir: &Path) -> Result<(), Failed> {
    let case = Case::read(dir)?;
    let outputs = inject(&case, &read(dir, "input.yaml")?);
    if dir.join("error.txt").exists() {
        return refused(outputs, read(dir, "error.txt")?.trim());
    }
    let outputs = outputs?;
    let want = read(dir, "want.yaml")?;
    let (text, _) = case.injector.inject_text(&read(dir, "input.yaml")?, case.native_sidecars())?;
    SAME_BYTES.fetch_add(usize::from(text == want), Ordering::Relaxed);
    let want: Vec<&str> = documents(&want).into_iter().filter(|text| !is_empty(text)).collect();
    if want.len() != outputs.len() {
        return Err(format!("expected {} documents, got {}", want.len(), outputs.len()).into());
    }
    for (want, output) in want.into_iter().zip(&outputs) {
        same(&yaml::value(want)?, output)?;
    }
    twice(&case, &outputs)
}

fn inject(case: &Case, text: &str) -> Result<Vec<Value>, Failed> {
    let mut outputs = Vec::new();
    for text in documents(text).into_iter().filter(|text| !is_empty(text)) {
        let document = yaml::value(text)?;
        outputs.push(match case.injector.inject_document(document.clone(), case.native_sidecars())? {
            Document::Untouched => document,
            Document::Workload { document, .. } => document,
        });
    }
    Ok(outputs)
}

fn refused(outputs: Result<Vec<Value>, Failed>, expected: &str) -> Result<(), Failed> {
    match outputs {
        Ok(_) => Err(format!("was injected; expected an error with {expected:?}").into()),
        Err(error) => {
            let message = error.message().unwrap_or_default().to_lowercase();
            let named = message.contains(&expected.to_lowercase());
            named.then_some(()).ok_or_else(|| format!("expected {expected:?} in {message:?}").into())
        }
    }
}

/// Injecting what was injected changes nothing.
fn twice(case: &Case, outputs: &[Value]) -> Result<(), Failed> {
    for output in outputs {
        if let Document::Workload { document, .. } =
            case.injector.inject_document(output.clone(), case.native_sidecars())?
        {
            same(output, &document)
                .map_err(|failed| format!("the second time: {}", failed.message().unwrap_or_default()))?;
        }
    }
    Ok(())
}
