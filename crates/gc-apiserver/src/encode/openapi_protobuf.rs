//! OpenAPI documents as protobuf: version 2, which kubectl before 1.27 requests, and version 3 in the module `three`.
//!
//! Follows the message numbers of gnostic's `openapi.v2` (`OpenAPIv2.proto`), limited to what documents of API servers contain:
//! security definitions, headers, examples and file responses are missing. The format represents values of any type as YAML, of
//! which JSON is a subset.

pub(crate) mod three;

use serde_json::{Map, Value};

use crate::encode::protobuf_writer::Writer;

/// Media type in answers.
pub(crate) const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// Media types that clients ask for. The first is not a valid media type, but old clients send it.
pub(crate) const ACCEPTED: [&str; 2] =
    ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", CONTENT_TYPE];

type Object = Map<String, Value>;

/// Writes a complete document.
pub(crate) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer(&mut out);
    let Some(document) = document.as_object() else { return out };
    text(&mut writer, 1, document, "swagger");
    message(&mut writer, 2, document, "info", |writer, info| {
        text(writer, 1, info, "title");
        text(writer, 2, info, "version");
        text(writer, 3, info, "description");
        extensions(writer, 7, info);
    });
    texts(&mut writer, 5, document, "schemes");
    texts(&mut writer, 6, document, "consumes");
    texts(&mut writer, 7, document, "produces");
    message(&mut writer, 8, document, "paths", |writer, paths| named(writer, 2, paths, path_item));
    message(&mut writer, 9, document, "definitions", |writer, schemas| named(writer, 1, schemas, schema));
    extensions(&mut writer, 16, document);
    out
}

fn path_item(writer: &mut Writer<'_>, item: &Object) {
    for (number, method) in
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")]
    {
        message(writer, number, item, method, operation);
    }
    messages(writer, 9, item, "parameters", parameter);
    extensions(writer, 10, item);
}

fn operation(writer: &mut Writer<'_>, operation: &Object) {
    texts(writer, 1, operation, "tags");
    text(writer, 2, operation, "summary");
    text(writer, 3, operation, "description");
    text(writer, 5, operation, "operationId");
    texts(writer, 6, operation, "produces");
    texts(writer, 7, operation, "consumes");
    messages(writer, 8, operation, "parameters", parameter);
    message(writer, 9, operation, "responses", |writer, codes| {
        named(writer, 1, codes, |writer, response| {
            writer.message(1, |writer| {
                text(writer, 1, response, "description");
                message(writer, 2, response, "schema", |writer, found| {
                    writer.message(1, |writer| schema(writer, found));
                });
                extensions(writer, 5, response);
            });
        });
    });
    texts(writer, 10, operation, "schemes");
    flag(writer, 11, operation, "deprecated");
    extensions(writer, 13, operation);
}

fn parameter(writer: &mut Writer<'_>, parameter: &Object) {
    if parameter.contains_key("$ref") {
        return writer.message(2, |writer| text(writer, 1, parameter, "$ref"));
    }
    writer.message(1, |writer| match parameter.get("in").and_then(Value::as_str) {
        Some("body") => writer.message(1, |writer| {
            text(writer, 1, parameter, "description");
            text(writer, 2, parameter, "name");
            text(writer, 3, parameter, "in");
            flag(writer, 4, parameter, "required");
            message(writer, 5, parameter, "schema", schema);
            extensions(writer, 6, parameter);
        }),
        Some("query") => writer.message(2, |writer| {
            writer.message(3, |writer| {
                simple_parameter(writer, parameter);
                text(writer, 6, parameter, "type");
                text(writer, 7, parameter, "format");
                flag(writer, 20, parameter, "uniqueItems");
                extensions(writer, 23, parameter);
            });
        }),
        // A parameter in the path or in a header; the numbers are the same.
        place => writer.message(2, |writer| {
            writer.message(if place == Some("header") { 1 } else { 4 }, |writer| {
                simple_parameter(writer, parameter);
                text(writer, 5, parameter, "type");
                text(writer, 6, parameter, "format");
                flag(writer, 19, parameter, "uniqueItems");
                extensions(writer, 22, parameter);
            });
        }),
    });
}

