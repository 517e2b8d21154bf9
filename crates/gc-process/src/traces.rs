//! OpenTelemetry traces of collectors: a span for each verdict that asks for something, and a child span for its requests.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use bytes::Bytes;
use gc_external::post::DocumentSender;
use gc_kube::{Observer, ResourceTable};
use gc_types::{Effect, Outcome};
use http::{Request, Response, Uri};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Array, Context, KeyValue, StringValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::UsageError;
use crate::journal::entry;

/// Maximum number of spans that wait to be sent; further ones are dropped, which is logged.
const QUEUED_SPANS: usize = 4_096;
/// Maximum number of spans in one request.
const SENT_AT_ONCE: usize = 512;
/// Time between two requests while spans arrive.
const SENT_EVERY: Duration = Duration::from_secs(2);
/// Maximum time for a receiver to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to send the last spans at the end of the process.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Path on which OTLP receivers take traces.
const TRACES_PATH: &str = "/v1/traces";

/// Sends spans to an OTLP receiver over HTTP.
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Starts sending to this receiver; must be called within a runtime. If the address has no path, `/v1/traces` is used.
    pub fn start(endpoint: &str) -> anyhow::Result<Self> {
        let url = traces_url(endpoint)?;
        let sender = DocumentSender::new(TIMEOUT, url.scheme_str() == Some("https"));
        let sender = sender.map_err(|error| anyhow::anyhow!("--otlp-endpoint: {error}"))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(Client { sender, runtime: Handle::current() })
            .with_endpoint(url.to_string())
            .with_timeout(TIMEOUT)
            .build()
            .context("--otlp-endpoint")?;
        let queue = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUED_SPANS)
            .with_max_export_batch_size(SENT_AT_ONCE)
            .with_scheduled_delay(SENT_EVERY)
            .build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(queue).build();
        let resource = Resource::builder()
            .with_service_name("kubegc")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider =
            SdkTracerProvider::builder().with_resource(resource).with_span_processor(processor).build();
        Ok(Self { provider })
    }

    /// Returns an observer that creates spans of one collector's effects.
    #[must_use]
    pub fn observer(&self, controller: &'static str, table: &ResourceTable) -> Arc<dyn Observer> {
        let tracer = self.provider.tracer("kubegc");
        Arc::new(SpanObserver { tracer, controller, table: table.clone() })
    }

    /// Sends the waiting spans for a limited time, and ends. Blocks the thread.
    pub fn end(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(END_TIMEOUT) {
            tracing::warn!("the last traces were not sent: {error}");
        }
    }
}

