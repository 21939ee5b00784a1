//! Findings about settings of a container runtime that change which networks a pod gets. Pure.

use super::{Finding, page};
use crate::runtime_config::{Compared, Handler, Named};

const SUBJECT: &str = "networks";

/// Returns the findings about the settings of one runtime.
pub(super) fn decide(compared: &Compared) -> Vec<Finding> {
    let (read, networks) = (&compared.read, &compared.read.networks);
    let dir = read.conf.value.display();
    let mut findings: Vec<Finding> =
        networks.max.iter().filter_map(|max| several(&format!("pods of {}", read.runtime), max)).collect();
    findings.extend(networks.default.iter().map(|name| {
        Finding::warning(
            SUBJECT,
            format!(
                "{} uses the network {:?} ({}), whichever file of {dir} is the first",
                read.runtime,
                name.value,
                name.place()
            ),
            "set cniConfFileName to the file of that network, if it is not the first",
            page::RUNTIME,
        )
    }));
    for (name, handler) in &networks.handlers {
        findings.extend(of_handler(name, handler, compared.elsewhere.contains(name)));
    }
    findings.extend(networks.template.iter().map(|template| {
        let (path, place) = (template.value.display(), template.place());
        let text = format!(
            "{} writes 10-containerd-net.conflist from {path} ({place}) while {dir} has no network",
            read.runtime
        );
        Finding::right(SUBJECT, text)
    }));
    findings.extend(networks.rendered_from.iter().map(|template| {
        let text = format!(
            "the file of {} is rendered from {} at its start; change that one",
            read.runtime,
            template.display()
        );
        Finding::right(SUBJECT, text)
    }));
    findings
}

/// The finding about pods that get several networks.
fn several(pods: &str, max: &Named<i64>) -> Option<Finding> {
    let number = match max.value {
        1 => return None,
        ..=0 => "every network".to_owned(),
        number => format!("up to {number} networks"),
    };
    Some(Finding::warning(
        SUBJECT,
        format!(
            "{pods} get {number} of their directory ({}); the plugin is in the chain of the first one",
            max.place()
        ),
        "let pods get one network, unless they need several; a copy of the network (istioOwnedCNIConfig) would be a second one",
        page::RUNTIME,
    ))
}

fn of_handler(name: &str, handler: &Handler, is_elsewhere: bool) -> Vec<Finding> {
    let several = handler.max.iter().filter_map(|max| several(&format!("pods of the runtime handler {name}"), max));
    let elsewhere = handler.conf.iter().filter(|_| is_elsewhere).map(|conf| {
        let (dir, place) = (conf.value.display(), conf.place());
        Finding::warning(
            SUBJECT,
            format!("pods of the runtime handler {name} get the network of {dir} ({place}) and are not redirected"),
            "let the handler use the directory of other pods, or do not inject pods of its RuntimeClass",
            page::RUNTIME,
        )
    });
    several.chain(elsewhere).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;
    use crate::runtime_config::{Directories, Networks};

    fn named<T>(value: T) -> Option<Named<T>> {
        Some(Named { value, file: Some("/c.toml".into()) })
    }

    fn found(networks: Networks, elsewhere: &[&str]) -> Vec<(bool, String)> {
        let [conf, bin] = ["/net.d", "/bin"].map(std::path::PathBuf::from);
        let (conf, bin) = (Named { value: conf, file: None }, Named { value: vec![bin], file: None });
        let read = Directories { runtime: "containerd".into(), conf, bin, networks };
        let elsewhere = elsewhere.iter().map(|&name| name.to_owned()).collect();
        let findings = decide(&Compared { read, is_conf: true, is_bin: true, elsewhere });
        findings.into_iter().map(|finding| (finding.outcome == Outcome::Right, finding.text)).collect()
    }

    #[test]
    fn what_changes_a_pods_networks_is_named() {
        let none = Networks::default();
        let handler =
            |conf: Option<&str>, max: i64| Handler { conf: conf.and_then(|dir| named(dir.into())), max: named(max) };
        for (networks, elsewhere, expected) in [
            (Networks { max: named(1), ..none.clone() }, &[][..], None),
            (
                Networks { max: named(0), ..none.clone() },
                &[],
                Some((
                    false,
                    "pods of containerd get every network of their directory (/c.toml); the plugin is in the chain of the first one",
                )),
            ),
            (
                Networks { max: named(2), ..none.clone() },
                &[],
                Some((
                    false,
                    "pods of containerd get up to 2 networks of their directory (/c.toml); the plugin is in the chain of the first one",
                )),
            ),
            (
                Networks { default: named("pods".to_owned()), ..none.clone() },
                &[],
                Some((false, "containerd uses the network \"pods\" (/c.toml), whichever file of /net.d is the first")),
            ),
            (
                Networks { handlers: [("kata".to_owned(), handler(Some("/kata"), 1))].into(), ..none.clone() },
                &["kata"],
                Some((
                    false,
                    "pods of the runtime handler kata get the network of /kata (/c.toml) and are not redirected",
                )),
            ),
            (
                Networks { handlers: [("kata".to_owned(), handler(Some("/net.d"), 1))].into(), ..none.clone() },
                &[],
                None,
            ),
            (
                Networks { handlers: [("kata".to_owned(), handler(None, 0))].into(), ..none.clone() },
                &[],
                Some((
                    false,
                    "pods of the runtime handler kata get every network of their directory (/c.toml); the plugin is in the chain of the first one",
                )),
            ),
            (
                Networks { template: named("/t".into()), ..none.clone() },
                &[],
                Some((
                    true,
                    "containerd writes 10-containerd-net.conflist from /t (/c.toml) while /net.d has no network",
                )),
            ),
            (
                Networks { rendered_from: Some("/t".into()), ..none },
                &[],
                Some((true, "the file of containerd is rendered from /t at its start; change that one")),
            ),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(right, text)| (right, text.to_owned())).collect();
            assert_eq!(found(networks, elsewhere), expected);
        }
    }
}
