#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-11-21T10:00:00Z";

fn now() -> jiff::Timestamp {
    NOW.parse().unwrap()
}

fn definition(version: &Value) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
        },
    });
    for (key, value) in version.as_object().unwrap() {
        definition["spec"]["versions"][0][key] = value.clone();
    }
    definition
}

fn with_schema(schema: &Value) -> Value {
    definition(&json!({"schema": {"openAPIV3Schema": schema}}))
}

fn prepared(mut definition: Value) -> Value {
    apply_defaults(&mut definition);
    prepare_create(&mut definition);
    definition
}

fn version(definition: &Value) -> std::sync::Arc<CustomVersion> {
    definitions(definition).unwrap().remove(0).custom.unwrap()
}

/// `field: detail` of each problem.
fn texts(problems: &[crate::error::FieldError]) -> Vec<String> {
    problems.iter().map(|problem| format!("{}: {}", problem.field, problem.detail)).collect()
}

fn spec_schema(properties: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
}

fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

#[test]
fn definitions_get_their_defaults_and_status() {
    let mut definition = prepared(with_schema(&json!({"type": "object"})));
    assert_eq!(
        definition["spec"]["names"],
        json!({
            "plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList",
        })
    );
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(definition["metadata"]["generation"], 1);
    assert_eq!(validate_create(&definition), []);
    assert!(settle_names(&mut definition, &NamesInUse::default(), now()));
    assert_eq!(
        definition["status"],
        json!({
            "acceptedNames": {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found", "lastTransitionTime": NOW},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted", "lastTransitionTime": NOW},
            ],
            "storedVersions": ["v1"],
        })
    );
    assert!(!settle_names(&mut definition, &NamesInUse::default(), now()), "nothing left to do");
}

#[test]
fn names_in_use_keep_a_definition_from_being_established() {
    let mut first = prepared(with_schema(&json!({"type": "object"})));
    first["spec"]["names"]["shortNames"] = json!(["wg"]);
    settle_names(&mut first, &NamesInUse::default(), now());
    let served = definitions(&first).unwrap();

    let mut second = prepared(with_schema(&json!({"type": "object"})));
    second["spec"]["names"] = json!({"plural": "others", "kind": "Widget", "singular": "other", "listKind": "OtherList", "shortNames": ["wg", "o"]});
    let in_use = NamesInUse::of(&served, "example.com", "others");
    settle_names(&mut second, &in_use, now());
    assert_eq!(
        second["status"]["acceptedNames"],
        json!({
            "plural": "others", "kind": "", "singular": "other", "listKind": "OtherList",
        })
    );
    assert_eq!(second["status"]["conditions"][0]["reason"], "ShortNamesConflict");
    assert_eq!(second["status"]["conditions"][0]["message"], "\"wg\" is already in use");
    assert_eq!(second["status"]["conditions"][1]["reason"], "NotAccepted");
    assert!(!is_established(&second));
    // The other group and the definition itself hold nothing back.
    assert_eq!(NamesInUse::of(&served, "other.com", "others"), NamesInUse::default());
    assert_eq!(NamesInUse::of(&served, "example.com", "widgets"), NamesInUse::default());
    settle_names(&mut second, &NamesInUse::default(), now());
    assert!(is_established(&second));
}

#[test]
fn deletion_goes_through_its_stages() {
    let mut definition = prepared(with_schema(&json!({"type": "object"})));
    settle_names(&mut definition, &NamesInUse::default(), now());
    for (stage, terminating, reason) in [
        (Termination::Pending, true, "InstanceDeletionPending"),
        (Termination::InProgress, true, "InstanceDeletionInProgress"),
        (Termination::Failed, true, "InstanceDeletionFailed"),
        (Termination::CheckFailed, true, "InstanceDeletionCheck"),
        (Termination::Completed, false, "InstanceDeletionCompleted"),
        (Termination::NeverEstablished, false, "NeverEstablished"),
        (Termination::OverlappingBuiltIn, false, "OverlappingBuiltInResource"),
    ] {
        set_termination(&mut definition, stage, now());
        assert_eq!(
            (is_terminating(&definition), &definition["status"]["conditions"][2]["reason"]),
            (terminating, &reason.into())
        );
    }
    assert_eq!(definition["status"]["conditions"].as_array().unwrap().len(), 3);
}

