//! Parses any request body of the agent's log socket. Checks that the records and measurements are within their limits.

use istio_cni::agent::relay::{records, sample};
use jiff::Timestamp;
use serde_json::Value;

/// The size limit of a message and of a field's value, in bytes.
const TEXT: usize = 4 << 10;

/// Whether a string has the form of the names that the plugin sends, such as `has_istio_init` and `iptables-nft`.
fn is_label(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
}

/// Checks the properties for one input.
pub fn property(body: &[u8]) {
    let now = Timestamp::UNIX_EPOCH;
    let lines = serde_json::from_slice::<Vec<String>>(body);
    let records = match (records(body, now), &lines) {
        (Err(_), lines) => return assert!(lines.is_err(), "{lines:?}"),
        (Ok(records), lines) => {
            assert!(records.len() <= lines.as_ref().map_or(0, Vec::len).min(1000));
            records
        }
    };
    for record in &records {
        assert_eq!((record.scope.as_str(), record.message.trim()), ("cni-plugin", record.message.as_str()));
        assert!(record.message.len() <= TEXT && record.fields.len() <= 32, "{record:?}");
        for (key, value) in &record.fields {
            assert!(key.len() <= TEXT && !value.is_array() && !value.is_object(), "{record:?}");
            assert!(value.as_str().is_none_or(|text| text.len() <= TEXT), "{record:?}");
        }
        if let Some(sample) = sample(record) {
            assert!(is_label(&sample.verdict) && is_label(&sample.reason), "{sample:?}");
            assert!((0.0..4295.0).contains(&sample.seconds), "{sample:?}");
        }
    }
    // A record that is sent to the log socket again results in the same record.
    let again: Vec<String> = records
        .iter()
        .map(|record| {
            let mut line = record.fields.clone();
            let own = [
                ("level", record.level.as_str().into()),
                ("time", record.time.to_string().into()),
                ("msg", record.message.as_str().into()),
            ];
            line.extend(own.map(|(key, value): (&str, Value)| (key.to_owned(), value)));
            Value::Object(line).to_string()
        })
        .collect();
    let body = serde_json::to_vec(&again).expect("text is JSON");
    assert_eq!(istio_cni::agent::relay::records(&body, now).expect("an array of text"), records);
}
