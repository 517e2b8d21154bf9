//! Addresses and node ports of services. Each is taken in the transaction that writes the service, and released in the one that
//! removes the service or its need for it. An address is taken by the IPAddress of its name, as upstream; a node port by a separate
//! key, which no API shows.

mod allocate;
mod ranges;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use bytes::Bytes;
use serde_json::{Value, json};

pub(crate) use self::allocate::Allocation;
use self::allocate::{Allocator, Occupancy, held};
use crate::api::{RequestContext, RequestTarget};
use crate::error::{ApiError, CauseReason, FieldError};
use crate::kinds::access::{integer, list};
use crate::metadata::meta;
use crate::registry::Registry;
use crate::registry::call::{Call, Charge};
use crate::storage::{Key, RangeOptions, Revision};
use crate::{catalog, kinds, persist};
pub use ranges::{RangeError, ServiceRanges};

const ADDRESSES: &str = "/networking.k8s.io/ipaddresses/";
const NODE_PORTS: &str = "/ranges/nodeports/";

/// Returns the key by which an allocation is taken.
fn key(place: Allocation) -> Key {
    match place {
        Allocation::Address(address) => format!("{ADDRESSES}{address}").into(),
        Allocation::NodePort(port) => format!("{NODE_PORTS}{port}").into(),
    }
}

impl Occupancy for Registry {
    fn is_taken(&self, place: Allocation) -> Result<bool, ApiError> {
        let answer = self.storage.get(&key(place), None).map_err(persist::storage_error)?;
        Ok(answer.item.is_some())
    }

    fn taken_like(&self, place: Allocation) -> Result<BTreeSet<Allocation>, ApiError> {
        let prefix = match place {
            Allocation::Address(_) => ADDRESSES,
            Allocation::NodePort(_) => NODE_PORTS,
        };
        let answer = self.storage.range(prefix, &RangeOptions::default()).map_err(persist::storage_error)?;
        let name = |key: &Key| key.strip_prefix(prefix).map(str::to_owned);
        let names = answer.items.iter().filter_map(|item| name(&item.key));
        Ok(match place {
            Allocation::Address(_) => {
                names.filter_map(|name| name.parse().ok().map(Allocation::Address)).collect()
            }
            Allocation::NodePort(_) => {
                names.filter_map(|name| name.parse().ok().map(Allocation::NodePort)).collect()
            }
        })
    }
}

