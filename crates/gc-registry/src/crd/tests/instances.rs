#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use super::*;

#[test]
fn values_are_checked_in_the_words_of_kubernetes() {
    let table: Vec<(Value, Value, Vec<&str>)> = vec![
        (
            json!({"type": "integer"}),
            json!("string"),
            vec!["spec.a: Invalid value: \"string\": spec.a in body must be of type integer: \"string\""],
        ),
        (json!({"type": "integer"}), json!(1.0), vec![]),
        (
            json!({"type": "integer"}),
            json!(1.5),
            vec![
                "spec.a: Invalid value: \"number\": spec.a in body must be of type integer: \"number\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.a",
            ],
        ),
        (json!({"type": "integer", "nullable": true}), json!(null), vec![]),
        (
            json!({"type": "string"}),
            json!({}),
            vec!["spec.a: Invalid value: \"object\": spec.a in body must be of type string: \"object\""],
        ),
        (json!({"x-kubernetes-int-or-string": true}), json!("10%"), vec![]),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!({}),
            vec![
                "spec.a: Invalid value: \"object\": spec.a in body must be of type integer,string: \"object\"",
                "<nil>: Invalid value: \"\": \"spec.a\" must validate at least one schema (anyOf)",
                "spec.a: Invalid value: \"object\": spec.a in body must be of type integer: \"object\"",
            ],
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!(1),
            vec!["spec.a: Invalid value: \"int64\": spec.a in body must be of type date: \"int64\""],
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!(true),
            vec!["spec.a: Invalid value: \"\": spec.a in body must be of type date: \"\""],
        ),
        (json!({"type": "string", "format": "date"}), json!([]), vec![]),
        (
            json!({"type": "string", "format": "byte"}),
            json!(""),
            vec!["spec.a: Invalid value: \"\": spec.a in body must be of type byte: \"\""],
        ),
        (
            json!({"type": "integer", "format": "int64"}),
            json!(1.5),
            vec![
                "spec.a: Invalid value: \"float64\": spec.a in body must be of type int64: \"float64\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer with format int64 in spec.a",
            ],
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(1.5),
            vec![
                "spec.a: Invalid value: \"number\": spec.a in body must be of type integer: \"number\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.a",
            ],
        ),
        (
            json!({"type": "string", "nullable": true, "enum": ["a", null]}),
            json!(null),
            vec!["spec.a: Unsupported value: null: supported values: \"a\", \"null\""],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            vec![
                "spec.a: Invalid value: \"boolean\": spec.a in body must be of type integer,string: \"boolean\"",
            ],
        ),
        (
            json!({"type": "string", "enum": ["x", "y"]}),
            json!("z"),
            vec!["spec.a: Unsupported value: \"z\": supported values: \"x\", \"y\""],
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            vec!["spec.a: Unsupported value: 3: supported values: \"1\", \"2\""],
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            vec!["spec.a: Invalid value: \"b\": spec.a in body should match '^a+$'"],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("äöü"),
            vec!["spec.a: Too long: may not be more than 2 bytes"],
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("ä"),
            vec!["spec.a: Invalid value: \"ä\": spec.a in body should be at least 2 chars long"],
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            vec!["spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1"],
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            vec!["spec.a: Invalid value: 1: spec.a in body should be greater than 1"],
        ),
        (
            json!({"type": "number", "maximum": 1.5}),
            json!(2),
            vec!["spec.a: Invalid value: 2: spec.a in body should be less than or equal to 1"],
        ),
        (
            json!({"type": "number", "maximum": 1.5}),
            json!(1_234_567.5),
            vec!["spec.a: Invalid value: 1.2345675e+06: spec.a in body should be less than or equal to 1.5"],
        ),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3), vec![]),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            vec!["spec.a: Invalid value: 7: spec.a in body should be a multiple of 5"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["x", "y"]),
            vec!["spec.a: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            vec!["spec.a: Invalid value: 0: spec.a in body should have at least 1 items"],
        ),
        (
            json!({"type": "array", "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}}),
            json!([{}]),
            vec!["spec.a[0].n: Required value"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"k": "v"}),
            vec!["spec.a.k: Invalid value: \"string\": spec.a.k in body must be of type integer: \"string\""],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1}),
            json!({"k": 1, "l": 2}),
            vec!["spec.a: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "string", "format": "ipv4"}),
            json!("10.0.0"),
            vec!["spec.a: Invalid value: \"10.0.0\": spec.a in body must be of type ipv4: \"10.0.0\""],
        ),
        (json!({"type": "string", "format": "colour"}), json!("any"), vec![]),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["x", "y", "x", "x"]),
            vec!["spec.a[2]: Duplicate value: \"x\""],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}}),
            json!([{"k": "x", "v": "1"}, {"k": "x", "v": "2"}]),
            vec!["spec.a[1]: Duplicate value: {\"k\":\"x\"}"],
        ),
        (
            json!({"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}}, "oneOf": [{"required": ["x"]}, {"required": ["y"]}]}),
            json!({}),
            vec![
                "<nil>: Invalid value: \"\": \"spec.a\" must validate one and only one schema (oneOf). Found none valid",
                "spec.a.x: Required value",
            ],
        ),
        (
            json!({"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}}, "oneOf": [{"required": ["x"]}, {"required": ["y"]}]}),
            json!({"x": "", "y": ""}),
            vec![
                "<nil>: Invalid value: \"\": \"spec.a\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ],
        ),
        (
            json!({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 1}]}),
            json!(5),
            vec![
                "<nil>: Invalid value: \"\": \"spec.a\" must validate at least one schema (anyOf)",
                "spec.a: Invalid value: 5: spec.a in body should be greater than or equal to 10",
            ],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 10}, {"minimum": 1}]}),
            json!(5),
            vec![
                "spec.a: Invalid value: 5: spec.a in body should be greater than or equal to 10",
                "<nil>: Invalid value: \"\": \"spec.a\" must validate all the schemas (allOf)",
            ],
        ),
        (
            json!({"type": "string", "not": {"enum": ["no"]}}),
            json!("no"),
            vec!["<nil>: Invalid value: \"\": \"spec.a\" must not validate the schema (not)"],
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            json!({"kind": "Pod_", "metadata": {}}),
            vec![
                "spec.a.apiVersion: Required value",
                "spec.a.kind: Invalid value: \"Pod_\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
    ];
    for (schema, value, problems) in table {
        let definition = prepared(with_schema(&spec_schema(&json!({"a": schema}))));
        assert_eq!(validate_create(&definition), [], "{schema}");
        let object = widget(&json!({"a": value}));
        let version = version(&definition);
        assert_eq!(texts(&version.validate(&object, None)), problems, "{schema} {value}");
        // A stored value that does not change is not checked again, except for list types, which only consider stored items.
        assert_eq!(
            version
                .validate(&object, Some(&object))
                .iter()
                .filter(|p| !p.field.starts_with("spec.a."))
                .count(),
            0,
            "{schema} {value}"
        );
    }
}

