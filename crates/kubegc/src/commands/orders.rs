//! The Lease that `kubegc pause` and `kubegc resume` write their orders to.

use clap::Args;
use gc_kube::ApiClient;
use gc_process::access::Access;
use gc_process::lease::control::Held;
use gc_process::lease::orders::Orders;
use gc_process::lease::{LeaseFlags, LeaseName, control, shards};
use gc_process::tasks::block_on;
use gc_process::{preflight, screen};

/// Which Lease, on which cluster.
#[derive(Clone, Debug, Args)]
pub(super) struct Target {
    #[command(flatten)]
    lease: LeaseFlags,
    #[command(flatten)]
    access: Access,
}

impl Target {
    /// Changes the orders. Returns the Lease, and the orders before the change. Fails if a collector has to obey them, and none
    /// does.
    pub(super) fn edit(
        &self,
        needs_collector: bool,
        change: impl Fn(&mut Orders),
    ) -> anyhow::Result<(LeaseName, Orders)> {
        let lease = self.lease.name();
        let before = block_on(async {
            let client = self.access.connect().await?;
            if needs_collector && !is_obeyed(&client, &lease).await? {
                let LeaseName { namespace, name } = &lease;
                anyhow::bail!(
                    "nothing is paused: no collector holds the Lease {namespace}/{name}, and this server runs none. \
                     Name another Lease with --leader-elect-resource-name, or use --beforehand for a collector that \
                     starts later or runs without leader election"
                );
            }
            anyhow::Ok(control::edit(&client, &lease, change).await?.0)
        });
        Ok((lease, before?))
    }
}

/// Reports whether a collector obeys a Lease: one holds it, or that of one of its shards, or it is the default Lease and the server
/// is `kubegc up`.
async fn is_obeyed(client: &ApiClient, lease: &LeaseName) -> anyhow::Result<bool> {
    let present = control::read(client, lease).await?.unwrap_or_default();
    let of_shards = shards::of_lease(&present);
    let mut holders = match shards::holders(client, lease, &of_shards).await {
        Ok(holders) => holders,
        // The order is on the Lease that this user may write, and shards have announced that they follow it.
        Err(error) => {
            screen::complain!("warning: which shards lead is not known: {error:#}");
            return Ok(true);
        }
    };
    holders.push(Held::of(&present));
    let is_held = holders.iter().any(|held| !held.holder.is_empty());
    Ok(is_held || (*lease == LeaseFlags::default_name() && preflight::has_collectors(client).await))
}
