//! Where `kubegc top` gets its answers: the first screen and the feed from the API of a server that `kubegc up` runs, and
//! everything else, as well as the first screen on other clusters, from the functions behind `kubegc stuck`, `why`, `tree` and
//! `plan`. Every request has the rights of the kubeconfig's user.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gc_answers::Resource;
use gc_kube::{ApiClient, push_segment};
use gc_retention::collectors::COLLECTORS;
use gc_types::Timestamp;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, mpsc, watch};

use super::app::{Content, News, Order, ShownPlan};
use super::events::Events;
use super::model::{Listed, Overview, Place};
use crate::page::overview::{self, Mode, Surroundings};
use crate::questions::plan::Cascade;
use crate::questions::view::{self, Confirmed, Question, Subject, View};
use crate::run::preflight;

/// Time between two overviews that a server answers; it makes one each second at most.
const PERIOD: Duration = Duration::from_secs(2);
/// An overview that is made here is made again after this multiple of the time that it took,
const REST_FACTOR: u32 = 9;
/// but no later than after this time.
const LONGEST_REST: Duration = Duration::from_mins(1);
/// Time before a broken feed is opened again.
const RECONNECT: Duration = Duration::from_secs(2);
/// Questions about objects that are asked at once.
const ASKED_AT_ONCE: usize = 4;
/// Objects of a kind that are listed.
const LISTED: usize = 5_000;

/// Asks the cluster. Cheap to clone.
#[derive(Clone)]
pub(super) struct Source {
    client: ApiClient,
    patience: Duration,
    news: mpsc::Sender<News>,
    turns: Arc<Semaphore>,
}

/// What the server's API answered.
enum Attached<T> {
    Yes(T),
    /// It has no such API.
    No,
}

impl Source {
    pub(super) fn new(client: ApiClient, patience: Duration, news: mpsc::Sender<News>) -> Self {
        Self { client, patience, news, turns: Arc::new(Semaphore::new(ASKED_AT_ONCE)) }
    }

    /// Keeps the overview of the wanted namespace up to date, until it is not read any more.
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

    /// The overview, and whether a server made it.
    async fn overview(&self, namespace: &str) -> anyhow::Result<(Overview, bool)> {
        let mut path = "/kubegc/v1/overview?namespace=".to_owned();
        push_segment(&mut path, namespace);
        let answer = self.client.call(preflight::request(Method::GET, &path, None)).await?;
        match attached(answer.head.status, || preflight::message(&answer))? {
            Attached::Yes(()) => {
                let overview = serde_json::from_slice(&answer.body).context("the overview cannot be read")?;
                Ok((overview, true))
            }
            Attached::No => Ok((self.own_overview(namespace).await?, false)),
        }
    }

