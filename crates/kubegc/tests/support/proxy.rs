//! A proxy between a client and an API server that misbehaves on request: over TLS and HTTP/2 on both sides, so the tests cover the
//! transport that ships.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use gc_kube::ApiClient;
use gc_kube::connection::Body;
use gc_kube::wire::frames::Frames;
use gc_kube::wire::metadata::Encoding;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::{TlsAcceptor, rustls};

/// Fault of a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answered with this code, and never forwarded.
    Answer { code: u16, retry_after: Option<u32> },
    /// Forwarded, but answered with this code in place of the server's.
    AnswerAfter { code: u16 },
    /// Reset before it is forwarded.
    Reset,
    /// Forwarded, and reset in place of a response.
    ResetAfter,
    /// Body of the response cut off after this many bytes.
    Truncate(usize),
    /// Held until the end of the fault before it is forwarded.
    Stall,
    /// Forwarded, with the response held until the end of the fault.
    StallAfter,
    /// Forwarded after this delay.
    Delay(Duration),
    /// Forwarded twice; the second response is returned.
    Twice,
    /// Response delayed by up to this duration, so responses overtake each other.
    Shuffle(Duration),
    /// Every event of the watch delivered twice.
    RepeatEvents,
    /// JSON body of the response changed.
    Rewrite(fn(&mut Value)),
    /// Answered with this in place of the server's response, and never forwarded.
    Body { code: u16, content_type: &'static str, body: Bytes },
    /// Answered with the server's response to a GET of another path, as JSON and changed.
    Other { path: fn(&str) -> String, change: fn(&mut Value) },
    /// Answered with the watch of another path, as JSON, after these bytes; it ends with them if `ends`.
    Watch { path: fn(&str) -> String, before: Bytes, ends: bool },
}

type Matches = Box<dyn Fn(&Method, &str) -> bool + Send>;

struct Rule {
    matches: Matches,
    fault: Fault,
    /// Divisor for an n-th request: only each n-th match is affected.
    every: usize,
    /// True if one of this many is affected on average, irregularly, rather than each n-th.
    uneven: bool,
    matched: usize,
    hits: usize,
}

/// A request that was forwarded.
#[derive(Clone, Debug)]
pub struct ForwardedRequest {
    pub at: Instant,
    pub method: Method,
    pub path: String,
    /// Response code of the server, once it is known.
    pub code: Option<u16>,
    /// User and groups that the request impersonates.
    pub identity: Vec<String>,
}

struct ProxyState {
    upstream: Mutex<ApiClient>,
    next: AtomicUsize,
    rules: Mutex<Vec<Rule>>,
    forwarded: Mutex<Vec<ForwardedRequest>>,
    /// Counter of the cuts; a change ends every connection.
    cuts: watch::Sender<usize>,
    /// Counter of the ends of faults; a change ends every stall.
    heals: watch::Sender<usize>,
    /// Number of deletions that have arrived and have no response yet.
    waiting_deletions: AtomicUsize,
    /// True while nothing passes in either direction, without either side being notified.
    partitioned: watch::Sender<bool>,
}

/// A running proxy.
pub struct Proxy {
    shared: Arc<ProxyState>,
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
    authority: String,
    folder: tempfile::TempDir,
}

