//! Parses any bytes as an HTTP response of the agent or of an API server. Checks that the parser returns the same
//! response for all bytes and for a part of them, and that the response does not exceed the limits. The body is also
//! parsed as the pod's data.

use lookup::agent::LIMITS;
use lookup::http::parse;
use podfacts::PodFacts;

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let whole = parse(input, false, LIMITS);
    // Bytes after a complete response do not change it. If the first half is a complete response, it is the same one.
    if let Ok(Some(response)) = &whole {
        assert!((200..600).contains(&response.status) && response.body.len() <= LIMITS.body);
        assert_eq!(parse(input, true, LIMITS).unwrap().as_ref(), Some(response));
        let half = &input[..input.len() / 2];
        if let Ok(Some(early)) = parse(half, false, LIMITS) {
            assert_eq!(&early, response);
        }
    }
    let body = whole.ok().flatten().map_or_else(|| input.to_vec(), |response| response.body);
    if let Ok(facts) = serde_json::from_slice::<PodFacts>(&body) {
        let again = serde_json::to_vec(&facts).unwrap();
        assert_eq!(serde_json::from_slice::<PodFacts>(&again).unwrap(), facts);
    }
    drop(PodFacts::from_pod_json(&body));
}
