//! Tests an installation for each kind of network, from the first network configuration to the removal. Each case gives
//! the existing files and the file name that the operator sets, and checks the resulting file and the files that remain
//! after the removal.

use std::fs;
use std::time::Duration;

use istio_cni::install::settings::Mode;
use istio_cni::install::{Scope, remove};
use serde_json::Value;

use super::networks::{CALICO, MINIKUBE, MISSPELT, NAMELESS, NOT_JSON, TYPELESS, alone, chained, listed, value};
use super::node::{Node, PLUGIN};
use super::reconcile::{Installer, until};

/// The owner of the network configuration that the runtime uses.
#[derive(Clone, Copy)]
enum Of {
    Calico,
    Minikube,
    /// The plugin itself, in a configuration without other plugins.
    Istio,
}

struct Lifecycle {
    /// The value of `CNI_CONF_NAME`, if the operator sets it.
    named: Option<&'static str>,
    /// The names and contents of the files that exist from the start.
    given: &'static [(&'static str, &'static str)],
    /// A file that is created while the daemon waits for it.
    later: Option<(&'static str, &'static str)>,
    /// The file that finally contains the plugin, and the owner of its network.
    result: &'static str,
    of: Of,
}

const DEFAULT: Lifecycle = Lifecycle { named: None, given: &[], later: None, result: "", of: Of::Calico };

impl Lifecycle {
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

    async fn run(self) {
        let node = Node::new();
        for (name, content) in self.given {
            node.network(name, content);
        }
        let settings = node.settings(self.mode());
        let mut installer = Installer::start(settings.clone());
        if let Some((name, content)) = self.later {
            installer.waits().await;
            fs::write(node.path("net").join(name), content).unwrap();
        }
        let result = node.path("net").join(self.result);
        let has_plugin =
            || fs::read_to_string(&result).is_ok_and(|text| serde_json::from_str(&text).ok() == Some(self.expected()));
        // containerd loads no network after a file that it refuses, so the node is not ready, in contrast to Istio's.
        match self.refused() {
            [] => installer.ready().await,
            refused => {
                until("the plugin is named", has_plugin).await;
                for (name, _) in refused {
                    installer.waits_for(name).await;
                }
            }
        }
        assert_eq!(fs::read(node.path("bin/istio-cni")).unwrap(), PLUGIN);
        assert_eq!(value(&fs::read_to_string(&result).unwrap()), self.expected());
        until("only given files and the result are left", || node.names("net") == self.names()).await;

        self.remove_entry(&node);
        until("the plugin is named again", has_plugin).await;

        installer.stop().await;
        assert!(remove(&settings, Scope::ALL, Duration::ZERO).is_empty());
        self.assert_clean(&node);
    }

    /// Returns the given files that no runtime loads and that sort before the first network.
    fn refused(&self) -> &'static [(&'static str, &'static str)] {
        let is_refused = |content: &str| [NOT_JSON, TYPELESS, NAMELESS, MISSPELT].contains(&content);
        let first = self.given.iter().position(|(_, content)| !is_refused(content));
        &self.given[..first.unwrap_or_default()]
    }

    /// Removes the chain entry, as another writer does.
    fn remove_entry(&self, node: &Node) {
        let result = node.path("net").join(self.result);
        match self.of {
            Of::Calico => fs::write(result, CALICO).unwrap(),
            Of::Minikube => fs::write(result, listed(MINIKUBE).to_string()).unwrap(),
            Of::Istio => fs::remove_file(result).unwrap(),
        }
    }

    /// Returns the expected names in the configuration directory: the given files, with the resulting file in place of
    /// the one from which it was converted.
    fn names(&self) -> Vec<String> {
        let stem = |name: &str| name.split_once('.').map(|(stem, _)| stem.to_owned());
        let all = self.given.iter().chain(&self.later).map(|(name, _)| *name);
        let mut names: Vec<String> = all.filter(|name| stem(name) != stem(self.result)).map(str::to_owned).collect();
        names.push(self.result.to_owned());
        names.sort();
        names
    }

    /// Asserts that no file of the plugin is left, and that all other files, including converted ones, are as they were.
    fn assert_clean(&self, node: &Node) {
        assert_eq!((node.names("bin"), node.names("run")), (Vec::new(), Vec::new()));
        let mut given: Vec<(&str, &str)> = self.given.iter().chain(&self.later).copied().collect();
        given.sort_unstable();
        let left: Vec<(String, String)> =
            node.names("net").into_iter().map(|name| (name.clone(), node.read(&format!("net/{name}")))).collect();
        let left: Vec<(&str, &str)> = left.iter().map(|(name, content)| (&**name, &**content)).collect();
        assert_eq!(left, given, "byte for byte, and no temporaries");
    }
}

