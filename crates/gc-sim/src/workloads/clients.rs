//! Actions of clients.

use std::sync::Arc;

use gc_registry::api::{DeleteOptions, Object, Operation, PatchType, RequestBody, WriteOptions};
use gc_workloads::kinds::Kind as WorkloadKind;
use serde_json::{Value, json};

use super::feed::value_of;
use super::{WorkloadWorld, at, kind_of};
use crate::metadata::Metadata;
use crate::random::Random;

/// Namespaces. Clients delete the second one and create it again.
pub(super) const NAMESPACES: [&str; 2] = ["m", "n"];
const PROPAGATION: [&str; 3] = ["Background", "Foreground", "Orphan"];
/// First seed whose world lacks some parts; earlier worlds have all parts, as they had when the first defects were found in them.
const FIRST_PARTIAL_SEED: u64 = 25_000;
/// First seed in whose world a deleted pod takes time to end; in earlier worlds it ends at once.
const FIRST_SEED_WITH_TERMINATIONS: u64 = 250_000;

/// Parts of a world. Most worlds lack some of them: their remaining actions then meet more often, and they take less time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    deployments: bool,
    stateful_sets: bool,
    pub(super) cron_jobs: bool,
    namespaces: &'static [&'static str],
}

/// Returns the time in milliseconds that the pods of a world take to end after their deletion.
pub(super) fn termination_latency(seed: u64) -> i64 {
    if seed < FIRST_SEED_WITH_TERMINATIONS {
        return 0;
    }
    Random::new(seed ^ 0x7465_726d).pick(&[0, 100, 1_500, 20_000])
}

impl Parts {
    pub(super) fn of(seed: u64) -> Self {
        let whole = Self { deployments: true, stateful_sets: true, cron_jobs: true, namespaces: &NAMESPACES };
        if seed < FIRST_PARTIAL_SEED {
            return whole;
        }
        let mut chance = Random::new(seed ^ 0x7061_7274);
        let [kept, deleted] = NAMESPACES.each_ref().map(std::slice::from_ref);
        let namespaces = chance.pick(&[kept, deleted, deleted, &NAMESPACES]);
        let kinds = 1 + chance.below(7);
        Self {
            deployments: kinds & 1 != 0,
            stateful_sets: kinds & 2 != 0,
            cron_jobs: kinds & 4 != 0,
            namespaces,
        }
    }

    /// Returns the weights of the clients' actions.
    fn weights(self) -> [u32; 14] {
        let if_there = |is_there: bool, weight: u32| if is_there { weight } else { 0 };
        let rolls = self.deployments || self.stateful_sets;
        let is_deleted = self.namespaces.contains(&NAMESPACES[1]);
        [
            if_there(self.deployments, 8),
            if_there(self.stateful_sets, 8),
            if_there(self.cron_jobs, 5),
            if_there(rolls, 10),
            if_there(rolls, 5),
            6,
            if_there(self.deployments, 3),
            if_there(self.stateful_sets, 4),
            if_there(self.cron_jobs, 4),
            3,
            if_there(is_deleted, 2),
            if_there(is_deleted, 3),
            4,
            3,
        ]
    }

    /// Returns the kinds and names of the objects that clients roll and scale.
    fn rolled(self) -> Vec<(WorkloadKind, &'static str)> {
        let mut rolled = Vec::new();
        if self.deployments {
            rolled.push((WorkloadKind::Deployment, "web"));
        }
        if self.stateful_sets {
            rolled.push((WorkloadKind::StatefulSet, "db"));
        }
        rolled
    }
}

fn template(image: usize) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
        {"name": "c", "image": format!("web:{image}")}], "terminationGracePeriodSeconds": 1}})
}

fn deployment(image: usize) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "revisionHistoryLimit": 1,
        "selector": {"matchLabels": {"app": "web"}}, "template": template(image)}})
}

fn stateful_set(image: usize, kept: &str) -> Value {
    let mut template = template(image);
    template["metadata"]["labels"]["app"] = "db".into();
    json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 2, "revisionHistoryLimit": 1, "serviceName": "db", "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": kept, "whenScaled": kept},
        "selector": {"matchLabels": {"app": "db"}}, "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}}}]}})
}

fn cron_job(ttl: Option<i64>) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "sum"}]}});
    let mut job = json!({"template": template});
    if let Some(ttl) = ttl {
        job["ttlSecondsAfterFinished"] = ttl.into();
    }
    json!({"metadata": {"name": "tick"}, "spec": {"schedule": "* * * * *", "successfulJobsHistoryLimit": 2,
        "jobTemplate": {"spec": job}}})
}

