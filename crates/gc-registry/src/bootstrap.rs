//! Objects of every cluster: namespaces, the RBAC policy, flow control, the Service `kubernetes`, and the others that
//! kube-apiserver creates at its start.

pub mod flow_control;
mod objects;
mod policy;
mod reconcile;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::api::{Operation, RequestBody, RequestContext, RequestTarget};
use crate::error::ApiError;
use crate::maintain::own_write;
use crate::metadata::meta;
use crate::persist;
use crate::registry::Registry;
use crate::registry::call::Call;
use crate::registry::services::ServiceRanges;
use crate::storage::{Committed, Condition, Key, Revision, Transaction, Write};
use reconcile::Reconcile;

const RBAC: &str = "rbac.authorization.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
/// Maximum number of objects created per transaction: etcd accepts 128 operations.
const CREATED_AT_ONCE: usize = 100;
/// Maximum number of rounds of a start while other servers create objects.
const MAX_TURNS: usize = 8;

/// Facts about the server that bootstrap objects contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Endpoint of the Service `kubernetes`. Without an address that others can use, it has no endpoints.
    pub address: Option<IpAddr>,
    /// Port that the server listens on.
    pub port: u16,
    /// Authority that client certificates are verified with, in PEM.
    pub client_ca: String,
    /// Proxies that aggregated servers may trust.
    pub front_proxy: FrontProxyFacts,
}

/// Proxies that may name users in headers to aggregated servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxyFacts {
    /// Authorities of their certificates, in PEM.
    pub ca: String,
    /// Names in those certificates; empty for any.
    pub names: Vec<String>,
    /// Headers with the user's name.
    pub user_headers: Vec<String>,
    /// Headers with the user's UID.
    pub uid_headers: Vec<String>,
    /// Headers with groups.
    pub group_headers: Vec<String>,
    /// Prefixes of the headers with extra attributes.
    pub extra_prefixes: Vec<String>,
}

/// An object that every cluster has.
#[derive(Clone, Debug)]
struct BootstrapObject {
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    namespace: String,
    /// The object without apiVersion and kind.
    object: Value,
    /// Initial status.
    status: Option<Value>,
    reconcile: Reconcile,
}

impl BootstrapObject {
    fn new(
        group: &'static str,
        version: &'static str,
        resource: &'static str,
        namespace: &str,
        object: Value,
    ) -> Self {
        let namespace = namespace.to_owned();
        Self { group, version, resource, namespace, object, status: None, reconcile: Reconcile::Never }
    }

    fn target(&self, registry: &Registry) -> Result<RequestTarget, ApiError> {
        let catalog = registry.catalog();
        let Some(row) = catalog.find(self.group, self.version, self.resource) else {
            return Err(ApiError::internal(format!("{}.{} is not served", self.resource, self.group)));
        };
        Ok(RequestTarget {
            namespace: self.namespace.clone(),
            name: meta::name(&self.object).to_owned(),
            ..RequestTarget::collection(row)
        })
    }
}

fn all(server: &ServerFacts, ranges: &ServiceRanges, now: jiff::Timestamp) -> Vec<BootstrapObject> {
    let mut found = objects::objects(server, ranges, now);
    found.extend(policy::objects());
    let flow_control = |resource: &'static str, object: Value, status: Value| BootstrapObject {
        reconcile: Reconcile::FlowControl,
        status: Some(status),
        ..BootstrapObject::new(FLOW_CONTROL, "v1", resource, "", object)
    };
    found.extend(
        flow_control::priority_levels()
            .into_iter()
            .map(|level| flow_control("prioritylevelconfigurations", level, serde_json::json!({}))),
    );
    found.extend(flow_control::flow_schemas().into_iter().map(|schema| {
        let status = flow_control::found(&schema, now);
        flow_control("flowschemas", schema, status)
    }));
    found
}

impl Registry {
    /// Creates missing bootstrap objects, and updates those that depend on the server.
    pub fn bootstrap(&self, context: &RequestContext<'_>, server: &ServerFacts) -> Result<(), ApiError> {
        self.provide(&all(server, &self.config.service_ranges, context.now), context)?;
        self.note_places(context)
    }

