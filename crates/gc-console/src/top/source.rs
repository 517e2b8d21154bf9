//! Source of the answers for `kubegc top`: the first screen, the feed and the answers about objects come from the API of a server
//! that `kubegc up` runs or of a named collector, and on other clusters from the functions behind `kubegc stuck`, `why`, `tree` and
//! `plan`. Lists and deletions are requests to the cluster. Every request has the permissions of the kubeconfig's user.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::FutureExt as _;
use gc_collectors::collectors::COLLECTORS;
use gc_explain::Resource;
use gc_inspect::attached::{self, Asks, Confirmation, Form, Query, QueryRequest, QueryResponse, Reply};
use gc_inspect::plan::Cascade;
use gc_inspect::subject::{ConfirmedPlan, Subject};
use gc_inspect::view::{self, KindTrees, Question, Tree, View};
use gc_kube::{ApiClient, push_segment};
use gc_process::{preflight, screen};
use gc_types::{Timestamp, Uid};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, watch};

use super::app::{Content, News, Order, ShownPlan};
use super::events::Events;
use super::model::{ListedObject, ObjectPlace, Overview, WantedFeed};
use super::xray::{Branch, Forest};
use crate::page::overview::{self, Mode, Surroundings};

/// Interval of overviews from a server, which makes at most one per second.
const PERIOD: Duration = Duration::from_secs(2);
/// Multiple of its duration after which an overview is computed here again,
const REST_FACTOR: u32 = 9;
/// but no later than after this time.
const LONGEST_REST: Duration = Duration::from_mins(1);
/// Time before a broken feed is reopened.
const RECONNECT: Duration = Duration::from_secs(2);
/// Time without typing after which the feed for a filter is requested.
const TYPING: Duration = Duration::from_millis(250);
/// Maximum number of concurrent questions about objects.
const ASKED_AT_ONCE: usize = 4;
/// Header with the event after which a stream continues.
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Maximum number of objects of a kind that are listed.
const LISTED: usize = 5_000;
/// Maximum number of objects in trees that are shown at once.
const LARGEST_FOREST: usize = 20_000;

/// Client of the cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Source {
    client: ApiClient,
    /// Process to query first.
    asks: Asks,
    patience: Duration,
    news: mpsc::Sender<News>,
    turns: Arc<Semaphore>,
}

/// Answer of the server's API.
enum AttachedAnswer<T> {
    Yes(T),
    /// The server has no such API.
    No,
}

impl Source {
    pub(crate) fn new(client: ApiClient, asks: Asks, patience: Duration, news: mpsc::Sender<News>) -> Self {
        Self { client, asks, patience, news, turns: Arc::new(Semaphore::new(ASKED_AT_ONCE)) }
    }

    fn page(&self) -> Option<&ApiClient> {
        match &self.asks {
            Asks::Collector(page) | Asks::Server(page) => Some(page),
            Asks::Nobody => None,
        }
    }

    /// Checks whether an answer comes from the API of kubegc; any other failure is an error.
    fn attached(
        &self,
        status: StatusCode,
        message: impl FnOnce() -> String,
    ) -> anyhow::Result<AttachedAnswer<()>> {
        match status {
            status if status.is_success() => Ok(AttachedAnswer::Yes(())),
            // A server without the paths refuses them to users who may not request everything.
            StatusCode::NOT_FOUND | StatusCode::FORBIDDEN if !matches!(self.asks, Asks::Collector(_)) => {
                Ok(AttachedAnswer::No)
            }
            _ => bail!("{}: {}", status.as_u16(), message()),
        }
    }

