//! Leader election at work: the Lease over the API, and who may act until when.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gc_kube::ApiClient;
use gc_kube::connection::{Answer, RequestError};
use gc_kube::election::{After, Ask, Election, Record, Reply, Round};
use gc_kube::requests::ObjectAnswer;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::LeaseName;
use super::control::{Control, PAGES_ADDRESS, PAGES_AUTHORITY};
use crate::preflight::ForbiddenRequest;

/// Jitter: candidates read the Lease up to this much later than the retry period says.
const JITTER: f64 = 1.2;

/// Settings of the election, named as upstream's flags.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The Lease.
    pub lease: LeaseName,
    /// Time after which another replica may take the Lease, from its last renewal.
    pub lease_duration: Duration,
    /// Time within which the leader must renew the Lease, or step down.
    pub renew_deadline: Duration,
    /// Time between two reads or renewals of the Lease.
    pub retry_period: Duration,
}

impl LeaseOptions {
    /// The rules of Kubernetes' own controllers.
    pub fn check(&self) -> Result<(), String> {
        if self.lease_duration <= self.renew_deadline {
            return Err(
                "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline".into()
            );
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            return Err("--leader-elect-renew-deadline must be longer than 1.2 times \
                        --leader-elect-retry-period"
                .into());
        }
        if self.lease_duration < Duration::from_secs(1) || self.retry_period.is_zero() {
            return Err(
                "--leader-elect-lease-duration must be at least 1s, and the others more than 0".into()
            );
        }
        Ok(())
    }
}

/// Right of this process to act. Shared by the election and the orders on the Lease, which set it, and everything
/// that asks.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: Arc<Mutex<State>>,
    held: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Until when we lead, if we do.
    until: Option<Instant>,
    /// An operator has stopped everything.
    paused: bool,
}

impl State {
    fn is_held(&self) -> bool {
        self.until.is_none() || self.paused
    }
}

impl Leadership {
    /// No replica leads yet.
    #[must_use]
    pub fn none() -> Self {
        Self { state: Arc::default(), held: watch::Sender::new(true) }
    }

    /// Without an election: always.
    #[must_use]
    pub fn always() -> Self {
        // Far beyond the life of a process, and far within what a clock can hold.
        let until = Some(Instant::now() + Duration::from_hours(876_000));
        let state = Arc::new(Mutex::new(State { until, paused: false }));
        Self { state, held: watch::Sender::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let is_held = state.is_held();
        self.held.send_if_modified(|held| std::mem::replace(held, is_held) != is_held);
    }

    /// Reports whether a request that changes something may go now. A process that was stopped for a while finds
    /// here that its time is over, before it finds out anything else.
    #[must_use]
    pub fn may_act(&self) -> bool {
        let state = self.lock();
        !state.paused && state.until.is_some_and(|until| Instant::now() < until)
    }

    /// Reports whether we lead, paused or not.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.lock().until.is_some_and(|until| Instant::now() < until)
    }

    /// Reports whether our time is over and the process has not reacted yet.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.lock().until.is_some_and(|until| Instant::now() >= until)
    }

    /// True while the collector is to hold its effects.
    #[must_use]
    pub fn held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    /// Stops or resumes by an operator's order.
    pub fn pause(&self, paused: bool) {
        self.change(|state| state.paused = paused);
    }

    fn lead_until(&self, until: Instant) {
        self.change(|state| state.until = Some(until));
    }

    fn stop(&self) {
        self.change(|state| state.until = None);
    }
}

/// Why the election ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The Lease could not be renewed in time.
    #[error("leader election lost: lease {lease} was not renewed within {} s ({why})", .deadline.as_secs_f64())]
    NotRenewed {
        /// `namespace/name`.
        lease: String,
        /// The renew deadline.
        deadline: Duration,
        /// The last failure.
        why: String,
    },
    /// Another candidate holds it.
    #[error("leader election lost: lease {lease} is held by {holder}")]
    Taken {
        /// `namespace/name`.
        lease: String,
        /// Identity of the holder.
        holder: String,
    },
    /// The server forbids it.
    #[error(transparent)]
    Forbidden(#[from] ForbiddenRequest),
    /// The server does not accept our credentials.
    #[error("the server does not accept the credentials (401 Unauthorized): {0}")]
    Unauthorized(String),
}

/// One candidate.
pub struct Candidate {
    client: ApiClient,
    options: LeaseOptions,
    election: Election,
    /// The beginning that the election counts from.
    origin: Instant,
    control: Control,
    leadership: Leadership,
    /// Metadata of the Lease as we last read or wrote it: its version, and what others have put there.
    metadata: Option<Value>,
    /// Address of our pages, and the authority of their certificate.
    shown: ShownPages,
}

