//! Sends documents, such as traces, to a server outside Kubernetes.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

use crate::cloud::client::{Https, fetch, https};

/// Maximum size of an answer, bytes.
const LARGEST_ANSWER: usize = 64 * 1024;

/// Sends documents. A server with TLS is verified with the authorities of this machine.
#[derive(Clone)]
pub struct DocumentSender {
    client: Https,
    timeout: Duration,
}

impl DocumentSender {
    /// Returns a sender whose requests end within a time limit.
    ///
    /// # Errors
    /// The authorities of this machine are needed (`secure`), but there are none.
    pub fn new(timeout: Duration, secure: bool) -> Result<Self, String> {
        Ok(Self { client: https(None, timeout, secure)?, timeout })
    }

    /// Sends a request, and returns the status and the body of the answer.
    ///
    /// # Errors
    /// There was no answer in time, or it could not be read.
    pub async fn send(&self, request: Request<Bytes>) -> Result<(u16, Bytes), String> {
        let asked = fetch(&self.client, request.map(Full::new), LARGEST_ANSWER);
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(answered) => answered.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs())),
        }
    }
}
