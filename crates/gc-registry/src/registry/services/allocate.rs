//! Allocates addresses and node ports that a service still needs for its type.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::ServiceRanges;
use crate::error::ApiError;
use crate::kinds::access::{Members, at, child, fill, flag, integer, items, list, put, text};

/// Number of random candidates before all taken allocations are read.
const TRIES: u32 = 8;

/// Allocation that only one service may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Allocation {
    Address(Ipv4Addr),
    NodePort(u32),
}

/// Existing allocations.
pub(super) trait Occupancy {
    fn is_taken(&self, place: Allocation) -> Result<bool, ApiError>;
    /// Returns all taken addresses, or all taken ports.
    fn taken_like(&self, place: Allocation) -> Result<BTreeSet<Allocation>, ApiError>;
}

/// Returns the allocations of a service.
pub(super) fn held(service: &Value) -> BTreeSet<Allocation> {
    let addresses = list(service, &["spec", "clusterIPs"]).iter().filter_map(Value::as_str);
    let ports = list(service, &["spec", "ports"]).iter().filter_map(|port| integer(port, &["nodePort"]));
    let health = integer(service, &["spec", "healthCheckNodePort"]);
    let ports = ports.chain(health).filter(|port| *port != 0).filter_map(|port| u32::try_from(port).ok());
    addresses
        .filter_map(|address| address.parse().ok().map(Allocation::Address))
        .chain(ports.map(Allocation::NodePort))
        .collect()
}

/// Synchronizes the two fields for a service's address; an update that omits them keeps them.
pub(super) fn complete_addresses(service: &mut Value, old: Option<&Value>) {
    const ONE: [&str; 2] = ["spec", "clusterIP"];
    const ALL: [&str; 2] = ["spec", "clusterIPs"];
    let has_address = |service: &Value| text(service, &["spec", "type"]) != "ExternalName";
    let Some(old) = old else {
        let one = text(service, &ONE).to_owned();
        if !one.is_empty() && list(service, &ALL).is_empty() {
            put(service, &ALL, json!([one]));
        }
        return;
    };
    if has_address(old) && has_address(service) {
        if text(service, &ONE).is_empty()
            && let Some(before) = at(old, &ONE)
        {
            put(service, &ONE, before.clone());
        }
        // Even beside another single address: the comparison below then replaces them, or validation refuses the change.
        keep_all(service, old);
    } else if text(service, &ONE) == text(old, &ONE) {
        keep_all(service, old);
    }
    let (one, before) = (text(service, &ONE).to_owned(), text(old, &ONE));
    if one != before && list(service, &ALL) == list(old, &ALL) {
        // Changing one implies changing the other.
        if one.is_empty() {
            service["spec"].as_object_mut().map(|spec| spec.remove("clusterIPs"));
        } else {
            put(service, &ALL, json!([one]));
        }
    }
}

/// Takes the addresses of the stored Service over if none are given.
fn keep_all(service: &mut Value, old: &Value) {
    let path = ["spec", "clusterIPs"];
    let before = list(old, &path);
    if !before.is_empty() && list(service, &path).is_empty() {
        put(service, &path, before.into());
    }
}

/// Allocates for a single service.
pub(super) struct Allocator<'a> {
    pub(super) ranges: &'a ServiceRanges,
    pub(super) occupancy: &'a dyn Occupancy,
    /// The stored service, if it is updated.
    pub(super) old: Option<&'a Value>,
    /// Determines where the search begins, so that it differs between services.
    pub(super) uid: &'a str,
    pub(super) dry_run: bool,
    /// Existing allocations of the service.
    pub(super) own: BTreeSet<Allocation>,
}