/// Annotations of the leader about its pages on the Lease.
#[derive(Clone, Debug, Default)]
pub struct ShownPages {
    /// Authority that clients verify the certificate with.
    pub authority: Option<String>,
    /// Where they are, if they are for this machine alone.
    pub address: Option<SocketAddr>,
}

impl Candidate {
    /// A candidate of this identity, which does not lead yet.
    pub fn new(
        client: ApiClient,
        options: LeaseOptions,
        identity: String,
        control: Control,
        leadership: Leadership,
    ) -> Self {
        let election = Election::new(identity, options.lease_duration, options.renew_deadline);
        let origin = Instant::now();
        Self {
            client,
            options,
            election,
            origin,
            control,
            leadership,
            metadata: None,
            shown: ShownPages::default(),
        }
    }

    /// Writes onto the Lease where our pages are and what clients verify their certificate with.
    #[must_use]
    pub fn showing(self, shown: ShownPages) -> Self {
        Self { shown, ..self }
    }

    fn title(&self) -> String {
        format!("{}/{}", self.options.lease.namespace, self.options.lease.name)
    }

    /// Waits for the Lease. Returns when it is ours, or with what makes waiting useless.
    pub async fn acquire(&mut self) -> Result<(), LeaseError> {
        let mut reported = String::new();
        loop {
            match self.round().await? {
                Round::Holds => {
                    tracing::info!(lease = %self.title(), "leading");
                    return Ok(());
                }
                Round::HeldByOther if reported != self.election.holder() => {
                    self.election.holder().clone_into(&mut reported);
                    tracing::info!(lease = %self.title(), holder = %reported, "standing by with a complete graph");
                }
                Round::HeldByOther => {}
                Round::Failed(why) => {
                    tracing::warn!(lease = %self.title(), why, "the lease cannot be acquired yet");
                }
            }
            tokio::time::sleep(self.options.retry_period.mul_f64(spread())).await;
        }
    }

    /// Renews until the Lease is lost. When this returns, nothing may be sent any more.
    pub async fn keep(&mut self) -> LeaseError {
        let mut why = String::from("no attempt was made in time");
        loop {
            tokio::time::sleep(self.options.retry_period).await;
            let left = self.election.acts_until().unwrap_or_default().saturating_sub(self.origin.elapsed());
            let round = tokio::time::timeout(left, self.round()).await;
            let is_overdue = self.election.is_overdue(self.origin.elapsed());
            let lost = match round {
                Ok(Ok(Round::HeldByOther)) => {
                    let holder = self.election.holder().to_owned();
                    LeaseError::Taken { lease: self.title(), holder }
                }
                Ok(Ok(Round::Holds)) if !is_overdue => continue,
                Ok(Ok(Round::Failed(failure))) if !is_overdue => {
                    tracing::warn!(lease = %self.title(), why = %failure, "the lease was not renewed; trying again");
                    why = failure;
                    continue;
                }
                // Refused credentials may be good again a moment later: they do not end a lease that is ours.
                Ok(Err(error)) if !is_overdue => {
                    tracing::warn!(lease = %self.title(), %error, "the lease was not renewed; trying again");
                    why = error.to_string();
                    continue;
                }
                _ => {
                    let deadline = self.options.renew_deadline;
                    LeaseError::NotRenewed { lease: self.title(), deadline, why }
                }
            };
            self.election.stop();
            self.leadership.stop();
            return lost;
        }
    }

    /// Gives the Lease back, so that a standby need not wait. Nothing is sent after it.
    pub async fn release(mut self) {
        self.leadership.stop();
        let Some(record) = self.election.release(jiff::Timestamp::now()) else { return };
        let Some(metadata) = self.metadata.take() else { return };
        match self.write(&record, Some(&metadata)).await {
            Ok(answer) if answer.head.status.is_success() => {
                tracing::info!(lease = %self.title(), "released");
            }
            Ok(answer) => {
                tracing::warn!(lease = %self.title(), code = answer.head.status.as_u16(), "not released");
            }
            Err(error) => tracing::warn!(lease = %self.title(), %error, "not released"),
        }
    }

    /// One round of requests, as the election wants it, and what it came to.
    async fn round(&mut self) -> Result<Round, LeaseError> {
        let mut ask = self.election.begin(self.origin.elapsed(), jiff::Timestamp::now());
        loop {
            let reply = self.perform(&ask).await?;
            match self.election.answered(reply, self.origin.elapsed(), jiff::Timestamp::now()) {
                After::Ask(next) => ask = next,
                After::Over(round) => {
                    if let (Round::Holds, Some(until)) = (&round, self.election.acts_until()) {
                        self.leadership.lead_until(self.origin + until);
                    }
                    return Ok(round);
                }
            }
        }
    }

