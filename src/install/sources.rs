//! What an installation is planned from in addition to its settings: the kubeconfig's address and account, and whether the
//! directories are still the same as at the start. `reconcile` and an agent that stands by plan with it.

use std::sync::Arc;
use std::time::Duration;

use serve::health::Liveness;
use tokio::time::sleep;

use super::identity::Identity;
use super::locate::Located;
use super::mounts::{Mounts, Replaced};
use super::plan::{self, Obstacle, Plan};
use super::server::Resolver;
use super::settings::InstallSettings;
use super::snapshot::{CompareCache, Snapshot};

/// The name under which a replaced directory is reported to the liveness probe.
const MOUNTS: &str = "mounts";
/// The name under which a replaced cache of the runtime is reported to the liveness probe.
const CACHE: &str = "cache";
/// The name under which a changed configuration of the runtime is reported to the liveness probe.
const RUNTIME: &str = "runtime";
/// The interval between two checks whether a mounted directory was replaced, or the runtime's configuration has changed. No event
/// reports that a parent was moved.
const DIRECTORIES_INTERVAL: Duration = Duration::from_secs(2);

/// The inputs of a plan in addition to the settings and the node's files.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The address of the API server.
    pub resolver: Resolver,
    /// The service account whose token the kubeconfig contains.
    pub identity: Identity,
    /// The mounts of the node's directories at the container's start.
    pub mounts: Arc<Mounts>,
    /// The directories of the runtime's configuration at the start.
    pub located: Arc<Located>,
}

impl Sources {
    /// Plans an installation. If a directory was replaced or the directories are not known, nothing is planned. In directories that
    /// the runtime's configuration no longer names, the installation is kept, because the runtime may not have read the new
    /// configuration yet.
    ///
    /// The liveness probe fails for a condition that a restart of the container ends.
    pub(super) fn plan(&self, settings: &InstallSettings, compared: &mut CompareCache, liveness: &Liveness) -> Plan {
        let replaced = self.mounts.replaced();
        let located = self.located.compare();
        let moved = located.obstacle.as_ref().filter(|found| found.ends_by_restart());
        // Only a removal needs the cache.
        let cache = self.mounts.replaced_cache();
        let text = |replaced: &Option<Replaced>| replaced.as_ref().map(ToString::to_string);
        for (part, why) in [(MOUNTS, text(&replaced)), (CACHE, text(&cache)), (RUNTIME, moved.map(ToString::to_string))]
        {
            match why {
                Some(why) => liveness.failed(part, settings.given.on_node(&why)),
                None => liveness.ended(part),
            }
        }
        let mut plan = match replaced {
            None if self.located.is_known() => plan::install(settings, &self.snapshot(settings, compared)),
            _ => Plan::default(),
        };
        plan.obstacles.extend(replaced.map(Obstacle::from).into_iter().chain(located.obstacle.map(Obstacle::from)));
        plan.warnings.extend(located.warnings);
        plan
    }

    /// Returns once the obstacles about the directories themselves differ from those in `last`, or the runtime's cache was replaced.
    pub(super) async fn directories_changed(&self, last: &[Obstacle]) {
        let now = || {
            let replaced = self.mounts.replaced().map(Obstacle::from);
            replaced.into_iter().chain(self.located.compare().obstacle.map(Obstacle::from)).collect::<Vec<_>>()
        };
        let cache = self.mounts.replaced_cache();
        while now() == last && self.mounts.replaced_cache() == cache {
            sleep(DIRECTORIES_INTERVAL).await;
        }
    }

    /// Reads the node, with the current address and token.
    fn snapshot(&self, settings: &InstallSettings, compared: &mut CompareCache) -> Snapshot {
        let mut snapshot = Snapshot::take_with(settings, self.resolver.resolution(), compared);
        snapshot.account = self.identity.account(snapshot.account);
        snapshot
    }
}
