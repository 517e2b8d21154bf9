//! Single requests to the API server.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use gc_kube::ApiClient;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

/// The type of what is created.
pub(crate) const JSON: &str = "application/json";
/// The type of what is changed.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

/// The type of what a field manager owns.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
/// The type of a list of operations.
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";

/// Sends a document; an answer that is not a success is an error.
pub(crate) async fn send(
    client: &ApiClient,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<()> {
    let (status, _) = exchange(client, method, path, content_type, body).await?;
    ensure!(status.is_success(), "{path}: {status}");
    Ok(())
}

/// Sends a document, and returns the status and the document of the answer; null if it has none.
pub(crate) async fn exchange(
    client: &ApiClient,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<(StatusCode, Value)> {
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
    let request =
        request.body(Full::new(Bytes::from(body.to_string()))).context("cannot make the request")?;
    let answer = client.call(request).await?;
    Ok((answer.head.status, serde_json::from_slice(&answer.body).unwrap_or_default()))
}

/// Reads an object; `None` if there is no such one.
pub(crate) async fn read(client: &ApiClient, path: &str) -> Result<Option<Value>> {
    let request = Request::get(path).header(ACCEPT, JSON);
    let request = request.body(Full::<Bytes>::default()).context("cannot make the request")?;
    let answer = client.call(request).await?;
    if answer.head.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    ensure!(answer.head.status.is_success(), "{path}: {}", answer.head.status);
    Ok(Some(serde_json::from_slice(&answer.body).with_context(|| format!("cannot read {path}"))?))
}
