//! The oracles. They judge only from the store: no object with a living owner is collected, and at rest nothing exceeds its limit.

use gc_types::{Effect, Evidence, Request, ResourceVersion, Scope, Uid};
use gc_workloads::kinds::Kind as WorkloadKind;
use serde_json::Value;

use super::clients::NAMESPACES;
use super::collectors::Collector;
use super::feed::value_of;
use super::{WorkloadWorld, at, broken};
use crate::kinds::Kind;
use crate::violation::Violation;

/// `revisionHistoryLimit` of every Deployment and StatefulSet.
const REVISIONS: usize = 1;
const SUCCESSFUL_JOBS: usize = 2;
const FAILED_JOBS: usize = 1;

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn is_deleting(object: &Value) -> bool {
    !at(object, "/metadata/deletionTimestamp").is_null()
}

fn owned_by<'a>(objects: &'a [Value], owner: &Value) -> Vec<&'a Value> {
    let uid = text(owner, "/metadata/uid");
    let owns =
        |object: &&Value| list(object, "/metadata/ownerReferences").iter().any(|one| one["uid"] == uid);
    objects.iter().filter(owns).collect()
}

/// Kinds that own objects in these worlds: group, plural name and kind.
const OWNERS: [(&str, &str, &str); 9] = [
    ("apps", "deployments", "Deployment"),
    ("apps", "replicasets", "ReplicaSet"),
    ("apps", "statefulsets", "StatefulSet"),
    ("apps", "daemonsets", "DaemonSet"),
    ("apps", "controllerrevisions", "ControllerRevision"),
    ("batch", "cronjobs", "CronJob"),
    ("batch", "jobs", "Job"),
    ("", "pods", "Pod"),
    ("", "nodes", "Node"),
];

/// Returns the kind that an owner reference names.
fn kind_meant(reference: &Value) -> Option<Kind> {
    let (api_version, meant) = (text(reference, "/apiVersion"), text(reference, "/kind"));
    let group = if api_version == "v1" { "" } else { api_version.strip_suffix("/v1")? };
    let (group, resource, kind) =
        OWNERS.into_iter().find(|(of_group, _, kind)| (*of_group, *kind) == (group, meant))?;
    let scope = if kind == "Node" { Scope::Cluster } else { Scope::Namespaced };
    Some(Kind { group, versions: &["v1"], resource, kind, scope, custom: false })
}

/// Returns the condition that marks a Job as finished, and its time.
fn finish(job: &Value) -> Option<(&str, i64)> {
    let ends = |one: &&Value| matches!(text(one, "/type"), "Complete" | "Failed") && one["status"] == "True";
    let end = list(job, "/status/conditions").iter().find(ends)?;
    let at = text(end, "/lastTransitionTime").parse::<jiff::Timestamp>().ok()?;
    Some((text(end, "/type"), at.as_millisecond()))
}

/// Reports whether an object has changed since its deletion was decided.
fn has_changed(object: &Value, effect: &Effect) -> bool {
    let decided_at = effect.reason.evidence.iter().find_map(|evidence| match evidence {
        Evidence::ObservedAt { resource_version } => Some(*resource_version),
        _ => None,
    });
    decided_at
        .is_some_and(|version| ResourceVersion::parse(text(object, "/metadata/resourceVersion")) > version)
}