    /// Updates the objects that depend on the server, in a store where a server of this process has already created all others.
    pub fn follow_server(&self, context: &RequestContext<'_>, server: &ServerFacts) -> Result<(), ApiError> {
        let following = objects::following(server, &self.config.service_ranges, context.now);
        self.provide(&following, context)
    }

    fn provide(&self, all: &[BootstrapObject], context: &RequestContext<'_>) -> Result<(), ApiError> {
        for _ in 0..MAX_TURNS {
            let mut missing = Vec::new();
            for wanted in all {
                let target = wanted.target(self)?;
                let key = persist::object_key(&target.resource, &target.namespace, &target.name);
                match self.storage.get(&key, None).map_err(persist::storage_error)?.item {
                    Some(stored) => {
                        let live = persist::decode(&target.resource, &stored)?;
                        self.bring_up_to_date(wanted, &target, &live, context)?;
                    }
                    None => missing.extend(self.created(wanted, &target, key, context)?),
                }
            }
            if self.create_all(&missing)? {
                return Ok(());
            }
        }
        Err(ApiError::internal("other servers keep creating the objects that every cluster has"))
    }

    /// Returns a missing object, and what is written with it.
    fn created(
        &self,
        wanted: &BootstrapObject,
        target: &RequestTarget,
        key: Key,
        context: &RequestContext<'_>,
    ) -> Result<Vec<(Key, bytes::Bytes)>, ApiError> {
        let object = wanted.object.clone();
        let mut created = vec![(key, self.own_object(target, object, wanted.status.clone(), context)?)];
        if target.resource.is("", "services") {
            let mut service = wanted.object.clone();
            service["metadata"]["namespace"] = target.namespace.as_str().into();
            service["spec"]["clusterIPs"] = serde_json::json!([service["spec"]["clusterIP"]]);
            created.extend(self.notes(&service, context)?);
        }
        Ok(created)
    }

    /// Returns the stored form of an object that the server creates for itself.
    pub(crate) fn own_object(
        &self,
        target: &RequestTarget,
        object: Value,
        status: Option<Value>,
        context: &RequestContext<'_>,
    ) -> Result<bytes::Bytes, ApiError> {
        let mut call = Call::new(self, target, context);
        let options = own_write();
        let mut object = call.take_body(RequestBody::from(object), &options)?;
        call.settle_namespace(&mut object)?;
        call.complete_new(&mut object, &options)?;
        if let Some(status) = status {
            object["status"] = status;
        }
        persist::encode(&target.resource, &object)
    }

    /// Creates objects. Returns false if another server created one of them in the meantime.
    pub(crate) fn create_all(&self, missing: &[(Key, bytes::Bytes)]) -> Result<bool, ApiError> {
        for chunk in missing.chunks(CREATED_AT_ONCE) {
            let transaction = Transaction {
                conditions: chunk
                    .iter()
                    .map(|(key, _)| Condition { key: Arc::clone(key), mod_revision: Revision(0) })
                    .collect(),
                writes: chunk.iter().map(|(key, value)| Write::Put(Arc::clone(key), value.clone())).collect(),
            };
            match self.storage.commit(transaction).map_err(persist::storage_error)? {
                Committed::Done(_) => {}
                Committed::Conflict(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn bring_up_to_date(
        &self,
        wanted: &BootstrapObject,
        target: &RequestTarget,
        live: &Value,
        context: &RequestContext<'_>,
    ) -> Result<(), ApiError> {
        let Some(new) = reconcile::reconciled(wanted.reconcile, live, &wanted.object) else { return Ok(()) };
        let body = RequestBody::from(new);
        match self.handle(target, Operation::Update(body, own_write()), context) {
            // The object was changed in the meantime; the next start checks again.
            Err(error) if matches!(error.code, 404 | 409) => Ok(()),
            other => other.map(|_| ()),
        }
    }
}
