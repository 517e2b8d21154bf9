//! The facts that collectors of cluster objects keep of an object: a few fields, parsed from its JSON, in one file for each kind.
//!
//! Each kind of facts deserializes from a whole object, and keeps only the fields that decisions need.

mod attachment;
mod attributes_class;
mod cache;
mod facts;
mod job;
mod kind;
mod lease;
mod lease_candidate;
mod meta;
mod node;
mod pod;
mod pod_certificate;
mod signing_request;
mod storage_version;
mod token;
mod volume;
pub(crate) mod x509;

pub use attachment::Attachment;
pub use attributes_class::AttributesClass;
pub(crate) use cache::{Cache, drop_from};
pub use facts::{Facts, FactsError, FactsEvent, FactsPage};
pub use job::Job;
pub use kind::{Kind, Selection};
pub use lease::{IDENTITY, Lease, NODE_LEASE_NAMESPACE};
pub use lease_candidate::LeaseCandidate;
pub use meta::Meta;
pub(crate) use meta::{HasMeta, parse_time, time_text};
pub use node::{Node, OUT_OF_SERVICE_TAINT, Taint};
pub use pod::{ClaimUse, Phase, Pod};
pub use pod_certificate::PodCertificate;
pub use signing_request::SigningRequest;
pub(crate) use storage_version::text_field;
pub use storage_version::{Entry, StorageVersion};
pub(crate) use token::DAY_MILLISECONDS;
pub use token::{Day, DayLabel, SecretUser, ServiceAccount, TokenSecret, TokenTracking};
pub use volume::{Claim, ClaimReference, Source, Volume, topology};
pub(crate) use volume::{UNUSED_CONDITION, in_tree};
