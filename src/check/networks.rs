//! Findings about settings of a container runtime that change which networks a pod gets. Pure.

use crate::runtime_config::{Compared, Handler, Named};
use report::{Finding, page};

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
    let handlers = &compared.read.handlers;
    for (name, handler) in &handlers.by_name {
        findings.extend(of_handler(name, handler, compared.elsewhere.contains(name)));
        let is_default = handlers.default.as_ref().is_some_and(|default| default.value == *name);
        findings.extend(handler.sandbox().map(|program| sandboxed(name, program, is_default)));
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

/// Returns the finding about pods that get several networks.
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

/// Returns the finding about a handler that is a sandboxed runtime: the rules in the node's kernel do not reach its pods.
/// `is_default`: pods without a RuntimeClass have this handler, too.
fn sandboxed(name: &str, program: &Named<String>, is_default: bool) -> Finding {
    let (value, place) = (&program.value, program.place());
    let text = |pods: &str| {
        format!("{pods} of the runtime handler {name} ({value}, {place}) run in sandboxes that rules do not reach")
    };
    if !is_default {
        return Finding::right(SUBJECT, text("pods"));
    }
    let remedy = "let another handler be the default, or do not inject pods";
    Finding::warning(SUBJECT, text("pods without a RuntimeClass, and pods"), remedy, page::RUNTIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_config::{Directories, Handlers, Networks};
    use report::Outcome;

    fn named<T>(value: T) -> Option<Named<T>> {
        Some(Named { value, file: Some("/c.toml".into()) })
    }

    fn found(networks: Networks, handlers: Handlers, elsewhere: &[&str]) -> Vec<(bool, String)> {
        let [conf, bin] = ["/net.d", "/bin"].map(std::path::PathBuf::from);
        let (conf, bin) = (Named { value: conf, file: None }, Named { value: vec![bin], file: None });
        let read = Directories { runtime: "containerd".into(), conf, bin, networks, handlers };
        let elsewhere = elsewhere.iter().map(|&name| name.to_owned()).collect();
        let findings = decide(&Compared { read, is_conf: true, is_bin: true, elsewhere });
        findings.into_iter().map(|finding| (finding.outcome == Outcome::Right, finding.text)).collect()
    }

    const SEVERAL: &str = "of their directory (/c.toml); the plugin is in the chain of the first one";

    #[test]
    fn what_changes_a_pods_networks_is_named() {
        let none = Networks::default();
        for (networks, is_right, expected) in [
            (
                Networks { max: named(0), ..none.clone() },
                false,
                format!("pods of containerd get every network {SEVERAL}"),
            ),
            (
                Networks { max: named(2), ..none.clone() },
                false,
                format!("pods of containerd get up to 2 networks {SEVERAL}"),
            ),
            (
                Networks { default: named("pods".to_owned()), ..none.clone() },
                false,
                "containerd uses the network \"pods\" (/c.toml), whichever file of /net.d is the first".to_owned(),
            ),
            (
                Networks { template: named("/t".into()), ..none.clone() },
                true,
                "containerd writes 10-containerd-net.conflist from /t (/c.toml) while /net.d has no network".to_owned(),
            ),
            (
                Networks { rendered_from: Some("/t".into()), ..none.clone() },
                true,
                "the file of containerd is rendered from /t at its start; change that one".to_owned(),
            ),
        ] {
            assert_eq!(found(networks, Handlers::default(), &[]), [(is_right, expected)]);
        }
        assert_eq!(found(Networks { max: named(1), ..none }, Handlers::default(), &[]), []);
    }

    #[test]
    fn what_is_different_for_a_handlers_pods_is_named() {
        let handler = |conf: Option<&str>, max: Option<i64>, kind: &str| Handler {
            conf: conf.and_then(|dir| named(dir.into())),
            max: max.and_then(named),
            programs: named(kind.to_owned()).map(|kind| ("runtime_type", kind)).into_iter().collect(),
        };
        let (runc, kata) = ("io.containerd.runc.v2", "io.containerd.kata.v2");
        let sandbox =
            "of the runtime handler h (io.containerd.kata.v2, /c.toml) run in sandboxes that rules do not reach";
        for (handler, elsewhere, default, expected) in [
            (
                handler(Some("/h"), Some(1), runc),
                &["h"][..],
                "",
                vec![(
                    false,
                    "pods of the runtime handler h get the network of /h (/c.toml) and are not redirected".to_owned(),
                )],
            ),
            (handler(Some("/net.d"), None, runc), &[], "h", vec![]),
            (
                handler(None, Some(0), runc),
                &[],
                "",
                vec![(false, format!("pods of the runtime handler h get every network {SEVERAL}"))],
            ),
            (handler(None, None, kata), &[], "", vec![(true, format!("pods {sandbox}"))]),
            (
                handler(None, None, kata),
                &[],
                "h",
                vec![(false, format!("pods without a RuntimeClass, and pods {sandbox}"))],
            ),
        ] {
            let handlers = Handlers { default: named(default.to_owned()), by_name: [("h".to_owned(), handler)].into() };
            assert_eq!(found(Networks::default(), handlers, elsewhere), expected);
        }
    }
}
