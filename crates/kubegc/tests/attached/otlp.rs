//! Traces of `kubegc run --otlp-endpoint`: a receiver on loopback decodes the requests.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::support::etcd::port::Port;
use crate::support::{Kubegc, Signal};
use crate::support_cluster::{Admin, Run, privileged_for_all, until};

/// Starts a receiver that answers requests one after the other, and keeps their spans.
fn receiver() -> (String, Arc<Mutex<Vec<Span>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let spans = Arc::<Mutex<Vec<Span>>>::default();
    let kept = Arc::clone(&spans);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut received = Vec::new();
            let mut buffer = [0; 4096];
            let body = loop {
                let count = stream.read(&mut buffer).unwrap_or_default();
                if count == 0 {
                    break None;
                }
                received.extend_from_slice(&buffer[..count]);
                let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
                    continue;
                };
                let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
                assert!(head.starts_with("post /v1/traces "), "{head}");
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.unwrap().trim().parse().unwrap();
                if received.len() >= end + 4 + length {
                    break Some(received[end + 4..end + 4 + length].to_vec());
                }
            };
            let Some(body) = body else { continue };
            let request = ExportTraceServiceRequest::decode(&*body).unwrap();
            let sent = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            kept.lock().unwrap().extend(sent.flat_map(|scope| scope.spans));
            let answer = ExportTraceServiceResponse::default().encode_to_vec();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), &answer].concat());
        }
    });
    (format!("http://{address}"), spans)
}

/// Returns the attributes that are texts or lists of texts.
fn texts(span: &Span) -> BTreeMap<String, String> {
    let shown = |value: &Attribute| match value {
        Attribute::StringValue(text) => text.clone(),
        Attribute::ArrayValue(items) => format!("{:?}", items.values),
        other => format!("{other:?}"),
    };
    let all = span.attributes.iter();
    all.filter_map(|one| Some((one.key.clone(), shown(one.value.as_ref()?.value.as_ref()?)))).collect()
}

/// A verdict is a span with its reason and evidence, and its request is a child span; waiting spans are sent before the process
/// ends.
#[test]
fn verdicts_and_requests_are_spans() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let (endpoint, spans) = receiver();
    let mut run = Run::with(&privileged_for_all(&server), &["--otlp-endpoint", &endpoint]);
    let owner = admin.map("owner", None);
    admin.map("leaf", Some(("owner", &owner)));
    until("the graph is complete", || run.is_synced());
    admin.delete("owner", "Background");
    until("it is collected", || !admin.exists("leaf"));
    run.signal(Signal::TERM);
    assert!(run.wait().success(), "{}", run.log());

    let spans = spans.lock().unwrap();
    let of_leaf = |span: &&Span| texts(span).get("kubegc.name").is_some_and(|name| name == "leaf");
    let verdict = spans.iter().find(|span| of_leaf(span) && span.name == "verdict OwnersAbsent").unwrap();
    let said = texts(verdict);
    for (name, part) in [
        ("kubegc.controller", "garbage-collector-controller"),
        ("kubegc.resource", "configmaps"),
        ("kubegc.verb", "delete"),
        ("kubegc.outcome", "applied"),
        ("kubegc.owners", "owner"),
        ("kubegc.evidence", &owner[..8]),
    ] {
        assert!(said.get(name).is_some_and(|value| value.contains(part)), "{name}: {said:?}");
    }
    let request = spans.iter().find(|span| span.parent_span_id == verdict.span_id).unwrap();
    assert_eq!((&*request.name, &request.trace_id), ("delete", &verdict.trace_id));
    assert!(request.end_time_unix_nano >= request.start_time_unix_nano);
}

/// An unavailable receiver delays nothing, and an invalid address is refused.
#[test]
fn a_receiver_that_is_away_delays_no_deletion() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let closed = Port::reserve();
    let kubeconfig = privileged_for_all(&server);
    let run = Run::with(&kubeconfig, &["--otlp-endpoint", &format!("http://127.0.0.1:{}", closed.number())]);
    let owner = admin.map("owner", None);
    admin.map("leaf", Some(("owner", &owner)));
    until("the graph is complete", || run.is_synced());
    admin.delete("owner", "Background");
    until("it is collected", || !admin.exists("leaf"));
    let (code, _, error) =
        crate::support_cluster::kubegc(&["run", "--otlp-endpoint", "localhost:4317"], &kubeconfig);
    assert!(code == Some(2) && error.contains("--otlp-endpoint"), "{code:?} {error}");
}
