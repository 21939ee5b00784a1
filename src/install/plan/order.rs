//! Finds the network that a runtime would load, by the order of the files, and what may keep a runtime from using a network. Pure.

use libcni::conflist::{Invalid, Network, is_read};

use super::Obstacle;
use super::select::{Node, Primary, Refusal, has_only_our_plugin};
use crate::install::snapshot::NetworkFile;

/// The files of a directory in their order.
struct Scanned<'a> {
    /// The files before the first network, and why no runtime loads them.
    refused: Vec<(&'a NetworkFile, Refusal)>,
    /// The first network. A refusal means that the file is still being written, or that all of its plugins are drop-in plugins; the
    /// runtime uses that file, or will, so that no later file is selected.
    first: Option<(&'a NetworkFile, Result<Network<'a>, Refusal>)>,
}

impl<'a> Node<'a> {
    /// Returns the first file that a runtime would load. containerd loads no network at all if `libcni` refuses an earlier file,
    /// whereas CRI-O takes the next one. The agent does not know the runtime, so each earlier file is an obstacle.
    pub(super) fn first(&self, except: Option<&str>) -> Result<Primary<'a>, Obstacle> {
        let Scanned { refused, first } = self.scan(except);
        match first {
            Some((file, Ok(network))) => {
                let hidden_by = refused.into_iter().map(|(file, refusal)| self.hiding(file, refusal)).collect();
                Ok(Primary { file, network, named: false, hidden_by, warnings: Vec::new() })
            }
            Some((file, Err(Refusal::Invalid(Invalid::Json(_))))) => {
                Err(Obstacle::HalfWritten { path: self.path(&file.name) })
            }
            Some((file, Err(refusal))) => {
                Err(Obstacle::Unusable { path: self.path(&file.name), reason: refusal.reason() })
            }
            None => Err(self.none(refused)),
        }
    }

    /// Returns the obstacle that the node has no network.
    fn none(&self, refused: Vec<(&NetworkFile, Refusal)>) -> Obstacle {
        let dir = self.settings.net_dir.clone();
        let ignored = refused.into_iter().map(|(file, refusal)| (file.name.clone(), refusal.reason())).collect();
        match &self.settings.of_runtime.network {
            Some(name) => Obstacle::NoDefault { dir, name: name.clone() },
            None => Obstacle::NoNetwork { dir, ignored },
        }
    }

    /// Judges the files up to the first one that a runtime would load.
    fn scan(&self, except: Option<&str>) -> Scanned<'a> {
        let mut refused = Vec::new();
        let is_candidate =
            |file: &&NetworkFile| is_read(&file.name) && Some(file.name.as_str()) != except && !self.is_own(file);
        let is_other = |network: &Network<'_>| {
            let name = self.settings.of_runtime.network.as_deref();
            has_only_our_plugin(network) || name.is_some_and(|name| network.name() != Some(name))
        };
        for file in self.files.iter().filter(is_candidate) {
            match self.judge(file) {
                Ok(network) if is_other(&network) => {}
                Err(Refusal::Invalid(Invalid::Json(reason))) if !file.is_recent => {
                    refused.push((file, Invalid::Json(reason).into()));
                }
                judged @ (Ok(_) | Err(Refusal::Invalid(Invalid::Json(_) | Invalid::DropInsOnly))) => {
                    return Scanned { refused, first: Some((file, judged)) };
                }
                Err(refusal) => refused.push((file, refusal)),
            }
        }
        Scanned { refused, first: None }
    }

    /// Adds what may keep runtimes from using the file that the operator has named: earlier files that `libcni` refuses, and an
    /// earlier network, unless it is Multus', which may run the named one.
    pub(super) fn behind_earlier(&self, primary: Primary<'a>) -> Primary<'a> {
        let Scanned { refused, first } = self.scan(None);
        let name = &primary.file.name;
        let is_earlier = |file: &NetworkFile| file.name != *name && (!is_read(name) || file.name < *name);
        let refused = refused.into_iter().filter(|(file, _)| is_earlier(file));
        let mut hidden_by: Vec<_> = refused.map(|(file, refusal)| self.hiding(file, refusal)).collect();
        let mut warnings = Vec::new();
        match first.filter(|(file, _)| is_earlier(file)) {
            Some((file, Err(Refusal::Invalid(Invalid::Json(_))))) => {
                hidden_by.push(Obstacle::HalfWritten { path: self.path(&file.name) });
            }
            Some((file, judged)) if !judged.as_ref().is_ok_and(Network::is_of_multus) => {
                let [first, named] = [&file.name, name].map(|name| self.path(name).display().to_string());
                warnings.push(format!(
                    "{first} sorts before {named} (CNI_CONF_NAME): runtimes use the first file, unless cni_default_network of CRI-O names \
                     another network, and pods with that of {first} are not redirected"
                ));
            }
            _ => {}
        }
        Primary { hidden_by, warnings, ..primary }
    }

    /// Returns the obstacle that a refused file is for the networks after it.
    pub(super) fn hiding(&self, file: &NetworkFile, refusal: Refusal) -> Obstacle {
        match refusal {
            Refusal::Invalid(reason) => Obstacle::Refused { path: self.path(&file.name), reason: reason.to_string() },
            Refusal::Unread(unread) => Obstacle::Unjudged(unread),
        }
    }
}
