//! What rendered texts mean, remembered: replicas of one workload render the same text, and reading it is dear.
//!
//! `pipeline` asks for each text. An injector has one memory, so that a new configuration begins with none. What is remembered
//! is found by the whole text and is a function of it alone: no pod can change what another one gets, nor how much is kept.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use gotemplate::Budget;
use serde_json::Value;

use super::status;
use crate::inject::yaml;

/// So many texts are remembered at most.
const TEXTS: usize = 64;
/// So many bytes they take at most, all together and with what they mean.
const BYTES: usize = 2 << 20;
/// So many texts that came once are told from new ones: pods that stand alone do not push out those that have replicas.
const ONCE: usize = 512;

/// What a text means.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Overlay {
    /// The partial pod.
    pub(super) whole: Value,
    /// Its [outline](status::outline).
    pub(super) outline: Value,
}

/// A memory for texts and their meanings.
#[derive(Debug, Default)]
pub(super) struct Overlays {
    hashes: RandomState,
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    /// The last used one first.
    texts: VecDeque<Arc<Known>>,
    bytes: usize,
    /// Hashes of texts that came once; the last one first.
    once: VecDeque<u64>,
}

#[derive(Debug)]
struct Known {
    hash: u64,
    text: String,
    overlay: Arc<Overlay>,
    bytes: usize,
}

