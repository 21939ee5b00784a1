//! Tests of the messages, with bytes that `protoc --encode` wrote from Istio's `zds.proto`.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn uid(text: &str) -> Uid {
    Uid::new(text).unwrap()
}

#[test]
fn requests_have_the_bytes_of_another_implementation() {
    let (uid, workload) = (uid("863b91d4"), Workload::new("shop", "web-0", "web").unwrap());
    for (request, bytes) in [
        (
            Request::Add { uid: uid.clone(), workload, netns: () },
            "0a1e0a08383633623931643412120a057765622d30120473686f701a03776562",
        ),
        (Request::Del { uid: uid.clone() }, "120a12083836336239316434"),
        (Request::SnapshotSent, "1a00"),
        (Request::Keep { uid }, "2a0a0a083836336239316434"),
    ] {
        assert_eq!(request.encode(), hex(bytes), "{}", request.name());
    }
}

#[test]
fn answers_are_read_from_the_bytes_of_another_implementation() {
    assert_eq!(hello(&hex("0801")), Ok(wire::Version::V1 as i32));
    assert_eq!(Response::decode(&hex("0a00")), Ok(Response::Ack));
    assert_eq!(Response::decode(&hex("0a040a026e6f")), Ok(Response::Nack("no".into())));
}

#[test]
fn unknown_fields_are_ignored_and_the_last_payload_counts() {
    // Field 15, a varint, before and after the acknowledgement.
    assert_eq!(Response::decode(&hex("78010a007801")), Ok(Response::Ack));
    assert_eq!(hello(&hex("08027801")), Ok(2));
    assert_eq!(Response::decode(&hex("0a000a040a026e6f")), Ok(Response::Nack("no".into())));
}

#[test]
fn what_is_no_acknowledgement_is_refused_with_its_reason() {
    assert_eq!(Response::decode(&[]), Err(Error::NoAck));
    // A payload of a newer protocol.
    assert_eq!(Response::decode(&hex("1200")), Err(Error::NoAck));
    // A field that is cut off, a group that does not end, a string that is not UTF-8, a varint where a message belongs, and a
    // varint that is too long.
    for bytes in ["0a", "0a05", "0b", "0a030a01ff", "0801", "ffffffffffffffffffff01"] {
        let error = Response::decode(&hex(bytes)).unwrap_err();
        assert!(matches!(error, Error::Response(_)), "{bytes}: {error}");
    }
    assert!(matches!(hello(&hex("0a")), Err(Error::Hello(_))));
}

#[test]
fn an_error_is_one_line_of_limited_length() {
    let packet = |error: &str| {
        let ack = wire::Ack { error: error.into() };
        wire::WorkloadResponse { payload: Some(wire::workload_response::Payload::Ack(ack)) }.encode_to_vec()
    };
    let nack = |error: &str| match Response::decode(&packet(error)) {
        Ok(Response::Nack(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(nack("failure: a\n\u{1b}[31mb"), "failure: a  [31mb");
    assert_eq!(nack(&"é".repeat(4000)), "é".repeat(ERROR_SIZE / 2));
    assert_eq!(nack(&format!("x{}", "é".repeat(4000))).len(), ERROR_SIZE - 1);
}

#[test]
fn the_longest_names_fit_and_longer_ones_are_refused() {
    let [uid, name, namespace, account] = [128, 253, 63, 253].map(|size| "x".repeat(size));
    let request: Request<()> = Request::Add {
        uid: Uid::new(&uid).unwrap(),
        workload: Workload::new(&namespace, &name, &account).unwrap(),
        netns: (),
    };
    let size = request.encode().len();
    assert!(size <= REQUEST_SIZE, "{size}");
    let more = |text: &str| format!("{text}é");
    for (error, field, limit) in [
        (Uid::new(&more(&uid)).map(drop), "pod's UID", 128),
        (Workload::new(&more(&namespace), &name, &account).map(drop), "namespace", 63),
        (Workload::new(&namespace, &more(&name), &account).map(drop), "pod's name", 253),
        (Workload::new(&namespace, &name, &more(&account)).map(drop), "service account", 253),
    ] {
        let start = "x".repeat(limit);
        assert_eq!(error, Err(Error::TooLong { field, start, size: limit + 2, limit }));
    }
}