impl WorkloadWorld {
    fn live(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Value> {
        value_of(&*self.server.get(kind, namespace, name)?.ok()?)
    }

    /// Returns the existing owners of an object.
    fn living_owners(&self, object: &Value) -> Vec<Value> {
        let namespace = text(object, "/metadata/namespace");
        let owner = |reference: &Value| {
            let kind = kind_meant(reference)?;
            let namespace = if kind.scope == Scope::Namespaced { namespace } else { "" };
            let owner = self.live(&kind, namespace, text(reference, "/name"))?;
            (at(&owner, "/metadata/uid") == &reference["uid"]).then_some(owner)
        };
        list(object, "/metadata/ownerReferences").iter().filter_map(owner).collect()
    }

    /// Judges a deletion before it is performed.
    pub(super) fn judge_collection(
        &self,
        collector: Collector,
        kind: &Kind,
        effect: &Effect,
    ) -> Result<(), Violation> {
        let Request::Delete { key, uid, resource_version, .. } = &effect.request else { return Ok(()) };
        let Some(object) = self.live(kind, &key.namespace, &key.name) else { return Ok(()) };
        if Uid::new(text(&object, "/metadata/uid")) != *uid || is_deleting(&object) {
            return Ok(());
        }
        // The last resort for an object that changes all the time (spec 4.5): changes after the decision are not seen.
        if resource_version.is_none() && has_changed(&object, effect) {
            return Ok(());
        }
        let shown = format!("{} {}/{}", kind.resource, key.namespace, key.name);
        if collector == Collector::FinishedJobs {
            let ttl = at(&object, "/spec/ttlSecondsAfterFinished").as_i64();
            let due = ttl.zip(finish(&object)).map(|(ttl, (_, at))| at + ttl * 1000);
            return match due {
                Some(due) if due <= self.server.now => Ok(()),
                _ => Err(broken("early", format!("{shown} has not expired"))),
            };
        }
        if list(&object, "/metadata/ownerReferences").is_empty() {
            return Err(broken("wanted", format!("{shown} has no owners and is collected")));
        }
        let waits = |owner: &Value| {
            let finalizers = list(owner, "/metadata/finalizers");
            is_deleting(owner) && finalizers.iter().any(|one| one == "foregroundDeletion")
        };
        match self.living_owners(&object).iter().find(|owner| !waits(owner)) {
            Some(owner) => {
                Err(broken("wanted", format!("{shown} is collected, and {} owns it", name(owner))))
            }
            None => Ok(()),
        }
    }

    /// Judges the remaining objects once nothing is left to do.
    pub(super) fn judge(&self) -> Result<(), Violation> {
        let kinds: Vec<WorkloadKind> = self.runtime.kinds().into_iter().collect();
        for kind in kinds {
            for object in self.list(kind, "") {
                let shown =
                    || format!("{} {}/{}", kind.name(), text(&object, "/metadata/namespace"), name(&object));
                if is_deleting(&object) {
                    if self.is_kept_by_a_stranger(kind, &object) {
                        continue;
                    }
                    return Err(broken("held", format!("{} is still being deleted", shown())));
                }
                let owners = list(&object, "/metadata/ownerReferences");
                if !owners.is_empty() && self.living_owners(&object).is_empty() {
                    return Err(broken("garbage", format!("{} is left, and its owners are gone", shown())));
                }
            }
        }
        for namespace in NAMESPACES {
            self.judge_deployment(namespace)?;
            self.judge_stateful_set(namespace)?;
            self.judge_jobs(namespace)?;
        }
        Ok(())
    }

    /// Reports whether a pod without an owner uses a claim, which its protection keeps as long as the pod runs, or a claim that
    /// this object waits for. Another set may have adopted such a pod since: it keeps running, so the claim of the former set,
    /// which was collected, stays.
    fn is_kept_by_a_stranger(&self, kind: WorkloadKind, object: &Value) -> bool {
        let namespace = text(object, "/metadata/namespace");
        let pods = self.list(WorkloadKind::Pod, namespace);
        let is_stranger = |pod: &Value| {
            let was_cut = self.cut_pods.contains(text(pod, "/metadata/uid"));
            list(pod, "/metadata/ownerReferences").is_empty() || was_cut
        };
        let is_kept = |claim: &Value| {
            let uses = |pod: &Value| {
                let volumes = list(pod, "/spec/volumes").iter();
                let mut claims = volumes.map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
                is_stranger(pod) && claims.any(|used| used == name(claim))
            };
            let is_wanted = || self.living_owners(claim).iter().any(|owner| !is_deleting(owner));
            is_deleting(claim) && pods.iter().any(uses) && !is_wanted()
        };
        if kind == WorkloadKind::PersistentVolumeClaim {
            return is_kept(object);
        }
        let waits = list(object, "/metadata/finalizers").iter().any(|one| one == "foregroundDeletion");
        let claims = self.list(WorkloadKind::PersistentVolumeClaim, namespace);
        waits && owned_by(&claims, object).into_iter().any(is_kept)
    }

    fn judge_deployment(&self, namespace: &str) -> Result<(), Violation> {
        let (sets, pods) =
            (self.list(WorkloadKind::ReplicaSet, namespace), self.list(WorkloadKind::Pod, namespace));
        for set in &sets {
            let adoptable = |pod: &&Value| {
                let hash = at(set, "/metadata/labels/pod-template-hash");
                !hash.is_null()
                    && at(pod, "/metadata/labels/pod-template-hash") == hash
                    && list(pod, "/metadata/ownerReferences").is_empty()
                    && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
            };
            if let Some(pod) = pods.iter().find(adoptable) {
                return Err(broken("orphan", format!("nothing has adopted the pod {}", name(pod))));
            }
        }
        let deployments = self.list(WorkloadKind::Deployment, namespace);
        let Some(deployment) = deployments.first() else { return Ok(()) };
        let owned = owned_by(&sets, deployment);
        let orphan = sets.iter().find(|set| list(set, "/metadata/ownerReferences").is_empty());
        if let Some(set) = orphan {
            return Err(broken("orphan", format!("nothing has adopted the ReplicaSet {}", name(set))));
        }
        let wanted = usize::try_from(at(deployment, "/spec/replicas").as_i64().unwrap_or(1)).unwrap_or(0);
        let image = text(deployment, "/spec/template/spec/containers/0/image");
        let running: Vec<&Value> = owned.iter().flat_map(|set| owned_by(&pods, set)).collect();
        let right = running.iter().filter(|pod| text(pod, "/spec/containers/0/image") == image).count();
        if running.len() != wanted || right != wanted {
            let message = format!("{} pods, {right} of them with {image}, and not {wanted}", running.len());
            return Err(broken("replicas", message));
        }
        let is_new = |set: &&&Value| text(set, "/spec/template/spec/containers/0/image") == image;
        if owned.len() - owned.iter().filter(is_new).count() > REVISIONS {
            return Err(broken("limit", format!("{} ReplicaSets are left", owned.len())));
        }
        Ok(())
    }

    fn judge_stateful_set(&self, namespace: &str) -> Result<(), Violation> {
        let sets = self.list(WorkloadKind::StatefulSet, namespace);
        // A set that waits for a claim used by such a pod creates no pods.
        let Some(set) = sets.first().filter(|set| !is_deleting(set)) else { return Ok(()) };
        let wanted = usize::try_from(at(set, "/spec/replicas").as_i64().unwrap_or(1)).unwrap_or(0);
        let pods = self.list(WorkloadKind::Pod, namespace);
        let mut names: Vec<&str> = owned_by(&pods, set).into_iter().map(name).collect();
        names.sort_unstable();
        let expected: Vec<String> = (0..wanted).map(|ordinal| format!("db-{ordinal}")).collect();
        if names != expected {
            return Err(broken("replicas", format!("the pods are {names:?}, and not {expected:?}")));
        }
        let revisions = self.list(WorkloadKind::ControllerRevision, namespace);
        let owned = owned_by(&revisions, set).len();
        if owned > REVISIONS + 1 {
            return Err(broken("limit", format!("{owned} revisions are left")));
        }
        let deletes = text(set, "/spec/persistentVolumeClaimRetentionPolicy/whenScaled") == "Delete";
        for claim in self.list(WorkloadKind::PersistentVolumeClaim, namespace) {
            let ordinal = name(&claim).rsplit('-').next().and_then(|number| number.parse::<usize>().ok());
            let owners = owned_by(std::slice::from_ref(&claim), set).len();
            let is_wanted = ordinal.is_some_and(|ordinal| ordinal < wanted) && !is_deleting(&claim);
            if deletes && owners == 0 && is_wanted {
                return Err(broken("limit", format!("the claim {} has no owner", name(&claim))));
            }
            if !deletes && owners > 0 {
                return Err(broken("wanted", format!("the claim {} is deleted with its set", name(&claim))));
            }
        }
        let claims = self.list(WorkloadKind::PersistentVolumeClaim, namespace);
        match (0..wanted)
            .find(|ordinal| !claims.iter().any(|claim| name(claim) == format!("data-db-{ordinal}")))
        {
            Some(ordinal) => Err(broken("wanted", format!("the claim of db-{ordinal} is gone"))),
            None => Ok(()),
        }
    }

    fn judge_jobs(&self, namespace: &str) -> Result<(), Violation> {
        let jobs = self.list(WorkloadKind::Job, namespace);
        for job in &jobs {
            let ttl = at(job, "/spec/ttlSecondsAfterFinished").as_i64();
            if let Some((ttl, (_, at))) = ttl.zip(finish(job))
                && at + ttl * 1000 < self.server.now
            {
                return Err(broken("limit", format!("the Job {} has expired and is left", name(job))));
            }
        }
        for cron in self.list(WorkloadKind::CronJob, namespace) {
            let finished = |wanted: &str| {
                let owned = owned_by(&jobs, &cron).into_iter();
                owned.filter(|job| finish(job).is_some_and(|(end, _)| end == wanted)).count()
            };
            if finished("Complete") > SUCCESSFUL_JOBS || finished("Failed") > FAILED_JOBS {
                return Err(broken("limit", format!("{} Jobs of a CronJob are left", jobs.len())));
            }
        }
        Ok(())
    }
}
