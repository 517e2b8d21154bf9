//! Causes that block one terminating object.

use gc_ownership::NodeView;
use gc_types::{ObjectKey, Uid};

use super::{Cause, Code, Diagnosis, Force, Hold, Removal};
use crate::admission::Operation;
use crate::catalog::GroupResource;
use crate::commands::{self, kubectl};
use crate::facts::Knowledge;
use crate::finalizers::{self, Controller};
use crate::object::Object;
use crate::survey::Metadata;
use crate::text;
use crate::unread::UnlistedReason;

/// Finalizer of the pods of Jobs.
const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Maximum number of blocking dependents that one message names.
const NAMED: usize = 3;
/// Maximum number of commands of one kind for one cause.
pub(super) const COMMANDS: usize = 5;

impl Diagnosis<'_> {
    /// Returns what blocks an object: causes of its own, and other terminating objects.
    pub(super) fn holds(&self, key: &ObjectKey, metadata: &Metadata) -> Vec<Hold> {
        let Some(resource) = self.survey.resource(key) else { return Vec::new() };
        let (name, namespace) = (resource.name.clone(), metadata.namespace.to_string());
        // Only whole objects show who set a finalizer, and their status.
        let object = self.facts.present(&name, &namespace, &metadata.name);
        let mut holds = Vec::new();
        match (&*name.group, &*name.resource) {
            ("", "pods") => {
                if self.is_in_grace(metadata) {
                    return Vec::new();
                }
                holds.extend(object.and_then(|pod| self.pod(pod, metadata)).map(Hold::cause));
                // The Job controller counts a pod once it has ended.
                if !holds.is_empty() {
                    let others = metadata.finalizers.iter().filter(|name| *name != JOB_TRACKING);
                    holds.extend(
                        others.flat_map(|finalizer| self.finalizer(key, metadata, object, finalizer)),
                    );
                    return holds;
                }
            }
            ("", "namespaces") => {
                if let Some(object) = object {
                    holds.extend(self.namespace(object));
                }
            }
            _ => {}
        }
        for finalizer in &metadata.finalizers {
            holds.extend(self.finalizer(key, metadata, object, finalizer));
        }
        holds
    }

    fn finalizer(
        &self,
        key: &ObjectKey,
        metadata: &Metadata,
        object: Option<&Object>,
        finalizer: &str,
    ) -> Vec<Hold> {
        match finalizer {
            "foregroundDeletion" => self.foreground(key, metadata, object),
            "orphan" => vec![self.without_collector(key, metadata, finalizer)],
            "kubernetes.io/pvc-protection" => self.claim(key, metadata, object),
            "kubernetes.io/pv-protection" => self.volume(key, metadata, object),
            "customresourcecleanup.apiextensions.k8s.io" => self.definition(key, metadata, object),
            JOB_TRACKING => vec![Hold::cause(self.job_tracking(key, metadata))],
            _ => match object {
                Some(volume) if finalizer.starts_with("external-") => {
                    vec![Hold::cause(self.storage_finalizer(key, metadata, volume, finalizer))]
                }
                _ => vec![Hold::cause(self.held(key, metadata, object, finalizer, finalizer))],
            },
        }
    }

    /// Returns the cause for a finalizer that waits for its controller, which is recognized by `mark`.
    pub(super) fn held(
        &self,
        key: &ObjectKey,
        metadata: &Metadata,
        object: Option<&Object>,
        finalizer: &str,
        mark: &str,
    ) -> Cause {
        let now = self.facts.now();
        let place = self.place(key, "");
        let writers: Vec<_> =
            object.into_iter().flat_map(|object| object.finalizer_writers(finalizer)).collect();
        let managers: Vec<String> = writers.iter().map(|writer| writer.manager.clone()).collect();
        let controllers = self.responsible(mark, &managers);
        let controllers: Vec<&Controller> =
            controllers.iter().filter(|controller| !self.is_above(key, &metadata.uid, controller)).collect();
        let mut message = format!("finalizer {finalizer}");
        if !managers.is_empty() {
            message = format!("{message}, set by {}", managers.join(", "));
        }
        if let Some(last) = object.and_then(Object::last_writer)
            && let Some(at) = last.at
        {
            message = format!("{message}; last touched {} by {}", text::ago(at, now), last.manager);
        }
        match (controllers.is_empty(), finalizers::known_controller(finalizer)) {
            (true, Some(known)) => message = format!("{message}; {known} removes it"),
            (true, None) => message.push_str("; no controller was found that removes it"),
            (false, _) => {
                let named: Vec<String> = controllers.iter().map(|controller| controller.message()).collect();
                message = format!("{message}; it seems to belong to {}", named.join(", "));
            }
        }
        let mut help: Vec<String> = controllers.iter().filter_map(|controller| look_at(controller)).collect();
        if help.is_empty() {
            help.push(kubectl(
                &metadata.namespace,
                &["get", &place.reference(), "-o", "yaml", "--show-managed-fields"],
            ));
        }
        // The command refuses while the controller is alive.
        if controllers.iter().all(|controller| !controller.works) {
            help.push(commands::release(&metadata.namespace, &place.reference(), finalizer));
        }
        Cause {
            code: Code::FinalizerHeld,
            subject: finalizer.to_owned(),
            message,
            help,
            force: Some(self.without(key, metadata, finalizer)),
        }
    }

    /// Returns the controllers that seem responsible for a finalizer of an object.
    pub(crate) fn controllers(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        object: &Object,
        finalizer: &str,
    ) -> Vec<Controller> {
        let managers: Vec<String> =
            object.finalizer_writers(finalizer).map(|writer| writer.manager).collect();
        let found = self.responsible(finalizer, &managers);
        found.iter().filter(|controller| !self.is_above(key, uid, controller)).cloned().collect()
    }

    /// Reports whether a supposed controller is the object itself, or the workload that it belongs to.
    fn is_above(&self, key: &ObjectKey, uid: &Uid, controller: &Controller) -> bool {
        const GENERATIONS: usize = 4;
        let is_meant = |kind: &str, name: &str| {
            kind.eq_ignore_ascii_case(controller.kind)
                && name == controller.name
                && *key.namespace == *controller.namespace
        };
        let place = self.place(key, "");
        if is_meant(&place.kind, &place.name) {
            return true;
        }
        let mut generation = vec![uid.clone()];
        for _ in 0..GENERATIONS {
            let owners = generation.iter().flat_map(|uid| self.survey.engine.owners_of(uid));
            let owners: Vec<_> = owners.map(|owner| owner.coordinates).collect();
            if owners.iter().any(|owner| is_meant(&owner.kind, &owner.name)) {
                return true;
            }
            generation = owners.into_iter().map(|owner| owner.uid).collect();
        }
        false
    }

    /// Returns the removal of one finalizer by hand.
    pub(super) fn without(&self, key: &ObjectKey, metadata: &Metadata, finalizer: &str) -> Force {
        let removal = Removal {
            namespace: metadata.namespace.to_string(),
            object: self.place(key, "").reference(),
            is_in_specification: false,
            uid: metadata.uid.to_string(),
            finalizers: metadata.finalizers.clone(),
            finalizer: finalizer.to_owned(),
        };
        Force::removing(removal, finalizers::strands(finalizer))
    }

    fn foreground(&self, key: &ObjectKey, metadata: &Metadata, object: Option<&Object>) -> Vec<Hold> {
        let blocking = self.survey.engine.blocking_dependents(&metadata.uid);
        let keys = || blocking.iter().filter_map(|view| view.key.clone());
        let mut holds: Vec<Hold> =
            keys().filter(|key| self.survey.terminating().contains_key(key)).map(Hold::Object).collect();
        let alive = blocking.iter().filter(|view| !view.deletion.deleting);
        let (refused, alive) = self.refusals(Operation::Delete, alive);
        holds.extend(refused.into_iter().map(Hold::cause));
        let suspected = self.suspected(Operation::Delete, alive.iter().copied());
        let alive: Vec<String> = alive.iter().map(|view| format!("{}/{}", view.kind, view.name)).collect();
        if let Some(cause) = suspected {
            holds.push(Hold::cause(cause));
        } else if !alive.is_empty() {
            let waits = text::some_of(&alive, NAMED);
            let place = self.place(key, "");
            holds.push(Hold::cause(Cause {
                code: Code::DependentNotDeleted,
                subject: format!("{}/{}", place.namespace, place.reference()),
                message: format!("waits for {waits}, which nothing deletes; is a garbage collector at work?"),
                help: vec!["kubegc doctor".into()],
                force: Some(self.without(key, metadata, "foregroundDeletion")),
            }));
        }
        if !holds.is_empty() {
            return holds;
        }
        // The server sets this finalizer without a field manager, so a named manager must have applied it.
        let applied: Option<String> = object
            .and_then(|object| object.finalizer_writers("foregroundDeletion").next())
            .map(|writer| writer.manager);
        if let Some(manager) = applied {
            return vec![Hold::cause(Cause {
                code: Code::ForegroundFinalizerApplied,
                subject: manager.clone(),
                message: format!(
                    "field manager {manager} applied the finalizer foregroundDeletion, and sets it again when the garbage \
                     collector removes it"
                ),
                help: vec![format!("remove foregroundDeletion from the manifests that {manager} applies")],
                force: Some(self.without(key, metadata, "foregroundDeletion")),
            })];
        }
        let (unseen, failed): (Vec<_>, Vec<_>) =
            self.survey.unlisted().iter().partition(|(_, why)| **why == UnlistedReason::Forbidden);
        let name =
            |id| self.survey.catalog.get(id).map(|resource| resource.name.to_string()).unwrap_or_default();
        if let Some((resource, why)) = failed.into_iter().next() {
            return vec![Hold::cause(self.unreadable(&name(*resource), why, key, metadata))];
        }
        if !unseen.is_empty() {
            let names: Vec<String> = unseen.into_iter().map(|(id, _)| name(*id)).collect();
            return vec![Hold::cause(unseen_dependents(&names))];
        }
        vec![self.without_collector(key, metadata, "foregroundDeletion")]
    }

    fn unreadable(
        &self,
        resource: &str,
        why: &UnlistedReason,
        key: &ObjectKey,
        metadata: &Metadata,
    ) -> Cause {
        if *why == UnlistedReason::Forbidden {
            return unseen_dependents(&[resource.to_owned()]);
        }
        if let Some(cause) = self.conversion(&why.to_string()) {
            return cause;
        }
        Cause {
            code: Code::ResourceUnreadable,
            subject: resource.to_owned(),
            message: format!("{resource} cannot be listed, so that dependents may remain: {why}"),
            help: vec![kubectl("", &["get", resource, "-A"])],
            force: Some(self.without(key, metadata, "foregroundDeletion")),
        }
    }

    fn without_collector(&self, key: &ObjectKey, metadata: &Metadata, finalizer: &str) -> Hold {
        let (message, mut help) = if finalizer == "orphan" {
            let dependents = self.survey.engine.dependents(&metadata.uid);
            let (refused, others) = self.refusals(Operation::Update, dependents.iter());
            let suspected = || self.suspected(Operation::Update, others.into_iter());
            if let Some(cause) = refused.into_iter().next().or_else(suspected) {
                return Hold::cause(cause);
            }
            let left = text::count(dependents.len(), "dependent");
            let keep = dependents.iter().filter_map(|view| self.without_owner(view, &metadata.uid));
            let keep: Vec<String> = keep.take(COMMANDS).collect();
            (format!("no garbage collector releases what depends on it: {left}"), keep)
        } else {
            let message =
                format!("nothing blocks it, and no garbage collector removes the finalizer {finalizer}");
            (message, Vec::new())
        };
        help.insert(0, "kubegc doctor".into());
        Hold::cause(Cause {
            code: Code::CollectorAbsent,
            subject: finalizer.to_owned(),
            message,
            help,
            force: Some(self.without(key, metadata, finalizer)),
        })
    }

    /// Returns the command that removes an owner reference from a dependent, if it is still at the same index.
    fn without_owner(&self, dependent: &NodeView, owner: &Uid) -> Option<String> {
        let key = dependent.key.as_ref()?;
        let owners = self.survey.engine.owners_of(&dependent.uid);
        let place = owners.iter().position(|reference| reference.coordinates.uid == *owner)?;
        let path = format!("/metadata/ownerReferences/{place}");
        let patch = serde_json::json!([
            {"op": "test", "path": "/metadata/uid", "value": dependent.uid.to_string()},
            {"op": "test", "path": format!("{path}/uid"), "value": owner.to_string()},
            {"op": "remove", "path": path},
        ]);
        let (object, patch) = (self.place(key, "").reference(), patch.to_string());
        Some(kubectl(&key.namespace, &["patch", &object, "--type=json", "-p", &patch]))
    }

    fn definition(&self, key: &ObjectKey, metadata: &Metadata, object: Option<&Object>) -> Vec<Hold> {
        let Some(definition) = object else { return Vec::new() };
        let name = GroupResource::new(definition.text("/spec/group"), definition.text("/spec/names/plural"));
        let Some(resource) = self.survey.catalog.named(&name) else {
            let cause =
                self.held(key, metadata, object, "customresourcecleanup.apiextensions.k8s.io", &name.group);
            return vec![Hold::cause(cause)];
        };
        if let Some(why) = self.survey.unlisted().get(&resource.id) {
            return vec![Hold::cause(self.unreadable(&name.to_string(), why, key, metadata))];
        }
        let mut holds: Vec<Hold> = self
            .survey
            .terminating()
            .keys()
            .filter(|key| key.resource == resource.id)
            .map(|key| Hold::Object(key.clone()))
            .collect();
        let alive = self.survey.engine.select(|key| key.resource == resource.id);
        let (refused, alive) =
            self.refusals(Operation::Delete, alive.iter().filter(|view| !view.deletion.deleting));
        holds.extend(refused.into_iter().map(Hold::cause));
        let alive = alive.len();
        if alive > 0 || holds.is_empty() {
            let cleanup = "customresourcecleanup.apiextensions.k8s.io";
            let message = if alive > 0 {
                format!(
                    "waits for {} of {name}, which kube-apiserver has not deleted",
                    text::count(alive, "object")
                )
            } else {
                format!("no object of {name} remains, and kube-apiserver has not removed the definition")
            };
            holds.push(Hold::cause(Cause {
                code: Code::ContentNotDeleted,
                subject: name.to_string(),
                message,
                help: vec![kubectl("", &["delete", &name.to_string(), "--all", "-A"])],
                force: Some(self.without(key, metadata, cleanup)),
            }));
        }
        holds
    }

    fn job_tracking(&self, key: &ObjectKey, metadata: &Metadata) -> Cause {
        let owner = metadata.owners.iter().find(|owner| &*owner.coordinates.kind == "Job");
        let jobs = GroupResource::new("batch", "jobs");
        let job = owner.map(|owner| &owner.coordinates);
        let known = job.map(|job| self.facts.object(&jobs, &metadata.namespace, &job.name));
        let is_gone = match (job, known) {
            (None, _) | (Some(_), Some(Some(Knowledge::Absent))) => true,
            (Some(job), Some(Some(Knowledge::Present(found)))) => found.uid() != job.uid.to_string(),
            _ => false,
        };
        let name = job.map_or("its Job", |job| &job.name);
        let (message, help) = if is_gone {
            (
                format!("Job {name} is gone, so that its controller no longer releases the pod"),
                "kubegc doctor".to_owned(),
            )
        } else {
            let words = ["get", "job", name, "-o", "yaml"];
            (
                format!("the Job controller has not counted the pod for Job {name}; is it running?"),
                kubectl(&metadata.namespace, &words),
            )
        };
        let subject = format!("{}/{name}", metadata.namespace);
        Cause {
            code: Code::JobTrackingFinalizer,
            subject,
            message,
            help: vec![help],
            force: Some(self.without(key, metadata, JOB_TRACKING)),
        }
    }
}

/// Returns the command to inspect a controller that does not work; `None` for one that does.
fn look_at(controller: &Controller) -> Option<String> {
    let target = format!("{}/{}", controller.kind, controller.name);
    match controller.kind {
        "deployment" | "statefulset" | "daemonset" if controller.works => {
            Some(kubectl(&controller.namespace, &["logs", &target, "--tail=50"]))
        }
        "deployment" | "statefulset" | "daemonset" => {
            Some(kubectl(&controller.namespace, &["describe", &target]))
        }
        _ => None,
    }
}

/// Creates the cause for dependents of resources that the requesting user may not list. Others can see them, so no force is
/// offered.
fn unseen_dependents(resources: &[String]) -> Cause {
    let first = resources.first().map(String::as_str).unwrap_or_default();
    Cause {
        code: Code::ResourceUnreadable,
        subject: first.to_owned(),
        message: format!(
            "nothing that this user may list blocks it; dependents may be among what it may not list: {}",
            text::some_of(resources, NAMED)
        ),
        help: vec![kubectl("", &["auth", "can-i", "list", first, "-A"])],
        force: None,
    }
}
