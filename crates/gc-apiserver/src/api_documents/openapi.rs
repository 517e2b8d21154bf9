//! The documents of OpenAPI.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gc_registry::catalog::Catalog;
use gc_registry::openapi;

use crate::encode::openapi_protobuf;

pub(crate) const JSON: &str = "application/json";
/// Content type of the index; upstream leaves it to Go's content sniffing.
pub(crate) const INDEX: &str = "text/plain; charset=utf-8";

/// Documents of the current catalog, as written. Bounded by the catalog: two of version 2, an index, and two per group and version.
#[derive(Default)]
pub(crate) struct OpenApi {
    kept: Mutex<CachedDocument>,
}

#[derive(Default)]
struct CachedDocument {
    catalog: Option<Arc<Catalog>>,
    documents: HashMap<DocumentName, Document>,
}

/// One of the documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DocumentName {
    Two,
    /// Version 2 as protobuf.
    TwoProtobuf,
    Index,
    /// A document of version 3 by its path in the index.
    Three(String),
    /// The same document as protobuf.
    ThreeProtobuf(String),
}

#[derive(Clone)]
pub(crate) struct Document {
    pub(crate) hash: String,
    pub(crate) bytes: Bytes,
}

impl DocumentName {
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/openapi/")?;
        match rest.trim_end_matches('/') {
            "v2" => Some(Self::Two),
            "v3" => Some(Self::Index),
            other => other.strip_prefix("v3/").map(|path| Self::Three(path.into())),
        }
    }

    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Self::TwoProtobuf => openapi_protobuf::CONTENT_TYPE,
            Self::ThreeProtobuf(_) => openapi_protobuf::three::CONTENT_TYPE,
            Self::Index => INDEX,
            Self::Two | Self::Three(_) => JSON,
        }
    }

    pub(crate) fn hash(&self, catalog: &Catalog) -> Option<String> {
        match self {
            Self::Two | Self::TwoProtobuf | Self::Index => Some(openapi::v2_hash(catalog)),
            Self::Three(path) | Self::ThreeProtobuf(path) => openapi::v3_hash(catalog, path),
        }
    }

    fn build(&self, catalog: &Catalog) -> Option<Bytes> {
        let value = match self {
            Self::Two => openapi::v2_document(catalog),
            Self::TwoProtobuf => {
                return Some(openapi_protobuf::encode(&openapi::v2_document(catalog)).into());
            }
            Self::Index => openapi::v3_index(catalog),
            Self::Three(path) => openapi::v3_document(catalog, path)?,
            Self::ThreeProtobuf(path) => {
                return Some(openapi_protobuf::three::encode(&openapi::v3_document(catalog, path)?).into());
            }
        };
        Some(value.to_string().into())
    }
}

impl OpenApi {
    pub(crate) fn document(&self, catalog: &Arc<Catalog>, which: &DocumentName) -> Option<Document> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let current = kept.catalog.as_ref().is_some_and(|known| Arc::ptr_eq(known, catalog));
            if !current {
                // Documents with the same hash are kept: a new definition changes only a few.
                kept.documents
                    .retain(|which, document| which.hash(catalog).as_deref() == Some(document.hash.as_str()));
                kept.catalog = Some(Arc::clone(catalog));
            }
            if let Some(document) = kept.documents.get(which) {
                return Some(document.clone());
            }
        }
        // Built outside the lock, so two concurrent requests may build it twice.
        let document = Document { hash: which.hash(catalog)?, bytes: which.build(catalog)? };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.catalog.as_ref().is_some_and(|known| Arc::ptr_eq(known, catalog)) {
            kept.documents.insert(which.clone(), document.clone());
        }
        Some(document)
    }
}