#[test]
fn type_and_kind_must_be_those_of_the_version() {
    let version = version(&prepared(with_schema(&json!({"type": "object"}))));
    let object = json!({"apiVersion": "example.com/v2", "kind": "Gadget"});
    assert_eq!(
        texts(&version.validate(&object, None)),
        [
            "kind: Invalid value: \"Gadget\": must be Widget",
            "apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1",
        ]
    );
}

#[test]
fn unchanged_parts_are_not_checked_again() {
    let definition = with_schema(&spec_schema(&json!({
        "old": {"type": "string", "maxLength": 1}, "new": {"type": "string", "maxLength": 1},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}},
        }},
    })));
    let version = version(&prepared(definition));
    let stored = widget(&json!({"old": "long", "new": "", "list": [{"k": "a", "v": 5}, {"k": "b", "v": 5}]}));
    let changed =
        widget(&json!({"old": "long", "new": "long", "list": [{"k": "b", "v": 6}, {"k": "a", "v": 5}]}));
    assert_eq!(
        texts(&version.validate(&changed, Some(&stored))),
        [
            "spec.list[0].v: Invalid value: 6: spec.list[0].v in body should be less than or equal to 1",
            "spec.new: Too long: may not be more than 1 byte",
        ]
    );
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let definition = with_schema(&spec_schema(&json!({
        "size": {"type": "integer"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })));
    let version = version(&definition);
    let mut object = widget(&json!({"size": 1, "unknown": true, "free": {"anything": ["fits"]}}));
    object["extra"] = 1.into();
    assert_eq!(version.prune(&mut object), ["unknown field \"extra\"", "unknown field \"spec.unknown\""]);
    assert_eq!(object, widget(&json!({"size": 1, "free": {"anything": ["fits"]}})));
}

