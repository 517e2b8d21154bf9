//! Checks before anything starts: the server must answer, know our user, and permit what we have to do.

use std::time::Duration;

use bytes::Bytes;
use gc_collectors::permissions::{self, Controller, NeededRule};
use gc_kube::connection::Answer;
use gc_kube::{ApiClient, Backoff};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// First and longest pause between two attempts to reach the server.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Verbs that are needed if nothing is performed.
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];

/// Something is forbidden; the message says what to add.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server forbids to {} {}{}{}: add to our {}: {}",
    .verbs.join(", "), full_name(.group, .resource), if .namespace.is_empty() { "" } else { " in namespace " },
    .namespace, self.role(), self.rule()
)]
pub struct ForbiddenRequest {
    /// Forbidden verbs.
    pub verbs: Vec<String>,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name, with the subresource if there is one.
    pub resource: String,
    /// Namespace; empty for the whole cluster.
    pub namespace: String,
}

/// Several requests that are forbidden, each with the rule to add.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct MissingRules(Vec<ForbiddenRequest>);

impl ForbiddenRequest {
    /// Returns the rule to add.
    #[must_use]
    pub fn rule(&self) -> String {
        let Self { verbs, group, resource, .. } = self;
        let verbs = quoted(verbs);
        format!("{{apiGroups: [\"{group}\"], resources: [\"{resource}\"], verbs: [{verbs}]}}")
    }

    /// Returns the kind of role to add the rule to.
    #[must_use]
    pub fn role(&self) -> &'static str {
        if self.namespace.is_empty() { "ClusterRole" } else { "Role" }
    }
}

fn full_name(group: &str, resource: &str) -> String {
    match (group, resource) {
        ("*", "*") => "all resources".into(),
        ("" | "*", resource) => resource.to_owned(),
        (group, resource) => format!("{resource}.{group}"),
    }
}

fn quoted(verbs: &[String]) -> String {
    verbs.iter().map(|verb| format!("\"{verb}\"")).collect::<Vec<_>>().join(", ")
}

/// Returns a request with a JSON body and a JSON answer.
pub fn request(method: Method, path: &str, body: Option<&Value>) -> Request<Full<Bytes>> {
    let body = body.map_or_else(Full::default, |value| Full::new(Bytes::from(value.to_string())));
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    request.headers_mut().insert(http::header::ACCEPT, json.clone());
    request.headers_mut().insert(http::header::CONTENT_TYPE, json);
    request
}

/// Returns a PATCH with this content type; the path may have a query.
#[must_use]
pub fn patch(path: &str, content_type: &'static str, body: &Value) -> Request<Full<Bytes>> {
    let mut request = request(Method::PATCH, path, Some(body));
    let content_type = http::HeaderValue::from_static(content_type);
    request.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    request
}

/// Returns the message of a Status, or the beginning of another body.
pub fn message(answer: &Answer) -> String {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match status["message"].as_str() {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(&answer.body)
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(200)
            .collect(),
    }
}

/// Maximum silence of a server before a message reports that something waits for it.
const SILENCE: Duration = Duration::from_secs(3);

/// Waits (or, if `patient` is false, does not wait) for a server that answers and knows our user.
pub async fn reach(client: &ApiClient, patient: bool) -> anyhow::Result<()> {
    let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let mut call = client.call(request(Method::GET, "/version", None));
        let answer = match tokio::time::timeout(SILENCE, &mut call).await {
            Ok(answer) => answer,
            Err(_) => {
                let waits = format!("{} has not answered for {SILENCE:?}; still waiting", client.address());
                if patient {
                    tracing::warn!("{waits}");
                } else {
                    crate::screen::complain!("{waits}");
                }
                call.await
            }
        };
        let why = match answer {
            Ok(answer) => match answer.head.status {
                StatusCode::UNAUTHORIZED => anyhow::bail!(
                    "{} does not accept the credentials (401 Unauthorized); the token or certificate may have \
                     expired",
                    client.address()
                ),
                // A user who may not read the version may still read objects.
                status if status.is_success() || status == StatusCode::FORBIDDEN => return Ok(()),
                status => format!("{}: {}", status.as_u16(), message(&answer)),
            },
            Err(error) => one_line(&error),
        };
        if !patient {
            anyhow::bail!("cannot reach {}: {why}", client.address());
        }
        let pause = pauses.next_delay();
        tracing::warn!(
            server = client.address(),
            why,
            "the server cannot be reached; trying again in {pause:.1?}"
        );
        tokio::time::sleep(pause).await;
    }
}

/// Reports whether the server is that of `kubegc up`, which runs its own collectors.
pub async fn has_collectors(client: &ApiClient) -> bool {
    let answer = client.call(request(Method::GET, crate::endpoints::CLOCK, None)).await;
    // Another server may answer every path with a page of its own.
    let is_clock = |body: &[u8]| {
        serde_json::from_slice::<Value>(body).is_ok_and(|document| document["ahead"].is_string())
    };
    answer.is_ok_and(|answer| is_clock(&answer.body))
}

