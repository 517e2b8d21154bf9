//! Defaults, preparation and validation of CustomResourceDefinition objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::conditions::{APPROVAL_ANNOTATION, approval, is_established, is_protected_group};
use super::field::{
    forbidden, invalid, invalid_text, label_problems, not_supported, required, subdomain_problems, too_many,
};
use super::structural;
use crate::error::FieldError;
use crate::kubernetes::KubernetesVersion;

/// Supported versions of ConversionReview.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Maximum number of selectable fields per version.
const MOST_SELECTABLE_FIELDS: usize = 8;

/// Drops members that Go omits from schemas below `items` and `additionalProperties`, whose types have their own decoding.
fn drop_empties(schema: &mut Value, below_union: bool) {
    let Some(members) = schema.as_object_mut() else { return };
    if below_union {
        members.retain(|key, value| match value {
            Value::Null => false,
            Value::Array(items) if key != "default" => !items.is_empty(),
            _ => true,
        });
    }
    for (key, value) in members {
        match (key.as_str(), value) {
            ("items" | "additionalProperties", value @ Value::Object(_)) => drop_empties(value, true),
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(|property| drop_empties(property, below_union));
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                for branch in branches {
                    drop_empties(branch, below_union);
                }
            }
            ("not", value) => drop_empties(value, below_union),
            _ => {}
        }
    }
}

/// Fills in the defaults of a definition: singular name, list kind, conversion.
pub fn apply_defaults(definition: &mut Value) {
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            drop_empties(schema, false);
        }
    }
    let stored = &definition["status"]["storedVersions"];
    if stored.as_array().is_some_and(Vec::is_empty) {
        record_storage_version(definition);
    }
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let empty = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().is_empty();
        if empty(names.get("singular")) && !kind.is_empty() {
            names.insert("singular".into(), kind.to_lowercase().into());
        }
        if empty(names.get("listKind")) && !kind.is_empty() {
            names.insert("listKind".into(), format!("{kind}List").into());
        }
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({"strategy": "None"});
    }
    if let Some(service) =
        conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut)
        && service.get("port").is_none_or(Value::is_null)
    {
        service.insert("port".into(), 443.into());
    }
    let webhook = &conversion["webhook"];
    let has_versions =
        webhook["conversionReviewVersions"].as_array().is_some_and(|versions| !versions.is_empty());
    if !webhook["clientConfig"].is_object()
        && !has_versions
        && let Some(conversion) = conversion.as_object_mut()
    {
        conversion.remove("webhook");
    }
}

/// Prepares a definition for its creation: generation 1, and a status with only the storage version.
pub fn prepare_create(definition: &mut Value) {
    set(definition, &["metadata", "generation"], 1.into());
    let status =
        json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null});
    set(definition, &["status"], status);
    record_storage_version(definition);
}

/// Prepares an update at the main endpoint: keeps the status, increases the generation if the spec changes, and records a new
/// storage version.
pub fn prepare_update(definition: &mut Value, stored: &Value) {
    set(definition, &["status"], stored["status"].clone());
    let raised = i64::from(definition["spec"] != stored["spec"]);
    let generation = stored["metadata"]["generation"].as_i64().unwrap_or_default().saturating_add(raised);
    set(definition, &["metadata", "generation"], generation.into());
    record_storage_version(definition);
}

/// Prepares an update at the status endpoint: keeps everything except status and metadata.
pub fn prepare_status_update(definition: &mut Value, stored: &Value) {
    set(definition, &["spec"], stored["spec"].clone());
    set(definition, &["metadata", "generation"], stored["metadata"]["generation"].clone());
    if definition["status"]["storedVersions"].is_null() {
        record_storage_version(definition);
    }
    for name in ["labels", "annotations", "ownerReferences"] {
        match stored["metadata"].get(name) {
            Some(value) => set(definition, &["metadata", name], value.clone()),
            None => {
                if let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove(name);
                }
            }
        }
    }
}

/// Sets a member in nested objects, which are created if missing.
fn set(value: &mut Value, path: &[&str], member: Value) {
    let mut place = value;
    for name in path {
        if !place.is_object() {
            *place = json!({});
        }
        let Some(map) = place.as_object_mut() else { return };
        place = map.entry(*name).or_insert(Value::Null);
    }
    *place = member;
}

