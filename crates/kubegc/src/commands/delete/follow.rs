//! Follows the deletion after `kubegc delete` has sent its requests, until everything is gone or no deletion makes progress.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use gc_explain::plan::{BlastRadius, Fate, Item};
use gc_explain::stuck::Row;
use gc_explain::text::{count, some_of, thousands};
use gc_inspect::gather::{self, Gatherer, Scope};
use gc_inspect::sources::JournalFlags;
use gc_inspect::stuck;
use gc_process::access::Access;
use gc_types::Uid;
use tokio::time::Instant;

use crate::commands::PlanWouldGetStuck;

/// Interval between two checks.
const PAUSE: Duration = Duration::from_millis(500);
/// Time without progress before the first search for a cause. It is short because the server refuses a deletion at once.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);
/// Time without progress before each further search for a cause.
const STALL_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of objects, or causes, named once deletions make no progress.
const NAMED: usize = 5;

/// Follows a deletion until every object to be deleted is gone or stuck, or until Ctrl-C.
pub(crate) async fn follow(
    gatherer: &Gatherer,
    radius: &BlastRadius,
    access: &Access,
    patience: Duration,
) -> anyhow::Result<()> {
    let mut out = gc_process::screen::stdout();
    let mut left: Vec<&Item> = radius.items.iter().filter(|item| item.fate != Fate::Released).collect();
    let (all, begun) = (left.len(), Instant::now());
    let (mut reported, mut asked, mut stall) = (usize::MAX, begun, FIRST_PATIENCE);
    loop {
        left = remaining(gatherer, left).await;
        let Some(next) = left.first().copied() else {
            writeln!(out, "{} deleted in {:.1} s.", count(all, "object"), begun.elapsed().as_secs_f64())?;
            return Ok(());
        };
        if left.len() != reported {
            (reported, asked) = (left.len(), Instant::now());
            let (gone, estimate) = (all - reported, estimate(begun.elapsed(), all - reported, reported));
            let (gone, all) = (thousands(gone), thousands(all));
            writeln!(out, "{gone} of {all} gone{estimate}; next: {}", next.title())?;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = tokio::signal::ctrl_c() => {
                let left = count(left.len(), "object");
                writeln!(out, "Stopped following; the deletion of {left} continues in the cluster.")?;
                return Ok(());
            }
        }
        if left.iter().all(|item| item.fate == Fate::Stuck) {
            let titles: Vec<String> = left.iter().map(|item| item.title()).collect();
            writeln!(out, "Stuck: {}; `kubegc stuck` explains why.", some_of(&titles, NAMED))?;
            return Err(PlanWouldGetStuck.into());
        }
        if asked.elapsed() >= stall {
            (asked, stall) = (Instant::now(), STALL_PATIENCE);
            if let Some(causes) = causes(gatherer, &left, access, patience).await {
                writeln!(out, "Stuck: {causes}; `kubegc stuck` explains why.")?;
                return Err(PlanWouldGetStuck.into());
            }
            let left = count(left.len(), "object");
            writeln!(out, "nothing has gone for a while; {left} left; next: {}", next.title())?;
        }
    }
}

/// Returns the objects that still exist.
async fn remaining<'a>(gatherer: &Gatherer, items: Vec<&'a Item>) -> Vec<&'a Item> {
    let mut still = Vec::new();
    for item in items {
        if gatherer.is_there(&item.place()).await {
            still.push(item);
        }
    }
    still
}