#[test]
fn transition_times_move_with_the_status_only() {
    let mut definition = prepared(with_schema(&json!({"type": "object"})));
    let later: jiff::Timestamp = "2026-11-21T11:00:00Z".parse().unwrap();
    set_termination(&mut definition, Termination::Pending, now());
    set_termination(&mut definition, Termination::InProgress, later);
    assert_eq!(definition["status"]["conditions"][0]["lastTransitionTime"], NOW);
    set_termination(&mut definition, Termination::Completed, later);
    assert_eq!(definition["status"]["conditions"][0]["lastTransitionTime"], "2026-11-21T11:00:00Z");
}

#[test]
fn protected_groups_need_an_approval() {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let protected = |annotation: Option<&str>| {
        let mut definition = prepared(with_schema(&json!({"type": "object"})));
        definition["metadata"]["name"] = "widgets.sig.k8s.io".into();
        definition["spec"]["group"] = "sig.k8s.io".into();
        if let Some(annotation) = annotation {
            definition["metadata"]["annotations"] = json!({APPROVAL_ANNOTATION: annotation});
        }
        definition
    };
    let path = "metadata.annotations[api-approved.kubernetes.io]";
    for (annotation, problems, condition) in [
        (
            None,
            vec![format!(
                "{path}: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", {SEE}"
            )],
            ("False", "MissingAnnotation"),
        ),
        (
            Some("yes"),
            vec![format!(
                "{path}: Invalid value: \"yes\": protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", {SEE}"
            )],
            ("False", "InvalidAnnotation"),
        ),
        (Some("unapproved, a test"), vec![], ("False", "UnapprovedAnnotation")),
        (Some("https://github.com/kubernetes/kubernetes/pull/1"), vec![], ("True", "ApprovedAnnotation")),
    ] {
        let mut definition = protected(annotation);
        assert_eq!(texts(&validate_create(&definition)), problems, "{annotation:?}");
        assert_eq!(validate_update(&definition, &definition), [], "what is stored may stay: {annotation:?}");
        settle_names(&mut definition, &NamesInUse::default(), now());
        let found = &definition["status"]["conditions"][2];
        assert_eq!(
            (found["status"].as_str(), found["reason"].as_str()),
            (Some(condition.0), Some(condition.1))
        );
    }
}

#[test]
fn bad_definitions_are_refused() {
    let good = || prepared(with_schema(&json!({"type": "object"})));
    let with = |path: &str, value: Value| {
        let mut definition = good();
        *definition.pointer_mut(path).unwrap() = value;
        definition
    };
    let storage_off = {
        let mut definition = with_schema(&json!({"type": "object"}));
        definition["spec"]["versions"][0]["storage"] = false.into();
        prepared(definition)
    };
    let table: Vec<(Value, Vec<&str>)> = vec![
        (good(), vec![]),
        (
            with("/metadata/name", "things.example.com".into()),
            vec![
                "metadata.name: Invalid value: \"things.example.com\": must be spec.names.plural+\".\"+spec.group",
            ],
        ),
        (
            storage_off,
            vec![
                "spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: must have exactly one version marked as storage version",
                "status.storedVersions: Invalid value: null: must have at least one stored version",
            ],
        ),
        (prepared(definition(&json!({}))), vec!["spec.versions[0].schema.openAPIV3Schema: Required value"]),
        (
            with("/spec/scope", "Galaxy".into()),
            vec!["spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\""],
        ),
        (
            with("/spec/names/listKind", "Widget".into()),
            vec!["spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same"],
        ),
        (
            with("/spec/conversion", json!({"strategy": "Webhook"})),
            vec![
                "spec.conversion.strategy: Invalid value: \"Webhook\": conversion webhooks are not supported by this server: versions may differ in apiVersion only (strategy None)",
            ],
        ),
        (
            with("/spec/versions/0/name", "V1".into()),
            vec![
                "spec.versions[0].name: Invalid value: \"V1\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
                "status.storedVersions: Invalid value: [\"v1\"]: must have the storage version V1",
                "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions",
            ],
        ),
    ];
    for (definition, problems) in table {
        assert_eq!(texts(&validate_create(&definition)), problems);
    }
}

