use proptest::prelude::*;

use super::*;

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

#[test]
fn filters_inside_of_filters_are_bounded() {
    let nested = |levels: usize| format!(".a{}{}", "[?(@".repeat(levels), ")]".repeat(levels));
    for (levels, is_path) in [(1, true), (4, true), (5, false), (100_000, false)] {
        assert_eq!(json_path::JsonPath::parse(&nested(levels)).is_ok(), is_path, "{levels}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// No definition or instance that a client sends may make the server panic.
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