    /// Keeps the overview of the wanted namespace up to date, until it is no longer read.
    pub(super) async fn follow_overview(self, mut wanted: watch::Receiver<String>) {
        loop {
            let namespace = wanted.borrow_and_update().clone();
            let begun = Instant::now();
            let (answer, rest) = match self.overview(&namespace).await {
                Ok((overview, true)) => (Ok(Box::new(overview)), PERIOD),
                Ok((overview, false)) => {
                    let rest = (begun.elapsed() * REST_FACTOR).clamp(PERIOD, LONGEST_REST);
                    (Ok(Box::new(overview)), rest)
                }
                Err(error) => (Err(format!("{error:#}")), PERIOD),
            };
            if self.news.send(News::Overview { namespace, answer }).await.is_err() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                changed = wanted.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Returns the overview, and whether a server made it.
    async fn overview(&self, namespace: &str) -> anyhow::Result<(Overview, bool)> {
        let Some(page) = self.page() else { return Ok((self.own_overview(namespace).await?, false)) };
        let mut path = "/kubegc/v1/overview?namespace=".to_owned();
        push_segment(&mut path, namespace);
        let answer = page.call(preflight::request(Method::GET, &path, None)).await?;
        match self.attached(answer.head.status, || preflight::message(&answer))? {
            AttachedAnswer::Yes(()) => {
                let overview = screen::decoded(&answer.body).context("the overview cannot be read")?;
                Ok((overview, true))
            }
            AttachedAnswer::No => Ok((self.own_overview(namespace).await?, false)),
        }
    }

    /// Computes the overview of a cluster without this API, from what the user may list.
    async fn own_overview(&self, namespace: &str) -> anyhow::Result<Overview> {
        let catalog = view::catalog(&self.client).await?;
        let is_wanted = |resource: &&Resource| {
            resource.is_collectable() && (namespace.is_empty() || resource.is_namespaced())
        };
        let resources: Vec<Resource> = catalog.all().iter().filter(is_wanted).cloned().collect();
        let runs =
            |collector: &str| COLLECTORS.iter().any(|known| known.on_by_default && known.name == collector);
        let now = Timestamp(jiff::Timestamp::now().as_millisecond());
        let lists = vec![(namespace.to_owned(), resources)];
        let view = View::take(self.client.clone(), lists, now, self.patience, &runs, None).await?;
        let around = Surroundings {
            user: "",
            sees_all: view.unseen.is_empty(),
            namespaces_omitted: 0,
            may_pause: false,
            may_delete: true,
            mode: Mode::Unknown,
            stopped: Vec::new(),
            node_breaker: None,
            collected: Vec::new(),
            clock_ahead_seconds: 0,
        };
        Ok(serde_json::from_value(overview::overview(&view, namespace, &around))?)
    }

    /// Follows the wanted feed, until it is no longer read.
    pub(super) async fn follow_feed(self, mut wanted: watch::Receiver<WantedFeed>) {
        let (mut known, mut last) = (None, None);
        loop {
            let feed = wanted.borrow_and_update().clone();
            if known.as_ref() != Some(&feed) {
                (known, last) = (Some(feed.clone()), None);
                if self.news.send(News::FeedOf(feed.clone())).await.is_err() {
                    return;
                }
            }
            let changed = tokio::select! {
                state = self.end_of_feed(&feed, &mut last) => {
                    if self.news.send(News::Feed(Err(state))).await.is_err() {
                        return;
                    }
                    tokio::time::timeout(RECONNECT, wanted.changed()).await.ok()
                }
                changed = wanted.changed() => Some(changed),
            };
            match changed {
                None => continue,
                Some(Err(_)) => return,
                Some(Ok(())) => {}
            }
            while let Ok(changed) = tokio::time::timeout(TYPING, wanted.changed()).await {
                if changed.is_err() {
                    return;
                }
            }
        }
    }

    /// Reads the feed, and returns why it has ended.
    async fn end_of_feed(&self, feed: &WantedFeed, last: &mut Option<HeaderValue>) -> String {
        match self.read_feed(feed, last).await {
            Ok(AttachedAnswer::Yes(())) => "The feed has ended; it is opened again.".to_owned(),
            Ok(AttachedAnswer::No) => {
                "The feed needs a server that `kubegc up` runs, or --collector; `kubegc journal` reads a file.".to_owned()
            }
            Err(error) => format!("{error:#}"),
        }
    }

    /// Reads the feed after its `last` event, which is kept up to date.
    async fn read_feed(
        &self,
        feed: &WantedFeed,
        last: &mut Option<HeaderValue>,
    ) -> anyhow::Result<AttachedAnswer<()>> {
        let Some(page) = self.page() else { return Ok(AttachedAnswer::No) };
        let mut request = preflight::request(Method::GET, &feed.path(), None);
        request.headers_mut().insert(http::header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.clone() {
            request.headers_mut().insert(LAST_EVENT, last);
        }
        let response = page.open(request).await?;
        let status = response.status();
        if let AttachedAnswer::No =
            self.attached(status, || format!("the feed was answered with {status}"))?
        {
            return Ok(AttachedAnswer::No);
        }
        self.news.send(News::Feed(Ok(()))).await?;
        let (mut events, mut body) = (Events::default(), response.into_body());
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(anyhow::Error::from_boxed)?.into_data() else { continue };
            let lines = events.read(&bytes)?;
            if let Some(Ok(id)) = events.last().map(HeaderValue::from_str) {
                *last = Some(id);
            }
            if !lines.is_empty() {
                self.news.send(News::Lines(lines)).await?;
            }
        }
        Ok(AttachedAnswer::Yes(()))
    }

    /// Executes a request in the background, and sends the result as a message.
    pub(super) fn carry_out(&self, order: Order) {
        let source = self.clone();
        off_thread(move || async move {
            // The semaphore is never closed, and the reader of messages may have left.
            let Ok(_turn) = source.turns.acquire().await else { return };
            let news = match order {
                Order::Quit | Order::Overview(_) => return,
                Order::Objects { kind, namespace } => {
                    let answer =
                        source.objects(&kind, &namespace).await.map_err(|error| format!("{error:#}"));
                    News::Objects { kind, namespace, answer }
                }
                Order::Xray { kind, namespace } => {
                    let answer = source.forest(&kind, &namespace).await.map_err(|error| format!("{error:#}"));
                    News::Forest { kind, namespace, answer }
                }
                Order::Pause(reason) => News::Obeyed(source.order("pause", &json!({"reason": reason})).await),
                Order::Resume(resource) => {
                    News::Obeyed(source.order("resume", &json!({"resource": resource})).await)
                }
                Order::Explain(Content::Plan(cascade), place) => {
                    let answer = source.plan(cascade, &place).await.map_err(|error| format!("{error:#}"));
                    News::Planned(cascade, place, answer.map(Box::new))
                }
                Order::Explain(content, place) => {
                    let answer = source.explain(&content, &place).await.map_err(|error| format!("{error:#}"));
                    News::Explained(content, place, answer)
                }
                Order::Delete { subject, cascade, confirmed, is_named } => {
                    let done = source.delete(&subject, cascade, &confirmed, is_named).await;
                    News::Deleted(done.map_err(|error| format!("{error:#}")))
                }
            };
            let _ = source.news.send(news).await;
        });
    }

    /// Gives the collectors an order, through the API of their page.
    async fn order(&self, name: &str, body: &Value) -> Result<String, String> {
        let Some(page) = self.page() else {
            return Err(format!(
                "There is no page that takes orders here; `kubegc {name}` is for any cluster."
            ));
        };
        let mut request = preflight::request(Method::POST, &format!("/kubegc/v1/{name}"), Some(body));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = page.call(request).await.map_err(|error| error.to_string())?;
        match answer.head.status {
            status if status.is_success() => Ok(format!("Ordered: {name}")),
            status => Err(format!("{}: {}", status.as_u16(), preflight::message(&answer))),
        }
    }

    async fn question(&self, subject: &Subject) -> anyhow::Result<Question> {
        Question::about(self.client.clone(), subject, self.patience).await
    }

    async fn objects(&self, kind: &str, namespace: &str) -> anyhow::Result<Vec<ListedObject>> {
        let now = jiff::Timestamp::now().as_millisecond();
        let mut objects = view::objects(&self.client, kind, namespace).await?;
        objects.truncate(LISTED);
        let columns = view::columns(&self.client, &objects).await;
        let of = |uid: &Uid| columns.get(uid).cloned().unwrap_or_default();
        let listed = objects.into_iter().map(|(resource, metadata)| ListedObject {
            ready: screen::visible_line(&of(&metadata.uid).ready).into_owned(),
            status: screen::visible_line(&of(&metadata.uid).status).into_owned(),
            place: ObjectPlace {
                kind: resource.kind.to_string(),
                resource: resource.name.to_string(),
                namespace: metadata.namespace.to_string(),
                name: metadata.name.to_string(),
            },
            age_milliseconds: metadata.created.map(|created| now - created.0),
            owners: metadata
                .owners
                .iter()
                .map(|owner| format!("{}/{}", owner.coordinates.kind, owner.coordinates.name))
                .map(|owner| screen::visible_line(&owner).into_owned())
                .collect(),
            is_terminating: metadata.deleted.is_some(),
            finalizers: metadata.finalizers,
        });
        Ok(listed.collect())
    }

    async fn forest(&self, kind: &str, namespace: &str) -> anyhow::Result<Forest> {
        let found = view::trees_of_kind(&self.client, kind, namespace, LARGEST_FOREST, self.patience).await?;
        let trees = found.trees.iter().map(|tree| branch(&found, tree)).collect();
        let unseen = found.unseen.as_deref().map(|unseen| screen::visible_line(unseen).into_owned());
        Ok(Forest { trees, omitted: found.omitted, unseen })
    }

    /// Returns the answer to a question, if there is a process that has one.
    async fn asked(&self, question: Query) -> anyhow::Result<Option<Box<QueryResponse>>> {
        let Some(page) = self.page() else { return Ok(None) };
        match attached::send(page, &QueryRequest { form: Form::Text, question }).await? {
            Reply::Answered(answered) => Ok(Some(answered)),
            Reply::Refused(status, message) => {
                let is_named = matches!(self.asks, Asks::Collector(_));
                if is_named || !attached::has_no_answer(status) {
                    bail!("{}: {message}", status.as_u16());
                }
                Ok(None)
            }
        }
    }

    async fn explain(&self, content: &Content, place: &ObjectPlace) -> anyhow::Result<Vec<String>> {
        let subject = place.subject();
        let objects = vec![subject.clone()];
        let question = match content {
            Content::Metadata => None,
            Content::Tree => Some(Query::Tree { objects, owners: false, depth: None, full: false }),
            _ => Some(Query::Why { objects }),
        };
        if let Some(question) = question
            && let Some(answered) = self.asked(question).await?
        {
            return Ok(shown(answered.lines_with_unseen()));
        }
        let question = self.question(&subject).await?;
        let text = match content {
            Content::Tree => question.tree_text().await?,
            Content::Metadata => {
                let summary = question.summary().await?.context("the object is not there")?;
                gc_process::yaml::to_string(&summary.metadata)?
            }
            _ => question.why_text().await?,
        };
        Ok(shown(text.lines()))
    }

    async fn plan(&self, cascade: Cascade, place: &ObjectPlace) -> anyhow::Result<ShownPlan> {
        let (objects, policy) = (vec![place.subject()], cascade.name().to_lowercase());
        let answered = self.asked(Query::Plan { objects, policy, full: false }).await?;
        if let Some(answered) = answered {
            let (lines, confirm) = (answered.lines_with_unseen(), answered.confirm);
            let Confirmation { confirmed, needs_name } =
                confirm.context("the collector is too old: its plan does not say what it deletes")?;
            return Ok(ShownPlan { lines: shown(lines), confirmed, needs_name });
        }
        let planned = self.question(&place.subject()).await?.plan(cascade).await?;
        let mut lines: Vec<String> = planned.text()?.lines().map(str::to_owned).collect();
        lines.extend(attached::warnings(&planned.unseen));
        Ok(ShownPlan {
            lines: shown(lines),
            confirmed: planned.to_confirm(),
            needs_name: planned.needs_name(),
        })
    }

    async fn delete(
        &self,
        subject: &Subject,
        cascade: Cascade,
        confirmed: &ConfirmedPlan,
        is_named: bool,
    ) -> anyhow::Result<String> {
        let question = self.question(subject).await?;
        let planned = question.plan(cascade).await?;
        if !planned.is_within(confirmed) || (planned.needs_name() && !is_named) {
            bail!("Nothing was deleted: the plan has changed since it was shown; review it again");
        }
        question.delete(&planned).await?;
        let objects = gc_explain::text::count(planned.objects(), "object");
        Ok(format!("{}/{} is being deleted ({objects})", subject.resource, subject.name))
    }
}

fn branch(found: &KindTrees, tree: &Tree) -> Branch {
    let (place, view) = (found.place(tree), &tree.view);
    let columns = found.columns.get(&view.uid).cloned().unwrap_or_default();
    let object = ListedObject {
        ready: screen::visible_line(&columns.ready).into_owned(),
        status: screen::visible_line(&columns.status).into_owned(),
        place: ObjectPlace {
            kind: place.kind,
            resource: place.resource,
            namespace: place.namespace,
            name: place.name,
        },
        age_milliseconds: columns.created.map(|created| found.now.since(created)),
        owners: Vec::new(),
        is_terminating: view.deletion.deleting,
        finalizers: found.finalizers(tree).to_vec(),
    };
    let remark = match tree.fault {
        Some(fault) => fault,
        None if tree.is_repeated => "also above",
        None => "",
    };
    Branch {
        uid: view.uid.to_string(),
        object,
        remark: remark.to_owned(),
        below: tree.below.iter().map(|tree| branch(found, tree)).collect(),
        omitted: tree.omitted,
    }
}

/// Returns the lines of an answer for drawing.
fn shown(lines: impl IntoIterator<Item: AsRef<str>>) -> Vec<String> {
    lines.into_iter().map(|line| screen::visible_line(line.as_ref()).into_owned()).collect()
}

/// Works on a separate thread: a large graph takes a while, during which keys must be handled and frames drawn.
pub(super) fn off_thread<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(work().boxed_local()));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use futures::StreamExt as _;
    use gc_collectors::node_report::{self, DueImage, NodeReport, Tally};
    use http_body_util::{BodyStream, StreamBody};
    use tokio::sync::Notify;

