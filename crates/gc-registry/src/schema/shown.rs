//! Formats values as Go prints them in JSON: in the order and with the names of a Go type's fields.
//!
//! Messages of kube-apiserver show values of its internal types. These have no JSON tags: every field is printed, under its Go
//! name, and the fields of embedded structs are part of the embedding one. The types of `meta/v1` are the same internally and
//! externally, and print as clients know them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::facts::{self, Flag, TypeCode};
use super::step::Step;

/// Types of `meta/v1`, which always have tags.
const META: &str = "apimachinery.pkg.apis.meta.v1.";
const OBJECT_META: &str = "apimachinery.pkg.apis.meta.v1.ObjectMeta";
const POD_SPEC: &str = "api.core.v1.PodSpec";

/// Fields that a pod has in its spec, but the internal type in its security context.
const HOST_FIELDS: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// Sources in a volume's spec, in the order of the internal type.
pub(crate) const VOLUME_SOURCE: &str = "gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd quobyte iscsi \
     flexVolume cinder cephfs fc flocker azureFile vsphereVolume azureDisk photonPersistentDisk portworxVolume scaleIO local \
     storageos csi";

/// Internal types whose fields, or their order, differ from those of the served type.
const INTERNAL: &[(&str, &str)] = &[
    (
        POD_SPEC,
        "volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds \
         activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName automountServiceAccountToken nodeName \
         securityContext imagePullSecrets hostname subdomain setHostnameAsFQDN affinity schedulerName tolerations hostAliases \
         priorityClassName priority preemptionPolicy dnsConfig readinessGates runtimeClassName overhead enableServiceLinks \
         topologySpreadConstraints os schedulingGates resourceClaims resources hostnameOverride schedulingGroup",
    ),
    (
        "api.core.v1.PodSecurityContext",
        "hostNetwork hostPID hostIPC shareProcessNamespace hostUsers seLinuxOptions windowsOptions runAsUser runAsGroup \
         runAsNonRoot supplementalGroups supplementalGroupsPolicy fsGroup fsGroupChangePolicy sysctls seccompProfile \
         appArmorProfile seLinuxChangePolicy",
    ),
    (
        "api.core.v1.Volume",
        "name hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs \
         persistentVolumeClaim rbd quobyte flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume \
         azureDisk photonPersistentDisk projected portworxVolume scaleIO storageos csi ephemeral image",
    ),
    (
        "api.core.v1.PersistentVolumeSpec",
        "capacity gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd quobyte iscsi flexVolume cinder cephfs fc \
         flocker azureFile vsphereVolume azureDisk photonPersistentDisk portworxVolume scaleIO local storageos csi \
         accessModes claimRef persistentVolumeReclaimPolicy storageClassName mountOptions volumeMode nodeAffinity \
         volumeAttributesClassName",
    ),
    (
        SCHEMA,
        "id $schema $ref description type nullable format title default maximum exclusiveMaximum minimum exclusiveMinimum \
         maxLength minLength pattern maxItems minItems uniqueItems multipleOf enum maxProperties minProperties required items \
         allOf oneOf anyOf not properties additionalProperties patternProperties dependencies additionalItems definitions \
         externalDocs example x-kubernetes-preserve-unknown-fields x-kubernetes-embedded-resource x-kubernetes-int-or-string \
         x-kubernetes-list-map-keys x-kubernetes-list-type x-kubernetes-map-type x-kubernetes-validations",
    ),
];

/// Schemas in definitions.
pub(crate) const SCHEMA: &str = "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// A value to be shown in a message.
#[derive(Debug)]
pub(crate) enum ShownValue {
    /// A scalar in its printed form.
    Scalar(String),
    List(Vec<Self>),
    /// Members in order.
    Object(Vec<(String, Self)>),
}

/// Returns a value of the type `name` (without prefix, such as `api.core.v1.PodSpec`) as the internal type prints it.
pub(crate) fn internal(name: &str, value: &Value) -> ShownValue {
    Form::Internal.object(name, value)
}

/// A value of a code, such as the one of a list's items, as the served type prints it.
pub(crate) fn served(code: &'static str, value: &Value) -> ShownValue {
    Form::External.value(facts::type_code(code), false, value)
}