impl Registry {
    /// Returns the record that a service holds an allocation.
    fn note(
        &self,
        place: Allocation,
        service: &Value,
        context: &RequestContext<'_>,
    ) -> Result<Bytes, ApiError> {
        let (namespace, name) = (meta::text(service, "namespace"), meta::name(service));
        let Allocation::Address(address) = place else {
            return Ok(json!({"service": format!("{namespace}/{name}")}).to_string().into());
        };
        let row = catalog::builtin("networking.k8s.io", "v1", "ipaddresses");
        let resource =
            row.ok_or_else(|| ApiError::internal("ipaddresses.networking.k8s.io are not served"))?;
        let target = RequestTarget { name: address.to_string(), ..RequestTarget::collection(resource) };
        let parent = json!({"group": "", "resource": "services", "namespace": namespace, "name": name});
        let labels = json!({
            "ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        });
        let object =
            json!({"metadata": {"name": target.name, "labels": labels}, "spec": {"parentRef": parent}});
        self.own_object(&target, object, None, context)
    }

    /// Returns the allocations of a new service, without a check that they are free.
    pub(crate) fn notes(
        &self,
        service: &Value,
        context: &RequestContext<'_>,
    ) -> Result<Vec<(Key, Bytes)>, ApiError> {
        let places = held(service).into_iter();
        places.map(|place| Ok((key(place), self.note(place, service, context)?))).collect()
    }

    /// Records the allocations of services that were stored before allocations were recorded, or by a server that does not record
    /// them.
    pub(crate) fn note_places(&self, context: &RequestContext<'_>) -> Result<(), ApiError> {
        let Some(services) = catalog::builtin("", "v1", "services") else { return Ok(()) };
        let prefix = persist::resource_prefix(services);
        let stored = self.storage.range(&prefix, &RangeOptions::default()).map_err(persist::storage_error)?;
        let mut taken = self.taken_like(Allocation::Address(Ipv4Addr::UNSPECIFIED))?;
        taken.extend(self.taken_like(Allocation::NodePort(0))?);
        let mut missing = Vec::new();
        for item in &stored.items {
            let service = persist::decode(services, item)?;
            for place in held(&service) {
                // If two services share an allocation, the first one keeps it.
                if taken.insert(place) {
                    missing.push((key(place), self.note(place, &service, context)?));
                }
            }
        }
        // Another server that starts at the same time does the same.
        self.create_all(&missing).map(drop)
    }
}

impl Call<'_> {
    fn is_about_services(&self) -> bool {
        self.resource().is("", "services")
    }

    /// Gives a service the allocations that its type needs and that it lacks, and returns those that were chosen: the request does
    /// not name them, so others may be chosen if they are taken before the service is written.
    pub(crate) fn allocate(
        &self,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<BTreeSet<Allocation>, ApiError> {
        if !self.is_about_services() || !matches!(self.target.subresource.as_str(), "" | "scale") {
            return Ok(BTreeSet::new());
        }
        allocate::complete_addresses(service, old);
        let errors = kinds::settle_families(service, old);
        if !errors.is_empty() {
            return Err(self.invalid(meta::name(service), &errors));
        }
        let first = Allocation::Address(self.registry.config.service_ranges.first_address());
        if dry_run && held(service).contains(&first) {
            self.check_free(first, service, dry_run)?;
        }
        let uid = meta::uid(service).to_owned();
        let own = held(service);
        let mut allocator = Allocator {
            ranges: &self.registry.config.service_ranges,
            occupancy: self.registry,
            old,
            uid: &uid,
            dry_run,
            own: own.clone(),
        };
        allocator.allocate(service)?;
        Ok(allocator.own.difference(&own).copied().collect())
    }

    /// Returns the allocations and releases for a write's transaction; fails with a 422 for one that is taken or invalid. If a
    /// `chosen` one is taken in the meantime, the transaction fails, and the write starts over.
    pub(crate) fn places(
        &self,
        new: &Value,
        old: Option<&Value>,
        chosen: &BTreeSet<Allocation>,
        dry_run: bool,
    ) -> Result<Vec<Charge>, ApiError> {
        if !self.is_about_services() {
            return Ok(Vec::new());
        }
        let (now, before) = (held(new), old.map(held).unwrap_or_default());
        let mut charges = Vec::new();
        // A dry run shows a placeholder instead of an address, which is not taken.
        let shown = Allocation::Address(self.registry.config.service_ranges.first_address());
        for place in now.difference(&before).filter(|place| !dry_run || **place != shown) {
            if !chosen.contains(place) {
                self.check_free(*place, new, dry_run)?;
            }
            let value = Some(self.registry.note(*place, new, self.context)?);
            charges.push(Charge { key: key(*place), revision: Revision(0), value });
        }
        charges.extend(self.release_all(before.difference(&now), old)?);
        Ok(charges)
    }

    /// Returns the releases of a transaction that removes an object.
    pub(crate) fn released_places(&self, old: &Value) -> Result<Vec<Charge>, ApiError> {
        if !self.is_about_services() {
            return Ok(Vec::new());
        }
        self.release_all(held(old).iter(), Some(old))
    }

    fn release_all<'p>(
        &self,
        places: impl Iterator<Item = &'p Allocation>,
        old: Option<&Value>,
    ) -> Result<Vec<Charge>, ApiError> {
        let Some(service) = old else { return Ok(Vec::new()) };
        places.filter_map(|place| self.release(*place, service).transpose()).collect()
    }

    fn release(&self, place: Allocation, service: &Value) -> Result<Option<Charge>, ApiError> {
        let key = key(place);
        let Some(stored) = self.read(&key)? else { return Ok(None) };
        let noted: Value = serde_json::from_slice(&stored.value).unwrap_or_default();
        let (namespace, name) = (meta::text(service, "namespace"), meta::name(service));
        let parent = &noted["spec"]["parentRef"];
        let is_its_own = match place {
            Allocation::Address(_) => {
                parent["resource"] == "services" && parent["namespace"] == namespace && parent["name"] == name
            }
            Allocation::NodePort(_) => noted["service"] == format!("{namespace}/{name}"),
        };
        Ok(is_its_own.then_some(Charge { key, revision: stored.mod_revision, value: None }))
    }

    /// Checks that an allocation is free. Like upstream's, a dry run only checks the ranges of addresses, and only whether ports
    /// are taken.
    fn check_free(&self, place: Allocation, service: &Value, dry_run: bool) -> Result<(), ApiError> {
        let ranges = &self.registry.config.service_ranges;
        let is_taken = self.registry.is_taken(place)?;
        match place {
            Allocation::Address(address) => {
                let why = if !ranges.has_address(address) && !dry_run {
                    "the provided network does not match the current range".to_owned()
                } else if !ranges.has_address(address) {
                    format!(
                        "the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                        ranges.addresses()
                    )
                } else if is_taken && !dry_run {
                    "provided IP is already allocated".to_owned()
                } else {
                    return Ok(());
                };
                let shown = &service["spec"]["clusterIPs"];
                let why = format!("failed to allocate IP {address}: {why}");
                Err(self.refused_place(service, "spec.clusterIPs".into(), shown, &why))
            }
            Allocation::NodePort(port) => {
                let why = if !ranges.has_node_port(port.into()) && !dry_run {
                    format!(
                        "provided port is not in the valid range. The range of valid ports is {}",
                        ranges.node_ports()
                    )
                } else if is_taken {
                    "provided port is already allocated".to_owned()
                } else {
                    return Ok(());
                };
                let is_it = |item: &Value| integer(item, &["nodePort"]) == Some(port.into());
                match list(service, &["spec", "ports"]).iter().position(is_it) {
                    Some(index) => {
                        let field = format!("spec.ports[{index}].nodePort");
                        Err(self.refused_place(service, field, &port.into(), &why))
                    }
                    None => Err(ApiError::internal(format!(
                        "failed to allocate requested HealthCheck NodePort {port}: {why}"
                    ))),
                }
            }
        }
    }

    fn refused_place(&self, service: &Value, field: String, shown: &Value, why: &str) -> ApiError {
        let detail = format!("Invalid value: {shown}: {why}");
        let error = FieldError { field, reason: CauseReason::Invalid, detail };
        self.invalid(meta::name(service), &[error])
    }
}
