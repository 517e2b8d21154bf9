//! AWS EC2, using the Query API (`DescribeInstances`). Lookups that arrive close together are combined, and after a throttled
//! answer no request is sent for a while.

mod credentials;
mod escape;
pub(crate) mod s3;
mod signature;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use gc_collectors::engine::MachineState;
use http::{Method, Request, Uri};
use http_body_util::Full;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::cloud::client::{Https, allowed, fetch, https, without_default_port};
use crate::cloud::{ANSWER_TIMEOUT, Machine, Provider, ProviderError, shortened};
pub use credentials::Credentials;
use credentials::Source;
use escape::escape;
use signature::Signing;

/// Maximum number of lookups that are combined into one call (values of one filter).
const BATCH: usize = 200;
/// Time during which lookups are collected into one call.
const COLLECTING: Duration = Duration::from_millis(50);
/// Maximum number of queued lookups; further ones wait for room.
const QUEUED: usize = 256;
/// Maximum number of pages read per answer.
const PAGES: usize = 20;
/// First and maximum pause after a throttled answer.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Maximum size of a page, bytes.
const MAX_PAGE_BYTES: usize = 16 << 20;
const VERSION: &str = "2016-11-15";
const CONTENT_TYPE: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// Reports whether a byte may be part of the name of a region, or of any other name that becomes part of a host name.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// Reports whether this can be the name of a region.
fn is_region(region: &str) -> bool {
    (1..=32).contains(&region.len()) && region.bytes().all(is_plain)
}

/// Returns the public URL of a service in a region, without a path.
fn public_endpoint(service: &str, region: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://{service}.{region}.{domain}")
}

/// Reason why EC2 gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ec2Error {
    /// Not an allowed URL.
    #[error(
        "EC2 endpoint {0:?}: expected https://HOST; http:// is only allowed for this machine (127.0.0.1, ::1)"
    )]
    Endpoint(String),
    /// Not the name of a region.
    #[error("{0:?} is no name of an AWS region; expected one such as eu-central-1")]
    Region(String),
    /// The certificate authorities of this machine cannot be used.
    #[error("EC2: {0}")]
    Authorities(String),
    /// There are no credentials, or they are not supported.
    #[error("EC2: no credentials: {0}")]
    Credentials(String),
    /// The node is not an EC2 instance.
    #[error("EC2: providerID {0:?} names no instance; expected aws:///ZONE/i-…")]
    ProviderId(String),
    /// The node is an instance of another region.
    #[error("EC2: providerID {id:?} is of another region than {region}")]
    OtherRegion {
        /// The node's provider ID.
        id: String,
        /// The region of this client.
        region: String,
    },
    /// No instance has this ID in this region, and the ID does not show its region.
    #[error(
        "EC2: there is no instance {id:?} in {region}, but it may be one of another region: its providerID names no zone"
    )]
    NoZone {
        /// The instance.
        id: String,
        /// The region of this client.
        region: String,
    },
    /// No instance has this private DNS name, and it is not a name that EC2 gives in this region.
    #[error(
        "EC2: the node has no providerID, and its name {name:?} is no private DNS name of an instance in {region}"
    )]
    NoName {
        /// The node.
        name: String,
        /// The region of this client.
        region: String,
    },
    /// There was no connection, it broke, or the answer was too large.
    #[error("EC2: {0}")]
    Connection(String),
    /// There was no answer in time.
    #[error("EC2: no answer within {0:?}")]
    Timeout(Duration),
    /// There were too many requests, and none is sent for a while.
    #[error("EC2: throttled ({0}); asked again later")]
    Throttled(String),
    /// Failed in another way.
    #[error("EC2: it answered {status}: {code}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// AWS' error code.
        code: String,
        /// The beginning of its message.
        message: String,
    },
    /// Not an answer to the request.
    #[error("EC2: the answer is malformed: {0}")]
    Malformed(String),
    /// The client has ended.
    #[error("EC2: no longer asked")]
    Ended,
}

/// Connection settings of EC2.
#[derive(Clone, Debug)]
pub struct Ec2Options {
    /// Region of the endpoint.
    pub region: String,
    /// URL of the endpoint; `None` for the region's public one.
    pub endpoint: Option<String>,
    /// Signing keys; `None` for those that the environment names or the instance has.
    pub credentials: Option<Credentials>,
    /// Timeout for an answer.
    pub timeout: Duration,
}

impl Ec2Options {
    /// Creates the default settings for a region.
    #[must_use]
    pub fn new(region: &str) -> Self {
        Self { region: region.to_owned(), endpoint: None, credentials: None, timeout: ANSWER_TIMEOUT }
    }
}

