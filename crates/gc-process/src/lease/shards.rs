//! Shards of a collector: each elects its leader on its own Lease, and all follow the orders on the Lease without a suffix, which has
//! their number.

use std::time::Duration;

use anyhow::bail;
use gc_kube::ApiClient;
use gc_ownership::Shard;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::LeaseName;
use super::control::{self, Held};
use super::orders::Orders;
use crate::preflight;

/// Annotation with the number of shards, as the one that started last knows it.
const SHARDS: &str = "kubegc.io/shards";

/// Pause between attempts to write the number of shards.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes the number of shards onto the Lease with the orders, and again whenever that Lease may have been lost or changed, until the
/// task is aborted.
pub async fn keep_announced(
    client: ApiClient,
    lease: LeaseName,
    shard: Shard,
    mut orders: watch::Receiver<Orders>,
) {
    loop {
        orders.mark_unchanged();
        match announce(&client, &lease, shard).await {
            Ok(()) if orders.changed().await.is_err() => return,
            Ok(()) => {}
            Err(error) => {
                tracing::warn!("the number of shards cannot be written to the lease: {error:#}");
                tokio::time::sleep(PAUSE).await;
            }
        }
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
