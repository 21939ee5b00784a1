//! Tests of the server with in-memory connections.

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use hyper::StatusCode;

use super::*;
use crate::shutdown::Trigger;

/// Handles requests; the first one requests the end of its connection.
struct Ending {
    end: Trigger,
    handled: Arc<AtomicUsize>,
}

impl Handler for Ending {
    fn handle(&self, _: Request) -> impl Future<Output = Response> + Send {
        self.handled.fetch_add(1, Ordering::Relaxed);
        self.end.trigger();
        std::future::ready(text(StatusCode::OK, "done"))
    }
}

#[tokio::test]
async fn a_buffered_request_is_not_handled_after_the_end_of_its_connection_is_requested() {
    let (end, ended) = Shutdown::new();
    let (_stay, shutdown) = Shutdown::new();
    let handled = Arc::new(AtomicUsize::new(0));
    let (limits, handler) = (Limits::default(), Ending { end, handled: Arc::clone(&handled) });
    let service = Arc::new(Service { limits, memory: Memory::new(limits.memory, limits.body), handler });
    let (mut peer, stream) = duplex(64 << 10);
    // Both requests are in the buffer when the first one is handled.
    peer.write_all("GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2).as_bytes()).await.unwrap();
    run_connection(Opened { stream, ended: Some(ended) }, service, shutdown).await;
    let mut responses = String::new();
    peer.read_to_string(&mut responses).await.unwrap();
    assert_eq!((responses.matches("200 OK").count(), handled.load(Ordering::Relaxed)), (1, 1), "{responses}");
}
