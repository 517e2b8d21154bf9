//! A request to the registry: parsed first, and decoded outside the async threads.

use std::sync::Arc;

use bytes::Bytes;
use gc_registry::api::{DeleteOptions, ListOptions, Operation, PatchType, RequestTarget, WriteOptions};
use gc_registry::error::ApiError;
use gc_registry::resource::ResourceDefinition;
use http::header::CONTENT_TYPE;

use crate::encode::decode as bodies;
use crate::encode::negotiate;
use crate::exchange::ApiRequest;
use crate::transport::bodies::Bodies;
use crate::work::{self, Weight};

/// A request whose body has arrived but has not been decoded.
pub(crate) struct PendingOperation {
    kind: String,
    /// The resource, if the body is an object of a custom resource.
    custom: Option<Arc<ResourceDefinition>>,
    content_type: Option<String>,
    body: Bytes,
    verb: Verb,
}

/// The verb with its query options.
enum Verb {
    Get { resource_version: String },
    List(ListOptions),
    Create(WriteOptions),
    Update(WriteOptions),
    Patch(PatchType, WriteOptions),
    Delete(DeleteOptions),
    DeleteCollection(ListOptions, DeleteOptions),
}

impl PendingOperation {
    /// Reads options and body.
    pub(crate) async fn read(
        request: &mut ApiRequest,
        bodies: &Arc<Bodies>,
        target: &RequestTarget,
        verb: &str,
    ) -> Result<Self, ApiError> {
        let content_type = request.header(&CONTENT_TYPE).map(str::to_owned);
        let query = &request.query;
        let verb = match verb {
            "get" if query.boolean("export").unwrap_or(false) => {
                let why = "the export parameter, deprecated since v1.14, is no longer supported";
                return Err(ApiError::bad_request(why));
            }
            "get" => Verb::Get { resource_version: query.text("resourceVersion") },
            "list" => Verb::List(query.list_options()?),
            "create" => Verb::Create(query.write_options("CreateOptions")?),
            "update" => Verb::Update(query.write_options("UpdateOptions")?),
            "patch" => {
                let patch_type = patch_type(content_type.as_deref(), target.resource.custom.is_some())?;
                Verb::Patch(patch_type, query.write_options("PatchOptions")?)
            }
            // Without a body, the options in the query apply.
            "delete" => Verb::Delete(DeleteOptions::default()),
            "deletecollection" => Verb::DeleteCollection(query.list_options()?, DeleteOptions::default()),
            _ => return Err(ApiError::method_not_allowed()),
        };
        let body = match verb {
            Verb::Get { .. } | Verb::List(_) => Bytes::new(),
            _ => request.read_body(bodies).await?,
        };
        let verb = match verb {
            Verb::Delete(_) if body.is_empty() => Verb::Delete(request.query.delete_options()?),
            Verb::DeleteCollection(list, _) if body.is_empty() => {
                Verb::DeleteCollection(list, request.query.delete_options()?)
            }
            other => other,
        };
        let subresource =
            target.resource.subresources.iter().find(|known| *known.name == *target.subresource);
        let kind = subresource.map_or(&target.resource.kind, |found| &found.response_kind.2).to_string();
        let is_custom = target.resource.custom.is_some() && target.subresource != "scale";
        let custom = is_custom.then(|| Arc::clone(&target.resource));
        Ok(Self { kind, custom, content_type, body, verb })
    }

    /// Returns the weight of decoding and executing the request.
    pub(crate) fn weight(&self, target: &RequestTarget) -> Weight {
        let asks_webhook = target.resource.asks_webhook();
        match self.verb {
            Verb::Get { .. } | Verb::List(_) if asks_webhook => Weight::ReadConverted,
            Verb::Get { .. } => Weight::Read,
            Verb::List(_) => Weight::ReadMany,
            Verb::DeleteCollection(..) => Weight::WriteMany,
            _ if asks_webhook => Weight::WriteLarge,
            _ if work::takes_long_to_decode(&self.body, self.content_type.as_deref()) => Weight::WriteLarge,
            _ => Weight::Write,
        }
    }

    /// Returns the number of seats that the request takes.
    pub(crate) fn width(&self) -> usize {
        work::width(&self.body, self.content_type.as_deref())
    }

    /// Returns the approximate memory that the decoded body takes, in bytes.
    pub(crate) fn decoded_bytes(&self) -> usize {
        work::decoded_bytes(&self.body, self.content_type.as_deref())
    }

    /// Reports whether the object is looked up before the body is decoded: if there is no object, the body need not be a valid
    /// patch.
    pub(crate) fn is_about_what_is_there(&self) -> bool {
        matches!(self.verb, Verb::Patch(PatchType::Json | PatchType::Merge | PatchType::StrategicMerge, _))
    }

    /// Decodes the body.
    pub(crate) fn decode(&self) -> Result<Operation, ApiError> {
        let (body, content_type) = (&self.body, self.content_type.as_deref());
        let object = || match &self.custom {
            Some(resource) => bodies::custom_object(body, content_type, resource),
            None => bodies::object(body, content_type, &self.kind),
        };
        let options = |from_query: &DeleteOptions| {
            if body.is_empty() { Ok(from_query.clone()) } else { bodies::delete_options(body, content_type) }
        };
        Ok(match &self.verb {
            Verb::Get { resource_version } => Operation::Get { resource_version: resource_version.clone() },
            Verb::List(options) => Operation::List(ListOptions { in_pages: true, ..options.clone() }),
            Verb::Create(options) => Operation::Create(object()?, options.clone()),
            Verb::Update(options) => Operation::Update(object()?, options.clone()),
            Verb::Patch(patch_type, options) => {
                let patch = bodies::patch(body, *patch_type)?;
                Operation::Patch(*patch_type, patch, options.clone())
            }
            Verb::Delete(from_query) => Operation::Delete(options(from_query)?),
            Verb::DeleteCollection(list, from_query) => {
                Operation::DeleteCollection(list.clone(), options(from_query)?)
            }
        })
    }
}

fn patch_type(content_type: Option<&str>, custom: bool) -> Result<PatchType, ApiError> {
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match media_type {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if !custom => Ok(PatchType::StrategicMerge),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ if custom => Err(negotiate::unsupported_media_type(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
        _ => Err(negotiate::unsupported_by_router()),
    }
}
