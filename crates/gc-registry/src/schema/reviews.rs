//! Schemas of webhooks' answers, which belong to no resource.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    GoType, List, MapNode, Node, Object, Property, Schema, SchemaRef, StringFormat, definition_named,
};

/// Package of the types that reviews share with resources.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Returns the schema of a webhook's AdmissionReview.
pub(crate) fn admission_review(version: &str) -> Schema {
    let package = format!("io.k8s.api.admission.{version}.");
    let (operation, patch_type) = match version {
        "v1beta1" => ("v1beta1.Operation", "v1beta1.PatchType"),
        _ => ("v1.Operation", "v1.PatchType"),
    };
    let group_version = |last: &str, name: &str| {
        object(&format!("{META}{name}"), [("group", text()), ("version", text()), (last, text())])
    };
    let kind = || group_version("kind", "GroupVersionKind");
    let resource = || group_version("resource", "GroupVersionResource");
    let request = object(
        &format!("{package}AdmissionRequest"),
        [
            ("uid", uid()),
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", go_string(operation)),
            ("dryRun", Schema::of(Node::Boolean)),
        ],
    );
    let response = object(
        &format!("{package}AdmissionResponse"),
        [
            ("uid", uid()),
            ("allowed", Schema::of(Node::Boolean)),
            ("status", status()),
            ("patch", Schema::of(Node::String(StringFormat::Byte))),
            ("patchType", go_string(patch_type)),
            (
                "auditAnnotations",
                Schema::of(Node::Map(MapNode { values: text().into(), ..MapNode::default() })),
            ),
            ("warnings", list(text())),
        ],
    );
    object(
        &format!("{package}AdmissionReview"),
        [("apiVersion", text()), ("kind", text()), ("request", request), ("response", response)],
    )
}

/// Returns the schema of a webhook's ConversionReview.
pub(crate) fn conversion_review(version: &str) -> Schema {
    let package = format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.");
    let request = object(
        &format!("{package}ConversionRequest"),
        [("uid", uid()), ("desiredAPIVersion", text()), ("objects", list(raw()))],
    );
    let response = object(
        &format!("{package}ConversionResponse"),
        [("uid", uid()), ("convertedObjects", list(raw())), ("result", status())],
    );
    object(
        &format!("{package}ConversionReview"),
        [("apiVersion", text()), ("kind", text()), ("request", request), ("response", response)],
    )
}

fn object<const N: usize>(name: &str, fields: [(&str, Schema); N]) -> Schema {
    let property = |schema: Schema| Property { schema: schema.into(), ..Property::default() };
    let properties: BTreeMap<Arc<str>, Property> =
        fields.into_iter().map(|(name, schema)| (name.into(), property(schema))).collect();
    Schema { name: Some(name.into()), ..Schema::of(Node::Object(Object { properties, ..Object::default() })) }
}

fn text() -> Schema {
    Schema::of(Node::String(StringFormat::Plain))
}

fn list(items: Schema) -> Schema {
    Schema::of(Node::List(List { items: SchemaRef::from(items), ..List::default() }))
}

/// Returns a string whose type has a name in Go.
fn go_string(name: &'static str) -> Schema {
    Schema { go: Some(Box::new(GoType { name, enumeration: Vec::new() })), ..text() }
}

fn uid() -> Schema {
    go_string("types.UID")
}

/// Returns the schema of any document.
fn raw() -> Schema {
    Schema { name: Some("io.k8s.apimachinery.pkg.runtime.RawExtension".into()), ..Schema::default() }
}

fn status() -> Schema {
    definition_named(&format!("{META}Status")).map(|status| (*status).clone()).unwrap_or_default()
}
