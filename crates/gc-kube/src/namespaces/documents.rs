//! Requests of the namespace controller and answers of discovery, in the types of `gc_collectors::namespaces`.

use std::sync::Arc;

use gc_collectors::namespaces::emptying::{ContainedResource, ServedResources};
use gc_types::{Gvr, ResourceId, ResourceInfo, Scope};
use serde_json::{Value, json};

use crate::discovery::{Discovery, ServedResource};

pub(crate) fn collection_path(resource: &ContainedResource, namespace: &str) -> String {
    let Gvr { group, version, resource } = &resource.gvr;
    format!("{}/namespaces/{namespace}/{resource}", gc_types::api_path(group, version))
}

/// Returns the description that lists of a resource are checked against.
pub(crate) fn info(resource: &ContainedResource) -> ResourceInfo {
    ResourceInfo {
        id: ResourceId(0),
        gvr: resource.gvr.clone(),
        kind: Arc::clone(&resource.kind),
        scope: Scope::Namespaced,
        served_api_versions: Vec::new(),
        watched: false,
        comparable_versions: false,
    }
}

pub(crate) fn delete_options(uid: Option<&str>) -> Value {
    let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    if let Some(uid) = uid {
        options["preconditions"] = json!({ "uid": uid });
    }
    options
}

pub(crate) fn problem(path: &str, code: u16, body: &Value) -> String {
    format!("{path} was answered with {code}: {}", body["message"].as_str().unwrap_or("(no message)"))
}

/// Returns the namespaced part of discovery.
pub(crate) fn served(discovered: &Discovery) -> ServedResources {
    let deletable =
        |found: &ServedResource| found.scope == Scope::Namespaced && found.verbs.contains("delete");
    let mut served = ServedResources::default();
    for ((group, _), found) in &discovered.resources {
        if !discovered.is_unclear(group) {
            *served.groups.entry(group.to_string()).or_default() |= deletable(found);
        }
        if deletable(found) {
            let gvr = Gvr {
                group: Arc::clone(&found.group),
                version: Arc::clone(&found.version),
                resource: Arc::clone(&found.resource),
            };
            let together = found.verbs.contains("deletecollection");
            let contained = ContainedResource { gvr, kind: Arc::clone(&found.kind), together };
            served.resources.push(Arc::new(contained));
        }
    }
    served.failed.clone_from(&discovered.failed);
    served
}
