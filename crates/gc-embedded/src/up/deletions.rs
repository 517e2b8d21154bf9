//! `GET /kubegc/v1/deletions`: who requested which deletion from the server of `kubegc up`, for users who may read this path.
//! Deletions by collectors are in the journal, and so are those that follow from a CustomResourceDefinition.
//!
//! ```text
//! GET /kubegc/v1/deletions?uid=…                                   {"items": [{"time": "…", "user": "…", …}]}
//! GET /kubegc/v1/deletions?resource=pods&namespace=shop&name=web   the same by name, the newest first
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use gc_collectors::permissions::Controller;
use gc_kube::namespaces::{DeletedWithDefinition, Trace};
use gc_kube::{Observer, Observers};
use gc_process::endpoints::refused;
use gc_process::journal::{DEFINITIONS, Journal, JournalObserver};
use gc_registry::deletion_observer::{DeletionObserver, ObservedDeletion, TerminatingDefinition};
use gc_types::{Gvr, Outcome, ResourceVersion, Uid};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::failures::{Failures, News};
use crate::accounts::{self, Account};
use crate::console::Console;

/// Path that shows who requested deletions.
pub(crate) const PATH: &str = gc_process::endpoints::DELETIONS;
/// Maximum number of deletions by users and programs that are remembered …
const REMEMBERED: usize = 10_000;
/// … and by workload controllers of this process, which would otherwise displace them.
const REMEMBERED_OF_CONTROLLERS: usize = 2_000;
/// Maximum number of deletions in one response.
const ANSWERED: usize = 10;

/// A deletion that somebody requested.
#[derive(Debug)]
struct RequestedDeletion {
    time: Timestamp,
    user: String,
    program: String,
    is_eviction: bool,
    policy: Option<&'static str>,
    resource: String,
    namespace: String,
    name: String,
    uid: String,
}

impl RequestedDeletion {
    fn value(&self) -> Value {
        json!({"time": self.time.to_string(), "user": self.user, "program": self.program, "eviction": self.is_eviction,
            "propagationPolicy": self.policy, "resource": self.resource, "namespace": self.namespace,
            "name": self.name, "uid": self.uid})
    }
}

/// The most recent deletions, oldest first.
#[derive(Debug, Default)]
struct RecentDeletions {
    by_users: VecDeque<RequestedDeletion>,
    by_controllers: VecDeque<RequestedDeletion>,
}

/// Remembers who requested deletions, and reports those that follow from a definition.
pub(crate) struct Deletions {
    remembered: Mutex<RecentDeletions>,
    /// Users whose deletions are in the journal.
    collectors: BTreeSet<String>,
    /// Reports the deletions that follow from a definition.
    cleanup: Trace,
    /// Failures of these deletions.
    failures: Mutex<Failures>,
}

impl std::fmt::Debug for Deletions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deletions").finish_non_exhaustive()
    }
}

impl Deletions {
    /// Creates an observer that reports to the journal and to the page, if there are any.
    pub(super) fn new(journal: Option<Arc<Journal>>, console: Option<Arc<dyn Console>>) -> Self {
        let cleanup = Trace::new(|table| {
            let mut observers: Vec<Arc<dyn Observer>> = Vec::new();
            observers.extend(console.map(|console| console.observer_of(DEFINITIONS, table)));
            if let Some(journal) = journal {
                let table = table.clone();
                observers.push(Arc::new(JournalObserver { journal, controller: DEFINITIONS, table }));
            }
            Arc::new(Observers(observers))
        });
        let collectors =
            Controller::ALL.into_iter().map(|controller| Account::from(controller).user()).collect();
        Self { remembered: Mutex::default(), collectors, cleanup, failures: Mutex::default() }
    }

    fn remember(&self, deletion: &ObservedDeletion<'_>) {
        if self.collectors.contains(&deletion.user.name) {
            return;
        }
        let resource = deletion.resource;
        let asked = RequestedDeletion {
            time: Timestamp::now(),
            user: deletion.user.name.clone(),
            program: deletion.program.to_owned(),
            is_eviction: deletion.is_eviction,
            policy: deletion.policy.map(gc_types::PropagationPolicy::name),
            resource: gc_types::group_resource(&resource.group, &resource.resource),
            namespace: deletion.namespace.to_owned(),
            name: deletion.name.to_owned(),
            uid: deletion.uid.to_owned(),
        };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let (ring, most) = if accounts::is_of_this_process(&asked.user) {
            (&mut remembered.by_controllers, REMEMBERED_OF_CONTROLLERS)
        } else {
            (&mut remembered.by_users, REMEMBERED)
        };
        if ring.len() >= most {
            ring.pop_front();
        }
        ring.push_back(asked);
    }

