//! Reviews any request body with the injection profiles of Istio and of Dapr.
//!
//! Checks that each response has the request's UID, the verdict, and a limited number of short warnings. Checks that a
//! patched pod has the profile's sidecar exactly once, unless the pod already had one, and that a second review changes
//! nothing.
//!
//! The input is the body of a request. If it is JSON, it is also reviewed as the pod in an otherwise valid request.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use dapr::{Era, Settings};
use serde_json::{Value, json};
use webhook::dapr::{Mesh, route};
use webhook::{ClusterState, Native, Profile, Review, Texts, Verdict, istio};

/// An injection profile and the name of the container that it injects.
type Known = (Arc<dyn Profile>, &'static str);

static PROFILES: LazyLock<[Known; 2]> = LazyLock::new(|| {
    let build = istio::build(istio::Options::default(), ClusterState::new(Native::Off));
    let istio = Arc::from(build(&Texts::default()).expect("the configuration that is compiled in"));
    let env = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let settings = Settings::from_env(&env, "", Era::Current).expect("settings");
    let dapr = route(Arc::new(settings), Mesh::trusting("PEM".to_owned())).profile;
    [(istio, "istio-proxy"), (dapr, "daprd")]
});

fn count(pod: &Value, wanted: &str) -> usize {
    let lists = ["containers", "initContainers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
    lists.flatten().filter(|container| container["name"] == wanted).count()
}

/// Returns the pod with the profile's patch applied; `None` if the request is invalid or the response has no patch.
fn reviewed(body: &[u8], profile: &dyn Profile) -> Option<Value> {
    let review =
        Review::parse(body, BTreeMap::new()).inspect_err(|broken| assert!(!broken.error.to_string().is_empty()));
    let review = review.ok()?;
    let outcome = review.decided_by(profile);
    let review_response: Value = serde_json::from_str(&review.response(&outcome)).expect("a response is JSON");
    let response = &review_response["response"];
    assert_eq!((&response["uid"], &review_response["kind"]), (&json!(review.uid), &json!("AdmissionReview")));
    assert_eq!(response["allowed"], outcome.verdict != Verdict::Refuse);
    let warnings = response["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(
        warnings.len() <= 16 && warnings.iter().all(|one| one.as_str().is_some_and(|one| one.chars().count() <= 256))
    );
    let Verdict::Patch(patch) = outcome.verdict else { return None };
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a JSON patch");
    let mut pod = review.object;
    json_patch::patch(&mut pod, &patch).expect("the patch applies");
    Some(pod)
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let of_pod = |pod: &Value| {
        let request = json!({
            "uid": "u", "namespace": "n", "kind": {"kind": "Pod"}, "userInfo": {"groups": ["system:masters"]}, "object": pod,
        });
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
        review.to_string().into_bytes()
    };
    for (profile, sidecar) in &*PROFILES {
        reviewed(input, &**profile);
        let Ok(pod) = serde_json::from_slice::<Value>(input) else { continue };
        let Some(injected) = reviewed(&of_pod(&pod), &**profile) else { continue };
        assert!(count(&injected, sidecar) == 1 || count(&pod, sidecar) > 0, "{injected}");
        let twice = reviewed(&of_pod(&injected), &**profile).unwrap_or_else(|| injected.clone());
        assert_eq!(injected, twice, "a second review changes nothing");
    }
}
