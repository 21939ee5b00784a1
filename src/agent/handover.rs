//! Hands the sockets over to an agent that stands by, for example one from another DaemonSet. An agent that would remove the plugin
//! when it shuts down first offers the node to that agent, and serves lookups until that agent has taken over.

#![expect(clippy::disallowed_methods, reason = "records when an agent last stood by")]

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use podfacts::requests::HANDOVER;
use serve::http::{Response, text};
use serve::listen;
use serve::shutdown::Shutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// The time for which an agent that stands by keeps a connection before it opens a new one.
const HOLD: Duration = Duration::from_secs(2);
/// The time for which an agent is treated as standing by after its last request: several times `HOLD`, because a loaded node is slow.
const RECENT: Duration = Duration::from_secs(10);
/// The start of the response that offers the sockets.
const OFFER: &[u8] = b"HTTP/1.1 200 ";
/// The maximum number of bytes of a response that are read.
const LONGEST: usize = 1 << 10;

/// The offer of an agent's sockets, and the time of the last request for it; clones share both.
#[derive(Debug, Clone, Default)]
pub struct Handover(Arc<watch::Sender<State>>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    is_offered: bool,
    requested: Option<Instant>,
}

impl Handover {
    /// Offers the sockets to all agents that stand by.
    pub fn offer(&self) {
        self.0.send_modify(|state| state.is_offered = true);
    }

    /// Withdraws the offer.
    pub fn withdraw(&self) {
        self.0.send_modify(|state| state.is_offered = false);
    }

    /// Whether another agent stands by, that is, has recently requested the offer.
    pub fn is_awaited(&self) -> bool {
        self.0.borrow().requested.is_some_and(|at| at.elapsed() < RECENT)
    }

    /// Responds to an agent that stands by: at the offer, or without one after `HOLD` or at shutdown.
    pub(super) async fn respond(&self, shutdown: &Shutdown) -> Response {
        self.0.send_modify(|state| state.requested = Some(Instant::now()));
        let mut state = self.0.subscribe();
        let is_offered = tokio::select! {
            // If both are ready, the offer takes precedence over the shutdown that follows it.
            biased;
            offered = state.wait_for(|state| state.is_offered) => offered.is_ok(),
            () = shutdown.requested() => false,
            () = sleep(HOLD) => false,
        };
        if is_offered {
            text(StatusCode::OK, "this agent ends: take over\n")
        } else {
            text(StatusCode::SERVICE_UNAVAILABLE, "this agent serves the node\n")
        }
    }
}

/// Why an agent that stands by may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// No process listens.
    Gone,
    /// The other agent offers its sockets.
    Offered,
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the other agent is gone",
            Self::Offered => "the other agent ends and offers the node",
        })
    }
}

/// Waits until no agent listens on this `agent.sock`, or the agent that listens offers it.
pub async fn until_abandoned(path: &Path) -> Abandoned {
    let is_offered = listen::until_abandoned(path, HOLD, async |stream| is_offered(stream).await).await;
    if is_offered { Abandoned::Offered } else { Abandoned::Gone }
}

/// Requests the offer and keeps the connection, which the kernel closes at once when the listening process ends. An agent that does
/// not serve this path responds with 404; that connection is kept, too.
async fn is_offered(mut stream: UnixStream) -> bool {
    let mut response = Vec::with_capacity(LONGEST);
    let exchange = async {
        stream.write_all(format!("GET {HANDOVER} HTTP/1.1\r\nHost: agent\r\n\r\n").as_bytes()).await?;
        while response.len() < LONGEST && !response.starts_with(OFFER) {
            if stream.read_buf(&mut response).await? == 0 {
                break;
            }
        }
        std::io::Result::Ok(())
    };
    // A connection that has failed carries no offer; the next one shows whether an agent still listens.
    let _ = timeout(HOLD, exchange).await;
    response.starts_with(OFFER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENEROUS: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_request_is_answered_by_the_offer_or_at_the_shutdown() {
        let (end, ended) = Shutdown::new();
        let handover = Handover::default();
        assert!(!handover.is_awaited());
        let shared = handover.clone();
        let waiting = tokio::spawn(async move { shared.respond(&ended).await.status() });
        let mut state = handover.0.subscribe();
        timeout(GENEROUS, state.wait_for(|state| state.requested.is_some())).await.unwrap().unwrap();
        assert!(handover.is_awaited());
        end.trigger();
        assert_eq!(waiting.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
        handover.offer();
        let (end, running) = Shutdown::new();
        assert_eq!(handover.respond(&running).await.status(), StatusCode::OK);
        handover.withdraw();
        end.trigger();
        assert_eq!(handover.respond(&running).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "removes the socket, as an agent that ends does")]
    async fn an_offer_is_told_from_the_end_of_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        assert_eq!(until_abandoned(&path).await, Abandoned::Gone);
        for (response, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Abandoned::Offered),
            ("HTTP/1.1 404 Not Found\r\n\r\n", Abandoned::Gone),
            ("", Abandoned::Gone),
        ] {
            let listener = tokio::net::UnixListener::bind(&path).unwrap();
            let agent = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 512];
                let read = stream.read(&mut request).await.unwrap();
                assert!(request[..read].starts_with(b"GET /handover HTTP/1.1\r\n"), "{request:?}");
                std::fs::remove_file(&path).unwrap();
                stream.write_all(response.as_bytes()).await.unwrap();
            };
            let ((), abandoned) = tokio::join!(agent, timeout(GENEROUS, until_abandoned(&path)));
            assert_eq!(abandoned.unwrap(), expected, "{response:?}");
        }
    }
}