fn simple_parameter(writer: &mut Writer<'_>, parameter: &Object) {
    flag(writer, 1, parameter, "required");
    text(writer, 2, parameter, "in");
    text(writer, 3, parameter, "description");
    text(writer, 4, parameter, "name");
}

fn schema(writer: &mut Writer<'_>, schema_object: &Object) {
    let from = schema_object;
    text(writer, 1, from, "$ref");
    text(writer, 2, from, "format");
    text(writer, 3, from, "title");
    text(writer, 4, from, "description");
    if let Some(default) = from.get("default") {
        any(writer, 5, default);
    }
    doubles(writer, from, [(6, "multipleOf"), (7, "maximum"), (9, "minimum")]);
    flag(writer, 8, from, "exclusiveMaximum");
    flag(writer, 10, from, "exclusiveMinimum");
    numbers(
        writer,
        from,
        [
            (11, "maxLength"),
            (12, "minLength"),
            (14, "maxItems"),
            (15, "minItems"),
            (17, "maxProperties"),
            (18, "minProperties"),
        ],
    );
    text(writer, 13, from, "pattern");
    flag(writer, 16, from, "uniqueItems");
    texts(writer, 19, from, "required");
    choices(writer, 20, from);
    match from.get("additionalProperties") {
        Some(Value::Bool(allowed)) => writer.message(21, |writer| writer.number(2, (*allowed).into())),
        Some(Value::Object(found)) => {
            writer.message(21, |writer| writer.message(1, |writer| schema(writer, found)));
        }
        _ => {}
    }
    if from.contains_key("type") {
        writer.message(22, |writer| {
            text(writer, 1, from, "type");
            texts(writer, 1, from, "type");
        });
    }
    message(writer, 23, from, "items", |writer, items| writer.message(1, |writer| schema(writer, items)));
    messages(writer, 24, from, "allOf", schema);
    message(writer, 25, from, "properties", |writer, properties| named(writer, 1, properties, schema));
    text(writer, 26, from, "discriminator");
    flag(writer, 27, from, "readOnly");
    extensions(writer, 31, from);
}

/// Writes the entries of a map as `(name, value)` messages.
fn named(writer: &mut Writer<'_>, number: u32, map: &Object, write: impl Fn(&mut Writer<'_>, &Object)) {
    for (name, value) in map {
        let Some(value) = value.as_object() else { continue };
        writer.message(number, |writer| {
            writer.text(1, name);
            writer.message(2, |writer| write(writer, value));
        });
    }
}

fn text(writer: &mut Writer<'_>, number: u32, from: &Object, name: &str) {
    writer.text(number, from.get(name).and_then(Value::as_str).unwrap_or_default());
}

fn texts(writer: &mut Writer<'_>, number: u32, from: &Object, name: &str) {
    for item in from.get(name).and_then(Value::as_array).into_iter().flatten() {
        writer.bytes(number, item.as_str().unwrap_or_default().as_bytes());
    }
}

fn doubles<const N: usize>(writer: &mut Writer<'_>, from: &Object, fields: [(u32, &str); N]) {
    for (number, name) in fields {
        if let Some(value) = from.get(name).and_then(Value::as_f64) {
            writer.double(number, value);
        }
    }
}

/// Writes the values of an enumeration.
fn choices(writer: &mut Writer<'_>, number: u32, from: &Object) {
    for value in from.get("enum").and_then(Value::as_array).into_iter().flatten() {
        any(writer, number, value);
    }
}

fn numbers<const N: usize>(writer: &mut Writer<'_>, from: &Object, fields: [(u32, &str); N]) {
    for (number, name) in fields {
        if let Some(value) = from.get(name).and_then(Value::as_i64) {
            writer.number(number, value);
        }
    }
}

fn flag(writer: &mut Writer<'_>, number: u32, from: &Object, name: &str) {
    if from.get(name) == Some(&Value::Bool(true)) {
        writer.number(number, 1);
    }
}

