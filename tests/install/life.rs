//! A node's plugin from its first network to its removal, for each kind of node: which file there is, which name the operator
//! gives, which file results, what is in it, and what is left in the end.

use std::fs;
use std::time::Duration;

use istio_cni::install::settings::Mode;
use istio_cni::install::{Scope, remove};
use serde_json::Value;

use super::keeping::{Kept, until};
use super::networks::{CALICO, MINIKUBE, MISSPELT, NAMELESS, NOT_JSON, TYPELESS, alone, chained, listed, value};
use super::stage::{Node, PLUGIN};

/// Whose network the runtime finds.
#[derive(Clone, Copy)]
enum Of {
    Calico,
    Minikube,
    /// The plugin's own: nothing is chained.
    Istio,
}

struct Life {
    /// `CNI_CONF_NAME`
    named: Option<&'static str>,
    /// Files that are there from the start.
    given: &'static [(&'static str, &'static str)],
    /// The file that comes when the daemon already waits for it.
    later: Option<(&'static str, &'static str)>,
    /// The file in which the plugin is then named, and whose network that is.
    result: &'static str,
    of: Of,
}

const ORDINARY: Life = Life { named: None, given: &[], later: None, result: "", of: Of::Calico };

impl Life {
    fn mode(&self) -> Mode {
        let primary = self.named.map(str::to_owned);
        match self.of {
            Of::Istio => Mode::Standalone { file: primary.unwrap_or_else(|| "YYY-istio-cni.conf".to_owned()) },
            Of::Calico | Of::Minikube => Mode::Chained { primary },
        }
    }

    fn expected(&self) -> Value {
        match self.of {
            Of::Calico => chained(&value(CALICO)),
            Of::Minikube => chained(&listed(MINIKUBE)),
            Of::Istio => alone(),
        }
    }

    async fn holds(self) {
        let node = Node::new();
        for (name, content) in self.given {
            node.network(name, content);
        }
        let settings = node.settings(self.mode());
        let mut kept = Kept::start(settings.clone());
        if let Some((name, content)) = self.later {
            kept.waits().await;
            fs::write(node.path("net").join(name), content).unwrap();
        }
        kept.ready().await;
        let result = node.path("net").join(self.result);
        assert_eq!(fs::read(node.path("bin/istio-cni")).unwrap(), PLUGIN);
        assert_eq!(value(&fs::read_to_string(&result).unwrap()), self.expected());
        assert_eq!(node.names("net"), self.names());

        self.lose(&node);
        let back =
            || fs::read_to_string(&result).is_ok_and(|text| serde_json::from_str(&text).ok() == Some(self.expected()));
        until("the plugin is named again", back).await;

        kept.stop().await;
        assert!(remove(&settings, Scope::ALL, Duration::ZERO).is_empty());
        self.is_clean(&node);
    }

    /// Another writer takes the plugin out again.
    fn lose(&self, node: &Node) {
        let result = node.path("net").join(self.result);
        match self.of {
            Of::Calico => fs::write(result, CALICO).unwrap(),
            Of::Minikube => fs::write(result, listed(MINIKUBE).to_string()).unwrap(),
            Of::Istio => fs::remove_file(result).unwrap(),
        }
    }

    /// Names in the configuration directory: those that were given, the result instead of the file that it was made of.
    fn names(&self) -> Vec<String> {
        let stem = |name: &str| name.split_once('.').map(|(stem, _)| stem.to_owned());
        let all = self.given.iter().chain(&self.later).map(|(name, _)| *name);
        let mut names: Vec<String> = all.filter(|name| stem(name) != stem(self.result)).map(str::to_owned).collect();
        names.push(self.result.to_owned());
        names.sort();
        names
    }

    /// Nothing of the plugin is left, and nothing else has changed.
    fn is_clean(&self, node: &Node) {
        assert_eq!((node.names("bin"), node.names("run")), (Vec::new(), Vec::new()));
        let mut names = self.names();
        match self.of {
            Of::Calico => assert_eq!(node.read(&format!("net/{}", self.result)), CALICO, "byte for byte"),
            Of::Minikube => assert_eq!(value(&node.read(&format!("net/{}", self.result))), listed(MINIKUBE)),
            Of::Istio => names.retain(|name| name != self.result),
        }
        assert_eq!(node.names("net"), names, "no temporaries either");
        for (name, content) in self.given.iter().filter(|(name, _)| names.contains(&(*name).to_owned())) {
            assert_eq!(node.read(&format!("net/{name}")), *content, "{name}");
        }
    }
}

