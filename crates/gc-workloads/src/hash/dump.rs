//! A pod template as Go's spew prints it for hashing (`%#v`: type names, no addresses, sorted keys). That text names each field of
//! each type, so the types' fields are data: `pod_template_types.txt`, of the API's version 1.36. Each line has a type, and ` = `
//! with its underlying type or its fields as `Field:json:type`; a dot for `json` means an embedded struct.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use gc_types::{QuantityForm, QuantityParts, QuantityScale};
use serde_json::Value;

const TYPES: &str = include_str!("pod_template_types.txt");

#[derive(Debug)]
enum Type {
    Alias(&'static str),
    Struct(Vec<Field>),
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    json: &'static str,
    type_name: &'static str,
}

fn types() -> &'static BTreeMap<&'static str, Type> {
    static PARSED: OnceLock<BTreeMap<&'static str, Type>> = OnceLock::new();
    PARSED.get_or_init(|| TYPES.lines().filter_map(parse_line).collect())
}

fn parse_line(line: &'static str) -> Option<(&'static str, Type)> {
    if let Some((name, underlying)) = line.split_once(" = ") {
        return Some((name, Type::Alias(underlying)));
    }
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let name = words.next()?;
    let fields = words.filter_map(|word| {
        let mut parts = word.splitn(3, ':');
        Some(Field { name: parts.next()?, json: parts.next()?, type_name: parts.next()? })
    });
    Some((name, Type::Struct(fields.collect())))
}

/// Returns the text that is hashed.
#[must_use]
pub(crate) fn dump_pod_template(template: &Value) -> String {
    let mut text = String::with_capacity(8192);
    dump(&mut text, "v1.PodTemplateSpec", template, true);
    text
}

/// Returns a type's name as Go prints it: both API packages are called v1.
fn shown(type_name: &str) -> String {
    type_name.replace("meta.", "v1.")
}

fn dump(out: &mut String, type_name: &str, value: &Value, with_type: bool) {
    if let Some(pointed) = type_name.strip_prefix('*') {
        let _ = write!(out, "(*{})", shown(pointed)); // writing to a String cannot fail
        if value.is_null() {
            out.push_str("<nil>");
        } else {
            dump(out, pointed, value, false);
        }
        return;
    }
    if with_type {
        let _ = write!(out, "({})", shown(type_name));
    }
    dump_value(out, type_name, value);
}

fn dump_value(out: &mut String, type_name: &str, value: &Value) {
    if let Some(element) = type_name.strip_prefix("[]") {
        return dump_list(out, element, value);
    }
    if let Some((_, element)) = type_name.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return dump_map(out, element, value);
    }
    match type_name {
        "string" => out.push_str(value.as_str().unwrap_or_default()),
        "bool" => out.push_str(if value == true { "true" } else { "false" }),
        "int32" | "int64" | "uint8" => {
            let _ = write!(out, "{}", value.as_i64().unwrap_or_default());
        }
        "meta.Time" => {
            // Templates contain no times, so only the zero time is ever printed.
            out.push_str("{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}");
        }
        "meta.FieldsV1" => out.push_str("{Raw:([]uint8)<nil>}"),
        "resource.Quantity" => dump_quantity(out, value),
        "intstr.IntOrString" => {
            let (kind, text) = value.as_str().map_or((0, ""), |text| (1, text));
            let number = value.as_i64().unwrap_or_default();
            let _ = write!(out, "{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}");
        }
        _ => match types().get(type_name) {
            Some(Type::Alias(underlying)) => dump_value(out, underlying, value),
            Some(Type::Struct(fields)) => dump_struct(out, fields, value),
            None => {}
        },
    }
}

fn dump_list(out: &mut String, element: &str, value: &Value) {
    // An empty list is not stored, and is therefore nil when it is read again.
    let Some(elements) = value.as_array().filter(|all| !all.is_empty()) else {
        out.push_str("<nil>");
        return;
    };
    out.push('[');
    for (index, entry) in elements.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        dump(out, element, entry, false);
    }
    out.push(']');
}

fn dump_map(out: &mut String, element: &str, value: &Value) {
    let Some(entries) = value.as_object().filter(|all| !all.is_empty()) else {
        out.push_str("<nil>");
        return;
    };
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    out.push_str("map[");
    for (index, (name, entry)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(name);
        out.push(':');
        dump(out, element, entry, false);
    }
    out.push(']');
}

fn dump_struct(out: &mut String, fields: &[Field], value: &Value) {
    out.push('{');
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        let _ = write!(out, "{}:", field.name);
        let part = if field.json == "." { value } else { &value[field.json] };
        dump(out, field.type_name, part, true);
    }
    out.push('}');
}