/// Returns the address at which a receiver takes traces.
fn traces_url(endpoint: &str) -> Result<Uri, UsageError> {
    let refused = |why: &str| UsageError::new(format!("--otlp-endpoint {endpoint:?}: {why}"));
    let url: Uri = endpoint.parse().map_err(|_| refused("not a URL"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.authority().is_none() {
        return Err(refused("expected http://HOST:PORT or https://HOST:PORT"));
    }
    if url.path() != "/" {
        return Ok(url);
    }
    let whole = format!("{}{TRACES_PATH}", endpoint.trim_end_matches('/'));
    whole.parse().map_err(|_| refused("not a URL"))
}

/// Creates spans of one collector's effects.
struct SpanObserver {
    tracer: SdkTracer,
    controller: &'static str,
    table: ResourceTable,
}

impl Observer for SpanObserver {
    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        let end = SystemTime::now();
        let begin = end.checked_sub(took).unwrap_or(end);
        let entry = entry(effect, outcome, round_trips, took, &self.table);
        let mut attributes = attributes(&entry);
        attributes.push(KeyValue::new("kubegc.controller", self.controller));
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let verdict = self.tracer.span_builder(format!("verdict {}", text("verdict")));
        let verdict = verdict.with_start_time(begin).with_attributes(attributes);
        let context = Context::new().with_span(verdict.start_with_context(&self.tracer, &Context::new()));
        if round_trips > 0 {
            self.request(&entry, (begin, end), &context);
        }
        if entry["failure"].is_string() {
            context.span().set_status(Status::error(text("failure")));
        }
        context.span().end_with_timestamp(end);
    }
}

impl SpanObserver {
    /// Creates the span of the requests for a verdict.
    fn request(&self, entry: &Value, (begin, end): (SystemTime, SystemTime), verdict: &Context) {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let attributes =
            ["outcome", "requests", "code"].into_iter().filter_map(|name| attribute(name, &entry[name]));
        let request = self.tracer.span_builder(text("verb")).with_kind(SpanKind::Client);
        let request = request.with_start_time(begin).with_attributes(attributes.collect::<Vec<_>>());
        let request = verdict.with_span(request.start_with_context(&self.tracer, verdict));
        if entry["failure"].is_string() {
            request.span().set_status(Status::error(text("failure")));
        }
        request.span().end_with_timestamp(end);
    }
}

/// Returns the fields of a journal entry as attributes.
fn attributes(entry: &Value) -> Vec<KeyValue> {
    let fields = entry.as_object().into_iter().flatten();
    let of_span = fields.filter(|(name, _)| !["time", "durationSeconds", "effect"].contains(&name.as_str()));
    of_span.filter_map(|(name, value)| attribute(name, value)).collect()
}

/// Returns one attribute; `None` if the field has no value. Objects in a list are written as JSON.
fn attribute(name: &str, value: &Value) -> Option<KeyValue> {
    let name = format!("kubegc.{name}");
    let value: opentelemetry::Value = match value {
        Value::Null | Value::Object(_) => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        Value::String(text) => text.clone().into(),
        Value::Array(items) => {
            let item = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
            let items: Vec<StringValue> = items.iter().map(|one| item(one).into()).collect();
            opentelemetry::Value::Array(Array::String(items))
        }
    };
    Some(KeyValue::new(name, value))
}

/// Sends from the exporting thread, on the runtime of the collectors.
struct Client {
    sender: DocumentSender,
    runtime: Handle,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Client {
    fn send_bytes<'client, 'answer>(&'client self, request: Request<Bytes>) -> Answer<'answer>
    where
        'client: 'answer,
        Self: 'answer,
    {
        let sender = self.sender.clone();
        let sent = self.runtime.spawn(async move { sender.send(request).await });
        Box::pin(async move {
            let (code, body) = sent.await??;
            if code >= 400 {
                return Err(format!("the receiver answered {code}").into());
            }
            Ok(Response::builder().status(code).body(body)?)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    #[test]
    fn an_endpoint_is_a_url_with_the_path_of_traces() {
        for (endpoint, expected) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("https://otel.example/", "https://otel.example/v1/traces"),
            ("https://otel.example/tenant/v1/traces?x=1", "https://otel.example/tenant/v1/traces?x=1"),
        ] {
            assert_eq!(traces_url(endpoint).unwrap().to_string(), expected);
        }
        for endpoint in ["", "localhost:4318", "grpc://localhost:4317", "/v1/traces", "http://"] {
            let refused = traces_url(endpoint).unwrap_err().to_string();
            assert!(refused.contains("--otlp-endpoint"), "{refused}");
        }
    }

    #[test]
    fn an_entry_becomes_attributes() {
        let entry = json!({"time": "t", "verb": "delete", "requests": 2, "owners": [{"kind": "Job"}],
            "evidence": ["a", "b"], "resourceVersion": null});
        let mut shown: Vec<String> =
            attributes(&entry).iter().map(|one| format!("{}={}", one.key, one.value)).collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "kubegc.evidence=[\"a\",\"b\"]",
                // This is one text. The library shows it without escaping its content.
                "kubegc.owners=[\"{\"kind\":\"Job\"}\"]",
                "kubegc.requests=2",
                "kubegc.verb=delete"
            ]
        );
    }
}
