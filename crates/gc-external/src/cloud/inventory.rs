//! An inventory of all machines, in a file that is maintained elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use gc_collectors::engine::MachineState;
use serde::Deserialize;

use crate::cloud::protocol::API_VERSION;
use crate::cloud::provider_id::canonical;
use crate::cloud::{Machine, Provider, ProviderError};

/// Maximum size of the file, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
const KIND: &str = "MachineInventory";
/// Default maximum age of an inventory.
pub const INVENTORY_MAX_AGE: Duration = Duration::from_mins(15);
/// Maximum lead of the clock that dates the inventory, which may belong to another machine.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

/// Reason why an inventory cannot be used. Until it can, no machine's state is known.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// The file cannot be read.
    #[error("inventory {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The file is larger than any valid inventory.
    #[error("inventory {0}: it is larger than 16 MiB")]
    TooLarge(PathBuf),
    /// The file is not an inventory.
    #[error("inventory {path}: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// The inventory is older than its maximum age: it lacks newer machines.
    #[error(
        "inventory {path}: it was written {age:?} ago, and is too old after {limit:?} (--cloud-inventory-max-age)"
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// Age of the inventory, in whole seconds.
        age: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The inventory is dated in the future, so its age is unknown.
    #[error("inventory {path}: its date is {by:?} in the future")]
    FromTheFuture {
        /// The file.
        path: PathBuf,
        /// Distance in the future, in whole seconds.
        by: Duration,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    /// Number of machines, which detects a truncated file.
    count: usize,
    /// Time at which its machines were listed (RFC 3339); otherwise the modification time of the file counts.
    #[serde(default)]
    date: Option<String>,
    machines: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(rename = "providerID", default)]
    provider_id: String,
    #[serde(default)]
    state: EntryState,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum EntryState {
    #[default]
    Running,
    Shutdown,
}

/// Contents of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InventoryContents {
    pub(crate) date: Option<jiff::Timestamp>,
    /// Machines by canonical provider ID.
    pub(crate) by_provider_id: BTreeMap<String, MachineState>,
    /// Machines by node name, with the provider's name of the machine, which may be empty.
    pub(crate) by_name: BTreeMap<String, (String, MachineState)>,
}

/// Metadata of the file when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    identity: (u64, u64),
}

/// The inventory in a file. Each lookup checks the file, and reads it again if it has changed.
#[derive(Debug)]
pub struct Inventory {
    path: PathBuf,
    max_age: Duration,
    read: Mutex<Option<(Stamp, Arc<InventoryContents>)>>,
}

impl Inventory {
    /// Opens the inventory in this file, which must exist and be valid now. Its maximum age is [`INVENTORY_MAX_AGE`].
    pub fn open(path: PathBuf) -> Result<Self, InventoryError> {
        Self::open_within(path, INVENTORY_MAX_AGE)
    }

    /// Opens it with another maximum age. An inventory that is too old now can be opened, because its exporter may be late.
    pub fn open_within(path: PathBuf, max_age: Duration) -> Result<Self, InventoryError> {
        let inventory = Self { path, max_age, read: Mutex::new(None) };
        inventory.read()?;
        Ok(inventory)
    }

    /// Returns the machines, unless the list is too old.
    fn listed(&self) -> Result<Arc<InventoryContents>, InventoryError> {
        let (stamp, listed) = self.read()?;
        let date = listed.date.map(SystemTime::from).or(stamp.modified).unwrap_or(SystemTime::UNIX_EPOCH);
        let whole = |duration: Duration| Duration::from_secs(duration.as_secs());
        let (path, limit) = (self.path.clone(), self.max_age);
        match SystemTime::now().duration_since(date) {
            Ok(age) if age > limit => Err(InventoryError::TooOld { path, age: whole(age), limit }),
            Err(ahead) if ahead.duration() > CLOCK_SKEW => {
                Err(InventoryError::FromTheFuture { path, by: whole(ahead.duration()) })
            }
            _ => Ok(listed),
        }
    }

    fn read(&self) -> Result<(Stamp, Arc<InventoryContents>), InventoryError> {
        let unreadable = |error| InventoryError::Unreadable { path: self.path.clone(), error };
        let metadata = std::fs::metadata(&self.path).map_err(unreadable)?;
        let stamp = Stamp {
            modified: metadata.modified().ok(),
            bytes: metadata.len(),
            identity: gc_host::file_identity(&metadata),
        };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, listed)) = &*read
            && *known == stamp
        {
            return Ok((stamp, Arc::clone(listed)));
        }
        if stamp.bytes > MAX_FILE_BYTES {
            return Err(InventoryError::TooLarge(self.path.clone()));
        }
        let text = std::fs::read_to_string(&self.path).map_err(unreadable)?;
        let listed =
            parse(&text).map_err(|why| InventoryError::Malformed { path: self.path.clone(), why })?;
        let listed = Arc::new(listed);
        *read = Some((stamp, Arc::clone(&listed)));
        Ok((stamp, listed))
    }
}

