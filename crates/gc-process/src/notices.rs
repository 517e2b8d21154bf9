//! Notices of deletions to a webhook, as CloudEvents.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use gc_collectors::policies::engine::NOTICE;
use gc_external::cloud::{Webhook, WebhookOptions};
use gc_kube::{Observer, ResourceTable};
use gc_types::{Effect, EventRecord, Outcome, Request, Timestamp};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::UsageError;
use crate::outside::positive;

/// Maximum number of notices that wait for the webhook; further ones are dropped and logged.
const QUEUED_NOTICES: usize = 1_000;
/// Maximum number of attempts to send a notice.
const TRIES: u32 = 5;
/// Time before the second attempt; doubled for each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Type of these events.
const EVENT_TYPE: &str = "io.kubegc.retention.notice.v1";

/// Options of the webhook.
#[derive(Clone, Debug, Default, Args)]
pub struct NoticeOptions {
    /// Send the notices of retention policies to this URL as CloudEvents, besides the Events on the objects
    #[arg(long, value_name = "URL")]
    notice_webhook: Option<String>,
    /// Certificate authorities for --notice-webhook [default: those of this machine]
    #[arg(long, value_name = "FILE", requires = "notice_webhook")]
    notice_webhook_ca_file: Option<PathBuf>,
    /// File with the bearer token for --notice-webhook
    #[arg(long, value_name = "FILE", requires = "notice_webhook")]
    notice_webhook_token_file: Option<PathBuf>,
    /// Timeout of each request to --notice-webhook
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive, requires = "notice_webhook")]
    notice_webhook_timeout: Option<Duration>,
}

impl NoticeOptions {
    /// Returns the webhook, if there is one.
    pub fn webhook(&self) -> Result<Option<Webhook>, UsageError> {
        let Some(url) = &self.notice_webhook else { return Ok(None) };
        let options = WebhookOptions {
            url: url.clone(),
            authorities: self.notice_webhook_ca_file.clone(),
            token: self.notice_webhook_token_file.clone(),
            timeout: self.notice_webhook_timeout.unwrap_or(gc_external::cloud::ANSWER_TIMEOUT),
        };
        Webhook::new(options).map(Some).map_err(|error| UsageError::new(format!("--notice-webhook: {error}")))
    }
}

/// Sends the notices that an observer sees.
#[derive(Clone, Debug)]
pub struct NoticeSender {
    queue: mpsc::Sender<Value>,
    table: ResourceTable,
    numbered: Arc<AtomicU64>,
    started: Timestamp,
}

impl NoticeSender {
    /// Creates the sender; `table` names the resources of the objects. The future sends until every clone of the sender has been
    /// dropped.
    pub fn new(
        webhook: Webhook,
        table: ResourceTable,
        started: Timestamp,
    ) -> (Self, impl Future<Output = ()>) {
        let (queue, notices) = mpsc::channel(QUEUED_NOTICES);
        (Self { queue, table, numbered: Arc::default(), started }, send(webhook, notices, FIRST_RETRY))
    }

    fn event(&self, note: &EventRecord) -> Option<Value> {
        let route = self.table.get(note.about.resource)?;
        let number = self.numbered.fetch_add(1, Ordering::Relaxed);
        let object = json!({
            "apiVersion": &*route.api_version, "kind": &*route.info.kind, "namespace": &*note.about.namespace,
            "name": &*note.about.name, "uid": note.uid.to_string(),
        });
        Some(cloud_event(&format!("{}-{number}", self.started.0), &object, &note.message))
    }
}

/// Returns a notice as a structured CloudEvent.
fn cloud_event(id: &str, object: &Value, message: &str) -> Value {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let path = [text("apiVersion"), text("kind"), text("namespace"), text("name")];
    let path: Vec<&str> = path.into_iter().filter(|part| !part.is_empty()).collect();
    json!({
        "specversion": "1.0", "id": id, "source": "/kubegc/retention-policy-controller", "type": EVENT_TYPE,
        "subject": path.join("/"), "datacontenttype": "application/json",
        "data": {"object": object, "message": message},
    })
}

impl Observer for NoticeSender {
    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, _took: Duration) {
        let (Request::RecordEvent(note), Outcome::Applied(_)) = (&effect.request, outcome) else { return };
        if note.reason != NOTICE {
            return;
        }
        let Some(event) = self.event(note) else { return };
        if self.queue.try_send(event).is_err() {
            tracing::warn!(object = %note.about.name, "a notice was not sent: too many wait for the webhook");
        }
    }
}

