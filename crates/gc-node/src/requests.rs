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

/// Sends a document.
pub(crate) async fn send(
    client: &ApiClient,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<()> {
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
    let request =
        request.body(Full::new(Bytes::from(body.to_string()))).context("cannot make the request")?;
    let answer = client.call(request).await?;
    ensure!(answer.head.status.is_success(), "{path}: {}", answer.head.status);
    Ok(())
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
