//! Requester of a deletion: from the deletions that `kubegc up`'s server remembers, and from journal entries about the object, its
//! owners, its namespace and its definition.

use std::collections::{BTreeSet, VecDeque};

use gc_kube::{ApiClient, push_segment};
use gc_process::endpoints::DELETIONS;
use gc_process::journal::{DELETE, Object as JournalObject, Query, Selection, is_accepted, text};
use gc_process::preflight;
use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::journal;
use super::sources::Source;

/// Maximum number of objects that are queried on the way to the first request.
const STEPS: usize = 8;

/// Object whose deletion is queried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RequestSubject {
    Uid(String),
    Named { resource: String, namespace: String, name: String },
}

/// A deletion that a server remembers.
pub(crate) struct RememberedDeletion {
    pub(crate) at: Option<Timestamp>,
    pub(crate) uid: String,
    pub(crate) line: String,
}

impl RememberedDeletion {
    /// Reports whether it is the deletion that this journal entry is about.
    pub(crate) fn is_of(&self, entry: &Value) -> bool {
        self.uid == text(entry, "uid")
    }

    /// Reports whether it is the later deletion of another object than that of this journal entry.
    pub(crate) fn is_of_another(&self, entry: &Value) -> bool {
        let recorded: Option<Timestamp> = text(entry, "time").parse().ok();
        !self.is_of(entry) && self.at > recorded
    }
}

/// Returns the last deletion of an object of this name, if the server remembers one.
pub(crate) async fn of_name(
    client: &ApiClient,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Option<RememberedDeletion> {
    let (resource, namespace, name) = (resource.to_owned(), namespace.to_owned(), name.to_owned());
    remembered(client, &RequestSubject::Named { resource, namespace, name }).await.ok()?
}

/// Returns `Err` if the server does not answer this user.
async fn remembered(client: &ApiClient, about: &RequestSubject) -> Result<Option<RememberedDeletion>, ()> {
    let mut path = format!("{DELETIONS}?");
    let parameters: &[(&str, &str)] = match about {
        RequestSubject::Uid(uid) => &[("uid", uid)],
        RequestSubject::Named { resource, namespace, name } => {
            &[("resource", resource), ("namespace", namespace), ("name", name)]
        }
    };
    for (parameter, value) in parameters {
        path.push_str(parameter);
        path.push('=');
        push_segment(&mut path, value);
        path.push('&');
    }
    let answer =
        client.call(preflight::request(Method::GET, path.trim_end_matches('&'), None)).await.map_err(drop)?;
    if !answer.head.status.is_success() {
        return Err(());
    }
    let document: Value = serde_json::from_slice(&answer.body).map_err(drop)?;
    let Some(newest) = document["items"].get(0) else { return Ok(None) };
    Ok(Some(RememberedDeletion {
        at: text(newest, "time").parse().ok(),
        uid: text(newest, "uid").to_owned(),
        line: shown(newest),
    }))
}

fn shown(asked: &Value) -> String {
    let what = if asked["eviction"] == true { "eviction" } else { "DELETE" };
    let program = match text(asked, "program") {
        "" => String::new(),
        program => format!(" with {program}"),
    };
    let policy = match text(asked, "propagationPolicy") {
        "" => String::new(),
        policy => format!(", propagationPolicy {policy}"),
    };
    format!("{} at {}: {what}{program}{policy} (the API server)", text(asked, "user"), journal::time(asked))
}

/// Returns who requested the deletion of this UID and the deletions that caused it, up to the first request.
pub(crate) async fn of_uid(client: &ApiClient, source: Option<&Source>, uid: &str) -> Vec<String> {
    follow(client, source, vec![(String::new(), RequestSubject::Uid(uid.to_owned()))]).await
}

/// Returns who is behind the deletion in a journal entry.
pub(crate) async fn of_entry(client: &ApiClient, source: &Source, entry: &Value) -> Vec<String> {
    follow(client, Some(source), causes(entry)).await
}

async fn follow(
    client: &ApiClient,
    source: Option<&Source>,
    from: Vec<(String, RequestSubject)>,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut seen: BTreeSet<RequestSubject> = from.iter().map(|(_, about)| about.clone()).collect();
    let mut open: VecDeque<(String, RequestSubject)> = from.into();
    let mut remembers = true;
    for _ in 0..STEPS {
        let Some((prefix, about)) = open.pop_front() else { break };
        if remembers {
            match remembered(client, &about).await {
                Ok(Some(asked)) => {
                    lines.push(format!("{prefix}{}", asked.line));
                    continue;
                }
                Ok(None) => {}
                Err(()) => remembers = false,
            }
        }
        let (Some(source), RequestSubject::Uid(uid)) = (source, &about) else { continue };
        let Some(entry) = deletion_of(source, uid).await else { continue };
        let is_its_own = source.to_string() == client.address();
        let journal = if is_its_own { "journal".to_owned() } else { format!("the journal of {source}") };
        lines.extend(journal::deletion(&entry, &journal).map(|line| format!("{prefix}{line}")));
        open.extend(causes(&entry).into_iter().filter(|(_, about)| seen.insert(about.clone())));
    }
    lines
}

async fn deletion_of(source: &Source, uid: &str) -> Option<Value> {
    let query = Query {
        object: Some(JournalObject::Uid(uid.to_owned())),
        verb: Some(DELETE.to_owned()),
        ..Query::default()
    };
    let found = source.search(&Selection { query, ..Selection::default() }).await.ok()?;
    found.entries.into_iter().find(is_accepted)
}

/// Returns the causes of an object's deletion, from its journal entry.
fn causes(entry: &Value) -> Vec<(String, RequestSubject)> {
    let named = |title: &str, resource: &str, name: &str| {
        let (resource, name) = (resource.to_owned(), name.to_owned());
        let prefix = format!("{title}/{name}: ");
        vec![(prefix, RequestSubject::Named { resource, namespace: String::new(), name })]
    };
    match text(entry, "verdict") {
        gc_types::codes::NAMESPACE_TERMINATING => named("Namespace", "namespaces", text(entry, "namespace")),
        gc_types::codes::DEFINITION_TERMINATING => named(
            "CustomResourceDefinition",
            "customresourcedefinitions.apiextensions.k8s.io",
            text(entry, "resource"),
        ),
        _ => {
            let owners = entry["owners"].as_array().into_iter().flatten();
            let owner = |owner: &Value| {
                let title = format!("{}/{}: ", text(owner, "kind"), text(owner, "name"));
                (title, RequestSubject::Uid(text(owner, "uid").to_owned()))
            };
            owners.map(owner).collect()
        }
    }
}
