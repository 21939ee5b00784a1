//! Finds the network that a runtime would load, in the order of the files, and what may keep a runtime from another one. Pure.

use libcni::conflist::{Invalid, Network, is_read};

use super::Obstacle;
use super::select::{Node, Primary, Refusal, has_only_our_plugin};
use crate::install::snapshot::NetworkFile;

/// The files of a directory in their order.
struct Scanned<'a> {
    /// The files before the first network, with the reasons for which no runtime loads them.
    refused: Vec<(&'a NetworkFile, Refusal)>,
    /// The first network. If it has a refusal, the runtime will use it once its writer has finished, or it has all of its plugins in
    /// files of their own, so no later file is selected.
    first: Option<(&'a NetworkFile, Result<Network<'a>, Refusal>)>,
}

impl<'a> Node<'a> {
    /// The first file that a runtime would load. containerd loads no network at all if `libcni` refuses an earlier file, whereas
    /// CRI-O takes the next one. The agent does not know the runtime, so each earlier file is an obstacle.
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

    /// The obstacle that the node has no network.
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

    /// Adds what keeps runtimes from a file that the operator has named: files before it that `libcni` refuses, and another network,
    /// unless that is Multus', which may run the named one.
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

    /// The obstacle that a refused file is to the networks behind it.
    pub(super) fn hiding(&self, file: &NetworkFile, refusal: Refusal) -> Obstacle {
        match refusal {
            Refusal::Invalid(reason) => Obstacle::Refused { path: self.path(&file.name), reason: reason.to_string() },
            Refusal::Unread(unread) => Obstacle::Unjudged(unread),
        }
    }
}
