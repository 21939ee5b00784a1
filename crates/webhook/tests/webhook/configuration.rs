//! Tests of configurations in files and ConfigMaps that change while the server runs. An invalid one has no effect.

use serde_json::json;
use tempfile::TempDir;
use webhook::{Certificates, ConfigFile, Source};

use crate::stage::{Plan, Server, issue, mount, review, stamp_of};
use test_support::api::Api;
use test_support::client::{Connection, trusting};

const LOADED: &str = "sidecar_injection_reloads_total{what=\"configuration\",result=";

struct Stage {
    server: Server,
    client: std::sync::Arc<rustls::ClientConfig>,
    _certificates: TempDir,
}

impl Stage {
    async fn start(source: Source) -> Self {
        let (dir, issued) = (tempfile::tempdir().unwrap(), issue(None));
        let plan = Plan { source, ..Plan::new(Certificates::Files(mount(dir.path(), &issued))) };
        Self { server: Server::start(plan).await, client: trusting(&issued.authorities), _certificates: dir }
    }

    /// Returns the configuration that the server uses, from its response to a review.
    async fn used(&self) -> String {
        let mut connection = Connection::open(self.server.address, &self.client).await.unwrap();
        let response = connection.review("/inject", &review("v1", "u", "")).await.unwrap();
        stamp_of(&response)["stamp"].as_str().unwrap().to_owned()
    }

    async fn until_loaded(&self, result: &str, times: usize) {
        self.server.until("/metrics", &format!("{LOADED}\"{result}\"}} {times}\n")).await;
    }
}

#[tokio::test]
async fn files_are_read_again_and_a_bad_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let write = |text: &str| std::fs::write(file("config"), text).unwrap();
    let other = |name: &str| ConfigFile { path: file(name), is_optional: true };
    let source = Source::Files { config: file("config"), values: other("values"), mesh: other("mesh") };
    let stage = Stage::start(source).await;
    stage.server.until("/readyz", "configuration: ").await;
    write("one");
    stage.server.until_ready().await;
    assert_eq!(stage.used().await, "one");
    write("bad");
    stage.until_loaded("failure", 2).await;
    assert_eq!(stage.used().await, "one");
    stage.server.until_ready().await;
    std::fs::write(file("new"), "two").unwrap();
    std::fs::rename(file("new"), file("config")).unwrap();
    stage.until_loaded("success", 2).await;
    assert_eq!(stage.used().await, "two");
    // A missing file is invalid, too.
    std::fs::remove_file(file("config")).unwrap();
    stage.until_loaded("failure", 3).await;
    assert_eq!(stage.used().await, "two");
}

fn map(config: &str) -> serde_json::Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "config": config },
        "metadata": { "namespace": "istio-system", "name": "istio-sidecar-injector" } })
}

/// Returns Istio's ConfigMaps as the source of the configuration.
fn config_maps(api: &Api, optional: bool) -> Source {
    Source::ConfigMaps {
        client: api.client(),
        namespace: "istio-system".to_owned(),
        injection: "istio-sidecar-injector".to_owned(),
        mesh: "istio".to_owned(),
        optional,
    }
}

#[tokio::test]
async fn a_config_map_is_watched_and_a_bad_one_is_refused() {
    let api = Api::start().await;
    let stage = Stage::start(config_maps(&api, false)).await;
    stage.server.until("/readyz", "there is no ConfigMap istio-sidecar-injector in namespace istio-system").await;
    api.put(map("one"));
    stage.server.until_ready().await;
    assert_eq!(stage.used().await, "one");
    api.put(map("bad"));
    stage.until_loaded("failure", 2).await;
    assert_eq!(stage.used().await, "one");
    api.remove("configmaps", "istio-system", "istio-sidecar-injector");
    stage.until_loaded("failure", 3).await;
    assert_eq!(stage.used().await, "one");
    api.expire_watches();
    api.put(map("two"));
    stage.until_loaded("success", 2).await;
    assert_eq!(stage.used().await, "two");
    stage.server.until_ready().await;
}

#[tokio::test]
async fn an_optional_config_map_is_used_once_it_exists_and_after_its_deletion() {
    let api = Api::start().await;
    let stage = Stage::start(config_maps(&api, true)).await;
    stage.server.until_ready().await;
    assert_eq!(stage.used().await, "", "the defaults");
    api.put(map("one"));
    stage.until_loaded("success", 2).await;
    assert_eq!(stage.used().await, "one");
    api.remove("configmaps", "istio-system", "istio-sidecar-injector");
    stage.until_loaded("failure", 1).await;
    assert_eq!(stage.used().await, "one", "a mesh that loses its configuration does not get another one");
}
