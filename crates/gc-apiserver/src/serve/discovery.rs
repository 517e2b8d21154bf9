//! Discovery of groups, versions and resources, in the unaggregated and in the aggregated form.

use bytes::Bytes;
use gc_registry::error::ApiError;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{Method, StatusCode};

use crate::api_documents::discovery::{
    ServedApis, aggregated_content_type, aggregated_form, core_versions, resource_list, with_type,
};
use crate::encode::negotiate::{Purpose, Representation, is_nameable, media_ranges};
use crate::encode::render;
use crate::exchange::{Answer, ApiRequest, page_not_found, text_answer};
use crate::serve::service::not_served;
use crate::state::State;
use crate::transport::path::DiscoveryPath;

/// Answers one of the discovery paths.
pub(crate) fn answer(state: &State, request: &ApiRequest, path: &DiscoveryPath) -> Result<Answer, ApiError> {
    let catalog = state.registry.catalog();
    let table = state.aggregator.table();
    let served = ServedApis { catalog: &catalog, table: &table };
    // The groups are served for any method, the other documents for GET only.
    let reading = request.method == Method::GET;
    if !reading && *path == DiscoveryPath::CoreVersions {
        return Err(ApiError::method_not_allowed());
    }
    let document = match path {
        DiscoveryPath::CoreVersions | DiscoveryPath::Groups => {
            let core = *path == DiscoveryPath::CoreVersions;
            let accept = request.header(&ACCEPT).unwrap_or_default();
            // The core group is served by the router, which first requires a media type that it knows.
            let form = aggregated_form(accept, request.is_pretty())
                .filter(|_| !core || is_nameable(&media_ranges(accept)));
            match form {
                Some(form) => return Ok(aggregated(state, request, &served, core, form)),
                None if core => core_versions(&catalog, &state.advertised()),
                None => served.groups(),
            }
        }
        DiscoveryPath::Group(name) => match served.group(name).filter(|_| !name.is_empty()) {
            Some(group) => with_type(group, "APIGroup"),
            None => return Ok(page_not_found()),
        },
        DiscoveryPath::Resources(group, version) => {
            let found = catalog
                .group(group)
                .and_then(|group| group.versions.iter().find(|v| *v.version == **version));
            match found {
                Some(_) if !reading => return Err(ApiError::method_not_allowed()),
                Some(found) => resource_list(group, version, &found.resources),
                None => return not_served(&catalog, group),
            }
        }
    };
    let representation = request.representation(match path {
        DiscoveryPath::Group(_) | DiscoveryPath::Groups => Purpose::Discovery,
        _ => Purpose::Document,
    })?;
    Ok(request.document(render::value(&document, representation).into(), representation.content_type()))
}

fn aggregated(
    state: &State,
    request: &ApiRequest,
    served: &ServedApis<'_>,
    core: bool,
    representation: Representation,
) -> Answer {
    let document = state.discovery.aggregated(served, core, representation);
    let known = request.header(&IF_NONE_MATCH).is_some_and(|tags| {
        document.etag.to_str().is_ok_and(|tag| tags.split(',').any(|one| one.trim() == tag))
    });
    let content_type = aggregated_content_type(representation.encoding);
    let mut answer = if known {
        let mut answer = text_answer(StatusCode::NOT_MODIFIED, content_type, Bytes::new());
        answer.headers_mut().remove(CONTENT_TYPE);
        answer
    } else {
        request.document(document.bytes, content_type)
    };
    answer.headers_mut().insert(ETAG, document.etag);
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    answer
}
