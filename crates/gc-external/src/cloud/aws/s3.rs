//! Objects in a bucket of S3, or of a server that speaks its protocol: put, get, list, delete. Buckets are addressed by path, which
//! every such server supports.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::Full;
use serde::Deserialize;

use super::credentials::{Credentials, Source};
use super::escape::escape;
use super::signature::{Signing, sha256};
use super::{is_plain, is_region, public_endpoint};
use crate::cloud::client::{Https, allowed, fetch, https, without_default_port};
use crate::cloud::shortened;

/// Timeout of one request.
pub const S3_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an object that is read, bytes.
pub const MAX_OBJECT_BYTES: usize = 64 << 20;
/// Maximum number of pages of a list...
const PAGES: usize = 1_000;
/// ...of objects per page...
const PAGE_OBJECTS: usize = 1_000;
/// ...and of bytes of all keys.
const MAX_KEYS_BYTES: usize = 128 << 20;
/// Maximum size of a page of a list, bytes.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Reason why a request to a bucket failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum S3Error {
    /// Not an allowed URL.
    #[error(
        "S3 endpoint {0:?}: expected https://HOST; http:// is only allowed for this machine (127.0.0.1, ::1)"
    )]
    Endpoint(String),
    /// Not the name of a region.
    #[error("{0:?} is no name of a region; expected one such as eu-central-1")]
    Region(String),
    /// Not the name of a bucket.
    #[error("{0:?} is no name of a bucket: 3 to 63 lower-case letters, digits, dots and hyphens")]
    Bucket(String),
    /// The certificate authorities cannot be used.
    #[error("S3: {0}")]
    Authorities(String),
    /// There are no credentials, or they are not supported.
    #[error("S3: no credentials: {0}")]
    Credentials(String),
    /// There was no connection, it broke, or the answer was too large.
    #[error("S3: {0}")]
    Connection(String),
    /// There was no answer in time.
    #[error("S3: no answer within {0:?}")]
    Timeout(Duration),
    /// Failed in another way.
    #[error("S3: {what} was answered {status} {code}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// HTTP status.
        status: u16,
        /// S3's error code.
        code: String,
        /// The beginning of its message.
        message: String,
    },
    /// Not an answer to the request.
    #[error("S3: the answer is malformed: {0}")]
    Malformed(String),
}

/// Connection settings of a bucket.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// Name of the bucket.
    pub bucket: String,
    /// Region of the bucket.
    pub region: String,
    /// URL of the server; `None` for the region's public one.
    pub endpoint: Option<String>,
    /// Certificate authorities of the server (PEM); `None` for those of this machine.
    pub authorities: Option<PathBuf>,
    /// Signing keys; `None` for those that the environment names or the instance has.
    pub credentials: Option<Credentials>,
    /// Timeout for an answer.
    pub timeout: Duration,
}

impl S3Options {
    /// Creates the default settings for a bucket of AWS.
    #[must_use]
    pub fn new(bucket: &str, region: &str) -> Self {
        let (bucket, region) = (bucket.to_owned(), region.to_owned());
        Self { bucket, region, endpoint: None, authorities: None, credentials: None, timeout: S3_TIMEOUT }
    }
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StoredObject {
    /// Key of the object.
    pub key: String,
    /// Size of the object, bytes.
    pub size: u64,
}

/// A client of one bucket.
pub struct S3 {
    client: Https,
    options: S3Options,
    /// `https://HOST[:PORT]`
    base: String,
    host: String,
    credentials: Source,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3").field("bucket", &self.options.bucket).finish_non_exhaustive()
    }
}

/// A request before it is signed.
struct UnsignedRequest<'a> {
    method: Method,
    /// Key of an object; empty for the bucket.
    key: &'a str,
    /// Query, in canonical form.
    query: &'a str,
    body: Bytes,
}