macro_rules! lives {
    ($($name:ident: $life:expr,)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $life.holds().await;
        }
    )*};
}

lives! {
    a_list_is_named: Life {
        named: Some("00-calico.conflist"),
        given: &[("00-calico.conflist", CALICO)],
        result: "00-calico.conflist",
        ..ORDINARY
    },
    a_single_plugin_is_named: Life {
        named: Some("00-minikube_cni.conf"),
        given: &[("00-minikube_cni.conf", MINIKUBE)],
        result: "00-minikube_cni.conflist",
        of: Of::Minikube,
        ..ORDINARY
    },
    the_first_is_a_list: Life {
        given: &[("00-calico.conflist", CALICO), ("01-minikube_cni.conf", MINIKUBE)],
        result: "00-calico.conflist",
        ..ORDINARY
    },
    the_first_is_a_single_plugin: Life {
        given: &[("00-minikube_cni.conf", MINIKUBE), ("01-calico.conflist", CALICO)],
        result: "00-minikube_cni.conflist",
        of: Of::Minikube,
        ..ORDINARY
    },
    after_what_is_no_json_a_single_plugin: Life {
        given: &[("00-non_json.conf", NOT_JSON), ("01-minikube_cni.conf", MINIKUBE), ("02-calico.conflist", CALICO)],
        result: "01-minikube_cni.conflist",
        of: Of::Minikube,
        ..ORDINARY
    },
    after_what_is_no_json_a_list: Life {
        given: &[("00-non_json.conf", NOT_JSON), ("01-calico.conflist", CALICO), ("02-minikube_cni.conf", MINIKUBE)],
        result: "01-calico.conflist",
        ..ORDINARY
    },
    after_a_plugin_without_a_type_a_single_plugin: Life {
        given: &[("00-bad_minikube_cni.conf", TYPELESS), ("01-minikube_cni.conf", MINIKUBE), ("02-calico.conflist", CALICO)],
        result: "01-minikube_cni.conflist",
        of: Of::Minikube,
        ..ORDINARY
    },
    after_a_plugin_without_a_type_a_list: Life {
        given: &[("00-bad_minikube_cni.conf", TYPELESS), ("01-calico.conflist", CALICO), ("02-minikube_cni.conf", MINIKUBE)],
        result: "01-calico.conflist",
        ..ORDINARY
    },
    after_bad_lists_a_single_plugin: Life {
        given: &[
            ("00-noname_calico.conflist", NAMELESS),
            ("01-noplugins_calico.conflist", MISSPELT),
            ("02-minikube_cni.conf", MINIKUBE),
            ("03-calico.conflist", CALICO),
        ],
        result: "02-minikube_cni.conflist",
        of: Of::Minikube,
        ..ORDINARY
    },
    after_bad_lists_a_list: Life {
        given: &[
            ("00-noname_calico.conflist", NAMELESS),
            ("01-noplugins_calico.conflist", MISSPELT),
            ("02-calico.conflist", CALICO),
            ("03-minikube_cni.conf", MINIKUBE),
        ],
        result: "02-calico.conflist",
        ..ORDINARY
    },
    a_conf_is_named_and_there_is_a_conflist: Life {
        named: Some("00-calico.conf"),
        given: &[("00-calico.conflist", CALICO)],
        result: "00-calico.conflist",
        ..ORDINARY
    },
    a_conflist_is_named_and_there_is_a_conf: Life {
        named: Some("00-minikube_cni.conflist"),
        given: &[("00-minikube_cni.conf", MINIKUBE)],
        result: "00-minikube_cni.conflist",
        of: Of::Minikube,
        ..ORDINARY
    },
    the_named_file_comes_later_and_holds_a_list: Life {
        named: Some("missing_initially.conf"),
        later: Some(("missing_initially.conf", CALICO)),
        result: "missing_initially.conflist",
        ..ORDINARY
    },
    the_first_network_comes_later: Life {
        later: Some(("calico.conflist", CALICO)),
        result: "calico.conflist",
        ..ORDINARY
    },
    nothing_is_chained: Life { result: "YYY-istio-cni.conf", of: Of::Istio, ..ORDINARY },
    nothing_is_chained_under_a_name_of_the_operators: Life {
        named: Some("user-defined.conf"),
        result: "user-defined.conf",
        of: Of::Istio,
        ..ORDINARY
    },
}