/// The identifier by which an instance is looked up: its ID, or its private DNS name, which is the node's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    Id(String),
    Name(String),
}

/// A lookup, and the meaning of finding no instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) question: Question,
    pub(crate) absence: Result<(), Ec2Error>,
}

struct WaitingLookup {
    lookup: Lookup,
    answer: oneshot::Sender<Result<MachineState, Ec2Error>>,
}

/// A client of EC2.
pub struct Ec2 {
    region: String,
    /// `None` before the first lookup.
    worker: Mutex<Option<Worker>>,
    questions: OnceLock<mpsc::Sender<WaitingLookup>>,
}

impl fmt::Debug for Ec2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ec2").field("region", &self.region).finish_non_exhaustive()
    }
}

/// The task that sends requests.
struct Worker {
    client: Https,
    options: Ec2Options,
    url: Uri,
    credentials: Source,
    /// After throttling, the time until which no request is sent, and the next pause.
    paused: Option<(Instant, Duration)>,
}

impl Ec2 {
    /// Returns a client. Sends nothing by itself.
    pub fn new(options: Ec2Options) -> Result<Self, Ec2Error> {
        let region = &options.region;
        if !is_region(region) {
            return Err(Ec2Error::Region(region.clone()));
        }
        let text = options.endpoint.clone().unwrap_or_else(|| public_endpoint("ec2", region) + "/");
        let wrong = || Ec2Error::Endpoint(text.clone());
        let url: Uri = text.parse().map_err(|_| wrong())?;
        if !allowed(&url) {
            return Err(wrong());
        }
        let url = without_default_port(url).ok_or_else(wrong)?;
        let client =
            https(None, options.timeout, text.starts_with("https")).map_err(Ec2Error::Authorities)?;
        let region = options.region.clone();
        let credentials = Source::new(options.credentials.clone(), &region, options.timeout)
            .map_err(Ec2Error::Credentials)?;
        let worker = Worker { client, options, url, credentials, paused: None };
        Ok(Self { region, worker: Mutex::new(Some(worker)), questions: OnceLock::new() })
    }

    /// Returns the queue of lookups. The first lookup starts the task that sends them.
    fn questions(&self) -> &mpsc::Sender<WaitingLookup> {
        self.questions.get_or_init(|| {
            let (questions, waiting) = mpsc::channel(QUEUED);
            if let Some(worker) = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take() {
                tokio::spawn(worker.run(waiting));
            }
            questions
        })
    }
}

/// Returns the lookup for a machine. An ID of another region would never be found there.
pub(crate) fn question(machine: &Machine, region: &str) -> Result<Lookup, Ec2Error> {
    let id = &machine.provider_id;
    if id.is_empty() {
        let name = machine.node.clone();
        let absence = if is_private_name(&name, region) {
            Ok(())
        } else {
            Err(Ec2Error::NoName { name: name.clone(), region: region.to_owned() })
        };
        return Ok(Lookup { question: Question::Name(name), absence });
    }
    let malformed = || Ec2Error::ProviderId(id.clone());
    let path = id.strip_prefix("aws://").ok_or_else(malformed)?;
    let (before, instance) = path.rsplit_once('/').ok_or_else(malformed)?;
    let digits = instance.strip_prefix("i-").ok_or_else(malformed)?;
    if digits.is_empty() || digits.len() > 17 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(malformed());
    }
    // EC2 writes IDs in lower case, and returns them that way.
    let instance = instance.to_ascii_lowercase();
    let zone = before.rsplit('/').next().unwrap_or_default();
    let absence = match zone.strip_prefix(region) {
        _ if zone.is_empty() => Err(Ec2Error::NoZone { id: instance.clone(), region: region.to_owned() }),
        // `us-east-1a` and `us-east-1-bos-1a` belong to us-east-1, but `us-east-10a` does not.
        Some(rest) if !rest.starts_with(|next: char| next.is_ascii_digit()) => Ok(()),
        _ => return Err(Ec2Error::OtherRegion { id: id.clone(), region: region.to_owned() }),
    };
    Ok(Lookup { question: Question::Id(instance), absence })
}