/// The oldest minor version of Kubernetes 1 that is supported.
const OLDEST_MINOR: u32 = 30;

/// Logs a warning if a server has a version that was not tested. It may still work.
pub async fn check_version(client: &ApiClient) {
    let Ok(answer) = client.call(request(Method::GET, "/version", None)).await else { return };
    let version: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if let Some(doubt) = doubtful_version(&version) {
        tracing::warn!(server = client.address(), "{doubt}");
    }
}

/// Returns a warning about the response of `/version` if it is doubtful.
#[must_use]
pub fn doubtful_version(version: &Value) -> Option<String> {
    let number = |field: &str| {
        let text = version[field].as_str().unwrap_or_default();
        text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok()
    };
    let shown = version["gitVersion"].as_str().unwrap_or("of unknown version");
    match (number("major"), number("minor")) {
        (Some(1), Some(minor)) if minor >= OLDEST_MINOR => None,
        (Some(_), Some(_)) => Some(format!(
            "the server is {shown}; Kubernetes 1.{OLDEST_MINOR} and newer are supported, and other versions are not tested"
        )),
        _ => Some("the server does not report its version; it may not be supported".into()),
    }
}

/// Returns an error with its causes on one line, each only once.
pub fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asks the server whether we have the permissions that these collectors need. No answer counts as allowed: the requests themselves
/// will show.
pub async fn check_permissions(
    client: &ApiClient,
    (enabled, deletion_events): (&[Controller], bool),
    reads_only: bool,
) -> anyhow::Result<()> {
    let (mut forbidden, mut events) = (Vec::new(), None);
    for NeededRule { group, resource, names, verbs } in permissions::needed(enabled, deletion_events) {
        let wanted = verbs.into_iter().filter(|verb| !reads_only || READ_VERBS.contains(verb));
        let name = names.first().copied().unwrap_or_default();
        let verbs = missing(client, &wanted.collect::<Vec<_>>(), (group, resource, name)).await?;
        if verbs.is_empty() {
            continue;
        }
        let is_events = (group, resource) == ("", "events");
        let (group, resource) = (group.to_owned(), resource.to_owned());
        let why = ForbiddenRequest { verbs, group, resource, namespace: String::new() };
        if is_events {
            events = Some(why);
        } else {
            forbidden.push(why);
        }
    }
    if !forbidden.is_empty() {
        forbidden.extend(events);
        return Err(MissingRules(forbidden).into());
    }
    if let Some(why) = events {
        // Events are for users: without them, everything is still collected.
        tracing::warn!("no Events will be written: {why}");
    }
    Ok(())
}

async fn missing(
    client: &ApiClient,
    verbs: &[&str],
    (group, resource, name): (&str, &str, &str),
) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    for verb in verbs {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let Ok(answer) = client.call(request(Method::POST, path, Some(&review))).await else { continue };
        if answer.head.status == StatusCode::UNAUTHORIZED {
            anyhow::bail!("{} does not accept the credentials (401 Unauthorized)", client.address());
        }
        let review: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.head.status.is_success() && review["status"]["allowed"] == false {
            missing.push((*verb).to_owned());
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        let of = |major: &str, minor: &str| json!({"major": major, "minor": minor, "gitVersion": "v"});
        for (version, is_doubtful) in [
            (of("1", "36"), false),
            (of("1", "30"), false),
            (of("1", "31+"), false),
            (of("1", "29"), true),
            (of("1", "29+"), true),
            (of("2", "0"), true),
            (of("", ""), true),
            (json!({}), true),
            (Value::Null, true),
        ] {
            assert_eq!(doubtful_version(&version).is_some(), is_doubtful, "{version}");
        }
    }

    #[test]
    fn what_is_forbidden_is_said_with_the_rule_to_add() {
        let of = |verbs: &[&str], group: &str, resource: &str, namespace: &str| {
            let verbs = verbs.iter().map(ToString::to_string).collect();
            let (group, resource, namespace) = (group.into(), resource.into(), namespace.into());
            ForbiddenRequest { verbs, group, resource, namespace }.to_string()
        };
        assert_eq!(
            of(&["delete", "patch"], "*", "*", ""),
            "the server forbids to delete, patch all resources: add to our ClusterRole: {apiGroups: [\"*\"], \
             resources: [\"*\"], verbs: [\"delete\", \"patch\"]}"
        );
        assert_eq!(
            of(&["update"], "coordination.k8s.io", "leases", "kube-system"),
            "the server forbids to update leases.coordination.k8s.io in namespace kube-system: add to our Role: \
             {apiGroups: [\"coordination.k8s.io\"], resources: [\"leases\"], verbs: [\"update\"]}"
        );
    }
}
