//! Tests of the caBundle that the program writes to webhook configurations: writing, restoring, and the effect on
//! readiness.

use webhook::{Certificates, Selection};

use crate::stage::{
    Plan, Server, bundles, bundles_of, issue, mount, selection, webhook_configuration, webhook_configuration_of_dapr,
};
use test_support::DEADLINE;
use test_support::api::{Api, Fault};
use test_support::client::{Connection, trusting};

const CONFIGURATION: &str = "/mutatingwebhookconfigurations/istio-sidecar-injector";

const DAPR: &str = "dapr-sidecar-injector";

/// Returns the selections of Istio's webhooks and of Dapr's.
fn both() -> Vec<Selection> {
    let webhook = "sidecar-injector.dapr.io".to_owned();
    vec![selection(), Selection { name: DAPR.to_owned(), labels: String::new(), webhook }]
}

struct Stage {
    api: Api,
    server: Server,
    dir: tempfile::TempDir,
    issued: webhook::Issued,
}

impl Stage {
    async fn start(api: Api) -> Self {
        Self::of(api, vec![selection()]).await
    }

    async fn of(api: Api, selections: Vec<Selection>) -> Self {
        let (dir, issued) = (tempfile::tempdir().unwrap(), issue(None));
        let plan = Plan { selections, ..Plan::new(Certificates::Files(mount(dir.path(), &issued))) };
        let server = Server::start(plan.with(&api)).await;
        Self { api, server, dir, issued }
    }

    /// Waits until Dapr's webhook has the right caBundle.
    async fn until_bundle_of_dapr(&self) {
        let right = |api: &Api| (bundles_of(api, DAPR) == [self.issued.authorities.as_str()]).then_some(());
        self.api.until("the caBundle of Dapr's webhook", right).await;
    }

    /// Waits until both of Istio's webhooks have this caBundle.
    async fn until_bundle(&self, bundle: &str) {
        self.api.until("the caBundle", |api| (bundles(api)[..2] == [bundle, bundle]).then_some(())).await;
    }
}

async fn configured(bundle: &str) -> Stage {
    let api = Api::start().await;
    api.put(webhook_configuration(bundle));
    Stage::start(api).await
}

#[tokio::test]
async fn an_empty_bundle_is_written_and_foreign_webhooks_are_unchanged() {
    let stage = configured("").await;
    stage.until_bundle(&stage.issued.authorities).await;
    stage.server.until_ready().await;
    assert_eq!(bundles(&stage.api)[2], "");
    let seen = &stage.api.requests_to("PATCH", CONFIGURATION)[0];
    assert_eq!(seen.content_type, "application/json-patch+json");
    assert_eq!(seen.body[0]["op"], "test");
    assert_eq!(stage.api.requests_to("PATCH", CONFIGURATION).len(), 1);
}

#[tokio::test]
async fn a_correct_bundle_is_not_patched() {
    let api = Api::start().await;
    let (dir, issued) = (tempfile::tempdir().unwrap(), issue(None));
    api.put(webhook_configuration(&issued.authorities));
    let server = Server::start(Plan::new(Certificates::Files(mount(dir.path(), &issued))).with(&api)).await;
    server.until_ready().await;
    assert_eq!(api.requests_to("PATCH", CONFIGURATION).len(), 0);
}

#[tokio::test]
async fn a_removed_bundle_is_restored() {
    let stage = configured("").await;
    stage.until_bundle(&stage.issued.authorities).await;
    for bundle in ["", &issue(None).authorities] {
        stage.api.put(webhook_configuration(bundle));
        stage.until_bundle(&stage.issued.authorities).await;
    }
    stage.server.until_ready().await;
}

#[tokio::test]
async fn readiness_requires_that_the_bundle_trusts_the_certificate() {
    let api = Api::start().await;
    api.fault(Fault::on("PATCH", CONFIGURATION).status(403));
    let stage = Stage::start(api).await;
    stage.server.until("/readyz", "there is no MutatingWebhookConfiguration named istio-sidecar-injector").await;
    stage.api.put(webhook_configuration(&issue(None).authorities));
    let said = stage.server.until("/readyz", "is not trusted for istio-sidecar-injector.istio-system.svc").await;
    assert!(said.contains("503"), "{said}");
    let refused = r#"webhook_patch_failures_total{name="istio-sidecar-injector",reason="forbidden"}"#;
    stage.server.until("/metrics", refused).await;
    stage.api.heal();
    stage.server.until_ready().await;
    stage.api.remove("mutatingwebhookconfigurations", "", "istio-sidecar-injector");
    stage.server.until("/readyz", "there is no MutatingWebhookConfiguration").await;
}

