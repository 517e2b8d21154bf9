//! OpenAPI documents of version 3, by the message numbers of gnostic's `openapi.v3` (`OpenAPIv3.proto`), limited to what documents
//! of API servers contain.

use serde_json::Value;

use super::{
    Object, any, choices, doubles, extensions, flag, message, messages, named, numbers, text, texts,
};
use crate::encode::protobuf_writer::Writer;

/// Media type in answers.
pub(crate) const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// Media types that clients ask for. The first is not a valid media type, but clients send it.
pub(crate) const ACCEPTED: [&str; 2] =
    ["application/com.github.proto-openapi.spec.v3@v1.0+protobuf", CONTENT_TYPE];

/// Writes a complete document.
pub(crate) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer(&mut out);
    let Some(document) = document.as_object() else { return out };
    text(&mut writer, 1, document, "openapi");
    message(&mut writer, 2, document, "info", |writer, info| {
        text(writer, 1, info, "title");
        text(writer, 2, info, "description");
        text(writer, 6, info, "version");
        extensions(writer, 7, info);
    });
    message(&mut writer, 4, document, "paths", |writer, paths| named(writer, 1, paths, path_item));
    message(&mut writer, 5, document, "components", |writer, components| {
        message(writer, 1, components, "schemas", |writer, schemas| named(writer, 1, schemas, schema));
        message(writer, 7, components, "securitySchemes", |writer, schemes| {
            named(writer, 1, schemes, |writer, scheme| {
                writer.message(1, |writer| security_scheme(writer, scheme));
            });
        });
    });
    extensions(&mut writer, 9, document);
    out
}

fn security_scheme(writer: &mut Writer<'_>, scheme: &Object) {
    for (number, name) in [(1, "type"), (2, "description"), (3, "name"), (4, "in")] {
        text(writer, number, scheme, name);
    }
    extensions(writer, 9, scheme);
}

fn path_item(writer: &mut Writer<'_>, item: &Object) {
    for (number, method) in
        [(4, "get"), (5, "put"), (6, "post"), (7, "delete"), (8, "options"), (9, "head"), (10, "patch")]
    {
        message(writer, number, item, method, operation);
    }
    messages(writer, 13, item, "parameters", parameter);
    extensions(writer, 14, item);
}

fn operation(writer: &mut Writer<'_>, operation: &Object) {
    texts(writer, 1, operation, "tags");
    text(writer, 2, operation, "summary");
    text(writer, 3, operation, "description");
    text(writer, 5, operation, "operationId");
    messages(writer, 6, operation, "parameters", parameter);
    message(writer, 7, operation, "requestBody", |writer, body| {
        writer.message(1, |writer| {
            text(writer, 1, body, "description");
            content(writer, 2, body);
            flag(writer, 3, body, "required");
            extensions(writer, 4, body);
        });
    });
    message(writer, 8, operation, "responses", |writer, codes| {
        named(writer, 2, codes, |writer, response| {
            writer.message(1, |writer| {
                text(writer, 1, response, "description");
                content(writer, 3, response);
                extensions(writer, 5, response);
            });
        });
    });
    flag(writer, 10, operation, "deprecated");
    extensions(writer, 13, operation);
}

fn content(writer: &mut Writer<'_>, number: u32, from: &Object) {
    message(writer, number, from, "content", |writer, types| {
        named(writer, 1, types, |writer, media_type| {
            message(writer, 1, media_type, "schema", schema);
            extensions(writer, 5, media_type);
        });
    });
}

fn parameter(writer: &mut Writer<'_>, parameter: &Object) {
    if let Some(Value::String(reference)) = parameter.get("$ref") {
        return writer.message(2, |writer| writer.text(1, reference));
    }
    writer.message(1, |writer| {
        for (number, name) in [(1, "name"), (2, "in"), (3, "description")] {
            text(writer, number, parameter, name);
        }
        flag(writer, 4, parameter, "required");
        message(writer, 10, parameter, "schema", schema);
        extensions(writer, 14, parameter);
    });
}

/// Writes a schema, or a reference to one.
fn schema(writer: &mut Writer<'_>, from: &Object) {
    if let Some(Value::String(reference)) = from.get("$ref") {
        return writer.message(2, |writer| {
            writer.text(1, reference);
            text(writer, 3, from, "description");
        });
    }
    writer.message(1, |writer| own_schema(writer, from));
}