fn message(
    writer: &mut Writer<'_>,
    number: u32,
    from: &Object,
    name: &str,
    write: impl Fn(&mut Writer<'_>, &Object),
) {
    if let Some(found) = from.get(name).and_then(Value::as_object) {
        writer.message(number, |writer| write(writer, found));
    }
}

fn messages(
    writer: &mut Writer<'_>,
    number: u32,
    from: &Object,
    name: &str,
    write: impl Fn(&mut Writer<'_>, &Object),
) {
    for item in from.get(name).and_then(Value::as_array).into_iter().flatten() {
        if let Some(item) = item.as_object() {
            writer.message(number, |writer| write(writer, item));
        }
    }
}

fn extensions(writer: &mut Writer<'_>, number: u32, from: &Object) {
    for (name, value) in from.iter().filter(|(name, _)| name.starts_with("x-")) {
        writer.message(number, |writer| {
            writer.text(1, name);
            any(writer, 2, value);
        });
    }
}

fn any(writer: &mut Writer<'_>, number: u32, value: &Value) {
    writer.message(number, |writer| writer.text(2, &value.to_string()));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a broken assumption should stop the test

    use prost::Message;
    use serde_json::json;

    use super::*;

    /// The messages that the test reads back, as kubectl does.
    #[derive(Clone, PartialEq, Message)]
    struct Document {
        #[prost(string, tag = "1")]
        swagger: String,
        #[prost(message, optional, tag = "9")]
        definitions: Option<Schemas>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Schemas {
        #[prost(message, repeated, tag = "1")]
        entries: Vec<NamedSchema>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct NamedSchema {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, optional, tag = "2")]
        value: Option<Schema>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Schema {
        #[prost(string, tag = "1")]
        reference: String,
        #[prost(double, tag = "9")]
        minimum: f64,
        #[prost(string, repeated, tag = "19")]
        required: Vec<String>,
        #[prost(message, optional, tag = "22")]
        types: Option<Texts>,
        #[prost(message, optional, tag = "23")]
        items: Option<Items>,
        #[prost(message, optional, tag = "25")]
        properties: Option<Schemas>,
        #[prost(message, repeated, tag = "31")]
        extensions: Vec<NamedAny>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Texts {
        #[prost(string, repeated, tag = "1")]
        value: Vec<String>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Items {
        #[prost(message, repeated, tag = "1")]
        schema: Vec<Schema>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct NamedAny {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, optional, tag = "2")]
        value: Option<Any>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Any {
        #[prost(string, tag = "2")]
        yaml: String,
    }

    #[test]
    fn definitions_read_back() {
        let document = json!({
            "swagger": "2.0",
            "definitions": {"io.example.Thing": {
                "type": "object",
                "required": ["list"],
                "properties": {
                    "list": {"type": "array", "items": {"$ref": "#/definitions/other"}, "x-kubernetes-list-type": "set"},
                    "size": {"type": "integer", "minimum": -1.5},
                },
                "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Thing"}],
            }},
        });
        let read = Document::decode(encode(&document).as_slice()).unwrap();
        let types = |name: &str| Some(Texts { value: vec![name.into()] });
        let extension =
            |name: &str, yaml: &str| NamedAny { name: name.into(), value: Some(Any { yaml: yaml.into() }) };
        let list = Schema {
            types: types("array"),
            items: Some(Items {
                schema: vec![Schema { reference: "#/definitions/other".into(), ..Schema::default() }],
            }),
            extensions: vec![extension("x-kubernetes-list-type", "\"set\"")],
            ..Schema::default()
        };
        let size = Schema { types: types("integer"), minimum: -1.5, ..Schema::default() };
        let thing = Schema {
            types: types("object"),
            required: vec!["list".into()],
            properties: Some(Schemas {
                entries: vec![
                    NamedSchema { name: "list".into(), value: Some(list) },
                    NamedSchema { name: "size".into(), value: Some(size) },
                ],
            }),
            extensions: vec![extension(
                "x-kubernetes-group-version-kind",
                r#"[{"group":"g","kind":"Thing","version":"v1"}]"#,
            )],
            ..Schema::default()
        };
        let entries = vec![NamedSchema { name: "io.example.Thing".into(), value: Some(thing) }];
        assert_eq!(read, Document { swagger: "2.0".into(), definitions: Some(Schemas { entries }) });
    }
}