impl Proxy {
    /// Starts a proxy that forwards with the credentials of this kubeconfig to its server.
    pub fn start(upstream: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = runtime.block_on(ApiClient::from_kubeconfig(upstream)).unwrap();
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let shared = Arc::new(ProxyState {
            upstream: Mutex::new(client),
            next: AtomicUsize::new(0),
            waiting_deletions: AtomicUsize::new(0),
            rules: Mutex::default(),
            forwarded: Mutex::default(),
            cuts: watch::Sender::new(0),
            heals: watch::Sender::new(0),
            partitioned: watch::Sender::new(false),
        });
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&shared)));
        let folder = tempfile::tempdir().unwrap();
        Self { shared, runtime, address, authority: certified.cert.pem(), folder }
    }

    /// Returns a kubeconfig that leads to the proxy.
    pub fn kubeconfig(&self) -> PathBuf {
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.authority);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{}", self.address), "certificate-authority-data": authority,
            }}],
            "users": [{"name": "u", "user": {"token": "the proxy has its own"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let file = self.folder.path().join("kubeconfig");
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }

    /// Sends further requests to the server of this kubeconfig.
    pub fn redirect(&self, upstream: &Path) {
        let client = self.runtime.block_on(ApiClient::from_kubeconfig(upstream)).unwrap();
        *self.shared.upstream.lock().unwrap() = client;
    }

    /// Applies this fault to each further request that matches, until [`Proxy::heal`]. The first rule that matches decides.
    pub fn inject(&self, matches: impl Fn(&Method, &str) -> bool + Send + 'static, fault: Fault) {
        self.inject_every(1, matches, fault);
    }

    /// Applies this fault to each n-th request that matches.
    pub fn inject_every(
        &self,
        every: usize,
        matches: impl Fn(&Method, &str) -> bool + Send + 'static,
        fault: Fault,
    ) {
        self.add(Rule { matches: Box::new(matches), fault, every, uneven: false, matched: 0, hits: 0 });
    }

    /// Applies this fault to one of this many matching requests, irregularly: otherwise an action of several requests that is
    /// retried as a whole would fail at the same request each time.
    pub fn inject_one_of(
        &self,
        number: usize,
        matches: impl Fn(&Method, &str) -> bool + Send + 'static,
        fault: Fault,
    ) {
        self.add(Rule {
            matches: Box::new(matches),
            fault,
            every: number,
            uneven: true,
            matched: 0,
            hits: 0,
        });
    }

    fn add(&self, rule: Rule) {
        self.shared.rules.lock().unwrap().push(rule);
    }

    /// Reports whether every rule has been applied at least once.
    pub fn is_exercised(&self) -> bool {
        self.shared.rules.lock().unwrap().iter().all(|rule| rule.hits > 0)
    }

    /// Returns the number of times that each rule was applied.
    pub fn hits(&self) -> Vec<usize> {
        self.shared.rules.lock().unwrap().iter().map(|rule| rule.hits).collect()
    }

    /// Ends all faults, and returns the number of times that each rule was applied.
    pub fn heal(&self) -> Vec<usize> {
        let rules = std::mem::take(&mut *self.shared.rules.lock().unwrap());
        self.shared.heals.send_modify(|count| *count += 1);
        rules.iter().map(|rule| rule.hits).collect()
    }

    /// Breaks every connection to the proxy, in the middle of whatever it carries.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    pub fn partition(&self, partitioned: bool) {
        self.shared.partitioned.send_replace(partitioned);
    }

    /// Returns the number of deletions that have arrived and have no response yet, except those that the client has given up.
    pub fn waiting_deletions(&self) -> usize {
        self.shared.waiting_deletions.load(Ordering::Relaxed)
    }

    pub fn forwarded(&self) -> Vec<ForwardedRequest> {
        self.shared.forwarded.lock().unwrap().clone()
    }
}

async fn accept(listener: tokio::net::TcpListener, tls: TlsAcceptor, shared: Arc<ProxyState>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        let mut cuts = shared.cuts.subscribe();
        cuts.borrow_and_update();
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = hyper::service::service_fn(move |request| serve(Arc::clone(&shared), request));
            let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            tokio::select! {
                _ = server.serve_connection(TokioIo::new(stream), service) => {}
                _ = cuts.changed() => {}
            }
        });
    }
}

/// A deletion that waits for its response until it is dropped.
struct WaitingDeletion(Arc<ProxyState>);

