//! Tests the order of members against texts written by kube-apiserver v1.36.2.

use std::sync::Arc;

use gc_registry::numbers::write_json;
use gc_registry::object::{Object, TypeMeta};
use gc_registry::ordered::InOrder;
use serde_json::Value;

#[test]
fn members_stand_where_they_were_recorded() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/recordings/facts/member-order.jsonl");
    let recorded = std::fs::read_to_string(path).unwrap();
    assert!(recorded.lines().count() > 40);
    for text in recorded.lines() {
        let value: Value = serde_json::from_str(text).unwrap();
        let mut written = Vec::new();
        write_json(&mut written, &InOrder::of(&value)).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), text);
        // Items in lists of built-in kinds do not state their type.
        let of = |name: &str| Arc::from(value[name].as_str().unwrap());
        let type_meta = Arc::new(TypeMeta { api_version: of("apiVersion"), kind: of("kind") });
        let mut written = Vec::new();
        Object::from_value(type_meta, value.clone()).write_json(&mut written, false).unwrap();
        let item = serde_json::from_slice::<Value>(&written).unwrap();
        assert!(item.get("kind").is_none() && item.get("apiVersion").is_none());
        let head = format!(r#"{{"kind":{},"apiVersion":{},"#, value["kind"], value["apiVersion"]);
        if let Some(rest) = text.strip_prefix(&head) {
            assert_eq!(String::from_utf8(written).unwrap(), format!("{{{rest}"));
        }
    }
}
