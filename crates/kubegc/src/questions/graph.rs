//! The graph of a cluster, loaded once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gc_kube::{
    ApiClient, Collector, CollectorOptions, NoObserver, ResourceTable, Route, StatusBoard, SyncState,
};
use gc_types::{Effect, EffectId, Event, ObjectKey, Request, ResourceId, Scope, Timestamp, Uid};
use tokio::time::Instant;

/// How often it is looked whether everything is there.
const PAUSE: Duration = Duration::from_millis(20);
/// For so long owners that are not in any list are looked up.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(5);

/// Lists that fail hold up looks for so long.
const STARTUP_WAIT_MILLISECONDS: i64 = 2_000;
const FAILING_WAIT: Duration = Duration::from_millis(3_500);

/// kubectl's short names of built-in resources.
const SHORT_NAMES: [(&str, &str); 28] = [
    ("cj", "cronjobs.batch"),
    ("cm", "configmaps"),
    ("crd", "customresourcedefinitions.apiextensions.k8s.io"),
    ("crds", "customresourcedefinitions.apiextensions.k8s.io"),
    ("cs", "componentstatuses"),
    ("csr", "certificatesigningrequests.certificates.k8s.io"),
    ("deploy", "deployments.apps"),
    ("ds", "daemonsets.apps"),
    ("ep", "endpoints"),
    ("ev", "events"),
    ("hpa", "horizontalpodautoscalers.autoscaling"),
    ("ing", "ingresses.networking.k8s.io"),
    ("limits", "limitranges"),
    ("netpol", "networkpolicies.networking.k8s.io"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pc", "priorityclasses.scheduling.k8s.io"),
    ("pdb", "poddisruptionbudgets.policy"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("quota", "resourcequotas"),
    ("rc", "replicationcontrollers"),
    ("rs", "replicasets.apps"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses.storage.k8s.io"),
    ("sts", "statefulsets.apps"),
    ("svc", "services"),
];

/// What people call a resource, in lower case, with kubectl's short names written out.
pub(super) fn long_name(called: &str) -> String {
    let called = called.to_lowercase();
    let long = SHORT_NAMES.iter().find(|(short, _)| *short == called).map(|(_, long)| (*long).to_owned());
    long.unwrap_or(called)
}

/// What has been loaded, and what is asked for and not answered.
#[derive(Debug, Default)]
struct Progress {
    discovered: bool,
    unlisted: BTreeSet<ResourceId>,
    reads: BTreeSet<EffectId>,
    idle: bool,
}

/// The engine, of whose effects only reads are let through: an owner that is in no list is looked up, as the
/// collector would, and nothing else is done.
struct Reader {
    engine: gc_ownership::Engine,
    progress: Arc<Mutex<Progress>>,
}

impl Reader {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl gc_kube::Engine for Reader {
    fn handle(&mut self, event: Event) {
        {
            let mut progress = self.progress();
            match &event {
                Event::Discovered => progress.discovered = true,
                Event::ResourceServed(info) if info.watched => drop(progress.unlisted.insert(info.id)),
                Event::Synced { resource, .. } | Event::ResourceGone(resource) => {
                    progress.unlisted.remove(resource);
                }
                Event::Done(id, _) => drop(progress.reads.remove(id)),
                _ => {}
            }
            progress.idle = false;
        }
        self.engine.handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        while let Some(effect) = self.engine.poll_effect() {
            if matches!(effect.request, Request::Read { .. }) {
                self.progress().reads.insert(effect.id);
                return Some(effect);
            }
        }
        self.progress().idle = true;
        None
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.engine.next_wakeup()
    }
}

/// A loaded graph.
pub(super) struct Graph {
    /// Answers questions.
    pub(super) engine: gc_ownership::Engine,
    /// What the numbers of resources mean.
    pub(super) table: ResourceTable,
    /// What could not be loaded, in words.
    pub(super) missing: Vec<String>,
    /// The groups that discovery could not see, with why.
    pub(super) undiscovered: std::collections::BTreeMap<String, String>,
    namespace: String,
}

impl Graph {
    /// Lists the metadata of everything.
    pub(super) async fn load(client: ApiClient, patience: Duration) -> anyhow::Result<Self> {
        let namespace = client.namespace().to_owned();
        // What is not performed stays in flight and must not hold up reads. Reads begin when every list is there,
        // or when those that are late have had their time.
        let config = gc_ownership::Config {
            effects_in_flight: usize::MAX,
            startup_wait_milliseconds: STARTUP_WAIT_MILLISECONDS,
            verify_patience_milliseconds: 0,
            ..gc_ownership::Config::default()
        };
        let progress = Arc::new(Mutex::new(Progress::default()));
        let engine = Reader { engine: gc_ownership::Engine::new(config), progress: Arc::clone(&progress) };
        let collector =
            Collector::new(client, CollectorOptions { dry_run: true, ..CollectorOptions::default() });
        let (table, board) = (collector.table(), collector.board());
        let loaded = wait(progress, board.clone(), patience);
        let reader = collector.run(engine, Arc::new(NoObserver), loaded).await;
        let missing: Vec<String> = board
            .all()
            .into_values()
            .filter(|status| status.state != SyncState::Synced)
            .map(|status| {
                let why = if status.why.is_empty() { "its list did not end in time" } else { &status.why };
                format!("{} could not be read: {why}", status.name)
            })
            .collect();
        if table.all().is_empty() {
            bail!("nothing could be discovered within {} s", patience.as_secs());
        }
        let undiscovered = board.discovery().failed_groups;
        Ok(Self { engine: reader.engine, table, missing, undiscovered, namespace })
    }

    /// The object that people mean.
    pub(super) fn find(&self, kind: &str, namespace: Option<&str>, name: &str) -> anyhow::Result<Uid> {
        let routes = self.resources(kind);
        if routes.is_empty() {
            bail!("the server has no resource that is called {kind:?}");
        }
        let namespace = namespace.unwrap_or(&self.namespace);
        let found = routes.iter().find_map(|route| {
            let scoped = if route.info.scope == Scope::Namespaced { namespace } else { "" };
            let key = ObjectKey { resource: route.info.id, namespace: scoped.into(), name: name.into() };
            self.engine.find_by_key(&key)
        });
        let first = routes.first().context("at least one, as was just seen")?;
        found.with_context(|| match first.info.scope {
            Scope::Namespaced => {
                format!("{} {name:?} not found in namespace {namespace:?}", first.display_name())
            }
            Scope::Cluster => format!("{} {name:?} not found", first.display_name()),
        })
    }

    /// Resources that are called so: by plural name, kind or short name, with or without group. The core group
    /// comes first.
    fn resources(&self, called: &str) -> Vec<Arc<Route>> {
        let called = long_name(called);
        let (name, group) = match called.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (&*called, None),
        };
        let mut routes = self.table.all();
        routes.retain(|route| {
            let info = &route.info;
            let is_group = group.is_none_or(|group| {
                *info.gvr.group == *group || format!("{}.{}", info.gvr.version, info.gvr.group) == group
            });
            is_group && info.watched && (*info.gvr.resource == *name || info.kind.to_lowercase() == name)
        });
        routes.sort_by(|left, right| left.info.gvr.group.cmp(&right.info.gvr.group));
        routes
    }
}

/// Ready when all that can be listed is, and unseen owners have been looked up; or when patience is at its end.
async fn wait(progress: Arc<Mutex<Progress>>, board: StatusBoard, patience: Duration) {
    let deadline = Instant::now() + patience;
    let mut listed_at = None;
    while Instant::now() < deadline {
        tokio::time::sleep(PAUSE).await;
        let states = board.all();
        let progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = |id: &ResourceId| states.get(id).is_some_and(|status| status.state == SyncState::Failing);
        if !progress.discovered || !progress.unlisted.iter().all(fails) {
            continue;
        }
        let wait = if progress.unlisted.is_empty() { 2 * PAUSE } else { FAILING_WAIT };
        let since: Instant = *listed_at.get_or_insert_with(Instant::now);
        // Looks are wanted at once after the last list, and after the engine's own wait if some lists fail.
        let looked = progress.idle && progress.reads.is_empty() && since.elapsed() > wait;
        if looked || since.elapsed() > LOOK_UP_PATIENCE {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SHORT_NAMES;

    #[test]
    fn short_names_are_sorted_and_said_once() {
        assert!(SHORT_NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