impl WaitingDeletion {
    fn of(shared: &Arc<ProxyState>) -> Self {
        shared.waiting_deletions.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for WaitingDeletion {
    fn drop(&mut self) {
        self.0.waiting_deletions.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(shared: Arc<ProxyState>, request: Request<Incoming>) -> Result<Response<Body>, BrokenStream> {
    let _waiting = (request.method() == Method::DELETE).then(|| WaitingDeletion::of(&shared));
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| BrokenStream)?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut healed = shared.heals.subscribe();
    healed.borrow_and_update();
    let fault = choose(&shared, &head.method, &path);
    match &fault {
        Some(Fault::Answer { code, retry_after }) => return Ok(status(*code, *retry_after)),
        Some(Fault::Reset) => return Err(BrokenStream),
        Some(Fault::Body { code, content_type, body }) => {
            return Ok(whole(*code, content_type, body.clone()));
        }
        Some(Fault::Other { path: other, change }) => {
            let headers = asking_for_json(&head.headers);
            let response = forward(&shared, &head.method, &other(&path), &headers, &body).await?;
            return rewritten(response, *change).await;
        }
        Some(Fault::Watch { path: other, before, ends }) => {
            let headers = asking_for_json(&head.headers);
            let response = forward(&shared, &head.method, &other(&path), &headers, &body).await?;
            return Ok(preceded(response, before.clone(), *ends));
        }
        Some(Fault::Stall) => drop(healed.changed().await),
        Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
        Some(Fault::Twice) => {
            let first = forward(&shared, &head.method, &path, &head.headers, &body).await?;
            drop(first.into_body().collect().await);
        }
        _ => {}
    }
    passage(&shared).await;
    let response = forward(&shared, &head.method, &path, &head.headers, &body).await?;
    let response = match fault {
        Some(Fault::AnswerAfter { code }) => {
            drop(response.into_body().collect().await);
            status(code, None)
        }
        Some(Fault::ResetAfter) => {
            drop(response.into_body().collect().await);
            return Err(BrokenStream);
        }
        Some(Fault::StallAfter) => {
            drop(healed.changed().await);
            response
        }
        Some(Fault::Shuffle(longest)) => {
            tokio::time::sleep(longest.mul_f64(spread(shared.next.load(Ordering::Relaxed)))).await;
            response
        }
        Some(Fault::Truncate(bytes)) => truncated(response, bytes),
        Some(Fault::RepeatEvents) => repeated(response),
        Some(Fault::Rewrite(change)) => rewritten(response, change).await?,
        _ => response,
    };
    passage(&shared).await;
    Ok(held(response, shared.partitioned.subscribe()))
}

/// Waits while nothing passes.
async fn passage(shared: &ProxyState) {
    // The sender lives as long as the proxy.
    drop(shared.partitioned.subscribe().wait_for(|partitioned| !partitioned).await);
}

fn choose(shared: &ProxyState, method: &Method, path: &str) -> Option<Fault> {
    let mut rules = shared.rules.lock().unwrap();
    for rule in rules.iter_mut().filter(|rule| (rule.matches)(method, path)) {
        rule.matched += 1;
        let hit = if rule.uneven {
            spread(rule.matched) * f64::from(u32::try_from(rule.every).unwrap()) < 1.0
        } else {
            rule.matched.is_multiple_of(rule.every)
        };
        if hit {
            rule.hits += 1;
            return Some(rule.fault.clone());
        }
    }
    None
}

async fn forward(
    shared: &ProxyState,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response<Body>, BrokenStream> {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = method.clone();
    *request.uri_mut() = path.parse().unwrap();
    for name in [ACCEPT, CONTENT_TYPE] {
        if let Some(value) = headers.get(&name) {
            request.headers_mut().insert(name, value.clone());
        }
    }
    let number = {
        let mut forwarded = shared.forwarded.lock().unwrap();
        let (method, path) = (method.clone(), path.to_owned());
        let all = |name| headers.get_all(name).into_iter().map(|value| value.to_str().unwrap().to_owned());
        let identity = all("impersonate-user").chain(all("impersonate-group")).collect();
        forwarded.push(ForwardedRequest { at: Instant::now(), method, path, code: None, identity });
        forwarded.len() - 1
    };
    let upstream = shared.upstream.lock().unwrap().clone();
    shared.next.fetch_add(1, Ordering::Relaxed);
    let response = upstream.open(request).await.map_err(|_| BrokenStream)?;
    shared.forwarded.lock().unwrap()[number].code = Some(response.status().as_u16());
    let (mut head, body) = response.into_parts();
    // Headers of the connection itself are not passed on.
    let kept: Vec<_> = [CONTENT_TYPE, CONTENT_LENGTH, RETRY_AFTER]
        .into_iter()
        .filter_map(|name| head.headers.get(&name).cloned().map(|value| (name, value)))
        .collect();
    head.headers = kept.into_iter().collect();
    head.headers.remove(HOST);
    head.version = http::Version::default();
    Ok(Response::from_parts(head, body))
}

/// Returns the headers with JSON as the only accepted type.
fn asking_for_json(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let json: Vec<&str> =
        accept.split(',').filter(|one| one.trim().starts_with("application/json")).collect();
    let json = json.join(",").parse().unwrap();
    headers.insert(ACCEPT, json);
    headers
}

fn whole(code: u16, content_type: &'static str, body: Bytes) -> Response<Body> {
    let body = Full::new(body).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert(CONTENT_TYPE, content_type.parse().unwrap());
    response
}

fn status(code: u16, retry_after: Option<u32>) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "message": "the proxy says so", "reason": if code == 410 { "Expired" } else { "InternalError" },
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Spreads numbers irregularly over [0, 1] (splitmix64). A simple product is regular: with it, a few requests that are made again
/// and again can be hit each time.
fn spread(number: usize) -> f64 {
    let mut mixed = u64::try_from(number).unwrap().wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        mixed = (mixed ^ (mixed >> shift)).wrapping_mul(factor);
    }
    mixed ^= mixed >> 31;
    f64::from(u32::try_from(mixed >> 32).unwrap()) / f64::from(u32::MAX)
}

/// Holds the body back while nothing passes.
fn held(response: Response<Body>, partitioned: watch::Receiver<bool>) -> Response<Body> {
    response.map(|body| {
        let frames = futures::stream::unfold((body, partitioned), |(mut body, mut partitioned)| async move {
            let frame = body.frame().await?;
            drop(partitioned.wait_for(|partitioned| !partitioned).await);
            Some((frame, (body, partitioned)))
        });
        StreamBody::new(frames).boxed_unsync()
    })
}

fn truncated(response: Response<Body>, bytes: usize) -> Response<Body> {
    response.map(|body| {
        let frames = futures::stream::unfold(Some((body, bytes)), |state| async move {
            let (mut body, left) = state?;
            if left == 0 {
                return Some((Err(Box::new(BrokenStream).into()), None));
            }
            let mut data = match body.frame().await?.map(Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(other)) => return Some((Ok(other), Some((body, left)))),
                Err(error) => return Some((Err(error), None)),
            };
            data.truncate(left);
            let left = left - data.len();
            Some((Ok(Frame::data(data)), Some((body, left))))
        });
        StreamBody::new(frames).boxed_unsync()
    })
}

fn preceded(response: Response<Body>, before: Bytes, ends: bool) -> Response<Body> {
    response.map(|body| {
        let rest = futures::stream::unfold(body, move |mut body| async move {
            let frame = if ends { None } else { body.frame().await };
            Some((frame?, body))
        });
        let first = futures::stream::iter([Ok(Frame::data(before))]);
        StreamBody::new(futures::StreamExt::chain(first, rest)).boxed_unsync()
    })
}

fn repeated(response: Response<Body>) -> Response<Body> {
    let encoding = Encoding::of_content_type(response.headers().get(CONTENT_TYPE));
    response.map(|body| {
        let frames = futures::stream::unfold((body, Frames::new(encoding)), move |state| async move {
            let (mut body, mut frames) = state;
            let data = match body.frame().await?.map(Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(other)) => return Some((Ok(other), (body, frames))),
                Err(error) => return Some((Err(error), (body, frames))),
            };
            frames.push(&data);
            let mut out = BytesMut::new();
            while let Some(frame) = frames.next_frame().unwrap() {
                for _ in 0..2 {
                    match encoding {
                        Encoding::Protobuf => {
                            out.put_u32(u32::try_from(frame.len()).unwrap());
                            out.put_slice(&frame);
                        }
                        Encoding::Json => {
                            out.put_slice(&frame);
                            out.put_u8(b'\n');
                        }
                    }
                }
            }
            Some((Ok(Frame::data(out.freeze())), (body, frames)))
        });
        StreamBody::new(frames).boxed_unsync()
    })
}

async fn rewritten(response: Response<Body>, change: fn(&mut Value)) -> Result<Response<Body>, BrokenStream> {
    let (mut head, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|_| BrokenStream)?.to_bytes();
    let mut document: Value = serde_json::from_slice(&bytes).map_err(|_| BrokenStream)?;
    change(&mut document);
    head.headers.remove(CONTENT_LENGTH);
    let body = Full::new(Bytes::from(document.to_string())).map_err(|never| match never {});
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// A stream that ends in an error.
#[derive(Debug, thiserror::Error)]
#[error("broken by the proxy")]
pub struct BrokenStream;
