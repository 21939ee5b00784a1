//! Tests of the conditions on the source of a volume.

use serde_json::json;

use super::*;

#[test]
fn a_source_without_what_it_needs_is_refused_for_its_reason() {
    for valid in [json!({"fc": {"wwids": ["w"]}}), json!({"image": {"reference": "i", "pullPolicy": "Never"}})] {
        assert_eq!(check(&valid), Ok(()), "{valid}");
    }
    for (invalid, reason) in [
        (json!({"nfs": {"server": "s", "path": "x"}}), "nfs.path must be an absolute path"),
        (json!({"ephemeral": {"volumeClaimTemplate": {}}}), "ephemeral.volumeClaimTemplate.spec is required"),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
            "ephemeral.volumeClaimTemplate.spec.accessModes is required",
        ),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}),
            "ephemeral.volumeClaimTemplate.spec.resources.requests.storage is required",
        ),
        (json!({"cinder": {}}), "cinder.volumeID is required"),
        (json!({"flocker": {}}), "flocker has none: exactly one of datasetName and"),
        (json!({"csi": {"driver": "d", "nodePublishSecretRef": {}}}), "csi.nodePublishSecretRef.name is required"),
        (json!({"gcePersistentDisk": {"pdName": "p", "partition": 256}}), "gcePersistentDisk.partition 256"),
        (json!({"image": {"reference": "i", "pullPolicy": "Now"}}), "image.pullPolicy \"Now\""),
    ] {
        let found = check(&invalid).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.starts_with(reason), "{invalid}: {found}");
    }
}

/// Returns a volume with a claim template whose spec has these fields in addition to valid ones.
fn claim_with(fields: &Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    fields.as_object().unwrap().iter().for_each(|(name, field)| spec[name] = field.clone());
    json!({"ephemeral": {"volumeClaimTemplate": {"spec": spec}}})
}

fn iscsi(fields: &Value) -> Value {
    let mut source = json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:s"});
    fields.as_object().unwrap().iter().for_each(|(name, field)| source[name] = field.clone());
    json!({"iscsi": source})
}

fn azure(kind: &str, uri: &str) -> Value {
    json!({"azureDisk": {"diskName": "a", "diskURI": uri, "kind": kind}})
}

fn storage(storage: &str) -> Value {
    claim_with(&json!({"resources": {"requests": {"storage": storage}}}))
}

fn data_source(group: Option<&str>, kind: &str) -> Value {
    claim_with(&json!({"dataSource": {"apiGroup": group, "kind": kind, "name": "n"}}))
}

fn metadata(field: &str, value: Value) -> Value {
    let mut volume = claim_with(&json!({}));
    volume["ephemeral"]["volumeClaimTemplate"]["metadata"][field] = value;
    volume
}

/// Each case meets one of the API server's conditions (`validateVolumeSource`).
#[test]
fn sources_that_the_api_server_admits_are_valid() {
    for valid in [
        json!({"fc": {"wwids": ["w"], "lun": 300}}),
        json!({"fc": {"targetWWNs": ["w"], "lun": 255}}),
        azure("Managed", "/subscriptions/a"),
        azure("Shared", "https://a.blob.core.windows.net/b/c.vhd"),
        json!({"azureDisk": {"diskName": "a", "diskURI": "https://b", "cachingMode": "ReadOnly"}}),
        iscsi(&json!({"iqn": "euix0123456789abcdef"})),
        iscsi(&json!({"iqn": "iqnxiqn.2001-04.com.example:s"})),
        iscsi(&json!({"initiatorName": "naa.0123456789abcdef0123456789abcdef"})),
        json!({"quobyte": {"registry": "a:1,[::1]:2", "volume": "v", "tenant": "t"}}),
        json!({"flexVolume": {"driver": "d", "options": {"example.com/a": "b", "kubernetes.ioa": "c"}}}),
        json!({"flocker": {"datasetName": "a"}}),
        json!({"gitRepo": {"repository": "r", "directory": "a/..b"}}),
        json!({"storageos": {"volumeName": "a", "volumeNamespace": "b", "secretRef": {"name": "C"}}}),
        claim_with(&json!({"volumeMode": "Filesystem", "storageClassName": "", "volumeAttributesClassName": ""})),
        storage("1500m"),
        data_source(Some("snapshot.storage.k8s.io"), "VolumeSnapshot"),
        data_source(None, "PersistentVolumeClaim"),
        claim_with(&json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}})),
        metadata("labels", json!({"a": "b"})),
        metadata("annotations", json!({"A/b": "any thing"})),
    ] {
        assert_eq!(check(&valid), Ok(()), "{valid}");
    }
}

