//! Runs several calls concurrently.

use std::future::Future;

use futures::{StreamExt, stream};

/// Processes items with bounded concurrency: a slow item does not delay the start of the next. Items are started in order, and
/// their results are reported in order. `after` is called whenever one has ended.
pub(crate) async fn each<T, O, F: Future<Output = O>>(
    items: impl Iterator<Item = T>,
    at_once: usize,
    work: impl Fn(T) -> F,
    mut after: impl FnMut(),
) -> Vec<O> {
    let mut ended: Vec<(usize, O)> = stream::iter(items.enumerate())
        .map(|(place, item)| {
            let working = work(item);
            async move { (place, working.await) }
        })
        .buffer_unordered(at_once)
        .inspect(|_| after())
        .collect()
        .await;
    ended.sort_by_key(|(place, _)| *place);
    ended.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use tokio::sync::Notify;

    /// The first item ends only when the last has begun: it delays no other, the bound is never exceeded, and the order is kept.
    #[tokio::test]
    async fn a_slow_one_delays_no_other() {
        let (under_way, most, ended) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let (begun, last_begun) = (RefCell::new(Vec::new()), Notify::new());
        let work = |number: u64| {
            let (under_way, most, begun, last_begun) = (&under_way, &most, &begun, &last_begun);
            async move {
                begun.borrow_mut().push(number);
                under_way.set(under_way.get() + 1);
                most.set(most.get().max(under_way.get()));
                match number {
                    0 => last_begun.notified().await,
                    10 => last_begun.notify_one(),
                    _ => tokio::task::yield_now().await,
                }
                under_way.set(under_way.get() - 1);
                number
            }
        };
        let all = each(0..11, 2, work, || ended.set(ended.get() + 1)).await;
        assert_eq!(all, (0..11).collect::<Vec<_>>());
        assert_eq!(*begun.borrow(), all);
        assert_eq!((most.get(), ended.get()), (2, 11));
    }
}
