//! Maintains managedFields with every write.

use serde_json::Value;

use crate::api::WriteOptions;
use crate::catalog::rules;
use crate::error::ApiError;
use crate::metadata::meta;
use crate::patch::managed_fields::{self, ManagerRequest, PathElement, ResetFields, scale};
use crate::registry::call::Call;
use crate::schema;

/// Way in which an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Anything except apply.
    Update,
    /// Apply, which has already computed managedFields.
    Apply,
}

/// Reset fields of object writes for kinds with a status subresource.
const STATUS: ResetFields = &[&["status"]];

/// Reset fields of status writes, unless their kind has others.
const SPEC: ResetFields = &[&["spec"]];

/// Reset fields of status writes that also keep the metadata.
const SPEC_AND_METADATA: ResetFields = &[&["spec"], &["metadata"]];

/// Returns the fields that the endpoint resets, so that its writers do not own them.
fn reset_fields(call: &Call<'_>) -> ResetFields {
    let resource = call.resource();
    let has_status = resource.subresources.iter().any(|known| *known.name == *"status");
    let custom = resource.custom.is_some();
    match (call.target.subresource.as_str(), &*resource.group, &*resource.resource) {
        ("", "certificates.k8s.io", "certificatesigningrequests") => &[&["spec"], &["status"]],
        ("status", "certificates.k8s.io", "certificatesigningrequests") => {
            &[&["spec"], &["status", "conditions"]]
        }
        ("approval", ..) => &[&["spec"], &["status", "certificate"]],
        ("", ..) if has_status => STATUS,
        ("ephemeralcontainers" | "resize" | "finalize", ..) => STATUS,
        ("status", ..) if custom => SPEC_AND_METADATA,
        ("status", "", "pods") => {
            &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]
        }
        ("status", "apps", "deployments") => &[&["spec"], &["metadata", "labels"]],
        (
            "status",
            "admissionregistration.k8s.io"
            | "apiregistration.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "resource.k8s.io"
            | "storage.k8s.io",
            _,
        )
        | ("status", "networking.k8s.io", "servicecidrs") => SPEC_AND_METADATA,
        ("status", ..) => SPEC,
        _ => &[],
    }
}

fn with_request<T>(call: &Call<'_>, options: &WriteOptions, f: impl FnOnce(&ManagerRequest<'_>) -> T) -> T {
    let resource = call.resource();
    let schema = rules::schema(resource);
    let api_version = resource.api_version();
    let manager = if options.field_manager.is_empty() {
        call.context.user_agent_manager
    } else {
        &options.field_manager
    };
    f(&ManagerRequest {
        manager,
        api_version: &api_version,
        kind: &resource.kind,
        subresource: &call.target.subresource,
        now: call.context.now,
        schema: Some(&schema),
        reset: reset_fields(call),
    })
}

/// Returns the version of a manager that the definition of a custom resource no longer has. kube-apiserver cannot convert an object
/// to it, and therefore does not know which fields the manager owns.
fn missing_version(call: &Call<'_>, managed: &Value) -> Option<String> {
    let custom = call.resource().custom.as_ref()?;
    let mut versions = managed.as_array()?.iter().filter_map(|entry| entry["apiVersion"].as_str());
    versions.find(|version| custom.schema_of(version).is_none()).map(str::to_owned)
}

/// Updates managedFields after a create, update or patch. If the version of a manager is gone, all managers are dropped, as
/// upstream.
pub(crate) fn update(call: &Call<'_>, live: Option<&Value>, new: &mut Value, options: &WriteOptions) {
    let managed = |object: &Value| meta::metadata(object).get("managedFields").cloned();
    let given = managed(new).filter(|given| given.as_array().is_some_and(|given| !given.is_empty()));
    let counted = given.or_else(|| live.and_then(managed)).unwrap_or_default();
    if missing_version(call, &counted).is_some() {
        meta::metadata_mut(new).remove("managedFields");
        return;
    }
    with_request(call, options, |request| managed_fields::update(live, new, request));
}

