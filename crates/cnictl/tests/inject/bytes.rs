//! Compares the bytes that `istio-cnictl kube-inject` writes with the bytes that `istioctl` writes, for each case of
//! the corpus with a `want.yaml`.

use std::fs;
use std::path::Path;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::kube_inject::kube_inject;
use super::on_purpose;

pub(crate) fn trials(corpus: &Path) -> Vec<Trial> {
    let folder = corpus.join("kube-inject");
    let Ok(entries) = fs::read_dir(&folder) else { return vec![tier::without_corpus("bytes", &folder)] };
    let cases = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|case| case.join("want.yaml").exists());
    let trial = |case: std::path::PathBuf| {
        let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let corpus = corpus.to_owned();
        Trial::test(format!("bytes/{name}"), move || are_equal(&corpus, &case))
    };
    cases.map(trial).collect()
}

fn are_equal(corpus: &Path, case: &Path) -> Result<(), Failed> {
    let known: Value = serde_json::from_slice(&fs::read(case.join("case.json"))?)?;
    let settings = corpus.join("settings").join(known["settings"].as_str().unwrap_or_default());
    let files = [settings.join("config.yaml"), settings.join("values.json"), case.join("mesh.yaml")];
    let [config, values, mesh] = files.each_ref().map(|path| path.to_str().unwrap_or_default());
    let native = known["native_sidecars"].to_string();
    let flags = [
        ["--injectConfigFile", config],
        ["--valuesFile", values],
        ["--meshConfigFile", mesh],
        ["--nativeSidecars", &native],
    ];
    let input = fs::read_to_string(case.join("input.yaml"))?;
    let written = kube_inject(flags.as_flattened(), input.as_bytes())?;
    let expected = on_purpose::expected(&input, &fs::read_to_string(case.join("want.yaml"))?)?;
    if written == expected { Ok(()) } else { Err(format!("other bytes:\n{written}").into()) }
}
