//! Tests of the parsing of hosts, and of the lookups of the API server's name.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn name() -> Server {
    Server::new("https", "api.example.com", 443).unwrap()
}

fn fast() -> Intervals {
    Intervals { refresh: Duration::from_millis(2), retry: Duration::from_millis(1), limit: Duration::from_millis(50) }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn addresses_need_no_lookup() {
    for (host, url) in [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")] {
        let resolution = Server::new("https", host, 443).unwrap().without_lookup();
        let endpoint = Endpoint { url: url.to_owned(), tls_server_name: None };
        assert_eq!(resolution, Resolution { endpoint: Some(endpoint), unresolved: None });
    }
}

#[test]
fn an_invalid_host_is_refused() {
    for host in ["a b", "x\nserver: y", "-x.example", "", "a..b", "10.0.0.1:443", "[::1]"] {
        let error = Server::new("https", host, 443).unwrap_err().to_string();
        assert!(error.contains("neither an IP address nor a DNS name"), "{host:?}: {error}");
    }
    let absolute = Server::new("https", "api.example.com.", 443).unwrap();
    assert_eq!(absolute, name(), "a certificate's name has no final dot");
}

#[test]
fn a_lookup_results_in_an_address_and_the_certificates_name() {
    let (mut known, now) = (None, Instant::now());
    let mut evaluate =
        |addresses: &[&str]| evaluate(&name(), "n", &mut known, Ok(addresses.iter().map(|a| ip(a)).collect()), now);
    let first = evaluate(&["10.0.0.1", "10.0.0.2"]);
    assert_eq!(first.unresolved, None);
    let endpoint = first.endpoint.clone().unwrap();
    assert_eq!(
        (&*endpoint.url, endpoint.tls_server_name.as_deref()),
        ("https://10.0.0.1:443", Some("api.example.com"))
    );
    // The order of addresses is ignored; a missing address is a change.
    assert_eq!(evaluate(&["10.0.0.2", "10.0.0.1"]), first);
    assert_eq!(evaluate(&["10.0.0.2", "fd00::3"]).endpoint.unwrap().url, "https://10.0.0.2:443");
    assert_eq!(evaluate(&["fd00::3"]).endpoint.unwrap().url, "https://[fd00::3]:443");
}

#[test]
fn failures_affect_readiness_at_once_without_an_address_and_later_with_one() {
    let start = Instant::now();
    let fails = || Err(io::Error::other("no such host"));
    let mut known = None;
    let unknown = evaluate(&name(), "n", &mut known, fails(), start);
    assert_eq!(unknown.endpoint, None);
    let text = unknown.unresolved.unwrap().to_string();
    assert!(text.contains("name n (KUBERNETES_SERVICE_HOST) cannot be resolved: no such host"), "{text}");
    assert!(!text.contains("keeps"), "{text}");

    let found = evaluate(&name(), "n", &mut known, Ok(vec![ip("10.0.0.1")]), start);
    assert_eq!(
        evaluate(&name(), "n", &mut known, fails(), start + ADDRESS_LIFETIME / 2),
        found,
        "one failure changes nothing"
    );
    let late = evaluate(&name(), "n", &mut known, Ok(vec![]), start + ADDRESS_LIFETIME);
    assert_eq!(late.endpoint, found.endpoint, "a token is still renewed beside the last address");
    let text = late.unresolved.unwrap().to_string();
    assert!(text.contains("it has no address") && text.ends_with("The kubeconfig keeps 10.0.0.1"), "{text}");
}

#[tokio::test]
async fn changes_are_reported() {
    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
    let (mut resolver, lookups) = Resolver::new(&name(), fast(), |queried, _| async move {
        assert_eq!(queried, "api.example.com");
        match LOOKUPS.fetch_add(1, Ordering::Relaxed) {
            0 => std::future::pending().await,
            1 => Err(io::Error::other("refused")),
            2 | 3 => Ok(vec![ip("10.0.0.1")]),
            _ => Ok(vec![ip("10.0.0.9")]),
        }
    });
    let lookups = tokio::spawn(lookups.unwrap());
    assert_eq!(resolver.resolution(), name().without_lookup());
    let mut next = async || {
        resolver.changed().await;
        let Resolution { endpoint, unresolved } = resolver.resolution();
        unresolved.map_or_else(|| endpoint.unwrap().url, |unresolved| unresolved.to_string())
    };
    assert!(next().await.contains("timed out"));
    assert!(next().await.contains("refused"));
    assert_eq!(next().await, "https://10.0.0.1:443");
    assert_eq!(next().await, "https://10.0.0.9:443");
    assert!(LOOKUPS.load(Ordering::Relaxed) >= 5, "an unchanged address is not reported");
    lookups.abort();
}

#[tokio::test]
async fn an_address_is_never_looked_up() {
    let server = Server::new("https", "10.0.0.1", 443).unwrap();
    let (mut resolver, lookups) =
        Resolver::new(&server, fast(), |_, _| async { unreachable!("an address has no name") });
    assert!(lookups.is_none());
    assert!(timeout(fast().limit * 3, resolver.changed()).await.is_err());
    assert_eq!(resolver.resolution(), server.without_lookup());
}
