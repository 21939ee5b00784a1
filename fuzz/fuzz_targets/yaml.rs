//! Any YAML: the reader in one pass and the library read the same value, or fail alike; within a budget neither reads more.
#![no_main]

use gotemplate::{Budget, Limits};
use istio_cni::inject::yaml;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { steps: 20_000, bytes: 1 << 20, depth: 250 };

fuzz_target!(|text: &str| {
    let (ours, library) = (yaml::value(text), yaml::library::value(text));
    match (&ours, &library) {
        (Ok(ours), Ok(library)) => assert_eq!(ours, library, "{text:?}"),
        (Err(_), Err(_)) => {}
        (ours, library) => panic!("{text:?}: {ours:?}, and by the library {library:?}"),
    }
    if let Ok(bounded) = yaml::value_within(text, &mut Budget::new(LIMITS)) {
        assert_eq!(Some(bounded), ours.ok(), "{text:?}");
    }
});