#[tokio::test]
async fn a_configuration_that_changes_before_the_patch_is_read_again() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    api.fault(Fault::on("PATCH", CONFIGURATION).held().times(1));
    let stage = Stage::start(api).await;
    stage.api.until("a patch", |api| api.requests_to("PATCH", CONFIGURATION).into_iter().next()).await;
    // The order of the webhooks changes before the patch arrives.
    let mut turned = webhook_configuration("");
    turned["webhooks"].as_array_mut().unwrap().reverse();
    stage.api.put(turned);
    stage.api.release();
    let right = |api: &Api| bundles(api) == ["", &stage.issued.authorities, &stage.issued.authorities];
    stage.api.until("the bundles in their new places", |api| right(api).then_some(())).await;
    stage.server.until_ready().await;
}

#[tokio::test]
async fn a_new_authority_is_announced_before_its_certificate_is_shown() {
    let stage = configured("").await;
    stage.until_bundle(&stage.issued.authorities).await;
    stage.server.until_ready().await;
    stage.api.fault(Fault::on("PATCH", CONFIGURATION).status(503));
    let patches = stage.api.requests_to("PATCH", CONFIGURATION).len();
    let new = issue(Some(&stage.issued));
    mount(stage.dir.path(), &new);
    let more = |api: &Api| (api.requests_to("PATCH", CONFIGURATION).len() > patches + 1).then_some(());
    stage.api.until("patches that are refused", more).await;
    // API servers do not trust the new certificate yet, so the server still presents the old one.
    let trusted = async |bundle: &str| Connection::open(stage.server.address, &trusting(bundle)).await.is_ok();
    assert!(trusted(&stage.issued.authorities).await);
    stage.server.until("/readyz", "200 OK").await;
    stage.api.heal();
    stage.until_bundle(&new.authorities).await;
    let only_new = &new.authorities[..new.authorities.find("-----END CERTIFICATE-----").unwrap() + 26];
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !trusted(only_new).await {
        assert!(tokio::time::Instant::now() < deadline, "the new certificate is not presented");
    }
    stage.server.until_ready().await;
}

#[tokio::test]
async fn watches_that_break_or_expire_lose_nothing() {
    let stage = configured("").await;
    stage.until_bundle(&stage.issued.authorities).await;
    stage.api.break_watches();
    stage.api.put(webhook_configuration(""));
    stage.until_bundle(&stage.issued.authorities).await;
    stage.api.expire_watches();
    stage.api.put(webhook_configuration(""));
    stage.until_bundle(&stage.issued.authorities).await;
}

#[tokio::test]
async fn readiness_requires_the_bundles_of_both_configurations() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let stage = Stage::of(api, both()).await;
    stage.until_bundle(&stage.issued.authorities).await;
    let missing = "there is no MutatingWebhookConfiguration named dapr-sidecar-injector";
    stage.server.until("/readyz", missing).await;
    stage.api.put(webhook_configuration_of_dapr(&issue(None).authorities));
    stage.until_bundle_of_dapr().await;
    stage.server.until_ready().await;
    stage.api.put(webhook_configuration_of_dapr(""));
    stage.api.put(webhook_configuration(""));
    stage.until_bundle_of_dapr().await;
    stage.until_bundle(&stage.issued.authorities).await;
    stage.server.until_ready().await;
    stage.api.remove("mutatingwebhookconfigurations", "", DAPR);
    stage.server.until("/readyz", missing).await;
}

#[tokio::test]
async fn a_refused_patch_of_one_configuration_does_not_affect_the_other() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    api.put(webhook_configuration_of_dapr(""));
    let path = "/mutatingwebhookconfigurations/dapr-sidecar-injector";
    api.fault(Fault::on("PATCH", path).status(403));
    let stage = Stage::of(api, both()).await;
    for _ in 0..3 {
        stage.until_bundle(&stage.issued.authorities).await;
        stage.api.put(webhook_configuration(""));
    }
    stage.until_bundle(&stage.issued.authorities).await;
    let said = stage.server.until("/readyz", "sidecar-injector.dapr.io of dapr-sidecar-injector").await;
    assert!(said.contains("503"), "{said}");
    stage.api.until("patches that are refused", |api| (api.requests_to("PATCH", path).len() > 1).then_some(())).await;
    // Another replica has written a bundle that also contains this replica's CA, so this replica does not change it.
    let ahead = issue(Some(&stage.issued)).authorities;
    let patches = stage.api.requests_to("PATCH", CONFIGURATION).len();
    stage.api.put(webhook_configuration(&ahead));
    stage.api.heal();
    stage.until_bundle_of_dapr().await;
    stage.server.until_ready().await;
    assert_eq!(
        (bundles(&stage.api)[0].as_str(), stage.api.requests_to("PATCH", CONFIGURATION).len()),
        (&*ahead, patches)
    );
}
