//! Finds the files that may name the plugin and that a removal cannot edit. Pure.

use libcni::conflist::{Invalid, Network};
use libcni::mentions_plugin;

use super::select::{bare, is_own};
use crate::install::settings::InstallSettings;
use crate::install::snapshot::{NetworkFile, Snapshot};

/// Lists the files, each with the reason; `None` if there are none.
///
/// A runtime may use the file, now or once its owner has corrected, completed or renamed it.
pub(super) fn unjudged(settings: &InstallSettings, snapshot: &Snapshot) -> Option<String> {
    let is_unknown = |file: &&NetworkFile| !is_own(file, snapshot.record.as_ref());
    let files = snapshot.networks.iter().flatten().filter(is_unknown);
    let files = files.filter_map(|file| Some((&file.name, reason(file)?)));
    let set_aside = snapshot.set_aside.iter().filter_map(|aside| {
        let why = match &aside.unread {
            Some(unread) => unread.reason.clone(),
            None => refusal(&aside.former, &aside.content, false)?,
        };
        Some((&aside.name, why))
    });
    let each = |(name, why): (&String, String)| format!("{} ({why})", settings.net_dir.join(name).display());
    let found: Vec<String> = files.chain(set_aside).map(each).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

fn reason(file: &NetworkFile) -> Option<String> {
    match &file.unread {
        Some(unread) => Some(unread.reason.clone()),
        None => refusal(&file.name, &file.content, file.is_recent),
    }
}

/// Returns why runtimes refuse a file that may name the plugin; `None` for other files.
fn refusal(name: &str, content: &[u8], is_recent: bool) -> Option<String> {
    let refused = Network::of_file(name, content).err()?;
    let may_grow = is_recent && matches!(refused, Invalid::Json(_));
    (may_grow || mentions_plugin(&bare(content.to_owned()))).then(|| refused.to_string())
}
