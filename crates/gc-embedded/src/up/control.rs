//! `/kubegc/v1/…`: the clock of the collectors, and waiting until nothing is left to do, for tests in any language.
//!
//! ```text
//! GET  /kubegc/v1/clock                  {"now": "…", "ahead": "36h0m0s"}
//! POST /kubegc/v1/clock?advance=36h      the same, afterwards; `ahead=36h` sets it
//! GET  /kubegc/v1/settle                 {"settled": false, "moving": ["…"]}
//! POST /kubegc/v1/settle?timeout=10s     {"settled": true, "took": "12ms"}, or 504 and who is still moving
//! POST /kubegc/v1/reset                  {"reset": true}: objects and clock are as they were at the start
//! POST /kubegc/v1/fork                   {"name": 1, "server": "https://…", "kubeconfig": "…"}: a copy of this server;
//!                                        `port=7444` is where it listens
//! GET  /kubegc/v1/fork                   {"forks": [{"name": 1, "server": "https://…"}]}
//! DELETE /kubegc/v1/fork?name=1          ends one
//! GET  /kubegc/v1/journal                what the collectors did, and why; see [`journal::answer`]
//! GET  /kubegc/v1/deletions?uid=…        who asked for deletions; see [`super::deletions`]
//! ```
//!
//! The pages of [`pages`] are served here, too.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gc_apiserver::{Audience, Extension, ExtensionAnswer, ExtensionRequest, Sessions};
use gc_registry::Registry;
use gc_types::GoDuration;
use http::Method;
use serde_json::{Value, json};

use super::cluster::{Cluster, Fork, Refusal};
use super::deletions::{self, Deletions};
use crate::backup_pages;
use crate::clock::CollectorClock;
use crate::console::Console;
use gc_process::activity::Activity;
use gc_process::endpoints::{CLOCK, not_allowed, refused, status};
use gc_process::guard;
use gc_process::journal::{self, Journal};

const SETTLE: &str = "/kubegc/v1/settle";
const RESET: &str = "/kubegc/v1/reset";
const FORK: &str = "/kubegc/v1/fork";
/// Default and maximum wait of a request.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_PATIENCE: Duration = Duration::from_mins(10);
/// Maximum lead of the clock: far beyond every deadline, and within the years that a timestamp can have.
const FARTHEST_AHEAD: Duration = Duration::from_hours(100 * 365 * 24);
const FARTHEST_AHEAD_TEXT: &str = "876000h (100 years)";
/// Minimum wait, because the request itself has just caused activity.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);
/// Time without a change after which everything that can run in the process has run.
const REST: Duration = Duration::from_millis(20);

/// State that the paths act on.
#[derive(Clone)]
pub struct Control(Arc<ControlState>);

struct ControlState {
    console: Option<Arc<dyn Console>>,
    clock: CollectorClock,
    activity: Activity,
    /// Registry, known once the server has begun.
    registry: OnceLock<Arc<Registry>>,
    /// Journal of the collectors, if it is recorded.
    journal: Option<Arc<Journal>>,
    /// Requests for deletions, with their users.
    deletions: Arc<Deletions>,
    /// Cluster, known once the controllers have begun.
    cluster: OnceLock<Weak<Cluster>>,
}

impl Control {
    pub(super) fn new(
        clock: CollectorClock,
        activity: Activity,
        journal: Option<Arc<Journal>>,
        console: Option<Arc<dyn Console>>,
    ) -> Self {
        let deletions = Arc::new(Deletions::new(journal.clone(), console.clone()));
        let (registry, cluster) = (OnceLock::new(), OnceLock::new());
        Self(Arc::new(ControlState { console, clock, activity, registry, journal, deletions, cluster }))
    }

    /// Returns the page of the server, if it has one.
    #[must_use]
    pub fn console(&self) -> Option<&Arc<dyn Console>> {
        self.0.console.as_ref()
    }

    /// Returns the observer of deletions.
    pub(super) fn deletions(&self) -> Arc<Deletions> {
        Arc::clone(&self.0.deletions)
    }

    /// Sets the registry when the server has begun.
    pub fn serve(&self, registry: &Arc<Registry>) {
        // The server begins once.
        let _ = self.0.registry.set(Arc::clone(registry));
    }

    /// Sets the cluster when the controllers have begun.
    pub(super) fn attach(&self, cluster: &Arc<Cluster>) {
        // The controllers begin once.
        let _ = self.0.cluster.set(Arc::downgrade(cluster));
    }