    async fn perform(&mut self, ask: &Ask) -> Result<Reply, LeaseError> {
        let (verb, sent) = match ask {
            Ask::Read => ("get", self.send(Method::GET, &self.path(true), None).await),
            Ask::Create(record) => ("create", self.write(record, None).await),
            Ask::Replace(record) => match self.metadata.clone() {
                Some(metadata) => ("update", self.write(record, Some(&metadata)).await),
                None => return Ok(Reply::Failed("the lease has not been read".into())),
            },
        };
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => return Ok(Reply::Failed(error.to_string())),
        };
        let answered = self.options.lease.answered(&answer);
        match (answer.head.status, ask) {
            (_, Ask::Read) if answered == ObjectAnswer::Absent => return Ok(Reply::Missing),
            // Another candidate was faster: what it wrote is seen the next time.
            (StatusCode::CONFLICT, Ask::Create(_) | Ask::Replace(_)) => {
                return Ok(Reply::Failed("a conflict".into()));
            }
            (status, _) if status.is_success() => {}
            // A leader keeps trying until its time is over.
            (status, Ask::Replace(_)) if self.election.leads() => {
                return Ok(failed(status, &crate::preflight::message(&answer)));
            }
            _ => return self.refused(verb, &answer),
        }
        let ObjectAnswer::Found(lease) = answered else {
            return Ok(Reply::Failed("the answer is not the lease".into()));
        };
        self.saw(&lease);
        Ok(if *ask == Ask::Read { Reply::Found(Record::of_lease(&lease)) } else { Reply::Written })
    }

    /// Orders that others have written on the Lease stay there, and are obeyed before we act.
    fn saw(&mut self, lease: &Value) {
        let mut metadata = lease["metadata"].clone();
        if let Some(fields) = metadata.as_object_mut() {
            fields.remove("managedFields");
            self.metadata = Some(metadata);
        }
        self.control.saw(lease);
    }

    fn refused(&self, verb: &'static str, answer: &Answer) -> Result<Reply, LeaseError> {
        let message = crate::preflight::message(answer);
        match answer.head.status {
            StatusCode::FORBIDDEN => Err(ForbiddenRequest {
                verbs: vec![verb.into()],
                group: "coordination.k8s.io".into(),
                resource: "leases".into(),
                namespace: self.options.lease.namespace.clone(),
            }
            .into()),
            StatusCode::UNAUTHORIZED => Err(LeaseError::Unauthorized(message)),
            status => Ok(failed(status, &message)),
        }
    }

    fn path(&self, named: bool) -> String {
        let LeaseName { namespace, name } = &self.options.lease;
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        if named { format!("{collection}/{name}") } else { collection }
    }

    /// Creates the Lease, or (with the metadata of the one that is to be replaced) updates it.
    async fn write(&self, record: &Record, metadata: Option<&Value>) -> Result<Answer, RequestError> {
        let LeaseName { namespace, name } = &self.options.lease;
        // A Lease that was deleted, or that a restored backup lacks, comes back with its orders.
        let fresh = || {
            let annotations = self.control.standing().new_annotations();
            json!({"name": name, "namespace": namespace, "annotations": annotations})
        };
        let mut metadata_now = metadata.cloned().unwrap_or_else(fresh);
        let ShownPages { authority, address } = &self.shown;
        let address = address.map(|address| address.to_string());
        for (annotation, value) in [(PAGES_AUTHORITY, authority), (PAGES_ADDRESS, &address)] {
            match value {
                Some(value) => metadata_now["annotations"][annotation] = value.as_str().into(),
                None => {
                    if let Some(annotations) = metadata_now["annotations"].as_object_mut() {
                        annotations.remove(annotation);
                    }
                }
            }
        }
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": metadata_now, "spec": record.spec(),
        });
        let method = if metadata.is_some() { Method::PUT } else { Method::POST };
        self.send(method, &self.path(metadata.is_some()), Some(&lease)).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, RequestError> {
        let limit = (self.options.renew_deadline / 2).max(Duration::from_secs(1));
        let answer = self.client.call(crate::preflight::request(method, path, body));
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(RequestError::Timeout(limit)))
    }
}

/// A number in [1, [`JITTER`]).
fn spread() -> f64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let bits = std::collections::hash_map::RandomState::new().build_hasher().finish() >> 40;
    #[allow(clippy::cast_precision_loss)] // 24 bits fit
    let fraction = bits as f64 / f64::from(1_u32 << 24);
    1.0 + fraction * (JITTER - 1.0)
}

/// Returns our identity in the Lease: the host's name and a suffix that no other process has.
#[must_use]
pub fn identity() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("{}_{:016x}{:016x}", host(), random(), random())
}

/// The name of this host.
#[must_use]
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn failed(status: StatusCode, message: &str) -> Reply {
    Reply::Failed(format!("{}: {message}", status.as_u16()))
}
