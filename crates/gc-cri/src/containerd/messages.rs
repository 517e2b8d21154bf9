//! Messages of containerd's API (`containerd.services.*`), as far as they are read and written here.

use std::collections::BTreeMap;

use prost::Message;

/// Declares messages briefly: `Name { field: type = "prost attributes" }`.
macro_rules! messages {
    ($($(#[doc = $doc:literal])* $name:ident { $(#[$attribute:meta] $field:ident: $type:ty,)* })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, PartialEq, Message)]
        pub(crate) struct $name { $(#[$attribute] pub(crate) $field: $type,)* }
    )*};
}

messages! {
    Moment {
        #[prost(int64, tag = "1")] seconds: i64,
        #[prost(int32, tag = "2")] nanoseconds: i32,
    }
    NamespaceList { #[prost(message, repeated, tag = "1")] namespaces: Vec<NamespaceName>, }
    NamespaceName { #[prost(string, tag = "1")] name: String, }
    ImageList { #[prost(message, repeated, tag = "1")] images: Vec<Image>, }
    Image {
        #[prost(string, tag = "1")] name: String,
        #[prost(btree_map = "string, string", tag = "2")] labels: BTreeMap<String, String>,
        #[prost(message, optional, tag = "3")] target: Option<Descriptor>,
    }
    Descriptor { #[prost(string, tag = "2")] digest: String, }
    ContainerList { #[prost(message, repeated, tag = "1")] containers: Vec<Container>, }
    Container {
        #[prost(string, tag = "1")] id: String,
        #[prost(btree_map = "string, string", tag = "2")] labels: BTreeMap<String, String>,
        #[prost(string, tag = "6")] snapshotter: String,
        #[prost(string, tag = "7")] snapshot_key: String,
    }
    LeaseList { #[prost(message, repeated, tag = "1")] leases: Vec<Lease>, }
    Lease {
        #[prost(string, tag = "1")] id: String,
        #[prost(btree_map = "string, string", tag = "3")] labels: BTreeMap<String, String>,
    }
    LeaseAnswer { #[prost(message, optional, tag = "1")] lease: Option<Lease>, }
    LeaseRequest {
        #[prost(string, tag = "1")] id: String,
        #[prost(bool, tag = "2")] sync: bool,
    }
    ResourceList { #[prost(message, repeated, tag = "1")] resources: Vec<Resource>, }
    Resource {
        #[prost(string, tag = "1")] id: String,
        #[prost(string, tag = "2")] r#type: String,
    }
    /// One message of a stream.
    ContentList { #[prost(message, repeated, tag = "1")] info: Vec<ContentInfo>, }
    ContentInfo {
        #[prost(string, tag = "1")] digest: String,
        #[prost(int64, tag = "2")] size: i64,
        #[prost(btree_map = "string, string", tag = "5")] labels: BTreeMap<String, String>,
    }
    IngestList { #[prost(message, repeated, tag = "1")] statuses: Vec<IngestStatus>, }
    IngestStatus {
        #[prost(message, optional, tag = "2")] updated_at: Option<Moment>,
        #[prost(string, tag = "3")] reference: String,
        #[prost(int64, tag = "4")] offset: i64,
    }
    IngestRequest { #[prost(string, tag = "1")] reference: String, }
    SnapshotListRequest { #[prost(string, tag = "1")] snapshotter: String, }
    /// One message of a stream.
    SnapshotList { #[prost(message, repeated, tag = "1")] info: Vec<SnapshotInfo>, }
    SnapshotInfo {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "2")] parent: String,
        #[prost(int32, tag = "3")] kind: i32,
        #[prost(message, optional, tag = "5")] updated_at: Option<Moment>,
        #[prost(btree_map = "string, string", tag = "6")] labels: BTreeMap<String, String>,
    }
    SnapshotRequest {
        #[prost(string, tag = "1")] snapshotter: String,
        #[prost(string, tag = "2")] key: String,
    }
    SnapshotUsage {
        #[prost(int64, tag = "1")] size: i64,
        #[prost(int64, tag = "2")] inodes: i64,
    }
    PluginList { #[prost(message, repeated, tag = "1")] plugins: Vec<Plugin>, }
    Plugin {
        #[prost(string, tag = "1")] r#type: String,
        #[prost(string, tag = "2")] id: String,
        #[prost(btree_map = "string, string", tag = "5")] exports: BTreeMap<String, String>,
        #[prost(message, optional, tag = "7")] init_error: Option<Failure>,
    }
    Failure { #[prost(int32, tag = "1")] code: i32, }
}
