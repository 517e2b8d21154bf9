//! `kubegc delete`: deletes objects after showing the plan, and follows the deletion to its end.

mod follow;

use std::io::Write as _;

use clap::Args;
use gc_explain::plan::Target;
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::Output;
use gc_inspect::plan::{self, Cascade};
use gc_inspect::target::{NamedObject, Partial, Targets};
use gc_inspect::unanswered::NotDeleted;
use gc_kube::ApiClient;
use gc_process::access::Access;
use gc_process::tasks::block_on;
use gc_process::{UsageError, screen};

use super::{NotAgreed, PlanWouldGetStuck, agreement};

/// Options of `kubegc delete`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc delete deploy/web        show the plan, ask, delete, and follow the deletion to its end
  kubegc delete ns/shop --yes     delete without asking

Always asks before it deletes, however little that is; without a terminal to ask on, it deletes nothing unless --yes is given.
Exit codes: 0, everything is gone; 1, it failed, or the answer was no; 2, wrong flags, or no --yes without a terminal; 3, part of it was refused or is stuck.")]
pub(crate) struct DeleteOptions {
    #[command(flatten)]
    targets: Targets,
    /// Select the deletion policy for dependents
    #[arg(long, value_enum, default_value_t = Cascade::Background)]
    cascade: Cascade,
    /// Delete without asking; required without a terminal
    #[arg(short, long)]
    yes: bool,
    /// kubectl's; here it is another command.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// `kubegc delete`
pub(crate) fn run(options: &DeleteOptions) -> anyhow::Result<()> {
    if options.dry_run.is_some() {
        let what = "delete --dry-run: `kubegc plan delete` with the same objects shows what would be deleted";
        return Err(UsageError::new(what).into());
    }
    let patience = options.access.patience()?;
    block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::clock(&client).await).await?;
        let Partial { found: named, failures } = options.targets.resolve(&gatherer).await?;
        let mut planning = plan::ask(&gatherer, named, options.cascade.policy(), patience).await?;
        planning.show(false, &Output::Text)?;
        planning.failures.splice(..0, failures);
        if planning.targets.is_empty() {
            return gather::fail(planning.failures);
        }
        if !options.yes && !agreement::is_agreed("Delete?")? {
            writeln!(screen::stdout(), "Nothing was deleted.")?;
            gather::fail(planning.failures)?;
            return Err(NotAgreed.into());
        }
        let unsent = send_all(&client, &planning.targets, options.cascade).await?;
        if !unsent.is_empty() && unsent.len() < planning.targets.len() {
            writeln!(screen::stdout(), "Not followed: not everything that was planned is being deleted.")?;
        }
        let is_refused = |error: &anyhow::Error| error.downcast_ref().is_some_and(NotDeleted::is_refused);
        let ended = if unsent.is_empty() {
            follow::follow(&gatherer, &planning.radius, &options.access, patience).await
        } else if unsent.iter().all(is_refused) && planning.failures.is_empty() {
            for error in &unsent {
                screen::complain!("error: {error:#}");
            }
            return Err(PlanWouldGetStuck.into());
        } else {
            Ok(())
        };
        planning.failures.extend(unsent);
        gather::fail(planning.failures)?;
        ended
    })
}

/// Sends the deletions. Returns the errors of those that were not accepted.
async fn send_all(
    client: &ApiClient,
    targets: &[(NamedObject, Target)],
    cascade: Cascade,
) -> anyhow::Result<Vec<anyhow::Error>> {
    let mut failures = Vec::new();
    for (named, target) in targets {
        let is_sent = match plan::send(client, named, target, cascade).await {
            Ok(()) => true,
            // Deleting another of the objects may have deleted this one as well.
            Err(error) if error.downcast_ref::<NotDeleted>().is_some_and(NotDeleted::is_gone) => false,
            Err(error) => {
                failures.push(error);
                continue;
            }
        };
        let ending = if is_sent { "is being deleted" } else { "is gone already" };
        writeln!(screen::stdout(), "{}/{} {ending}.", named.resource.name, named.name)?;
    }
    Ok(failures)
}
