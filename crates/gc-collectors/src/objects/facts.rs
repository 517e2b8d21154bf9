//! Facts of every kind, and pages and watches of them.

use gc_types::{ListHead, NotTheList, ObjectKey, ResourceInfo};
use serde::{Deserialize, Deserializer};

use super::attachment::Attachment;
use super::attributes_class::AttributesClass;
use super::job::Job;
use super::kind::Kind;
use super::lease::Lease;
use super::lease_candidate::LeaseCandidate;
use super::meta::Meta;
use super::node::Node;
use super::pod::Pod;
use super::pod_certificate::PodCertificate;
use super::signing_request::SigningRequest;
use super::storage_version::StorageVersion;
use super::token::{SecretUser, ServiceAccount, TokenSecret, TokenTracking};
use super::volume::{Claim, Volume};

macro_rules! facts {
    ($($kind:ident($facts:ty),)*) => {
        /// Facts of one object.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Facts {
            $(
                #[doc = concat!("[`Kind::", stringify!($kind), "`]")]
                $kind($facts),
            )*
        }

        impl Facts {
            /// Parses the JSON of an object of this kind.
            pub fn read(kind: Kind, json: &[u8]) -> Result<Self, FactsError> {
                Ok(match kind {
                    $(Kind::$kind => Self::$kind(serde_json::from_slice(json)?),)*
                })
            }

            /// Returns its metadata.
            #[must_use]
            pub fn meta(&self) -> &Meta {
                match self {
                    $(Self::$kind(facts) => &facts.meta,)*
                }
            }

            /// Returns its metadata for changes.
            pub fn meta_mut(&mut self) -> &mut Meta {
                match self {
                    $(Self::$kind(facts) => &mut facts.meta,)*
                }
            }

            /// Returns its kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)*
                }
            }
        }

        impl FactsPage {
            /// Parses the JSON of a list of objects of this kind.
            pub fn read(kind: Kind, json: &[u8]) -> Result<Self, FactsError> {
                match kind {
                    $(Kind::$kind => page(json, kind, Facts::$kind),)*
                }
            }
        }

        impl FactsEvent {
            /// Parses a line of a watch of this kind. Also returns the object's resourceVersion.
            pub fn read(kind: Kind, json: &[u8]) -> Result<(Self, String), FactsError> {
                match kind {
                    $(Kind::$kind => event(json, Facts::$kind),)*
                }
            }
        }
    };
}

facts! {
    Pod(Pod),
    Node(Node),
    Job(Job),
    SigningRequest(SigningRequest),
    Volume(Volume),
    Claim(Claim),
    Lease(Lease),
    Attachment(Attachment),
    PodCertificate(PodCertificate),
    LeaseCandidate(LeaseCandidate),
    TokenSecret(TokenSecret),
    ServiceAccount(ServiceAccount),
    TokenTracking(TokenTracking),
    SecretUser(SecretUser),
    StorageVersion(StorageVersion),
    SystemLease(Lease),
    AttributesClass(AttributesClass),
}

/// Reason why facts could not be parsed.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Not the JSON of such an object.
    #[error("cannot be parsed as an object of this kind: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Not the requested list.
    #[error(transparent)]
    NotTheList(#[from] NotTheList),
}

impl Facts {
    /// Returns its key.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        let meta = self.meta();
        self.kind().key(&meta.namespace, &meta.name)
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactsPage {
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.continue`; empty on the last page.
    pub continue_token: String,
    /// Objects of the page.
    pub items: Vec<Facts>,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactsEvent {
    /// An object was added or modified.
    Present(Facts),
    /// An object was deleted.
    Deleted(Facts),
    /// Everything up to this version has been sent.
    Bookmark(String),
    /// The watch has failed.
    Error {
        /// HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// Event of an unknown type.
    Unknown,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "F: Deserialize<'de>"))]
struct WirePage<F> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: WirePageMeta,
    #[serde(default, deserialize_with = "present")]
    items: Option<Vec<F>>,
}

/// Deserializes a member that must be present; null is an empty list, as Go writes it.
fn present<'de, D: Deserializer<'de>, F: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<F>>, D::Error> {
    Ok(Some(Option::deserialize(deserializer)?.unwrap_or_default()))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePageMeta {
    resource_version: String,
    r#continue: Option<String>,
}

#[derive(Deserialize)]
struct WireEvent<F> {
    r#type: String,
    object: F,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    code: u16,
    message: String,
    metadata: WirePageMeta,
}

fn page<F: serde::de::DeserializeOwned>(
    json: &[u8],
    kind: Kind,
    wrap: fn(F) -> Facts,
) -> Result<FactsPage, FactsError> {
    let page: WirePage<F> = serde_json::from_slice(json)?;
    let head = ListHead {
        api_version: &page.api_version,
        kind: &page.kind,
        resource_version: &page.metadata.resource_version,
        has_items: page.items.is_some(),
        items_say_kind: false,
    };
    let of_version = |info: &ResourceInfo| info.gvr.api_version() == page.api_version;
    let info = kind.infos().into_iter().find(of_version).unwrap_or_else(|| kind.info());
    head.check(&info)?;
    let items: Vec<Facts> = page.items.unwrap_or_default().into_iter().map(wrap).collect();
    if items.iter().any(|facts| facts.meta().name.is_empty()) {
        return Err(NotTheList::NamelessItem.into());
    }
    Ok(FactsPage {
        resource_version: page.metadata.resource_version,
        continue_token: page.metadata.r#continue.unwrap_or_default(),
        items,
    })
}

fn event<F>(json: &[u8], wrap: fn(F) -> Facts) -> Result<(FactsEvent, String), FactsError>
where
    F: serde::de::DeserializeOwned,
{
    // Anything other than the object (a Status has a `status` of another type) is read as an empty one.
    let unread = match serde_json::from_slice::<WireEvent<F>>(json) {
        Ok(WireEvent { r#type, object }) => {
            let facts = wrap(object);
            let version = facts.meta().resource_version.to_string();
            match r#type.as_str() {
                "ADDED" | "MODIFIED" => return Ok((FactsEvent::Present(facts), version)),
                "DELETED" => return Ok((FactsEvent::Deleted(facts), version)),
                _ => None,
            }
        }
        Err(error) => Some(error),
    };
    let WireEvent { r#type, .. } = serde_json::from_slice::<WireEvent<serde::de::IgnoredAny>>(json)?;
    if let (Some(error), "ADDED" | "MODIFIED" | "DELETED") = (unread, r#type.as_str()) {
        // A skipped change would leave a collector with outdated facts.
        return Err(error.into());
    }
    if !matches!(r#type.as_str(), "BOOKMARK" | "ERROR") {
        return Ok((FactsEvent::Unknown, String::new()));
    }
    let WireEvent { object, .. } = serde_json::from_slice::<WireEvent<WireStatus>>(json)?;
    let version = object.metadata.resource_version;
    Ok(match r#type.as_str() {
        "BOOKMARK" => (FactsEvent::Bookmark(version.clone()), version),
        _ => (FactsEvent::Error { code: object.code, message: object.message }, String::new()),
    })
}

#[cfg(test)]
mod tests;