    fn cluster(&self) -> Option<Arc<Cluster>> {
        self.0.cluster.get()?.upgrade()
    }

    /// Waits until nothing is left to do. `rest` returns when everything that can run has run; the error names those that are still
    /// active after `patience`.
    pub async fn settle<R: Future<Output = ()>>(
        &self,
        patience: Duration,
        rest: impl Fn() -> R,
    ) -> Result<(), Vec<String>> {
        let ControlState { clock, activity, registry, .. } = &*self.0;
        let Some(registry) = registry.get() else { return Err(vec!["the server has not begun yet".into()]) };
        activity.settle(registry, &clock.clock(), patience, rest).await
    }

    /// Returns the clock of the collectors.
    #[must_use]
    pub fn clock(&self) -> &CollectorClock {
        &self.0.clock
    }

    fn shown_clock(&self) -> (u16, Value) {
        let now = self.0.clock.clock()();
        let now = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default();
        let ahead = GoDuration(self.0.clock.ahead().saturating_mul(1_000_000));
        (200, json!({"now": now.to_string(), "ahead": ahead.to_string()}))
    }

    fn set_clock(&self, query: &[(String, String)]) -> (u16, Value) {
        match query {
            [(name, text)] if name == "advance" || name == "ahead" => match text.parse::<GoDuration>() {
                Ok(by) if by < GoDuration::ZERO => {
                    return refused(&format!("{name}={text}: expected a duration that is not negative"));
                }
                Ok(by) if by.to_std() > FARTHEST_AHEAD => {
                    return refused(&format!("{name}={text}: expected at most {FARTHEST_AHEAD_TEXT}"));
                }
                Ok(by) => {
                    let before = if name == "advance" { self.0.clock.ahead() } else { 0 };
                    let ahead = before.saturating_add(gc_types::milliseconds(by.to_std()));
                    if ahead > gc_types::milliseconds(FARTHEST_AHEAD) {
                        return refused(&format!(
                            "{name}={text}: the clock would be more than {FARTHEST_AHEAD_TEXT} ahead"
                        ));
                    }
                    self.0.clock.set(ahead);
                }
                Err(error) => return refused(&format!("{name}={text}: {error}")),
            },
            _ => return refused("expected one parameter, advance=DURATION or ahead=DURATION"),
        }
        self.shown_clock()
    }

    /// Resets the server, or acts on its forks. Anything that has begun is finished even if the client does not wait for it.
    async fn answer_whole(
        self,
        method: Method,
        path: &'static str,
        query: Vec<(String, String)>,
    ) -> (u16, Value) {
        let (Some(cluster), Some(registry)) = (self.cluster(), self.0.registry.get().cloned()) else {
            return (503, status(503, "ServiceUnavailable", "the server has not begun yet", &json!({})));
        };
        let acting = tokio::spawn(
            async move {
                match (method, path, query.as_slice()) {
                    (Method::POST, RESET, []) => cluster.reset().await.map(|()| json!({"reset": true})),
                    (Method::POST, FORK, query) => {
                        let port = wanted_port(query)?;
                        cluster.fork(&registry, port).await.map(|fork| shown_fork(&fork))
                    }
                    (Method::GET | Method::HEAD, FORK, []) => {
                        let forks = cluster.list_forks().await?;
                        // Without their kubeconfigs: a user who may only read must not become an administrator of a copy.
                        let shown = |fork: &Fork| json!({"name": fork.name, "server": fork.server});
                        Ok(json!({"forks": forks.iter().map(shown).collect::<Vec<_>>()}))
                    }
                    (Method::DELETE, FORK, [(name, number)]) if name == "name" => {
                        let number = number.parse().map_err(|_| Refusal::NoNumber(number.clone()))?;
                        cluster.end_fork(number).await.map(|()| json!({"ended": number}))
                    }
                    _ => Err(Refusal::Parameters),
                }
            }
            .boxed(),
        );
        match acting.await {
            Ok(Ok(done)) => (200, done),
            Ok(Err(Refusal::Failed(error))) => {
                (500, status(500, "InternalError", &format!("{error:#}"), &json!({})))
            }
            Ok(Err(refusal @ Refusal::Unknown(_))) => {
                (404, status(404, "NotFound", &refusal.to_string(), &json!({})))
            }
            Ok(Err(refusal @ Refusal::PortTaken(..))) => {
                (409, status(409, "Conflict", &refusal.to_string(), &json!({})))
            }
            Ok(Err(refusal)) => refused(&refusal.to_string()),
            Err(error) => (500, status(500, "InternalError", &error.to_string(), &json!({}))),
        }
    }