/// The parts of a value that `fields` name, in their order.
pub(crate) fn internal_part(name: &str, fields: &str, value: &Value) -> ShownValue {
    let mut members = Vec::new();
    Form::Internal.fields(name, fields, value, &mut members);
    ShownValue::Object(members)
}

/// Returns the value at a position in an object of the definition `kind`, as the internal type prints it; `None` for a position
/// that the type lacks.
pub(crate) fn at(kind: &str, steps: &[Step<'_>], value: &Value) -> Option<ShownValue> {
    let (mut code, mut pointer) = (Code::Definition(kind.strip_prefix(facts::PREFIX)?), false);
    for step in steps {
        (code, pointer) = match (step, code) {
            (Step::Here, code) => (code, pointer),
            (Step::Name(field), Code::Definition(name)) => {
                let line = facts::of(name)?.fields().find(|line| line.split(' ').nth(1) == Some(*field))?;
                let (_, code, mut flags) = facts::field(line)?;
                (Code::Type(code), flags.any(|flag| flag == Flag::Pointer))
            }
            (Step::Index(_), Code::Type(TypeCode::List(items, _))) => {
                (Code::Type(facts::type_code(items)), false)
            }
            (Step::Key(_), Code::Type(TypeCode::Map(values, _))) => {
                (Code::Type(facts::type_code(values)), false)
            }
            _ => return None,
        };
        if let Code::Type(TypeCode::Definition(name)) = code {
            code = Code::Definition(name);
        }
    }
    match code {
        _ if pointer && value.is_null() => Some(ShownValue::Scalar("null".into())),
        Code::Definition(name) => Some(match special(name) {
            Some(zero) if value.is_null() => ShownValue::Scalar(zero.into()),
            Some(_) => untyped(value),
            None => internal(name, value),
        }),
        Code::Type(code) => Some(Form::Internal.value(code, pointer, value)),
    }
}

/// Type at a position: names of definitions live as long as the request for them, other codes as long as the table.
#[derive(Clone, Copy)]
enum Code<'a> {
    Definition(&'a str),
    Type(TypeCode),
}

/// Objects of a document that a patch has opened.
#[derive(Debug, Default)]
pub(crate) struct OpenedObjects(pub(crate) BTreeMap<String, Part>);

/// Change of a patch to a member of an opened object.
#[derive(Debug)]
pub(crate) enum Part {
    Opened(OpenedObjects),
    /// Set to the author's value, whatever the type of the member is.
    Sent,
}

/// Returns a document of the served definition `kind` as its encoder writes it, with the members of objects that a patch opened
/// sorted.
pub(crate) fn patched(kind: &str, document: &Value, opened: &OpenedObjects) -> ShownValue {
    ShownValue::Object(opened_members(kind.strip_prefix(facts::PREFIX), document, opened))
}

fn opened_members(name: Option<&str>, value: &Value, opened: &OpenedObjects) -> Vec<(String, ShownValue)> {
    let mut members: Vec<(String, ShownValue)> = Vec::new();
    for (field, value) in value.as_object().into_iter().flatten() {
        let code = name.and_then(facts::of).and_then(|fact| {
            let line = fact.fields().find(|line| line.split(' ').nth(1) == Some(field))?;
            Some(facts::field(line)?.1)
        });
        let shown = match (opened.0.get(field), code) {
            (Some(Part::Sent), _) => untyped(value),
            (Some(Part::Opened(opened)), code) if value.is_object() => {
                let name = if let Some(TypeCode::Definition(name)) = code { Some(name) } else { None };
                ShownValue::Object(opened_members(name, value, opened))
            }
            (_, Some(code)) => Form::External.value(code, true, value),
            (_, None) => untyped(value),
        };
        members.push((field.clone(), shown));
    }
    members.sort_by(|a, b| a.0.cmp(&b.0));
    members
}

/// Returns a value of no known type, with sorted members.
pub(crate) fn untyped(value: &Value) -> ShownValue {
    match value {
        Value::Array(items) => ShownValue::List(items.iter().map(untyped).collect()),
        Value::Object(fields) => {
            let mut members: Vec<(String, ShownValue)> =
                fields.iter().map(|(key, value)| (key.clone(), untyped(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            ShownValue::Object(members)
        }
        Value::String(text) => ShownValue::Scalar(json_text(text)),
        other => ShownValue::Scalar(other.to_string()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Internal,
    External,
}

impl Form {
    fn object(self, name: &str, value: &Value) -> ShownValue {
        let form = if name.starts_with(META) { Self::External } else { self };
        let mut members = Vec::new();
        let order = INTERNAL.iter().find(|(other, _)| form == Self::Internal && *other == name);
        match order {
            Some((_, fields)) if name == POD_SPEC => {
                form.fields(name, fields, &with_host_fields(value), &mut members);
            }
            Some((_, fields)) => form.fields(name, fields, value, &mut members),
            None => form.all_fields(name, value, &mut members),
        }
        ShownValue::Object(members)
    }

    /// Adds all fields of a type in the order of its declaration.
    fn all_fields(self, name: &str, value: &Value, members: &mut Vec<(String, ShownValue)>) {
        for line in facts::of(name).into_iter().flat_map(|fact| fact.fields()) {
            self.member(line, value, members);
        }
    }

    /// Adds the named fields, in the given order.
    fn fields(self, name: &str, fields: &str, value: &Value, members: &mut Vec<(String, ShownValue)>) {
        let Some(fact) = facts::of(name) else { return };
        let lines: Vec<&'static str> = fact.fields().collect();
        for field in fields.split_ascii_whitespace() {
            let own = lines.iter().copied().find(|line| line.split(' ').nth(1) == Some(field));
            let moved = HOST_FIELDS.contains(&field).then(|| host_field(field)).flatten();
            if let Some(line) = own.or(moved) {
                self.member(line, value, members);
            }
        }
    }

    fn member(self, line: &'static str, object: &Value, members: &mut Vec<(String, ShownValue)>) {
        let Some((name, code, flags)) = facts::field(line) else { return };
        let value = object.get(name).unwrap_or(&Value::Null);
        let (mut pointer, mut omit_empty, mut omit_zero, mut go_name) = (false, false, false, None);
        for flag in flags {
            match flag {
                Flag::Pointer => pointer = true,
                Flag::OmitEmpty => omit_empty = true,
                Flag::OmitZero => omit_zero = true,
                Flag::GoName(name) => go_name = Some(name),
                _ => {}
            }
        }
        if self == Self::External {
            let is_struct = matches!(code, TypeCode::Definition(_)) && !pointer;
            let empty = if pointer { value.is_null() } else { is_empty(value) };
            if empty && (omit_zero || (omit_empty && !is_struct)) {
                return;
            }
            members.push((name.to_owned(), self.value(code, pointer, value)));
        } else if code == TypeCode::Definition(OBJECT_META) {
            // Internal types embed the metadata.
            Self::External.all_fields(OBJECT_META, value, members);
        } else {
            let name = go_name.map_or_else(|| capitalized(name), str::to_owned);
            members.push((name, self.value(code, pointer, value)));
        }
    }

    fn value(self, code: TypeCode, pointer: bool, value: &Value) -> ShownValue {
        let null = || ShownValue::Scalar("null".into());
        if pointer && value.is_null() {
            return null();
        }
        match (code, value) {
            (TypeCode::Definition(name), value) => match special(name) {
                Some(zero) if value.is_null() => ShownValue::Scalar(zero.into()),
                Some(_) => untyped(value),
                None => self.object(name, value),
            },
            (TypeCode::List(code, _), Value::Array(items)) => {
                let code = facts::type_code(code);
                ShownValue::List(items.iter().map(|item| self.value(code, false, item)).collect())
            }
            (TypeCode::Map(code, _), Value::Object(fields)) => {
                let code = facts::type_code(code);
                let mut members: Vec<(String, ShownValue)> =
                    fields.iter().map(|(key, value)| (key.clone(), self.value(code, false, value))).collect();
                members.sort_by(|a, b| a.0.cmp(&b.0));
                ShownValue::Object(members)
            }
            (TypeCode::Scalar(kind, _), Value::Null) => ShownValue::Scalar(
                match kind {
                    's' => "\"\"",
                    'b' => "false",
                    'y' => "null",
                    _ => "0",
                }
                .into(),
            ),
            (TypeCode::List(..) | TypeCode::Map(..), Value::Null) => null(),
            (_, value) => untyped(value),
        }
    }
}

/// Returns the zero value of a type that encodes itself.
fn special(name: &str) -> Option<&'static str> {
    Some(match name.rsplit('.').next().unwrap_or_default() {
        "Quantity" => "\"0\"",
        "IntOrString" => "0",
        "Duration" => "\"0s\"",
        "Time"
        | "MicroTime"
        | "RawExtension"
        | "FieldsV1"
        | "JSON"
        | "JSONSchemaPropsOrArray"
        | "JSONSchemaPropsOrBool"
        | "JSONSchemaPropsOrStringArray" => "null",
        _ => return None,
    })
}

/// Returns the line of a field that only the served type has in the spec.
fn host_field(field: &str) -> Option<&'static str> {
    facts::of(POD_SPEC)?.fields().find(|line| line.split(' ').nth(1) == Some(field))
}

/// Returns the spec of a pod with the fields that the internal type keeps in its security context moved there.
fn with_host_fields(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let mut context =
        spec.get("securityContext").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    for field in HOST_FIELDS {
        if let Some(value) = spec.get(field) {
            context.insert(field.into(), value.clone());
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("securityContext".into(), Value::Object(context));
    }
    spec
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(true) => false,
    }
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// Formats a text as JSON with the escapes of Go's encoder, which are safe inside HTML.
fn json_text(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    if !quoted.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return quoted;
    }
    let mut out = String::with_capacity(quoted.len() + 8);
    for c in quoted.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

impl ShownValue {
    /// Formats the value on one line, without spaces.
    pub(crate) fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, None);
        out
    }

    /// Formats the value on several lines, indented by one space per level.
    pub(crate) fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Some(0));
        out
    }

    fn write(&self, out: &mut String, indent: Option<usize>) {
        let inner = indent.map(|indent| indent + 1);
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::List(items) if items.is_empty() => out.push_str("[]"),
            Self::Object(members) if members.is_empty() => out.push_str("{}"),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    separate(out, index, inner);
                    item.write(out, inner);
                }
                new_line(out, indent);
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    separate(out, index, inner);
                    out.push_str(&json_text(name));
                    out.push(':');
                    if indent.is_some() {
                        out.push(' ');
                    }
                    value.write(out, inner);
                }
                new_line(out, indent);
                out.push('}');
            }
        }
    }
}

