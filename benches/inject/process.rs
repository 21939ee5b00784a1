//! A review within this process, from its text to its answer's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use istio_cni::inject::dapr::{Era, Settings};
use istio_cni::webhook::dapr::{Mesh as DaprMesh, TrustFiles, route, watch_mesh};
use istio_cni::webhook::{ClusterState, Native, Profile, Review, Texts, Verdict, istio};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::input::{Mesh, Reviews};
use test_support::api::Api;

/// Rounds of so many reviews; the median round counts.
const ROUNDS: usize = 15;
const REVIEWS: usize = 1000;

/// What Dapr's chart sets.
pub(crate) const DAPR: [(&str, &str); 2] = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd:1")];

/// Who answers reviews of either mesh.
pub(crate) struct Profiles {
    istio: Arc<dyn Profile>,
    dapr: Arc<dyn Profile>,
}

impl Profiles {
    /// Both, Istio's by the configuration in `dir`; `probe` is a review of Dapr's.
    pub(crate) async fn new(dir: &Path, api: &Api, probe: &Reviews) -> Result<Self> {
        let anchors = tempfile::NamedTempFile::new()?;
        std::fs::write(anchors.path(), "ANCHORS")?;
        Ok(Self { istio: istio(dir)?, dapr: dapr(api, anchors.path(), probe).await? })
    }

    /// The one for these.
    pub(crate) fn of(&self, reviews: &Reviews) -> &dyn Profile {
        match reviews.mesh {
            Mesh::Istio => &*self.istio,
            Mesh::Dapr => &*self.dapr,
        }
    }
}

/// Istio's injection by the configuration in `dir`.
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

/// Dapr's injection with what it has learnt of a cluster.
async fn dapr(api: &Api, anchors: &Path, probe: &Reviews) -> Result<Arc<dyn Profile>> {
    let env = DAPR.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let settings = Arc::new(Settings::from_env(&env, "", Era::Current)?);
    let (mesh, trust_files) = (DaprMesh::default(), TrustFiles { anchors: anchors.to_owned() });
    let profile = route(Arc::clone(&settings), mesh.clone()).profile;
    let client = api.client();
    let keeping = tokio::spawn(async move { watch_mesh(client, &settings, &trust_files, &mesh).await });
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while let Err(error) = answer(&*profile, &probe.text(0)) {
        ensure!(tokio::time::Instant::now() < deadline, "Dapr's injection does not begin: {error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    keeping.abort();
    Ok(profile)
}

fn answer(profile: &dyn Profile, text: &str) -> Result<String> {
    let review =
        Review::parse(text.as_bytes(), std::collections::BTreeMap::new()).map_err(|unreadable| unreadable.error)?;
    let outcome = review.decided_by(profile);
    ensure!(matches!(outcome.verdict, Verdict::Patch(_)), "no patch: {}", outcome.reason);
    Ok(review.answer(&outcome))
}

/// Answers so many reviews, from their texts on.
pub(crate) fn answer_all(profile: &dyn Profile, texts: &[String]) -> Result<()> {
    texts.iter().try_for_each(|text| answer(profile, text).map(drop))
}

/// Milliseconds of a processor for one review, with this program's allocator.
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

/// Milliseconds that this thread or process has had of processors.
pub(crate) fn processor_time(of: UsageWho) -> f64 {
    let usage = getrusage(of).expect("the kernel knows every thread");
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a short program")]
    let micros = (usage.user_time() + usage.system_time()).num_microseconds() as f64;
    micros / 1e3
}

/// Milliseconds that one review is to take at most.
pub(crate) fn aim(reviews: &Reviews) -> f64 {
    use crate::input::Pods;
    match (reviews.mesh, reviews.pods) {
        (Mesh::Istio, Pods::Unseen) => 0.5,
        (Mesh::Istio, Pods::Replicas) => 0.25,
        (Mesh::Dapr, _) => 0.08,
    }
}
