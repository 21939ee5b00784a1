//! Merges any overlay into any pod. Checks that the number of steps is proportional to the input's length, and that the
//! patch from the pod before the merge to the pod after it results in the latter.
//!
//! The input is two JSON documents, the pod and the overlay, separated by a zero byte.

use gotemplate::{Budget, Limits};
use inject::{apply, diff, merge_pod};
use serde_json::Value;

use crate::text;

/// Checks that the patch from `before` to `after` results in `after` when this project's code and an independent
/// implementation apply it.
fn check_patch(before: &Value, after: &Value) {
    let operations = diff(before, after);
    assert_eq!(apply(before.clone(), &operations).as_ref(), Ok(after), "{operations:?}");
    let text = serde_json::to_string(&operations).expect("a patch is JSON");
    let patch: json_patch::Patch = serde_json::from_str(&text).expect("a JSON patch");
    let mut patched = before.clone();
    json_patch::patch(&mut patched, &patch).expect("the patch applies");
    assert_eq!(&patched, after, "{text}");
    assert!(diff(after, after).is_empty());
}

/// Whether a value contains a null or a directive, which is a key that starts with `$`. A repeated merge of such a
/// value may change the pod again.
fn has_null_or_directive(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null_or_directive),
        Value::Object(map) => map.iter().any(|(key, value)| key.starts_with('$') || has_null_or_directive(value)),
        _ => false,
    }
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let input = text(input);
    let Some((pod, overlay)) = input.split_once('\0') else { return };
    let (Ok(before), Ok(overlay)) = (serde_json::from_str::<Value>(pod), serde_json::from_str::<Value>(overlay)) else {
        return;
    };
    check_patch(&before, &overlay);
    let limits = Limits { steps: 16 * input.len() as u64, ..Limits::default() };
    let mut after = before.clone();
    match merge_pod(&mut after, overlay.clone(), &mut Budget::new(limits)) {
        Err(error) => assert!(!matches!(error, inject::MergeError::Exceeded(_)), "{error}: {input:?}"),
        Ok(()) => {
            check_patch(&before, &after);
            let mut again = after.clone();
            let merged = merge_pod(&mut again, overlay.clone(), &mut Budget::new(Limits::default()));
            if !has_null_or_directive(&overlay) {
                assert_eq!((merged, again), (Ok(()), after), "a second merge changes nothing");
            }
        }
    }
}
