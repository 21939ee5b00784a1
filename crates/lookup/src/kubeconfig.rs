//! The kubeconfig that the installer writes for the plugin: the API server's address and the credentials.
//!
//! The file is read again for each request, because the token is replaced every hour. Errors name file and field; no
//! error, log or `Debug` output shows a token.
#![expect(clippy::disallowed_methods, reason = "this file owns the reading of the kubeconfig and of its token file")]

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use serde::Deserialize;

/// Size limit of a kubeconfig or a token file, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// The values of a kubeconfig that a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    pub server: SocketAddr,
    /// The name to verify in the server's certificate: `tls-server-name`, or else its address.
    pub server_name: ServerName<'static>,
    pub trust: Trust,
    pub token: Token,
}

/// Which certificates of the API server are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Certificates of these authorities (PEM).
    Authorities(Vec<u8>),
    /// Any certificate (`insecure-skip-tls-verify`, which the operator must set).
    SkipVerify,
}

/// A bearer token, free of white space and control characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Returns the token for the `Authorization` header; use it nowhere else.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// An unusable kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig, or the token file that it names, cannot be read.
    #[error("cannot read {path}: {error}; is the istio-cni node agent running?")]
    Read { path: PathBuf, error: io::Error },
    #[error("kubeconfig {path}: {fault}")]
    Content { path: PathBuf, fault: Fault },
}

/// A fault in a kubeconfig's content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not YAML or JSON of the right shape. The text is omitted: it may be a token.
    #[error("not a kubeconfig: line {line}, column {column}")]
    Syntax {
        /// From 1; 0 if the parser does not report it.
        line: u64,
        /// From 1; 0 if the parser does not report it.
        column: u64,
    },
    /// A field is missing, or an entry whose name another field holds.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The URL is not one that the plugin connects to.
    #[error("cluster.server {url:?} is not allowed: {allowed}")]
    Server {
        url: String,
        /// The valid URLs.
        allowed: &'static str,
    },
    #[error("cluster.tls-server-name is neither a DNS name nor an IP address")]
    ServerName,
    #[error("cluster.certificate-authority-data is not base64")]
    Authority,
    /// The token is empty or has characters that a header field cannot have.
    #[error("user.token is empty or has characters that a token cannot have")]
    Token,
}

/// Reads a kubeconfig and the token file that it may name.
pub fn load(path: &Path) -> Result<Kubeconfig, Error> {
    let content = |fault| Error::Content { path: path.to_owned(), fault };
    let parsed = parse(&read(path)?).map_err(content)?;
    let token = match parsed.credential {
        Credential::Token(token) => token,
        Credential::File(file) => {
            // A relative path is relative to the kubeconfig's directory, as in client-go.
            let text = read(&path.parent().unwrap_or(Path::new("/")).join(file))?;
            Token::parse(&String::from_utf8_lossy(&text)).map_err(content)?
        }
    };
    Ok(Kubeconfig { server: parsed.server, server_name: parsed.server_name, trust: parsed.trust, token })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let fail = |error| Error::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_SIZE + 1).read_to_end(&mut bytes)).map_err(fail)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(fail(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {MAX_SIZE} bytes"))));
    }
    Ok(bytes)
}

/// A parsed kubeconfig. Its token may be in another file, which has not been read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    pub server: SocketAddr,
    pub server_name: ServerName<'static>,
    pub trust: Trust,
    pub credential: Credential,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    Token(Token),
    /// `tokenFile`, which takes precedence over `token`.
    File(PathBuf),
}

/// Parses the cluster and user of `current-context`.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Fault> {
    let config: Config = serde_saphyr::from_slice(bytes).map_err(|error| {
        let at = error.location();
        Fault::Syntax { line: at.map_or(0, |at| at.line()), column: at.map_or(0, |at| at.column()) }
    })?;
    let wanted = config.current_context.filter(|name| !name.is_empty()).ok_or(Fault::Missing("current-context"))?;
    let context = find(config.contexts, &wanted, "the context that current-context names")?;
    let cluster = find(config.clusters, &context.cluster, "the cluster of the current context")?;
    let user = find(config.users, &context.user, "the user of the current context")?;
    let server = parse_server(&cluster.server.ok_or(Fault::Missing("cluster.server"))?)?;
    Ok(Parsed {
        server,
        server_name: match cluster.tls_server_name.filter(|name| !name.is_empty()) {
            Some(name) => ServerName::try_from(name).map_err(|_| Fault::ServerName)?,
            None => server.ip().into(),
        },
        trust: parse_trust(cluster.insecure_skip_tls_verify, cluster.certificate_authority_data)?,
        credential: match (user.token_file, user.token) {
            (Some(file), _) if !file.as_os_str().is_empty() => Credential::File(file),
            (_, Some(token)) => Credential::Token(Token::parse(&token)?),
            _ => return Err(Fault::Missing("user.token (or user.tokenFile)")),
        },
    })
}

impl Token {
    /// Checks a token. Surrounding white space is removed, such as the newline at the end of a token file.
    fn parse(text: &str) -> Result<Self, Fault> {
        let token = text.trim();
        let visible = token.bytes().all(|b| b.is_ascii_graphic());
        if token.is_empty() || !visible { Err(Fault::Token) } else { Ok(Self(token.to_owned())) }
    }
}

/// Accepts `https://` and an address: plain HTTP would expose the token, and a name would have to be resolved.
fn parse_server(url: &str) -> Result<SocketAddr, Fault> {
    let fault = |allowed| Fault::Server { url: url.chars().take(120).collect(), allowed };
    let rest = url.strip_prefix("https://").ok_or_else(|| fault("it must start with https://"))?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if let Ok(address) = authority.parse() {
        return Ok(address);
    }
    let host = authority.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(authority);
    host.parse::<IpAddr>().map(|host| SocketAddr::new(host, 443)).map_err(|_| {
        fault("host names are never resolved here: it must be https://, an IP address and a port, without a path; tls-server-name may be a host name")
    })
}

fn parse_trust(skip: Option<bool>, authorities: Option<String>) -> Result<Trust, Fault> {
    if skip == Some(true) {
        return Ok(Trust::SkipVerify);
    }
    let data = authorities.filter(|data| !data.is_empty());
    let data = data.ok_or(Fault::Missing("cluster.certificate-authority-data (or insecure-skip-tls-verify)"))?;
    STANDARD.decode(data.trim()).map(Trust::Authorities).map_err(|_| Fault::Authority)
}

fn find<T>(entries: Option<Vec<Named<T>>>, name: &str, what: &'static str) -> Result<T, Fault> {
    let found = entries.into_iter().flatten().find(|entry| entry.name == name);
    found.map(|entry| entry.value).ok_or(Fault::Missing(what))
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    current_context: Option<String>,
    contexts: Option<Vec<Named<Context>>>,
    clusters: Option<Vec<Named<Cluster>>>,
    users: Option<Vec<Named<User>>>,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "context", alias = "cluster", alias = "user")]
    value: T,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    tls_server_name: Option<String>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
}

#[derive(Deserialize)]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
