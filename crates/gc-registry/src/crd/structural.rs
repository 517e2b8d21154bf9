//! Validation of `openAPIV3Schema`: it must be structural, use nothing that Kubernetes forbids, and have valid defaults.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::compile::{compile, is_integer_and_string};
use super::field::{forbidden, invalid, invalid_text, not_supported, required};
use super::{cel, formats, validate};
use crate::error::FieldError;
use crate::schema::prune;
use crate::schema::shown::{SCHEMA, internal};

/// Keywords permitted at the root of a schema whose status is a subresource, in kube-apiserver's order.
const ALLOWED_AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Members that no schema may have.
const FORBIDDEN_MEMBERS: [(&str, &str); 6] = [
    ("id", "id is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("$ref", "$ref is not supported"),
];

/// Members that describe the structure of a value, and therefore may not appear below `allOf` and similar keywords.
const STRUCTURE_ONLY: [(&str, &str); 10] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

const STRUCTURE_ONLY_LISTS: [(&str, &str); 3] = [
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

type Source = Map<String, Value>;

fn text<'s>(source: &'s Source, key: &str) -> &'s str {
    source.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(source: &Source, key: &str) -> bool {
    source.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn object<'s>(source: &'s Source, key: &str) -> Option<&'s Source> {
    source.get(key).and_then(Value::as_object)
}

fn members<'s>(source: &'s Source, key: &str) -> impl Iterator<Item = (&'s String, &'s Source)> {
    object(source, key).into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_object()?)))
}

fn branches<'s>(source: &'s Source, key: &str) -> impl Iterator<Item = (usize, &'s Source)> {
    let branches = source.get(key).and_then(Value::as_array).into_iter().flatten();
    branches.enumerate().filter_map(|(index, value)| Some((index, value.as_object()?)))
}

/// Reports whether a member is set to something other than its empty value.
fn is_set(source: &Source, key: &str) -> bool {
    match source.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => {
            !map.is_empty() || matches!(key, "additionalProperties" | "additionalItems" | "default")
        }
        Some(_) => true,
    }
}