/// Estimates the remaining time from the progress so far; `None` before the first object is gone.
fn estimate(elapsed: Duration, gone: usize, left: usize) -> String {
    if gone == 0 {
        return String::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let seconds = elapsed.as_secs_f64() / gone as f64 * left as f64;
    format!(", about {:.0} s to go", seconds.max(1.0))
}

/// Returns the causes that block these objects, if every object has a known cause.
async fn causes(gatherer: &Gatherer, left: &[&Item], access: &Access, patience: Duration) -> Option<String> {
    let client = gatherer.client();
    // A user with permissions in only one namespace cannot list the others.
    let namespace = left.first().map(|item| item.namespace.to_string()).unwrap_or_default();
    let is_one = left.iter().all(|item| *item.namespace == *namespace);
    let scope = Scope { namespace: if is_one { namespace } else { String::new() }, ..Scope::default() };
    let refused = stuck::refusals(&JournalFlags::default(), access, client).await;
    // A failed request is repeated after the next interval.
    let present = Gatherer::new(client.clone(), gather::clock(client).await).await.ok()?;
    let present = present.knowing_refusals(refused.clone());
    let rows = stuck::ask(&present, &scope, patience).await.ok()?.rows;
    all_held(left, &rows, &refused.into_iter().map(|(uid, _)| uid).collect())
}

/// Returns the causes that block these objects, if each is blocked by one, or is part of one because the server refused to delete
/// it.
fn all_held(left: &[&Item], rows: &[Row], refused: &BTreeSet<Uid>) -> Option<String> {
    let holds = |row: &Row, item: &Item| row.places().any(|place| place.uid == item.uid.to_string());
    let is_held = |item: &Item| rows.iter().any(|row| holds(row, item));
    if !left.iter().any(|item| is_held(item))
        || !left.iter().all(|item| is_held(item) || refused.contains(&item.uid))
    {
        return None;
    }
    let rows = rows.iter().filter(|row| left.iter().any(|item| holds(row, item)));
    let named: Vec<String> = rows
        .map(|row| {
            let first = row.objects.first().map(|(place, _)| place.title()).unwrap_or_default();
            format!("{first}: {}, {}", row.cause.code.name(), row.cause.message)
        })
        .collect();
    Some(some_of(&named, NAMED))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use gc_explain::plan::ItemKind;
    use gc_explain::stuck::{Cause, Code, Place};

    /// Following ends once every remaining object has a known cause, even one that the plan did not foresee.
    #[test]
    fn what_a_known_cause_holds_is_not_waited_for() {
        let item = |name: &str| Item {
            kind: Arc::new(ItemKind { kind: "PersistentVolume".to_owned(), ..ItemKind::default() }),
            namespace: "".into(),
            name: name.into(),
            uid: Uid::new(name),
            fate: Fate::Deleted,
            remarks: Vec::new(),
            is_terminating: false,
        };
        let place = |name: &str| Place {
            api_version: "v1".to_owned(),
            kind: "PersistentVolume".to_owned(),
            resource: "persistentvolumes".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
            uid: name.to_owned(),
        };
        let row = Row {
            cause: Cause {
                code: Code::StorageNotDeleted,
                subject: "none".to_owned(),
                message: "its storage is not deleted".to_owned(),
                help: Vec::new(),
                force: None,
            },
            since: None,
            objects: vec![(place("a"), None)],
            holders: Vec::new(),
            waiting: Vec::new(),
            other_forces: Vec::new(),
            unlisted_forces: 0,
        };
        let (held, free) = (item("a"), item("b"));
        let why = "PersistentVolume/a: StorageNotDeleted, its storage is not deleted";
        let (nothing, rows) = (BTreeSet::new(), std::slice::from_ref(&row));
        assert_eq!(all_held(&[&held], rows, &nothing).as_deref(), Some(why));
        assert_eq!(all_held(&[&held, &free], rows, &nothing), None);
        // The other objects wait for the one that the server refused to delete.
        let refused = BTreeSet::from([Uid::new("b")]);
        assert_eq!(all_held(&[&held, &free], rows, &refused).as_deref(), Some(why));
        assert_eq!(all_held(&[&free], &[], &refused), None);
    }

    #[test]
    fn the_rest_takes_as_long_as_what_is_gone() {
        assert_eq!(estimate(Duration::from_secs(10), 0, 5), "");
        assert_eq!(estimate(Duration::from_secs(10), 5, 10), ", about 20 s to go");
        assert_eq!(estimate(Duration::from_millis(1), 5, 1), ", about 1 s to go");
    }
}
