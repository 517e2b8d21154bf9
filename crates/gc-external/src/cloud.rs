//! Machine providers, which know whether machines exist: an inventory in a file, a webhook, a command, or EC2. Also contains access
//! to objects in S3, which uses the same signatures.
//!
//! An answer is one of three states or an error, and never a guess: one that is late, too large, malformed, or about another
//! machine is an error. The formats are described in docs/machines.md.

pub(crate) mod aws;
pub(crate) mod client;
mod exec;
pub(crate) mod inventory;
pub(crate) mod protocol;
mod provider_id;
mod webhook;

use std::time::Duration;

use futures::future::BoxFuture;
use gc_collectors::engine::MachineState;

pub use aws::s3::{MAX_OBJECT_BYTES, S3, S3_TIMEOUT, S3Error, S3Options, StoredObject};
pub use aws::{Credentials, Ec2, Ec2Error, Ec2Options};
pub use exec::{Exec, ExecError};
pub use inventory::{INVENTORY_MAX_AGE, Inventory, InventoryError};
pub use protocol::{API_VERSION, AnswerError};
pub use webhook::{Webhook, WebhookError, WebhookOptions};

/// Maximum size of an answer, bytes.
pub const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Default timeout for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The machine to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of its node.
    pub node: String,
    /// `spec.providerID` of its node; empty if it has none.
    pub provider_id: String,
}

/// Reason why the state of a machine is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The inventory cannot be used.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// The webhook gave no valid answer.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The command gave no valid answer.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// EC2 gave no valid answer.
    #[error(transparent)]
    Ec2(#[from] Ec2Error),
}

/// Looks up whether machines exist.
pub trait Provider: Send + Sync + 'static {
    /// Returns the state of a machine. It must end within a bounded time.
    fn look_up(&self, machine: Machine) -> BoxFuture<'_, Result<MachineState, ProviderError>>;
}

/// Shortens a provider's message to its beginning, on one line.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 200;
    text.lines().next().unwrap_or_default().chars().filter(|one| !one.is_control()).take(LONGEST).collect()
}