    use super::super::model::{Due, Line, List, Node};
    use super::*;
    use gc_embedded::apiserver::ServerOptions;
    use gc_embedded::clock::CollectorClock;
    use gc_embedded::up::Up;
    use gc_embedded::workloads::WorkloadOptions;
    use gc_process::collectors::{self, ControllerOptions};

    const PATIENCE: Duration = Duration::from_secs(30);
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    /// Removes ages in seconds, which may differ by one.
    fn ageless(lines: &[String]) -> Vec<String> {
        let word = |word: &str| match word.trim_end_matches([',', ':', ';', '.']).strip_suffix('s') {
            Some(number) if number.parse::<u64>().is_ok() => "AGE".to_owned(),
            _ => word.to_owned(),
        };
        lines.iter().map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")).collect()
    }

    /// Starts a server with the owner-reference collector and the page, which has the feed.
    async fn start() -> Up {
        let settings = ControllerOptions {
            controllers: vec!["garbage-collector-controller".into()],
            ..ControllerOptions::default()
        };
        let (server, workloads) = (ServerOptions::in_process(), WorkloadOptions::off());
        let (clock, surroundings) = (CollectorClock::default(), collectors::Surroundings::default());
        let page = Some(crate::page::maker());
        Up::start(&server, &settings, &workloads, None, &clock, surroundings, page).await.unwrap()
    }