/// Sends notices until there are no more; a failed attempt is repeated after `first_retry`, doubled each time.
async fn send(webhook: Webhook, mut notices: mpsc::Receiver<Value>, first_retry: Duration) {
    while let Some(event) = notices.recv().await {
        let mut pause = first_retry;
        for attempt in 1..=TRIES {
            match webhook.notify("application/cloudevents+json", event.to_string()).await {
                Ok(()) => break,
                Err(error) if attempt == TRIES => {
                    tracing::warn!(%error, subject = %event["subject"], "a notice was not sent");
                }
                Err(_) => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::Mutex;

    use gc_types::{
        EffectId, Gvr, ObjectKey, Reason, ResourceId, ResourceInfo, Scope, Severity, Uid, Verdict,
    };

    use super::*;

    /// Starts a webhook on loopback; returns it and the ids of the notices that it received. It accepts those that the closure
    /// selects.
    fn webhook(takes: impl Fn(&Value) -> bool + Send + 'static) -> (Webhook, Arc<Mutex<Vec<Value>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/notices", listener.local_addr().unwrap());
        let sent = Arc::<Mutex<Vec<Value>>>::default();
        let noted = Arc::clone(&sent);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(stream);
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or_default() == 0 || line.trim().is_empty() {
                        break;
                    }
                    let line = line.to_lowercase();
                    length = line
                        .strip_prefix("content-length:")
                        .map_or(length, |text| text.trim().parse().unwrap());
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let event: Value = serde_json::from_slice(&body).unwrap();
                let status = if takes(&event) { "200 OK" } else { "503 Service Unavailable" };
                noted.lock().unwrap().push(event["subject"].clone());
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = reader.get_mut().write_all(answer.as_bytes());
            }
        });
        (Webhook::new(WebhookOptions::new(&url)).unwrap(), sent)
    }

    fn table() -> ResourceTable {
        ResourceTable::of([ResourceInfo {
            id: ResourceId(0),
            gvr: Gvr { group: "apps".into(), version: "v1".into(), resource: "deployments".into() },
            kind: "Deployment".into(),
            scope: Scope::Namespaced,
            served_api_versions: vec!["apps/v1".into()],
            watched: true,
            comparable_versions: true,
        }])
    }

    fn note(name: &str, reason: &'static str) -> Effect {
        let about = ObjectKey { resource: ResourceId(0), namespace: "shop".into(), name: name.into() };
        Effect {
            id: EffectId(1),
            request: Request::RecordEvent(EventRecord {
                about,
                uid: Uid::new("u"),
                severity: Severity::Warning,
                reason,
                message: "it will be deleted".to_owned(),
            }),
            reason: Reason { verdict: Verdict::OwnersAbsent, owners: Vec::new(), evidence: Vec::new() },
        }
    }

    fn see(sender: &NoticeSender, effect: &Effect, outcome: &Outcome) {
        sender.finished(effect, outcome, 1, Duration::ZERO);
    }

    /// Only notices that were written as Events are sent, and each has its own id.
    #[tokio::test]
    async fn written_notices_are_sent_as_cloud_events() {
        let (webhook, sent) = webhook(|event| {
            assert_eq!(event["data"]["object"]["apiVersion"], "apps/v1");
            assert_eq!(event["data"]["message"], "it will be deleted");
            true
        });
        let (sender, sending) = NoticeSender::new(webhook, table(), Timestamp(7));
        let first = sender.event(&record(&note("web", NOTICE))).unwrap();
        let second = sender.event(&record(&note("web", NOTICE))).unwrap();
        assert_ne!(first["id"], second["id"]);
        see(&sender, &note("web", NOTICE), &Outcome::Applied(None));
        see(&sender, &note("other", "AnotherReason"), &Outcome::Applied(None));
        see(&sender, &note("refused", NOTICE), &Outcome::Conflict);
        drop(sender);
        sending.await;
        assert_eq!(*sent.lock().unwrap(), ["apps/v1/Deployment/shop/web"]);
    }

    fn record(effect: &Effect) -> EventRecord {
        match &effect.request {
            Request::RecordEvent(record) => record.clone(),
            _ => unreachable!("a note is an Event"),
        }
    }

    /// A notice that is never accepted is tried five times and then delays the next one no longer.
    #[tokio::test]
    async fn a_notice_that_is_refused_is_given_up_after_five_tries() {
        let (webhook, sent) = webhook(|event| event["subject"] != "apps/v1/Deployment/shop/bad");
        let (queue, notices) = mpsc::channel(QUEUED_NOTICES);
        let (sender, _) = NoticeSender::new(self::webhook(|_| true).0, table(), Timestamp(7));
        for name in ["bad", "good"] {
            queue.try_send(sender.event(&record(&note(name, NOTICE))).unwrap()).unwrap();
        }
        drop(queue);
        send(webhook, notices, Duration::from_millis(1)).await;
        let bad = Value::from("apps/v1/Deployment/shop/bad");
        let mut expected = vec![bad; TRIES.try_into().unwrap()];
        expected.push("apps/v1/Deployment/shop/good".into());
        assert_eq!(*sent.lock().unwrap(), expected);
    }

    /// While the webhook does not answer, a bounded number of notices waits, and no deletion does.
    #[tokio::test]
    async fn notices_beyond_the_queue_are_dropped() {
        let (webhook, sent) = webhook(|_| true);
        let (sender, sending) = NoticeSender::new(webhook, table(), Timestamp(7));
        for number in 0..QUEUED_NOTICES + 3 {
            see(&sender, &note(&format!("n{number}"), NOTICE), &Outcome::Applied(None));
        }
        drop(sender);
        sending.await;
        let sent = sent.lock().unwrap();
        let last = format!("apps/v1/Deployment/shop/n{}", QUEUED_NOTICES - 1);
        assert_eq!((sent.len(), sent.last().unwrap().as_str()), (QUEUED_NOTICES, Some(last.as_str())));
    }
}