impl Overlays {
    /// What a text means.
    ///
    /// # Errors
    /// It cannot be read; see [`yaml::value_within`].
    pub(super) fn read(&self, text: String, budget: &mut Budget) -> Result<Arc<Overlay>, yaml::Error> {
        let hash = self.hashes.hash_one(&text);
        // Compared outside of the lock. Another text of the same hash is read as if nothing were known.
        if let Some(known) = self.with(|remembered| remembered.recall(hash)).filter(|known| known.text == text) {
            return Ok(Arc::clone(&known.overlay));
        }
        let whole = yaml::value_within(&text, budget)?;
        let overlay = Arc::new(Overlay { outline: status::outline(&whole), whole });
        if self.with(|remembered| remembered.came_before(hash)) {
            let bytes = text.len() + size(&overlay.whole) + size(&overlay.outline);
            let known = Known { hash, text, overlay: Arc::clone(&overlay), bytes };
            self.with(|remembered| remembered.keep(known));
        }
        Ok(overlay)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Remembered) -> T) -> T {
        act(&mut self.remembered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Remembered {
    fn recall(&mut self, hash: u64) -> Option<Arc<Known>> {
        let at = self.texts.iter().position(|known| known.hash == hash)?;
        let known = self.texts.remove(at)?;
        self.texts.push_front(Arc::clone(&known));
        Some(known)
    }

    /// Whether a text of this hash came lately; from now on it did.
    fn came_before(&mut self, hash: u64) -> bool {
        if self.once.contains(&hash) {
            return true;
        }
        self.once.truncate(ONCE - 1);
        self.once.push_front(hash);
        false
    }

    fn keep(&mut self, known: Known) {
        if known.bytes > BYTES || self.texts.iter().any(|other| other.hash == known.hash) {
            return;
        }
        self.bytes += known.bytes;
        self.texts.push_front(Arc::new(known));
        while self.texts.len() > TEXTS || self.bytes > BYTES {
            let Some(oldest) = self.texts.pop_back() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

/// About so many bytes a value takes beside itself. Lists and maps grow by doubling, and begin with room for four.
fn size(value: &Value) -> usize {
    let room = |count: usize| if count == 0 { 0 } else { count.next_power_of_two().max(4) };
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => room(items.len()) * size_of::<Value>() + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => {
            let entries = room(members.len()) * size_of::<(u64, String, Value, usize)>();
            entries + members.iter().map(|(key, value)| key.len() + size(value)).sum::<usize>()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inject::istio::{BuiltIn, Config, InjectionOutcome, Injector, Request, Settings};

    impl Overlays {
        fn meaning(&self, text: String) -> Result<Arc<Overlay>, yaml::Error> {
            self.read(text, &mut Budget::default())
        }
    }

    fn remembered(overlays: &Overlays) -> (usize, usize, usize) {
        overlays.with(|remembered| (remembered.texts.len(), remembered.bytes, remembered.once.len()))
    }

    #[test]
    fn a_text_that_comes_again_is_read_twice_and_then_known() {
        let overlays = Overlays::default();
        let read = || overlays.meaning("spec: {volumes: [{name: v, emptyDir: {}}]}".to_owned()).unwrap();
        let (first, second, third, fourth) = (read(), read(), read(), read());
        assert!(!Arc::ptr_eq(&first, &second), "a text that came once is not kept");
        assert!(Arc::ptr_eq(&second, &third) && Arc::ptr_eq(&third, &fourth), "it is not read again");
        assert_eq!(first, fourth);
        assert_eq!(remembered(&overlays).0, 1);
    }

    #[test]
    fn a_text_that_differs_in_one_byte_has_its_own_meaning() {
        let overlays = Overlays::default();
        for _ in 0..4 {
            for letter in ["a", "b", "c"] {
                let overlay = overlays.meaning(format!("metadata: {{labels: {{app: {letter}}}}}\n")).unwrap();
                assert_eq!(overlay.whole["metadata"]["labels"]["app"], letter);
            }
        }
    }

    fn injector(template: &str) -> Injector {
        let settings = Settings::from_template(template).unwrap();
        Injector::new(Config { settings, ..BuiltIn::default().config().unwrap() })
    }

    fn label(injector: &Injector, name: &str) -> Value {
        let pod = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"containers": [{"name": "a"}]}});
        match injector.review(&Request::new(&pod, "shop")).unwrap() {
            InjectionOutcome::Injected { injected, .. } => injected.pod["metadata"]["labels"]["of"].clone(),
            InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
        }
    }

    #[test]
    fn two_pods_whose_texts_differ_in_one_byte_get_their_own_patches() {
        let injector = injector("metadata: {labels: {of: '{{ .ObjectMeta.Name }}'}}");
        for _ in 0..4 {
            for name in ["web-a", "web-b"] {
                assert_eq!(label(&injector, name), name);
            }
        }
        assert_eq!(remembered(&injector.overlays).0, 2);
    }

    #[test]
    fn a_new_configuration_begins_with_nothing() {
        let injectors = ["one", "two"].map(|word| injector(&format!("metadata: {{labels: {{of: {word}}}}}")));
        (0..4).for_each(|_| assert_eq!(label(&injectors[0], "web"), "one"));
        assert_eq!((remembered(&injectors[0].overlays).0, remembered(&injectors[1].overlays)), (1, (0, 0, 0)));
        assert_eq!(label(&injectors[1], "web"), "two");
    }

    #[test]
    fn a_text_of_the_same_hash_has_its_own_meaning() {
        let overlays = Overlays::default();
        let read = |text: &str| overlays.meaning(text.to_owned()).unwrap();
        (0..2).for_each(|_| drop(read("a: 1")));
        let hash = overlays.hashes.hash_one("b: 2".to_owned());
        overlays.with(|remembered| {
            let known = Arc::get_mut(&mut remembered.texts[0]).unwrap();
            known.hash = hash;
        });
        (0..3).for_each(|_| assert_eq!(read("b: 2").whole, json!({"b": 2})));
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_bytes() {
        let overlays = Overlays::default();
        let fill = |count: usize, length: usize| {
            for number in 0..count {
                (0..2).for_each(|_| drop(overlays.meaning(format!("a{number}: {}", "x".repeat(length))).unwrap()));
            }
            remembered(&overlays)
        };
        let (texts, _, once) = fill(2 * ONCE, 1);
        assert_eq!((texts, once), (TEXTS, ONCE));
        let (texts, bytes, _) = fill(100, BYTES / 20);
        assert!((1..20).contains(&texts) && bytes <= BYTES, "{texts} texts of {bytes} bytes");
        let before = remembered(&overlays);
        (0..3).for_each(|_| drop(overlays.meaning(format!("a: {}", "x".repeat(BYTES))).unwrap()));
        assert_eq!(remembered(&overlays), before, "what is too large pushes nothing out");
        let sum = overlays.with(|remembered| remembered.texts.iter().map(|known| known.bytes).sum::<usize>());
        assert_eq!(sum, before.1);
    }

    #[test]
    fn texts_that_come_once_push_nothing_out() {
        let overlays = Overlays::default();
        let read = |text: String| overlays.meaning(text).unwrap();
        (0..2).for_each(|_| drop(read("a: 1".to_owned())));
        let known = read("a: 1".to_owned());
        (0..5000).for_each(|number| drop(read(format!("b: {number}"))));
        assert!(Arc::ptr_eq(&read("a: 1".to_owned()), &known));
        assert_eq!(remembered(&overlays).0, 1);
    }

    #[test]
    fn the_size_of_small_parts_counts() {
        let lists = "- a:\n".repeat(1000);
        let overlay = yaml::value(&lists).unwrap();
        assert!(size(&overlay) > 500 * 1000, "{}", size(&overlay));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_each_time() {
        let overlays = Overlays::default();
        for _ in 0..4 {
            assert!(overlays.meaning("a: [".to_owned()).is_err());
        }
        assert_eq!(remembered(&overlays), (0, 0, 0));
    }
}
