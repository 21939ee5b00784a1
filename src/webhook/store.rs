//! The store of a self-signed certificate, which replicas and restarts share: a Secret, or a directory.
//!
//! `certificates` calls it. A write fails with a conflict if another writer changed the store since the read.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use super::files::read_at_most;
use super::issue::Issued;

/// The file's name in a directory.
const FILE: &str = "sidecar-injector.json";
/// The type of a Secret that holds a certificate.
const TLS: &str = "kubernetes.io/tls";
/// The size limit of the file in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// The store of a certificate.
#[derive(Clone)]
pub enum CertificateStore {
    /// A directory that outlives the process, with a file that only its owner reads.
    Directory(PathBuf),
    Secret {
        client: Client,
        namespace: String,
        name: String,
    },
}

/// The content of the store.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) issued: Option<Issued>,
    /// The Secret as it was read, with its resourceVersion.
    secret: Option<Box<Secret>>,
}

/// The store cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The directory.
    #[error("{} cannot be used for the certificate: {cause}", path.display())]
    Directory {
        /// The file in it.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// The Secret.
    #[error(
        "secret {namespace}/{name} cannot be {doing}: {cause}; the role must allow to get, watch, create and update it"
    )]
    Secret {
        /// What was tried.
        doing: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Why not.
        cause: Box<kube::Error>,
    },
    /// Another replica has written since the read.
    #[error("another replica has written a certificate at the same time")]
    Conflict,
}

impl CertificateStore {
    /// Reads the store. Invalid content counts as absent.
    pub(super) async fn load(&self) -> Result<Found, Error> {
        match self {
            Self::Directory(dir) => {
                let path = dir.join(FILE);
                match read_at_most(&path, MAX_SIZE) {
                    Ok(bytes) => Ok(Found { issued: serde_json::from_slice(&bytes).ok(), secret: None }),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::default()),
                    Err(cause) => Err(Error::Directory { path, cause }),
                }
            }
            Self::Secret { client, namespace, name } => {
                let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
                let found = secrets.get_opt(name).await.map_err(|error| self.refused("read", error))?;
                Ok(Found { issued: found.as_ref().and_then(issued), secret: found.map(Box::new) })
            }
        }
    }

    /// Writes the certificate, if the store still has the content `before`.
    pub(super) async fn save(&self, new: &Issued, before: Found) -> Result<(), Error> {
        match self {
            Self::Directory(dir) => write(dir, new, before.issued.is_some()),
            Self::Secret { client, namespace, name } => {
                let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
                let how = PostParams::default();
                let written = match before.secret {
                    Some(before) => secrets.replace(name, &how, &secret(*before, new)).await,
                    None => {
                        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                        let empty = Secret { metadata, type_: Some(TLS.to_owned()), ..Secret::default() };
                        secrets.create(&how, &secret(empty, new)).await
                    }
                };
                written.map(drop).map_err(|error| self.refused("written", error))
            }
        }
    }

    fn refused(&self, doing: &'static str, cause: kube::Error) -> Error {
        match (self, cause) {
            (_, kube::Error::Api(status)) if status.code == 409 => Error::Conflict,
            (Self::Secret { namespace, name, .. }, cause) => {
                Error::Secret { doing, namespace: namespace.clone(), name: name.clone(), cause: Box::new(cause) }
            }
            (Self::Directory(path), cause) => Error::Directory { path: path.clone(), cause: io::Error::other(cause) },
        }
    }
}

fn write(dir: &PathBuf, new: &Issued, replaces: bool) -> Result<(), Error> {
    let path = dir.join(FILE);
    let wrong = |cause| Error::Directory { path: path.clone(), cause };
    let mut file = tempfile::Builder::new().prefix(".certificate.").tempfile_in(dir).map_err(wrong)?;
    let text = serde_json::to_vec(new).map_err(|error| wrong(error.into()))?;
    file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(wrong)?;
    let placed = if replaces { file.persist(&path) } else { file.persist_noclobber(&path) };
    match placed {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Conflict),
        Err(error) => Err(wrong(error.error)),
    }
}

/// Sets the certificate in a Secret and keeps its other fields.
fn secret(mut secret: Secret, new: &Issued) -> Secret {
    let data = secret.data.get_or_insert_with(BTreeMap::new);
    for (key, text) in [("ca.crt", &new.authorities), ("tls.crt", &new.certificate), ("tls.key", &new.key)] {
        data.insert(key.to_owned(), ByteString(text.clone().into_bytes()));
    }
    secret
}

fn issued(secret: &Secret) -> Option<Issued> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(Issued { authorities: text("ca.crt")?, certificate: text("tls.crt")?, key: text("tls.key")? })
}
