//! A server with the injector's HTTP and TLS code that sends a fixed response. Its rate is the upper limit for reviews
//! over HTTPS.
//!
//! The bench starts itself as this server. The directory that [`DIRECTORY`] names contains the port, the certificate
//! and the response.

use std::fs;
use std::path::Path;

use anyhow::Result;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use serve::http::{self, Request};
use serve::listen;
use serve::shutdown::Shutdown;
use serve::tls::Tls;
use webhook::{Identity, ServerSettings};

/// The environment variable that names the server's directory. The bench runs as the server if the variable is set.
pub(crate) const DIRECTORY: &str = "BENCH_ECHO";

/// Serves until the process is killed.
pub(crate) async fn serve(dir: &Path) -> Result<()> {
    let identity = Identity::parse(
        &fs::read(dir.join("cert.pem"))?,
        &fs::read(dir.join("key.pem"))?,
        &fs::read(dir.join("root.pem"))?,
    )?;
    let (tls, response) = (Tls::new()?, Bytes::from(fs::read(dir.join("response"))?));
    tls.present(identity.certified());
    let listener = listen::port(fs::read_to_string(dir.join("port"))?.parse()?).await?;
    let (_trigger, shutdown) = Shutdown::new();
    let respond = move |_: Request| {
        let response = response.clone();
        async move { http::content(StatusCode::OK, HeaderValue::from_static("application/json"), response) }
    };
    http::serve_over(listener, ServerSettings::limits(), move |stream| tls.open(stream), respond, shutdown).await;
    Ok(())
}