fn record_storage_version(definition: &mut Value) {
    let storage = versions(definition).iter().find(|version| version["storage"] == true);
    let Some(name) = storage.map(|version| version["name"].clone()) else { return };
    let Some(status) = definition.get_mut("status").and_then(Value::as_object_mut) else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if stored.is_null() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut()
        && !stored.contains(&name)
    {
        stored.push(name);
    }
}

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Checks a new definition (defaulted and prepared). Metadata is checked elsewhere, as for all kinds.
#[must_use]
pub fn validate_create(definition: &Value) -> Vec<FieldError> {
    let mut problems = Vec::new();
    // No names have been accepted that could be checked.
    validate_spec(definition, &mut problems);
    validate_stored_versions(definition, &mut problems);
    validate_approval(definition, None, &mut problems);
    problems
}

/// Checks an update of a definition at the main endpoint (defaulted and prepared).
#[must_use]
pub fn validate_update(definition: &Value, stored: &Value) -> Vec<FieldError> {
    let mut problems = Vec::new();
    validate_spec(definition, &mut problems);
    let (spec, old) = (&definition["spec"], &stored["spec"]);
    let mut immutable = |path: &str, new: &Value, old: &Value| {
        if new != old {
            problems.push(invalid(path, new, "field is immutable"));
        }
    };
    if is_established(stored) {
        immutable("spec.scope", &spec["scope"], &old["scope"]);
        immutable("spec.names.kind", &spec["names"]["kind"], &old["names"]["kind"]);
    }
    immutable("spec.group", &spec["group"], &old["group"]);
    immutable("spec.names.plural", &spec["names"]["plural"], &old["names"]["plural"]);
    validate_names(&definition["status"]["acceptedNames"], "status.acceptedNames", &mut problems);
    validate_stored_versions(definition, &mut problems);
    validate_approval(definition, Some(stored), &mut problems);
    problems
}

/// Checks an update of a definition at the status endpoint.
#[must_use]
pub fn validate_status_update(definition: &Value) -> Vec<FieldError> {
    let mut problems = Vec::new();
    validate_names(&definition["status"]["acceptedNames"], "status.acceptedNames", &mut problems);
    problems
}

/// Returns warnings for a new or changed definition: about unknown formats, unless `stored` already had them.
#[must_use]
pub fn warnings(definition: &Value, stored: Option<&Value>) -> Vec<String> {
    let found = |definition: &Value, collect: fn(&Value, &mut BTreeSet<String>)| {
        let mut found = BTreeSet::new();
        for version in versions(definition) {
            collect(&version["schema"]["openAPIV3Schema"], &mut found);
        }
        found
    };
    let new = |collect: fn(&Value, &mut BTreeSet<String>)| {
        let old = stored.map(|stored| found(stored, collect)).unwrap_or_default();
        let found = found(definition, collect);
        found.difference(&old).cloned().collect::<Vec<_>>()
    };
    let formats = new(structural::unknown_formats);
    let mut texts: Vec<String> =
        formats.iter().map(|format| format!("unrecognized format {format:?}")).collect();
    if KubernetesVersion::chosen() >= KubernetesVersion::V1_37 {
        texts.extend(new(structural::types_of_set_items).iter().map(|kind| {
            format!(
                "x-kubernetes-list-type: set for items of type {kind:?} is not supported by server-side apply or CEL \
                 validation rules"
            )
        }));
    }
    texts
}

