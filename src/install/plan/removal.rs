//! Plans the removal of the entry, the kubeconfig and the programs; the plugin may have to stay as a stub. Pure.

use super::unjudged::unjudged;
use super::{Plan, Reason, network, remove, restore};
use crate::install::directories::{Directories, Place};
use crate::install::installed::{Illegible, Installed};
use crate::install::operation::Operation;
use crate::install::record;
use crate::install::scope::Scope;
use crate::install::settings::InstallSettings;
use crate::install::snapshot::{BinaryState, Snapshot};

/// Plans a removal from the directories of `scope`: the chain entry first, so that no chain names a missing plugin, the binary
/// last. `cached`: why the runtime may still execute the plugin when pods end. The plugin then stays as a stub, as it does if a
/// file that may name it cannot be edited.
pub fn removal(settings: &InstallSettings, snapshot: &Snapshot, scope: Scope, cached: Option<&str>) -> Plan {
    let mut plan = Plan { warnings: snapshot.warnings(), ..Plan::default() };
    match &snapshot.networks {
        _ if !scope.conf => {}
        Ok(files) => restore::restore(&mut plan, settings, files, snapshot),
        Err(unread) => plan.obstacles.push(unread.clone().into()),
    }
    // The record is removed after the files that it names.
    if scope.conf && snapshot.record.is_some() {
        plan.step(Reason::Removal, remove(settings.net_dir.join(record::FILE)));
    }
    let others = snapshot.others();
    if scope.conf && snapshot.installed.as_ref().map_or_else(Illegible::is_replaceable, |all| *all != others) {
        plan.step(Reason::Removal, others.write(&settings.run_dir));
    }
    if scope.run && snapshot.kubeconfig.is_some() {
        plan_kubeconfig_removal(&mut plan, settings, &others);
    }
    if scope.bin {
        plan_binary_removal(&mut plan, settings, snapshot, scope, cached);
    }
    let covered = scope.paths(settings);
    for path in snapshot.stale.iter().filter(|path| covered.iter().any(|dir| path.parent() == Some(dir))) {
        plan.step(Reason::Stale, remove(path.clone()));
    }
    plan
}

/// Adds the removal of the kubeconfig, unless a chain in directories of another agent names a plugin that reads it.
fn plan_kubeconfig_removal(plan: &mut Plan, settings: &InstallSettings, others: &Installed) {
    let path = settings.run_dir.join(contract::KUBECONFIG);
    match others.first().map(Directories::place) {
        None => plan.step(Reason::Removal, remove(path)),
        Some(Place { conf, bin, .. }) => plan.warnings.push(format!(
            "{} stays: an agent has chained the plugin in {} into {} (paths as it mounted them), directories that this agent \
             does not mount; `install-cni uninstall` in a pod that mounts them removes all files",
            path.display(),
            bin.display(),
            conf.display()
        )),
    }
}

/// Adds the removal of the image's programs from the plugin directory, unless a chain outside of `scope` may need them.
fn plan_binary_removal(
    plan: &mut Plan,
    settings: &InstallSettings,
    snapshot: &Snapshot,
    scope: Scope,
    cached: Option<&str>,
) {
    if let Some(need) = reason_to_keep_binaries(settings, snapshot, scope).or_else(|| other_user_of_binaries(snapshot))
    {
        let (dir, name) = (settings.bin_dir.display(), contract::PLUGIN_NAME);
        plan.warnings.push(format!(
            "{dir}/{name} stays: {need}, and the runtime may search no other directory; remove it once the runtime searches \
             another one"
        ));
        return;
    }
    let names = match &snapshot.binaries {
        Ok(binaries) => {
            let installed = binaries.iter().filter(|binary| binary.state != BinaryState::Missing);
            installed.map(|binary| binary.name.as_str()).collect()
        }
        Err(_) => vec![contract::PLUGIN_NAME],
    };
    let stays = snapshot.plugins.contains(contract::PLUGIN_NAME) && plan_stub(plan, settings, snapshot, cached);
    for name in names.into_iter().filter(|name| !stays || *name != contract::PLUGIN_NAME) {
        plan.step(Reason::Removal, remove(settings.bin_dir.join(name)));
    }
    // The marker is removed after the binary, which would act as the plugin without the marker.
    if !stays && snapshot.has_stub() {
        plan.step(Reason::Removal, remove(settings.bin_dir.join(contract::REMOVED_MARKER)));
    }
}

/// Adds the marker that turns the plugin into a stub, if the plugin may still be needed; returns whether it may.
fn plan_stub(plan: &mut Plan, settings: &InstallSettings, snapshot: &Snapshot, cached: Option<&str>) -> bool {
    let (dir, name) = (settings.bin_dir.display(), contract::PLUGIN_NAME);
    let files = unjudged(settings, snapshot);
    plan.warnings.extend(cached.map(|why| {
        format!(
            "{dir}/{name} stays as a stub that redirects no pod: {why}, so the runtime may execute it at the end of pods; \
             CRI-O removes it with the last pod that started before, and `install-cni uninstall --mounted-cni-cache-dir` at once"
        )
    }));
    plan.warnings.extend(files.as_ref().map(|files| {
        format!(
            "{dir}/{name} stays as a stub that redirects no pod: it cannot be taken out of each file that may name it: {files}; remove \
             its entry there, or the file, then run `install-cni uninstall`"
        )
    }));
    let mut content =
        format!("{name} was removed from this node. Beside this file it is a stub that redirects no pod.\n");
    if files.is_some() {
        content.push_str(contract::STUB_STAYS);
    }
    let is_needed = files.is_some() || cached.is_some();
    if is_needed {
        let (path, content) = (settings.bin_dir.join(contract::REMOVED_MARKER), content.into_bytes());
        plan.step(Reason::Removal, Operation::Write { path, content, mode: 0o600, expected: None, source: None });
    }
    is_needed
}

/// Returns why the plugin in `bin_dir` must stay when the agent's successor uses other directories of `scope`.
fn reason_to_keep_binaries(settings: &InstallSettings, snapshot: &Snapshot, scope: Scope) -> Option<String> {
    match scope {
        Scope::ALL => None,
        Scope { conf: true, .. } => Some(format!("{} may name it", unjudged(settings, snapshot)?)),
        _ => possible_chain(settings, snapshot),
    }
}

/// Returns why a runtime may run the plugin from `bin_dir`; `None` if no network file allows that.
fn possible_chain(settings: &InstallSettings, snapshot: &Snapshot) -> Option<String> {
    let files = match &snapshot.networks {
        Ok(files) => files,
        Err(unread) => return Some(unread.to_string()),
    };
    let file = files.iter().find(|file| network::may_run_from(file, &snapshot.plugins))?;
    let (dir, network) = (settings.bin_dir.display(), settings.net_dir.join(&file.name));
    Some(format!("{} may be a chain whose other plugins are all in {dir}", network.display()))
}

/// Returns a phrase that names the chain of another agent with the same plugin directory, if one is recorded.
fn other_user_of_binaries(snapshot: &Snapshot) -> Option<String> {
    let others = snapshot.others();
    let other = others.with_bin_of(snapshot.directories.as_ref()?)?;
    Some(format!("an agent has chained it into {} (the path as it mounted it)", other.place().conf.display()))
}
