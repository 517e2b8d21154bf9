//! Rules of `kubegc protect` on a server, and the objects that rules about numbers protect.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_explain::protect::{self, Counted, Counting, Status};
use gc_explain::{GroupResource, Knowledge};
use gc_types::{Timestamp, Uid};
use serde_json::Value;

use crate::gather::{self, Gatherer, Reading, Scope};

const GROUP: &str = "admissionregistration.k8s.io";

/// Reads and judges the rules of a server, ignoring other policies.
///
/// # Errors
/// The policies or their bindings cannot be listed.
pub async fn rules(gatherer: &Gatherer, now: Timestamp) -> anyhow::Result<Vec<Status>> {
    let policies = all(gatherer, "validatingadmissionpolicies").await?;
    let bindings = all(gatherer, "validatingadmissionpolicybindings").await?;
    let (namespace, name) = protect::COUNTS;
    let counts = gatherer.object(&GroupResource::new("", "configmaps"), namespace, name).await;
    let counts = match &counts {
        Knowledge::Present(counts) => Some(counts),
        Knowledge::Absent => None,
        // Only its existence is known.
        Knowledge::Unreadable(_) => Some(&Value::Null),
    };
    Ok(protect::status(&policies, &bindings, counts, now))
}

async fn all(gatherer: &Gatherer, resource: &str) -> anyhow::Result<Vec<Value>> {
    // Servers before Kubernetes 1.30 have no such policies.
    let Some(resource) = gatherer.catalog.named(&GroupResource::new(GROUP, resource)) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    let take = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if protect::is_ours(name) {
            found.push(object.clone());
        }
    };
    let read = gatherer.each(resource, "", Reading::Whole, take).await;
    read.map_err(|why| anyhow::anyhow!("{} cannot be listed: {why}", resource.name))?;
    Ok(found)
}

/// Counts in the whole cluster. Also returns what could not be listed, which may make the counts too low.
///
/// # Errors
/// The cluster cannot be listed in time, or too many objects would be protected.
pub async fn count(
    gatherer: &Gatherer,
    counting: &Counting,
    at: &str,
    patience: Duration,
) -> anyhow::Result<(BTreeMap<Uid, Counted>, Option<String>)> {
    let survey = gatherer.survey(&Scope::default(), patience).await?;
    Ok((protect::count(&survey, counting, at)?, gather::unlisted_summary(&survey)))
}
