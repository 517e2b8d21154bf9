//! Keeps one watcher per collectable resource, in line with discovery.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use gc_types::{Event, FailedGroup, ResourceId, ResourceInfo};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::discovery::{Discovery, ServedResource, discover};
use crate::resources::{ResourceTable, Route};
use crate::watcher::{WatchContext, Watcher};

/// Maximum interval between discoveries (spec 2.2).
pub const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// Time after which a resource that discovery no longer shows is forgotten: until then, its watch still delivers the removals of
/// its last objects.
pub const VANISHED_PATIENCE: Duration = Duration::from_millis(700);
/// Minimum interval between discoveries.
pub const DISCOVERY_PAUSE: Duration = Duration::from_millis(100);
/// Delays of repeated discoveries after a sign that the served resources have changed: servers take a moment to serve a new
/// definition, which must be watched within a second of that.
const SETTLING: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(750),
    Duration::from_millis(750),
    Duration::from_millis(750),
    Duration::from_millis(750),
    Duration::from_millis(750),
];

/// Known resources, and their watches.
pub(crate) struct Supervisor {
    context: WatchContext,
    table: ResourceTable,
    /// `(group, resource)` pairs that are never watched.
    ignored: Vec<(String, String)>,
    known: BTreeMap<(Arc<str>, Arc<str>), KnownResource>,
    watchers: JoinSet<()>,
    next_id: u32,
    announced: bool,
}

struct KnownResource {
    info: ResourceInfo,
    /// Time since which discovery has not shown the resource.
    missing_since: Option<Instant>,
    watcher: Option<AbortHandle>,
}

/// Error: the collector has ended, and events are no longer accepted.
struct CollectorClosed;

impl Supervisor {
    pub(crate) fn new(context: WatchContext, table: ResourceTable, ignored: Vec<(String, String)>) -> Self {
        Self {
            context,
            table,
            ignored,
            known: BTreeMap::new(),
            watchers: JoinSet::new(),
            next_id: 0,
            announced: false,
        }
    }