#[test]
fn status_is_separate_where_declared() {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let with = definition(&json!({"schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}));
    let (with, without) = (version(&with), version(&with_schema(&schema)));
    let object = |generation: i64, labels: &Value, size: i64, ready: Option<bool>| {
        let mut object = widget(&json!({"size": size}));
        object["metadata"] =
            json!({"name": "w", "generation": generation, "labels": labels, "resourceVersion": "7"});
        if let Some(ready) = ready {
            object["status"] = json!({"ready": ready});
        }
        object
    };
    let none = json!({});
    let l = json!({"l": "1"});

    let mut created = object(0, &none, 1, Some(true));
    with.prepare_create(&mut created);
    assert_eq!(created, object(1, &none, 1, None));
    let mut created = object(0, &none, 1, Some(true));
    without.prepare_create(&mut created);
    assert_eq!(created, object(1, &none, 1, Some(true)));

    let stored = object(3, &none, 1, Some(false));
    for (version, sent, subresource, expected) in [
        (&with, object(9, &l, 1, Some(true)), "", object(3, &l, 1, Some(false))),
        (&with, object(9, &l, 2, None), "", object(4, &l, 2, Some(false))),
        (&with, object(9, &l, 2, Some(true)), "status", object(3, &none, 1, Some(true))),
        (&with, object(9, &l, 2, None), "status", object(3, &none, 1, None)),
        (&without, object(9, &l, 1, Some(true)), "", object(4, &l, 1, Some(true))),
        (&without, object(9, &l, 1, Some(false)), "", object(3, &l, 1, Some(false))),
    ] {
        let mut updated = sent.clone();
        version.prepare_update(&mut updated, &stored, subresource);
        assert_eq!(updated, expected, "{sent} {subresource}");
    }
}

#[test]
fn whole_numbers_are_stored_without_fractions_and_exponents() {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = version(&definition(&json!({
        "schema": {"openAPIV3Schema": anything}, "subresources": {"status": {}},
    })));
    let object = |numbers: &str| -> Value {
        let text = format!(
            r#"{{"spec": {{"n": {numbers}}}, "status": {numbers}, "metadata": {{"generation": 1}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    let (written, stored) = ("[1e3, 2.0, -0.0, 1.5, 1e30]", "[1000, 2, 0, 1.5, 1e30]");
    let mut created = object(written);
    version.prepare_create(&mut created);
    assert_eq!(created, json!({"spec": object(stored)["spec"], "metadata": {"generation": 1}}));
    // The same number in another notation counts as a change.
    let mut updated = object(written);
    version.prepare_update(&mut updated, &object(stored), "");
    assert_eq!(
        updated,
        json!({"spec": object(stored)["spec"], "status": object(stored)["status"], "metadata": {"generation": 2}})
    );
    let mut updated = object(written);
    version.prepare_update(&mut updated, &object("[]"), "status");
    assert_eq!(updated["status"], object(stored)["status"]);
}

#[test]
fn scale_reads_and_writes_its_paths() {
    let definition = definition(&json!({
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        "subresources": {"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector",
        }},
    }));
    assert_eq!(validate_create(&prepared(definition.clone())), []);
    let version = version(&definition);
    let mut object = widget(&json!({"replicas": 3}));
    object["status"] = json!({"replicas": 2, "selector": "a=b"});
    object["metadata"] =
        json!({"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}});
    assert_eq!(
        version.scale(&object).unwrap(),
        json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"},
        })
    );
    version.apply_scale(&mut object, &json!({"spec": {"replicas": 5}})).unwrap();
    assert_eq!(object["spec"]["replicas"], 5);
    version.apply_scale(&mut object, &json!({"spec": {}})).unwrap();
    assert_eq!(object["spec"]["replicas"], 0);
    // The object is what may not have a negative number of replicas.
    version.apply_scale(&mut object, &json!({"spec": {"replicas": -1}})).unwrap();
    assert_eq!(
        texts(&version.validate(&object, None)),
        [".spec.replicas: Invalid value: -1: should be a non-negative integer"]
    );
    let mut fresh = widget(&json!({}));
    version.settle_replicas(&mut fresh).unwrap();
    assert_eq!(version.scale(&fresh).unwrap()["spec"], json!({}));
    assert_eq!(
        version.scale(&widget(&json!({}))).unwrap_err().message,
        "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist"
    );
    assert_eq!(
        texts(&version.validate(&widget(&json!({"replicas": -1})), None)),
        [".spec.replicas: Invalid value: -1: should be a non-negative integer"]
    );
    assert_eq!(
        texts(&version.validate(&widget(&json!({"replicas": "x"})), None)),
        [
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
        ]
    );
}

#[test]
fn columns_show_what_their_paths_find() {
    let object = json!({
        "metadata": {"name": "w", "creationTimestamp": "2026-11-21T09:55:30Z", "annotations": {"example.com/a.b": "dots"}},
        "spec": {"size": 5, "ratio": 1.5, "on": true, "list": ["x", "y", "z"], "map": {"k": [1]}},
        "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True", "n": 3}]},
    });
    for (kind, path, cell) in [
        ("integer", ".spec.size", json!(5)),
        ("string", ".spec.size", json!("5")),
        ("number", ".spec.ratio", json!(1.5)),
        ("integer", ".spec.ratio", json!(1)),
        ("boolean", ".spec.on", json!(true)),
        ("string", ".spec.on", json!("true")),
        ("integer", ".spec.on", json!(null)),
        ("string", ".spec.missing.deep", json!(null)),
        ("string", ".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
        ("string", ".status.conditions[?(@.type=='Ready')].status", json!("True")),
        ("string", ".status.conditions[?(@.n>2)].type", json!("Ready")),
        ("string", ".status.conditions[?(@.type != 'Ready')].status", json!("False")),
        ("string", ".status.conditions[?(@.n)].type", json!("Ready")),
        ("string", ".status.conditions[*].type", json!("Synced")),
        ("string", ".status.conditions[-1].type", json!("Ready")),
        ("string", ".status.conditions[-1:].type", json!("Ready")),
        ("string", ".spec.list[0:2]", json!("x")),
        ("string", ".spec.list[1,2]", json!("y")),
        ("string", ".spec['map']['k'][0]", json!("1")),
        ("string", ".spec.map", json!("{\"k\":[1]}")),
        ("string", ".spec.list", json!("[\"x\",\"y\",\"z\"]")),
        ("string", ".metadata.annotations.example\\.com/a\\.b", json!("dots")),
        (
            "string",
            "..status",
            json!(
                "{\"conditions\":[{\"status\":\"False\",\"type\":\"Synced\"},{\"n\":3,\"status\":\"True\",\"type\":\"Ready\"}]}"
            ),
        ),
        ("date", ".metadata.creationTimestamp", json!("4m30s")),
        ("date", ".spec.list[0]", json!("<invalid>")),
        ("string", ".spec[", json!(null)),
    ] {
        let version = json!({"additionalPrinterColumns": [{"name": "C", "type": kind, "jsonPath": path}]});
        let columns = columns::columns(&version);
        assert_eq!(columns[0].cell(&object, now()), "w");
        assert_eq!(columns[1].cell(&object, now()), cell, "{kind} {path}");
    }
    let names = |version: &Value| {
        columns::columns(version).iter().map(|column| column.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&json!({})), ["Name", "Age"]);
}

#[test]
fn formats_accept_and_refuse() {
    for (format, good, bad) in [
        ("date", &["2026-11-21"][..], &["2026-13-01", "21.11.2026", "2026-11-21T00:00:00Z"][..]),
        (
            "date-time",
            &["2026-11-21T10:00:00Z", "2026-11-21T10:00:00.123+01:00"],
            &["2026-11-21", "now", "2026-11-21Tä"],
        ),
        ("duration", &["1h30m", "22 ns", "1.5s", "0", "3 days", "-5m"], &["", "5", "h", "1x", "1.2.3s"]),
        ("email", &["a@example.com", "A <a@example.com>"], &["a", "@example.com", "a@", "a b@c"]),
        ("uri", &["https://example.com/x?y", "/path", "urn:x:y"], &["", "example", "ht tp://x", "://x"]),
        ("hostname", &["example.com", "a-b"], &["", "-a", "a..b", "a b"]),
        ("ipv4", &["10.0.0.1"], &["10.0.0.256", "::1"]),
        ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", ":::"]),
        ("cidr", &["10.0.0.0/8", "fd00::/64"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]),
        ("mac", &["00:00:5e:00:53:01", "0000.5e00.5301"], &["00:00", "zz:00:5e:00:53:01"]),
        (
            "uuid",
            &["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"],
            &["123", "123e4567-e89b-12d3-a456-42661417400g"],
        ),
        ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
        ("byte", &["YWJj"], &["a", ""]),
        ("hexcolor", &["#FFF", "a1b2c3"], &["#FFFF", "red"]),
        ("rgbcolor", &["rgb(1,2,3)"], &["rgb(1,2)", "rgb(1,2,256)"]),
        ("isbn10", &["0321751043"], &["0321751044", "03217510"]),
        ("isbn13", &["978-0321751041"], &["978-0321751042"]),
        ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
        ("ssn", &["111-22-3333"], &["1-2-3", "111-22-33333"]),
        ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
        ("k8s-short-name", &["my-name"], &["My", "a.b", "-a"]),
        ("k8s-long-name", &["my.name"], &["my..name"]),
    ] {
        for text in good {
            assert!(formats::is_valid(format, text), "{format} {text}");
        }
        for text in bad {
            assert!(!formats::is_valid(format, text), "{format} {text}");
        }
        assert!(formats::is_known(format), "{format}");
    }
}

/// A definition like those of certificate managers.
#[test]
fn a_certificate_is_defaulted_checked_and_shown() {
    let definition = prepared(definition(&json!({
        "schema": {"openAPIV3Schema": {
            "type": "object", "required": ["spec"],
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                "spec": {
                    "type": "object", "required": ["issuerRef", "secretName"],
                    "properties": {
                        "secretName": {"type": "string", "minLength": 1},
                        "duration": {"type": "string"},
                        "dnsNames": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
                        "usages": {"type": "array", "items": {"type": "string", "enum": ["signing", "server auth"]}},
                        "revisionHistoryLimit": {"type": "integer", "format": "int32"},
                        "issuerRef": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "kind": {"type": "string", "default": "Issuer"}, "group": {"type": "string"},
                        }},
                        "privateKey": {"type": "object", "default": {"algorithm": "RSA"}, "properties": {
                            "algorithm": {"type": "string", "enum": ["RSA", "ECDSA"]}, "size": {"type": "integer", "default": 2048},
                        }},
                    },
                },
                "status": {"type": "object", "properties": {"conditions": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                    "items": {"type": "object", "required": ["type", "status"], "properties": {
                        "type": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                    }},
                }}},
            },
        }},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type == \"Ready\")].status"},
            {"name": "Secret", "type": "string", "jsonPath": ".spec.secretName", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.secretName"}],
    })));
    assert_eq!(validate_create(&definition), []);
    let version = version(&definition);
    let mut object = widget(&json!({"secretName": "s", "issuerRef": {"name": "i"}, "dnsNames": null}));
    version.apply_defaults(&mut object);
    assert_eq!(
        object["spec"],
        json!({
            "secretName": "s", "issuerRef": {"name": "i", "kind": "Issuer"}, "privateKey": {"algorithm": "RSA", "size": 2048},
        })
    );
    assert_eq!(version.validate(&object, None), []);
    assert_eq!(version.selectable_values(&object), [("spec.secretName".to_owned(), "s".to_owned())]);
    let mut with_status = object.clone();
    with_status["status"] = json!({"conditions": [{"type": "Ready", "status": "Maybe"}]});
    assert_eq!(
        texts(&version.validate_status(&with_status, &object)),
        [
            "status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"True\", \"False\", \"Unknown\"",
        ]
    );
    let cells: Vec<Value> = version.columns().iter().map(|column| column.cell(&with_status, now())).collect();
    assert_eq!(cells, [json!("w"), json!("Maybe"), json!("s"), json!(null)]);
    assert_eq!(
        texts(&version.validate(&widget(&json!({"usages": ["x"], "revisionHistoryLimit": "1"})), None)),
        [
            "spec.issuerRef: Required value",
            "spec.secretName: Required value",
            "spec.revisionHistoryLimit: Invalid value: \"string\": spec.revisionHistoryLimit in body must be of type integer: \"string\"",
            "spec.usages[0]: Unsupported value: \"x\": supported values: \"signing\", \"server auth\"",
        ]
    );
}

/// Regression test: 60 KB of empty items with a large default each grew to 1.3 GB before their size was checked.
#[test]
fn defaults_are_counted_while_they_are_added() {
    let large = "x".repeat(64 << 10);
    let item = json!({"type": "object", "properties": {"a": {"type": "string", "default": large}}});
    let list = json!({"type": "array", "items": item});
    let version = version(&prepared(with_schema(&spec_schema(&json!({"list": list})))));
    let items = |number: usize| widget(&json!({"list": vec![json!({}); number]}));
    for (number, fits) in [(100, true), (127, true), (128, false), (20_000, false)] {
        let mut object = items(number);
        assert_eq!(version.apply_defaults(&mut object), fits, "{number}");
        assert!(object.to_string().len() <= (8 << 20) + items(number).to_string().len() + 64 * number);
        let mut applied = items(number);
        assert_eq!(version.apply_defaults_beside_nulls(&mut applied), fits, "{number}");
        // A stored object must stay readable, whatever the current definition.
        let mut stored = items(number);
        version.read_stored("example.com/v1", &mut stored);
        assert_eq!(stored["spec"]["list"].as_array().unwrap().len(), number);
    }
}
