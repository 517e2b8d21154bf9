//! Leader election in practice: the Lease over the API, and the time until which each replica may act.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gc_kube::ApiClient;
use gc_kube::connection::{Answer, RequestError};
use gc_kube::election::{After, Ask, Election, Record, Reply, Round, Timing};
use gc_kube::requests::ObjectAnswer;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::LeaseName;
use super::control::{Control, PAGES_ADDRESS, PAGES_AUTHORITY};
use crate::preflight::ForbiddenRequest;

/// Jitter: candidates read the Lease up to this factor later than the retry period.
const JITTER: f64 = 1.2;

/// Settings of the election, named as upstream's flags.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The Lease.
    pub lease: LeaseName,
    /// Durations on a server that is slow.
    pub longest: Timing,
    /// Shortest duration of a lease, on a server that answers quickly. The other durations shrink with it.
    pub shortest: Duration,
}

impl LeaseOptions {
    /// Checks the rules of Kubernetes' own controllers.
    pub fn check(&self) -> Result<(), String> {
        let Timing { lease_duration, renew_deadline, retry_period } = self.longest;
        if lease_duration <= renew_deadline {
            return Err(
                "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline".into()
            );
        }
        if renew_deadline <= retry_period.mul_f64(JITTER) {
            return Err("--leader-elect-renew-deadline must be longer than 1.2 times \
                        --leader-elect-retry-period"
                .into());
        }
        if lease_duration < Duration::from_secs(1) || retry_period.is_zero() {
            return Err(
                "--leader-elect-lease-duration must be at least 1s, and the others more than 0".into()
            );
        }
        if self.shortest < Duration::from_secs(1) {
            return Err("--leader-elect-shortest-lease-duration must be at least 1s".into());
        }
        Ok(())
    }
}

/// Permission of this process to act. Shared by the election and the orders on the Lease, which set it, and everything that asks
/// for it.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: Arc<Mutex<State>>,
    held: watch::Sender<bool>,
    led: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Time until which we lead, if we do.
    until: Option<Instant>,
    /// True if an operator has stopped everything.
    paused: bool,
    /// Duration on the Lease as last seen, in seconds.
    lease_seconds: u64,
}

impl State {
    fn is_held(&self) -> bool {
        self.until.is_none() || self.paused
    }
}

impl Leadership {
    /// Creates a leadership that no replica has yet.
    #[must_use]
    pub fn none() -> Self {
        Self { state: Arc::default(), held: watch::Sender::new(true), led: watch::Sender::new(false) }
    }

    /// Creates a permanent leadership, without an election.
    #[must_use]
    pub fn always() -> Self {
        // Far beyond the life of a process, yet well within the range of a clock.
        let until = Some(Instant::now() + Duration::from_hours(876_000));
        let state = Arc::new(Mutex::new(State { until, ..State::default() }));
        Self { state, held: watch::Sender::new(false), led: watch::Sender::new(true) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let (is_held, leads) = (state.is_held(), state.until.is_some());
        self.held.send_if_modified(|held| std::mem::replace(held, is_held) != is_held);
        self.led.send_if_modified(|led| std::mem::replace(led, leads) != leads);
    }

    /// Reports whether a request that changes something may be sent now. A process that was suspended for a while finds out here
    /// first that its time is over.
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

    /// Reports whether our time is over but the process has not reacted yet.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.lock().until.is_some_and(|until| Instant::now() >= until)
    }

    /// Returns the duration on the Lease as last seen, in seconds; 0 before that.
    #[must_use]
    pub fn lease_seconds(&self) -> u64 {
        self.lock().lease_seconds
    }

    /// Returns a receiver that is true while the collector must hold back its effects.
    #[must_use]
    pub fn held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    /// Returns a receiver that is true while we lead, paused or not.
    #[must_use]
    pub fn led(&self) -> watch::Receiver<bool> {
        self.led.subscribe()
    }

    /// Waits until we lead, paused or not.
    pub async fn acquired(&self) {
        let mut led = self.led.subscribe();
        drop(led.wait_for(|led| *led).await); // we have the sender, so there is no error
    }

    /// Pauses or resumes on an operator's order.
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

/// Reason why the election ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The Lease could not be renewed in time.
    #[error("leader election lost: lease {lease} was not renewed within {} s ({why})", .deadline.as_secs_f64())]
    NotRenewed {
        /// Lease as `namespace/name`.
        lease: String,
        /// Renew deadline.
        deadline: Duration,
        /// Last failure.
        why: String,
    },
    /// Another candidate holds the Lease.
    #[error("leader election lost: lease {lease} is held by {holder}")]
    Taken {
        /// Lease as `namespace/name`.
        lease: String,
        /// Identity of the holder.
        holder: String,
    },
    /// The server forbids access to the Lease.
    #[error(transparent)]
    Forbidden(#[from] ForbiddenRequest),
    /// The server does not accept our credentials.
    #[error("the server does not accept the credentials (401 Unauthorized): {0}")]
    Unauthorized(String),
}

/// One candidate of the election.
pub struct Candidate {
    client: ApiClient,
    options: LeaseOptions,
    election: Election,
    /// Origin of the election's times.
    origin: Instant,
    control: Control,
    leadership: Leadership,
    /// Metadata of the Lease as we last read or wrote it: its version, and annotations of others.
    metadata: Option<Value>,
    /// Address of our pages, and the authority of their certificate.
    shown: ShownPages,
    /// Another Lease with the orders, which is read before we lead.
    orders: Option<(Control, LeaseName)>,
}

/// Annotations of the leader on the Lease that describe its pages.
#[derive(Clone, Debug, Default)]
pub struct ShownPages {
    /// Authority with which clients verify the certificate.
    pub authority: Option<String>,
    /// Address of the pages, if they are only for this machine.
    pub address: Option<SocketAddr>,
}

impl Candidate {
    /// Creates a candidate with this identity, which does not lead yet.
    pub fn new(
        client: ApiClient,
        options: LeaseOptions,
        identity: String,
        control: Control,
        leadership: Leadership,
    ) -> Self {
        let election = Election::new(identity, options.longest, options.shortest);
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
            orders: None,
        }
    }

