//! What a service had only because of its type.

use serde_json::Value;

use crate::kinds::access::{integer, items, list, text};

/// Whether a service of this type is reachable from outside.
fn is_external(spec: &Value) -> bool {
    match text(spec, &["type"]) {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !list(spec, &["externalIPs"]).is_empty(),
        _ => false,
    }
}

fn needs_health_port(spec: &Value) -> bool {
    text(spec, &["type"]) == "LoadBalancer" && text(spec, &["externalTrafficPolicy"]) == "Local"
}

/// What a service had only because of its type is removed when the type changes and the client left it as it was.
pub(super) fn drop_dependent(new: &mut Value, old: &Value) {
    static NONE: Value = Value::Null;
    let before = old.get("spec").unwrap_or(&NONE);
    let now = new.get("spec").cloned().unwrap_or_default();
    let (was, is) = (text(before, &["type"]), text(&now, &["type"]));
    let mut gone: Vec<&str> = Vec::new();
    if was != "ExternalName" && is == "ExternalName" {
        gone.push("internalTrafficPolicy");
    }
    if needs_health_port(before) && !needs_health_port(&now) {
        gone.push("healthCheckNodePort");
    }
    if was == "LoadBalancer" && is != "LoadBalancer" {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_external(before) && !is_external(&now) {
        gone.push("externalTrafficPolicy");
    }
    let has_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let ports = |spec: &Value| -> Vec<Option<i64>> {
        list(spec, &["ports"]).iter().map(|port| integer(port, &["nodePort"])).collect()
    };
    let same_ports = has_ports(was) && !has_ports(is) && ports(before) == ports(&now);
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for key in gone {
        if spec.get(key) == before.get(key) {
            spec.remove(key);
        }
    }
    if same_ports {
        for port in items(spec, "ports") {
            port.remove("nodePort");
        }
    }
}
