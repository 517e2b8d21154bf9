//! Single requests to the API server.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use gc_kube::connection::Answer;
use gc_kube::discovery::discover;
use gc_kube::requests::{RequestedObject, answered_status};
use gc_kube::{ApiClient, push_segment};
use gc_types::api_path;
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

/// An object that is read by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadTarget<'a> {
    pub(crate) version: &'a str,
    pub(crate) object: RequestedObject<'a>,
}

/// The Node of this name.
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

/// Reads an object; `None` if the server proves that there is no such one. Any other 404, such as that of a gateway, is an
/// error, and so is another object.
pub(crate) async fn read(client: &ApiClient, target: &ReadTarget<'_>) -> Result<Option<Value>> {
    let (path, asked) = (target.path(), &target.object);
    let answer = get(client, &path).await?;
    if answer.head.status == StatusCode::NOT_FOUND {
        let status = answered_status(&answer);
        ensure!(
            status.is_some_and(|status| status.proves_absence(asked)),
            "{path}: 404, but not from an API server, or about something else"
        );
        return Ok(None);
    }
    ensure!(answer.head.status.is_success(), "{path}: {}", answer.head.status);
    let found: Value = serde_json::from_slice(&answer.body).with_context(|| format!("cannot read {path}"))?;
    let is_asked = found["kind"] == *asked.kind && found["metadata"]["name"] == *asked.name;
    ensure!(is_asked, "{path} was not answered with that object");
    Ok(Some(found))
}

/// Reads a list of a custom resource, which `query` limits; `None` if the server proves that it does not serve the resource.
///
/// An API server answers with a page of text then, as any gateway would, so that its discovery has to confirm it.
pub(crate) async fn list(
    client: &ApiClient,
    (group, version, resource, kind): (&str, &str, &str, &str),
    query: &str,
) -> Result<Option<Value>> {
    let path = format!("{}/{resource}?{query}", api_path(group, version));
    let answer = get(client, &path).await?;
    if answer.head.status == StatusCode::NOT_FOUND {
        let status = answered_status(&answer);
        if !status.is_some_and(|status| status.proves_unserved(group, resource, kind)) {
            let unserved = is_unserved(client, group, resource).await;
            unserved.with_context(|| format!("{path}: 404, but it is not certain that there is none"))?;
        }
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

/// Fails unless discovery shows what every API server serves, and not this resource.
async fn is_unserved(client: &ApiClient, group: &str, resource: &str) -> Result<()> {
    let found = discover(client).await.context("discovery failed")?;
    ensure!(!found.is_unclear(group), "discovery does not tell about {group}");
    let serves = |group: &str, resource: &str| found.resources.contains_key(&(group.into(), resource.into()));
    let has_groups = found.resources.keys().any(|(group, _)| !group.is_empty());
    ensure!(serves("", "nodes") && has_groups, "discovery is incomplete");
    ensure!(!serves(group, resource), "discovery names {resource}");
    Ok(())
}

async fn get(client: &ApiClient, path: &str) -> Result<Answer> {
    let request = Request::get(path).header(ACCEPT, JSON);
    let request = request.body(Full::<Bytes>::default()).context("cannot make the request")?;
    Ok(client.call(request).await?)
}

#[cfg(test)]
mod tests;
