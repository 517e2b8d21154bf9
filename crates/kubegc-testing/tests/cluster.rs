//! Shows how the tests of an operator use a cluster.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource as _, ResourceExt};
use kube_runtime::controller::Action;
use kubegc_testing::{Cluster, Error};
use serde_json::json;

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

async fn owned(maps: &Api<ConfigMap>, name: &str, owner: &ConfigMap) -> ConfigMap {
    let mut dependent = map(name);
    dependent.metadata.owner_references = owner.owner_ref(&()).map(|reference| vec![reference]);
    maps.create(&PostParams::default(), &dependent).await.unwrap()
}

/// Settling returns only after the whole chain is deleted, from the first object to the last; twenty rounds rule out luck.
#[tokio::test]
async fn settled_is_settled() {
    let cluster = Cluster::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    for round in 0..20 {
        let mut last = maps.create(&PostParams::default(), &map("link-0")).await.unwrap();
        for link in 1..6 {
            last = owned(&maps, &format!("link-{link}"), &last).await;
        }
        maps.delete("link-0", &DeleteParams::background()).await.unwrap();
        cluster.settle().await.unwrap();
        let left = maps.list(&ListParams::default()).await.unwrap();
        let links: Vec<_> =
            left.iter().map(ResourceExt::name_any).filter(|name| name.starts_with("link")).collect();
        assert_eq!(links, [""; 0], "round {round}");
    }
}

/// The collectors act on custom resources, whether or not the cluster has settled once before.
#[tokio::test]
async fn definitions_are_installed_and_collected() {
    let folder = tempfile::tempdir().unwrap();
    let definition = |plural: &str, kind: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    let both = format!(
        "{}\n---\n{}\n---\nkind: Other\n",
        definition("widgets", "Widget"),
        definition("parts", "Part")
    );
    std::fs::write(folder.path().join("both.yaml"), both).unwrap();
    std::fs::write(folder.path().join("README.md"), "not: [a definition").unwrap();
    let cluster = Cluster::builder().crds(folder.path()).start().await.unwrap();
    let api = |kind: &str| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", kind));
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), "default", &resource);
        (api, resource)
    };
    let ((widgets, widget), (parts, part)) = (api("Widget"), api("Part"));
    let owner = widgets.create(&PostParams::default(), &DynamicObject::new("one", &widget)).await.unwrap();
    let mut dependent = DynamicObject::new("one", &part);
    dependent.metadata.owner_references = owner.owner_ref(&widget).map(|reference| vec![reference]);
    parts.create(&PostParams::default(), &dependent).await.unwrap();
    widgets.delete("one", &DeleteParams::background()).await.unwrap();
    cluster.settle().await.unwrap();
    assert!(parts.get_opt("one").await.unwrap().is_none());

    let nothing = cluster.crds(folder.path().join("README.md")).await.unwrap_err();
    assert!(matches!(nothing, Error::Read { .. }), "{nothing}");
    let again = cluster.crds(folder.path()).await.unwrap_err();
    assert!(
        matches!(&again, Error::Refused { message, .. } if message.contains("already exists")),
        "{again}"
    );
}

/// Objects are kept until the clock is set ahead, and deleted once they are due.
#[tokio::test]
async fn time_is_set_ahead() {
    let cluster = Cluster::start().await.unwrap();
    let jobs: Api<Job> = Api::namespaced(cluster.client(), "default");
    let job: Job = serde_json::from_value(json!({"metadata": {"name": "done"}, "spec": {
        "ttlSecondsAfterFinished": 3600, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}}}))
    .unwrap();
    jobs.create(&PostParams::default(), &job).await.unwrap();
    let now = k8s_openapi::jiff::Timestamp::now();
    let status = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now},
        {"type": "Complete", "status": "True", "lastTransitionTime": now}]}});
    jobs.patch_status("done", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    cluster.settle().await.unwrap();
    assert!(jobs.get_opt("done").await.unwrap().is_some());
    cluster.advance(Duration::from_mins(59));
    cluster.settle().await.unwrap();
    assert!(jobs.get_opt("done").await.unwrap().is_some());
    cluster.advance(Duration::from_mins(2));
    cluster.settle().await.unwrap();
    assert!(jobs.get_opt("done").await.unwrap().is_none());
}

