//! The page and its API: `/ui` and `/kubegc/v1/…`. Questions are answered, and orders carried out, with the permissions of the
//! requesting user, by the same code as `stuck`, `why`, `plan` and `delete` on the command line.

mod assets;
mod console;
mod deleting;
mod feed;
mod home;
pub mod listener;
mod maps;
mod object;
pub(crate) mod overview;
mod plans;
mod refusal;
mod releasing;
pub mod requester;
mod stream;
mod ttl_cache;
mod views;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use gc_apiserver::{
    Audience, BearerToken, ExtensionAnswer, ExtensionBody, ExtensionRequest, InProcess, LINK_SECONDS,
    SessionSource, Sessions, SharedBody,
};
use gc_collectors::permissions::Controller;
use gc_embedded::clock::CollectorClock;
use gc_inspect::answering;
use gc_inspect::attached::QueryRequest;
use gc_inspect::gather::Gatherer;
use gc_inspect::resident::Resident;
use gc_inspect::subject::Subject;
use gc_kube::{Observer, ResourceTable};
use gc_process::collectors::MakeSinks;
pub(crate) use gc_process::endpoints::MAXIMUM_ORDER_BYTES;
use gc_process::guard;
use gc_process::journal::Journal;
use gc_process::lease::LeaseFlags;
use gc_process::lease::control::{self, Control};
use gc_process::lease::orders::Orders;
use gc_process::user_limits::{self, UserLimits};
use gc_registry::api::UserInfo;
use http::Method;
use http::header::{AUTHORIZATION, HOST};
use serde::Deserialize;
use serde_json::{Value, json};

pub use console::maker;
use feed::Feed;
pub use home::AttachedCollectors;
use home::Home;
use maps::MapQuestion;
use overview::Mode;
use plans::Plans;
use refusal::Refusal;
use requester::{Requester, Sight, UserKey, who};
use stream::Streams;
use ttl_cache::TtlCache;
use views::Views;

/// Common prefix of the API's paths.
const API: &str = "/kubegc/v1/";
/// Path of the page.
pub(crate) const PAGE: &str = "/ui";
/// Maximum number of questions that are answered concurrently; more wait.
const ANSWERED_AT_ONCE: usize = 16;
/// Maximum number of these from one user.
const ANSWERED_AT_ONCE_OF_USER: usize = 4;
/// Maximum wait of a question for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of answers to live questions that are kept for other pages of the same user.
const KEPT_ANSWERS: usize = 64;
/// Validity of an overview, which all open pages of a user request repeatedly.
const OVERVIEW_VALID: Duration = Duration::from_secs(1);
/// Maximum duration of an answer about one object.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of readers of the feed.
const MAXIMUM_READERS: usize = 256;
/// Maximum number of these for one user.
const MAXIMUM_READERS_OF_USER: usize = 64;
/// Path at which links to the page are created.
const LINK: &str = "link";
/// Paths open to every user; answers have the rights of the user.
const SERVED: [&str; 15] = [
    "overview",
    "map",
    "object",
    "plan",
    "finalizer",
    "ask",
    "feed",
    "search",
    "nodes",
    "delete",
    "release",
    "remaining",
    LINK,
    "logout",
    "openapi.json",
];
/// Paths that change something.
const ORDERS: [&str; 4] = ["delete", "release", "pause", "resume"];
/// Longest reason of a pause.
const LONGEST_REASON: usize = 500;

/// The page of one server. Cheap to clone.
#[derive(Clone)]
pub struct Page(Arc<PageState>);

struct PageState {
    sessions: Sessions,
    feed: Feed,
    streams: Streams,
    views: Views,
    /// Answers by user, question, and the note of a pause.
    answers: TtlCache<(UserKey, LiveQuestion, Option<String>), Arc<SharedBody>>,
    clock: CollectorClock,
    /// Orders on the Lease.
    orders: Control,
    turns: UserLimits,
    readers: UserLimits,
    /// Plans that were shown, for use in maps.
    plans: Plans,
    /// Deletions that were ordered, for users who follow them.
    deletions: Plans,
    /// The journal of the collectors, which has the orders of users, too; `None` if there is none.
    journal: Option<Arc<Journal>>,
    home: Home,
}

/// Questions that open pages ask repeatedly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LiveQuestion {
    /// The overview of a namespace, or of everything if it is empty.
    Overview { namespace: String },
    /// The ownership graph.
    Map(MapQuestion),
}