#[test]
fn schemas_must_be_structural() {
    const AT: &str = "spec.validation.openAPIV3Schema";
    let table: Vec<(Value, Vec<&str>)> = vec![
        (json!({}), vec![": type: Required value: must not be empty at the root"]),
        (json!({"type": "string"}), vec![": type: Invalid value: \"string\": must be object at the root"]),
        (
            spec_schema(&json!({"a": {}})),
            vec![
                ": properties[spec].properties[a].type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            spec_schema(&json!({"a": {"type": "array"}})),
            vec![": properties[spec].properties[a].items: Required value: must be specified"],
        ),
        (
            spec_schema(&json!({"a": {"type": "text"}})),
            vec![
                ": properties[spec].properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
        (
            spec_schema(
                &json!({"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}),
            ),
            vec![],
        ),
        (
            spec_schema(
                &json!({"a": {"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}}),
            ),
            vec![],
        ),
        (
            spec_schema(&json!({"a": {"type": "string", "anyOf": [{"type": "string"}, {"pattern": "x"}]}})),
            vec![": properties[spec].properties[a].anyOf[0].type: Forbidden: must be empty to be structural"],
        ),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"], "properties": {"a": {"pattern": "x"}}}]}),
            vec![
                ": properties[a]: Required value: because it is defined in spec.validation.openAPIV3Schema.anyOf[0].properties[a]",
            ],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            vec![": additionalProperties: Forbidden: must not be used at the root"],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            vec![
                ": properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        ),
        (
            spec_schema(&json!({"a": {"type": "object", "x-kubernetes-embedded-resource": true}})),
            vec![
                ": properties[spec].properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ],
        ),
        (
            spec_schema(&json!({"a": {"type": "array", "uniqueItems": true, "items": {"type": "string"}}})),
            vec![
                ": properties[spec].properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        ),
        (
            spec_schema(
                &json!({"a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}),
            ),
            vec![
                ": properties[spec].properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            spec_schema(
                &json!({"a": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}}),
            ),
            vec![
                ": properties[spec].properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            spec_schema(&json!({"a": {"type": "integer", "default": "one"}})),
            vec![
                ": properties[spec].properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ],
        ),
        (
            spec_schema(&json!({"a": {"type": "object", "default": {"x": 1}}})),
            vec![
                ": properties[spec].properties[a].default: Invalid value: {\"x\":1}: must not have unknown fields",
            ],
        ),
        (
            spec_schema(&json!({"a": {"type": "string", "$ref": "#/x"}})),
            vec![": properties[spec].properties[a].$ref: Forbidden: $ref is not supported"],
        ),
        (
            spec_schema(&json!({"a": {"type": "string", "x-kubernetes-validations": [{"rule": " "}]}})),
            vec![
                ": properties[spec].properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified",
            ],
        ),
    ];
    for (schema, problems) in table {
        let problems: Vec<String> = problems.iter().map(|text| format!("{AT}.{}", &text[2..])).collect();
        assert_eq!(texts(&validate_create(&prepared(with_schema(&schema)))), problems, "{schema}");
    }
    let pattern = with_schema(&spec_schema(&json!({"a": {"type": "string", "pattern": "("}})));
    let found = texts(&validate_create(&prepared(pattern)));
    assert!(found[0].starts_with("spec.validation.openAPIV3Schema.properties[spec].properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: "), "{found:?}");
}

#[test]
fn schemas_that_differ_are_named_by_their_version() {
    let mut definition = with_schema(&json!({"type": "object"}));
    let second = json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {}}});
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    assert_eq!(
        texts(&validate_create(&prepared(definition))),
        ["spec.versions[1].schema.openAPIV3Schema.type: Required value: must not be empty at the root",]
    );
}

#[test]
fn what_would_break_stored_objects_is_immutable() {
    let mut stored = prepared(with_schema(&json!({"type": "object"})));
    let mut changed = stored.clone();
    changed["spec"]["scope"] = "Cluster".into();
    assert_eq!(validate_update(&changed, &stored), [], "not yet established");
    settle_names(&mut stored, &NamesInUse::default(), now());
    let mut changed = stored.clone();
    changed["spec"]["scope"] = "Cluster".into();
    changed["spec"]["group"] = "example.org".into();
    changed["status"] = json!({});
    prepare_update(&mut changed, &stored);
    assert_eq!(changed["status"], stored["status"]);
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(
        texts(&validate_update(&changed, &stored)),
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.group: Invalid value: \"example.org\": field is immutable",
        ]
    );
}

#[test]
fn a_new_storage_version_is_remembered() {
    let stored = prepared(with_schema(&json!({"type": "object"})));
    let mut changed = stored.clone();
    changed["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
        {"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
    ]);
    prepare_update(&mut changed, &stored);
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(validate_update(&changed, &stored), []);
}

#[test]
fn unknown_formats_are_warned_about() {
    let schema = spec_schema(&json!({
        "a": {"type": "string", "format": "date-time"}, "b": {"type": "string", "format": "colour"},
        "c": {"type": "integer", "format": "int32"}, "d": {"type": "integer", "format": "int8"},
    }));
    let definition = with_schema(&schema);
    assert_eq!(
        warnings(&definition, None),
        ["unrecognized format \"colour\"", "unrecognized format \"int8\""]
    );
    assert_eq!(warnings(&definition, Some(&definition)), Vec::<String>::new());
}

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
            vec!["spec.a: Invalid value: \"number\": spec.a in body must be of type integer: \"number\""],
        ),
        (json!({"type": "integer", "nullable": true}), json!(null), vec![]),
        (
            json!({"type": "string"}),
            json!({}),
            vec!["spec.a: Invalid value: \"object\": spec.a in body must be of type string: \"object\""],
        ),
        (json!({"x-kubernetes-int-or-string": true}), json!("10%"), vec![]),
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
            vec!["spec.a: Invalid value: 2: spec.a in body should be less than or equal to 1.5"],
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
        // What is stored and does not change is not checked again, but for list types, which only look at
        // what is stored.
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
            "spec.new: Too long: may not be more than 1 bytes",
        ]
    );
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let definition = with_schema(&spec_schema(&json!({
        "size": {"type": "integer"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })));
    let version = version(&definition);
    let mut object = widget(&json!({"size": 1, "unknown": true, "free": {"anything": ["goes"]}}));
    object["extra"] = 1.into();
    assert_eq!(version.prune(&mut object), ["unknown field \"extra\"", "unknown field \"spec.unknown\""]);
    assert_eq!(object, widget(&json!({"size": 1, "free": {"anything": ["goes"]}})));
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
    assert_eq!(version.apply_scale(&mut object, &json!({"spec": {"replicas": -1}})).unwrap_err().code, 422);
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
        ("byte", &["YWJj", ""], &["a"]),
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

/// A definition as certificate managers have it.
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

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z.$\\[\\](]{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["object", "array", "string", "integer", ".spec.a", "None", "map", "a"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        let keys = prop::sample::select(vec![
            "a",
            "spec",
            "status",
            "type",
            "properties",
            "items",
            "additionalProperties",
            "default",
            "nullable",
            "required",
            "enum",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "pattern",
            "x-kubernetes-preserve-unknown-fields",
            "metadata",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-embedded-resource",
            "names",
            "versions",
            "schema",
            "openAPIV3Schema",
            "conditions",
            "subresources",
            "scale",
            "generation",
            "x-kubernetes-int-or-string",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..5).prop_map(|map| {
                Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing that is sent as a definition or an instance makes the server panic.
    #[test]
    fn arbitrary_documents_do_not_panic(document in any_json(), schema in any_json(), object in any_json(), old in any_json()) {
        for mut definition in [document, with_schema(&schema)] {
            apply_defaults(&mut definition);
            prepare_create(&mut definition);
            prepare_update(&mut definition, &old);
            prepare_status_update(&mut definition, &old);
            settle_names(&mut definition, &NamesInUse::default(), now());
            set_termination(&mut definition, Termination::Pending, now());
            let _ = (validate_create(&definition), validate_update(&definition, &old), warnings(&definition, None));
            let _ = definitions(&definition);
        }
        let version = version(&with_schema(&schema));
        let mut object = object;
        version.prune(&mut object);
        version.apply_defaults(&mut object);
        version.prepare_create(&mut object);
        let _ = (version.validate(&object, Some(&old)), version.validate_status(&object, &old));
        if let Some(map) = object.as_object_mut() {
            map.insert("kind".into(), "Widget".into());
            map.insert("apiVersion".into(), "example.com/v1".into());
        }
        let _ = (version.validate(&object, Some(&old)), version.validate_status(&object, &old));
        version.prepare_update(&mut object, &old, "");
        version.prepare_update(&mut object, &old, "status");
        let _ = (version.scale(&object), version.selectable_values(&object));
    }

    #[test]
    fn pruning_and_defaulting_are_idempotent(schema in any_json(), object in any_json()) {
        let version = version(&with_schema(&schema));
        let mut once = object;
        version.prune(&mut once);
        let mut twice = once.clone();
        prop_assert_eq!(version.prune(&mut twice), Vec::<String>::new());
        prop_assert_eq!(&twice, &once);
        version.apply_defaults(&mut once);
        let mut twice = once.clone();
        version.apply_defaults(&mut twice);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn paths_do_not_panic(path in "[.a\\[\\]*?(@=<'\"0-9:,\\\\ä-]{0,20}", object in any_json()) {
        if let Ok(path) = json_path::JsonPath::parse(&path) {
            let _ = path.find(&object);
        }
        for format in ["date", "date-time", "duration", "email", "uri", "uuid", "mac", "cidr", "ssn", "isbn", "rgbcolor"] {
            let _ = formats::is_valid(format, &path);
        }
    }
}
