//! The record of a finalizer that was removed by hand: an Event beside the object, and an entry of a journal.

use std::path::PathBuf;

use gc_explain::release::Release;
use gc_inspect::release::{DEFAULT_NAMESPACE, FINALIZER, REASON, RESOURCE, UID, USER, events_in};
use gc_kube::ApiClient;
use gc_process::journal::{Journal, JournalOptions, RELEASE};
use gc_process::screen::complain;
use gc_process::{preflight, reviews};
use http::Method;
use serde_json::{Value, json};

/// Size of a journal that is appended to, as `kubegc run` bounds it.
const LARGEST_JOURNAL_BYTES: u64 = 64 << 20;
const OLDER_JOURNALS: u32 = 3;

/// Records a removal. A record that cannot be written is a warning: the finalizer is gone.
pub(super) async fn record(client: &ApiClient, release: &Release, journal: Option<&PathBuf>) {
    let user = reviews::own_name(client).await;
    let user = user.unwrap_or_else(|| "a user whom the server does not name".to_owned());
    if let Err(why) = write_event(client, release, &user).await {
        complain!(
            "warning: no Event about it could be written ({why}): {user} removed {} from {}",
            release.finalizer,
            release.place.title()
        );
    }
    let Some(file) = journal else { return };
    let options = JournalOptions {
        file: file.clone(),
        largest_bytes: LARGEST_JOURNAL_BYTES,
        older_files: OLDER_JOURNALS,
    };
    match Journal::open(Some(options), Some(client.address().to_owned())) {
        Ok(journal) => {
            journal.record(entry(release, &user));
            journal.close();
            if journal.dropped() > 0 {
                complain!("warning: {} cannot be written", file.display());
            }
        }
        Err(error) => complain!("warning: {}: {error:#}", file.display()),
    }
}

fn entry(release: &Release, user: &str) -> Value {
    let place = &release.place;
    json!({
        "verb": "remove-finalizer", "outcome": "applied", "controller": RELEASE, "user": user,
        "resource": place.resource, "kind": place.kind, "namespace": place.namespace, "name": place.name,
        "uid": place.uid, "resourceVersion": release.resource_version, "finalizer": release.finalizer,
        "verdict": "ReleasedByHand", "message": sentence(release, user),
    })
}

fn sentence(release: &Release, user: &str) -> String {
    format!("{user} removed the finalizer {}; left behind: {}", release.finalizer, release.strands)
}

/// Writes the Event beside the object. A namespace that terminates takes none: then it is about the namespace, beside it, and does not
/// name the object, which readers of that place may not be allowed to see.
async fn write_event(client: &ApiClient, release: &Release, user: &str) -> Result<(), String> {
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
        "source": {"component": super::FIELD_MANAGER}, "reportingComponent": super::FIELD_MANAGER,
        "firstTimestamp": seconds, "lastTimestamp": seconds, "count": 1,
    });
    let answer = client.call(preflight::request(Method::POST, &events_in(namespace), Some(&event))).await;
    let answer = answer.map_err(|error| preflight::one_line(&error))?;
    if answer.head.status.is_success() { Ok(()) } else { Err(preflight::message(&answer)) }
}
