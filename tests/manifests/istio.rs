//! Compares the agent's chart with the recorded output of Istio's chart for the same values (`chart.json` of the
//! corpus).
//!
//! Both outputs are flattened into paths with values. Each path at which they differ must be covered by an entry of
//! [`differences::DIFFERENCES`], each case that only this chart refuses by an entry of [`differences::REFUSALS`].

mod differences;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use self::differences::{DIFFERENCES, Difference, REFUSALS};
use self::shape::Shape;
use crate::helm::AGENT;
use crate::objects::parse;

/// The namespace of the recorded objects.
const NAMESPACE: &str = "istio-system";

/// The content of `chart.json`: the output of Istio's chart for sets of values (the cases), and the keys of its values
/// with their defaults.
pub(crate) struct Corpus {
    cases: BTreeMap<String, Value>,
    values: BTreeMap<String, Value>,
}

/// Reads the corpus, if it exists.
pub(crate) fn corpus() -> Option<&'static Corpus> {
    let text = fs::read_to_string(tier::corpus_directory().join("chart.json")).ok()?;
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let mut map = |key: &str| serde_json::from_value(file[key].take()).unwrap();
    Some(Box::leak(Box::new(Corpus { cases: map("cases"), values: map("values") })))
}

impl Corpus {
    /// Returns the names of all cases.
    pub(crate) fn names(&'static self) -> impl Iterator<Item = &'static str> {
        self.cases.keys().map(String::as_str)
    }

    /// Fails unless this chart's output for a case equals the output of Istio's chart, except for listed differences.
    pub(crate) fn check(&self, name: &str) {
        self.differences_of(name);
    }

    /// Fails for each listed difference that occurs in no case.
    pub(crate) fn every_difference_is_needed(&self) {
        let used: BTreeSet<&str> = self.cases.keys().flat_map(|name| self.differences_of(name)).collect();
        let listed = DIFFERENCES.iter().map(|difference| difference.reason).chain(REFUSALS.iter().map(|r| r.reason));
        let unused: Vec<&str> = listed.filter(|reason| !used.contains(reason)).collect();
        assert!(unused.is_empty(), "no case needs these differences: {unused:#?}");
    }

    /// Fails unless the chart accepts all default values of Istio's chart except its image, as in a copied values file, and its output then
    /// differs from the output of Istio's chart only by listed differences.
    pub(crate) fn every_key_is_known(&self) {
        let render = |without: &[&str]| {
            let given = self.values.iter().filter(|(key, _)| !without.contains(&&***key));
            let given: Vec<String> = given.map(|(key, value)| format!("{key}={value}")).collect();
            AGENT.try_text_with(NAMESPACE, given.iter().flat_map(|value| ["--set-json", value]))
        };
        let error = render(&[]).unwrap_err();
        assert!(error.contains("is Istio's own"), "{error}");
        let text = render(&["global.hub", "global.tag"]).unwrap_or_else(|error| panic!("{error}"));
        let ours = Shape::of_objects(&parse(&text));
        let istios = Shape::of_corpus(&self.cases["default"]["makes"]);
        compare("Istio's defaults", &istios, &ours);
        assert_eq!(
            ours.get("environment/REPAIR_MODE"),
            Some(&Value::from("repair")),
            "the mode that Istio's switches select"
        );
    }

    /// Compares the outputs for a case and returns the reasons of all differences; fails if a difference is not listed.
    fn differences_of(&self, name: &str) -> BTreeSet<&'static str> {
        let case = &self.cases[name];
        let set = case["set"].as_str().unwrap();
        let flags = if set.is_empty() { vec![] } else { vec!["--set", set] };
        let rendered = AGENT.try_text_with(NAMESPACE, flags);
        let istio_refuses = case["makes"].get("refused").is_some();
        match rendered {
            Err(_) if istio_refuses => BTreeSet::new(),
            Ok(_) if istio_refuses => panic!("{name}: Istio's chart refuses {set:?}, this one does not"),
            Err(error) => {
                let refusal = REFUSALS.iter().find(|refusal| error.contains(refusal.message));
                let refusal = refusal.unwrap_or_else(|| panic!("{name}: {set:?} is refused: {error}"));
                assert!((refusal.when)(set), "{name}: {set:?} is refused for another reason: {error}");
                BTreeSet::from([refusal.reason])
            }
            Ok(text) => {
                let ours = Shape::of_objects(&parse(&text));
                let istios = Shape::of_corpus(&case["makes"]);
                assert_eq!(ours.get("environment/REPAIR_MODE"), istios.repair_mode(set).as_ref(), "{name}: {set:?}");
                compare(name, &istios, &ours)
            }
        }
    }
}

/// Returns the reasons of all differences; fails with the differences that are not listed.
fn compare(name: &str, istios: &Shape, ours: &Shape) -> BTreeSet<&'static str> {
    let (mut used, mut unlisted) = (BTreeSet::new(), Vec::new());
    for path in istios.paths().chain(ours.paths()).collect::<BTreeSet<_>>() {
        let (istio, own) = (istios.get(path), ours.get(path));
        if istio == own {
            continue;
        }
        match DIFFERENCES.iter().find(|difference| difference.covers(path, istio, own)) {
            Some(Difference { reason, .. }) => _ = used.insert(*reason),
            None => unlisted.push(format!("{path}: Istio {istio:?}, this chart {own:?}")),
        }
    }
    assert!(unlisted.is_empty(), "{name}: {unlisted:#?}");
    used
}