impl S3 {
    /// Returns a client. Sends nothing by itself.
    pub fn new(options: S3Options) -> Result<Self, S3Error> {
        let (region, bucket) = (&options.region, &options.bucket);
        if !is_region(region) {
            return Err(S3Error::Region(region.clone()));
        }
        let is_name = bucket.bytes().all(|byte| is_plain(byte) || byte == b'.') && !bucket.contains("..");
        if !(3..=63).contains(&bucket.len()) || !is_name {
            return Err(S3Error::Bucket(bucket.clone()));
        }
        let text = options.endpoint.clone().unwrap_or_else(|| public_endpoint("s3", region));
        let wrong = || S3Error::Endpoint(text.clone());
        let url: Uri = text.parse().map_err(|_| wrong())?;
        if !allowed(&url) || !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(wrong());
        }
        let url = without_default_port(url).ok_or_else(wrong)?;
        let host = url.authority().map(|authority| authority.as_str().to_owned()).ok_or_else(wrong)?;
        let client = https(options.authorities.as_deref(), options.timeout, text.starts_with("https"))
            .map_err(S3Error::Authorities)?;
        let base = format!("{}://{host}", url.scheme_str().unwrap_or("https"));
        let credentials = Source::new(options.credentials.clone(), region, options.timeout)
            .map_err(S3Error::Credentials)?;
        Ok(Self { client, options, base, host, credentials })
    }

    /// Writes an object, replacing any with the same key.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<(), S3Error> {
        let request = UnsignedRequest { method: Method::PUT, key, query: "", body };
        self.send(request, MAX_PAGE_BYTES).await.map(drop)
    }

    /// Reads an object.
    pub async fn get(&self, key: &str) -> Result<Bytes, S3Error> {
        let request = UnsignedRequest { method: Method::GET, key, query: "", body: Bytes::new() };
        self.send(request, MAX_OBJECT_BYTES).await
    }

    /// Deletes an object. Succeeds if it does not exist.
    pub async fn delete(&self, key: &str) -> Result<(), S3Error> {
        let request = UnsignedRequest { method: Method::DELETE, key, query: "", body: Bytes::new() };
        self.send(request, MAX_PAGE_BYTES).await.map(drop)
    }

    /// Returns the objects whose keys have this prefix, in the order of their keys.
    pub async fn list(&self, prefix: &str) -> Result<Vec<StoredObject>, S3Error> {
        let (mut stored, mut token, mut bytes) = (Vec::new(), None::<String>, 0);
        for _ in 0..PAGES {
            let after =
                token.map(|token| format!("continuation-token={}&", escape(&token))).unwrap_or_default();
            let query = format!("{after}list-type=2&prefix={}", escape(prefix));
            let request = UnsignedRequest { method: Method::GET, key: "", query: &query, body: Bytes::new() };
            let page = read(&self.send(request, MAX_PAGE_BYTES).await?)?;
            bytes += page.contents.iter().map(|stored| stored.key.len()).sum::<usize>();
            if page.contents.len() > PAGE_OBJECTS || bytes > MAX_KEYS_BYTES {
                return Err(S3Error::Malformed("the list has more keys than are read".to_owned()));
            }
            stored.extend(page.contents);
            token = page.next.filter(|token| !token.is_empty());
            match (page.is_truncated, &token) {
                (false, _) => return Ok(stored),
                (true, Some(_)) => {}
                (true, None) => {
                    let what = "the list is truncated, and does not say where it continues";
                    return Err(S3Error::Malformed(what.to_owned()));
                }
            }
        }
        Err(S3Error::Malformed(format!("the list has more than {PAGES} pages")))
    }

    async fn send(&self, request: UnsignedRequest<'_>, largest: usize) -> Result<Bytes, S3Error> {
        let limit = self.options.timeout;
        tokio::time::timeout(limit, self.exchange(request, largest))
            .await
            .unwrap_or(Err(S3Error::Timeout(limit)))
    }

    async fn exchange(&self, request: UnsignedRequest<'_>, largest: usize) -> Result<Bytes, S3Error> {
        let credentials = self.credentials.get().await.map_err(S3Error::Credentials)?;
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let what = format!("{} {}/{}", request.method, self.options.bucket, request.key);
        let request = self.signed(request, &credentials, &time)?;
        let (status, body) = fetch(&self.client, request, largest)
            .await
            .map_err(|error| S3Error::Connection(error.to_string()))?;
        if (200..300).contains(&status) { Ok(body) } else { Err(refusal(what, status, &body)) }
    }

    fn signed(
        &self,
        request: UnsignedRequest<'_>,
        credentials: &Credentials,
        time: &str,
    ) -> Result<Request<Full<Bytes>>, S3Error> {
        let UnsignedRequest { method, key, query, body } = request;
        let mut path = format!("/{}", self.options.bucket);
        for segment in key.split('/').filter(|_| !key.is_empty()) {
            path.push('/');
            path.push_str(&escape(segment));
        }
        let digest = sha256(&body);
        let mut headers = vec![
            ("host", self.host.as_str()),
            ("x-amz-content-sha256", digest.as_str()),
            ("x-amz-date", time),
        ];
        if let Some(token) = &credentials.session_token {
            headers.push(("x-amz-security-token", token));
        }
        let authorization = Signing {
            method: method.as_str(),
            path: &path,
            query,
            headers: &headers,
            body: &body,
            region: &self.options.region,
            service: "s3",
            time,
        }
        .authorization(credentials);
        let separator = if query.is_empty() { "" } else { "?" };
        let mut signed =
            Request::builder().method(method).uri(format!("{}{path}{separator}{query}", self.base));
        for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
            signed = signed.header(*name, *value);
        }
        signed
            .header("authorization", authorization)
            .body(Full::new(body))
            .map_err(|error| S3Error::Connection(error.to_string()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    contents: Vec<StoredObject>,
    is_truncated: bool,
    #[serde(rename = "NextContinuationToken")]
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusal {
    code: String,
    #[serde(default)]
    message: String,
}

fn read(body: &[u8]) -> Result<Page, S3Error> {
    let text = std::str::from_utf8(body).map_err(|error| S3Error::Malformed(error.to_string()))?;
    quick_xml::de::from_str(text).map_err(|error| S3Error::Malformed(error.to_string()))
}

fn refusal(what: String, status: u16, body: &[u8]) -> S3Error {
    let text = String::from_utf8_lossy(body);
    let (code, message) = match quick_xml::de::from_str::<Refusal>(&text) {
        Ok(Refusal { code, message }) => (shortened(&code), shortened(&message)),
        Err(_) => (String::new(), shortened(&text)),
    };
    S3Error::Refused { what, status, code, message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn options() -> S3Options {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        S3Options {
            endpoint: Some("http://127.0.0.1:1".into()),
            credentials: Some(credentials),
            ..S3Options::new("examplebucket", "us-east-1")
        }
    }

    #[test]
    fn a_request_has_what_was_signed() {
        let s3 = S3::new(options()).unwrap();
        let unsigned = UnsignedRequest {
            method: Method::PUT,
            key: "records/a b$.jsonl",
            query: "",
            body: Bytes::from_static(b"Welcome to Amazon S3."),
        };
        let credentials = Credentials { session_token: Some("t".into()), ..options().credentials.unwrap() };
        let request = s3.signed(unsigned, &credentials, "20130524T000000Z").unwrap();
        let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(
            (
                request.method().as_str(),
                request.uri().to_string().as_str(),
                header("x-amz-content-sha256").as_str()
            ),
            (
                "PUT",
                "http://127.0.0.1:1/examplebucket/records/a%20b%24.jsonl",
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
            )
        );
        assert!(header("authorization").starts_with(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
                 SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature="
        ));
    }

    /// The client does not send a port that is the scheme's default, so a signature over it would be refused.
    #[test]
    fn the_port_of_the_scheme_is_not_signed() {
        let signed = |endpoint: &str| {
            let s3 = S3::new(S3Options { endpoint: Some(endpoint.into()), ..options() }).unwrap();
            let unsigned = UnsignedRequest { method: Method::GET, key: "k", query: "", body: Bytes::new() };
            let request = s3.signed(unsigned, &options().credentials.unwrap(), "20130524T000000Z").unwrap();
            (request.uri().to_string(), request.headers()["authorization"].clone())
        };
        assert_eq!(signed("https://h:443"), signed("https://h"));
        assert_eq!(signed("http://127.0.0.1:80").0, "http://127.0.0.1/examplebucket/k");
        assert_ne!(signed("https://h:8443"), signed("https://h"));
    }

    #[test]
    fn what_is_no_bucket_is_refused_before_anything_is_sent() {
        let with = |change: &dyn Fn(&mut S3Options)| {
            let mut options = options();
            change(&mut options);
            S3::new(options).err()
        };
        assert_eq!(with(&|_| ()), None);
        for bucket in ["ab", "Upper", "a/b", "a..b", "a b", &"a".repeat(64)] {
            assert_eq!(
                with(&|options| options.bucket = bucket.to_owned()),
                Some(S3Error::Bucket(bucket.to_owned()))
            );
        }
        for endpoint in
            ["http://example.com", "ftp://127.0.0.1", "https://h/path", "https://u:p@h", "https://h/?q", "h"]
        {
            assert_eq!(
                with(&|options| options.endpoint = Some(endpoint.to_owned())),
                Some(S3Error::Endpoint(endpoint.to_owned()))
            );
        }
        assert_eq!(
            with(&|options| options.region = "US East".into()),
            Some(S3Error::Region("US East".into()))
        );
    }

    #[test]
    fn answers_are_read_strictly() {
        let page = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
            <IsTruncated>true</IsTruncated><Contents><Key>a&amp;b</Key><Size>3</Size><ETag>&quot;e&quot;</ETag></Contents>\
            <Contents><Key>c</Key><Size>4</Size></Contents><NextContinuationToken>t</NextContinuationToken></ListBucketResult>";
        let read_page = read(page.as_bytes()).unwrap();
        let stored = |key: &str, size| StoredObject { key: key.to_owned(), size };
        assert_eq!(read_page.contents, [stored("a&b", 3), stored("c", 4)]);
        assert_eq!((read_page.is_truncated, read_page.next.as_deref()), (true, Some("t")));
        let empty = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
        assert!(read(empty.as_bytes()).unwrap().contents.is_empty());
        for broken in ["", "{}", "<html/>", &page[..150], "<ListBucketResult/>"] {
            assert!(read(broken.as_bytes()).is_err(), "{broken}");
        }
        let refused = |code: &str, message: &str| S3Error::Refused {
            what: "GET b/k".into(),
            status: 403,
            code: code.into(),
            message: message.into(),
        };
        for (body, expected) in [
            ("<Error><Code>AccessDenied</Code><Message>No</Message></Error>", refused("AccessDenied", "No")),
            ("oops", refused("", "oops")),
        ] {
            assert_eq!(refusal("GET b/k".into(), 403, body.as_bytes()), expected);
        }
    }
}