pub(crate) fn parse(text: &str) -> Result<InventoryContents, String> {
    let document: Document =
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
    let Document { api_version, kind, count, date, machines } = document;
    if api_version != API_VERSION || kind != KIND {
        return Err(format!("expected {API_VERSION} {KIND}, found {api_version} {kind}"));
    }
    if count != machines.len() {
        return Err(format!("count says {count}, and {} machines are listed", machines.len()));
    }
    if machines.is_empty() {
        return Err("it lists no machines; an empty inventory is considered a mistake".to_owned());
    }
    let date = date.map(|text| {
        text.parse::<jiff::Timestamp>()
            .map_err(|_| format!("date {text:?} is not a time such as 2026-11-28T14:00:00Z"))
    });
    let mut listed = InventoryContents { date: date.transpose()?, ..InventoryContents::default() };
    for Entry { name, provider_id, state } in machines {
        let state = match state {
            EntryState::Running => MachineState::Running,
            EntryState::Shutdown => MachineState::Shutdown,
        };
        if name.is_empty() {
            return Err("a machine has no name".to_owned());
        }
        let id = canonical(&provider_id);
        if !provider_id.is_empty() && listed.by_provider_id.insert(id, state).is_some() {
            return Err(format!("providerID {provider_id:?} is listed twice"));
        }
        if listed.by_name.insert(name.clone(), (provider_id, state)).is_some() {
            return Err(format!("machine {name:?} is listed twice"));
        }
    }
    Ok(listed)
}

/// Searches by the provider's name if both have one, and by the node's name otherwise.
fn find(listed: &InventoryContents, machine: &Machine) -> MachineState {
    if let Some(state) = listed.by_provider_id.get(&canonical(&machine.provider_id)) {
        return *state;
    }
    match listed.by_name.get(&machine.node) {
        Some((id, state)) if id.is_empty() || machine.provider_id.is_empty() => *state,
        // Another machine has the name now.
        Some(_) | None => MachineState::Absent,
    }
}

impl Provider for Inventory {
    fn look_up(&self, machine: Machine) -> BoxFuture<'_, Result<MachineState, ProviderError>> {
        Box::pin(async move { Ok(find(&*self.listed()?, &machine)) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const GOOD: &str = "
apiVersion: kubegc.io/v1alpha1
kind: MachineInventory
count: 4
date: 2026-11-28T14:00:00Z
machines:
- {name: a, providerID: 'rack://1'}
- {name: b, providerID: 'rack://2', state: Shutdown}
- {name: c}
- {name: e, providerID: 'azure:///subscriptions/S/resourceGroups/MC_rg/vm'}
";

    #[test]
    fn machines_are_found_by_the_providers_name_first() {
        let listed = parse(GOOD).unwrap();
        for (node, id, expected) in [
            ("a", "rack://1", MachineState::Running),
            ("renamed", "rack://1", MachineState::Running),
            ("b", "rack://2", MachineState::Shutdown),
            ("b", "", MachineState::Shutdown),
            ("c", "", MachineState::Running),
            ("c", "rack://9", MachineState::Running),
            ("a", "rack://9", MachineState::Absent),
            ("d", "", MachineState::Absent),
            ("d", "rack://9", MachineState::Absent),
            ("renamed", "azure:///subscriptions/s/resourcegroups/mc_rg/vm", MachineState::Running),
        ] {
            let machine = Machine { node: node.into(), provider_id: id.into() };
            assert_eq!(find(&listed, &machine), expected, "{node} {id}");
        }
    }

    #[test]
    fn what_is_no_inventory_says_why() {
        for (text, expected) in [
            (String::new(), "unexpected end of input at line 1, column 1"),
            (GOOD.replace("count: 4", "count: 5"), "count says 5, and 4 machines are listed"),
            (GOOD.replace("- {name: c}\n", ""), "count says 4, and 3 machines are listed"),
            (GOOD.replace("name: c", "name: a"), "machine \"a\" is listed twice"),
            (GOOD.replace("rack://2", "rack://1"), "providerID \"rack://1\" is listed twice"),
            (GOOD.replace("Shutdown", "Off"), "unknown variant `Off`"),
            (GOOD.replace("Inventory", "List"), "expected kubegc.io/v1alpha1 MachineInventory"),
            (GOOD.replace("count", "total"), "unknown field `total`"),
            (GOOD.replace("2026-11-28T", "yesterday "), "date \"yesterday 14:00:00Z\" is not a time"),
            (GOOD.replace("rack://2", "AZURE:///subscriptions/S/resourceGroups/mc_RG/VM"), "is listed twice"),
            (GOOD.replace("name: c", "name: ''"), "a machine has no name"),
            (
                "apiVersion: kubegc.io/v1alpha1\nkind: MachineInventory\ncount: 0\nmachines: []".into(),
                "it lists no machines",
            ),
            ("{".into(), "unclosed bracket '{' at line 1, column 1"),
        ] {
            let why = parse(&text).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
