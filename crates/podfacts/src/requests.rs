//! The requests on the sockets of the node's agent, as the plugin and other agents send them and the agent parses them.
//!
//! `agent.sock` serves [`POD`], [`DIRECTORIES`] and [`HANDOVER`] to `GET`. `log.sock` takes the plugin's lines by `POST` to
//! [`LOG`]: a JSON array of strings, each a JSON object with `level`, `time`, `msg` and fields.

use crate::PodName;

/// The path of a pod's [`PodFacts`](crate::PodFacts). The response is 200 with the facts as JSON, 404 for an unknown pod, 503
/// before the agent has listed the pods.
pub const POD: &str = "/pod";
/// The path of the directories in which an agent has installed the plugin.
pub const DIRECTORIES: &str = "/directories";
/// The path at which an agent that stands by waits until the serving agent offers its sockets (200).
pub const HANDOVER: &str = "/handover";
/// The path of the plugin's log lines.
pub const LOG: &str = "/log";

/// Returns the target of a request for a pod; `uid` excludes another pod of the same name.
pub fn pod(pod: &PodName, uid: Option<&str>) -> String {
    let mut target = format!("{POD}?namespace={}&name={}", encode(&pod.namespace), encode(&pod.name));
    if let Some(uid) = uid {
        target.push_str("&uid=");
        target.push_str(&encode(uid));
    }
    target
}

/// Parses the query of a request for a pod into the pod's name and, if given, UID. `None` if namespace or name is missing or invalid.
pub fn parse_pod(query: &str) -> Option<(PodName, Option<String>)> {
    let value = |key: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(found, _)| *found == key).find_map(|(_, value)| decode(value)).filter(|value| !value.is_empty())
    };
    Some((PodName { namespace: value("namespace")?, name: value("name")? }, value("uid")))
}

/// Percent-encodes a string as one path segment or query value: all bytes except RFC 3986's unreserved characters.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            const HEX: [u8; 16] = *b"0123456789ABCDEF";
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    encoded
}

/// Decodes percent-encoding; `None` if the encoding is invalid or the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(u8::try_from(digit()? << 4 | digit()?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_text_stays_in_its_segment() {
        assert_eq!(encode("web-0.x_y~"), "web-0.x_y~");
        assert_eq!(encode("a/b?c#d e&f=g%\r\n"), "a%2Fb%3Fc%23d%20e%26f%3Dg%25%0D%0A");
        assert_eq!(encode("é"), "%C3%A9");
    }

    #[test]
    fn a_request_for_a_pod_is_parsed_as_it_was_made() {
        for (namespace, name, uid) in [("shop", "web-0", Some("u-1")), ("a&b", "c=d/%é", None)] {
            let name = PodName { namespace: namespace.into(), name: name.into() };
            let target = pod(&name, uid);
            let query = target.strip_prefix("/pod?").unwrap();
            assert_eq!(parse_pod(query), Some((name, uid.map(Into::into))), "{target}");
        }
    }
}
