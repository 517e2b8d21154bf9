//! Entry point: performs requests.

use super::components::is_component_status;
use super::list;
use super::watch::Watch;
use crate::api::{ListOptions, Operation, PatchType, RequestContext, RequestTarget, Response, ResponseBody};
use crate::error::ApiError;
use crate::freshness::Subject;
use crate::persist;
use crate::registry::Registry;
use crate::registry::call::Call;

impl Registry {
    /// Performs one request. `target.subresource` names the subresource, also for a POST to it.
    pub fn handle(
        &self,
        target: &RequestTarget,
        operation: Operation,
        context: &RequestContext<'_>,
    ) -> Result<Response, ApiError> {
        check_verb(target, &operation)?;
        let is_read = matches!(operation, Operation::Get { .. } | Operation::List(_));
        if target.resource.custom.is_some() && !is_read {
            self.freshness.check(Subject::Definitions)?;
        }
        let mut call = Call::new(self, target, context);
        let deprecation = target.resource.custom.as_ref().and_then(|custom| custom.deprecation_warning());
        let before = deprecation.map(str::to_owned);
        let outcome = self.perform(&mut call, operation);
        let noted = call.noted.take();
        match outcome {
            Ok(mut response) => {
                response.warnings.splice(0..0, before);
                response.warnings.extend(noted);
                Ok(response)
            }
            Err(mut error) => {
                error.warnings = before.into_iter().chain(call.warnings).chain(noted).collect();
                Err(error)
            }
        }
    }

    fn perform(&self, call: &mut Call<'_>, operation: Operation) -> Result<Response, ApiError> {
        let target = call.target;
        if let name @ ("." | "..") = target.name.as_str()
            && !matches!(operation, Operation::Create(..))
        {
            let why = format!("Name parameter invalid: {name:?}: may not be '{name}'");
            return Err(ApiError::bad_request(why));
        }
        match (operation, target.subresource.as_str()) {
            (operation, "scale") => call.scale(operation),
            (Operation::Get { .. }, _) if is_component_status(&target.resource) => call.get_component(),
            (Operation::Get { resource_version }, _) => call.get(&resource_version),
            (Operation::List(options), _) => self.list(call, &options),
            (Operation::Create(body, options), "binding") => call.bind(&body, &options),
            (Operation::Create(body, options), "") if target.resource.is("", "bindings") => {
                call.bind(&body, &options)
            }
            (Operation::Create(body, options), "eviction") => call.evict(&body, &options),
            (Operation::Create(body, options), "") => call.create(body, &options),
            (Operation::Create(..), _) => Err(ApiError::method_not_allowed()),
            (Operation::Update(body, options), _) => call.update(body, &options),
            (Operation::Patch(PatchType::StrategicMerge, ..), _) if target.resource.custom.is_some() => {
                Err(ApiError::new(
                    415,
                    "UnsupportedMediaType",
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ))
            }
            (Operation::Patch(kind, body, options), _) => call.patch(kind, body, &options),
            (Operation::Delete(options), _) => call.delete(&options),
            (Operation::DeleteCollection(options, delete), _) => call.delete_collection(&options, &delete),
        }
    }

    fn list(&self, call: &Call<'_>, options: &ListOptions) -> Result<Response, ApiError> {
        if is_component_status(call.resource()) {
            return Ok(self.list_components(call.target));
        }
        let list = list::list(call.source(), call.target, options)?;
        Ok(Response { code: 200, body: ResponseBody::List(list), warnings: Vec::new() })
    }

    /// Starts a watch of a collection, or of one object if `target.name` is set.
    pub fn watch(&self, target: &RequestTarget, options: &ListOptions) -> Result<Watch, ApiError> {
        if !target.resource.has_verb("watch") {
            return Err(ApiError::method_not_allowed());
        }
        Watch::start(&self.converter, &self.storage, &self.hub, target, options)
    }
}

/// Returns a 405 for verbs that the table does not offer.
fn check_verb(target: &RequestTarget, operation: &Operation) -> Result<(), ApiError> {
    let verb = match operation {
        Operation::Get { .. } => "get",
        Operation::List(_) => "list",
        Operation::Create(..) => "create",
        Operation::Update(..) => "update",
        Operation::Patch(..) => "patch",
        Operation::Delete(_) => "delete",
        Operation::DeleteCollection(..) => "deletecollection",
    };
    let resource = &target.resource;
    let offered = if target.subresource.is_empty() {
        resource.has_verb(verb)
    } else {
        let mut subresources = resource.subresources.iter();
        let found = subresources.find(|known| *known.name == *target.subresource);
        found.is_some_and(|known| known.verbs.iter().any(|known| **known == *verb))
    };
    let reads = matches!(operation, Operation::List(_));
    let placed = !resource.namespaced() || !target.namespace.is_empty() || reads;
    // List, create and deletecollection act on a collection; everything else acts on an object.
    let collection = matches!(verb, "list" | "deletecollection")
        || verb == "create" && (target.subresource.is_empty() || target.name.is_empty());
    let placed = placed && collection == target.name.is_empty();
    if offered && placed { Ok(()) } else { Err(ApiError::method_not_allowed()) }
}

impl Call<'_> {
    fn get(&mut self, resource_version: &str) -> Result<Response, ApiError> {
        // Upstream does not cache events, so they refuse an invalid version as lists do.
        let requested = match &*self.resource().resource {
            "events" if self.resource().custom.is_none() => list::parse_version(resource_version)?,
            _ => list::parse_version_of_get(resource_version)?,
        };
        let answer = self.registry.storage.get(&self.key(), None).map_err(persist::storage_error)?;
        if requested > answer.revision {
            return Err(persist::too_large_version(requested, answer.revision));
        }
        match answer.item {
            Some(stored) => self.answer_stored(200, stored.value, stored.mod_revision),
            None => Err(self.not_found(&self.target.name)),
        }
    }
}
