//! An inventory of all machines, in a file that is maintained elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use futures::future::BoxFuture;
use gc_collectors::engine::MachineState;
use serde::Deserialize;

use crate::cloud::protocol::API_VERSION;
use crate::cloud::{Machine, Provider, ProviderError};

/// Largest file that is read, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
const KIND: &str = "MachineInventory";

/// Why an inventory cannot be used. Until it can, no machine's state is known.
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
    /// The file is larger than any inventory.
    #[error("inventory {0}: it is larger than 16 MiB")]
    TooLarge(PathBuf),
    /// The file is not an inventory.
    #[error("inventory {path}: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    /// The number of machines, which detects a file that was cut off.
    count: usize,
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

/// The contents of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) by_provider_id: BTreeMap<String, MachineState>,
    /// With the provider's name of the machine, which may be empty.
    pub(crate) by_name: BTreeMap<String, (String, MachineState)>,
}

/// The file's metadata when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

/// The inventory in a file. Each lookup checks the file and reads it again if it has changed.
#[derive(Debug)]
pub struct Inventory {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Arc<Listed>)>>,
}

impl Inventory {
    /// The inventory in this file, which must exist and be valid now.
    pub fn open(path: PathBuf) -> Result<Self, InventoryError> {
        let inventory = Self { path, read: Mutex::new(None) };
        inventory.listed()?;
        Ok(inventory)
    }

    fn listed(&self) -> Result<Arc<Listed>, InventoryError> {
        use std::os::unix::fs::MetadataExt as _;
        let unreadable = |error| InventoryError::Unreadable { path: self.path.clone(), error };
        let metadata = std::fs::metadata(&self.path).map_err(unreadable)?;
        let stamp =
            Stamp { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino() };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, listed)) = &*read
            && *known == stamp
        {
            return Ok(Arc::clone(listed));
        }
        if stamp.bytes > MAX_FILE_BYTES {
            return Err(InventoryError::TooLarge(self.path.clone()));
        }
        let text = std::fs::read_to_string(&self.path).map_err(unreadable)?;
        let listed =
            parse(&text).map_err(|why| InventoryError::Malformed { path: self.path.clone(), why })?;
        let listed = Arc::new(listed);
        *read = Some((stamp, Arc::clone(&listed)));
        Ok(listed)
    }
}

pub(crate) fn parse(text: &str) -> Result<Listed, String> {
    let document: Document =
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
    let Document { api_version, kind, count, machines } = document;
    if api_version != API_VERSION || kind != KIND {
        return Err(format!("expected {API_VERSION} {KIND}, found {api_version} {kind}"));
    }
    if count != machines.len() {
        return Err(format!("count says {count}, and {} machines are listed", machines.len()));
    }
    if machines.is_empty() {
        return Err("it lists no machines; an empty inventory is considered a mistake".to_owned());
    }
    let mut listed = Listed::default();
    for Entry { name, provider_id, state } in machines {
        let state = match state {
            EntryState::Running => MachineState::Running,
            EntryState::Shutdown => MachineState::Shutdown,
        };
        if name.is_empty() {
            return Err("a machine has no name".to_owned());
        }
        if !provider_id.is_empty() && listed.by_provider_id.insert(provider_id.clone(), state).is_some() {
            return Err(format!("providerID {provider_id:?} is listed twice"));
        }
        if listed.by_name.insert(name.clone(), (provider_id, state)).is_some() {
            return Err(format!("machine {name:?} is listed twice"));
        }
    }
    Ok(listed)
}

/// By the provider's name, if both have one; by the node's name otherwise.
fn find(listed: &Listed, machine: &Machine) -> MachineState {
    if let Some(state) = listed.by_provider_id.get(&machine.provider_id) {
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
count: 3
machines:
- {name: a, providerID: 'rack://1'}
- {name: b, providerID: 'rack://2', state: Shutdown}
- {name: c}
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
        ] {
            let machine = Machine { node: node.into(), provider_id: id.into() };
            assert_eq!(find(&listed, &machine), expected, "{node} {id}");
        }
    }

    #[test]
    fn what_is_no_inventory_says_why() {
        for (text, expected) in [
            (String::new(), "unexpected end of input at line 1, column 1"),
            (GOOD.replace("count: 3", "count: 4"), "count says 4, and 3 machines are listed"),
            (GOOD.replace("- {name: c}\n", ""), "count says 3, and 2 machines are listed"),
            (GOOD.replace("name: c", "name: a"), "machine \"a\" is listed twice"),
            (GOOD.replace("rack://2", "rack://1"), "providerID \"rack://1\" is listed twice"),
            (GOOD.replace("Shutdown", "Off"), "unknown variant `Off`"),
            (GOOD.replace("Inventory", "List"), "expected kubegc.io/v1alpha1 MachineInventory"),
            (GOOD.replace("count", "total"), "unknown field `total`"),
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
