//! Mirrors of a peer-to-peer registry on all nodes, which know whether another node has a copy of an image (spec `node-gc.md`,
//! section 24).
//!
//! Spegel's mirror answers `HEAD /v2/NAME/manifests/DIGEST` only from the content of its own node if the request has the header
//! `X-Spegel-Mirrored: true`, which it sets itself on requests that it forwards. Without the header, it would also answer for its
//! peers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use futures::future::{Either, select};
use futures::{StreamExt as _, stream};
use gc_collectors::images::Image;
use gc_collectors::images::peers::{Answers, Copies, KnownCopies};
use http::header::{CONNECTION, HOST, HeaderName};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::debug;

/// Maximum number of images that are asked about in one pass; the others count as unknown.
const MOST_ASKED: usize = 512;
/// Maximum number of mirrors that are asked; with more, no image is ever known to have no copy.
const MOST_MIRRORS: usize = 1_000;
/// Maximum number of concurrent requests.
const PARALLEL: usize = 32;
/// Timeout of each request.
const PATIENCE: Duration = Duration::from_millis(500);
/// Timeout of all requests in one pass.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(10);
/// Maximum number of bytes in the head of a response. (hyper accepts no smaller bound.)
const LONGEST_HEAD: usize = 8 << 10;
/// Maximum number of headers in a response.
const MOST_HEADERS: usize = 64;
/// Set by mirrors on forwarded requests: the receiver answers only for its own node.
const IS_FORWARDED: HeaderName = HeaderName::from_static("x-spegel-mirrored");
/// Digest of the content that a response is about.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Addresses of the mirrors as `HOST:PORT`; all addresses of each host are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peers(Vec<String>);

impl Peers {
    pub(crate) fn new(hosts: Vec<String>) -> Self {
        Self(hosts)
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let mut found = BTreeSet::new();
        for host in &self.0 {
            let all = tokio::time::timeout(PATIENCE, tokio::net::lookup_host(host.as_str())).await;
            let Ok(all) = all else { bail!("{host} was not resolved within {PATIENCE:?}") };
            found.extend(all.with_context(|| format!("cannot resolve {host}"))?);
        }
        ensure!(!found.is_empty(), "the hosts have no addresses");
        Ok(found.into_iter().collect())
    }

    /// Asks about the first of these images. Answers that do not arrive in time count as unknown.
    pub(crate) async fn ask(&self, images: &[Image]) -> KnownCopies {
        let unknown = |image: &Image| (image.id.clone(), Copies::Unknown);
        let addresses = match self.addresses().await {
            Ok(addresses) => addresses,
            Err(error) => {
                debug!("the mirrors of other nodes are unknown: {error:#}");
                return images.iter().map(unknown).collect();
            }
        };
        let mut known: KnownCopies = images.iter().map(unknown).collect();
        let asked = async {
            for image in images.iter().take(MOST_ASKED) {
                let answers = ask_all(image, &addresses).await;
                known.insert(image.id.clone(), answers.copies());
            }
        };
        if tokio::time::timeout(PATIENCE_IN_ALL, asked).await.is_err() {
            debug!("the mirrors of other nodes did not answer about all images within {PATIENCE_IN_ALL:?}");
        }
        known
    }
}

/// Asks the mirrors at these addresses until enough of them have the image.
async fn ask_all(image: &Image, addresses: &[SocketAddr]) -> Answers {
    let mut answers = Answers { failed: addresses.len(), ..Answers::default() };
    let Some(path) = image.repo_digests.iter().find_map(manifest_path) else { return answers };
    let asked = addresses.iter().take(MOST_MIRRORS);
    let mut found = stream::iter(asked.map(|address| has(*address, &path))).buffer_unordered(PARALLEL);
    while answers.copies() != Copies::Elsewhere
        && let Some(answer) = found.next().await
    {
        match answer {
            Ok(true) => answers.holding += 1,
            Ok(false) => answers.lacking += 1,
            Err(error) => {
                debug!("a mirror did not answer about {path}: {error:#}");
                continue;
            }
        }
        answers.failed -= 1;
    }
    answers
}

/// Returns the path of a manifest on a mirror; `None` if the name is not `REGISTRY/REPOSITORY@sha256:…`.
fn manifest_path(name: &Arc<str>) -> Option<String> {
    let (repository, digest) = name.split_once('@')?;
    let (registry, repository) = repository.split_once('/')?;
    let digits = digest.strip_prefix("sha256:")?;
    let is_plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/:".contains(&byte))
    };
    let is_digest = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_plain(registry) && is_plain(repository) && is_digest)
        .then(|| format!("/v2/{repository}/manifests/{digest}?ns={registry}"))
}

/// Asks one mirror whether its node has the content. A redirection counts as an answer like any other, and is not followed.
async fn has(address: SocketAddr, path: &str) -> Result<bool> {
    let answer = tokio::time::timeout(PATIENCE, head(address, path)).await.context("no answer in time")??;
    match answer.status() {
        StatusCode::OK => {
            if let Some(digest) = answer.headers().get(CONTENT_DIGEST) {
                let is_asked = digest.to_str().is_ok_and(|digest| path.contains(&format!("/{digest}?")));
                ensure!(is_asked, "the answer is about other content");
            }
            Ok(true)
        }
        StatusCode::NOT_FOUND => Ok(false),
        other => bail!("unexpected status {other}"),
    }
}