/// Reports whether EC2 gives private DNS names like this to instances in this region: `ip-10-0-0-1` or the instance ID, in the
/// region's domain. An instance with such a name no longer exists if it is not found; any other name may belong to one that exists.
fn is_private_name(name: &str, region: &str) -> bool {
    let Some((host, domain)) = name.split_once('.') else { return false };
    let of_region = match region {
        "us-east-1" => domain == "ec2.internal",
        _ => domain.strip_prefix(region) == Some(".compute.internal"),
    };
    let is_address = host.strip_prefix("ip-").is_some_and(|address| {
        address.split('-').filter(|part| part.parse::<u8>().is_ok()).count() == 4
            && address.split('-').count() == 4
    });
    let is_id = host.strip_prefix("i-").is_some_and(|digits| {
        (8..=17).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    of_region && (is_address || is_id)
}

impl Provider for Ec2 {
    fn look_up(&self, machine: Machine) -> BoxFuture<'_, Result<MachineState, ProviderError>> {
        Box::pin(async move {
            let lookup = question(&machine, &self.region)?;
            let (answer, answered) = oneshot::channel();
            self.questions().send(WaitingLookup { lookup, answer }).await.map_err(|_| Ec2Error::Ended)?;
            Ok(answered.await.unwrap_or(Err(Ec2Error::Ended))?)
        })
    }
}

impl Worker {
    async fn run(mut self, mut waiting: mpsc::Receiver<WaitingLookup>) {
        while let Some(first) = waiting.recv().await {
            tokio::time::sleep(COLLECTING).await;
            let mut batch = vec![first];
            while batch.len() < BATCH
                && let Ok(next) = waiting.try_recv()
            {
                batch.push(next);
            }
            let questions = batch.iter().map(|waiting| waiting.lookup.question.clone()).collect();
            let limit = self.options.timeout;
            let answers = match tokio::time::timeout(limit, self.ask(questions)).await {
                Ok(answers) => answers,
                Err(_) => Err(Ec2Error::Timeout(limit)),
            };
            for WaitingLookup { lookup: Lookup { question, absence }, answer } in batch {
                let found = answers.as_ref().map_err(Clone::clone).and_then(|found| {
                    // An instance that is missing from a complete answer does not exist, if it would be found here.
                    found.get(&question).copied().map_or_else(|| absence.map(|()| MachineState::Absent), Ok)
                });
                // The caller may have given up.
                let _ = answer.send(found);
            }
        }
    }

    async fn ask(&mut self, questions: Vec<Question>) -> Result<BTreeMap<Question, MachineState>, Ec2Error> {
        if let Some((until, _)) = self.paused
            && Instant::now() < until
        {
            return Err(Ec2Error::Throttled("paused".to_owned()));
        }
        let credentials = self.credentials.get().await.map_err(Ec2Error::Credentials)?;
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for question in questions {
            match question {
                Question::Id(id) => ids.push(id),
                Question::Name(name) => names.push(name),
            }
        }
        let mut found = BTreeMap::new();
        for (filter, values) in [("instance-id", ids), ("private-dns-name", names)] {
            if values.is_empty() {
                continue;
            }
            let answer = self.describe(&credentials, filter, &values).await;
            if let Err(Ec2Error::Throttled(_)) = &answer {
                let pause = self.paused.map_or(PAUSES.0, |(_, last)| (last * 2).min(PAUSES.1));
                self.paused = Some((Instant::now() + pause, pause));
            }
            for Instance { id, state, name } in answer? {
                let state = machine_state(&id, &state.name)?;
                if let Some(name) = name {
                    note(&mut found, Question::Name(name), state);
                }
                note(&mut found, Question::Id(id), state);
            }
        }
        self.paused = None;
        Ok(found)
    }

    /// Returns all instances that match the filter.
    async fn describe(
        &self,
        credentials: &Credentials,
        filter: &str,
        values: &[String],
    ) -> Result<Vec<Instance>, Ec2Error> {
        let mut form =
            format!("Action=DescribeInstances&Version={VERSION}&MaxResults=1000&Filter.1.Name={filter}");
        for (number, value) in values.iter().enumerate() {
            let _ = write!(form, "&Filter.1.Value.{}={}", number + 1, escape(value)); // cannot fail
        }
        let (mut instances, mut token) = (Vec::new(), None::<String>);
        for _ in 0..PAGES {
            let page = match &token {
                Some(token) => format!("{form}&NextToken={}", escape(token)),
                None => form.clone(),
            };
            let page = read(&self.call(credentials, page).await?)?;
            instances.extend(page.reservations.items.into_iter().flat_map(|held| held.instances.items));
            token = page.next.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(instances);
            }
        }
        Err(Ec2Error::Malformed(format!("it has more than {PAGES} pages")))
    }

    async fn call(&self, credentials: &Credentials, form: String) -> Result<Bytes, Ec2Error> {
        let host = self.url.authority().map_or("", http::uri::Authority::as_str);
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers = vec![("content-type", CONTENT_TYPE), ("host", host), ("x-amz-date", time.as_str())];
        if let Some(token) = &credentials.session_token {
            headers.push(("x-amz-security-token", token));
        }
        let signing = Signing {
            method: "POST",
            path: "/",
            query: "",
            headers: &headers,
            body: form.as_bytes(),
            region: &self.options.region,
            service: "ec2",
            time: &time,
        };
        let authorization = signing.authorization(credentials);
        let mut request = Request::builder().method(Method::POST).uri(self.url.clone());
        for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
            request = request.header(*name, *value);
        }
        let request = request
            .header("authorization", authorization)
            .body(Full::new(Bytes::from(form.clone())))
            .map_err(|error| Ec2Error::Connection(error.to_string()))?;
        let (status, body) = fetch(&self.client, request, MAX_PAGE_BYTES)
            .await
            .map_err(|error| Ec2Error::Connection(error.to_string()))?;
        if status == 200 { Ok(body) } else { Err(refusal(status, &body)) }
    }
}

