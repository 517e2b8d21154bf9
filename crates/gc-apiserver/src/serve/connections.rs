//! Admission of connections to a pod, a service or a node.

use gc_registry::admission::configured::BodyKind;
use gc_registry::api::RequestTarget;
use serde_json::{Map, Value};

use crate::transport::query::Query;

/// Returns the kind and the document of a connection's options; `None` for a subresource that only reads, such as a log.
pub(crate) fn options(target: &RequestTarget, query: &Query) -> Option<(BodyKind, Value)> {
    let kind = match (&*target.resource.resource, target.subresource.as_str()) {
        ("pods", "exec") => "PodExecOptions",
        ("pods", "attach") => "PodAttachOptions",
        ("pods", "portforward") => "PodPortForwardOptions",
        ("pods", "proxy") => "PodProxyOptions",
        ("services", "proxy") => "ServiceProxyOptions",
        ("nodes", "proxy") => "NodeProxyOptions",
        _ => return None,
    };
    let mut document = Map::new();
    document.insert("kind".into(), kind.into());
    document.insert("apiVersion".into(), "v1".into());
    match target.subresource.as_str() {
        "exec" | "attach" => {
            for name in ["stdin", "stdout", "stderr", "tty"] {
                if query.boolean(name) == Some(true) {
                    document.insert(name.into(), true.into());
                }
            }
            if let Some(container) = query.get("container").filter(|container| !container.is_empty()) {
                document.insert("container".into(), container.into());
            }
            let command: Vec<Value> = query.all("command").map(Value::from).collect();
            if target.subresource == "exec" && !command.is_empty() {
                document.insert("command".into(), command.into());
            }
        }
        "portforward" => {
            let ports: Vec<Value> =
                query.all("ports").filter_map(|port| port.parse::<i32>().ok()).map(Value::from).collect();
            if !ports.is_empty() {
                document.insert("ports".into(), ports.into());
            }
        }
        _ => {}
    }
    Some((BodyKind { group: "", version: "v1", kind }, document.into()))
}