/// When settling returns, a terminating namespace is empty and gone; one that a finalizer blocks is reported.
#[tokio::test]
async fn namespaces_end_or_are_stuck() {
    let cluster = Cluster::start().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    for name in ["ends", "stays"] {
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        namespaces
            .create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() })
            .await
            .unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), name);
        maps.create(&PostParams::default(), &map("settings")).await.unwrap();
    }
    namespaces.delete("ends", &DeleteParams::default()).await.unwrap();
    cluster.settle().await.unwrap();
    assert!(namespaces.get_opt("ends").await.unwrap().is_none());

    let held: Api<ConfigMap> = Api::namespaced(cluster.client(), "stays");
    let finalizer = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    held.patch("settings", &PatchParams::default(), &Patch::Merge(finalizer)).await.unwrap();
    namespaces.delete("stays", &DeleteParams::default()).await.unwrap();
    cluster.settle().await.unwrap();
    assert!(namespaces.get_opt("stays").await.unwrap().is_some());
    let stuck = cluster.stuck().await.unwrap().to_string();
    assert!(stuck.contains("FinalizerHeld") && stuck.contains("settings"), "{stuck}");

    let released = json!({"metadata": {"finalizers": null}});
    held.patch("settings", &PatchParams::default(), &Patch::Merge(released)).await.unwrap();
    cluster.settle().await.unwrap();
    assert!(namespaces.get_opt("stays").await.unwrap().is_none());
}

/// A fork starts with the same objects, collectors and clock, and neither cluster changes the other.
#[tokio::test]
async fn forks_share_prepared_objects_and_nothing_else() {
    let prepared = Cluster::start().await.unwrap();
    let maps = |cluster: &Cluster| -> Api<ConfigMap> { Api::namespaced(cluster.client(), "default") };
    let owner = maps(&prepared).create(&PostParams::default(), &map("owner")).await.unwrap();
    owned(&maps(&prepared), "dependent", &owner).await;
    let prepared_jobs: Api<Job> = Api::namespaced(prepared.client(), "default");
    let job: Job = serde_json::from_value(json!({"metadata": {"name": "done"}, "spec": {
        "ttlSecondsAfterFinished": 3600, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}}}))
    .unwrap();
    prepared_jobs.create(&PostParams::default(), &job).await.unwrap();
    let now = k8s_openapi::jiff::Timestamp::now();
    let status = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now},
        {"type": "Complete", "status": "True", "lastTransitionTime": now}]}});
    prepared_jobs.patch_status("done", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    prepared.advance(Duration::from_mins(59));
    prepared.settle().await.unwrap();

    let fork = prepared.fork().await.unwrap();
    let forked = maps(&fork).get("owner").await.unwrap();
    assert_eq!(forked, owner, "a fork has the same objects, versions included");
    maps(&fork).delete("owner", &DeleteParams::background()).await.unwrap();
    fork.advance(Duration::from_mins(2));
    fork.settle().await.unwrap();
    let jobs: Api<Job> = Api::namespaced(fork.client(), "default");
    assert!(maps(&fork).get_opt("dependent").await.unwrap().is_none());
    assert!(jobs.get_opt("done").await.unwrap().is_none(), "the clock of a fork begins where it was");

    prepared.settle().await.unwrap();
    assert!(maps(&prepared).get_opt("dependent").await.unwrap().is_some());
    assert!(prepared_jobs.get_opt("done").await.unwrap().is_some());
    let second = prepared.fork().await.unwrap();
    assert!(maps(&second).get_opt("dependent").await.unwrap().is_some());
}

/// Settling waits for a controller of the test: each map gets a partner, and each partner a label.
#[tokio::test]
async fn a_controller_under_test_is_waited_for() {
    async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), "default");
        if map.labels().contains_key("watched") {
            let mut partner = self::map(&format!("{}-partner", map.name_any()));
            partner.metadata.owner_references = map.owner_ref(&()).map(|reference| vec![reference]);
            match maps.create(&PostParams::default(), &partner).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                other => drop(other?),
            }
        }
        Ok(Action::await_change())
    }
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let controller = kube_runtime::Controller::new(maps.clone(), kube_runtime::watcher::Config::default())
        .run(reconcile, |_, _, _| Action::await_change(), Arc::new(client));
    let running = tokio::spawn(controller.for_each(|_| std::future::ready(())));
    for number in 0..5 {
        let mut watched = map(&format!("map-{number}"));
        watched.metadata.labels = Some([("watched".to_owned(), "yes".to_owned())].into());
        maps.create(&PostParams::default(), &watched).await.unwrap();
        cluster.settle().await.unwrap();
        assert!(maps.get_opt(&format!("map-{number}-partner")).await.unwrap().is_some(), "{number}");
        maps.delete(&format!("map-{number}"), &DeleteParams::background()).await.unwrap();
        cluster.settle().await.unwrap();
        assert!(maps.get_opt(&format!("map-{number}-partner")).await.unwrap().is_none(), "{number}");
    }
    running.abort();
}

