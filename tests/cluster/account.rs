//! Creates service accounts that have the rights of one role, and writes kubeconfigs for them.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::stage::Stage;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The API server's address and the file with its CA certificate.
const SERVER: &str = "https://192.168.0.1:6443";
const AUTHORITY: &str = "/run/kubernetes/apiserver.crt";

/// A service account that a trial has created.
pub(crate) struct Account {
    /// The account's user name, as in `system:serviceaccount:NAMESPACE:NAME`.
    pub(crate) user: String,
    token: String,
}

impl Account {
    /// Creates an account whose only rights are `rules`, by a ClusterRole of its own.
    pub(crate) fn new(stage: &Stage<'_>, name: &str, rules: &Value) -> Result<Self> {
        let (namespace, rbac) = (stage.namespace, format!("/apis/{RBAC}"));
        // ClusterRoles and their bindings remain after the trial's namespace is deleted.
        let unique = format!("{namespace}-{name}");
        let role = json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": unique }, "rules": rules });
        stage.cluster.replace(&format!("{rbac}/clusterroles"), &role)?;
        let binding = json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": { "name": unique },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": unique },
            "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
        });
        stage.cluster.replace(&format!("{rbac}/clusterrolebindings"), &binding)?;
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        stage.create("serviceaccounts", &account)?;
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let response = stage.create(&format!("serviceaccounts/{name}/token"), &request)?;
        let token = response["status"]["token"].as_str().context("a token")?.to_owned();
        Ok(Self { user: format!("system:serviceaccount:{namespace}:{name}"), token })
    }

    /// Writes a kubeconfig with the account's token.
    pub(crate) fn write_kubeconfig(&self, path: &Path) -> Result<()> {
        let (token, authority) = (&self.token, STANDARD.encode(fs::read(AUTHORITY).context(AUTHORITY)?));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "cluster",
            "clusters": [{ "name": "cluster", "cluster": { "server": SERVER, "certificate-authority-data": authority } }],
            "users": [{ "name": "user", "user": { "token": token } }],
            "contexts": [{ "name": "cluster", "context": { "cluster": "cluster", "user": "user" } }],
        });
        let file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
        Ok(serde_json::to_writer(file.with_context(|| path.display().to_string())?, &text)?)
    }
}

/// Whether a user is allowed a request such as `create pods/eviction` in all namespaces.
pub(crate) fn is_allowed(stage: &Stage<'_>, user: &str, request: &str) -> Result<bool> {
    let (verb, resource) = request.split_once(' ').context("verb and resource")?;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "resourceAttributes": { "verb": verb, "resource": resource, "subresource": subresource },
        },
    });
    let response = stage.cluster.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)?;
    response["status"]["allowed"].as_bool().with_context(|| response.to_string())
}
