//! Measures large collections in the background, and counts their changes.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gc_registry::Registry;
use gc_registry::object::TypeMeta;
use gc_registry::storage::{Blocking, RangeOptions, StorageError};
use tokio::task::JoinHandle;

use crate::encode::list_lengths::{CountedForm, ListLengths, Totals};
use crate::encode::list_protobuf::ProtobufItems;

/// Number of objects that are measured at once.
const PAGE: usize = 1000;
/// Pause before the changes of the store are followed again after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Stops the measurement when its task ends: the measurement runs on a thread that the server waits for when it stops.
struct EndGuard(Arc<AtomicBool>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps the lengths up to date for as long as the server lives. Does nothing for a store in another process, which would have to
/// send all of its objects.
pub(crate) async fn follow(registry: Arc<Registry>, lengths: Arc<ListLengths>) {
    if registry.blocks() == Blocking::Always {
        return;
    }
    loop {
        match open(&registry, &lengths) {
            Ok(()) => keep(&registry, &lengths).await,
            Err(error) => tracing::warn!(%error, "changes cannot be followed for the lengths of lists"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn open(registry: &Registry, lengths: &ListLengths) -> Result<(), StorageError> {
    let newest = registry.newest()?;
    let stream = registry.stored_changes(newest)?;
    lengths.open(stream, newest, registry.stored_collections().into_keys());
    Ok(())
}

/// Counts changes, and measures one collection after the other, until the stream of changes ends.
async fn keep(registry: &Arc<Registry>, lengths: &Arc<ListLengths>) {
    let is_over = EndGuard(Arc::default());
    let mut measuring: Option<JoinHandle<()>> = None;
    std::future::poll_fn(|context| {
        loop {
            if let Some(running) = &mut measuring {
                if Pin::new(running).poll(context).is_pending() {
                    break;
                }
                measuring = None;
            }
            let Some(prefix) = lengths.next_large() else { break };
            let (registry, lengths, is_over) =
                (Arc::clone(registry), Arc::clone(lengths), Arc::clone(&is_over.0));
            measuring = Some(tokio::task::spawn_blocking(move || {
                measure(&registry, &lengths, &prefix, &is_over);
            }));
        }
        lengths.poll_changes(context)
    })
    .await;
    if let Some(running) = measuring {
        drop(is_over);
        // A failed measurement ends here as well.
        let _ = running.await;
    }
}

fn measure(registry: &Registry, lengths: &ListLengths, prefix: &str, is_over: &AtomicBool) {
    let forms: Arc<[CountedForm]> = forms(registry, prefix).into();
    let Some(revision) = lengths.begin(prefix, Arc::clone(&forms)) else { return };
    let _hold = registry.hold(revision);
    let mut totals = Totals::new(forms);
    let mut range = RangeOptions { at: Some(revision), limit: PAGE, skips_count: true, after: None };
    let measured = loop {
        let begun = Instant::now();
        if is_over.load(Ordering::Relaxed) {
            break None;
        }
        let page = match registry.stored_objects(prefix, &range) {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!(%error, prefix, "a collection could not be measured");
                break None;
            }
        };
        totals.add_objects(prefix, &page.items);
        range.after = page.items.last().map(|item| Arc::clone(&item.key));
        if !page.more {
            break Some(totals);
        }
        // Requests take precedence: the thread pauses for as long as it has worked.
        std::thread::sleep(begun.elapsed());
    };
    lengths.complete(prefix, measured);
}

/// Returns the forms in which the objects of a collection are listed in protobuf.
fn forms(registry: &Registry, prefix: &str) -> Vec<CountedForm> {
    let resources = registry.stored_collections().remove(prefix).unwrap_or_default();
    let mut forms = Vec::new();
    for resource in resources {
        let api_version = resource.api_version();
        let type_meta =
            Arc::new(TypeMeta { api_version: api_version.as_str().into(), kind: Arc::clone(&resource.kind) });
        if forms.is_empty() {
            forms.push(CountedForm::new(ProtobufItems::metadata(), Arc::clone(&type_meta)));
        }
        if let Ok(items) = ProtobufItems::of_kind(&api_version, &resource.kind) {
            forms.push(CountedForm::new(items, type_meta));
        }
    }
    forms
}

#[cfg(test)]
mod tests;