impl WorkloadWorld {
    pub(super) fn list(&self, kind: WorkloadKind, namespace: &str) -> Vec<Value> {
        match self.server.list(&kind_of(kind), namespace, None) {
            Some(Ok(list)) => list.items.iter().filter_map(|object| value_of(object)).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the objects of a kind that are being deleted.
    fn list_deleted(&self, kind: WorkloadKind) -> Vec<Value> {
        let is_deleted = |object: &&Arc<Object>| {
            Metadata::of(object).is_some_and(|metadata| metadata.deletion_timestamp.is_some())
        };
        match self.server.list(&kind_of(kind), "", None) {
            Some(Ok(list)) => {
                list.items.iter().filter(is_deleted).filter_map(|object| value_of(object)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn create(&self, kind: WorkloadKind, namespace: &str, object: Value) {
        let _ = self.server.create(&kind_of(kind), namespace, object);
    }

    fn patch(&self, kind: WorkloadKind, (namespace, name): (&str, &str), patch: Value) {
        let _ = self.server.patch(&kind_of(kind), (namespace, name, ""), PatchType::Merge, patch);
    }

    fn delete(&mut self, kind: WorkloadKind, namespace: &str, name: &str) {
        let policy = self.chance.pick(&PROPAGATION);
        // Another policy for a deletion that has begun always reaches collectors too late.
        if let Some(Ok(object)) = self.server.get(&kind_of(kind), namespace, name)
            && value_of(&object).is_some_and(|value| !at(&value, "/metadata/deletionTimestamp").is_null())
        {
            return;
        }
        self.note(|| format!("a client deletes {} {namespace}/{name}, {policy}", kind.name()));
        let options = DeleteOptions { propagation_policy: Some(policy.into()), ..DeleteOptions::default() };
        let _ = self.server.delete(&kind_of(kind), namespace, name, options);
    }

    /// Creates the objects that exist before the first fault.
    pub(super) fn create_first_objects(&mut self) {
        use WorkloadKind::{CronJob, Deployment, StatefulSet};
        for namespace in self.parts.namespaces {
            let kept = self.chance.pick(&["Retain", "Delete"]);
            let ttl = self.chance.pick(&[None, Some(30), Some(120)]);
            if self.parts.deployments {
                self.create(Deployment, namespace, deployment(0));
            }
            if self.parts.stateful_sets {
                self.create(StatefulSet, namespace, stateful_set(0, kept));
            }
            if self.parts.cron_jobs {
                self.create(CronJob, namespace, cron_job(ttl));
            }
        }
    }

    /// Performs one action of a client.
    pub(super) fn act(&mut self) {
        use WorkloadKind::{CronJob, Deployment, Job, Namespace, Pod, ReplicaSet, StatefulSet};
        let namespace = self.chance.pick(self.parts.namespaces);
        let image = self.chance.below(4);
        match self.chance.weighted(&self.parts.weights()) {
            0 => self.create(Deployment, namespace, deployment(image)),
            1 => {
                let kept = self.chance.pick(&["Retain", "Delete"]);
                self.create(StatefulSet, namespace, stateful_set(image, kept));
            }
            2 => {
                let ttl = self.chance.pick(&[None, Some(30), Some(120)]);
                self.create(CronJob, namespace, cron_job(ttl));
            }
            3 => {
                let (kind, name) = self.chance.pick(&self.parts.rolled());
                let image = format!("web:{image}");
                let spec = json!({"template": {"spec": {"containers": [{"name": "c", "image": image}],
                    "terminationGracePeriodSeconds": 1}}});
                self.note(|| format!("a client rolls {} {namespace}/{name}", kind.name()));
                self.patch(kind, (namespace, name), json!({"spec": spec}));
            }
            4 => {
                let replicas = self.chance.below(4);
                let (kind, name) = self.chance.pick(&self.parts.rolled());
                self.patch(kind, (namespace, name), json!({"spec": {"replicas": replicas}}));
            }
            5 => self.cut_owners(namespace),
            6 => self.delete(Deployment, namespace, "web"),
            7 => self.delete(StatefulSet, namespace, "db"),
            8 => self.delete(CronJob, namespace, "tick"),
            9 => {
                let kind = self.chance.pick(&[Pod, ReplicaSet, Job]);
                let objects = self.list(kind, namespace);
                if !objects.is_empty() {
                    let index = self.chance.below(objects.len());
                    let name = at(&objects[index], "/metadata/name").as_str().unwrap_or_default().to_owned();
                    self.delete(kind, namespace, &name);
                }
            }
            10 => {
                self.note(|| "a client deletes the namespace n".to_owned());
                let _ = self.server.delete(&kind_of(Namespace), "", NAMESPACES[1], DeleteOptions::default());
            }
            11 => {
                let name = json!({"metadata": {"name": NAMESPACES[1]}});
                self.create(Namespace, "", name);
            }
            12 => {
                self.empty_namespaces();
                self.release_claims();
            }
            _ => {
                let stopped = self.chance.chance(500);
                self.stop_node(stopped);
            }
        }
    }

    /// Removes the owner references of a ReplicaSet, a pod or a Job.
    fn cut_owners(&mut self, namespace: &str) {
        let kind = self.chance.pick(&[WorkloadKind::ReplicaSet, WorkloadKind::Pod, WorkloadKind::Job]);
        let objects = self.list(kind, namespace);
        if objects.is_empty() {
            return;
        }
        let index = self.chance.below(objects.len());
        let name = at(&objects[index], "/metadata/name").as_str().unwrap_or_default();
        self.note(|| format!("a client removes the owner references of {} {namespace}/{name}", kind.name()));
        self.patch(kind, (namespace, name), json!({"metadata": {"ownerReferences": null}}));
        if kind == WorkloadKind::Pod {
            self.cut_pods.insert(text(&objects[index], "/metadata/uid").to_owned());
        }
    }

    /// Stops the simulated node, or starts it again.
    pub(super) fn stop_node(&mut self, stopped: bool) {
        self.note(|| format!("a client sets kubegc.io/stopped={stopped} on the node"));
        let patch = json!({"metadata": {"annotations": {"kubegc.io/stopped": stopped.to_string()}}});
        self.patch(WorkloadKind::Node, ("", "kubegc-node-0"), patch);
    }

    /// Suspends all CronJobs so that the world settles.
    pub(super) fn suspend_cron_jobs(&mut self) {
        for namespace in NAMESPACES {
            self.patch(WorkloadKind::CronJob, (namespace, "tick"), json!({"spec": {"suspend": true}}));
        }
    }

    /// Acts as the namespace controller: empties terminating namespaces, then finalizes them. Returns true if it did anything.
    pub(super) fn empty_namespaces(&mut self) -> bool {
        let mut any = false;
        for namespace in self.list_deleted(WorkloadKind::Namespace) {
            let name = at(&namespace, "/metadata/name").as_str().unwrap_or_default().to_owned();
            let mut left = false;
            for kind in self.runtime.kinds().into_iter().filter(|kind| kind.served().namespaced) {
                for object in self.list(kind, &name) {
                    left = true;
                    if at(&object, "/metadata/deletionTimestamp").is_null() {
                        any = true;
                        let object_name = at(&object, "/metadata/name").as_str().unwrap_or_default();
                        let options = DeleteOptions {
                            propagation_policy: Some("Background".into()),
                            ..DeleteOptions::default()
                        };
                        let _ = self.server.delete(&kind_of(kind), &name, object_name, options);
                    }
                }
            }
            if !left {
                any = true;
                let mut value = namespace.clone();
                value["spec"]["finalizers"] = json!([]);
                let body = RequestBody::from(value);
                let update = Operation::Update(body, WriteOptions::default());
                let kind = kind_of(WorkloadKind::Namespace);
                let _ = self.server.request_part(&kind, ("", &name, "finalize"), update);
            }
        }
        any
    }

    /// Acts as the protection of claims: removes the finalizer of a claim that no pod uses. Returns true if it did anything.
    pub(super) fn release_claims(&mut self) -> bool {
        let mut any = false;
        for claim in self.list_deleted(WorkloadKind::PersistentVolumeClaim) {
            let (namespace, name) = (text(&claim, "/metadata/namespace"), text(&claim, "/metadata/name"));
            let uses = |pod: &Value| {
                let volumes = at(pod, "/spec/volumes").as_array();
                // No node starts a pod whose claim is being deleted.
                !text(pod, "/spec/nodeName").is_empty()
                    && volumes
                        .into_iter()
                        .flatten()
                        .any(|one| text(one, "/persistentVolumeClaim/claimName") == name)
            };
            let is_held = !at(&claim, "/metadata/finalizers").is_null();
            if is_held && !self.list(WorkloadKind::Pod, namespace).iter().any(uses) {
                any = true;
                self.patch(
                    WorkloadKind::PersistentVolumeClaim,
                    (namespace, name),
                    json!({"metadata": {"finalizers": null}}),
                );
            }
        }
        any
    }
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}
