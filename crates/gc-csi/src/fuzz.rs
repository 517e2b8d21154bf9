//! Laws about the answers of drivers and their endpoints, as bodies of fuzz targets (`fuzz/` at the root), which also
//! run as tests.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use prost::Message;

use crate::DriverEndpoint;
use crate::client::shortened;
use crate::protocol;

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

/// Answers of a driver: reading, writing and reading again gives the same, and its texts fit into a message.
pub fn csi_answer(data: &[u8]) {
    fn again<M: Message + Default + PartialEq + std::fmt::Debug>(data: &[u8]) -> Option<M> {
        let message = M::decode(data).ok()?;
        assert_eq!(M::decode(message.encode_to_vec().as_slice()).as_ref(), Ok(&message));
        Some(message)
    }
    again::<protocol::GetPluginCapabilitiesResponse>(data);
    again::<protocol::ControllerGetCapabilitiesResponse>(data);
    again::<protocol::ProbeResponse>(data);
    if let Some(info) = again::<protocol::GetPluginInfoResponse>(data) {
        let said = shortened(&info.name);
        assert!(!said.contains(char::is_control) && said.chars().count() <= info.name.chars().count());
    }
}

/// A driver and its socket print as a text of the same two.
pub fn csi_endpoint(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(endpoint) = DriverEndpoint::parse(text) {
        let again = DriverEndpoint::parse(&format!("{}={endpoint}", endpoint.driver()));
        assert_eq!(again.as_ref(), Ok(&endpoint));
        assert!(endpoint.path().is_absolute());
    }
}

#[cfg(test)]
replay::replay_tests!(csi_answer, csi_endpoint);
