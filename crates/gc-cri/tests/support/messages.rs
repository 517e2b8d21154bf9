//! Messages of CRI v1 in tests: those of the fake runtime, and those that create pods on a real one. Written separately from the
//! client's own, so that a wrong field number in either does not cancel out.

use std::collections::HashMap;

use prost::Message;

macro_rules! messages {
    ($($name:ident { $(#[$attribute:meta] $field:ident: $type:ty,)* })*) => {$(
        #[derive(Clone, PartialEq, Message)]
        pub struct $name { $(#[$attribute] pub $field: $type,)* }
    )*};
}

messages! {
    Version {
        #[prost(string, tag = "1")] version: String,
        #[prost(string, tag = "2")] runtime_name: String,
        #[prost(string, tag = "3")] runtime_version: String,
        #[prost(string, tag = "4")] runtime_api_version: String,
    }
    StatusResponse { #[prost(message, optional, tag = "1")] status: Option<RuntimeStatus>, }
    RuntimeStatus { #[prost(message, repeated, tag = "1")] conditions: Vec<RuntimeCondition>, }
    RuntimeCondition {
        #[prost(string, tag = "1")] r#type: String,
        #[prost(bool, tag = "2")] status: bool,
    }
    ImageSpec {
        #[prost(string, tag = "1")] image: String,
    }
    Image {
        #[prost(string, tag = "1")] id: String,
        #[prost(string, repeated, tag = "2")] repo_tags: Vec<String>,
        #[prost(string, repeated, tag = "3")] repo_digests: Vec<String>,
        #[prost(uint64, tag = "4")] size: u64,
        #[prost(bool, tag = "8")] pinned: bool,
    }
    ListImagesResponse { #[prost(message, repeated, tag = "1")] images: Vec<Image>, }
    ImageRequest { #[prost(message, optional, tag = "1")] image: Option<ImageSpec>, }
    ImageStatusResponse {
        #[prost(message, optional, tag = "1")] image: Option<Image>,
        #[prost(map = "string, string", tag = "2")] info: HashMap<String, String>,
    }
    ImageFsInfoResponse {
        #[prost(message, repeated, tag = "1")] image_filesystems: Vec<FilesystemUsage>,
        #[prost(message, repeated, tag = "2")] container_filesystems: Vec<FilesystemUsage>,
    }
    FilesystemUsage { #[prost(message, optional, tag = "2")] fs_id: Option<FilesystemIdentifier>, }
    FilesystemIdentifier { #[prost(string, tag = "1")] mountpoint: String, }
    StateValue { #[prost(int32, tag = "1")] state: i32, }
    ContainerFilter {
        #[prost(string, tag = "1")] id: String,
        #[prost(message, optional, tag = "2")] state: Option<StateValue>,
        #[prost(string, tag = "3")] pod_sandbox_id: String,
    }
    ListContainersRequest { #[prost(message, optional, tag = "1")] filter: Option<ContainerFilter>, }
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
        #[prost(int32, tag = "6")] state: i32,
        #[prost(int64, tag = "7")] created_at: i64,
        #[prost(map = "string, string", tag = "8")] labels: HashMap<String, String>,
        #[prost(map = "string, string", tag = "9")] annotations: HashMap<String, String>,
        #[prost(string, tag = "10")] image_id: String,
    }
    // Requests that name one container or sandbox.
    ById {
        #[prost(string, tag = "1")] id: String,
        #[prost(int64, tag = "2")] timeout: i64,
    }
    ContainerStatusResponse { #[prost(message, optional, tag = "1")] status: Option<ContainerStatus>, }
    ContainerStatus {
        #[prost(string, tag = "1")] id: String,
        #[prost(int32, tag = "3")] state: i32,
        #[prost(message, optional, tag = "8")] image: Option<ImageSpec>,
        #[prost(string, tag = "9")] image_ref: String,
        #[prost(map = "string, string", tag = "13")] annotations: HashMap<String, String>,
        #[prost(message, repeated, tag = "14")] mounts: Vec<StatusMount>,
        #[prost(string, tag = "15")] log_path: String,
    }
    StatusMount { #[prost(message, optional, tag = "9")] image: Option<ImageSpec>, }
    PodSandboxFilter {
        #[prost(string, tag = "1")] id: String,
        #[prost(message, optional, tag = "2")] state: Option<StateValue>,
    }
    ListPodSandboxRequest { #[prost(message, optional, tag = "1")] filter: Option<PodSandboxFilter>, }
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
        #[prost(int32, tag = "3")] state: i32,
        #[prost(int64, tag = "4")] created_at: i64,
        #[prost(map = "string, string", tag = "5")] labels: HashMap<String, String>,
        #[prost(map = "string, string", tag = "6")] annotations: HashMap<String, String>,
    }
    ContainerEvent {
        #[prost(string, tag = "1")] container_id: String,
        #[prost(int32, tag = "2")] container_event_type: i32,
        #[prost(int64, tag = "3")] created_at: i64,
        #[prost(message, repeated, tag = "5")] containers_statuses: Vec<ContainerStatus>,
    }

    // Messages that create pods on a real runtime.
    NamespaceOption {
        #[prost(int32, tag = "1")] network: i32,
        #[prost(int32, tag = "2")] pid: i32,
        #[prost(int32, tag = "3")] ipc: i32,
    }
    SandboxSecurityContext { #[prost(message, optional, tag = "1")] namespace_options: Option<NamespaceOption>, }
    LinuxSandboxConfig {
        #[prost(string, tag = "1")] cgroup_parent: String,
        #[prost(message, optional, tag = "2")] security_context: Option<SandboxSecurityContext>,
    }
    SandboxConfig {
        #[prost(message, optional, tag = "1")] metadata: Option<PodSandboxMetadata>,
        #[prost(string, tag = "2")] hostname: String,
        #[prost(string, tag = "3")] log_directory: String,
        #[prost(map = "string, string", tag = "6")] labels: HashMap<String, String>,
        #[prost(map = "string, string", tag = "7")] annotations: HashMap<String, String>,
        #[prost(message, optional, tag = "8")] linux: Option<LinuxSandboxConfig>,
    }
    RunPodSandboxRequest { #[prost(message, optional, tag = "1")] config: Option<SandboxConfig>, }
    ContainerSecurityContext { #[prost(message, optional, tag = "3")] namespace_options: Option<NamespaceOption>, }
    LinuxContainerConfig { #[prost(message, optional, tag = "2")] security_context: Option<ContainerSecurityContext>, }
    ContainerConfig {
        #[prost(message, optional, tag = "1")] metadata: Option<ContainerMetadata>,
        #[prost(message, optional, tag = "2")] image: Option<ImageSpec>,
        #[prost(string, repeated, tag = "3")] command: Vec<String>,
        #[prost(map = "string, string", tag = "9")] labels: HashMap<String, String>,
        #[prost(string, tag = "11")] log_path: String,
        #[prost(message, optional, tag = "15")] linux: Option<LinuxContainerConfig>,
    }
    CreateContainerRequest {
        #[prost(string, tag = "1")] pod_sandbox_id: String,
        #[prost(message, optional, tag = "2")] config: Option<ContainerConfig>,
        #[prost(message, optional, tag = "3")] sandbox_config: Option<SandboxConfig>,
    }
    Empty {}
}