    /// The overview of a cluster that has no such API, from what this user may list.
    async fn own_overview(&self, namespace: &str) -> anyhow::Result<Overview> {
        let catalog = view::catalog(&self.client).await?;
        let is_wanted = |resource: &&Resource| {
            resource.is_collectable() && (namespace.is_empty() || resource.is_namespaced())
        };
        let resources: Vec<Resource> = catalog.all().iter().filter(is_wanted).cloned().collect();
        let runs = |collector: &str| {
            COLLECTORS.iter().any(|known| known.on_by_default && known.controller.name() == collector)
        };
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
            collected: Vec::new(),
            clock_ahead_seconds: 0,
        };
        Ok(serde_json::from_value(overview::overview(&view, namespace, &around))?)
    }

    /// Follows the feed, until it is not read any more or the server has none.
    pub(super) async fn follow_feed(self) {
        loop {
            let state = match self.read_feed().await {
                Ok(Attached::Yes(())) => Err("The feed has ended; it is opened again.".to_owned()),
                Ok(Attached::No) => {
                    Err("The feed needs a server that `kubegc up` runs; `kubegc journal` reads a file."
                        .to_owned())
                }
                Err(error) => Err(format!("{error:#}")),
            };
            if self.news.send(News::Feed(state)).await.is_err() {
                return;
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn read_feed(&self) -> anyhow::Result<Attached<()>> {
        let mut request = preflight::request(Method::GET, "/kubegc/v1/feed", None);
        request.headers_mut().insert(http::header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = self.client.open(0, request).await?;
        let status = response.status();
        if let Attached::No = attached(status, || format!("the feed was answered with {status}"))? {
            return Ok(Attached::No);
        }
        self.news.send(News::Feed(Ok(()))).await?;
        let (mut events, mut body) = (Events::default(), response.into_body());
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(anyhow::Error::from_boxed)?.into_data() else { continue };
            let lines = events.read(&bytes)?;
            if !lines.is_empty() {
                self.news.send(News::Lines(lines)).await?;
            }
        }
        Ok(Attached::Yes(()))
    }

    /// Carries out an order in the background; what came of it is news.
    pub(super) fn carry_out(&self, order: Order) {
        let source = self.clone();
        off_thread(move || async move {
            // The semaphore is never closed, and whoever reads news may have left.
            let Ok(_turn) = source.turns.acquire().await else { return };
            let news = match order {
                Order::Quit | Order::Overview(_) => return,
                Order::Objects { kind, namespace } => {
                    let answer =
                        source.objects(&kind, &namespace).await.map_err(|error| format!("{error:#}"));
                    News::Objects { kind, namespace, answer }
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

    async fn question(&self, subject: &Subject) -> anyhow::Result<Question> {
        Question::about(self.client.clone(), subject, self.patience).await
    }

    async fn objects(&self, kind: &str, namespace: &str) -> anyhow::Result<Vec<Listed>> {
        let now = jiff::Timestamp::now().as_millisecond();
        let objects = view::objects(&self.client, kind, namespace).await?;
        let listed = objects.into_iter().take(LISTED).map(|(resource, metadata)| Listed {
            place: Place {
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
                .collect(),
            is_terminating: metadata.deleted.is_some(),
            finalizers: metadata.finalizers,
        });
        Ok(listed.collect())
    }

    async fn explain(&self, content: &Content, place: &Place) -> anyhow::Result<Vec<String>> {
        let question = self.question(&place.subject()).await?;
        let text = match content {
            Content::Tree => question.tree_text().await?,
            Content::Metadata => {
                let metadata = question.metadata().await?.context("the object is not there")?;
                crate::yaml::to_string(&metadata)?
            }
            _ => question.why_text().await?,
        };
        Ok(text.lines().map(str::to_owned).collect())
    }

    async fn plan(&self, cascade: Cascade, place: &Place) -> anyhow::Result<ShownPlan> {
        let planned = self.question(&place.subject()).await?.plan(cascade).await?;
        let mut lines: Vec<String> = planned.text()?.lines().map(str::to_owned).collect();
        lines.extend(planned.unseen.iter().map(|unseen| format!("warning: {unseen}")));
        Ok(ShownPlan { lines, confirmed: planned.to_confirm(), needs_name: planned.needs_name() })
    }

    async fn delete(
        &self,
        subject: &Subject,
        cascade: Cascade,
        confirmed: &Confirmed,
        is_named: bool,
    ) -> anyhow::Result<String> {
        let question = self.question(subject).await?;
        let planned = question.plan(cascade).await?;
        if !planned.is_within(confirmed) || (planned.needs_name() && !is_named) {
            bail!("Nothing was deleted: the plan has changed since it was shown; review it again");
        }
        question.delete(&planned).await?;
        let objects = gc_answers::text::count(planned.objects(), "object");
        Ok(format!("{}/{} is being deleted ({objects})", subject.resource, subject.name))
    }
}

/// Works on a thread of its own: a large graph takes a while, in which keys are answered and pictures drawn.
pub(super) fn off_thread<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(work()));
}

/// Whether an answer comes from the API of a server that kubegc runs; any other failure is an error.
fn attached(status: StatusCode, message: impl FnOnce() -> String) -> anyhow::Result<Attached<()>> {
    match status {
        status if status.is_success() => Ok(Attached::Yes(())),
        // A server without the paths refuses them to users who may not ask for everything.
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => Ok(Attached::No),
        _ => bail!("{}: {}", status.as_u16(), message()),
    }
}