    /// Reports whether this failure of an object is to be recorded.
    fn is_recorded(&self, deletion: &ObservedDeletion<'_>, message: &str) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.failed(deletion.uid, message, Timestamp::now()) {
            News::Record => true,
            News::Known | News::TooMany => false,
            News::FirstOfTooMany => {
                let resource = deletion.resource;
                tracing::warn!(
                    resource = gc_types::group_resource(&resource.group, &resource.resource),
                    "more objects cannot be deleted with their definition than are recorded one by one; the failures of \
                     further ones are not in the journal"
                );
                false
            }
        }
    }

    fn goes_with_definition(&self, deletion: &ObservedDeletion<'_>, definition: &TerminatingDefinition) {
        let resource = deletion.resource;
        let outcome = match deletion.failure {
            None => Outcome::Applied(None),
            Some(error) if !self.is_recorded(deletion, &error.message) => return,
            Some(error) if (400..500).contains(&error.code) => {
                Outcome::Refused { code: error.code, message: error.message.clone() }
            }
            Some(error) => Outcome::Failed { message: error.message.clone(), retry_after_milliseconds: None },
        };
        let name = gc_types::group_resource(&resource.group, &resource.resource);
        let TerminatingDefinition { uid, since } = definition;
        let gone = DeletedWithDefinition {
            gvr: Gvr {
                group: resource.group.as_ref().into(),
                version: resource.version.as_ref().into(),
                resource: resource.resource.as_ref().into(),
            },
            kind: resource.kind.as_ref().into(),
            namespace: deletion.namespace.into(),
            name: deletion.name.into(),
            uid: Uid::new(deletion.uid),
            resource_version: ResourceVersion::parse(&deletion.resource_version.to_string()),
            evidence: format!("definition {name} ({uid}) has been terminating since {since}"),
        };
        if outcome == Outcome::Applied(None) {
            self.failures.lock().unwrap_or_else(PoisonError::into_inner).succeeded(deletion.uid);
            let object = format!("{name} {}/{}", deletion.namespace, deletion.name);
            let reason = gc_types::codes::DEFINITION_TERMINATING;
            tracing::info!(target: "kubegc::audit", controller = DEFINITIONS, object, reason, "deleted");
        }
        self.cleanup.deleted_with_definition(&gone, &outcome);
    }

    /// Answers a request with these parameters.
    pub(super) fn answer(&self, parameters: &[(String, String)]) -> (u16, Value) {
        let (mut uid, mut resource, mut namespace, mut name) = (None, None, None, None);
        for (parameter, value) in parameters {
            let wanted = match parameter.as_str() {
                "uid" => &mut uid,
                "resource" => &mut resource,
                "namespace" => &mut namespace,
                "name" => &mut name,
                _ => {
                    return refused(&format!(
                        "{parameter} is not known; expected uid, resource, namespace or name"
                    ));
                }
            };
            *wanted = Some(value.as_str());
        }
        if uid.is_none() && name.is_none() {
            return refused("expected uid=UID, or resource=RESOURCE with namespace=NAMESPACE and name=NAME");
        }
        let is = |wanted: Option<&str>, actual: &str| wanted.is_none_or(|wanted| wanted == actual);
        let fits = |asked: &&RequestedDeletion| {
            is(uid, &asked.uid)
                && is(resource, &asked.resource)
                && is(namespace, &asked.namespace)
                && is(name, &asked.name)
        };
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<&RequestedDeletion> =
            remembered.by_users.iter().chain(&remembered.by_controllers).filter(fits).collect();
        found.sort_by_key(|asked| std::cmp::Reverse(asked.time));
        let items: Vec<Value> = found.into_iter().take(ANSWERED).map(RequestedDeletion::value).collect();
        (200, json!({ "items": items }))
    }
}

impl DeletionObserver for Deletions {
    fn observed(&self, deletion: &ObservedDeletion<'_>) {
        match deletion.definition {
            Some(definition) => self.goes_with_definition(deletion, definition),
            None => self.remember(deletion),
        }
    }
}