/// Of two instances with one name, the existing one counts.
fn note(found: &mut BTreeMap<Question, MachineState>, question: Question, state: MachineState) {
    let known = found.entry(question).or_insert(state);
    if *known == MachineState::Absent {
        *known = state;
    }
}

/// Like upstream's provider, treats a stopped instance as shut down, and a terminated one as absent.
pub(crate) fn machine_state(id: &str, name: &str) -> Result<MachineState, Ec2Error> {
    match name {
        "pending" | "running" | "shutting-down" | "stopping" => Ok(MachineState::Running),
        "stopped" => Ok(MachineState::Shutdown),
        "terminated" => Ok(MachineState::Absent),
        other => Err(Ec2Error::Malformed(format!("instance {id} is in state {other:?}"))),
    }
}

#[derive(Deserialize)]
pub(crate) struct Page {
    #[serde(rename = "reservationSet")]
    pub(crate) reservations: Set<Reservation>,
    #[serde(rename = "nextToken")]
    pub(crate) next: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Set<T> {
    #[serde(rename = "item", default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

#[derive(Deserialize)]
pub(crate) struct Reservation {
    #[serde(rename = "instancesSet")]
    pub(crate) instances: Set<Instance>,
}

#[derive(Deserialize)]
pub(crate) struct Instance {
    #[serde(rename = "instanceId")]
    pub(crate) id: String,
    #[serde(rename = "instanceState")]
    pub(crate) state: InstanceState,
    #[serde(rename = "privateDnsName")]
    pub(crate) name: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct InstanceState {
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(rename = "Errors")]
    errors: RefusalErrors,
}

#[derive(Deserialize)]
struct RefusalErrors {
    #[serde(rename = "Error")]
    error: RefusalError,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RefusalError {
    code: String,
    message: String,
}

fn text(body: &[u8]) -> Result<&str, Ec2Error> {
    std::str::from_utf8(body).map_err(|error| Ec2Error::Malformed(error.to_string()))
}

pub(crate) fn read(body: &[u8]) -> Result<Page, Ec2Error> {
    quick_xml::de::from_str(text(body)?).map_err(|error| Ec2Error::Malformed(error.to_string()))
}

pub(crate) fn refusal(status: u16, body: &[u8]) -> Ec2Error {
    let said = text(body).ok().and_then(|text| quick_xml::de::from_str::<Refusal>(text).ok());
    let (code, message) = match said {
        Some(Refusal { errors: RefusalErrors { error } }) => {
            (shortened(&error.code), shortened(&error.message))
        }
        None => (String::new(), shortened(&String::from_utf8_lossy(body))),
    };
    match code.as_str() {
        "RequestLimitExceeded" | "Throttling" | "ThrottlingException" => Ec2Error::Throttled(code),
        _ if status == 429 => Ec2Error::Throttled(format!("status {status}")),
        _ => Ec2Error::Refused { status, code, message },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn provider_ids_name_instances_of_the_region() {
        let region = "eu-central-1";
        let of =
            |node: &str, id: &str| question(&Machine { node: node.into(), provider_id: id.into() }, region);
        let malformed = |id: &str| Err(Ec2Error::ProviderId(id.into()));
        let by_id = |id: &str, zoned: bool| {
            let unknown = Ec2Error::NoZone { id: id.into(), region: region.into() };
            Ok(Lookup {
                question: Question::Id(id.into()),
                absence: if zoned { Ok(()) } else { Err(unknown) },
            })
        };
        let elsewhere = |id: &str| Err(Ec2Error::OtherRegion { id: id.into(), region: region.into() });
        for (id, expected) in [
            ("aws:///eu-central-1a/i-0123456789abcdef0", by_id("i-0123456789abcdef0", true)),
            ("aws:///eu-central-1a/i-0123456789ABCDEF0", by_id("i-0123456789abcdef0", true)),
            ("aws:///eu-central-1-wl1-ber-wlz-1/i-12345678", by_id("i-12345678", true)),
            ("aws:////i-12345678", by_id("i-12345678", false)),
            ("aws:///i-12345678", by_id("i-12345678", false)),
            ("gce://p/z/i-1", malformed("gce://p/z/i-1")),
            ("aws:///eu-central-1a/fargate-ip-10", malformed("aws:///eu-central-1a/fargate-ip-10")),
            ("aws:///eu-central-1a/i-", malformed("aws:///eu-central-1a/i-")),
            ("aws:///eu-central-1a/i-1&x=y", malformed("aws:///eu-central-1a/i-1&x=y")),
            ("aws:///us-east-1a/i-12345678", elsewhere("aws:///us-east-1a/i-12345678")),
            ("aws:///eu-central-12a/i-12345678", elsewhere("aws:///eu-central-12a/i-12345678")),
        ] {
            assert_eq!(of("ip-10-0-0-1", id), expected, "{id}");
        }
        // Without an ID, only a name that EC2 itself gives proves anything.
        for (name, region, is_proof) in [
            ("ip-10-0-0-1.eu-central-1.compute.internal", region, true),
            ("i-0123456789abcdef0.eu-central-1.compute.internal", region, true),
            ("ip-10-0-0-1.ec2.internal", "us-east-1", true),
            ("ip-10-0-0-1.ec2.internal", region, false),
            ("ip-10-0-0-1.eu-west-1.compute.internal", region, false),
            ("ip-10-0-0-1", region, false),
            ("ip-10-0-0.eu-central-1.compute.internal", region, false),
            ("worker-1.eu-central-1.compute.internal", region, false),
            ("worker-1", region, false),
        ] {
            let lookup =
                question(&Machine { node: name.into(), provider_id: String::new() }, region).unwrap();
            assert_eq!(lookup.question, Question::Name(name.into()));
            assert_eq!(lookup.absence.is_ok(), is_proof, "{name} in {region}");
        }
    }

    #[test]
    fn answers_are_read_strictly() {
        let page = "<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>\
            <reservationSet><item><reservationId>r-1</reservationId><instancesSet><item><instanceId>i-1</instanceId>\
            <instanceState><code>80</code><name>stopped</name></instanceState><privateDnsName>a&amp;b</privateDnsName>\
            </item></instancesSet></item></reservationSet><nextToken>t</nextToken></DescribeInstancesResponse>";
        let read_page = read(page.as_bytes()).unwrap();
        let instance = &read_page.reservations.items[0].instances.items[0];
        assert_eq!((instance.id.as_str(), instance.state.name.as_str()), ("i-1", "stopped"));
        assert_eq!((instance.name.as_deref(), read_page.next.as_deref()), (Some("a&b"), Some("t")));
        let empty =
            read(b"<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>").unwrap();
        assert!(empty.reservations.items.is_empty() && empty.next.is_none());
        for broken in
            ["", "{}", "<html><body>hello</body></html>", "<DescribeInstancesResponse/>", &page[..200]]
        {
            assert!(read(broken.as_bytes()).is_err(), "{broken}");
        }
        assert!(machine_state("i-1", "dreaming").is_err());
    }

    #[test]
    fn throttling_is_distinguished_from_other_refusals() {
        let body = |code: &str| {
            format!(
                "<Response><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors></Response>"
            )
        };
        let refused = |status, code: &str, message: &str| Ec2Error::Refused {
            status,
            code: code.to_owned(),
            message: message.to_owned(),
        };
        for (status, body, expected) in [
            (503, body("RequestLimitExceeded"), Ec2Error::Throttled("RequestLimitExceeded".into())),
            (400, body("Throttling"), Ec2Error::Throttled("Throttling".into())),
            (429, String::new(), Ec2Error::Throttled("status 429".into())),
            (403, body("UnauthorizedOperation"), refused(403, "UnauthorizedOperation", "m")),
            (500, "<html>".into(), refused(500, "", "<html>")),
        ] {
            assert_eq!(refusal(status, body.as_bytes()), expected);
        }
    }
}