    /// Runs until the receiver of events is dropped. Dropping the future ends all watchers.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(Duration::from_millis(100), DISCOVERY_PERIOD);
        let mut settling: &[Duration] = &[];
        loop {
            let wait = match discover(&self.context.client).await {
                Ok(discovered) => {
                    self.show(&discovered);
                    if self.apply(&discovered).await.is_err() {
                        return;
                    }
                    if discovered.failed.is_empty() {
                        backoff.reset();
                        DISCOVERY_PERIOD
                    } else {
                        // Deletions may be waiting for exactly these resources.
                        backoff.next_delay()
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "discovery failed; the known resources are still watched");
                    self.context.board.discovery_failed(&error.to_string());
                    backoff.next_delay()
                }
            };
            while self.watchers.try_join_next().is_some() {}
            let now = Instant::now();
            let wait = if self.known.values().any(|known| known.missing_since.is_some()) {
                wait.min(VANISHED_PATIENCE)
            } else {
                wait
            };
            let (next, rest) = match settling.split_first() {
                Some((first, rest)) => ((*first).min(wait), rest),
                None => (wait, settling),
            };
            settling = rest;
            tokio::select! {
                () = tokio::time::sleep_until(now + next) => {}
                () = self.context.rediscover.notified() => {
                    settling = &SETTLING;
                    tokio::time::sleep(DISCOVERY_PAUSE).await;
                }
                () = self.context.sink.closed() => return,
            }
        }
    }

    /// Applies a discovery. Resources that could not be discovered are known gaps, reported once.
    fn show(&self, discovered: &Discovery) {
        let title = |failed: &FailedGroup| match &failed.version {
            Some(version) => format!("{}/{version}", failed.group),
            None => failed.group.clone(),
        };
        let failed = discovered.failed.iter().map(|failed| (title(failed), failed.message.clone()));
        if self.context.board.discovered(failed.collect()) {
            for failed in &discovered.failed {
                tracing::warn!(group = %title(failed), "discovery of a group failed: {}", failed.message);
            }
        }
    }

    async fn apply(&mut self, discovered: &Discovery) -> Result<(), CollectorClosed> {
        let now = Instant::now();
        let mut gone = Vec::new();
        for (name, known) in &mut self.known {
            let is_gone = match discovered.resources.get(name) {
                // Another kind or scope under the old name is a different resource.
                Some(served) => {
                    known.missing_since = None;
                    served.kind != known.info.kind || served.scope != known.info.scope
                }
                None if discovered.is_unclear(&name.0) => false,
                None => now - *known.missing_since.get_or_insert(now) >= VANISHED_PATIENCE,
            };
            if is_gone {
                gone.push(name.clone());
            }
        }
        for name in gone {
            self.forget(&name).await?;
        }
        for (name, served) in &discovered.resources {
            self.serve(name, served, discovered).await?;
        }
        if !self.announced {
            self.announced = true;
            self.send(Event::Discovered).await?;
        }
        Ok(())
    }

    async fn serve(
        &mut self,
        name: &(Arc<str>, Arc<str>),
        served: &ServedResource,
        discovered: &Discovery,
    ) -> Result<(), CollectorClosed> {
        let is_ignored =
            self.ignored.iter().any(|(group, resource)| **group == *name.0 && **resource == *name.1);
        let known = self.known.get(name);
        let id = if let Some(known) = known {
            // While the group is unclear, a version that discovery does not show may still exist.
            if discovered.is_unclear(&name.0) && known.info.gvr.version != served.version {
                return Ok(());
            }
            known.info.id
        } else {
            self.next_id += 1;
            ResourceId(self.next_id)
        };
        let info = served.info(id, served.is_collectable() && !is_ignored);
        if known.is_some_and(|known| known.info == info) {
            return Ok(());
        }
        let same_watch =
            known.is_some_and(|known| known.info.gvr == info.gvr && known.info.watched == info.watched);
        let mut watcher = self.known.remove(name).and_then(|known| known.watcher);
        let route = Arc::new(Route::new(info.clone()));
        self.table.insert(Arc::clone(&route));
        if !same_watch && let Some(old) = watcher.take() {
            self.end(&old).await;
        }
        self.send(Event::ResourceServed(info.clone())).await?;
        if info.watched && watcher.is_none() {
            watcher = Some(self.watchers.spawn(Watcher::new(self.context.clone(), route).run().boxed()));
        } else if !info.watched {
            // Otherwise, its last state would remain.
            self.context.board.remove(info.id);
        }
        self.known.insert(name.clone(), KnownResource { info, missing_since: None, watcher });
        Ok(())
    }

    async fn forget(&mut self, name: &(Arc<str>, Arc<str>)) -> Result<(), CollectorClosed> {
        let Some(known) = self.known.remove(name) else { return Ok(()) };
        if let Some(watcher) = known.watcher {
            self.end(&watcher).await;
        }
        self.context.board.remove(known.info.id);
        self.table.remove(known.info.id);
        tracing::info!(group = %name.0, resource = %name.1, "no longer served");
        self.send(Event::ResourceGone(known.info.id)).await
    }

    /// Ends a watcher, and returns once it can no longer send anything. Its messages precede all that are sent from now on, so the
    /// end of its list is never mistaken for that of the next watcher's.
    async fn end(&mut self, watcher: &AbortHandle) {
        watcher.abort();
        while !watcher.is_finished() && self.watchers.join_next().await.is_some() {}
    }

    async fn send(&self, event: Event) -> Result<(), CollectorClosed> {
        self.context.sink.send(vec![event]).await.map_err(|_| CollectorClosed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Mutex;
    use std::task::Poll;

    use bytes::Bytes;
    use gc_types::Scope;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::{Value, json};
    use tokio::sync::{Notify, mpsc};

    use super::*;
    use crate::connection::ApiClient;
    use crate::status::StatusBoard;
    use crate::watcher::Batch;

    /// Messages of a watcher that is aborted while it sends.
    struct LastWords(mpsc::Sender<Batch>);

    impl Drop for LastWords {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(20));
            drop(self.0.try_send(vec![Event::Discovered]));
        }
    }

    fn context(client: ApiClient, sink: mpsc::Sender<Batch>) -> WatchContext {
        WatchContext {
            client,
            sink,
            board: StatusBoard::default(),
            rediscover: Arc::new(Notify::new()),
            streamed_lists: false,
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_ended_watcher_says_nothing_after_what_follows() {
        let (sink, mut batches) = mpsc::channel(8);
        let client = ApiClient::in_process(|_| std::future::pending::<Response<Full<Bytes>>>());
        let context = context(client, sink.clone());
        let mut supervisor = Supervisor::new(context, ResourceTable::default(), Vec::new());
        let last_words = LastWords(sink);
        let watcher = supervisor.watchers.spawn(async move {
            let _last_words = last_words;
            std::future::pending::<()>().await;
        });
        supervisor.end(&watcher).await;
        assert!(supervisor.send(Event::ResourceGone(ResourceId(1))).await.is_ok());
        let sent = [batches.recv().await, batches.recv().await];
        assert_eq!(sent, [Some(vec![Event::Discovered]), Some(vec![Event::ResourceGone(ResourceId(1))])]);
    }
    fn widget(version: &str, name: &str, resource_version: u32) -> Value {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata":
            {"name": name, "uid": name, "resourceVersion": resource_version.to_string()}})
    }

    /// Answers the list and the watch of widgets in one of their versions.
    fn answer(request: &Request<Full<Bytes>>) -> Response<Full<Bytes>> {
        let version = if request.uri().path().contains("/v1/") { "v1" } else { "v2" };
        let body = if !request.uri().query().unwrap_or_default().contains("watch=true") {
            let items = [widget(version, &format!("{version}-listed"), 3)];
            json!({"apiVersion": format!("example.com/{version}"), "kind": "WidgetList",
                "metadata": {"resourceVersion": "7"}, "items": items})
            .to_string()
        } else if version == "v1" {
            let event = |kind: &str, name: &str, at: u32| {
                json!({"type": kind, "object": widget(version, name, at)}).to_string()
            };
            [event("ADDED", "v1-added", 8), event("DELETED", "v1-listed", 9)].join("\n") + "\n"
        } else {
            String::new()
        };
        Response::builder().header("content-type", "application/json").body(Full::from(body)).unwrap()
    }

    fn served(version: &str) -> ServedResource {
        ServedResource {
            group: "example.com".into(),
            version: version.into(),
            resource: "widgets".into(),
            kind: "Widget".into(),
            scope: Scope::Namespaced,
            served_api_versions: vec![format!("example.com/{version}").into()],
            verbs: ["list", "watch", "delete"].map(str::to_owned).into(),
            comparable_versions: true,
        }
    }

    /// The watcher's list is answered while the watcher is being replaced. All that it sends (its page, the end of its list,
    /// deliveries of its watch and the removals) must come before the next watcher is announced, or never.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_replaced_watcher_still_says_comes_before_the_next_one() {
        let (asks, asked) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let first = Arc::new(Mutex::new(Some((asks, released))));
        let client = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
            let taken = first.lock().unwrap().take();
            if let Some((asks, released)) = taken {
                // The watcher stays within one poll until everything has arrived, so it is replaced in the middle of that poll.
                asks.send(()).unwrap();
                released.recv().unwrap();
            }
            std::future::ready(answer(&request))
        });
        let (sink, mut batches) = mpsc::channel(64);
        let mut supervisor = Supervisor::new(context(client, sink), ResourceTable::default(), Vec::new());
        let (name, discovered) = (("example.com".into(), "widgets".into()), Discovery::default());
        assert!(supervisor.serve(&name, &served("v1"), &discovered).await.is_ok());
        tokio::task::spawn_blocking(move || asked.recv().unwrap()).await.unwrap();

        let next = served("v2");
        {
            let mut replacing = Box::pin(supervisor.serve(&name, &next, &discovered));
            let at_once = futures::poll!(&mut replacing);
            release.send(()).unwrap();
            let replaced = match at_once {
                Poll::Ready(replaced) => replaced,
                Poll::Pending => replacing.await,
            };
            assert!(replaced.is_ok());
        }
        let mut said = Vec::new();
        let is_of_next =
            |event: &Event| matches!(event, Event::Observed(object) if &*object.key.name == "v2-listed");
        while !said.iter().any(is_of_next) {
            said.extend(batches.recv().await.unwrap());
        }
        supervisor.watchers.shutdown().await;
        while let Ok(batch) = batches.try_recv() {
            said.extend(batch);
        }

        let announced =
            |event: &Event| matches!(event, Event::ResourceServed(info) if *info.gvr.version == *"v2");
        let at = said.iter().position(announced).unwrap();
        let is_of_former = |event: &&Event| match event {
            Event::Observed(object) => object.key.name.starts_with("v1"),
            Event::Removed { .. } => true,
            _ => false,
        };
        assert_eq!(said[at..].iter().find(is_of_former), None);
        let (before, synced) = (&said[..at], |event: &Event| matches!(event, Event::Synced { .. }));
        assert!(before.iter().any(synced), "{before:?}");
        assert_eq!(before.iter().filter(is_of_former).count(), 3, "{before:?}");
    }
}
