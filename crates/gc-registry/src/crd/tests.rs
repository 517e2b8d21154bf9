#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use serde_json::{Value, json};

use super::*;

mod instances;
mod laws;
mod patterns;

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

/// Formats each error as `field: detail`.
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
fn unknown_fields_are_not_kept_by_definitions_that_fill_in_what_is_absent() {
    const GONE: &str = "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
        x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    const DEFAULTS: &str = "spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema";
    for (field, wanted) in [
        (json!({"type": "string"}), vec![GONE]),
        (json!({"type": "array", "items": {"type": "string", "default": "x"}}), vec![DEFAULTS, GONE]),
    ] {
        let mut definition = prepared(with_schema(&spec_schema(&json!({"a": field}))));
        definition["spec"]["preserveUnknownFields"] = true.into();
        assert_eq!(texts(&validate_create(&definition)), wanted, "{field}");
    }
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
    // Neither the other group nor the definition itself makes names unavailable.
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
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        ),
        (
            with("/spec/versions/0/name", "V1".into()),
            vec![
                "spec.versions[0].name: Invalid value: \"V1\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
                "spec.version: Invalid value: \"V1\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
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
            spec_schema(
                &json!({"a": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true, "default": {"x": 1}}}),
            ),
            vec![
                ": properties[spec].properties[a].default.apiVersion: Required value",
                ": properties[spec].properties[a].default.kind: Required value",
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

/// Returns the errors in the rules of a field `f`.
fn problems_of_rules(field: &Value) -> Vec<String> {
    let definition = prepared(with_schema(&spec_schema(&json!({"f": field}))));
    let place = "spec.validation.openAPIV3Schema.properties[spec].properties[f]";
    let texts = texts(&validate_create(&definition));
    texts.iter().map(|text| text.replace(place, "F").replace("x-kubernetes-validations", "rules")).collect()
}

#[test]
fn rules_must_fit_the_schema_and_be_cheap() {
    let advice = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and \
                  strings are declared)";
    let printed = |rule: &str, message: &str| {
        format!(
            "{{\"Rule\":{},\"Message\":\"\",\"MessageExpression\":{},\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}",
            Value::from(rule),
            Value::from(message)
        )
    };
    let object = |rule: Value| json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [rule]});
    let list = |rule: &str| json!({"type": "array", "items": {"type": "string", "maxLength": 50, "x-kubernetes-validations": [{"rule": rule}]}});
    let table: Vec<(Value, Vec<String>)> = vec![
        (object(json!({"rule": "self.a == 'x'"})), vec![]),
        (
            object(json!({"rule": "self.b == 'x'"})),
            vec![format!(
                "F.rules[0].rule: Invalid value: {}: compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b == 'x'\n | ....^",
                printed("self.b == 'x'", "")
            )],
        ),
        (
            object(json!({"rule": "self.a"})),
            vec![format!("F.rules[0].rule: Invalid value: {}: cel expression must evaluate to a bool", printed("self.a", ""))],
        ),
        (
            object(json!({"rule": "true", "messageExpression": "1"})),
            vec![format!(
                "F.rules[0].messageExpression: Invalid value: {}: messageExpression must evaluate to a string",
                printed("true", "1")
            )],
        ),
        (
            object(json!({"rule": "true", "fieldPath": ".b"})),
            vec!["F.rules[0].fieldPath: Invalid value: \".b\": must be a valid path".to_owned()],
        ),
        (object(json!({"rule": "true", "fieldPath": ".a"})), vec![]),
        (
            object(json!({"rule": "true", "optionalOldSelf": true})),
            vec!["F.rules[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule".to_owned()],
        ),
        (
            list("url(self).getHost() == 'x'"),
            vec![format!("F.items.rules[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 2.4x {advice}")],
        ),
        (
            list("self == oldSelf"),
            vec![
                format!("F.items.rules[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 2.3x {advice}"),
                "F.items.rules[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within F".to_owned(),
            ],
        ),
    ];
    for (field, expected) in table {
        assert_eq!(problems_of_rules(&field), expected, "{field}");
    }
}
