//! Tests of responses in all framings: complete, cut at every byte, oversized and malformed.

use super::*;

const LIMITS: Limits = Limits { head: 256, body: 1000 };

fn whole(text: &str) -> Response {
    parse(text.as_bytes(), true, LIMITS).unwrap().unwrap()
}

fn malformed(text: &str) -> String {
    match parse(text.as_bytes(), false, LIMITS) {
        Err(error @ (Error::Malformed(_) | Error::Head(_))) => {
            error.to_string().strip_prefix("invalid HTTP/1.1 response: ").unwrap().to_owned()
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

const WITH_LENGTH: &str = "HTTP/1.1 200 OK\r\nDate: x\r\ncontent-LENGTH: 5\r\n\r\nhello";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3;ext=1\r\nhel\r\n02\r\nlo\r\n0\r\nTrailer: x\r\n\r\n";
const UNTIL_CLOSE: &str = "HTTP/1.0 200 OK\r\n\r\nhello";

#[test]
fn the_three_framings_give_the_same_body() {
    for text in [WITH_LENGTH, CHUNKED, UNTIL_CLOSE] {
        assert_eq!(whole(text), Response { status: 200, body: b"hello".to_vec() }, "{text}");
    }
}

#[test]
fn a_prefix_is_never_a_response() {
    for text in [WITH_LENGTH, CHUNKED, UNTIL_CLOSE] {
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end], false, LIMITS).unwrap(), None, "{:?}", &text[..end]);
        }
    }
    for text in [WITH_LENGTH, CHUNKED] {
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end], true, LIMITS).unwrap(), None, "closed: {:?}", &text[..end]);
        }
    }
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    assert_eq!(parse(UNTIL_CLOSE.as_bytes(), false, LIMITS).unwrap(), None);
    assert!(parse(UNTIL_CLOSE.as_bytes(), true, LIMITS).unwrap().is_some());
}

#[test]
fn some_statuses_have_no_body() {
    let response = parse(b"HTTP/1.1 204 No Content\r\n\r\n", false, LIMITS).unwrap().unwrap();
    assert_eq!(response, Response { status: 204, body: vec![] });
}

#[test]
fn every_status_is_read() {
    for status in [200, 401, 404, 599] {
        assert_eq!(whole(&format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).status, status);
    }
}

#[test]
fn oversized_parts_are_refused_before_they_are_received() {
    let head = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(300));
    let long_head = parse(head.as_bytes(), false, LIMITS);
    assert!(matches!(long_head, Err(Error::TooLarge { part: "head", limit: 256 })), "{long_head:?}");
    let complete = parse(format!("{head}\r\n\r\n").as_bytes(), false, LIMITS);
    assert!(matches!(complete, Err(Error::TooLarge { part: "head", .. })));
    for start in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3E9\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nFFFFFFFFFFFFFFFF\r\n",
    ] {
        let result = parse(start.as_bytes(), false, LIMITS);
        assert!(matches!(result, Err(Error::TooLarge { part: "body", limit: 1000 })), "{start:?}: {result:?}");
    }
    let trailer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {}", "x".repeat(300));
    let trailer = parse(trailer.as_bytes(), false, LIMITS);
    assert!(matches!(trailer, Err(Error::TooLarge { part: "trailer", limit: 256 })), "{trailer:?}");
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(1001));
    assert!(matches!(parse(endless.as_bytes(), false, LIMITS), Err(Error::TooLarge { part: "body", .. })));
}

#[test]
fn malformed_responses_are_reported() {
    let chunked = |rest: &str| malformed(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}"));
    assert_eq!(malformed("SSH-2.0-OpenSSH\r\n\r\n"), "invalid HTTP version");
    assert_eq!(malformed("HTTP/2 200 OK\r\n\r\n"), "invalid HTTP version");
    assert_eq!(malformed("HTTP/1.1 +20 OK\r\n\r\n"), "invalid response status");
    assert_eq!(malformed("HTTP/1.1 100 Continue\r\n\r\n"), "an interim or unknown status");
    assert_eq!(malformed("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n"), "invalid header name");
    assert_eq!(malformed(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "a:\r\n".repeat(65))), "too many headers");
    assert_eq!(malformed("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n"), "a Content-Length that is not a number");
    assert_eq!(malformed("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"), "an unknown transfer encoding");
    let twice = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(malformed(twice), "more than one length of the body");
    assert_eq!(chunked("x\r\n"), "a chunk without size");
    assert_eq!(chunked("+1\r\n"), "a chunk without size");
    assert_eq!(chunked("1\r\nabc"), "a chunk that is longer than its size");
    assert_eq!(chunked(&"1".repeat(17)), "a chunk without size");
    assert_eq!(chunked(&format!("1;{}", "x".repeat(300))), "a line of the chunked coding is too long");
    assert_eq!(chunked(&format!("0\r\n{}\r\n", "a:\r\n".repeat(65))), "too many headers");
}