impl LiveQuestion {
    /// Returns the question of a path, if it is a live one.
    fn of(path: &str, request: &ExtensionRequest) -> Result<Option<Self>, Refusal> {
        let namespace = parameter(request, "namespace").unwrap_or_default().to_owned();
        match path {
            "overview" => Ok(Some(Self::Overview { namespace })),
            "map" => Ok(Some(Self::Map(MapQuestion::of(request, namespace)?))),
            _ => Ok(None),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PauseOrder {
    #[serde(default)]
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResumeOrder {
    /// Resource to resume after the circuit breaker stopped it; empty to end a pause.
    #[serde(default)]
    resource: String,
}

impl Page {
    /// Of a server in this process, which is named once it has begun, and whose collectors have this journal.
    #[must_use]
    pub fn new(clock: CollectorClock, journal: Option<Arc<Journal>>) -> Self {
        Self::of(clock, Control::beside_server(), journal, Home::Embedded(OnceLock::new()))
    }

    /// Creates the page of collectors beside a server elsewhere, which obey these orders.
    pub fn attached(orders: Control, collectors: AttachedCollectors) -> Self {
        let journal = Some(Arc::clone(&collectors.journal));
        Self::of(CollectorClock::default(), orders, journal, Home::Attached(collectors))
    }

    fn of(clock: CollectorClock, orders: Control, journal: Option<Arc<Journal>>, home: Home) -> Self {
        let feed = Feed::default();
        Self(Arc::new(PageState {
            sessions: Sessions::default(),
            streams: Streams::new(feed.clone()),
            feed,
            views: Views::default(),
            answers: TtlCache::new(KEPT_ANSWERS),
            clock,
            orders,
            turns: UserLimits::new(ANSWERED_AT_ONCE, ANSWERED_AT_ONCE_OF_USER),
            readers: UserLimits::new(MAXIMUM_READERS, MAXIMUM_READERS_OF_USER),
            plans: Plans::default(),
            deletions: Plans::default(),
            journal,
            home,
        }))
    }

    /// Sets access to the server once it has begun.
    pub fn serve(&self, server: &InProcess) {
        if let Home::Embedded(known) = &self.0.home {
            // The server begins once.
            let _ = known.set(server.downgrade());
        }
    }

    /// Returns the audit sinks of a collector, including the page's feed.
    pub fn sinks(&self, others: Arc<MakeSinks>) -> Arc<MakeSinks> {
        let feed = self.0.feed.clone();
        Arc::new(move |controller, table| {
            let mut sinks = others(controller, table);
            sinks.push(feed.observer(controller, table));
            sinks
        })
    }

    /// Returns the feed's observer for one collector.
    #[must_use]
    pub fn observer(&self, controller: Controller, table: &ResourceTable) -> Arc<dyn Observer> {
        self.0.feed.observer(controller, table)
    }

    /// Announces collectors that run here, or will as soon as they lead.
    pub fn expect(&self, controllers: &[Controller]) {
        self.0.feed.expect(controllers);
    }

    /// Returns the sessions of browsers.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Returns a single-use link that opens the page as this user; `None` before the server has begun.
    #[must_use]
    pub fn link(&self, user: UserInfo) -> Option<String> {
        Some(self.link_at(&self.server().ok()?.url(), user, SessionSource::Process))
    }

    fn link_at(&self, address: &str, user: UserInfo, source: SessionSource) -> String {
        let token = self.0.sessions.link(user, source, jiff::Timestamp::now().as_second());
        format!("{address}{PAGE}/login?token={token}")
    }

    /// Returns a link for the requesting user, at the address of the request. It requires credentials and not a session, which
    /// could otherwise renew itself forever.
    fn link_for(&self, request: &ExtensionRequest, visitor: &Requester) -> Result<ExtensionAnswer, Refusal> {
        let from_session = || {
            let message = "a session makes no link: ask with a token or a client certificate";
            Refusal::new(403, "Forbidden", message)
        };
        let (address, source) = match &self.0.home {
            Home::Embedded(_) => {
                let origin = request.origin.clone().ok_or_else(from_session)?;
                (self.server()?.url(), SessionSource::Request(origin))
            }
            Home::Attached(_) => {
                let bearer = visitor.bearer().filter(|_| request.headers.contains_key(AUTHORIZATION));
                let source = SessionSource::Bearer(BearerToken::new(bearer.ok_or_else(from_session)?));
                let host = request.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
                let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
                if host.is_empty() || !host.chars().all(is_part) {
                    return Err(Refusal::new(400, "BadRequest", "expected a header Host with NAME:PORT"));
                }
                (format!("https://{host}"), source)
            }
        };
        let link = self.link_at(&address, request.user.clone(), source);
        Ok(ExtensionAnswer::json(201, &json!({"url": link, "seconds": LINK_SECONDS})))
    }

    /// Returns the access rule of a path; `None` if it is not the page's.
    pub(crate) fn audience(path: &str) -> Option<Audience> {
        if path == PAGE || path.starts_with("/ui/") {
            return Some(Audience::Anyone);
        }
        match path.strip_prefix(API)? {
            "pause" | "resume" => Some(Audience::Permitted),
            path => SERVED.contains(&path).then_some(Audience::Authenticated),
        }
    }

    /// Reports whether a session's cookie is enough for a path: the page and its dependencies, but no link to another session.
    pub(crate) fn accepts_session(path: &str) -> bool {
        Self::audience(path).is_some() && path.strip_prefix(API) != Some(LINK)
    }

    /// Answers a request to the server in this process.
    pub async fn answer(self, request: ExtensionRequest) -> Option<ExtensionAnswer> {
        let visitor = self.server().map(|server| Requester::Embedded(server.as_user(&request.user)));
        self.answer_as(request, visitor).await
    }

    /// Answers a request of this user; without one, only the page itself.
    async fn answer_as(
        self,
        request: ExtensionRequest,
        visitor: Result<Requester, Refusal>,
    ) -> Option<ExtensionAnswer> {
        let answer = match guard::cross_site(&request.method, &request.headers) {
            Some(_) if guard::is_arrival(&request) => assets::enter(),
            Some(why) => Refusal::new(403, "Forbidden", why).answer(),
            None if request.path.starts_with(PAGE) => self.page(&request)?,
            None => match visitor {
                Ok(visitor) => self.api(request, visitor).await.unwrap_or_else(Refusal::answer),
                Err(refusal) => refusal.answer(),
            },
        };
        Some(guard::protected(answer))
    }

    fn page(&self, request: &ExtensionRequest) -> Option<ExtensionAnswer> {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Some(not_allowed().answer());
        }
        if request.path == "/ui/login" {
            let token = parameter(request, "token").unwrap_or_default();
            let session = self.0.sessions.open(token, jiff::Timestamp::now().as_second());
            // A link that is opened again leads to the page if a session exists.
            return Some(match session {
                Some(session) => guard::signed_in(&session, &request.headers),
                None if is_known(&request.user) => guard::redirect(PAGE),
                None => assets::sign_in(),
            });
        }
        assets::answer(&request.path, is_known(&request.user))
    }

    async fn api(&self, request: ExtensionRequest, user: Requester) -> Result<ExtensionAnswer, Refusal> {
        let path = request.path.strip_prefix(API).unwrap_or_default().to_owned();
        if ORDERS.contains(&&*path) && !self.takes_orders() {
            let message = "this page is read-only: start `kubegc run` with --ui-orders to allow changes";
            return Err(Refusal::new(403, "ReadOnly", message));
        }
        let reads = matches!(request.method, Method::GET | Method::HEAD);
        match (path.as_str(), reads) {
            ("feed", true) => self.feed(&request, user),
            ("openapi.json", true) => Ok(ExtensionAnswer {
                code: 200,
                content_type: "application/json",
                headers: Vec::new(),
                body: ExtensionBody::Whole(include_str!("page/openapi.json").into()),
            }),
            (LINK, false) => self.link_for(&request, &user),
            ("logout", false) => {
                self.0.sessions.close(&request.headers);
                Ok(guard::signed_out(&request.headers))
            }
            ("pause", false) => self.pause(&request).await,
            ("resume", false) => self.resume(&request).await,
            _ => {
                if reads && let Some(question) = LiveQuestion::of(&path, &request)? {
                    return self.live(question, request, user).await;
                }
                let (page, asking) = (self.clone(), request.user.clone());
                self.in_turn(
                    &asking,
                    move || async move { page.question(&path, reads, &request, &user).await },
                )
                .await
            }
        }
    }

    /// Waits for a slot to answer a question.
    async fn turn(&self, user: &UserInfo) -> Result<user_limits::Place, Refusal> {
        match tokio::time::timeout(TURN_PATIENCE, self.0.turns.wait(&user.name)).await {
            Ok(Some(turn)) => Ok(turn),
            _ => Err(too_many("too many questions at once; ask again later")),
        }
    }

    /// Works on a question in a slot of its user, which is freed when the work ends: that continues for a while after the client
    /// has gone.
    async fn in_turn<T, F>(
        &self,
        user: &UserInfo,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>>,
    {
        let turn = self.turn(user).await?;
        off_thread(move || async move {
            let _turn = turn;
            work().await
        })
        .await
    }

    /// Answers a live question once for all pages of a user.
    async fn live(
        &self,
        question: LiveQuestion,
        request: ExtensionRequest,
        user: Requester,
    ) -> Result<ExtensionAnswer, Refusal> {
        let key = (who(&request.user), question.clone(), self.0.orders.orders().borrow().paused.clone());
        let page = self.clone();
        let make = async move {
            let (asked, asking) = (page.clone(), request.user.clone());
            asked
                .in_turn(&asking, move || async move {
                    let (document, valid) = match &question {
                        LiveQuestion::Overview { namespace } => {
                            page.overview(namespace, &request, &user).await?
                        }
                        LiveQuestion::Map(question) => page.map(question, &request, &user).await?,
                    };
                    Ok((Arc::new(SharedBody::new(document.to_string().into())), valid))
                })
                .await
        };
        let answered = tokio::time::timeout(TURN_PATIENCE + ANSWER_PATIENCE, self.0.answers.of(key, make));
        let Ok(answered) = answered.await else {
            return Err(too_many("the answer takes too long; ask again later"));
        };
        let body = ExtensionBody::Shared(answered?.0);
        Ok(ExtensionAnswer { code: 200, content_type: "application/json", headers: Vec::new(), body })
    }

    async fn question(
        &self,
        path: &str,
        reads: bool,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<ExtensionAnswer, Refusal> {
        match (path, reads) {
            ("search", true) => self.search(request, user).await,
            ("nodes", true) => self.nodes(request, user).await,
            ("object", true) => self.object(request, user).await,
            ("plan", true) => self.plan(request, user).await,
            ("ask", false) => self.ask(request, user).await,
            ("delete", false) => self.delete(request, user).await,
            ("finalizer", true) => self.finalizer(request, user).await,
            ("release", false) => self.release(request, user).await,
            ("remaining", true) => self.remaining(request, user).await,
            _ => Err(not_allowed()),
        }
    }

    async fn view(&self, request: &ExtensionRequest, user: &Requester) -> Result<views::SharedView, Refusal> {
        let clock = self.0.clock.clock()();
        let running = self.0.feed.controllers();
        let runs = |collector: &str| running.contains(collector);
        Ok(self.0.views.of(user, who(&request.user), clock, &runs, self.resident()).await?)
    }

    fn resident(&self) -> Option<Arc<dyn Resident>> {
        match &self.0.home {
            Home::Embedded(_) => None,
            Home::Attached(collectors) => collectors.resident.clone(),
        }
    }

    /// Creates a gatherer for a user, which takes from the graph what the user may list.
    async fn gatherer(&self, user: &Requester) -> anyhow::Result<Gatherer> {
        let resident = self.resident();
        let rights = match &resident {
            Some(_) => user.rights().await?.lists.clone(),
            None => Vec::new(),
        };
        answering::gatherer(user.client(), resident, &rights).await
    }

    /// Answers the questions of the command line.
    async fn ask(&self, request: &ExtensionRequest, user: &Requester) -> Result<ExtensionAnswer, Refusal> {
        let inquiry: QueryRequest = read_order(request)?;
        let answered = answering::answer(&self.gatherer(user).await?, inquiry, ANSWER_PATIENCE).await?;
        let document = serde_json::to_value(answered).map_err(anyhow::Error::from)?;
        Ok(ExtensionAnswer::json(200, &document))
    }

    /// Returns the first screen, and how long it is valid.
    async fn overview(
        &self,
        namespace: &str,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<(Value, Duration), Refusal> {
        let views::SharedView { view, rights, .. } = self.view(request, user).await?;
        let mut sight = Sight::new(user.clone());
        sight.refresh().await;
        // Nodes are cluster-scoped.
        let sees_nodes = namespace.is_empty() && sight.may_see(&feed::ChangeSubject::of_nodes());
        let mut in_sight = |about: &feed::ChangeSubject| {
            (namespace.is_empty() || &*about.namespace == namespace) && sight.may_see(about)
        };
        let now = jiff::Timestamp::now();
        let collected = self.0.feed.collected(now, &mut in_sight);
        let takes_orders = self.takes_orders();
        let around = overview::Surroundings {
            user: &request.user.name,
            sees_all: rights.all,
            namespaces_omitted: rights.namespaces_omitted,
            may_pause: takes_orders && user.may_path("post", "/kubegc/v1/pause").await?,
            may_delete: takes_orders,
            mode: self.mode(now),
            stopped: match &self.0.home {
                Home::Embedded(_) => Vec::new(),
                Home::Attached(collectors) => collectors.stopped(sight.sees_all()),
            },
            node_breaker: self.0.feed.node_breaker().filter(|_| sees_nodes),
            collected,
            clock_ahead_seconds: self.0.clock.ahead() / 1000,
        };
        Ok((overview::overview(&view, namespace, &around), OVERVIEW_VALID))
    }

    fn mode(&self, now: jiff::Timestamp) -> Mode {
        if let Some(note) = &self.0.orders.orders().borrow().paused {
            return Mode::paused(note, now);
        }
        match &self.0.home {
            Home::Embedded(_) => Mode::Acting,
            Home::Attached(collectors) => collectors.mode(),
        }
    }

    /// Returns an event whenever the collectors are paused or resumed, or begin or cease to act.
    fn modes(&self) -> BoxStream<'static, Bytes> {
        let orders = stream::changes(self.0.orders.orders());
        let changes = match &self.0.home {
            Home::Embedded(_) => orders,
            Home::Attached(collectors) => {
                futures::stream::select(orders, stream::changes(collectors.holding.clone())).boxed()
            }
        };
        let page = Arc::downgrade(&self.0);
        let state = move || {
            page.upgrade().map(|shared| Self(shared).mode(jiff::Timestamp::now()).value()["state"].clone())
        };
        let mut known = state();
        let changed = changes.filter_map(move |()| {
            let before = std::mem::replace(&mut known, state());
            std::future::ready(known.clone().filter(|_| known != before))
        });
        changed.map(|mode| Bytes::from(format!("event: mode\ndata: {{\"state\":{mode}}}\n\n"))).boxed()
    }

    fn takes_orders(&self) -> bool {
        match &self.0.home {
            Home::Embedded(_) => true,
            Home::Attached(collectors) => collectors.takes_orders,
        }
    }

    async fn search(&self, request: &ExtensionRequest, user: &Requester) -> Result<ExtensionAnswer, Refusal> {
        let views::SharedView { view, .. } = self.view(request, user).await?;
        let text = parameter(request, "q").unwrap_or_default();
        Ok(ExtensionAnswer::json(200, &overview::search(&view.survey, text)))
    }

    /// Returns the fleet of nodes, as reported by their agents.
    async fn nodes(&self, request: &ExtensionRequest, user: &Requester) -> Result<ExtensionAnswer, Refusal> {
        let views::SharedView { view, .. } = self.view(request, user).await?;
        let mut fleet = view.nodes.fleet(parameter(request, "q").unwrap_or_default());
        fleet["now"] = view.now.to_string().into();
        Ok(ExtensionAnswer::json(200, &fleet))
    }

    async fn pause(&self, request: &ExtensionRequest) -> Result<ExtensionAnswer, Refusal> {
        let order: PauseOrder = read_order(request)?;
        let by = &request.user.name;
        let reason: String = order.reason.chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect();
        tracing::warn!(by, reason, "the collectors are paused");
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let note = overview::pause_note(&now, &reason, by);
        self.order(|orders| {
            orders.paused.get_or_insert_with(|| note.clone());
        })
        .await?;
        Ok(ExtensionAnswer::json(200, &json!({"state": "Paused"})))
    }

    async fn resume(&self, request: &ExtensionRequest) -> Result<ExtensionAnswer, Refusal> {
        let by = &request.user.name;
        let ResumeOrder { resource } = read_order(request)?;
        if resource.is_empty() {
            tracing::warn!(by, "the collectors are resumed");
            let now = jiff::Timestamp::now();
            self.order(|orders| {
                orders.paused = None;
                orders.resumed_at = Some(now);
            })
            .await?;
        } else {
            tracing::warn!(by, resource, "the collection of a resource is resumed");
            self.order(|orders| {
                if let Some(tripped) = &mut orders.tripped {
                    tripped.remove(&*resource);
                }
            })
            .await?;
        }
        Ok(ExtensionAnswer::json(200, &json!({"state": "Acting"})))
    }

    /// Writes orders to the Lease, like `kubegc pause`, and obeys them immediately.
    async fn order(&self, change: impl Fn(&mut Orders)) -> Result<(), Refusal> {
        let (client, lease) = match &self.0.home {
            Home::Embedded(_) => (Requester::Embedded(self.server()?).client(), LeaseFlags::default_name()),
            Home::Attached(collectors) => (collectors.client.clone(), collectors.lease.clone()),
        };
        let (_, lease) = control::edit(&client, &lease, change).await?;
        self.0.orders.saw(&lease);
        self.obey();
        Ok(())
    }

    fn obey(&self) {
        self.0.clock.hold(self.0.orders.orders().borrow().paused.is_some());
    }

    /// Obeys the orders that `kubegc pause` and `kubegc resume` write to the Lease, until dropped.
    pub fn follow_orders(&self) -> impl Future<Output = ()> + Send + use<> {
        let page = self.clone();
        async move {
            let Ok(server) = page.server() else { return };
            let lease = LeaseFlags::default_name();
            let follow = page.0.orders.clone().follow(Requester::Embedded(server).client(), lease);
            let mut orders = page.0.orders.orders();
            let obey = async {
                while orders.changed().await.is_ok() {
                    page.obey();
                }
            };
            futures::join!(follow, obey);
        }
    }

    fn server(&self) -> Result<InProcess, Refusal> {
        let server = match &self.0.home {
            Home::Embedded(server) => server.get(),
            Home::Attached(_) => None,
        };
        server
            .and_then(gc_apiserver::WeakInProcess::upgrade)
            .ok_or_else(|| Refusal::new(503, "Unavailable", "the server has not begun yet, or has ended"))
    }

    fn feed(&self, request: &ExtensionRequest, user: Requester) -> Result<ExtensionAnswer, Refusal> {
        let Some(place) = self.0.readers.take(&request.user.name) else {
            return Err(too_many("too many readers of the feed"));
        };
        let last = request.headers.get("last-event-id").and_then(|id| id.to_str().ok());
        let from = last.or_else(|| parameter(request, "from")).and_then(|id| self.0.feed.number(id));
        let text = |name: &str| parameter(request, name).unwrap_or_default();
        let wanted = feed::Filter::new(text("namespace"), text("q"));
        let stream = self.0.streams.open((who(&request.user), wanted), user, from, place);
        let stream = stream::until_the_first_ends(stream, self.modes());
        Ok(ExtensionAnswer {
            code: 200,
            content_type: "text/event-stream",
            headers: Vec::new(),
            body: ExtensionBody::Stream(stream),
        })
    }
}

fn too_many(message: &str) -> Refusal {
    Refusal::new(429, "TooManyRequests", message)
}

fn not_allowed() -> Refusal {
    Refusal::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
}

/// Reports whether a user has presented credentials.
fn is_known(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == "system:authenticated")
}

fn parameter<'a>(request: &'a ExtensionRequest, name: &str) -> Option<&'a str> {
    request.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn subject(request: &ExtensionRequest) -> Result<Subject, Refusal> {
    let text = |name: &str| parameter(request, name).unwrap_or_default().to_owned();
    let subject = Subject { resource: text("resource"), namespace: text("namespace"), name: text("name") };
    if subject.resource.is_empty() || subject.name.is_empty() {
        return Err(Refusal::new(400, "BadRequest", "expected resource=deployments.apps and name=NAME"));
    }
    Ok(subject)
}

fn read_order<T: serde::de::DeserializeOwned>(request: &ExtensionRequest) -> Result<T, Refusal> {
    if request.body.len() > MAXIMUM_ORDER_BYTES {
        return Err(Refusal::new(
            413,
            "RequestEntityTooLarge",
            format!("an order has at most {MAXIMUM_ORDER_BYTES} bytes"),
        ));
    }
    serde_json::from_slice(&request.body)
        .map_err(|error| Refusal::new(400, "BadRequest", format!("the order cannot be read: {error}")))
}

/// Computes an answer on a separate thread.
async fn off_thread<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, Refusal>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Refusal>>,
{
    gc_process::tasks::off_thread(work).await.unwrap_or_else(|error| {
        Err(Refusal::new(500, "InternalError", format!("the answer was not made: {error}")))
    })
}

#[cfg(test)]
mod tests;
