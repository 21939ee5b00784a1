//! Parses any template and renders it with data of every kind. Checks that the result is within the limits.

use gotemplate::{Budget, Delims, Limits, Record, Template, Value};
use inject::istio::functions;
use inject::istio::shapes::{mesh, pod};

use crate::text;

const LIMITS: Limits = Limits { steps: 20_000, bytes: 1 << 20, depth: 250 };

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let input = text(input);
    let functions = functions::all(Default::default()).with_render();
    let Ok(template) = Template::parse("fuzz", input, Delims::BRACES, &functions) else { return };
    let data = serde_json::json!({
        "metadata": { "labels": { "app": "a" } },
        "spec": { "containers": [{ "name": "a", "ports": [{ "containerPort": 80 }] }] },
        "config": { "interceptionMode": "TPROXY", "concurrency": 2 },
        "values": { "a": { "b": [1, null, "x", 1.5e9] }, "": {} },
    });
    let data = Record::value(
        "data",
        vec![
            ("ObjectMeta", Value::shaped(&data["metadata"], &pod::OBJECT_META)),
            ("Spec", Value::shaped(&data["spec"], &pod::POD_SPEC)),
            ("ProxyConfig", Value::shaped(&data["config"], &mesh::PROXY_CONFIG)),
            ("Values", Value::json(&data["values"])),
        ],
    );
    let mut budget = Budget::new(LIMITS);
    let Ok(rendered) = template.render(&data, &mut budget) else { return };
    assert!(rendered.len() <= LIMITS.bytes);
    // A second rendering succeeds with exactly the steps that the first one charged, and fails with one step less.
    let spent = Limits { steps: LIMITS.steps - budget.left().steps, ..LIMITS };
    assert_eq!(template.render(&data, &mut Budget::new(spent)).expect("the steps that it took"), rendered);
    if let Some(steps) = spent.steps.checked_sub(1) {
        assert!(template.render(&data, &mut Budget::new(Limits { steps, ..spent })).is_err(), "{steps} steps suffice");
    }
}
