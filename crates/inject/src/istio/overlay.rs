//! A cache of parsed overlays: replicas of a workload render the same text, and parsing is expensive.
//!
//! `pipeline` reads each rendered text through the cache. Each injector has a cache of its own, so that a new
//! configuration starts with an empty one. The key of an entry is the text, on which alone the overlay depends: a pod
//! can change neither the overlays of other pods nor the maximum size of the cache.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use gotemplate::Budget;
use serde_json::Value;

use super::status;
use crate::yaml;

/// The maximum number of entries in the cache.
const MAX_ENTRIES: usize = 64;
/// The maximum size of all entries in bytes: their texts and overlays.
const MAX_BYTES: usize = 2 << 20;
/// The maximum number of remembered hashes of texts that were read once. Only a text that is read again becomes an
/// entry, so that pods without replicas evict no entries.
const MAX_ONCE: usize = 512;

/// The parsed output of a template.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Overlay {
    /// The partial pod.
    pub(super) pod: Value,
    /// The [outline](status::outline) of `pod`.
    pub(super) outline: Value,
}

/// The cache of an injector.
#[derive(Debug, Default)]
pub(super) struct Overlays {
    hashes: RandomState,
    cached: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    /// The entries, the most recently used first.
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// Hashes of texts that were read once, the newest first.
    once: VecDeque<u64>,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    text: String,
    overlay: Arc<Overlay>,
    bytes: usize,
}

