//! Removal of a finalizer whose assessment was shown, and the record of who removed it.

use gc_explain::Resource;
use gc_explain::release::Release;
use gc_kube::ApiClient;
use gc_process::preflight;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    DEFAULT_NAMESPACE, FIELD_MANAGER, FINALIZER, REASON, RESOURCE, ReleaseAnswer, UID, USER, events_in,
};
use crate::gather;

/// Reason why a finalizer was not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalError {
    /// The object has another UID or version than the one that was shown.
    #[error("{object} has changed since it was shown, and keeps its finalizer: {message}")]
    Changed {
        /// The object.
        object: String,
        /// The server's message.
        message: String,
    },
    /// The server refused the removal: the user may not do it, or admission does not allow it.
    #[error("{object} keeps its finalizer: {message}")]
    Refused {
        /// The object.
        object: String,
        /// The server's code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// There was no answer.
    #[error("it is not known whether {object} keeps its finalizer: {message}")]
    Unanswered {
        /// The object.
        object: String,
        /// The failure of the request.
        message: String,
    },
}

/// Removes the finalizer of an answer from exactly the version of the object that was shown. A dry run only asks whether the server
/// would accept it.
///
/// # Errors
/// The object has changed, or the server refuses the removal or does not answer.
pub async fn remove(
    client: &ApiClient,
    resource: &Resource,
    answer: &ReleaseAnswer,
    is_dry_run: bool,
) -> Result<(), RemovalError> {
    let release = &answer.release;
    let object = release.place.title();
    let own = gather::object_path(resource, &release.place.namespace, &release.place.name);
    let part = if release.is_in_specification { "/finalize" } else { "" };
    let dry_run = if is_dry_run { "&dryRun=All" } else { "" };
    let path = format!("{own}{part}?fieldManager={FIELD_MANAGER}{dry_run}");
    let request = if release.is_in_specification {
        preflight::request(Method::PUT, &path, Some(&without(&answer.object, &release.finalizer)))
    } else {
        preflight::patch(&path, "application/json-patch+json", &release.patch())
    };
    let reply = match client.call(request).await {
        Ok(reply) => reply,
        Err(error) => return Err(RemovalError::Unanswered { object, message: preflight::one_line(&error) }),
    };
    if reply.head.status.is_success() {
        return Ok(());
    }
    let message = preflight::message(&reply);
    let has_changed = match reply.head.status {
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => true,
        // Both a failed test of a JSON Patch and a refusal by an admission policy are answered with 422; a read tells them apart.
        StatusCode::UNPROCESSABLE_ENTITY => !is_as_shown(client, &own, release).await,
        _ => false,
    };
    if has_changed {
        return Err(RemovalError::Changed { object, message });
    }
    Err(RemovalError::Refused { object, code: reply.head.status.as_u16(), message })
}

/// Reports whether the object is still in the version that was shown. An object that cannot be read counts as changed.
async fn is_as_shown(client: &ApiClient, path: &str, release: &Release) -> bool {
    let answer = client.call(preflight::request(Method::GET, path, None)).await;
    let answer = answer.ok().filter(|answer| answer.head.status.is_success());
    let object = answer.and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
    object.is_some_and(|object| {
        object["metadata"]["uid"] == *release.place.uid
            && object["metadata"]["resourceVersion"] == *release.resource_version
    })
}

/// Returns a namespace as it was read, without this finalizer in its specification.
fn without(namespace: &Value, finalizer: &str) -> Value {
    let left: Vec<&Value> = namespace["spec"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|name| *name != finalizer)
        .collect();
    let mut metadata = json!({});
    for field in ["name", "uid", "resourceVersion"] {
        metadata[field] = namespace["metadata"][field].clone();
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {"finalizers": left}})
}

/// Makes the journal entry of a removal by this user.
#[must_use]
pub fn entry(release: &Release, user: &str) -> Value {
    let place = &release.place;
    json!({
        "verb": "remove-finalizer", "outcome": "applied", "controller": gc_process::journal::RELEASE, "user": user,
        "resource": place.resource, "kind": place.kind, "namespace": place.namespace, "name": place.name,
        "uid": place.uid, "resourceVersion": release.resource_version, "finalizer": release.finalizer,
        "verdict": "ReleasedByHand", "message": sentence(release, user), "owners": [],
        "evidence": [release.liveness.message()],
    })
}

fn sentence(release: &Release, user: &str) -> String {
    format!("{user} removed the finalizer {}; left behind: {}", release.finalizer, release.strands)
}

/// Writes the Event beside the object. A terminating namespace accepts no Event; then it is written to `default` about the
/// namespace, and does not name the object, which readers of `default` may not be allowed to see.
///
/// # Errors
/// The server accepts neither Event; the error is its message.
pub async fn write_event(client: &ApiClient, release: &Release, user: &str) -> Result<(), String> {
    let place = &release.place;
    let own = if place.namespace.is_empty() { DEFAULT_NAMESPACE } else { &place.namespace };
    let about = json!({"apiVersion": place.api_version, "kind": place.kind, "namespace": place.namespace,
        "name": place.name, "uid": place.uid});
    let first = post(client, own, about, sentence(release, user), (release, user)).await;
    let Err(why) = first else { return Ok(()) };
    if place.namespace.is_empty() {
        return Err(why);
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "name": place.namespace});
    let message = format!("of a {}: {}", place.kind, sentence(release, user));
    post(client, DEFAULT_NAMESPACE, namespace, message, (release, user)).await.map_err(|_| why)
}

async fn post(
    client: &ApiClient,
    namespace: &str,
    about: Value,
    message: String,
    (release, user): (&Release, &str),
) -> Result<(), String> {
    let now = jiff::Timestamp::now();
    let seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "namespace": namespace,
            "name": format!("kubegc-release-{}.{:x}", release.place.uid, now.as_nanosecond()),
            "annotations": {USER: user, FINALIZER: release.finalizer, RESOURCE: release.place.resource, UID: release.place.uid},
        },
        "involvedObject": about, "type": "Warning", "reason": REASON, "message": message,
        "source": {"component": FIELD_MANAGER}, "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": seconds, "lastTimestamp": seconds, "count": 1,
    });
    let answer = client.call(preflight::request(Method::POST, &events_in(namespace), Some(&event))).await;
    let answer = answer.map_err(|error| preflight::one_line(&error))?;
    if answer.head.status.is_success() { Ok(()) } else { Err(preflight::message(&answer)) }
}
