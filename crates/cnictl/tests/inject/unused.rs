//! Checks for the cases of the corpus that annotations and values are warned about only if Istio's templates do not read them.

use std::path::Path;

use inject::istio::{BuiltIn, Config, InjectionOutcome, Request, Settings, Values};
use inject::yaml;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::case::{Case, read};

const WARNING: &str = "annotations that no template for this pod uses: ";

/// Annotations that only templates of former releases read.
const FORMER: [&str; 1] = ["readiness.status.sidecar.istio.io/applicationPorts"];

pub(crate) fn trials(corpus: &Path) -> Vec<Trial> {
    let folder = corpus.join("webhook");
    if !folder.exists() {
        return vec![tier::without_corpus("unused annotations", &folder)];
    }
    let settings = corpus.join("settings");
    vec![
        Trial::test("only annotations that no template of Istio reads are warned about", move || warned(&folder)),
        Trial::test("only values that no template of Istio reads are warned about", move || values(&settings)),
    ]
}

/// Checks that Istio's own values cause no warning with Istio's templates and the built-in ones, and that misspelt
/// values cause one.
fn values(folder: &Path) -> Result<(), Failed> {
    const MISSPELT: [&str; 3] =
        ["/global/proxy/loglevel", "/global/proxy_init/resources", "/sidecarInjectorWebhook/rewriteAppHTTPProbes"];
    let mut all = 0;
    for dir in std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())) {
        let (config, mut values) = (read(&dir, "config.yaml")?, yaml::value(&read(&dir, "values.json")?)?);
        let warnings = |settings, values: &Value| -> Result<Vec<String>, Failed> {
            let config = BuiltIn::default().config()?;
            Ok(Config { settings, values: Values::parse(&values.to_string())?, ..config }.warnings().collect())
        };
        for (settings, is_of_config) in [(Settings::parse(&config, None)?, true), (BuiltIn::settings()?, false)] {
            // The built-in configuration was not made from these values.
            let mut found = warnings(settings, &values)?;
            found.retain(|text| is_of_config || !text.starts_with("values of which Istio's charts make"));
            // Some settings set the status port only in the values.
            found.retain(|text| !text.starts_with("global.proxy.statusPort is "));
            if !found.is_empty() {
                return Err(format!("{}: {found:?}", dir.display()).into());
            }
        }
        for path in MISSPELT {
            let (parent, key) = path.rsplit_once('/').ok_or("a path")?;
            values.pointer_mut(parent).and_then(Value::as_object_mut).ok_or(parent)?.insert(key.to_owned(), 1.into());
        }
        let mut found = warnings(Settings::parse(&config, None)?, &values)?;
        found.retain(|text| !text.starts_with("global.proxy.statusPort is "));
        let names = MISSPELT.map(|path| path[1..].replace('/', ".")).join(", ");
        if found != [format!("values that neither a template nor the injector reads: {names}")] {
            return Err(format!("{}: {found:?}", dir.display()).into());
        }
        all += 1;
    }
    (all > 0).then_some(()).ok_or_else(|| "there are no settings".into())
}

fn warned(folder: &Path) -> Result<(), Failed> {
    let mut all = 0;
    for dir in std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())) {
        let (case, pod) = (Case::read(&dir)?, serde_json::from_str::<Value>(&read(&dir, "pod.json")?)?);
        let settings = dir.join("../../settings").join(case.json["settings"].as_str().unwrap_or_default());
        let config = yaml::value(&read(&settings, "config.yaml")?)?;
        let selected = pod["metadata"]["annotations"]["inject.istio.io/templates"].as_str().unwrap_or("sidecar");
        let texts: Vec<&str> =
            selected.split(',').filter_map(|name| config["templates"][name.trim()].as_str()).collect();
        let Ok(InjectionOutcome::Injected { injected, .. }) = case.injector.review(&Request::new(&pod, "shop")) else {
            continue;
        };
        let lists = injected.warnings.iter().filter_map(|warning| warning.strip_prefix(WARNING));
        for name in lists.flat_map(|list| list.split(", ")) {
            all += 1;
            if texts.iter().any(|text| text.contains(name)) {
                return Err(format!("{}: {name} is read by one of {selected}", dir.display()).into());
            }
            if selected == "sidecar" && !FORMER.contains(&name) {
                return Err(format!("{}: {name} is warned about", dir.display()).into());
            }
        }
    }
    (all > 0).then_some(()).ok_or_else(|| "no case has an unused annotation".into())
}