/// Sends a HEAD request over a connection of its own. Returns the head of the response; there is no body to read.
async fn head(address: SocketAddr, path: &str) -> Result<Response<Incoming>> {
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .context("cannot ask")?;
    let request = Request::head(path)
        .header(HOST, address.to_string())
        .header(CONNECTION, "close")
        .header(IS_FORWARDED, "true")
        .body(Empty::<Bytes>::new())
        .context("cannot make the request")?;
    let answer = pin!(sender.send_request(request));
    // The connection is polled here, so it ends with this future.
    match select(answer, pin!(connection)).await {
        Either::Left((answer, _)) => answer.context("no answer"),
        Either::Right((ended, answer)) => {
            ended.context("the connection broke")?;
            answer.await.context("no answer")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::net::Ipv4Addr;

    use gc_collectors::images::ImageId;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    fn image(number: u64) -> Image {
        let digits = format!("{number:064x}");
        Image {
            id: ImageId::new(&digits).unwrap(),
            repo_tags: Vec::new(),
            repo_digests: vec![format!("registry.example/team/app@sha256:{digits}").into()],
            size_bytes: 1,
            pinned: false,
            runtime_handler: "".into(),
            layers: Arc::default(),
        }
    }

    /// Starts a mirror whose node has these images. It answers for its own node only if the header requires it.
    async fn mirror(holding: &[u64], answer: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answer = answer.to_owned();
        let digests: Vec<String> = holding.iter().map(|number| format!("sha256:{number:064x}?")).collect();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&request[..read]).into_owned();
                let is_local = text.contains("\r\nX-Spegel-Mirrored: true\r\n");
                let is_asked = text.starts_with("HEAD /v2/team/app/manifests/")
                    && text.contains("?ns=registry.example ");
                let has = digests.iter().any(|digest| text.contains(digest.as_str()));
                let line = match (is_local && is_asked, has, answer.as_str()) {
                    (true, true, "") => "HTTP/1.1 200 OK",
                    (true, false, "") => "HTTP/1.1 404 Not Found",
                    (true, _, other) => other,
                    (false, ..) => "HTTP/1.1 400 Bad Request",
                };
                let _ = stream.write_all(format!("{line}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn mirrors_say_whether_another_node_has_a_copy() {
        let own = mirror(&[1, 2, 3], "").await;
        let other = mirror(&[1, 4], "").await;
        let images = [1, 2, 4, 5].map(image);
        let find = async |hosts: &[&String]| -> Vec<Copies> {
            let peers = Peers::new(hosts.iter().map(|host| (*host).clone()).collect());
            let known = peers.ask(&images).await;
            images.iter().map(|image| known[&image.id]).collect()
        };
        assert_eq!(
            find(&[&own, &other]).await,
            [Copies::Elsewhere, Copies::Last, Copies::Last, Copies::Last]
        );
        // Errors, redirections (to a mirror that has everything), answers about other content, a response that is not HTTP, and a
        // mirror that does not exist.
        let closed = TcpSocket::new_v4().unwrap();
        closed.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let elsewhere = format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{own}/");
        let other_content = format!("HTTP/1.1 200 OK\r\nDocker-Content-Digest: sha256:{:064x}", 9);
        let many_headers = format!("HTTP/1.1 200 OK{}", "\r\nA: b".repeat(MOST_HEADERS));
        let long_header = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(2 * LONGEST_HEAD));
        let answers = [
            "HTTP/1.1 500 Internal Server Error",
            "HTTP/1.1 204 No Content",
            "SSH-2.0",
            &elsewhere,
            &other_content,
            &many_headers,
            &long_header,
        ];
        let mut broken = vec![closed.local_addr().unwrap().to_string()];
        for answer in answers {
            broken.push(mirror(&[1], answer).await);
        }
        for broken in &broken {
            let unknown = Copies::Unknown;
            assert_eq!(find(&[&own, &other, broken]).await, [Copies::Elsewhere, unknown, unknown, unknown]);
        }
        assert_eq!(find(&[&"nowhere.invalid:1".to_owned()]).await, [Copies::Unknown; 4]);
        let mut local = image(1);
        local.repo_digests.clear();
        assert_eq!(
            Peers::new(vec![own]).ask(&[local.clone()]).await[&local.id],
            Copies::Unknown,
            "built here"
        );
    }

    #[test]
    fn only_plain_names_are_asked_for() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (name, expected) in [
            (
                format!("docker.io/library/nginx@{digest}"),
                Some(format!("/v2/library/nginx/manifests/{digest}?ns=docker.io")),
            ),
            (format!("registry:5000/a@{digest}"), Some(format!("/v2/a/manifests/{digest}?ns=registry:5000"))),
            (format!("nginx@{digest}"), None),
            (format!("r.example/a b@{digest}"), None),
            (format!("r.example/a\r\nX: y@{digest}"), None),
            ("r.example/a@sha256:12".to_owned(), None),
            ("r.example/a:1".to_owned(), None),
        ] {
            assert_eq!(manifest_path(&Arc::from(name.as_str())), expected, "{name}");
        }
    }
}