/// Users have the permissions of their roles, and a kubeconfig reaches the same cluster.
#[tokio::test]
async fn users_and_kubeconfigs_reach_the_same_cluster() {
    let cluster = Cluster::builder().controllers(["garbage-collector-controller"]).start().await.unwrap();
    let unauthorized: Api<ConfigMap> =
        Api::namespaced(cluster.client_as("jane", &["system:authenticated"]), "default");
    let refused = unauthorized.create(&PostParams::default(), &map("mine")).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");

    let kubeconfig = kube::config::Kubeconfig::from_yaml(&cluster.kubeconfig().unwrap()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let outside: Api<ConfigMap> = Api::namespaced(Client::try_from(config).unwrap(), "default");
    outside.create(&PostParams::default(), &map("seen")).await.unwrap();
    let inside: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    assert!(inside.get_opt("seen").await.unwrap().is_some());

    let unknown = Cluster::builder().controllers(["nonsense"]).start().await.unwrap_err();
    assert!(unknown.to_string().contains("nonsense"), "{unknown}");
}

/// Permissions of clusters that share what they began with are those of each.
#[tokio::test]
async fn each_cluster_has_roles_of_its_own() {
    const VIEW: &str = "view";
    let (first, second) = (Cluster::start().await.unwrap(), Cluster::start().await.unwrap());
    let fork = second.fork().await.unwrap();
    let binding = json!({"metadata": {"name": "ann"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": VIEW}, "subjects": [{"kind": "User", "name": "ann"}]});
    let may = async |cluster: &Cluster| {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client_as("ann", &[]), "default");
        maps.list(&ListParams::default()).await.is_ok()
    };
    // Roles take effect a moment after they are written.
    let until = async |cluster: &Cluster, wanted: bool| {
        let changed = async {
            while may(cluster).await != wanted {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), changed).await.expect("the change takes effect");
    };
    let all = [&first, &second, &fork];
    for cluster in all {
        assert!(!may(cluster).await);
        let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client());
        let created = serde_json::from_value(binding.clone()).unwrap();
        bindings.create(&PostParams::default(), &created).await.unwrap();
        until(cluster, true).await;
    }
    let roles: Api<ClusterRole> = Api::all(second.client());
    roles.delete(VIEW, &DeleteParams::default()).await.unwrap();
    until(&second, false).await;
    assert!(may(&first).await && may(&fork).await);
    let later = Cluster::start().await.unwrap();
    let roles: Api<ClusterRole> = Api::all(later.client());
    assert!(roles.get_opt(VIEW).await.unwrap().is_some() && !may(&later).await);
}

/// Deployments come to pods where the workload controllers run, and to nothing where they do not.
#[tokio::test]
async fn workload_controllers_run_where_they_are_asked_for() {
    let deployment: Deployment =
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]}}}}))
        .unwrap();
    let settled = async |cluster: &Cluster| {
        cluster.settle().await.unwrap();
        let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), "default");
        let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        let running =
            |pod: &&Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
        (sets.list(&ListParams::default()).await.unwrap().items.len(), pods.iter().filter(running).count())
    };
    let named = ["garbage-collector-controller", "deployment-controller"];
    for (builder, expected) in [
        (Cluster::builder(), (0, 0)),
        (Cluster::builder().controllers(named), (1, 0)),
        (Cluster::builder().workloads(), (1, 2)),
    ] {
        let cluster = builder.start().await.unwrap();
        let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
        deployments.create(&PostParams::default(), &deployment).await.unwrap();
        assert_eq!(settled(&cluster).await, expected);
        let fork = cluster.fork().await.unwrap();
        let scaled = json!({"spec": {"replicas": 0}});
        let deployments: Api<Deployment> = Api::namespaced(fork.client(), "default");
        deployments.patch("web", &PatchParams::default(), &Patch::Merge(scaled)).await.unwrap();
        assert_eq!(settled(&fork).await, (expected.0, 0), "a fork has the controllers of its cluster");
        assert_eq!(settled(&cluster).await, expected);
        deployments.delete("web", &DeleteParams::background()).await.unwrap();
        assert_eq!(settled(&fork).await, (0, 0));
    }
}