impl Overlays {
    /// Returns the overlay of a text.
    ///
    /// # Errors
    /// The text cannot be read; see [`yaml::value_within`].
    pub(super) fn read(&self, text: String, budget: &mut Budget) -> Result<Arc<Overlay>, yaml::Error> {
        let hash = self.hashes.hash_one(&text);
        // The texts are compared without the lock. Another text with the same hash is parsed without the cache.
        if let Some(entry) = self.with(|cached| cached.get(hash)).filter(|entry| entry.text == text) {
            return Ok(Arc::clone(&entry.overlay));
        }
        let pod = yaml::value_within(&text, budget)?;
        let overlay = Arc::new(Overlay { outline: status::outline(&pod), pod });
        if self.with(|cached| cached.was_read(hash)) {
            let bytes = text.len() + size(&overlay.pod) + size(&overlay.outline);
            let entry = Entry { hash, text, overlay: Arc::clone(&overlay), bytes };
            self.with(|cached| cached.insert(entry));
        }
        Ok(overlay)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Cache) -> T) -> T {
        act(&mut self.cached.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Cache {
    fn get(&mut self, hash: u64) -> Option<Arc<Entry>> {
        let at = self.entries.iter().position(|entry| entry.hash == hash)?;
        let entry = self.entries.remove(at)?;
        self.entries.push_front(Arc::clone(&entry));
        Some(entry)
    }

    /// Whether a text with this hash was read recently. Records the hash.
    fn was_read(&mut self, hash: u64) -> bool {
        if self.once.contains(&hash) {
            return true;
        }
        self.once.truncate(MAX_ONCE - 1);
        self.once.push_front(hash);
        false
    }

    fn insert(&mut self, entry: Entry) {
        if entry.bytes > MAX_BYTES || self.entries.iter().any(|other| other.hash == entry.hash) {
            return;
        }
        self.bytes += entry.bytes;
        self.entries.push_front(Arc::new(entry));
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

/// Estimates the heap size of a value in bytes. The capacity of lists and maps is a power of two, at least four.
fn size(value: &Value) -> usize {
    let capacity = |count: usize| if count == 0 { 0 } else { count.next_power_of_two().max(4) };
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => capacity(items.len()) * size_of::<Value>() + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => {
            let entries = capacity(members.len()) * size_of::<(u64, String, Value, usize)>();
            entries + members.iter().map(|(key, value)| key.len() + size(value)).sum::<usize>()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::istio::{BuiltIn, Config, InjectionOutcome, Injector, Request, Settings};

    impl Overlays {
        fn parsed(&self, text: String) -> Result<Arc<Overlay>, yaml::Error> {
            self.read(text, &mut Budget::default())
        }
    }

    fn cached(overlays: &Overlays) -> (usize, usize, usize) {
        overlays.with(|cached| (cached.entries.len(), cached.bytes, cached.once.len()))
    }

    #[test]
    fn a_text_is_cached_when_it_is_read_again() {
        let overlays = Overlays::default();
        let read = || overlays.parsed("spec: {volumes: [{name: v, emptyDir: {}}]}".to_owned()).unwrap();
        let (first, second, third, fourth) = (read(), read(), read(), read());
        assert!(!Arc::ptr_eq(&first, &second), "a text that was read once is not cached");
        assert!(Arc::ptr_eq(&second, &third) && Arc::ptr_eq(&third, &fourth), "it is not parsed again");
        assert_eq!(first, fourth);
        assert_eq!(cached(&overlays).0, 1);
    }

    #[test]
    fn a_text_that_differs_in_one_byte_has_its_own_overlay() {
        let overlays = Overlays::default();
        for _ in 0..4 {
            for letter in ["a", "b", "c"] {
                let overlay = overlays.parsed(format!("metadata: {{labels: {{app: {letter}}}}}\n")).unwrap();
                assert_eq!(overlay.pod["metadata"]["labels"]["app"], letter);
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
    fn pods_whose_texts_differ_in_one_byte_get_their_own_patches() {
        let injector = injector("metadata: {labels: {of: '{{ .ObjectMeta.Name }}'}}");
        for _ in 0..4 {
            for name in ["web-a", "web-b"] {
                assert_eq!(label(&injector, name), name);
            }
        }
        assert_eq!(cached(&injector.overlays).0, 2);
    }

    #[test]
    fn a_new_configuration_starts_with_an_empty_cache() {
        let injectors = ["one", "two"].map(|word| injector(&format!("metadata: {{labels: {{of: {word}}}}}")));
        (0..4).for_each(|_| assert_eq!(label(&injectors[0], "web"), "one"));
        assert_eq!((cached(&injectors[0].overlays).0, cached(&injectors[1].overlays)), (1, (0, 0, 0)));
        assert_eq!(label(&injectors[1], "web"), "two");
    }

    #[test]
    fn a_text_of_the_same_hash_has_its_own_overlay() {
        let overlays = Overlays::default();
        let read = |text: &str| overlays.parsed(text.to_owned()).unwrap();
        (0..2).for_each(|_| drop(read("a: 1")));
        let hash = overlays.hashes.hash_one("b: 2".to_owned());
        overlays.with(|cached| {
            let entry = Arc::get_mut(&mut cached.entries[0]).unwrap();
            entry.hash = hash;
        });
        (0..3).for_each(|_| assert_eq!(read("b: 2").pod, json!({"b": 2})));
    }

    #[test]
    fn what_is_cached_is_bounded_in_number_and_bytes() {
        let overlays = Overlays::default();
        let fill = |count: usize, length: usize| {
            for number in 0..count {
                (0..2).for_each(|_| drop(overlays.parsed(format!("a{number}: {}", "x".repeat(length))).unwrap()));
            }
            cached(&overlays)
        };
        let (texts, _, once) = fill(2 * MAX_ONCE, 1);
        assert_eq!((texts, once), (MAX_ENTRIES, MAX_ONCE));
        let (texts, bytes, _) = fill(100, MAX_BYTES / 20);
        assert!((1..20).contains(&texts) && bytes <= MAX_BYTES, "{texts} texts of {bytes} bytes");
        let before = cached(&overlays);
        (0..3).for_each(|_| drop(overlays.parsed(format!("a: {}", "x".repeat(MAX_BYTES))).unwrap()));
        assert_eq!(cached(&overlays), before, "a text above the limit evicts nothing");
        let sum = overlays.with(|cached| cached.entries.iter().map(|entry| entry.bytes).sum::<usize>());
        assert_eq!(sum, before.1);
    }

    #[test]
    fn texts_that_are_read_once_evict_nothing() {
        let overlays = Overlays::default();
        let read = |text: String| overlays.parsed(text).unwrap();
        (0..2).for_each(|_| drop(read("a: 1".to_owned())));
        let entry = read("a: 1".to_owned());
        (0..5000).for_each(|number| drop(read(format!("b: {number}"))));
        assert!(Arc::ptr_eq(&read("a: 1".to_owned()), &entry));
        assert_eq!(cached(&overlays).0, 1);
    }

    #[test]
    fn small_values_count_in_the_size() {
        let lists = "- a:\n".repeat(1000);
        let overlay = yaml::value(&lists).unwrap();
        assert!(size(&overlay) > 500 * 1000, "{}", size(&overlay));
    }

    #[test]
    fn an_unreadable_text_is_an_error_each_time() {
        let overlays = Overlays::default();
        for _ in 0..4 {
            assert!(overlays.parsed("a: [".to_owned()).is_err());
        }
        assert_eq!(cached(&overlays), (0, 0, 0));
    }
}
