//! Questions of passes, sent to the real registry, and their answers.

use std::sync::Arc;

use gc_collectors::namespaces::documents::{view, with_finalizers, with_status};
use gc_collectors::namespaces::emptying::{Ask, ContainedResource, Item, Reply, ServedResources};
use gc_registry::api::{DeleteOptions, ListOptions, Object, Operation, RequestBody, WriteOptions};
use gc_registry::error::ApiError;
use gc_types::{FailedGroup, Gvr, Scope, Timestamp};
use serde_json::Value;

use super::controller::Flight;
use crate::defects::Defect;
use crate::kinds::{KINDS, Kind};
use crate::metadata::Metadata;
use crate::server::Server;

/// Kind of the namespaces themselves.
pub(super) const NAMESPACE: Kind = Kind {
    group: "",
    versions: &["v1"],
    resource: "namespaces",
    kind: "Namespace",
    scope: Scope::Cluster,
    custom: false,
};

/// Returns the namespaced kinds of these worlds, as indices of [`KINDS`]. (Claims are not protected here.)
pub(super) fn contained_kinds() -> impl Iterator<Item = usize> {
    let is_claim = |index: usize| KINDS[index].kind == "PersistentVolumeClaim";
    (0..KINDS.len()).filter(move |&index| KINDS[index].scope == Scope::Namespaced && !is_claim(index))
}

/// View of a controller's world for its requests.
pub(super) struct Asker<'a> {
    pub(super) server: &'a Server,
    /// Groups that discovery cannot reach.
    pub(super) dead: &'a [&'static str],
    /// Kinds whose collections cannot be deleted by one request, one bit for each.
    pub(super) singly: u64,
    /// Error of the controller's wall clock.
    pub(super) clock_error: i64,
    pub(super) defect: Option<Defect>,
}

fn refused(error: &ApiError) -> Reply {
    Reply::Refused { code: error.code, why: error.message.clone() }
}

fn unserved() -> Reply {
    Reply::Refused { code: 404, why: "404 page not found".into() }
}

impl Asker<'_> {
    /// Asks a question. Returns the answer, and the namespace if it was read.
    pub(super) fn ask(&self, flight: &Flight) -> (Reply, Option<Value>) {
        let name = &*flight.question.namespace;
        let reply = match &flight.question.ask {
            Ask::Read => return self.read(name),
            Ask::Discover => Reply::Served(Arc::new(self.served())),
            Ask::DeleteAll(resource) => {
                let options = DeleteOptions {
                    propagation_policy: Some("Background".to_owned()),
                    ..DeleteOptions::default()
                };
                self.contents(
                    resource,
                    name,
                    "",
                    Operation::DeleteCollection(ListOptions::default(), options),
                )
            }
            Ask::Delete(resource, item) => {
                let options = DeleteOptions {
                    propagation_policy: Some("Background".to_owned()),
                    precondition_uid: item.uid.clone(),
                    ..DeleteOptions::default()
                };
                self.contents(resource, name, &item.name, Operation::Delete(options))
            }
            Ask::List(resource) => self.list(resource, name),
            Ask::WriteStatus(conditions) => {
                self.write(name, "status", with_status(&flight.question.document, conditions))
            }
            Ask::Finalize(left) => {
                let mut document = with_finalizers(&flight.question.document, left);
                if self.defect == Some(Defect::NamespaceUidUnchecked)
                    && let Some(metadata) = document["metadata"].as_object_mut()
                {
                    metadata.retain(|field, _| !["uid", "resourceVersion"].contains(&field.as_str()));
                }
                self.write(name, "finalize", document)
            }
        };
        (reply, None)
    }

    fn read(&self, name: &str) -> (Reply, Option<Value>) {
        match self.server.get(&NAMESPACE, "", name) {
            None => (unserved(), None),
            Some(Err(error)) => (refused(&error), None),
            Some(Ok(object)) => {
                let document = object.value().map(|value| Value::clone(value)).unwrap_or_default();
                let view = view(&document, Timestamp(self.server.now + self.clock_error));
                (Reply::Namespace(Box::new(view)), Some(document))
            }
        }
    }

    /// Returns discovery without the dead groups.
    fn served(&self) -> ServedResources {
        let mut served = ServedResources::default();
        for (index, kind) in contained_kinds().map(|index| (index, &KINDS[index])) {
            if self.dead.contains(&kind.group) || !self.server.serves(kind) {
                continue;
            }
            let gvr = Gvr {
                group: kind.group.into(),
                version: kind.versions[0].into(),
                resource: kind.resource.into(),
            };
            served.groups.insert(kind.group.to_owned(), true);
            let together = self.singly & (1 << index) == 0;
            served.resources.push(Arc::new(ContainedResource { gvr, kind: kind.kind.into(), together }));
        }
        if self.defect != Some(Defect::NamespaceDiscoveryAssumed) {
            let unclear = |group: &&str| FailedGroup {
                group: (*group).to_owned(),
                version: None,
                message: "dead".into(),
            };
            served.failed = self.dead.iter().map(unclear).collect();
        }
        served
    }

    fn contents(
        &self,
        resource: &ContainedResource,
        namespace: &str,
        name: &str,
        operation: Operation,
    ) -> Reply {
        match kind_of(resource).and_then(|kind| self.server.request(kind, namespace, name, operation)) {
            None => unserved(),
            Some(Ok(_)) => Reply::Done,
            Some(Err(error)) => refused(&error),
        }
    }

    fn list(&self, resource: &ContainedResource, namespace: &str) -> Reply {
        let is_pods = &*resource.gvr.resource == "pods";
        if self.defect == Some(Defect::NamespaceListSkipped) && !is_pods
            || self.defect == Some(Defect::NamespacePodsUnawaited) && is_pods
        {
            return Reply::Items(Vec::new());
        }
        match kind_of(resource).and_then(|kind| self.server.list(kind, namespace, None)) {
            None => unserved(),
            Some(Err(error)) => refused(&error),
            Some(Ok(list)) => Reply::Items(list.items.iter().filter_map(item).collect()),
        }
    }

    fn write(&self, name: &str, part: &str, document: Value) -> Reply {
        let body = RequestBody::from(document);
        let operation = Operation::Update(body, WriteOptions::default());
        match self.server.request_part(&NAMESPACE, ("", name, part), operation) {
            None => unserved(),
            Some(Ok(_)) => Reply::Done,
            Some(Err(error)) => refused(&error),
        }
    }
}

fn kind_of(resource: &ContainedResource) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.group == &*resource.gvr.group && kind.resource == &*resource.gvr.resource)
}

fn item(object: &Arc<Object>) -> Option<Item> {
    let metadata = Metadata::of(object)?;
    Some(Item {
        name: metadata.name.to_owned(),
        uid: Some(metadata.uid.to_owned()),
        resource_version: metadata.resource_version.0.to_string(),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.iter().map(|name| (*name).to_owned()).collect(),
        grace_seconds: metadata.deletion_grace_period_seconds.unwrap_or_default(),
    })
}