/// Returns the number of ports this process listens on.
#[cfg(target_os = "linux")]
fn listening() -> usize {
    /// The state LISTEN, as `/proc/net/tcp` encodes it.
    const LISTEN: &str = "0A";
    let own: std::collections::BTreeSet<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[3] == LISTEN && own.contains(row[9])).count()
}

/// The cluster opens no port until its kubeconfig is requested. Then it opens one, and closes it when it stops.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_cluster_listens_once_its_kubeconfig_is_asked_for() {
    let before = listening();
    let cluster = Cluster::start().await.unwrap();
    let fork = cluster.fork().await.unwrap();
    fork.settle().await.unwrap();
    assert_eq!(listening(), before);
    let kubeconfig = cluster.kubeconfig().unwrap();
    assert_eq!(cluster.kubeconfig().unwrap(), kubeconfig);
    assert_eq!(listening(), before + 1);
    drop((cluster, fork));
    let closed = async {
        while listening() > before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closed).await.expect("the port is closed with the cluster");
}

/// Maximum memory of this process that one cluster may take. Debug builds take some 5 MiB.
const MOST_MEMORY_KIB: u64 = 32 << 10;

/// Returns the number of files and sockets that this process has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Clusters that are started and forked one after the other leave no file open, and those that run at the same time take little
/// memory. Prints how long each took.
#[test]
fn the_cost_of_a_start_and_of_a_fork() {
    let wanted = std::env::var("KUBEGC_CLUSTERS").ok().and_then(|count| count.parse().ok()).unwrap_or(5);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let prepared = runtime.block_on(Cluster::start()).unwrap();
    let mean = |what: &str, one: &dyn Fn()| {
        let begun = Instant::now();
        (0..wanted).for_each(|_| one());
        println!("{what}: {:?}", begun.elapsed() / wanted);
    };
    mean("a start", &|| drop(runtime.block_on(Cluster::start()).unwrap()));
    mean("a start that settles", &|| {
        let cluster = runtime.block_on(Cluster::start()).unwrap();
        runtime.block_on(cluster.settle()).unwrap();
    });
    runtime.block_on(prepared.settle()).unwrap();
    let files = open_files();
    mean("a fork", &|| drop(runtime.block_on(prepared.fork()).unwrap()));
    mean("a fork that settles", &|| {
        let cluster = runtime.block_on(prepared.fork()).unwrap();
        runtime.block_on(cluster.settle()).unwrap();
    });
    mean("a start once more", &|| drop(runtime.block_on(Cluster::start()).unwrap()));
    runtime.block_on(async {
        let closed = async {
            while open_files() > files {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), closed).await.expect("files stay open with no cluster");
    });
    let before = memory_kib("VmRSS");
    let held: Vec<Cluster> = (0..wanted).map(|_| runtime.block_on(Cluster::start()).unwrap()).collect();
    let after = memory_kib("VmRSS");
    println!("{} clusters at once: {before} KiB before, then {after} KiB", held.len());
    assert!(
        before > 0 && after.saturating_sub(before) < u64::from(wanted) * MOST_MEMORY_KIB,
        "{before} {after}"
    );
}

/// Reads a field of this process's status in Linux.
fn status(field: &str) -> String {
    let all = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// Reads a size from this process's status in Linux.
fn memory_kib(field: &str) -> u64 {
    status(field).split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Runs many clusters in one process, one after the other and eight at a time, and measures the cost of each.
#[test]
fn many_clusters_fit_into_a_process() {
    let wanted = std::env::var("KUBEGC_CLUSTERS").ok().and_then(|count| count.parse().ok()).unwrap_or(40);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    runtime.block_on(async {
        futures::stream::iter(0..wanted)
            .for_each_concurrent(8, |number| async move {
                let cluster = Cluster::start().await.unwrap();
                let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
                let owner = maps.create(&PostParams::default(), &map("owner")).await.unwrap();
                owned(&maps, "dependent", &owner).await;
                maps.delete("owner", &DeleteParams::background()).await.unwrap();
                cluster.settle().await.unwrap();
                assert!(maps.get_opt("dependent").await.unwrap().is_none(), "{number}");
            })
            .await;
    });
    let took = begun.elapsed();
    println!("{wanted} clusters in {took:?}, {:?} each; at most {}", took / wanted, status("VmHWM"));
}
