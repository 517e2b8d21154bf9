//! Specs of claims as error messages show them: the fields of Go's types in their order.

use serde_json::Value;

/// A field of a Go type: its name, its name in JSON, what is in it.
type Member = (&'static str, &'static str, Shape);

#[derive(Clone, Copy)]
enum Shape {
    /// A pointer, or a list of something simple: `null` without a value.
    Pointer,
    Text,
    Number,
    /// A struct that is always there.
    Inline(&'static [Member]),
    /// A struct behind a pointer.
    Struct(&'static [Member]),
    List(&'static [Member]),
}

const CEL: &[Member] = &[("Expression", "expression", Shape::Text)];
const SELECTOR: &[Member] = &[("CEL", "cel", Shape::Struct(CEL))];
const TOLERATION: &[Member] = &[
    ("Key", "key", Shape::Text),
    ("Operator", "operator", Shape::Text),
    ("Value", "value", Shape::Text),
    ("Effect", "effect", Shape::Text),
    ("TolerationSeconds", "tolerationSeconds", Shape::Pointer),
];
const CAPACITY: &[Member] = &[("Requests", "requests", Shape::Pointer)];
const EXACTLY: &[Member] = &[
    ("DeviceClassName", "deviceClassName", Shape::Text),
    ("Selectors", "selectors", Shape::List(SELECTOR)),
    ("AllocationMode", "allocationMode", Shape::Text),
    ("Count", "count", Shape::Number),
    ("AdminAccess", "adminAccess", Shape::Pointer),
    ("Tolerations", "tolerations", Shape::List(TOLERATION)),
    ("Capacity", "capacity", Shape::Struct(CAPACITY)),
];
const ALTERNATIVE: &[Member] = &[
    ("Name", "name", Shape::Text),
    ("DeviceClassName", "deviceClassName", Shape::Text),
    ("Selectors", "selectors", Shape::List(SELECTOR)),
    ("AllocationMode", "allocationMode", Shape::Text),
    ("Count", "count", Shape::Number),
    ("Tolerations", "tolerations", Shape::List(TOLERATION)),
    ("Capacity", "capacity", Shape::Struct(CAPACITY)),
];
const REQUEST: &[Member] = &[
    ("Name", "name", Shape::Text),
    ("Exactly", "exactly", Shape::Struct(EXACTLY)),
    ("FirstAvailable", "firstAvailable", Shape::List(ALTERNATIVE)),
];
const CONSTRAINT: &[Member] = &[
    ("Requests", "requests", Shape::Pointer),
    ("MatchAttribute", "matchAttribute", Shape::Pointer),
    ("DistinctAttribute", "distinctAttribute", Shape::Pointer),
];
const OPAQUE: &[Member] = &[("Driver", "driver", Shape::Text), ("Parameters", "parameters", Shape::Pointer)];
const CONFIGURATION: &[Member] =
    &[("Requests", "requests", Shape::Pointer), ("Opaque", "opaque", Shape::Struct(OPAQUE))];
const DEVICES: &[Member] = &[
    ("Requests", "requests", Shape::List(REQUEST)),
    ("Constraints", "constraints", Shape::List(CONSTRAINT)),
    ("Config", "config", Shape::List(CONFIGURATION)),
];
const CLAIM: &[Member] = &[("Devices", "devices", Shape::Inline(DEVICES))];

/// The spec of a claim.
pub(super) fn claim_spec(spec: &Value) -> String {
    let mut out = String::new();
    members(spec, CLAIM, &mut out);
    out
}

/// The spec of a template: its metadata, and the spec of its claims.
pub(super) fn template_spec(spec: &Value) -> String {
    let metadata = spec.get("metadata").filter(|metadata| metadata.is_object());
    let metadata = metadata.map_or_else(|| "{}".to_owned(), Value::to_string);
    let inner = claim_spec(spec.get("spec").unwrap_or(&Value::Null));
    let metadata = metadata.trim_start_matches('{').trim_end_matches('}');
    let comma = if metadata.is_empty() { "" } else { "," };
    format!("{{{metadata}{comma}\"Spec\":{inner}}}")
}

fn members(value: &Value, shape: &[Member], out: &mut String) {
    out.push('{');
    for (index, (name, member, shape)) in shape.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push('"');
        out.push_str(name);
        out.push_str("\":");
        let value = value.get(member).unwrap_or(&Value::Null);
        match (shape, value) {
            (Shape::Text, Value::Null) => out.push_str("\"\""),
            (Shape::Number, Value::Null) => out.push('0'),
            (Shape::Inline(inner), value) => members(value, inner, out),
            (Shape::Struct(inner), value) if !value.is_null() => members(value, inner, out),
            (Shape::List(inner), Value::Array(items)) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    members(item, inner, out);
                }
                out.push(']');
            }
            (_, value) => out.push_str(&value.to_string()),
        }
    }
    out.push('}');
}
