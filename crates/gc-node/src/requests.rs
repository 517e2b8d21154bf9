//! Single requests to the API server.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use gc_kube::connection::Answer;
use gc_kube::requests::{ObjectAnswer, RequestedObject, answered_object, confirm_unserved};
use gc_kube::{ApiClient, push_segment};
use gc_types::api_path;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

/// Content type of created objects.
pub(crate) const JSON: &str = "application/json";
/// Content type of merge patches.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

/// Content type of server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
/// Content type of lists of operations.
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";

/// Sends a document; any response other than a success is an error.
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

/// Sends a document, and returns the status and the document of the response; null if it has none.
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

/// Description of an object that is read by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadTarget<'a> {
    pub(crate) version: &'a str,
    pub(crate) object: RequestedObject<'a>,
}

/// Returns the Node of this name.
pub(crate) fn node_target(name: &str) -> ReadTarget<'_> {
    let object = RequestedObject { group: "", resource: "nodes", kind: "Node", namespace: "", name };
    ReadTarget { version: "v1", object }
}

impl ReadTarget<'_> {
    pub(crate) fn path(&self) -> String {
        let RequestedObject { group, resource, namespace, name, .. } = self.object;
        let mut path = api_path(group, self.version);
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            push_segment(&mut path, namespace);
        }
        for segment in [resource, name] {
            path.push('/');
            push_segment(&mut path, segment);
        }
        path
    }
}

/// Reads an object; `None` if the server proves that it does not exist. Any other 404, such as that of a gateway, is an
/// error, and so is another object.
pub(crate) async fn read(client: &ApiClient, target: &ReadTarget<'_>) -> Result<Option<Value>> {
    let path = target.path();
    let answer = get(client, &path).await?;
    match answered_object(&answer, &target.object) {
        ObjectAnswer::Found(found) => return Ok(Some(found)),
        ObjectAnswer::Absent => return Ok(None),
        ObjectAnswer::Doubtful => {}
    }
    let status = answer.head.status;
    ensure!(
        status != StatusCode::NOT_FOUND,
        "{path}: 404, but not from an API server, or about something else"
    );
    ensure!(status.is_success(), "{path}: {status}");
    bail!("{path} was not answered with that object");
}

/// Reads a list of a custom resource, which `query` limits; `None` if the server proves that it does not serve the resource.
pub(crate) async fn list(
    client: &ApiClient,
    (group, version, resource, kind): (&str, &str, &str, &str),
    query: &str,
) -> Result<Option<Value>> {
    let path = format!("{}/{resource}?{query}", api_path(group, version));
    let answer = get(client, &path).await?;
    if answer.head.status == StatusCode::NOT_FOUND {
        let unserved = confirm_unserved(client, &answer, (group, resource, kind)).await;
        unserved.with_context(|| format!("{path}: 404, but it is not certain that there is none"))?;
        return Ok(None);
    }
    ensure!(answer.head.status.is_success(), "{path}: {}", answer.head.status);
    let list: Value = serde_json::from_slice(&answer.body).with_context(|| format!("cannot read {path}"))?;
    ensure!(
        list["kind"].as_str() == Some(&format!("{kind}List")),
        "{path} was not answered with a list of {resource}"
    );
    Ok(Some(list))
}

async fn get(client: &ApiClient, path: &str) -> Result<Answer> {
    let request = Request::get(path).header(ACCEPT, JSON);
    let request = request.body(Full::<Bytes>::default()).context("cannot make the request")?;
    Ok(client.call(request).await?)
}

#[cfg(test)]
mod tests;
