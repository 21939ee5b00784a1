//! Reviews pods within this process, without HTTP: from a serialized review to its serialized response.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dapr::{Era, Settings};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use webhook::dapr::{Mesh as DaprMesh, TrustFiles, route, watch_mesh};
use webhook::{ClusterState, Native, Profile, Review, Texts, Verdict, istio};

use crate::input::{Mesh, Reviews};
use test_support::api::Api;

/// The number of rounds, of [`REVIEWS`] reviews each. The median round is reported.
const ROUNDS: usize = 15;
const REVIEWS: usize = 1000;

/// The environment variables that Dapr's chart sets.
pub(crate) const DAPR: [(&str, &str); 2] = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd:1")];

/// The injection profiles of both meshes, Istio and Dapr.
pub(crate) struct Profiles {
    istio: Arc<dyn Profile>,
    dapr: Arc<dyn Profile>,
}

impl Profiles {
    /// Creates both profiles. Istio's has the configuration in `dir`; Dapr's is ready once it injects the pod of
    /// `probe`.
    pub(crate) async fn new(dir: &Path, api: &Api, probe: &Reviews) -> Result<Self> {
        let anchors = tempfile::NamedTempFile::new()?;
        std::fs::write(anchors.path(), "ANCHORS")?;
        Ok(Self { istio: istio(dir)?, dapr: dapr(api, anchors.path(), probe).await? })
    }

    /// Returns the profile for these reviews' mesh.
    pub(crate) fn of(&self, reviews: &Reviews) -> &dyn Profile {
        match reviews.mesh {
            Mesh::Istio => &*self.istio,
            Mesh::Dapr => &*self.dapr,
        }
    }
}

/// Returns Istio's injection with the configuration in `dir`.
fn istio(dir: &Path) -> Result<Arc<dyn Profile>> {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).with_context(|| format!("{name} is needed"));
    let texts = Texts {
        config: Some(read("config.yaml")?),
        values: Some(read("values.json")?),
        mesh: Some(read("mesh.yaml")?),
    };
    let build = istio::build(istio::Options::default(), ClusterState::new(Native::Off));
    Ok(build(&texts).map_err(anyhow::Error::msg)?.into())
}

/// Returns Dapr's injection after it has read the mesh's state from the API server double.
async fn dapr(api: &Api, anchors: &Path, probe: &Reviews) -> Result<Arc<dyn Profile>> {
    let env = DAPR.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let settings = Arc::new(Settings::from_env(&env, "", Era::Current)?);
    let (mesh, trust_files) = (DaprMesh::default(), TrustFiles { anchors: anchors.to_owned() });
    let profile = route(Arc::clone(&settings), mesh.clone()).profile;
    let client = api.client();
    let keeping = tokio::spawn(async move { watch_mesh(client, &settings, &trust_files, &mesh).await });
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while let Err(error) = response(&*profile, &probe.text(0)) {
        ensure!(tokio::time::Instant::now() < deadline, "Dapr's injection does not begin: {error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    keeping.abort();
    Ok(profile)
}

fn response(profile: &dyn Profile, text: &str) -> Result<String> {
    let review =
        Review::parse(text.as_bytes(), std::collections::BTreeMap::new()).map_err(|unreadable| unreadable.error)?;
    let outcome = review.decided_by(profile);
    ensure!(matches!(outcome.verdict, Verdict::Patch(_)), "no patch: {}", outcome.reason);
    Ok(review.response(&outcome))
}

/// Parses and answers each review; fails if one gets no patch.
pub(crate) fn answer_all(profile: &dyn Profile, texts: &[String]) -> Result<()> {
    texts.iter().try_for_each(|text| response(profile, text).map(drop))
}

/// Measures the processor time of one review in milliseconds, with this program's allocator.
pub(crate) fn measure(profile: &dyn Profile, reviews: &Reviews) -> Result<f64> {
    let mut costs = Vec::new();
    for round in 0..ROUNDS {
        let texts = reviews.texts(round * REVIEWS, REVIEWS);
        let before = processor_time(UsageWho::RUSAGE_THREAD);
        answer_all(profile, &texts)?;
        #[expect(clippy::cast_precision_loss, reason = "a count of hundreds")]
        costs.push((processor_time(UsageWho::RUSAGE_THREAD) - before) / REVIEWS as f64);
    }
    costs.sort_by(f64::total_cmp);
    Ok(costs[costs.len() / 2])
}

/// Returns the processor time of this thread or process so far, in milliseconds.
pub(crate) fn processor_time(of: UsageWho) -> f64 {
    let usage = getrusage(of).expect("the kernel knows every thread");
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a short program")]
    let micros = (usage.user_time() + usage.system_time()).num_microseconds() as f64;
    micros / 1e3
}

/// Returns the target for one review, in milliseconds.
pub(crate) fn aim(reviews: &Reviews) -> f64 {
    use crate::input::Pods;
    match (reviews.mesh, reviews.pods) {
        (Mesh::Istio, Pods::Unseen) => 0.5,
        (Mesh::Istio, Pods::Replicas) => 0.25,
        (Mesh::Dapr, _) => 0.08,
    }
}
