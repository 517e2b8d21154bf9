//! Discovery: which groups, versions and resources there are, in the old form and in the aggregated one.

mod documents;

use bytes::Bytes;
use gc_registry::error::ApiError;
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{Method, StatusCode};

use self::documents::{AggregatedForm, Served, core_versions, resource_list, with_type};
use crate::encode::negotiate::{Purpose, media_ranges};
use crate::encode::render;
use crate::serve::service::not_served;
use crate::state::State;
use crate::transport::exchange::{Answer, ApiRequest, page_not_found, text_answer};
use crate::transport::path::DiscoveryPath;

pub(crate) use documents::Discovery;

/// Answers one of the discovery paths.
pub(crate) fn answer(state: &State, request: &ApiRequest, path: &DiscoveryPath) -> Result<Answer, ApiError> {
    let catalog = state.registry.catalog();
    let table = state.aggregator.table();
    let served = Served { catalog: &catalog, table: &table };
    // The groups are served whatever the method; the other documents answer GET alone.
    let reading = request.method == Method::GET;
    if !reading && *path == DiscoveryPath::CoreVersions {
        return Err(ApiError::method_not_allowed());
    }
    let document = match path {
        DiscoveryPath::CoreVersions | DiscoveryPath::Groups => {
            let core = *path == DiscoveryPath::CoreVersions;
            let accept = request.header(&ACCEPT).unwrap_or_default();
            match aggregated_form(accept) {
                Some(form) => return Ok(aggregated(state, request, &served, core, form)),
                None if core => core_versions(&catalog, &state.advertised),
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

/// Which aggregated form an Accept header wants; `None` is the old form.
fn aggregated_form(accept: &str) -> Option<AggregatedForm> {
    let ranges = media_ranges(accept);
    for range in &ranges {
        if !range.takes("application/json") {
            continue;
        }
        match (range.parameter("as"), range.parameter("g"), range.parameter("v")) {
            (None, _, _) => return None,
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => {
                return Some(AggregatedForm::V2);
            }
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2beta1")) => {
                return Some(AggregatedForm::V2Beta1);
            }
            _ => {}
        }
    }
    None
}

fn aggregated(
    state: &State,
    request: &ApiRequest,
    served: &Served<'_>,
    core: bool,
    form: AggregatedForm,
) -> Answer {
    let document = state.discovery.aggregated(served, core, form);
    let known = request.header(&IF_NONE_MATCH).is_some_and(|tags| {
        document.etag.to_str().is_ok_and(|tag| tags.split(',').any(|one| one.trim() == tag))
    });
    let mut answer = if known {
        text_answer(StatusCode::NOT_MODIFIED, form.content_type(), Bytes::new())
    } else {
        request.document(document.bytes, form.content_type())
    };
    answer.headers_mut().insert(ETAG, document.etag);
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    answer
}
