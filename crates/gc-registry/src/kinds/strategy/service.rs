//! Addresses and node ports of services.
//!
//! Both are computed from the UID of the service instead of being taken from a pool: the same service gets the
//! same address on every server of a cluster, and nothing is left over when it is deleted. Two services can meet
//! on one address (one in a million for any two): nothing here routes by them.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::kinds::access::{Members, at, child, fill, integer, items, list, text};

/// The range that services get their addresses from.
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/12";
/// First address of the range.
const FIRST_ADDRESS: u32 = 0x0a60_0000;
/// Addresses in the range.
const ADDRESSES: u32 = 1 << 20;
/// Low addresses that stay free for services that ask for one (10.96.0.1 is the API server's own).
const RESERVED: u32 = 256;
/// Node ports are 30000 to 32767.
const FIRST_NODE_PORT: u32 = 30_000;
const NODE_PORTS: u32 = 2768;

/// The cluster address that a service with this UID gets at its `attempt`th try (0 at first): inside 10.96.0.0/12,
/// never its first 256 addresses nor its last.
#[must_use]
pub fn service_address(uid: &str, attempt: u32) -> Ipv4Addr {
    let offset = RESERVED + hash(uid, "address", attempt) % (ADDRESSES - RESERVED - 1);
    Ipv4Addr::from(FIRST_ADDRESS + offset)
}

/// The address of the Service `kubernetes`.
pub(crate) fn first_service_address() -> Ipv4Addr {
    Ipv4Addr::from(FIRST_ADDRESS + 1)
}

fn hash(uid: &str, purpose: &str, number: u32) -> u32 {
    let digest = Sha256::digest(format!("{purpose}/{number}/{uid}"));
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// Gives a service what its type needs and it has not got: from the stored object on update, else new.
pub(super) fn allocate(object: &mut Value, old: Option<&Value>) {
    let uid = text(object, &["metadata", "uid"]).to_owned();
    let kind = text(object, &["spec", "type"]).to_owned();
    let allocates_ports = kind == "NodePort"
        || (kind == "LoadBalancer"
            && crate::kinds::access::flag(object, &["spec", "allocateLoadBalancerNodePorts"]) != Some(false));
    let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
    match kind.as_str() {
        "ClusterIP" | "NodePort" | "LoadBalancer" => addresses(spec, &uid, old),
        "ExternalName" => {
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
                // The client may not have set them; what the service had before it became external is removed.
                if old.is_some_and(|old| at(old, &["spec", key]) == spec.get(key)) {
                    spec.remove(key);
                }
            }
        }
        _ => {}
    }
    if allocates_ports {
        node_ports(spec, &uid, old);
    }
    let checked = kind == "LoadBalancer" && spec.get("externalTrafficPolicy").is_some_and(|p| p == "Local");
    if checked && spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or_default() == 0 {
        let stored =
            old.and_then(|old| integer(old, &["spec", "healthCheckNodePort"])).filter(|port| *port != 0);
        let fresh = FIRST_NODE_PORT + hash(&uid, "health", 0) % NODE_PORTS;
        spec.insert("healthCheckNodePort".into(), stored.unwrap_or_else(|| i64::from(fresh)).into());
    }
}

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

fn addresses(spec: &mut Members, uid: &str, old: Option<&Value>) {
    let given = |spec: &Members| {
        let single = spec.get("clusterIP").and_then(Value::as_str).filter(|ip| !ip.is_empty());
        single.map(str::to_owned)
    };
    let stored = old.map(|old| text(old, &["spec", "clusterIP"])).filter(|ip| !ip.is_empty());
    let listed = spec.get("clusterIPs").and_then(Value::as_array).map_or(0, Vec::len);
    // A service without an address so far, whose addresses contradict each other, is refused as it came.
    if stored.is_none() && listed > 0 && given(spec).is_none_or(|one| spec["clusterIPs"][0] != one) {
        return;
    }
    let address = given(spec)
        .or_else(|| stored.map(str::to_owned))
        .unwrap_or_else(|| service_address(uid, 0).to_string());
    spec.insert("clusterIP".into(), address.as_str().into());
    if listed < 2 {
        spec.insert("clusterIPs".into(), json!([address]));
    }
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    if spec.get("ipFamilies").is_none() {
        spec.insert("ipFamilies".into(), json!([family]));
    }
    if spec.get("ipFamilyPolicy").is_none() {
        spec.insert("ipFamilyPolicy".into(), "SingleStack".into());
    }
}

fn node_ports(spec: &mut Members, uid: &str, old: Option<&Value>) {
    let stored: Vec<(i64, String, i64)> = old
        .map(|old| list(old, &["spec", "ports"]))
        .unwrap_or_default()
        .iter()
        .filter_map(|port| {
            let node = integer(port, &["nodePort"]).filter(|node| *node != 0)?;
            Some((integer(port, &["port"])?, text(port, &["protocol"]).to_owned(), node))
        })
        .collect();
    let mut taken: Vec<i64> = Vec::new();
    each_port(spec, |index, port| {
        let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or_default().to_owned();
        let node = port.get("nodePort").and_then(Value::as_i64).filter(|node| *node != 0).or_else(|| {
            stored.iter().find(|(p, q, _)| *p == number && *q == protocol).map(|(_, _, node)| *node)
        });
        let node = node.unwrap_or_else(|| {
            let mut number = hash(uid, "port", u32::try_from(index).unwrap_or_default()) % NODE_PORTS;
            // Ports of one service differ; there are more numbers than a service may have ports.
            for _ in 0..NODE_PORTS {
                if !taken.contains(&i64::from(FIRST_NODE_PORT + number)) {
                    break;
                }
                number = (number + 1) % NODE_PORTS;
            }
            i64::from(FIRST_NODE_PORT + number)
        });
        taken.push(node);
        port.insert("nodePort".into(), node.into());
    });
}

/// Visits the ports of a service in their order.
fn each_port(spec: &mut Members, mut visit: impl FnMut(usize, &mut Members)) {
    for (index, port) in items(spec, "ports").enumerate() {
        fill(port, "protocol", "TCP");
        visit(index, port);
    }
}
