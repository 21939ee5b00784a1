//! Checks that the plugin redirects each pod that is injected, whatever its author has written: no admitted pod fails to start
//! because of an annotation. The suite `cluster` checks that the API server accepts such pods.

use istio_cni::plugin;
use istio_cni::pod::PodFacts;
use libtest_mimic::{Failed, Trial};
use proptest::prelude::any;
use proptest::sample::Index;
use test_support::admission::{injected, injectors, pod};
use test_support::tier;

use super::property::run;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("admission/the plugin accepts each pod that is injected", accepted)]
}

fn accepted() -> Result<(), Failed> {
    let injectors = injectors(&tier::corpus_directory())?;
    run(&(pod(), any::<[Index; 2]>(), any::<[bool; 2]>()), |(pod, which, native)| {
        let mut pod = pod;
        for (which, native) in which.iter().zip(native) {
            let configured = which.get(&injectors);
            let Some(injected) = injected(&configured.injector, &pod, native) else { return Ok(()) };
            let facts = PodFacts::from_pod_json(injected.to_string().as_bytes())?;
            plugin::of_pod(&facts)
                .map_err(|error| format!("configuration {}: {error}\n{injected}", configured.name))?;
            pod = injected;
        }
        Ok(())
    })
}