macro_rules! lifecycles {
    ($($name:ident: $lifecycle:expr,)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $lifecycle.run().await;
        }
    )*};
}

lifecycles! {
    a_named_list: Lifecycle {
        named: Some("00-calico.conflist"),
        given: &[("00-calico.conflist", CALICO)],
        result: "00-calico.conflist",
        ..DEFAULT
    },
    a_named_single_plugin: Lifecycle {
        named: Some("00-minikube_cni.conf"),
        given: &[("00-minikube_cni.conf", MINIKUBE)],
        result: "00-minikube_cni.conflist",
        of: Of::Minikube,
        ..DEFAULT
    },
    the_first_is_a_list: Lifecycle {
        given: &[("00-calico.conflist", CALICO), ("01-minikube_cni.conf", MINIKUBE)],
        result: "00-calico.conflist",
        ..DEFAULT
    },
    the_first_is_a_single_plugin: Lifecycle {
        given: &[("00-minikube_cni.conf", MINIKUBE), ("01-calico.conflist", CALICO)],
        result: "00-minikube_cni.conflist",
        of: Of::Minikube,
        ..DEFAULT
    },
    after_invalid_json_a_single_plugin: Lifecycle {
        given: &[("00-non_json.conf", NOT_JSON), ("01-minikube_cni.conf", MINIKUBE), ("02-calico.conflist", CALICO)],
        result: "01-minikube_cni.conflist",
        of: Of::Minikube,
        ..DEFAULT
    },
    after_invalid_json_a_list: Lifecycle {
        given: &[("00-non_json.conf", NOT_JSON), ("01-calico.conflist", CALICO), ("02-minikube_cni.conf", MINIKUBE)],
        result: "01-calico.conflist",
        ..DEFAULT
    },
    after_a_plugin_without_a_type_a_single_plugin: Lifecycle {
        given: &[("00-bad_minikube_cni.conf", TYPELESS), ("01-minikube_cni.conf", MINIKUBE), ("02-calico.conflist", CALICO)],
        result: "01-minikube_cni.conflist",
        of: Of::Minikube,
        ..DEFAULT
    },
    after_a_plugin_without_a_type_a_list: Lifecycle {
        given: &[("00-bad_minikube_cni.conf", TYPELESS), ("01-calico.conflist", CALICO), ("02-minikube_cni.conf", MINIKUBE)],
        result: "01-calico.conflist",
        ..DEFAULT
    },
    after_bad_lists_a_single_plugin: Lifecycle {
        given: &[
            ("00-noname_calico.conflist", NAMELESS),
            ("01-noplugins_calico.conflist", MISSPELT),
            ("02-minikube_cni.conf", MINIKUBE),
            ("03-calico.conflist", CALICO),
        ],
        result: "02-minikube_cni.conflist",
        of: Of::Minikube,
        ..DEFAULT
    },
    after_bad_lists_a_list: Lifecycle {
        given: &[
            ("00-noname_calico.conflist", NAMELESS),
            ("01-noplugins_calico.conflist", MISSPELT),
            ("02-calico.conflist", CALICO),
            ("03-minikube_cni.conf", MINIKUBE),
        ],
        result: "02-calico.conflist",
        ..DEFAULT
    },
    a_conf_is_named_and_a_conflist_exists: Lifecycle {
        named: Some("00-calico.conf"),
        given: &[("00-calico.conflist", CALICO)],
        result: "00-calico.conflist",
        ..DEFAULT
    },
    a_conflist_is_named_and_a_conf_exists: Lifecycle {
        named: Some("00-minikube_cni.conflist"),
        given: &[("00-minikube_cni.conf", MINIKUBE)],
        result: "00-minikube_cni.conflist",
        of: Of::Minikube,
        ..DEFAULT
    },
    the_named_file_is_created_later_and_is_a_list: Lifecycle {
        named: Some("missing_initially.conf"),
        later: Some(("missing_initially.conf", CALICO)),
        result: "missing_initially.conflist",
        ..DEFAULT
    },
    the_first_network_is_created_later: Lifecycle {
        later: Some(("calico.conflist", CALICO)),
        result: "calico.conflist",
        ..DEFAULT
    },
    standalone: Lifecycle { result: "YYY-istio-cni.conf", of: Of::Istio, ..DEFAULT },
    standalone_with_the_operators_name: Lifecycle {
        named: Some("user-defined.conf"),
        result: "user-defined.conf",
        of: Of::Istio,
        ..DEFAULT
    },
}
