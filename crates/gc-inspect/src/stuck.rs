//! Stuck deletions of a cluster and their root causes.

use std::time::Duration;

use anyhow::bail;
use gc_explain::stuck::{Row, diagnose};
use gc_explain::{Survey, UnreadPlace};
use gc_kube::ApiClient;
use gc_types::{GoDuration, Timestamp};
use serde_json::{Value, json};

use crate::gather::{self, Gatherer, Scope};

/// The answer of `kubegc stuck`.
pub struct StuckAnswer {
    /// One row per root cause, the oldest first.
    pub rows: Vec<Row>,
    /// The time of the answer.
    pub now: Timestamp,
    /// Messages about everything that could not be read.
    pub unseen: Vec<String>,
    /// The objects and lists among it.
    unread: Vec<UnreadPlace>,
}

impl StuckAnswer {
    /// Returns the answer as data, as `kubegc stuck -o json` prints it.
    #[must_use]
    pub fn value(&self) -> Value {
        let items: Vec<Value> = self.rows.iter().map(|row| row.value(self.now)).collect();
        json!({"items": items, "unseen": self.unseen, "unread": self.unread})
    }

    /// Keeps what has been stuck for at least this time.
    pub fn keep_older(&mut self, at_least: GoDuration) {
        let enough = gc_types::milliseconds(at_least.to_std());
        self.rows.retain(|row| row.age_milliseconds(self.now).unwrap_or(i64::MAX) >= enough);
    }
}

/// Gathers and diagnoses.
pub async fn ask(gatherer: &Gatherer, scope: &Scope, patience: Duration) -> anyhow::Result<StuckAnswer> {
    gatherer.check_namespace(scope).await?;
    let survey = gatherer.survey(scope, patience).await?;
    let listable = survey.catalog.all().iter().filter(|resource| resource.is_collectable()).count();
    if scope.namespace.is_empty() && survey.unlisted().len() == listable {
        bail!(gather::NOTHING_TO_LIST);
    }
    Ok(diagnosed(gatherer, &survey, scope).await)
}

/// Diagnoses what was surveyed.
pub async fn diagnosed(gatherer: &Gatherer, survey: &Survey, scope: &Scope) -> StuckAnswer {
    let mut facts = gatherer.facts();
    let mut rows = gatherer.answer(&mut facts, |facts| diagnose(survey, facts)).await;
    if !scope.namespace.is_empty() {
        rows.retain(|row| row.concerns(&scope.namespace));
    }
    let mut unseen: Vec<String> = gather::unlisted_summary(survey).into_iter().collect();
    let unread = facts.unread();
    if let Some(first) = unread.first() {
        unseen.push(match unread.len() {
            1 => format!("not everything could be read: {first}"),
            many => format!("{many} objects and lists could not be read, such as {first}"),
        });
    }
    let unread = survey.unread(&scope.namespace).chain(unread).collect();
    StuckAnswer { rows, now: gatherer.now, unseen, unread }
}

/// Finds what is stuck in the cluster of a client, and returns it as `kubegc stuck -o json` prints it. `patience` bounds the
/// time for lists.
///
/// # Errors
/// The cluster cannot be read.
pub async fn stuck_in(client: ApiClient, patience: Duration) -> anyhow::Result<Value> {
    let gatherer = gather::Gatherer::new(client, gather::now()).await?;
    Ok(ask(&gatherer, &gather::Scope::default(), patience).await?.value())
}