fn separate(out: &mut String, index: usize, indent: Option<usize>) {
    if index > 0 {
        out.push(',');
    }
    new_line(out, indent);
}

fn new_line(out: &mut String, indent: Option<usize>) {
    if let Some(indent) = indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn internal_types_print_every_field_by_its_go_name() {
        let claim = json!({"accessModes": ["ReadWriteOnce"], "selector": {"matchLabels": {"a": "<b>"}},
            "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Block"});
        assert_eq!(
            internal("api.core.v1.PersistentVolumeClaimSpec", &claim).compact(),
            "{\"AccessModes\":[\"ReadWriteOnce\"],\"Selector\":{\"matchLabels\":{\"a\":\"\\u003cb\\u003e\"}},\
             \"Resources\":{\"Limits\":null,\"Requests\":{\"storage\":\"1Gi\"}},\"VolumeName\":\"\",\
             \"StorageClassName\":null,\"VolumeMode\":\"Block\",\"DataSource\":null,\"DataSourceRef\":null,\
             \"VolumeAttributesClassName\":null}"
        );
    }

    #[test]
    fn embedded_metadata_is_part_of_the_object() {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostPID": true, "containers": []}});
        let shown = internal("api.core.v1.PodTemplateSpec", &template).compact();
        assert!(shown.starts_with("{\"labels\":{\"a\":\"b\"},\"Spec\":{\"Volumes\":null,"), "{shown}");
        assert!(shown.contains("\"SecurityContext\":{\"HostNetwork\":false,\"HostPID\":true,"), "{shown}");
    }

    #[test]
    fn every_field_that_is_put_in_order_is_known() {
        for (name, fields) in INTERNAL {
            let lines: Vec<_> = facts::of(name).expect("known").fields().collect();
            let has = |field: &str| lines.iter().any(|line| line.split(' ').nth(1) == Some(field));
            for field in fields.split_ascii_whitespace() {
                assert!(has(field) || HOST_FIELDS.contains(&field), "{name} {field}");
            }
            let listed: Vec<&str> = fields.split_ascii_whitespace().collect();
            for line in &lines {
                let field = line.split(' ').nth(1).expect("named");
                let moved = HOST_FIELDS.contains(&field) || field == "serviceAccount";
                assert!(listed.contains(&field) || moved, "{name} lacks {field}");
            }
        }
    }
}