/// Reports whether a part is the same in all versions: kube-apiserver moves such parts to the top of the spec before it validates,
/// which affects messages.
fn is_shared(definition: &Value, key: &str) -> bool {
    let versions = versions(definition);
    let first = versions.first().map(|version| &version[key]);
    first.is_some_and(|first| !is_empty(first) && versions.iter().all(|version| version[key] == *first))
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn validate_spec(definition: &Value, problems: &mut Vec<FieldError>) {
    let spec = &definition["spec"];
    let mut budget = gc_cel::PatternBudget::default();
    let mut schemas = versions(definition).iter().map(|version| &version["schema"]["openAPIV3Schema"]);
    if !schemas.all(|schema| structural::has_few_patterns(schema, &mut budget)) {
        let why = format!(
            "the patterns of all schemas take more than {} MiB when they are compiled: shorten them or repeat less",
            gc_cel::MAX_COMPILED_BYTES >> 20
        );
        // Other checks would compile them.
        return problems.push(forbidden("spec.versions", &why));
    }
    let group = text(spec, "group");
    if group.is_empty() {
        problems.push(required("spec.group", ""));
    } else if let wrong = subdomain_problems(group)
        && !wrong.is_empty()
    {
        problems.push(invalid_text("spec.group", group, &wrong));
    } else if !group.contains('.') {
        problems.push(invalid_text("spec.group", group, "should be a domain with at least one dot"));
    }
    match text(spec, "scope") {
        "" => problems.push(required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            let supported = ["Cluster".to_owned(), "Namespaced".to_owned()];
            problems.push(not_supported("spec.scope", &other.into(), &supported));
        }
    }
    validate_versions(definition, problems);
    if spec["preserveUnknownFields"] == true {
        if has_defaults(spec) {
            let why = "must be false in order to use defaults in the schema";
            problems.push(invalid("spec.preserveUnknownFields", &true.into(), why));
        }
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                   spec.versions[*].schema instead";
        problems.push(invalid("spec.preserveUnknownFields", &true.into(), why));
    }
    let names = &spec["names"];
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(names, name).is_empty() {
            problems.push(required(format!("spec.names.{name}"), ""));
        }
    }
    validate_names(names, "spec.names", problems);
    validate_shared_parts(definition, problems);
    validate_conversion(&spec["conversion"], problems);
}

/// Reports whether any schema of a definition has defaults.
fn has_defaults(spec: &Value) -> bool {
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions.map(|version| &version["schema"]["openAPIV3Schema"]).any(schema_has_defaults)
}

fn schema_has_defaults(schema: &Value) -> bool {
    const INNER: [&str; 4] = ["items", "additionalProperties", "additionalItems", "not"];
    const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
    const MAPS: [&str; 3] = ["properties", "patternProperties", "definitions"];
    let mut in_lists = LISTS.iter().filter_map(|list| schema[list].as_array()).flatten();
    let mut in_maps = MAPS.iter().filter_map(|map| schema[map].as_object()).flat_map(serde_json::Map::values);
    !schema["default"].is_null()
        || INNER.iter().filter_map(|member| schema.get(member)).any(schema_has_defaults)
        || in_lists.any(schema_has_defaults)
        || in_maps.any(schema_has_defaults)
}

