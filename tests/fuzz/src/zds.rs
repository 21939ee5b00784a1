//! Receives any packets as ztunnel's responses, and encodes requests with any names of a pod. Checks that each packet
//! either is the response to exactly one request or ends the session. Checks that names are either refused or result in
//! a request that fits into ztunnel's buffer.

use istio_cni::ambient::zds::message::{REQUEST_SIZE, Request, Response, Uid, Workload, hello, wire};
use istio_cni::ambient::zds::session::{Next, Session};
use prost::Message as _;

/// The size limit of an error message, in bytes.
const ERROR_SIZE: usize = 1024;

/// Splits a packet off the input, whose first byte is the packet's length.
fn packet<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&size, after) = rest.split_first()?;
    let (packet, after) = after.split_at(usize::from(size).min(after.len()));
    *rest = after;
    Some(packet)
}

fn check(packet: &[u8], response: &Response) {
    let decoded = wire::WorkloadResponse::decode(packet).expect("a response");
    let Some(wire::workload_response::Payload::Ack(ack)) = decoded.payload else {
        panic!("{response:?} of {packet:?}")
    };
    match response {
        Response::Ack => assert_eq!(ack.error, ""),
        Response::Nack(text) => {
            assert!(!text.is_empty() && text.len() <= ERROR_SIZE && !text.contains(char::is_control), "{text:?}");
            assert!(text.chars().zip(ack.error.chars()).all(|(kept, sent)| kept == sent || sent.is_control()));
        }
    }
}

fn session(mut rest: &[u8]) {
    let uid = Uid::new("u1").expect("a short UID");
    let mut session = Session::new(vec![Request::<()>::Keep { uid: uid.clone() }, Request::SnapshotSent]);
    let (mut updates, mut outstanding) = (0, None);
    loop {
        match session.advance() {
            Next::Send(request) => assert_eq!(outstanding.replace((request.name(), None)), None),
            Next::Update => {
                updates += 1;
                let request = Request::Del { uid: uid.clone() };
                session.sent(&request, updates);
                assert_eq!(outstanding.replace((request.name(), Some(updates))), None);
            }
            Next::Receive => {
                let Some(packet) = packet(&mut rest) else { return };
                let Ok(responded) = session.received(packet) else { return };
                assert_eq!(outstanding.take(), Some((responded.request.kind, responded.caller)));
                check(packet, &responded.response);
                assert!(session.received(packet).is_err(), "a second response belongs to no request");
            }
        }
    }
}

/// Encodes a request with the input's lines as names, and checks that it decodes to the same names.
fn request(text: &str) {
    let mut parts = text.split('\n');
    let mut part = || parts.next().unwrap_or_default();
    let (uid, workload) = (Uid::new(part()), Workload::new(part(), part(), part()));
    let (Ok(uid), Ok(workload)) = (uid, workload) else { return };
    let request = Request::Add { uid: uid.clone(), workload: workload.clone(), netns: () };
    let bytes = request.encode();
    assert!(bytes.len() <= REQUEST_SIZE, "{}", bytes.len());
    let decoded = wire::WorkloadRequest::decode(&*bytes).expect("what was encoded").payload;
    let add = wire::AddWorkload { uid: uid.to_string(), workload_info: Some(workload.names().clone()) };
    assert_eq!(decoded, Some(wire::workload_request::Payload::Add(add)));
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    assert_eq!(hello(input).ok(), wire::ZdsHello::decode(input).ok().map(|hello| hello.version));
    session(input);
    request(&String::from_utf8_lossy(input));
}