    /// Reads the orders on this Lease, rather than on that of the election, before it leads.
    #[must_use]
    pub fn following(self, control: Control, lease: LeaseName) -> Self {
        Self { orders: Some((control, lease)), ..self }
    }

    /// Writes the location of our pages, and the authority that verifies their certificate, onto the Lease.
    #[must_use]
    pub fn showing(self, shown: ShownPages) -> Self {
        Self { shown, ..self }
    }

    fn title(&self) -> String {
        format!("{}/{}", self.options.lease.namespace, self.options.lease.name)
    }

    /// Waits for the Lease. Returns when we hold it, or with the error that makes waiting useless.
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
                    tracing::info!(lease = %self.title(), holder = %reported, "standing by");
                }
                Round::HeldByOther => {}
                Round::Failed(why) => {
                    tracing::warn!(lease = %self.title(), why, "the lease cannot be acquired yet");
                }
            }
            let rest = self.election.rest(self.origin.elapsed());
            tokio::time::sleep(rest.mul_f64(spread())).await;
        }
    }

    /// Renews the Lease until it is lost. After this returns, nothing may be sent before [`Candidate::acquire`] succeeds again.
    pub async fn keep(&mut self) -> LeaseError {
        let mut why = String::from("no attempt was made in time");
        loop {
            tokio::time::sleep(self.election.rest(self.origin.elapsed())).await;
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
                // Refused credentials may be accepted again a moment later, so they do not end a Lease that is ours.
                Ok(Err(error)) if !is_overdue => {
                    tracing::warn!(lease = %self.title(), %error, "the lease was not renewed; trying again");
                    why = error.to_string();
                    continue;
                }
                _ => {
                    let deadline = self.election.timing().renew_deadline;
                    LeaseError::NotRenewed { lease: self.title(), deadline, why }
                }
            };
            self.election.stop();
            self.leadership.stop();
            return lost;
        }
    }

    /// Gives the Lease back so that a standby need not wait. Nothing is sent after it.
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

    /// Performs one round of requests for the election, and returns the result.
    async fn round(&mut self) -> Result<Round, LeaseError> {
        let mut ask = self.election.begin(self.origin.elapsed(), jiff::Timestamp::now());
        // A request for a shorter lease shortens our time before it is sent.
        if let Some(until) = self.election.acts_until().filter(|_| self.leadership.leads()) {
            self.leadership.lead_until(self.origin + until);
        }
        loop {
            let reply = self.perform(&ask).await?;
            match self.election.answered(reply, self.origin.elapsed(), jiff::Timestamp::now()) {
                After::Ask(next) => ask = next,
                After::Over(round) => {
                    let seconds = self.election.lease_seconds();
                    self.leadership.change(|state| state.lease_seconds = seconds);
                    if let (Round::Holds, Some(until)) = (&round, self.election.acts_until()) {
                        if let Err(why) = self.read_orders().await {
                            return Ok(Round::Failed(format!("the orders cannot be read: {why:#}")));
                        }
                        self.leadership.lead_until(self.origin + until);
                    }
                    return Ok(round);
                }
            }
        }
    }

    /// Takes in the orders on another Lease, unless we lead already and follow them.
    async fn read_orders(&self) -> anyhow::Result<()> {
        match &self.orders {
            Some((control, lease)) if !self.leadership.leads() => {
                let patience = self.election.timing().patience();
                tokio::time::timeout(patience, control.look(&self.client, lease)).await?
            }
            _ => Ok(()),
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

    /// Takes in the Lease: orders that others have written on it stay there, and we follow them before we act.
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

    /// Creates the Lease, or updates it if the metadata of the existing one is given.
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
        let limit = self.election.timing().patience();
        let answer = self.client.call(crate::preflight::request(method, path, body));
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(RequestError::Timeout(limit)))
    }
}

/// Returns a random number in [1, [`JITTER`]).
fn spread() -> f64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let bits = std::collections::hash_map::RandomState::new().build_hasher().finish() >> 40;
    #[allow(clippy::cast_precision_loss)] // 24 bits fit
    let fraction = bits as f64 / f64::from(1_u32 << 24);
    1.0 + fraction * (JITTER - 1.0)
}

/// Returns our identity in the Lease: the name of the host and a suffix that is unique to this process.
#[must_use]
pub fn identity() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("{}_{:016x}{:016x}", gc_host::host_name(), random(), random())
}

fn failed(status: StatusCode, message: &str) -> Reply {
    Reply::Failed(format!("{}: {message}", status.as_u16()))
}

#[cfg(test)]
mod tests;
