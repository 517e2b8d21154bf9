//! Questions to any cluster: `tree`, `why`, `stuck`, `plan delete`, `doctor`. They only read; `delete` alone changes
//! something, after its plan was shown. What the answers are is decided in `gc-answers`; here is how its needs are met
//! ([`gather`]), and how answers are shown.

pub(crate) mod access;
pub(crate) mod answering;
pub(crate) mod attached;
mod audit;
pub(crate) mod collector;
mod columns;
pub(crate) mod complete;
mod doctor;
pub(crate) mod examine;
#[cfg(test)]
mod few_rights;
mod follow;
mod formats;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod garbage;
pub(crate) mod gather;
mod gone_type;
pub(crate) mod journal;
pub(crate) mod listable;
#[cfg(test)]
mod outcomes;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod recovery;
mod requester;
pub(crate) mod resident;
pub(crate) mod scope;
#[cfg(test)]
mod situations;
mod sources;
pub(crate) mod stuck;
mod subject;
mod surveyed;
pub(crate) mod target;
pub(crate) mod tree;
pub(crate) mod unanswered;
pub(crate) mod version;
pub(crate) mod view;
pub(crate) mod why;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gc_answers::stuck::Row;
use gc_kube::ApiClient;
use gc_types::Timestamp;
use serde_json::Value;

use output::Answer as _;

/// What `kubegc stuck -o json` answers about the cluster of a client.
pub(crate) async fn stuck_in(client: ApiClient, patience: Duration) -> anyhow::Result<Value> {
    let gatherer = gather::Gatherer::new(client, gather::now()).await?;
    Ok(stuck::ask(&gatherer, &gather::Scope::default(), patience).await?.value())
}

/// What `kubegc stuck` answers about the cluster of a client, from this graph as far as it knows it, and when that was.
pub(crate) async fn stuck_beside(
    client: ApiClient,
    resident: Option<Arc<dyn resident::Resident>>,
    patience: Duration,
) -> anyhow::Result<(Vec<Row>, Timestamp)> {
    let gatherer = gather::Gatherer::new(client, gather::now()).await?.beside(resident);
    let answer = stuck::ask(&gatherer, &gather::Scope::default(), patience).await?;
    Ok((answer.rows, answer.now))
}

fn print(out: &[u8]) -> anyhow::Result<()> {
    match std::io::stdout().write_all(out) {
        // The reader may have closed the pipe.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