    async fn shown_settled(&self) -> (u16, Value) {
        let moving = self.settle(Duration::ZERO, || tokio::time::sleep(REST)).await.err().unwrap_or_default();
        (200, json!({"settled": moving.is_empty(), "moving": moving}))
    }

    async fn answer_settle(self, query: Vec<(String, String)>) -> (u16, Value) {
        let patience = match query.as_slice() {
            [] => DEFAULT_PATIENCE,
            [(name, text)] if name == "timeout" => match text.parse::<GoDuration>() {
                Ok(patience) => patience.to_std().min(LONGEST_PATIENCE),
                Err(error) => return refused(&format!("timeout={text}: {error}")),
            },
            _ => return refused("expected no parameter, or timeout=DURATION"),
        };
        let (begun, patience) = (Instant::now(), patience.max(LEAST_PATIENCE));
        match self.settle(patience, || tokio::time::sleep(REST)).await {
            Ok(()) => (200, json!({"settled": true, "took": format!("{:?}", begun.elapsed())})),
            Err(moving) => {
                let message = format!("not settled within {patience:?}: {}", moving.join("; "));
                let details =
                    json!({"causes": moving.iter().map(|what| json!({"message": what})).collect::<Vec<_>>()});
                (504, status(504, "Timeout", &message, &details))
            }
        }
    }
}

impl Extension for Control {
    fn audience(&self, path: &str) -> Option<Audience> {
        match path {
            CLOCK | SETTLE | RESET | FORK | backup_pages::PATH | journal::PATH | deletions::PATH => {
                Some(Audience::Permitted)
            }
            path => self.console()?.audience(path),
        }
    }

    fn sessions(&self) -> Option<&Sessions> {
        self.console()?.sessions()
    }

    fn accepts_session(&self, path: &str) -> bool {
        // The server's own pages accept only credentials.
        self.console().is_some_and(|console| console.accepts_session(path))
    }

    fn answer(&self, request: ExtensionRequest) -> BoxFuture<'static, Option<ExtensionAnswer>> {
        let control = self.clone();
        Box::pin(async move {
            if let Some(why) = guard::foreign(&request.headers).filter(|_| !guard::is_arrival(&request)) {
                return Some(ExtensionAnswer::json(403, &status(403, "Forbidden", why, &json!({}))));
            }
            let (code, document) = match (request.method.clone(), request.path.as_str()) {
                (Method::GET | Method::HEAD, CLOCK) => control.shown_clock(),
                (Method::POST, CLOCK) => control.set_clock(&request.query),
                (Method::GET | Method::HEAD, SETTLE) => control.shown_settled().await,
                (Method::POST, SETTLE) => control.answer_settle(request.query).await,
                (Method::POST, backup_pages::PATH) => {
                    backup_pages::page(control.0.registry.get().cloned(), request.query).await
                }
                (Method::POST, RESET) => control.answer_whole(request.method, RESET, request.query).await,
                (Method::GET | Method::HEAD | Method::POST | Method::DELETE, FORK) => {
                    control.answer_whole(request.method, FORK, request.query).await
                }
                (Method::GET, deletions::PATH) => control.0.deletions.answer(&request.query),
                (Method::GET, journal::PATH) => {
                    let journal = control.0.journal.as_ref()?;
                    return Some(journal::answer(journal, &request.user.name, &request.query).await);
                }
                (_, CLOCK | SETTLE | RESET | FORK | backup_pages::PATH | journal::PATH | deletions::PATH) => {
                    not_allowed()
                }
                _ => return control.console()?.answer(request).await,
            };
            Some(ExtensionAnswer::json(code, &document))
        })
    }
}

/// Returns the port that a request names for a fork; 0 if it names none.
fn wanted_port(query: &[(String, String)]) -> Result<u16, Refusal> {
    match query {
        [] => Ok(0),
        [(name, port)] if name == "port" => port.parse().map_err(|_| Refusal::NoPort(port.clone())),
        _ => Err(Refusal::Parameters),
    }
}

fn shown_fork(fork: &Fork) -> Value {
    json!({"name": fork.name, "server": fork.server, "kubeconfig": fork.kubeconfig})
}