fn own_schema(writer: &mut Writer<'_>, from: &Object) {
    flag(writer, 1, from, "nullable");
    flag(writer, 3, from, "readOnly");
    if let Some(example) = from.get("example") {
        any(writer, 7, example);
    }
    text(writer, 9, from, "title");
    doubles(writer, from, [(10, "multipleOf"), (11, "maximum"), (13, "minimum")]);
    flag(writer, 12, from, "exclusiveMaximum");
    flag(writer, 14, from, "exclusiveMinimum");
    text(writer, 17, from, "pattern");
    numbers(
        writer,
        from,
        [
            (15, "maxLength"),
            (16, "minLength"),
            (18, "maxItems"),
            (19, "minItems"),
            (21, "maxProperties"),
            (22, "minProperties"),
        ],
    );
    flag(writer, 20, from, "uniqueItems");
    texts(writer, 23, from, "required");
    choices(writer, 24, from);
    text(writer, 25, from, "type");
    for (number, name) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        messages(writer, number, from, name, schema);
    }
    message(writer, 29, from, "not", own_schema);
    message(writer, 30, from, "items", |writer, items| writer.message(1, |writer| schema(writer, items)));
    message(writer, 31, from, "properties", |writer, properties| named(writer, 1, properties, schema));
    match from.get("additionalProperties") {
        Some(Value::Bool(allowed)) => writer.message(32, |writer| writer.number(2, (*allowed).into())),
        Some(Value::Object(found)) => {
            writer.message(32, |writer| writer.message(1, |writer| schema(writer, found)));
        }
        _ => {}
    }
    default(writer, from);
    text(writer, 34, from, "description");
    text(writer, 35, from, "format");
    extensions(writer, 36, from);
}

/// Writes a default value. The message can only hold scalars; for other values it merely records that there is a default.
fn default(writer: &mut Writer<'_>, from: &Object) {
    let Some(value) = from.get("default") else { return };
    writer.message(33, |writer| match value {
        Value::Bool(value) => writer.number(2, (*value).into()),
        Value::String(value) => writer.bytes(3, value.as_bytes()),
        Value::Number(value) => writer.double(1, value.as_f64().unwrap_or_default()),
        _ => {}
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a broken assumption should stop the test

    use prost::Message;
    use serde_json::json;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Document {
        #[prost(string, tag = "1")]
        openapi: String,
        #[prost(message, optional, tag = "5")]
        components: Option<Components>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Components {
        #[prost(message, optional, tag = "1")]
        schemas: Option<Schemas>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Schemas {
        #[prost(message, repeated, tag = "1")]
        entries: Vec<NamedValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct NamedValue {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, optional, tag = "2")]
        value: Option<SchemaOrReference>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct SchemaOrReference {
        #[prost(message, optional, tag = "1")]
        schema: Option<Schema>,
        #[prost(message, optional, tag = "2")]
        reference: Option<Reference>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Reference {
        #[prost(string, tag = "1")]
        reference: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Schema {
        #[prost(string, repeated, tag = "23")]
        required: Vec<String>,
        #[prost(string, tag = "25")]
        kind: String,
        #[prost(message, optional, tag = "30")]
        items: Option<Items>,
        #[prost(message, optional, tag = "31")]
        properties: Option<Schemas>,
        #[prost(message, optional, tag = "33")]
        default: Option<DefaultType>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Items {
        #[prost(message, repeated, tag = "1")]
        schema: Vec<SchemaOrReference>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct DefaultType {
        #[prost(double, optional, tag = "1")]
        number: Option<f64>,
        #[prost(string, optional, tag = "3")]
        text: Option<String>,
    }

    #[test]
    fn schemas_read_back() {
        let document = json!({
            "openapi": "3.0.0",
            "components": {"schemas": {"io.example.Thing": {
                "type": "object",
                "required": ["list"],
                "properties": {
                    "list": {"type": "array", "items": {"$ref": "#/components/schemas/other"}},
                    "name": {"type": "string", "default": ""},
                    "size": {"type": "integer", "default": 0},
                    "spec": {"type": "object", "default": {}},
                },
            }}},
        });
        let own = |schema: Schema| Some(SchemaOrReference { schema: Some(schema), reference: None });
        let entry = |name: &str, schema: Schema| NamedValue { name: name.into(), value: own(schema) };
        let of_type = |kind: &str| Schema { kind: kind.into(), ..Schema::default() };
        let reference = Some(Reference { reference: "#/components/schemas/other".into() });
        let items = Some(Items { schema: vec![SchemaOrReference { schema: None, reference }] });
        let text = Some(DefaultType { text: Some(String::new()), number: None });
        let number = Some(DefaultType { number: Some(0.0), text: None });
        let properties = Schemas {
            entries: vec![
                entry("list", Schema { items, ..of_type("array") }),
                entry("name", Schema { default: text, ..of_type("string") }),
                entry("size", Schema { default: number, ..of_type("integer") }),
                entry("spec", Schema { default: Some(DefaultType::default()), ..of_type("object") }),
            ],
        };
        let thing =
            Schema { required: vec!["list".into()], properties: Some(properties), ..of_type("object") };
        let schemas = Some(Schemas { entries: vec![entry("io.example.Thing", thing)] });
        let wanted = Document { openapi: "3.0.0".into(), components: Some(Components { schemas }) };
        assert_eq!(Document::decode(encode(&document).as_slice()).unwrap(), wanted);
    }
}
