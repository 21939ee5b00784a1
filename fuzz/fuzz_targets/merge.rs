//! Any pod and any overlay: the merge charges for its work, and the patch between the pods before and after it makes the one
//! of the other.
//!
//! The input is two JSON documents, the pod and the overlay, split by a zero byte.
#![no_main]

use gotemplate::{Budget, Limits};
use istio_cni::inject::{apply, diff, merge_pod};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Checks the patch from `before` to `after` by our own and by an independent implementation.
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

/// Whether a value has a null or a directive, which have no meaning in the result of a merge.
fn has_null_or_directive(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null_or_directive),
        Value::Object(map) => map.iter().any(|(key, value)| key.starts_with('$') || has_null_or_directive(value)),
        _ => false,
    }
}

fuzz_target!(|input: &str| {
    let Some((pod, overlay)) = input.split_once('\0') else { return };
    let (Ok(before), Ok(overlay)) = (serde_json::from_str::<Value>(pod), serde_json::from_str::<Value>(overlay)) else {
        return;
    };
    check_patch(&before, &overlay);
    let limits = Limits { steps: 16 * input.len() as u64, ..Limits::default() };
    let mut after = before.clone();
    match merge_pod(&mut after, overlay.clone(), &mut Budget::new(limits)) {
        Err(error) => assert!(!matches!(error, istio_cni::inject::MergeError::Exceeded(_)), "{error}: {input:?}"),
        Ok(()) => {
            check_patch(&before, &after);
            let mut again = after.clone();
            let merged = merge_pod(&mut again, overlay.clone(), &mut Budget::new(Limits::default()));
            if !has_null_or_directive(&overlay) {
                assert_eq!((merged, again), (Ok(()), after), "a second merge changes nothing");
            }
        }
    }
});
