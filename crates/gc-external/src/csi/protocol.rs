//! Messages of CSI v1 (`csi.v1`), as far as this client reads and writes them. Written by hand from the published protocol, with
//! its field numbers; fields that no decision needs are skipped while decoding.

use std::collections::HashMap;
use std::fmt;

use prost::Message;

/// Declares messages briefly: `Name { field: type = "prost attributes" }`.
macro_rules! messages {
    ($($name:ident { $(#[$attribute:meta] $field:ident: $type:ty,)* })*) => {$(
        #[derive(Clone, PartialEq, Message)]
        pub(crate) struct $name { $(#[$attribute] pub(crate) $field: $type,)* }
    )*};
}

messages! {
    Empty {}
    GetPluginInfoResponse {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "2")] vendor_version: String,
    }
    GetPluginCapabilitiesResponse { #[prost(message, repeated, tag = "1")] capabilities: Vec<PluginCapability>, }
    PluginCapability { #[prost(message, optional, tag = "1")] service: Option<Capability>, }
    Capability { #[prost(int32, tag = "1")] r#type: i32, }
    ProbeResponse { #[prost(message, optional, tag = "1")] ready: Option<BoolValue>, }
    BoolValue { #[prost(bool, tag = "1")] value: bool, }
    ControllerGetCapabilitiesResponse {
        #[prost(message, repeated, tag = "1")] capabilities: Vec<ControllerServiceCapability>,
    }
    ControllerServiceCapability { #[prost(message, optional, tag = "1")] rpc: Option<Capability>, }
    ListVolumesRequest {
        #[prost(int32, tag = "1")] max_entries: i32,
        #[prost(string, tag = "2")] starting_token: String,
    }
    ListVolumesResponse {
        #[prost(message, repeated, tag = "1")] entries: Vec<ListedEntry>,
        #[prost(string, tag = "2")] next_token: String,
    }
    ListedEntry {
        #[prost(message, optional, tag = "1")] volume: Option<Volume>,
        #[prost(message, optional, tag = "2")] status: Option<VolumeStatus>,
    }
    Volume {
        #[prost(int64, tag = "1")] capacity_bytes: i64,
        #[prost(string, tag = "2")] volume_id: String,
    }
    VolumeStatus { #[prost(string, repeated, tag = "1")] published_node_ids: Vec<String>, }
}

/// `PluginCapability.Service.Type.CONTROLLER_SERVICE`
pub(crate) const CONTROLLER_SERVICE: i32 = 1;
/// `ControllerServiceCapability.RPC.Type.CREATE_DELETE_VOLUME`
pub(crate) const CREATE_DELETE_VOLUME: i32 = 1;

/// `ControllerServiceCapability.RPC.Type.LIST_VOLUMES`
pub(crate) const LIST_VOLUMES: i32 = 3;

/// The only request with secrets, which its debug output hides.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct DeleteVolumeRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) secrets: HashMap<String, String>,
}

impl fmt::Debug for DeleteVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeleteVolumeRequest").field("volume_id", &self.volume_id).finish_non_exhaustive()
    }
}