    /// A server's answer must equal the one from lists, on all screens.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_answers_what_is_answered_without_it() {
        let up = start().await;
        let way = up.server.in_process_as("admin", &["system:masters"]);
        let client = ApiClient::in_process(move |request| way.call(request));
        let send = async |method: Method, path: &str, body: Value| {
            let answer = client.call(preflight::request(method, path, Some(&body))).await.unwrap();
            let value: Value = serde_json::from_slice(&answer.body).unwrap();
            assert!(answer.head.status.is_success(), "{path}: {value}");
            value
        };
        let owner = send(Method::POST, MAPS, json!({"metadata": {"name": "owner"}})).await;
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
        for number in 0..12 {
            let metadata = json!({"name": format!("leaf-{number}"), "ownerReferences": owners});
            send(Method::POST, MAPS, json!({"metadata": metadata})).await;
        }
        let held = json!({"name": "held", "finalizers": ["acme.io/hold"]});
        send(Method::POST, MAPS, json!({"metadata": held})).await;
        send(Method::DELETE, &format!("{MAPS}/held"), json!({})).await;

        // Builds the report of a node's agent.
        let node =
            send(Method::POST, "/api/v1/nodes", json!({"metadata": {"name": "node-1"}})).await["metadata"]["uid"].clone();
        let (now, mut report) = (Timestamp(jiff::Timestamp::now().as_millisecond()), NodeReport::default());
        let removed = Tally { images: 2, freed_bytes: 1 << 20, containers: 3, ..Tally::default() };
        let due = DueImage { at: now.after(7_200_000).0, name: "registry.example/web:v1".into() };
        report.observe(now, removed, vec![due]);
        let metadata = json!({"name": "kubegc-node-node-1", "labels": {node_report::LABEL.0: node_report::LABEL.1},
            "annotations": {node_report::ANNOTATION: report.written(now)},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": node}]});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        send(Method::POST, leases, json!({"metadata": metadata})).await;

        let (news, _read) = mpsc::channel(1);
        let source = |asks| Source::new(client.clone(), asks, PATIENCE, news.clone());
        let (asking, listing) = (source(Asks::Server(client.clone())), source(Asks::Nobody));
        let place = |name: &str| ObjectPlace {
            kind: "ConfigMap".into(),
            resource: "configmaps".into(),
            namespace: "default".into(),
            name: name.into(),
        };
        for namespace in ["", "default"] {
            let ((asked, by_server), (listed, by_lists)) =
                (asking.overview(namespace).await.unwrap(), listing.overview(namespace).await.unwrap());
            assert_eq!((by_server, by_lists), (true, false));
            assert_eq!((asked.stuck.total, asked.terminating.total), (1, 1));
            // The time of a row is that of its overview.
            let rows = |overview: &Overview| {
                let rows = overview.stuck.items.iter();
                rows.map(|row| {
                    (row.code.clone(), ageless(std::slice::from_ref(&row.message)), row.objects.clone())
                })
                .collect::<Vec<_>>()
            };
            assert_eq!(rows(&asked), rows(&listed));
            let nodes = vec![Node { node: "node-1".into(), removed, due: 1 }];
            // Nodes are cluster-scoped.
            let of_nodes =
                if namespace.is_empty() { List { total: 1, items: nodes } } else { List::default() };
            assert_eq!((&asked.nodes, asked.due.total), (&of_nodes, of_nodes.total));
            assert_eq!(asked.nodes, listed.nodes);
            // Its time is that of the answer, to the second.
            let due = |list: &List<Due>| list.items.iter().map(|due| due.object.clone()).collect::<Vec<_>>();
            assert_eq!(due(&asked.due), due(&listed.due));
            assert_eq!(asked.terminating, listed.terminating);
        }
        for (content, name) in [(Content::Why, "leaf-0"), (Content::Why, "held"), (Content::Tree, "owner")] {
            let question = || match content {
                Content::Why => Query::Why { objects: vec![place(name).subject()] },
                _ => Query::Tree {
                    objects: vec![place(name).subject()],
                    owners: false,
                    depth: None,
                    full: false,
                },
            };
            assert!(asking.asked(question()).await.unwrap().is_some(), "{content:?}: the server answers");
            let (asked, listed) = (
                asking.explain(&content, &place(name)).await.unwrap(),
                listing.explain(&content, &place(name)).await.unwrap(),
            );
            assert!(!asked.is_empty());
            assert_eq!(ageless(&asked), ageless(&listed), "{content:?} {name}");
        }
        for cascade in [Cascade::Background, Cascade::Foreground, Cascade::Orphan] {
            let (asked, listed) = (
                asking.plan(cascade, &place("owner")).await.unwrap(),
                listing.plan(cascade, &place("owner")).await.unwrap(),
            );
            assert_eq!(asked.needs_name, cascade != Cascade::Orphan);
            assert_eq!((&asked.confirmed, asked.needs_name), (&listed.confirmed, listed.needs_name));
            assert_eq!(ageless(&asked.lines), ageless(&listed.lines));
        }
        // An absent object is reported in the same way as without the server.
        let missing = |source: &Source| {
            let source = source.clone();
            async move { source.explain(&Content::Why, &place("nothing")).await.unwrap_err().to_string() }
        };
        assert_eq!(missing(&asking).await, missing(&listing).await);
        up.shutdown().await;
    }

    /// Shows the dependents of the objects of a kind, of one namespace or of all, and of a cluster-scoped kind.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_xray_lists_what_objects_own() {
        let up = start().await;
        let way = up.server.in_process_as("admin", &["system:masters"]);
        let client = ApiClient::in_process(move |request| way.call(request));
        let send = async |path: &str, body: Value| -> Value {
            let answer = client.call(preflight::request(Method::POST, path, Some(&body))).await.unwrap();
            assert!(answer.head.status.is_success(), "{path}");
            serde_json::from_slice(&answer.body).unwrap()
        };
        let owned = |name: &str, owner: &Value| {
            let (kind, api_version) = (&owner["kind"], &owner["apiVersion"]);
            let of = &owner["metadata"];
            json!({"metadata": {"name": name, "ownerReferences": [
                {"apiVersion": api_version, "kind": kind, "name": of["name"], "uid": of["uid"]}]}})
        };
        send("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
        let node = send("/api/v1/nodes", json!({"metadata": {"name": "node-1"}})).await;
        for namespace in ["default", "shop"] {
            let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
            let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
            let root = send(&maps, json!({"metadata": {"name": format!("root-{namespace}")}})).await;
            let leaf = send(&secrets, owned("leaf", &root)).await;
            send(&maps, owned("under-the-leaf", &leaf)).await;
            send(&secrets, owned("of-the-node", &node)).await;
        }
        let (news, _read) = mpsc::channel(1);
        let source = Source::new(client.clone(), Asks::Nobody, PATIENCE, news);
        let lines = async |kind: &str, namespace: &str| -> Vec<String> {
            fn add(branch: &Branch, depth: usize, lines: &mut Vec<String>) {
                let ObjectPlace { namespace, resource, name, .. } = &branch.object.place;
                lines.push(format!("{}{resource} {namespace}/{name}", "  ".repeat(depth)));
                branch.below.iter().for_each(|below| add(below, depth + 1, lines));
            }
            let forest = source.forest(kind, namespace).await.unwrap();
            assert_eq!(forest.unseen, None);
            let mut lines = Vec::new();
            forest.trees.iter().for_each(|tree| add(tree, 0, &mut lines));
            lines.retain(|line| !line.contains("kube-root-ca"));
            lines
        };
        let of_root = |namespace: &str| {
            [
                format!("configmaps {namespace}/root-{namespace}"),
                format!("  secrets {namespace}/leaf"),
                format!("    configmaps {namespace}/under-the-leaf"),
                format!("configmaps {namespace}/under-the-leaf"),
            ]
        };
        assert_eq!(lines("cm", "shop").await, of_root("shop"));
        let all = lines("configmap", "").await;
        for line in of_root("shop").iter().chain(&of_root("default")) {
            assert!(all.contains(line), "{line}: {all:?}");
        }
        // The node is cluster-scoped, and only its dependents in the wanted namespace are shown.
        assert_eq!(lines("nodes", "shop").await, ["nodes /node-1", "  secrets shop/of-the-node"]);
        assert_eq!(lines("nodes", "").await.len(), 3);
        source.forest("nothing", "").await.unwrap_err();
        up.shutdown().await;
    }

    /// Returns the changes in the first lines of this feed.
    async fn first_changes(
        read: &mut mpsc::Receiver<News>,
        feed: &WantedFeed,
        number: usize,
    ) -> BTreeSet<String> {
        let (mut is_wanted, mut names) = (false, BTreeSet::new());
        while names.len() < number {
            match tokio::time::timeout(PATIENCE, read.recv()).await.unwrap().unwrap() {
                News::FeedOf(known) => is_wanted = known == *feed,
                News::Lines(lines) if is_wanted => {
                    names.extend(lines.into_iter().filter_map(|line| match line {
                        Line::Change(change) => Some(change.place.name),
                        Line::Skipped(_) | Line::Unsearched(_) => None,
                    }));
                }
                _ => {}
            }
        }
        names
    }

    /// Returns the names of the next changes, in order, up to this one.
    async fn changes_until(read: &mut mpsc::Receiver<News>, last: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        while names.last().is_none_or(|name| name != last) {
            if let News::Lines(lines) = tokio::time::timeout(PATIENCE, read.recv()).await.unwrap().unwrap() {
                names.extend(lines.into_iter().filter_map(|line| match line {
                    Line::Change(change) => Some(change.place.name),
                    Line::Skipped(_) | Line::Unsearched(_) => None,
                }));
            }
        }
        names
    }

    /// After each interruption, at the latest every ten minutes, the most recent lines were shown once more.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_feed_that_breaks_continues_where_it_was() {
        let up = start().await;
        let way = up.server.in_process_as("admin", &["system:masters"]);
        let cut = Arc::new(Notify::new());
        let broken = Arc::clone(&cut);
        let client = ApiClient::in_process(move |request: http::Request<_>| {
            let is_feed = request.uri().path().ends_with("/feed");
            let (answer, broken) = (way.call(request), Arc::clone(&broken));
            async move {
                answer.await.map(|body| {
                    let cut = async move {
                        if is_feed { broken.notified().await } else { std::future::pending().await }
                    };
                    StreamBody::new(BodyStream::new(body).take_until(Box::pin(cut)))
                })
            }
        });
        let send = async |method: Method, path: &str, body: Value| {
            let answer = client.call(preflight::request(method, path, Some(&body))).await.unwrap();
            assert!(answer.head.status.is_success(), "{path}");
            serde_json::from_slice::<Value>(&answer.body).unwrap()
        };
        let cascade = async |name: &str| {
            let owner =
                send(Method::POST, MAPS, json!({"metadata": {"name": format!("{name}-owner")}})).await;
            let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": format!("{name}-owner"),
                "uid": owner["metadata"]["uid"]}]);
            send(Method::POST, MAPS, json!({"metadata": {"name": name, "ownerReferences": owners}})).await;
            send(Method::DELETE, &format!("{MAPS}/{name}-owner"), json!({})).await;
        };
        let (news, mut read) = mpsc::channel(64);
        let source = Source::new(client.clone(), Asks::Server(client.clone()), PATIENCE, news);
        let wanted = watch::Sender::new(WantedFeed { text: "ownersabsent".into(), ..WantedFeed::default() });
        let following = tokio::spawn(source.follow_feed(wanted.subscribe()).boxed());
        cascade("first").await;
        assert_eq!(changes_until(&mut read, "first").await, ["first"]);
        cut.notify_waiters();
        cascade("second").await;
        assert_eq!(changes_until(&mut read, "second").await, ["second"]);
        drop(wanted);
        following.await.unwrap();
        up.shutdown().await;
    }

    /// A filter was applied to what had arrived, which on a busy cluster is only a sample.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_server_filters_the_feed() {
        let up = start().await;
        let way = up.server.in_process_as("admin", &["system:masters"]);
        let client = ApiClient::in_process(move |request| way.call(request));
        let send = async |method: Method, path: &str, body: Value| {
            let answer = client.call(preflight::request(method, path, Some(&body))).await.unwrap();
            assert!(answer.head.status.is_success(), "{path}");
            serde_json::from_slice::<Value>(&answer.body).unwrap()
        };
        let owner = send(Method::POST, MAPS, json!({"metadata": {"name": "owner"}})).await;
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
        for name in ["a-leaf", "b-leaf", "c-leaf"] {
            let metadata = json!({"name": name, "ownerReferences": owners});
            send(Method::POST, MAPS, json!({"metadata": metadata})).await;
        }
        let (news, mut read) = mpsc::channel(64);
        let source = Source::new(client.clone(), Asks::Server(client.clone()), PATIENCE, news);
        let all = WantedFeed { namespace: "default".into(), text: "leaf".into() };
        let wanted = watch::Sender::new(all.clone());
        let following = tokio::spawn(source.follow_feed(wanted.subscribe()).boxed());
        send(Method::DELETE, &format!("{MAPS}/owner"), json!({})).await;
        let names = first_changes(&mut read, &all, 3).await;
        assert_eq!(names, ["a-leaf", "b-leaf", "c-leaf"].map(str::to_owned).into());
        // Changes from before the filter was typed are found, and no others are sent.
        let one = WantedFeed { text: "B-LEAF  absent".into(), ..all };
        wanted.send_replace(one.clone());
        assert_eq!(first_changes(&mut read, &one, 1).await, ["b-leaf".to_owned()].into());
        drop(wanted);
        following.await.unwrap();
        up.shutdown().await;
    }
}
