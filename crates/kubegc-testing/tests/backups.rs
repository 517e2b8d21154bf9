//! The operator of `examples/` with kube-rs: creates a Job for each Backup, and releases the bucket when the Backup is deleted.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource as _, ResourceExt as _};
use kube_runtime::controller::Action;
use kube_runtime::finalizer::{Event, finalizer};
use kube_runtime::{Controller, watcher};
use kubegc_testing::Cluster;
use serde_json::json;

const FINALIZER: &str = "example.com/bucket";

/// State of the operator.
struct Operator {
    client: Client,
    backup: ApiResource,
}

impl Operator {
    /// Releases the bucket. Resources outside of Kubernetes need a finalizer; here a ConfigMap stands for the released bucket.
    async fn release(&self, backup: &DynamicObject) -> kube::Result<Action> {
        let name = format!("released-{}", backup.data["spec"]["bucket"].as_str().unwrap_or_default());
        let released: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        unless_exists(maps.create(&PostParams::default(), &released).await)?;
        Ok(Action::await_change())
    }

    /// Creates the Job with an owner reference, so garbage collection deletes it once the Backup is gone.
    async fn create_job(&self, backup: &DynamicObject) -> kube::Result<Action> {
        let containers = json!([{"name": "backup", "image": "example.com/backup:1"}]);
        let job = json!({
            "metadata": {
                "name": backup.name_any(), "ownerReferences": [backup.controller_owner_ref(&self.backup)],
            },
            "spec": {
                "ttlSecondsAfterFinished": backup.data["spec"]["keepSeconds"],
                "template": {"spec": {"restartPolicy": "Never", "containers": containers}},
            },
        });
        let jobs: Api<Job> = Api::default_namespaced(self.client.clone());
        unless_exists(jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await)?;
        Ok(Action::await_change())
    }
}

fn unless_exists<T>(created: kube::Result<T>) -> kube::Result<()> {
    match created {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}

async fn reconcile(
    backup: Arc<DynamicObject>,
    operator: Arc<Operator>,
) -> Result<Action, kube_runtime::finalizer::Error<kube::Error>> {
    let backups: Api<DynamicObject> = Api::default_namespaced_with(operator.client.clone(), &operator.backup);
    finalizer(&backups, FINALIZER, backup, |event| async {
        match event {
            Event::Apply(backup) => operator.create_job(&backup).await,
            Event::Cleanup(backup) => operator.release(&backup).await,
        }
    })
    .await
}

/// Marks the Job as finished, as its controller would: this cluster runs only collectors.
async fn finish(jobs: &Api<Job>, name: &str) {
    let now = k8s_openapi::jiff::Timestamp::now();
    let status = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now},
        {"type": "Complete", "status": "True", "lastTransitionTime": now}]}});
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test]
async fn a_backup_from_its_creation_to_its_deletion() {
    let definition = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/backups.json");
    let cluster = Cluster::builder().crds(definition).start().await.unwrap();
    let client = cluster.client();
    let backup = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Backup"));
    let backups: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &backup);
    let (jobs, maps): (Api<Job>, Api<ConfigMap>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let controller = Controller::new_with(backups.clone(), watcher::Config::default(), backup.clone());
    let operator = Arc::new(Operator { client, backup: backup.clone() });
    let running = controller.run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(20)), operator);
    let running = tokio::spawn(running.for_each(|_| std::future::ready(())));

    let create = async |name: &str| {
        let mut object = DynamicObject::new(name, &backup);
        object.data = json!({"spec": {"bucket": name, "keepSeconds": 3600}});
        backups.create(&PostParams::default(), &object).await.unwrap();
        // The operator is a client of the cluster, so settling waits for it as well.
        cluster.settle().await.unwrap();
        jobs.get(name).await.expect("the operator has created the Job");
    };
    create("nightly").await;
    finish(&jobs, "nightly").await;

    // The Job's TTL expires: the Job is collected, and the Backup stays.
    cluster.advance(Duration::from_hours(2));
    cluster.settle().await.unwrap();
    assert!(jobs.get_opt("nightly").await.unwrap().is_none());
    assert!(backups.get_opt("nightly").await.unwrap().is_some());

    // Deleting the Backup makes the operator release the bucket, and deletes the second Job.
    create("weekly").await;
    backups.delete("weekly", &DeleteParams::default()).await.unwrap();
    cluster.settle().await.unwrap();
    assert!(backups.get_opt("weekly").await.unwrap().is_none());
    assert!(maps.get_opt("released-weekly").await.unwrap().is_some());
    assert!(jobs.get_opt("weekly").await.unwrap().is_none());
    running.abort();
}