fn validate_versions(definition: &Value, problems: &mut Vec<FieldError>) {
    let versions = versions(definition);
    let shared_schema = is_shared(definition, "schema");
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            problems.push(required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    let mut names = BTreeSet::new();
    let mut unique = true;
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "name");
        unique &= names.insert(name);
        let wrong = label_problems(name);
        if !wrong.is_empty() {
            problems.push(invalid_text(format!("{path}.name"), name, &wrong));
        }
        validate_deprecation(version, &path, problems);
        let schema = &version["schema"]["openAPIV3Schema"];
        let has_status = version["subresources"]["status"].is_object();
        if !shared_schema {
            let path = format!("{path}.schema.openAPIV3Schema");
            problems.extend(structural::validate_schema(&path, schema, has_status));
        }
        if !is_shared(definition, "subresources") {
            validate_subresources(&version["subresources"], &format!("{path}.subresources"), problems);
        }
        if !is_shared(definition, "additionalPrinterColumns") {
            validate_columns(version, &format!("{path}.additionalPrinterColumns"), problems);
        }
        if !is_shared(definition, "selectableFields") {
            validate_selectable(version, &format!("{path}.selectableFields"), problems);
        }
    }
    if !unique {
        problems.push(invalid_versions(definition, "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        problems.push(invalid_versions(definition, why));
    }
    // Upstream sets the former field `spec.version` to the first version's name.
    let first = versions.first().map(|version| text(version, "name")).unwrap_or_default();
    let wrong = label_problems(first);
    if !first.is_empty() && !wrong.is_empty() {
        problems.push(invalid_text("spec.version", first, &wrong));
    }
}

/// Validates the parts at the top of the spec, which all versions share.
fn validate_shared_parts(definition: &Value, problems: &mut Vec<FieldError>) {
    let versions = versions(definition);
    let Some(first) = versions.first() else { return };
    if is_shared(definition, "schema") {
        let has_status = versions.iter().any(|version| version["subresources"]["status"].is_object());
        let schema = &first["schema"]["openAPIV3Schema"];
        problems.extend(structural::validate_schema("spec.validation.openAPIV3Schema", schema, has_status));
    }
    if is_shared(definition, "subresources") {
        validate_subresources(&first["subresources"], "spec.subresources", problems);
    }
    if is_shared(definition, "additionalPrinterColumns") {
        validate_columns(first, "spec.additionalPrinterColumns", problems);
    }
    if is_shared(definition, "selectableFields") {
        validate_selectable(first, "spec.selectableFields", problems);
    }
}

/// Returns an error of the list of versions, which kube-apiserver prints in its internal form.
fn invalid_versions(definition: &Value, why: &str) -> FieldError {
    let printed: Vec<String> = versions(definition)
        .iter()
        .map(|version| {
            let flag = |key: &str| version[key].as_bool().unwrap_or(false);
            let part =
                |key: &str| if is_shared(definition, key) { Value::Null } else { version[key].clone() };
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\
                 \"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
                Value::from(text(version, "name")),
                flag("served"),
                flag("storage"),
                flag("deprecated"),
                version["deprecationWarning"],
                part("schema"),
                part("subresources"),
                part("additionalPrinterColumns"),
                part("selectableFields"),
            )
        })
        .collect();
    let list = if printed.is_empty() { "null".to_owned() } else { format!("[{}]", printed.join(",")) };
    super::field::error(
        "spec.versions",
        crate::error::CauseReason::Invalid,
        format!("Invalid value: {list}: {why}"),
    )
}

