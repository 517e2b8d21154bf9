//! Questions to any cluster: `tree`, `why`, `stuck`, `plan delete`, `doctor`. They only read; `delete` alone changes
//! something, after its plan was shown. What the answers are is decided in `gc-explain`; here is how its needs are met
//! ([`gather`]), and how answers are shown.

pub(crate) mod access;
pub(crate) mod answering;
pub(crate) mod attached;
mod audit;
pub(crate) mod collector;
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
mod gone_type;
pub(crate) mod journal;
#[cfg(test)]
mod outcomes;
pub(crate) mod output;
pub(crate) mod plan;
mod probe;
pub(crate) mod recovery;
mod requester;
#[cfg(test)]
mod resident_tests;
pub(crate) mod scope;
#[cfg(test)]
mod situations;
mod sources;
pub(crate) mod stuck;
mod subject;
mod surveyed;
pub(crate) mod target;
pub(crate) mod tree;
pub(crate) mod version;
pub(crate) mod view;
pub(crate) mod why;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gc_explain::stuck::Row;
pub(crate) use gc_inspect::{columns, gather, listable, resident, unanswered};
use gc_kube::ApiClient;
use gc_types::Timestamp;

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
    match crate::screen::stdout().write_all(out) {
        // The reader may have closed the pipe.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
