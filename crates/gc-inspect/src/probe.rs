//! Dry-run deletions, because only the server can tell what admission webhooks decide.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use gc_explain::Facts;
use gc_explain::messages::{refusing_policy, webhook_in};
use gc_explain::plan::BlastRadius;
use gc_explain::stuck::Place;
use gc_process::preflight;
use gc_types::Uid;
use http::Method;
use serde_json::json;

use super::gather::{self, Gatherer, IN_FLIGHT};

/// Maximum number of dry runs; deletions of further objects may still be refused.
const MOST_PROBES: usize = 200;

/// The server's response to a dry run of a deletion.
enum DryRunAnswer {
    /// Would be accepted, or cannot be tried.
    Nothing,
    /// Admission refuses it.
    Refused(String),
    /// A webhook does not answer.
    Silent { webhook: String, message: String },
}

/// Deletions that have been tried.
#[derive(Default)]
pub(crate) struct Probes(BTreeSet<String>);

impl Probes {
    /// Tries deletions that webhooks decide about, and adds the server's responses to the facts. Reports whether there is anything
    /// new, in which case the plan has to be made again. A silent webhook costs its timeout, so one deletion is tried before all
    /// others.
    pub(crate) async fn tell(
        &mut self,
        gatherer: &Gatherer,
        radius: &BlastRadius,
        facts: &mut Facts,
    ) -> bool {
        let open = radius.undecided.iter().filter(|place| !self.0.contains(&place.uid));
        let room = if self.0.is_empty() { 1 } else { MOST_PROBES.saturating_sub(self.0.len()) };
        let open: Vec<&Place> = open.take(room).collect();
        let tried = open.iter().map(|place| async { ((*place).clone(), tried(gatherer, place).await) });
        let mut tried = futures::stream::iter(tried).buffer_unordered(IN_FLIGHT);
        let mut is_new = false;
        while let Some((place, said)) = tried.next().await {
            match said {
                DryRunAnswer::Nothing => {}
                DryRunAnswer::Refused(message) => facts.tell_refused(Uid::new(&place.uid), message),
                DryRunAnswer::Silent { webhook, message } => facts.tell_silent_webhook(webhook, message),
            }
            is_new = true;
            self.0.insert(place.uid);
        }
        is_new
    }
}

async fn tried(gatherer: &Gatherer, place: &Place) -> DryRunAnswer {
    let Some(resource) = gatherer.catalog.of_kind(&place.api_version, &place.kind) else {
        return DryRunAnswer::Nothing;
    };
    let path = format!("{}?dryRun=All", gather::object_path(resource, &place.namespace, &place.name));
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": place.uid}, "dryRun": ["All"],
    });
    let Ok(answer) = gatherer.client().call(preflight::request(Method::DELETE, &path, Some(&options))).await
    else {
        return DryRunAnswer::Nothing;
    };
    if answer.head.status.is_success() {
        return DryRunAnswer::Nothing;
    }
    let message = preflight::message(&answer);
    let is_denied = message.contains("denied the request") || refusing_policy(&message).is_some();
    match webhook_in(&message) {
        _ if is_denied => DryRunAnswer::Refused(message),
        // A webhook with side effects does not support dry runs.
        Some(_) if !message.contains("failed calling webhook") => DryRunAnswer::Nothing,
        Some(webhook) => DryRunAnswer::Silent { webhook: webhook.to_owned(), message },
        None => DryRunAnswer::Nothing,
    }
}