fn validate_deprecation(version: &Value, path: &str, problems: &mut Vec<FieldError>) {
    /// Maximum length of a warning in bytes.
    const LONGEST: usize = 256;
    let Some(warning) = version["deprecationWarning"].as_str() else { return };
    let mut bad = |why: &str| problems.push(invalid_text(format!("{path}.deprecationWarning"), warning, why));
    if version["deprecated"] != true {
        bad("can only be set for deprecated versions");
        return;
    }
    if warning.len() > LONGEST {
        bad("must be <= 256 characters long");
    }
    if warning.is_empty() {
        bad("must not be an empty string");
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        bad(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

fn validate_names(names: &Value, path: &str, problems: &mut Vec<FieldError>) {
    for name in ["plural", "singular"] {
        let value = text(names, name);
        let wrong = label_problems(value);
        if !value.is_empty() && !wrong.is_empty() {
            problems.push(invalid_text(format!("{path}.{name}"), value, &wrong));
        }
    }
    for name in ["kind", "listKind"] {
        let value = text(names, name);
        let wrong = label_problems(&value.to_lowercase());
        if !value.is_empty() && !wrong.is_empty() {
            let why = format!("may have mixed case, but should otherwise match: {wrong}");
            problems.push(invalid_text(format!("{path}.{name}"), value, &why));
        }
    }
    let labels = |key: &str, problems: &mut Vec<FieldError>| {
        for (index, value) in
            names[key].as_array().into_iter().flatten().filter_map(Value::as_str).enumerate()
        {
            let wrong = label_problems(value);
            if !wrong.is_empty() {
                problems.push(invalid_text(format!("{path}.{key}[{index}]"), value, &wrong));
            }
        }
    };
    labels("shortNames", problems);
    if !text(names, "kind").is_empty() && text(names, "kind") == text(names, "listKind") {
        let why = "kind and listKind may not be the same";
        problems.push(invalid_text(format!("{path}.listKind"), text(names, "listKind"), why));
    }
    labels("categories", problems);
}

fn validate_subresources(subresources: &Value, path: &str, problems: &mut Vec<FieldError>) {
    let Some(scale) = subresources["scale"].as_object() else { return };
    let at = |key: &str| scale.get(key).and_then(Value::as_str).unwrap_or_default();
    for (key, prefix) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let (path, value) = (format!("{path}.scale.{key}"), at(key));
        if value.is_empty() {
            problems.push(required(path, ""));
        } else if !value.starts_with('.') {
            problems.push(invalid_text(path, value, "must be a simple json path starting with ."));
        } else if !value.starts_with(&format!("{prefix}.")) {
            problems.push(invalid_text(path, value, &format!("should be a json path under {prefix}")));
        }
    }
    let (path, value) = (format!("{path}.scale.labelSelectorPath"), at("labelSelectorPath"));
    if value.is_empty() {
    } else if !value.starts_with('.') {
        problems.push(invalid_text(path, value, "must be a simple json path starting with ."));
    } else if !value.starts_with(".spec.") && !value.starts_with(".status.") {
        problems.push(invalid_text(path, value, "should be a json path under either .spec or .status"));
    }
}

fn validate_columns(version: &Value, path: &str, problems: &mut Vec<FieldError>) {
    const TYPES: &str = "must be one of boolean,date,integer,number,string";
    const FORMATS: [&str; 7] = ["byte", "date", "date-time", "double", "float", "int32", "int64"];
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    for (index, column) in columns.enumerate() {
        let path = format!("{path}[{index}]");
        if text(column, "name").is_empty() {
            problems.push(required(format!("{path}.name"), ""));
        }
        match text(column, "type") {
            "" => problems.push(required(format!("{path}.type"), TYPES)),
            "boolean" | "date" | "integer" | "number" | "string" => {}
            other => problems.push(invalid_text(format!("{path}.type"), other, TYPES)),
        }
        let format = text(column, "format");
        if !format.is_empty() && format != "password" && !FORMATS.contains(&format) {
            let why = "must be one of byte,date,date-time,double,float,int32,int64,password";
            problems.push(invalid_text(format!("{path}.format"), format, why));
        }
        match text(column, "jsonPath") {
            "" => problems.push(required(format!("{path}.JSONPath"), "")),
            value if !value.starts_with('.') => {
                let why = "must be a simple json path starting with .";
                problems.push(invalid_text(format!("{path}.JSONPath"), value, why));
            }
            _ => {}
        }
    }
}

fn validate_selectable(version: &Value, path: &str, problems: &mut Vec<FieldError>) {
    let fields = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let schema = &version["schema"]["openAPIV3Schema"];
    if !fields.is_empty() && !schema.is_object() {
        problems.push(invalid_text(path, "", "may only be set when validations.schema is included"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let json_path = text(field, "jsonPath");
        let path = format!("{path}[{index}].jsonPath");
        if json_path.is_empty() {
            problems.push(required(path, ""));
            continue;
        }
        let found = match selected(schema, json_path) {
            Ok(found) => found,
            Err(why) => {
                problems.push(invalid_text(path, json_path, &format!("is an invalid path: {why}")));
                continue;
            }
        };
        if json_path == ".metadata" || json_path.starts_with(".metadata.") {
            problems.push(invalid_text(path.clone(), json_path, "must not point to fields in metadata"));
        }
        if !matches!(text(found, "type"), "string" | "boolean" | "integer") {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                       with formats are allowed.";
            problems.push(invalid_text(path.clone(), json_path, why));
        }
        if !seen.insert(json_path) {
            problems.push(super::field::duplicate(path, &json_path.into()));
        }
    }
    if seen.len() > MOST_SELECTABLE_FIELDS {
        problems.push(too_many(path, seen.len(), MOST_SELECTABLE_FIELDS as u64));
    }
}

/// Returns the schema of the field that a path of names leads to.
fn selected<'s>(schema: &'s Value, json_path: &str) -> Result<&'s Value, String> {
    let token = |text: &str| {
        let length = text.find(['.', '[', ']']).unwrap_or(text.len()).max(1);
        text.get(..length).unwrap_or(text).to_owned()
    };
    let (mut schema, mut rest) = (schema, json_path);
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix('.') else {
            return Err(match token(rest).as_str() {
                "[" => "array notation is not allowed".to_owned(),
                other => format!("expected [ or . but got: {other}"),
            });
        };
        if after.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let name = token(after);
        let inner = match (schema.get("properties"), schema.get("additionalProperties")) {
            (Some(properties), _) => properties.get(&name),
            (None, values) => values.filter(|values| values.is_object()),
        };
        schema = inner.ok_or_else(|| "does not refer to a valid field".to_owned())?;
        rest = &after[name.len()..];
    }
    Ok(schema)
}

fn validate_conversion(conversion: &Value, problems: &mut Vec<FieldError>) {
    let path = "spec.conversion";
    let webhook = &conversion["webhook"];
    let review_versions =
        webhook["conversionReviewVersions"].as_array().map(Vec::as_slice).unwrap_or_default();
    match text(conversion, "strategy") {
        "" => problems.push(required(format!("{path}.strategy"), "")),
        "None" | "Webhook" => {}
        other => {
            let supported = ["None".to_owned(), "Webhook".to_owned()];
            problems.push(not_supported(format!("{path}.strategy"), &other.into(), &supported));
        }
    }
    if text(conversion, "strategy") == "Webhook" {
        validate_webhook_client(&webhook["clientConfig"], problems);
        validate_review_versions(review_versions, &format!("{path}.conversionReviewVersions"), problems);
        return;
    }
    let why = "should not be set when strategy is not set to Webhook";
    if webhook["clientConfig"].is_object() {
        problems.push(forbidden(format!("{path}.webhookClientConfig"), why));
    }
    if !review_versions.is_empty() {
        problems.push(forbidden(format!("{path}.conversionReviewVersions"), why));
    }
}

fn validate_webhook_client(client: &Value, problems: &mut Vec<FieldError>) {
    if client.is_null() {
        let path = "spec.conversion.webhookClientConfig";
        problems.push(required(path, "required when strategy is set to Webhook"));
        return;
    }
    problems.extend(crate::kinds::webhook_client_problems(client));
}

fn validate_review_versions(versions: &[Value], path: &str, problems: &mut Vec<FieldError>) {
    if versions.is_empty() {
        problems.push(required(path, ""));
        return;
    }
    let names: Vec<&str> = versions.iter().filter_map(Value::as_str).collect();
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if !seen.insert(*name) {
            problems.push(invalid_text(path, name, "duplicate version"));
            continue;
        }
        let wrong = label_problems(name);
        if !wrong.is_empty() {
            problems.push(invalid_text(path, name, &wrong));
        }
    }
    if !names.iter().any(|name| REVIEW_VERSIONS.contains(name)) {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        problems.push(invalid(path, &Value::from(versions.to_vec()), &why));
    }
}