/// Each case violates one of the API server's conditions (`validateVolumeSource`).
#[test]
fn the_field_of_a_source_that_the_api_server_refuses_is_named() {
    for (invalid, part) in [
        (json!({"fc": {"targetWWNs": ["w"], "lun": 300}}), "fc.lun 300"),
        (json!({"fc": {"targetWWNs": ["w"]}}), "fc.lun is required"),
        (azure("Managed", "b"), "azureDisk.diskURI"),
        (azure("Dedicated", "/subscriptions/a"), "azureDisk.diskURI"),
        (azure("X", "b"), "azureDisk.kind"),
        (json!({"azureDisk": {"diskName": "a", "diskURI": "/subscriptions/b"}}), "azureDisk.diskURI"),
        (json!({"azureDisk": {"diskName": "a", "diskURI": "b", "cachingMode": "x"}}), "azureDisk.cachingMode"),
        (iscsi(&json!({"initiatorName": ""})), "iscsi.initiatorName"),
        (iscsi(&json!({"iqn": "eui.x"})), "iscsi.iqn"),
        (iscsi(&json!({"iqn": "naa.0123456789abcdef0123456789abcdeé"})), "iscsi.iqn"),
        (json!({"quobyte": {"registry": "a", "volume": "v"}}), "quobyte.registry"),
        (json!({"quobyte": {"registry": "a:1,b", "volume": "v"}}), "quobyte.registry"),
        (json!({"quobyte": {"registry": "a:1", "volume": "v", "tenant": "t".repeat(65)}}), "quobyte.tenant"),
        (json!({"flexVolume": {"driver": "d", "options": {"a.Kubernetes.io/b": "c"}}}), "flexVolume.options"),
        (json!({"flexVolume": {"driver": "d", "options": {"k8s.io": "c"}}}), "flexVolume.options"),
        (json!({"flocker": {"datasetName": "a/b"}}), "flocker.datasetName"),
        (json!({"gitRepo": {"repository": "r", "directory": "/a"}}), "gitRepo.directory"),
        (json!({"gitRepo": {"repository": "r", "directory": "a/../b"}}), "gitRepo.directory"),
        (json!({"storageos": {"volumeName": "A"}}), "storageos.volumeName"),
        (json!({"storageos": {"volumeName": "a", "volumeNamespace": "b.c"}}), "storageos.volumeNamespace"),
        (json!({"storageos": {"volumeName": "a", "secretRef": {}}}), "storageos.secretRef.name"),
        (json!({"cinder": {"volumeID": "a", "secretRef": {}}}), "cinder.secretRef.name"),
        (claim_with(&json!({"volumeMode": "x"})), "spec.volumeMode"),
        (storage("0"), "spec.resources.requests.storage"),
        (storage("-1"), "spec.resources.requests.storage"),
        (claim_with(&json!({"storageClassName": "A_"})), "spec.storageClassName"),
        (claim_with(&json!({"volumeAttributesClassName": "A_"})), "spec.volumeAttributesClassName"),
        (data_source(None, "VolumeSnapshot"), "spec.dataSource"),
        (data_source(Some("A_"), "VolumeSnapshot"), "spec.dataSource.apiGroup"),
        (claim_with(&json!({"dataSourceRef": {"kind": "PersistentVolumeClaim"}})), "spec.dataSourceRef.name"),
        (claim_with(&json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})), "spec.selector"),
        (claim_with(&json!({"selector": {"matchLabels": {"a": "b c"}}})), "spec.selector"),
        (metadata("labels", json!({"a": "b c"})), "metadata.labels"),
        (metadata("annotations", json!({"a b": "c"})), "metadata.annotations"),
        (metadata("name", json!("a")), "metadata.name"),
    ] {
        let found = check(&invalid).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.contains(part), "{invalid}: {found:?}");
    }
}
