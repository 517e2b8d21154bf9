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
/// Maximum number of tries to send a notice.
const TRIES: u32 = 5;
/// Time before the second try; doubled with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The type of these events.
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
    /// The webhook, if there is one.
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

/// Sends what an observer sees of notices.
#[derive(Clone, Debug)]
pub struct NoticeSender {
    queue: mpsc::Sender<Value>,
    table: ResourceTable,
    numbered: Arc<AtomicU64>,
    started: Timestamp,
}

impl NoticeSender {
    /// `table` says what the objects are. The future sends until every clone of this has been dropped.
    pub fn new(
        webhook: Webhook,
        table: ResourceTable,
        started: Timestamp,
    ) -> (Self, impl Future<Output = ()>) {
        let (queue, notices) = mpsc::channel(QUEUED_NOTICES);
        (Self { queue, table, numbered: Arc::default(), started }, send(webhook, notices))
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

/// A notice as a structured CloudEvent.
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

async fn send(webhook: Webhook, mut notices: mpsc::Receiver<Value>) {
    while let Some(event) = notices.recv().await {
        let mut pause = FIRST_RETRY;
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