fn validate_stored_versions(definition: &Value, problems: &mut Vec<FieldError>) {
    let path = "status.storedVersions";
    let list = &definition["status"]["storedVersions"];
    let stored: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if stored.is_empty() {
        problems.push(super::field::error(
            path,
            crate::error::CauseReason::Invalid,
            format!("Invalid value: {}: must have at least one stored version", Value::Null),
        ));
        return;
    }
    let mut missing: BTreeMap<&str, usize> =
        stored.iter().enumerate().map(|(index, name)| (*name, index)).collect();
    for version in versions(definition) {
        let name = text(version, "name");
        let known = missing.remove(name).is_some();
        if version["storage"] == true && !known {
            problems.push(invalid(path, list, &format!("must have the storage version {name}")));
        }
    }
    for (name, index) in missing {
        let why = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in \
             spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
             {name} from status.storedVersions"
        );
        problems.push(invalid_text(format!("{path}[{index}]"), name, &why));
    }
}

fn validate_approval(definition: &Value, stored: Option<&Value>, problems: &mut Vec<FieldError>) {
    if !is_protected_group(text(&definition["spec"], "group")) {
        return;
    }
    let (_, reason, message) = approval(definition);
    // An unchanged approval status does not prevent other changes.
    if stored.is_some_and(|stored| approval(stored).1 == reason) {
        return;
    }
    let path = format!("metadata.annotations[{APPROVAL_ANNOTATION}]");
    match reason {
        "MissingAnnotation" => problems.push(required(path, &message)),
        "InvalidAnnotation" => {
            let value = text(&definition["metadata"]["annotations"], APPROVAL_ANNOTATION);
            problems.push(invalid_text(path, value, &message));
        }
        _ => {}
    }
}