/// Runs the write of a Scale, with its manager and fields.
fn with_scale_request<T>(
    call: &Call<'_>,
    options: &WriteOptions,
    f: impl FnOnce(&ManagerRequest<'_>) -> T,
) -> T {
    let schema = schema::builtin("autoscaling", "v1", "Scale").unwrap_or_default();
    with_request(call, options, |request| {
        let request = ManagerRequest {
            api_version: "autoscaling/v1",
            kind: "Scale",
            schema: Some(&schema),
            reset: &[],
            ..*request
        };
        f(&request)
    })
}

/// Returns the path of the replicas in objects of this resource in one of its versions.
fn replicas_path(call: &Call<'_>, api_version: &str) -> Option<Vec<PathElement>> {
    let resource = call.resource();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if group != &*resource.group {
        return None;
    }
    let path = if resource.custom.is_some() {
        let catalog = call.registry.catalog();
        let custom = catalog.find(group, version, &resource.resource)?.custom.clone()?;
        custom.replicas_path().unwrap_or_default().to_owned()
    } else {
        ".spec.replicas".to_owned()
    };
    Some(scale::replicas_path(&path))
}

/// Returns the Scale of a stored object, with its managers.
pub(crate) fn scale_with_managers(call: &Call<'_>, live: &Value) -> Result<Value, ApiError> {
    let mut object = live.clone();
    if let Some(custom) = &call.resource().custom {
        custom.settle_replicas(&mut object)?;
    }
    let mut scale = call.scale_of(&object)?;
    let managed = &live["metadata"]["managedFields"];
    let managed = scale::of_scale(managed, &|version| replicas_path(call, version));
    meta::set_or_remove(meta::metadata_mut(&mut scale), "managedFields", managed.unwrap_or_default());
    Ok(scale)
}

/// Transfers the replicas of an object to their managers in its Scale.
pub(crate) fn hand_over(call: &Call<'_>, scale: &Value, new: &mut Value) {
    let of_scale = meta::metadata(scale).get("managedFields").cloned().unwrap_or_default();
    let known = meta::metadata(new).get("managedFields").cloned().unwrap_or_default();
    let version = call.resource().api_version();
    let managed = scale::of_scaled(&known, &of_scale, &version, &|version| replicas_path(call, version));
    meta::set_or_remove(meta::metadata_mut(new), "managedFields", managed.unwrap_or_default());
}

/// Returns the received Scale with its managers: those of the previous Scale, and the one who changes it.
pub(crate) fn update_scale(call: &Call<'_>, before: &Value, sent: &Value, options: &WriteOptions) -> Value {
    let mut scale = sent.clone();
    // A Scale of zero has no replicas, so their last manager loses them.
    if scale["spec"]["replicas"] == 0 {
        meta::member_map(&mut scale, "spec").remove("replicas");
    }
    with_scale_request(call, options, |request| managed_fields::update(Some(before), &mut scale, request));
    scale
}

/// Returns the Scale, with its managers, that results from applying a configuration to the previous one.
pub(crate) fn apply_to_scale(
    call: &Call<'_>,
    before: &Value,
    configuration: &Value,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    /// Upstream converts a Scale as if it were itself a custom resource, which fails.
    const NOT_CONVERTED: &str =
        "to proper version: request to convert CR to an invalid group/version: autoscaling/v1";
    let is_custom = call.resource().custom.is_some();
    with_scale_request(call, options, |request| managed_fields::check_type(configuration, request))?;
    if is_custom && meta::metadata(before).get("managedFields").is_none() {
        let why = format!(
            "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) \
             {NOT_CONVERTED}"
        );
        return Err(ApiError::new(500, "", why));
    }
    let force = options.force.unwrap_or_default();
    let scale = with_scale_request(call, options, |request| {
        managed_fields::apply(Some(before), configuration, request, force)
    })?;
    if is_custom && !managed_fields::equal_but_managers(before, &scale) {
        let (namespace, name) = (meta::text(configuration, "namespace"), meta::name(configuration));
        let object = format!("({namespace}/{name}; autoscaling/v1, Kind=Scale)");
        let why = format!("failed to convert new object {object} {NOT_CONVERTED}");
        return Err(ApiError::new(500, "", why));
    }
    Ok(scale)
}

/// Updates managedFields after the server itself has written the status of an object.
pub(crate) fn update_own_status(call: &Call<'_>, live: &Value, new: &mut Value) {
    let resource = call.resource();
    let schema = rules::schema(resource);
    let api_version = resource.api_version();
    let request = ManagerRequest {
        manager: "kube-apiserver",
        api_version: &api_version,
        kind: &resource.kind,
        subresource: "status",
        now: call.context.now,
        schema: Some(&schema),
        reset: SPEC,
    };
    managed_fields::update(Some(live), new, &request);
}

/// Returns the object that results from applying a configuration to the live one.
pub(crate) fn apply(
    call: &Call<'_>,
    live: Option<&Value>,
    configuration: &Value,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let force = options.force.unwrap_or_default();
    let managed = live.and_then(|live| meta::metadata(live).get("managedFields"));
    if let Some(version) = managed.and_then(|managed| missing_version(call, managed)) {
        let why = format!("request to convert CR to an invalid group/version: {version}");
        return Err(ApiError::new(500, "", why));
    }
    let mut object =
        with_request(call, options, |request| managed_fields::apply(live, configuration, request, force))?;
    convert(call, configuration, &mut object)?;
    Ok(object)
}

/// Converts the result to its types; fails with a 500 for a text or a number that its field does not accept, such as a time,
/// because merging accepts any text.
fn convert(call: &Call<'_>, configuration: &Value, object: &mut Value) -> Result<(), ApiError> {
    let resource = call.resource();
    if resource.custom.is_some() || rules::is_definition(resource) {
        return Ok(());
    }
    let Err(why) = schema::restore(&rules::schema(resource), object) else { return Ok(()) };
    let kind = format!("{}/{}, Kind={}", resource.group, resource.version, resource.kind);
    let (namespace, name) = (meta::text(configuration, "namespace"), meta::name(configuration));
    let why = format!(
        "failed to convert new object ({namespace}/{name}; {kind}) to proper version: unable to convert unstructured \
         object to {kind}: {why}"
    );
    Err(ApiError::new(500, "", why))
}

/// Reports whether two states of an object differ only in the times of managedFields, in which case nothing is written.
pub(crate) fn same_but_for_times(new: &Value, live: &Value) -> bool {
    let (Some(new), Some(live)) = (new.as_object(), live.as_object()) else { return false };
    if new.len() != live.len() {
        return false;
    }
    new.iter().all(|(key, value)| match (key.as_str(), live.get(key)) {
        (_, None) => false,
        ("metadata", Some(other)) => same_metadata(value, other),
        (_, Some(other)) => value == other,
    })
}

fn same_metadata(new: &Value, live: &Value) -> bool {
    let (Some(new), Some(live)) = (new.as_object(), live.as_object()) else { return false };
    let plain = |map: &serde_json::Map<String, Value>| {
        map.keys().filter(|key| !matches!(key.as_str(), "managedFields" | "resourceVersion")).count()
    };
    plain(new) == plain(live)
        && new.iter().all(|(key, value)| match key.as_str() {
            "resourceVersion" => true,
            "managedFields" => same_entries(value, live.get(key)),
            _ => live.get(key) == Some(value),
        })
        && (new.contains_key("managedFields") || !live.contains_key("managedFields"))
}

fn same_entries(new: &Value, live: Option<&Value>) -> bool {
    let (Some(new), Some(live)) = (new.as_array(), live.and_then(Value::as_array)) else { return false };
    let fields = |entry: &Value| -> Vec<(String, Value)> {
        let members = entry.as_object().into_iter().flatten();
        members.filter(|(key, _)| *key != "time").map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    new.len() == live.len() && new.iter().zip(live).all(|(a, b)| a == b || fields(a) == fields(b))
}