/// Checks one schema of a definition; `path` is its position.
pub(super) fn validate_schema(path: &str, schema: &Value, has_status: bool) -> Vec<FieldError> {
    let Some(source) = schema.as_object() else { return Vec::new() };
    let mut problems = Vec::new();
    if has_status {
        check_root_for_status(path, schema, source, &mut problems);
    }
    if flag(source, "nullable") {
        problems.push(forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = unsupported_member(source);
    let mut structural = Vec::new();
    if unsupported.is_none() {
        invariants(source, Level::Root, path, &mut structural);
        completeness(source, path, &mut structural);
        structural.sort_by_cached_key(|problem| format!("{}: {}", problem.field, problem.detail));
        if structural.is_empty() {
            check_defaults(schema, path, true, &mut structural);
        }
    }
    let is_structural = structural.is_empty() && unsupported.is_none();
    problems.extend(structural);
    let mut open_api = Vec::new();
    let allowed = AllowedKeywords { defaults: Ok(()), inside_metadata: false };
    check_open_api(source, path, &allowed, true, &mut open_api);
    let rules = if is_structural { cel::check_rules(source, path, &open_api) } else { Vec::new() };
    problems.extend(open_api);
    problems.extend(rules);
    if let (Some(name), true) = (unsupported, problems.is_empty()) {
        problems.push(invalid_text(
            path,
            "",
            &format!("OpenAPIV3Schema '{}' is not supported", name.trim_start_matches('$')),
        ));
    }
    problems
}

/// Returns a member that no structural schema may have at any position; a schema with one does not count as structural.
fn unsupported_member(source: &Source) -> Option<&'static str> {
    const MEMBERS: [&str; 7] =
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    if let Some(name) = MEMBERS.iter().find(|name| is_set(source, name)) {
        return Some(name);
    }
    if source.get("items").is_some_and(Value::is_array) {
        return Some("items");
    }
    let below = ["items", "additionalProperties", "not"].into_iter().filter_map(|key| object(source, key));
    let properties = members(source, "properties").map(|(_, property)| property);
    let junctors = ["allOf", "anyOf", "oneOf"].into_iter();
    let junctors = junctors.flat_map(|key| branches(source, key).map(|(_, branch)| branch));
    below.chain(properties).chain(junctors).find_map(unsupported_member)
}

/// Collects unknown formats, which restrict nothing and cause a warning each.
pub(super) fn unknown_formats(schema: &Value, found: &mut BTreeSet<String>) {
    let Some(source) = schema.as_object() else { return };
    let format = text(source, "format");
    let known = match text(source, "type") {
        "" | "string" => formats::is_known(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !known {
        found.insert(format.to_owned());
    }
    for_each_part(source, &mut |schema| unknown_formats(schema, found));
}

/// Collects the types of items that sets have, and should not: server-side apply and CEL compare scalars alone.
pub(super) fn types_of_set_items(schema: &Value, found: &mut BTreeSet<String>) {
    let Some(source) = schema.as_object() else { return };
    if text(source, "x-kubernetes-list-type") == "set"
        && let Some(items) = object(source, "items")
        && let kind @ ("object" | "array") = text(items, "type")
    {
        found.insert(kind.to_owned());
    }
    for_each_part(source, &mut |schema| types_of_set_items(schema, found));
}

/// Adds the patterns of a schema to those of its definition, and reports whether they are within the budget.
pub(super) fn has_few_patterns(schema: &Value, budget: &mut gc_cel::PatternBudget) -> bool {
    let Some(source) = schema.as_object() else { return true };
    let pattern = text(source, "pattern");
    let mut few = pattern.is_empty() || budget.takes(pattern);
    for_each_part(source, &mut |schema| few = few && has_few_patterns(schema, budget));
    few
}

/// Calls `check` with each schema that is a part of another.
fn for_each_part(source: &Map<String, Value>, check: &mut dyn FnMut(&Value)) {
    for key in ["items", "additionalProperties", "not"] {
        source.get(key).into_iter().for_each(&mut *check);
    }
    object(source, "properties").into_iter().flatten().for_each(|(_, schema)| check(schema));
    for key in ["allOf", "anyOf", "oneOf"] {
        source.get(key).and_then(Value::as_array).into_iter().flatten().for_each(&mut *check);
    }
}

fn check_root_for_status(path: &str, schema: &Value, source: &Source, problems: &mut Vec<FieldError>) {
    if is_set(source, "type") && text(source, "type") != "object" {
        problems.push(invalid_text(
            format!("{path}.type"),
            text(source, "type"),
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        ));
    }
    let allowed = |name: &str| {
        let go_name = match name {
            "x-kubernetes-preserve-unknown-fields" => "XPreserveUnknownFields".to_owned(),
            "x-kubernetes-validations" => "XValidations".to_owned(),
            other => other
                .chars()
                .enumerate()
                .map(|(i, c)| if i == 0 { c.to_ascii_uppercase() } else { c })
                .collect(),
        };
        ALLOWED_AT_ROOT.contains(&go_name.as_str())
    };
    // These are pointers, so an empty text counts.
    let has =
        |name: &str| is_set(source, name) || name == "x-kubernetes-map-type" && source[name].is_string();
    if source.keys().any(|name| !allowed(name) && has(name)) {
        let why = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            ALLOWED_AT_ROOT.join(" ")
        );
        let shown = internal(SCHEMA, schema).compact();
        problems.push(FieldError {
            detail: format!("Invalid value: {shown}: {why}"),
            ..invalid(path, schema, &why)
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn invariants(source: &Source, level: Level, path: &str, problems: &mut Vec<FieldError>) {
    let kind = text(source, "type");
    match object(source, "items") {
        Some(items) => invariants(items, Level::Item, &format!("{path}.items"), problems),
        None if kind == "array" => problems.push(required(format!("{path}.items"), "must be specified")),
        None => {}
    }
    for (name, property) in members(source, "properties") {
        invariants(property, Level::Field, &format!("{path}.properties[{name}]"), problems);
    }
    if source.get("additionalProperties").is_some_and(|value| !value.is_null()) && level == Level::Root {
        problems.push(forbidden(format!("{path}.additionalProperties"), "must not be used at the root"));
    }
    if let Some(values) = object(source, "additionalProperties") {
        invariants(values, Level::Field, &format!("{path}.additionalProperties"), problems);
    }
    check_extensions(source, level, path, problems);
    let first_all_of = branches(source, "allOf").next();
    let skip = Skip {
        any_of: source.get("anyOf").is_some_and(is_integer_and_string),
        first_all_of: first_all_of
            .is_some_and(|(_, branch)| branch.get("anyOf").is_some_and(is_integer_and_string)),
    };
    check_junctors(source, skip, path, problems);
    check_metadata(source, level, path, problems);
}

fn check_extensions(source: &Source, level: Level, path: &str, problems: &mut Vec<FieldError>) {
    let kind = text(source, "type");
    let preserve = flag(source, "x-kubernetes-preserve-unknown-fields");
    let embedded = flag(source, "x-kubernetes-embedded-resource");
    let int_or_string = flag(source, "x-kubernetes-int-or-string");
    let must_be_false = "must be false if x-kubernetes-int-or-string is true";
    if int_or_string && preserve {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        problems.push(invalid(path, &true.into(), must_be_false));
    }
    if int_or_string && embedded {
        let path = format!("{path}.x-kubernetes-embedded-resource");
        problems.push(invalid(path, &true.into(), must_be_false));
    }
    let type_path = format!("{path}.type");
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        problems.push(if kind.is_empty() {
            required(type_path, why)
        } else {
            invalid_text(type_path, kind, why)
        });
    } else if kind.is_empty() && !int_or_string && !preserve {
        problems.push(required(
            type_path,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    } else if level == Level::Root && !kind.is_empty() && kind != "object" {
        problems.push(invalid_text(type_path, kind, "must be object at the root"));
    }
    if embedded && is_set(source, "additionalProperties") {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        problems.push(forbidden(format!("{path}.additionalProperties"), why));
    }
    if embedded && !preserve && !is_set(source, "properties") {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        problems.push(required(format!("{path}.properties"), why));
    }
}

/// Checks the schemas of apiVersion, kind and metadata, which are restricted because these fields are the same for all kinds.
fn check_metadata(source: &Source, level: Level, path: &str, problems: &mut Vec<FieldError>) {
    let is_resource = level == Level::Root || flag(source, "x-kubernetes-embedded-resource");
    if !is_resource {
        return;
    }
    let Some(properties) = object(source, "properties") else { return };
    for name in ["kind", "apiVersion"] {
        if let Some(property) = properties.get(name).and_then(Value::as_object)
            && text(property, "type") != "string"
        {
            let path = format!("{path}.properties[{name}].type");
            problems.push(invalid_text(path, text(property, "type"), "must be string"));
        }
    }
    let Some(metadata) = properties.get("metadata").and_then(Value::as_object) else { return };
    let path = format!("{path}.properties[metadata]");
    if text(metadata, "type") != "object" {
        problems.push(invalid_text(format!("{path}.type"), text(metadata, "type"), "must be object"));
    }
    let names_only =
        members(metadata, "properties").all(|(name, _)| name == "name" || name == "generateName");
    let nothing_else = metadata
        .keys()
        .all(|key| matches!(key.as_str(), "type" | "properties" | "default") || !is_set(metadata, key));
    if level == Level::Root && !(names_only && nothing_else) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        problems.push(forbidden(path, why));
    }
}

/// The two notations of int-or-string, in which types are permitted below `anyOf`.
#[derive(Clone, Copy, Default)]
struct Skip {
    any_of: bool,
    first_all_of: bool,
}

fn check_junctors(source: &Source, skip: Skip, path: &str, problems: &mut Vec<FieldError>) {
    if !skip.any_of {
        for (index, branch) in branches(source, "anyOf") {
            check_branch(branch, Skip::default(), &format!("{path}.anyOf[{index}]"), problems);
        }
    }
    for (index, branch) in branches(source, "allOf") {
        let skip = Skip { any_of: skip.first_all_of && index == 0, first_all_of: false };
        check_branch(branch, skip, &format!("{path}.allOf[{index}]"), problems);
    }
    for (index, branch) in branches(source, "oneOf") {
        check_branch(branch, Skip::default(), &format!("{path}.oneOf[{index}]"), problems);
    }
    if let Some(branch) = object(source, "not") {
        check_branch(branch, Skip::default(), &format!("{path}.not"), problems);
    }
    let pattern = text(source, "pattern");
    // Most schemas have no pattern, and parsing an empty one is not free.
    if !pattern.is_empty()
        && let Err(error) = gc_cel::check_pattern(pattern)
    {
        let why = format!(
            "must be a valid regular expression, but isn't: {}",
            validate::go_regex_error(pattern, &error)
        );
        problems.push(invalid_text(format!("{path}.pattern"), pattern, &why));
    }
}

fn check_branch(branch: &Source, skip: Skip, path: &str, problems: &mut Vec<FieldError>) {
    check_junctors(branch, skip, path, problems);
    if let Some(items) = object(branch, "items") {
        check_branch(items, Skip::default(), &format!("{path}.items"), problems);
    }
    for (name, property) in members(branch, "properties") {
        check_branch(property, Skip::default(), &format!("{path}.properties[{name}]"), problems);
    }
    for (key, why) in STRUCTURE_ONLY.iter().chain(&STRUCTURE_ONLY_LISTS) {
        if is_set(branch, key) {
            problems.push(forbidden(format!("{path}.{key}"), why));
        }
    }
    if object(branch, "properties").is_some_and(|properties| properties.contains_key("metadata")) {
        let why = "must not be specified in a nested context";
        problems.push(forbidden(format!("{path}.properties[metadata]"), why));
    }
}

/// Checks that fields restricted below `allOf` and similar keywords are also specified outside; upstream does not require it for
/// deeper levels.
fn completeness(source: &Source, path: &str, problems: &mut Vec<FieldError>) {
    for_each_branch(source, path, &mut |branch, branch_path| {
        branch_completeness(branch, Some(source), path, branch_path, problems);
    });
}

fn for_each_branch<'s>(source: &'s Source, path: &str, visit: &mut dyn FnMut(&'s Source, &str)) {
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in branches(source, key) {
            visit(branch, &format!("{path}.{key}[{index}]"));
        }
    }
    if let Some(branch) = object(source, "not") {
        visit(branch, &format!("{path}.not"));
    }
}

fn branch_completeness(
    branch: &Source,
    structure: Option<&Source>,
    path: &str,
    branch_path: &str,
    problems: &mut Vec<FieldError>,
) {
    let Some(structure) = structure else {
        problems.push(required(path, &format!("because it is defined in {branch_path}")));
        return;
    };
    for_each_branch(branch, branch_path, &mut |inner, inner_path| {
        branch_completeness(inner, Some(structure), path, inner_path, problems);
    });
    if let Some(items) = object(branch, "items") {
        let structure = object(structure, "items");
        let (path, branch_path) = (format!("{path}.items"), format!("{branch_path}.items"));
        branch_completeness(items, structure, &path, &branch_path, problems);
    }
    for (name, property) in members(branch, "properties") {
        let structure =
            object(structure, "properties").and_then(|map| map.get(name)).and_then(Value::as_object);
        let (path, branch_path) =
            (format!("{path}.properties[{name}]"), format!("{branch_path}.properties[{name}]"));
        branch_completeness(property, structure, &path, &branch_path, problems);
    }
}

/// Checks that defaults are valid and contain nothing that would be pruned.
fn check_defaults(schema: &Value, path: &str, is_root: bool, problems: &mut Vec<FieldError>) {
    let Some(source) = schema.as_object() else { return };
    if let Some(default) = source.get("default").filter(|default| !default.is_null()) {
        let compiled = compile(schema);
        let default_path = format!("{path}.default");
        let mut pruned = default.clone();
        prune(&compiled, &mut pruned);
        if pruned == *default {
            let mut found = validate::values(&compiled, "", default, None);
            if found.is_empty() {
                let mut programs = cel::Programs::new();
                cel::programs(&compiled, &mut programs);
                found = cel::check(&compiled, &programs, "", default, None, cel::RuleSelection::Changed);
            }
            for mut problem in found {
                problem.field = match problem.field.as_str() {
                    "" | "<nil>" => default_path.clone(),
                    name => format!("{default_path}.{name}"),
                };
                problems.push(problem);
            }
        } else {
            problems.push(invalid(default_path.clone(), default, "must not have unknown fields"));
        }
        if (is_root || flag(source, "x-kubernetes-embedded-resource")) && default.is_object() {
            // Such a default would be a resource.
            for name in ["apiVersion", "kind"] {
                if default.get(name).is_none() {
                    problems.push(required(format!("{default_path}.{name}"), ""));
                }
            }
        }
    }
    if let Some(items) = source.get("items") {
        check_defaults(items, &format!("{path}.items"), false, problems);
    }
    for (name, property) in object(source, "properties").into_iter().flatten() {
        check_defaults(property, &format!("{path}.properties[{name}]"), false, problems);
    }
    if let Some(values) = source.get("additionalProperties") {
        check_defaults(values, &format!("{path}.additionalProperties"), false, problems);
    }
}

/// Keywords permitted at a position in the schema.
#[derive(Clone)]
struct AllowedKeywords {
    /// Permission for defaults, or the reason against them.
    defaults: Result<(), String>,
    inside_metadata: bool,
}

/// Applies the rules for each schema by itself.
fn check_open_api(
    source: &Source,
    path: &str,
    allowed: &AllowedKeywords,
    root: bool,
    problems: &mut Vec<FieldError>,
) {
    check_members(source, path, allowed, problems);
    if flag(source, "uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        problems.push(forbidden(format!("{path}.uniqueItems"), why));
    }
    let has_properties = object(source, "properties").is_some_and(|map| !map.is_empty());
    match source.get("additionalProperties") {
        Some(Value::Bool(true) | Value::Null) | None => {}
        Some(values) => {
            let path = format!("{path}.additionalProperties");
            if has_properties {
                problems.push(forbidden(
                    path.clone(),
                    "additionalProperties and properties are mutual exclusive",
                ));
            }
            if let Some(values) = values.as_object() {
                let mut allowed = allowed.clone();
                if allowed.inside_metadata {
                    allowed.defaults = Err("inside additionalProperties applying to object metadata".into());
                }
                check_open_api(values, &path, &allowed, false, problems);
            }
        }
    }
    let is_resource = root || flag(source, "x-kubernetes-embedded-resource");
    for (name, property) in members(source, "properties") {
        let mut allowed = allowed.clone();
        if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            allowed.inside_metadata = true;
            if root {
                allowed.defaults = Err(format!("in top-level {name}"));
            }
        }
        check_open_api(property, &format!("{path}.properties[{name}]"), &allowed, false, problems);
    }
    for_each_branch(source, path, &mut |branch, path| check_open_api(branch, path, allowed, false, problems));
    if let Some(items) = object(source, "items") {
        check_open_api(items, &format!("{path}.items"), allowed, false, problems);
    }
    if source.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        problems.push(invalid(path, &false.into(), "must be true or undefined"));
    }
    check_map_type(source, path, problems);
    check_list_type(source, path, problems);
    check_rules(source, path, problems);
}

fn check_members(source: &Source, path: &str, allowed: &AllowedKeywords, problems: &mut Vec<FieldError>) {
    let kind = text(source, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        let types: Vec<String> = TYPES.iter().map(ToString::to_string).collect();
        problems.push(not_supported(format!("{path}.type"), &kind.into(), &types));
    }
    if let (true, Err(why)) = (is_set(source, "default"), &allowed.defaults) {
        problems.push(forbidden(format!("{path}.default"), &format!("must not be set {why}")));
    }
    for (key, why) in FORBIDDEN_MEMBERS {
        // Upstream only checks whether these pointers and maps are present.
        let counts_when_empty = matches!(key, "dependencies" | "$ref");
        if is_set(source, key) || counts_when_empty && source.get(key).is_some_and(|value| !value.is_null()) {
            problems.push(forbidden(format!("{path}.{key}"), why));
        }
    }
    if kind == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        problems.push(forbidden(format!("{path}.type"), why));
    }
    if source.get("items").is_some_and(Value::is_array) {
        problems.push(forbidden(format!("{path}.items"), "items must be a schema object and not an array"));
    }
    if allowed.inside_metadata && flag(source, "x-kubernetes-embedded-resource") {
        let path = format!("{path}.x-kubernetes-embedded-resource");
        problems.push(forbidden(path, "must not be used inside of resource meta"));
    }
}

fn check_map_type(source: &Source, path: &str, problems: &mut Vec<FieldError>) {
    let Some(map_type) = source.get("x-kubernetes-map-type").and_then(Value::as_str) else { return };
    must_be_type(source, path, "object", "x-kubernetes-map-type", problems);
    if !matches!(map_type, "atomic" | "granular") {
        let supported = ["atomic".to_owned(), "granular".to_owned()];
        problems.push(not_supported(format!("{path}.x-kubernetes-map-type"), &map_type.into(), &supported));
    }
}

fn must_be_type(
    source: &Source,
    path: &str,
    wanted: &str,
    because: &str,
    problems: &mut Vec<FieldError>,
) -> bool {
    let kind = text(source, "type");
    if kind == wanted {
        return true;
    }
    let why = format!("must be {wanted} if {because} is specified");
    let path = format!("{path}.type");
    problems.push(if kind.is_empty() { required(path, &why) } else { invalid_text(path, kind, &why) });
    false
}

fn check_list_type(source: &Source, path: &str, problems: &mut Vec<FieldError>) {
    let list_type = source.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = source.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let has_keys = keys.is_some_and(|keys| !keys.is_empty());
    let type_path = format!("{path}.x-kubernetes-list-type");
    let items = object(source, "items");
    if let Some(list_type) = list_type {
        if must_be_type(source, path, "array", "x-kubernetes-list-type", problems) && list_type == "set" {
            check_set_items(items, path, problems);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            let supported = ["atomic".to_owned(), "set".to_owned(), "map".to_owned()];
            problems.push(not_supported(type_path.clone(), &list_type.into(), &supported));
        }
    }
    if has_keys && list_type != Some("map") {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        problems.push(match list_type {
            None => required(type_path, why),
            Some(list_type) => invalid_text(type_path, list_type, why),
        });
    }
    if list_type == Some("map") {
        let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
        check_list_map(items, &keys, path, problems);
    }
    if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, items)
        && flag(items, "nullable")
    {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        problems.push(forbidden(format!("{path}.items.nullable"), &why));
    }
}

fn check_set_items(items: Option<&Source>, path: &str, problems: &mut Vec<FieldError>) {
    let Some(items) = items else { return };
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.get("x-kubernetes-list-type");
    match text(items, "type") {
        "array" if list_type.is_some_and(|list_type| *list_type != "atomic") => {
            let value = list_type.cloned().unwrap_or_default();
            problems.push(invalid(format!("{path}.items.x-kubernetes-list-type"), &value, why));
        }
        "object" if items.get("x-kubernetes-map-type").is_none_or(|map_type| *map_type != "atomic") => {
            let value = list_type.cloned().unwrap_or_default();
            problems.push(invalid(format!("{path}.items.x-kubernetes-map-type"), &value, why));
        }
        _ => {}
    }
}

fn check_list_map(items: Option<&Source>, keys: &[&str], path: &str, problems: &mut Vec<FieldError>) {
    let keys_path = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        problems.push(required(keys_path.clone(), "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = items else {
        let why = "must have a schema if x-kubernetes-list-type is map";
        problems.push(required(format!("{path}.items"), why));
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        problems.push(invalid_text(format!("{path}.items.type"), kind, why));
        return;
    }
    let mut seen = BTreeSet::new();
    let all = Value::from(keys.to_vec());
    for key in keys {
        let property = object(items, "properties").and_then(|map| map.get(*key)).and_then(Value::as_object);
        match property {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                problems.push(invalid_text(format!("{path}.items.properties[{key}].type"), kind, why));
            }
            Some(_) => {}
            None => {
                problems.push(invalid(
                    keys_path.clone(),
                    &all,
                    "entries must all be names of item properties",
                ));
            }
        }
        if !seen.insert(*key) {
            problems.push(invalid(keys_path.clone(), &all, "must not contain duplicate entries"));
        }
    }
    check_list_map_keys(items, keys, path, problems);
}

fn check_list_map_keys(items: &Source, keys: &[&str], path: &str, problems: &mut Vec<FieldError>) {
    let required_names = items.get("required").and_then(Value::as_array);
    for key in keys {
        let property = object(items, "properties").and_then(|map| map.get(*key)).and_then(Value::as_object);
        let Some(property) = property else { continue };
        let path = format!("{path}.items.properties[{key}]");
        let is_required = required_names.is_some_and(|names| names.iter().any(|name| name == key));
        if !is_required && property.get("default").is_none_or(Value::is_null) {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                       required property";
            problems.push(required(format!("{path}.default"), why));
        }
        if flag(property, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            problems.push(forbidden(format!("{path}.nullable"), why));
        }
    }
}

/// Checks the form of `x-kubernetes-validations`.
fn check_rules(source: &Source, path: &str, problems: &mut Vec<FieldError>) {
    // Field paths are looked up in the compiled schema, which is created at most once, on demand.
    let mut compiled = None;
    for (index, rule) in branches(source, "x-kubernetes-validations") {
        let path = format!("{path}.x-kubernetes-validations[{index}]");
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        let breaks = |text: &str| text.contains(['\n', '\r']);
        let message_path = format!("{path}.message");
        if expression.is_empty() {
            problems.push(required(format!("{path}.rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            problems.push(invalid_text(message_path, message, "must be non-empty if specified"));
        } else if breaks(message.trim()) {
            problems.push(invalid_text(message_path, message, "must not contain line breaks"));
        } else if breaks(expression) && message.trim().is_empty() {
            problems.push(required(message_path, "message must be specified if rule contains line breaks"));
        }
        let message_expression = text(rule, "messageExpression");
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            problems.push(required(format!("{path}.messageExpression"), why));
        }
        let reason = text(rule, "reason");
        if rule.get("reason").is_some_and(Value::is_string) && !REASONS.contains(&reason) {
            let supported: Vec<String> = REASONS.iter().map(ToString::to_string).collect();
            problems.push(not_supported(format!("{path}.reason"), &reason.into(), &supported));
        }
        let field_path = text(rule, "fieldPath");
        let field_path_path = format!("{path}.fieldPath");
        if !field_path.is_empty() && field_path.trim().is_empty() {
            problems.push(invalid_text(
                field_path_path.clone(),
                field_path,
                "must be non-empty if specified",
            ));
        }
        if breaks(field_path) {
            problems.push(invalid_text(field_path_path.clone(), field_path, "must not contain line breaks"));
        }
        if !field_path.is_empty() {
            let schema = compiled.get_or_insert_with(|| compile(&Value::Object(source.clone())));
            if cel::field_path(schema, field_path).is_none() {
                problems.push(invalid_text(field_path_path, field_path, "must be a valid path"));
            }
        }
    }
}
