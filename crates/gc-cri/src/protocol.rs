//! Messages of CRI v1 (`runtime.v1`), as far as this client reads and writes them.
//!
//! Written by hand from the published protocol, with its field numbers; fields that no decision needs are left out, and skipped
//! while decoding. Therefore no protocol compiler is needed, and a list of a hundred thousand containers costs only the fields that
//! are read.

use std::collections::HashMap;

use prost::{Enumeration, Message};

/// Declares messages briefly: `Name { field: type = "prost attributes" }`.
macro_rules! messages {
    ($($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $field_doc:literal])* #[$attribute:meta] $field:ident: $type:ty,)* })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, PartialEq, Message)]
        pub(crate) struct $name { $($(#[doc = $field_doc])* #[$attribute] pub(crate) $field: $type,)* }
    )*};
}

messages! {
    VersionRequest { #[prost(string, tag = "1")] version: String, }
    VersionResponse {
        #[prost(string, tag = "1")] version: String,
        #[prost(string, tag = "2")] runtime_name: String,
        #[prost(string, tag = "3")] runtime_version: String,
        #[prost(string, tag = "4")] runtime_api_version: String,
    }
    StatusRequest { #[prost(bool, tag = "1")] verbose: bool, }
    StatusResponse { #[prost(message, optional, tag = "1")] status: Option<RuntimeStatus>, }
    RuntimeStatus { #[prost(message, repeated, tag = "1")] conditions: Vec<RuntimeCondition>, }
    RuntimeCondition {
        #[prost(string, tag = "1")] r#type: String,
        #[prost(bool, tag = "2")] status: bool,
        #[prost(string, tag = "3")] reason: String,
        #[prost(string, tag = "4")] message: String,
    }
    ImageSpec {
        #[prost(string, tag = "1")] image: String,
        #[prost(string, tag = "18")] user_specified_image: String,
        #[prost(string, tag = "19")] runtime_handler: String,
        #[prost(string, tag = "20")] image_ref: String,
    }
    Image {
        #[prost(string, tag = "1")] id: String,
        #[prost(string, repeated, tag = "2")] repo_tags: Vec<String>,
        #[prost(string, repeated, tag = "3")] repo_digests: Vec<String>,
        #[prost(uint64, tag = "4")] size: u64,
        #[prost(message, optional, tag = "7")] spec: Option<ImageSpec>,
        #[prost(bool, tag = "8")] pinned: bool,
    }
    /// Also the unfiltered request of `StreamImages`.
    ListImagesRequest {}
    /// Also one message of `StreamImages`.
    ListImagesResponse { #[prost(message, repeated, tag = "1")] images: Vec<Image>, }
    ImageStatusRequest {
        #[prost(message, optional, tag = "1")] image: Option<ImageSpec>,
        #[prost(bool, tag = "2")] verbose: bool,
    }
    ImageStatusResponse {
        #[prost(message, optional, tag = "1")] image: Option<Image>,
        #[prost(map = "string, string", tag = "2")] info: HashMap<String, String>,
    }
    RemoveImageRequest { #[prost(message, optional, tag = "1")] image: Option<ImageSpec>, }
    ImageFsInfoResponse {
        #[prost(message, repeated, tag = "1")] image_filesystems: Vec<FilesystemUsage>,
        #[prost(message, repeated, tag = "2")] container_filesystems: Vec<FilesystemUsage>,
    }
    FilesystemUsage { #[prost(message, optional, tag = "2")] fs_id: Option<FilesystemIdentifier>, }
    FilesystemIdentifier { #[prost(string, tag = "1")] mountpoint: String, }
    ContainerFilter {
        #[prost(message, optional, tag = "2")] state: Option<StateValue>,
        #[prost(string, tag = "3")] pod_sandbox_id: String,
    }
    PodSandboxFilter { #[prost(message, optional, tag = "2")] state: Option<StateValue>, }
    StateValue { #[prost(int32, tag = "1")] state: i32, }
    /// Also the request of `StreamContainers`.
    ListContainersRequest { #[prost(message, optional, tag = "1")] filter: Option<ContainerFilter>, }
    /// Also one message of `StreamContainers`.
    ListContainersResponse { #[prost(message, repeated, tag = "1")] containers: Vec<Container>, }
    ContainerMetadata {
        #[prost(string, tag = "1")] name: String,
        #[prost(uint32, tag = "2")] attempt: u32,
    }
    Container {
        #[prost(string, tag = "1")] id: String,
        #[prost(string, tag = "2")] pod_sandbox_id: String,
        #[prost(message, optional, tag = "3")] metadata: Option<ContainerMetadata>,
        #[prost(message, optional, tag = "4")] image: Option<ImageSpec>,
        #[prost(string, tag = "5")] image_ref: String,
        #[prost(enumeration = "ContainerState", tag = "6")] state: i32,
        #[prost(int64, tag = "7")] created_at: i64,
        #[prost(map = "string, string", tag = "8")] labels: HashMap<String, String>,
        #[prost(string, tag = "10")] image_id: String,
    }
    ContainerStatusRequest { #[prost(string, tag = "1")] container_id: String, }
    ContainerStatusResponse { #[prost(message, optional, tag = "1")] status: Option<ContainerStatus>, }
    ContainerStatus {
        #[prost(string, tag = "1")] id: String,
        #[prost(enumeration = "ContainerState", tag = "3")] state: i32,
        #[prost(message, optional, tag = "8")] image: Option<ImageSpec>,
        #[prost(string, tag = "9")] image_ref: String,
        #[prost(map = "string, string", tag = "12")] labels: HashMap<String, String>,
        #[prost(map = "string, string", tag = "13")] annotations: HashMap<String, String>,
        #[prost(message, repeated, tag = "14")] mounts: Vec<Mount>,
        #[prost(string, tag = "15")] log_path: String,
        #[prost(string, tag = "17")] image_id: String,
    }
    Mount { #[prost(message, optional, tag = "9")] image: Option<ImageSpec>, }
    StopContainerRequest {
        #[prost(string, tag = "1")] container_id: String,
        #[prost(int64, tag = "2")] timeout: i64,
    }
    RemoveContainerRequest { #[prost(string, tag = "1")] container_id: String, }
    /// Also the request of `StreamPodSandboxes`.
    ListPodSandboxRequest { #[prost(message, optional, tag = "1")] filter: Option<PodSandboxFilter>, }
    /// Also one message of `StreamPodSandboxes`.
    ListPodSandboxResponse { #[prost(message, repeated, tag = "1")] items: Vec<PodSandbox>, }
    PodSandboxMetadata {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "2")] uid: String,
        #[prost(string, tag = "3")] namespace: String,
        #[prost(uint32, tag = "4")] attempt: u32,
    }
    PodSandbox {
        #[prost(string, tag = "1")] id: String,
        #[prost(message, optional, tag = "2")] metadata: Option<PodSandboxMetadata>,
        #[prost(enumeration = "PodSandboxState", tag = "3")] state: i32,
        #[prost(int64, tag = "4")] created_at: i64,
        #[prost(map = "string, string", tag = "5")] labels: HashMap<String, String>,
        #[prost(map = "string, string", tag = "6")] annotations: HashMap<String, String>,
    }
    StopPodSandboxRequest { #[prost(string, tag = "1")] pod_sandbox_id: String, }
    RemovePodSandboxRequest { #[prost(string, tag = "1")] pod_sandbox_id: String, }
    ContainerEventResponse {
        #[prost(string, tag = "1")] container_id: String,
        #[prost(int32, tag = "2")] container_event_type: i32,
        #[prost(int64, tag = "3")] created_at: i64,
        #[prost(message, repeated, tag = "5")] containers_statuses: Vec<ContainerStatus>,
    }
    /// The empty answer of stop and remove calls, and the empty request of `ImageFsInfo` and `GetContainerEvents`.
    Empty {}
}

/// States of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum ContainerState {
    Created = 0,
    Running = 1,
    Exited = 2,
    Unknown = 3,
}

/// States of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum PodSandboxState {
    Ready = 0,
    NotReady = 1,
}