impl Allocator<'_> {
    /// Gives a service the allocations that its type needs and that it lacks: those of the stored object for an update, otherwise
    /// new ones.
    pub(super) fn allocate(&mut self, service: &mut Value) -> Result<(), ApiError> {
        let kind = text(service, &["spec", "type"]).to_owned();
        let allocates_ports = kind == "NodePort"
            || kind == "LoadBalancer"
                && flag(service, &["spec", "allocateLoadBalancerNodePorts"]) != Some(false);
        let old = self.old;
        let Some(spec) = service.as_object_mut().and_then(|members| child(members, "spec")) else {
            return Ok(());
        };
        match kind.as_str() {
            "ClusterIP" | "NodePort" | "LoadBalancer" => self.addresses(spec)?,
            "ExternalName" => {
                for key in
                    ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
                {
                    // Fields that the client did not change are removed: the service had them before it became external.
                    if old.is_some_and(|old| at(old, &["spec", key]) == spec.get(key)) {
                        spec.remove(key);
                    }
                }
            }
            _ => {}
        }
        if allocates_ports {
            self.node_ports(spec)?;
        }
        let checked = kind == "LoadBalancer"
            && spec.get("externalTrafficPolicy").is_some_and(|policy| policy == "Local");
        if checked && spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or_default() == 0 {
            let stored = old.and_then(|old| integer(old, &["spec", "healthCheckNodePort"]));
            let port = match stored.filter(|port| *port != 0) {
                Some(stored) => stored,
                None => self.node_port("health", 0)?,
            };
            spec.insert("healthCheckNodePort".into(), port.into());
        }
        Ok(())
    }

    fn addresses(&mut self, spec: &mut Members) -> Result<(), ApiError> {
        let given = |spec: &Members| {
            let single = spec.get("clusterIP").and_then(Value::as_str).filter(|ip| !ip.is_empty());
            single.map(str::to_owned)
        };
        let stored = self.old.map(|old| text(old, &["spec", "clusterIP"])).filter(|ip| !ip.is_empty());
        let listed = spec.get("clusterIPs").and_then(Value::as_array).map_or(0, Vec::len);
        // A service without an address so far, whose address fields contradict each other, is refused unchanged.
        if stored.is_none() && listed > 0 && given(spec).is_none_or(|one| spec["clusterIPs"][0] != one) {
            return Ok(());
        }
        let address = match given(spec).or_else(|| stored.map(str::to_owned)) {
            Some(address) => address,
            None => self.address()?.to_string(),
        };
        spec.insert("clusterIP".into(), address.as_str().into());
        if listed < 2 {
            spec.insert("clusterIPs".into(), json!([address]));
        }
        Ok(())
    }

    fn address(&mut self) -> Result<Ipv4Addr, ApiError> {
        // Upstream's dry run takes no address, and shows the one that no service gets.
        if self.dry_run {
            return Ok(self.ranges.first_address());
        }
        let place = |number: u32| Allocation::Address(Ipv4Addr::from(number));
        let number = self.free("address", 0, &self.ranges.address_bands(), &place)?;
        let number =
            number.ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?;
        self.own.insert(place(number));
        Ok(Ipv4Addr::from(number))
    }

    fn node_port(&mut self, purpose: &str, index: usize) -> Result<i64, ApiError> {
        let number = self.free(purpose, index, &self.ranges.node_port_bands(), &Allocation::NodePort)?;
        let number =
            number.ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?;
        self.own.insert(Allocation::NodePort(number));
        Ok(number.into())
    }

    /// Returns a free number, preferably from the first band.
    fn free(
        &self,
        purpose: &str,
        index: usize,
        bands: &[RangeInclusive<u32>; 2],
        place: &dyn Fn(u32) -> Allocation,
    ) -> Result<Option<u32>, ApiError> {
        let (first, last) = bands[0].clone().into_inner();
        let length = last - first + 1;
        for attempt in 0..TRIES {
            let number = first + hash(&format!("{purpose}/{index}/{attempt}/{}", self.uid)) % length;
            if !self.own.contains(&place(number)) && !self.occupancy.is_taken(place(number))? {
                return Ok(Some(number));
            }
        }
        let taken = self.occupancy.taken_like(place(first))?;
        let is_free = |number: &u32| !self.own.contains(&place(*number)) && !taken.contains(&place(*number));
        Ok(bands.iter().cloned().flatten().find(is_free))
    }

    fn node_ports(&mut self, spec: &mut Members) -> Result<(), ApiError> {
        let old = self.old.map(|old| list(old, &["spec", "ports"])).unwrap_or_default();
        // A port without a number keeps that of the stored port with its name, unless another port has it now.
        let stored: BTreeMap<&str, i64> = old
            .iter()
            .map(|port| (text(port, &["name"]), integer(port, &["nodePort"]).unwrap_or_default()))
            .collect();
        let node_of = |port: &Members| port.get("nodePort").and_then(Value::as_i64).filter(|node| *node != 0);
        let given: BTreeSet<i64> = items(spec, "ports").filter_map(|port| node_of(port)).collect();
        let used: BTreeSet<i64> = stored.values().copied().filter(|node| given.contains(node)).collect();
        let mut seen = BTreeSet::new();
        for (index, port) in items(spec, "ports").enumerate() {
            fill(port, "protocol", "TCP");
            let name = port.get("name").and_then(Value::as_str).unwrap_or_default();
            let known = stored.get(name).copied().filter(|node| *node != 0 && !used.contains(node));
            let node = match node_of(port).or(known) {
                Some(node) => node,
                None => self.node_port("port", index)?,
            };
            port.insert("nodePort".into(), node.into());
            let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or_default().to_owned();
            if self.old.is_some() && !seen.insert((protocol.clone(), node)) {
                // Upstream's allocator detects this before validation, and has no better answer.
                return Err(ApiError::new(500, "", format!("duplicate nodePort: {{{protocol} {node}}}")));
            }
        }
        Ok(())
    }
}

fn hash(text: &str) -> u32 {
    let digest = Sha256::digest(text);
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}
