//! Shards of a collector: each elects its leader on its own Lease, and all follow the orders on the Lease without a suffix, which has
//! their number.

use std::time::Duration;

use anyhow::bail;
use gc_kube::{ApiClient, Backoff};
use gc_ownership::Shard;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::LeaseName;
use super::control::{self, Held};
use super::orders::Orders;
use crate::preflight;

/// Annotation with the number of shards, as the one that started last knows it.
const SHARDS: &str = "kubegc.io/shards";

/// Pauses between attempts to write the number of shards: they double from the first to the longest, because a missing permission may
/// be missing for good.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Writes the number of shards onto the Lease with the orders, and again whenever that Lease may have been lost or changed, until the
/// task is aborted.
pub async fn keep_announced(
    client: ApiClient,
    lease: LeaseName,
    shard: Shard,
    mut orders: watch::Receiver<Orders>,
) {
    let mut attempts = Attempts::new();
    loop {
        orders.mark_unchanged();
        match announce(&client, &lease, shard).await {
            Ok(()) => {
                attempts.succeeded();
                if orders.changed().await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let Failed { is_news, pause } = attempts.failed(&error);
                if is_news {
                    tracing::warn!("the number of shards cannot be written to the lease: {error:#}");
                }
                if !wait(pause, &mut orders).await {
                    return;
                }
            }
        }
    }
}

/// Waits for this long, or until the orders change: what was refused may be permitted then. Returns false if they have ended.
async fn wait(pause: Duration, orders: &mut watch::Receiver<Orders>) -> bool {
    !matches!(tokio::time::timeout(pause, orders.changed()).await, Ok(Err(_)))
}

/// The attempts to write the number of shards since the last success.
struct Attempts {
    pauses: Backoff,
    last_error: Option<String>,
}

/// Consequences of a failed attempt.
struct Failed {
    /// True if the attempt before did not fail with the same error.
    is_news: bool,
    pause: Duration,
}

impl Attempts {
    fn new() -> Self {
        Self { pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), last_error: None }
    }

    fn succeeded(&mut self) {
        *self = Self::new();
    }

    fn failed(&mut self, error: &anyhow::Error) -> Failed {
        let text = format!("{error:#}");
        let is_news = self.last_error.as_ref() != Some(&text);
        self.last_error = Some(text);
        Failed { is_news, pause: self.pauses.next_delay() }
    }
}

/// Writes the number of shards onto the Lease with the orders, which is created if there is none.
async fn announce(client: &ApiClient, lease: &LeaseName, shard: Shard) -> anyhow::Result<()> {
    control::offer(client, lease).await?;
    let patch = json!({"metadata": {"annotations": {SHARDS: shard.count().to_string()}}});
    let request = preflight::patch(&lease.path(), "application/merge-patch+json", &patch);
    let answer = client.call(request).await?;
    if !answer.head.status.is_success() {
        bail!("patch lease {lease}: {}: {}", answer.head.status.as_u16(), preflight::message(&answer));
    }
    Ok(())
}

/// Returns every shard of the collectors that follow the orders on a Lease; none if they are not divided.
#[must_use]
pub fn of_lease(lease: &Value) -> Vec<Shard> {
    let count = lease["metadata"]["annotations"][SHARDS].as_str().and_then(|text| text.parse::<u32>().ok());
    // A number out of range means nothing.
    let shards = |count| (0..count).map(move |index| Shard::new(index, count)).collect::<Result<Vec<_>, _>>();
    count.filter(|count| *count > 1).and_then(|count| shards(count).ok()).unwrap_or_default()
}

/// Returns the holders of the Leases of these shards, in their order; the default for a Lease that does not exist.
pub async fn holders(client: &ApiClient, lease: &LeaseName, shards: &[Shard]) -> anyhow::Result<Vec<Held>> {
    let mut holders = Vec::new();
    for shard in shards {
        let lease = control::read(client, &lease.of_shard(*shard)).await?;
        holders.push(lease.as_ref().map(Held::of).unwrap_or_default());
    }
    Ok(holders)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn each_shard_has_its_own_lease() {
        let lease = LeaseName { namespace: "n".into(), name: "gc".into() };
        for (shard, expected) in [("0/1", "gc"), ("0/2", "gc-shard-0-of-2"), ("3/16", "gc-shard-3-of-16")] {
            let of_shard = lease.of_shard(shard.parse().unwrap());
            assert_eq!((&*of_shard.namespace, &*of_shard.name), ("n", expected), "{shard}");
        }
    }

    /// Regression test: an attempt that fails for good, as without the permission, was repeated every second, with a warning each time.
    #[test]
    fn an_announcement_that_fails_again_is_tried_less_often_and_reported_once() {
        let (refused, busy) = (anyhow::anyhow!("403: no"), anyhow::anyhow!("429: later"));
        let mut attempts = Attempts::new();
        let news = [&refused, &refused, &busy, &refused].map(|error| attempts.failed(error).is_news);
        assert_eq!(news, [true, false, true, true]);
        let pause = (0..8).map(|_| attempts.failed(&refused).pause).last().unwrap();
        assert!((LONGEST_PAUSE / 2..=LONGEST_PAUSE).contains(&pause), "{pause:?}");
        attempts.succeeded();
        let Failed { is_news, pause } = attempts.failed(&refused);
        assert!(is_news && pause <= FIRST_PAUSE, "{pause:?}");
    }

    /// Regression test: a change of the orders did not end the pause, which lasts up to five minutes.
    #[tokio::test]
    async fn a_change_of_the_orders_ends_a_pause() {
        let (change, mut orders) = watch::channel(Orders::default());
        assert!(wait(Duration::ZERO, &mut orders).await);
        change.send_replace(Orders::default());
        assert!(wait(LONGEST_PAUSE, &mut orders).await);
        drop(change);
        assert!(!wait(LONGEST_PAUSE, &mut orders).await);
    }

    #[test]
    fn the_number_of_shards_is_read_from_the_lease() {
        for (text, expected) in [
            (json!("3"), vec!["0/3", "1/3", "2/3"]),
            (json!("1"), vec![]),
            (json!("0"), vec![]),
            (json!("4294967295"), vec![]),
            (json!("two"), vec![]),
            (json!(2), vec![]),
            (Value::Null, vec![]),
        ] {
            let lease = json!({"metadata": {"annotations": {SHARDS: text}}});
            let found: Vec<String> = of_lease(&lease).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{lease}");
        }
    }
}