/// Prints the parts of a quantity: value and scale, and the text if it is in canonical form.
fn dump_quantity(out: &mut String, value: &Value) {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let (number, scale, format, kept) = quantity_parts(&text).unwrap_or((0, 0, "", ""));
    let _ = write!(
        out,
        "{{i:(resource.int64Amount){{value:(int64){number} scale:(resource.Scale){scale}}} \
         d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){kept} Format:(resource.Format){format}}}"
    );
}

/// Returns the parts of a quantity. Numbers that need more than 64 bits, which upstream stores differently, are printed as zero.
fn quantity_parts(text: &str) -> Option<(i64, i32, &'static str, &str)> {
    /// Upstream stores every number with `Ei` differently.
    const LARGEST_POWER: u32 = 50;
    if text == "0" {
        return Some((0, 0, "DecimalSI", text));
    }
    let QuantityParts { negative, whole, fraction, scale, form } = QuantityParts::of(text).ok()?;
    let sign = if negative { "-" } else { "" };
    let shifted: i64 = format!("{sign}{whole}{fraction}").parse().ok()?;
    match scale {
        QuantityScale::Two(power) if power <= LARGEST_POWER => {
            let result = shifted.checked_mul(1 << power)?;
            Some((result, 0, "BinarySI", if shifted % 8 == 0 { "" } else { text }))
        }
        QuantityScale::Two(_) => None,
        QuantityScale::Ten(exponent) => {
            let scale = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
            let unsigned = format!("{whole}{fraction}");
            let canonical = scale % 3 == 0 && !unsigned.ends_with("000") && !unsigned.starts_with('0');
            let format = if form == QuantityForm::Exponent { "DecimalExponent" } else { "DecimalSI" };
            Some((shifted, scale, format, if canonical { text } else { "" }))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dumped(type_name: &str, value: &Value) -> String {
        let mut out = String::new();
        dump(&mut out, type_name, value, true);
        out
    }

    #[test]
    fn values_are_printed_as_spew_prints_them() {
        for (type_name, value, expected) in [
            (
                "v1.ContainerPort",
                json!({"containerPort": 80, "protocol": "TCP"}),
                "(v1.ContainerPort){Name:(string) HostPort:(int32)0 ContainerPort:(int32)80 \
                 Protocol:(v1.Protocol)TCP HostIP:(string)}",
            ),
            ("*int64", json!(30), "(*int64)30"),
            ("*int64", Value::Null, "(*int64)<nil>"),
            ("[]string", json!(["a", "b"]), "([]string)[a b]"),
            ("[]string", json!([]), "([]string)<nil>"),
            ("map[string]string", json!({"b": "2", "a": "1"}), "(map[string]string)map[a:1 b:2]"),
            (
                "*v1.SELinuxOptions",
                json!({"user": "u"}),
                "(*v1.SELinuxOptions){User:(string)u Role:(string) Type:(string) Level:(string)}",
            ),
            (
                "intstr.IntOrString",
                json!("http"),
                "(intstr.IntOrString){Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)http}",
            ),
            (
                "v1.ResourceList",
                json!({"cpu": "100m"}),
                "(v1.ResourceList)map[cpu:{i:(resource.int64Amount){value:(int64)100 scale:(resource.Scale)-3} \
                 d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)100m Format:(resource.Format)DecimalSI}]",
            ),
            (
                "v1.SecretEnvSource",
                json!({"name": "s"}),
                "(v1.SecretEnvSource){LocalObjectReference:(v1.LocalObjectReference){Name:(string)s} \
                 Optional:(*bool)<nil>}",
            ),
        ] {
            assert_eq!(dumped(type_name, &value), expected);
        }
    }

    #[test]
    fn every_type_that_a_field_names_is_known() {
        let primitive = |name: &str| {
            ["string", "bool", "int32", "int64", "uint8"].contains(&name)
                || ["meta.Time", "meta.FieldsV1", "resource.Quantity", "intstr.IntOrString"].contains(&name)
        };
        for (name, described) in types() {
            let named: Vec<&str> = match described {
                Type::Alias(underlying) => vec![underlying],
                Type::Struct(fields) => fields.iter().map(|field| field.type_name).collect(),
            };
            for used in named {
                let mut used = used.trim_start_matches(['*', '[', ']']);
                if let Some((_, element)) = used.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
                    used = element;
                }
                assert!(primitive(used) || types().contains_key(used), "{name}: {used}");
            }
        }
    }
}
