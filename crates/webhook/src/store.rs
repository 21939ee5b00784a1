//! The store of a self-signed certificate, which replicas and restarts share: a Secret, or a directory.
//!
//! `certificates` calls this module. A write fails with a conflict if another writer changed the Secret or the file
//! since the read.
#![expect(clippy::disallowed_methods, reason = "locks the directory, which several processes may use")]

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use contract::diagnostics::without_path;
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
    /// A directory that exists longer than the process, such as a volume. Only the owner can read the certificate's
    /// file in it.
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
    /// The content of the file in the directory.
    file: Option<Vec<u8>>,
}

/// The store cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The directory of the certificate cannot be read or written.
    #[error("{} cannot be used for the certificate: {cause}", path.display())]
    Directory {
        /// The file or directory.
        path: PathBuf,
        cause: io::Error,
    },
    /// The Secret cannot be read or written.
    #[error(
        "secret {namespace}/{name} cannot be {doing}: {cause}; the role must allow `get`, `list`, \
         `watch`, `create` and `update` of it"
    )]
    Secret {
        /// The attempted operation, as a participle.
        doing: &'static str,
        namespace: String,
        name: String,
        cause: Box<kube::Error>,
    },
    /// Another replica has written since the read, or writes now.
    #[error("another replica has written a certificate at the same time")]
    Conflict,
}

impl CertificateStore {
    /// Reads the store. Invalid content is treated as absent.
    pub(super) async fn load(&self) -> Result<Found, Error> {
        match self {
            Self::Directory(dir) => {
                let path = dir.join(FILE);
                let file = read(&path)?;
                let parsed = file.as_deref().map(serde_json::from_slice).transpose();
                let issued = parsed.unwrap_or_else(|cause| {
                    tracing::warn!("{} is invalid and will be replaced: {cause}", path.display());
                    None
                });
                Ok(Found { issued, secret: None, file })
            }
            Self::Secret { client, namespace, name } => {
                let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
                let found = secrets.get_opt(name).await.map_err(|error| self.refused("read", error))?;
                Ok(Found { issued: found.as_ref().and_then(issued), secret: found.map(Box::new), file: None })
            }
        }
    }

    /// Writes the certificate. `before`: the content of the store when it was read, by which conflicts are detected.
    pub(super) async fn save(&self, new: &Issued, before: Found) -> Result<(), Error> {
        match self {
            Self::Directory(dir) => write(dir, new, before.file.as_deref()),
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

/// Reads the file in the directory; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match read_at_most(path, MAX_SIZE) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::Directory { path: path.to_owned(), cause }),
    }
}

/// Replaces the file in the directory if its content is still `before`. Writers hold a lock on the directory during the
/// comparison and the replacement.
fn write(dir: &Path, new: &Issued, before: Option<&[u8]>) -> Result<(), Error> {
    let path = dir.join(FILE);
    let wrong = |cause| Error::Directory { path: path.clone(), cause };
    let created = tempfile::Builder::new().prefix(".certificate.").tempfile_in(dir);
    let mut file = created.map_err(without_path).map_err(wrong)?;
    let text = serde_json::to_vec(new).map_err(|error| wrong(error.into()))?;
    file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(wrong)?;
    let lock = File::open(dir).map_err(wrong)?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Error::Conflict,
        TryLockError::Error(cause) => Error::Directory { path: dir.to_owned(), cause },
    })?;
    if read(&path)?.as_deref() != before {
        return Err(Error::Conflict);
    }
    file.persist(&path).map(drop).map_err(|error| wrong(error.error))
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

#[cfg(test)]
mod tests;
