//! Serves a single request, from its header to its answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gc_registry::admission::configured::Admission;
use gc_registry::api::{Attributes, ListOptions, Operation, RequestTarget, ResponseBody, UserInfo};
use gc_registry::catalog::Catalog;
use gc_registry::error::{ApiError, Details};
use gc_registry::names::quoted;
use gc_registry::resource::ResourceDefinition;
use gc_types::Scope;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue};
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::auth::authentication;
use crate::auth::client_certificates::ClientCertificate;
use crate::auth::impersonation;
use crate::auth::rbac::Question;
use crate::auth::sessions::{Origin, SessionSource};
use crate::auth::websocket_token::move_token;
use crate::deadline::{Caller, Deadline, REQUEST_PATIENCE, WRITE_PATIENCE};
use crate::encode::negotiate::{Form, Purpose};
use crate::encode::table::{IncludeObject, Table};
use crate::exchange::answers::{error_answer, write_answer};
use crate::exchange::body::AnswerBody;
use crate::exchange::watching::{WatchSetup, WatchStream};
use crate::exchange::{Answer, ApiRequest, BodyError, page_not_found, refuse_unreadable, text_answer};
use crate::fairness::configuration::{Flow, RequestProperties};
use crate::metrics::RequestLabels;
use crate::serve::extension::{self, trimmed};
use crate::serve::operation::PendingOperation;
use crate::serve::{connections, discovery, forward, health, log_options, reviews, token_request, websocket};
use crate::state::State;
use crate::state::extension::{Audience, Extension};
use crate::transport::account::Charge;
use crate::transport::clients::{AdmittedConnection, Ending};
use crate::transport::connections::Upgrade;
use crate::transport::path::{self, ResourcePath, Route};
use crate::transport::query::{Query, decode};
use crate::transport::streams::RefusedStream;
use crate::work::{self, Seat, Weight};

/// Minimum duration of a watch without timeoutSeconds; the maximum is twice as long.
const WATCH_MINIMUM_SECONDS: u64 = 1800;
/// Maximum number of attempts at a request that needs an object which a controller is about to create; upstream's number.
const MAXIMUM_TRIES: usize = 10;
/// Time between two such attempts.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(150);

/// Answers a request. Never fails: errors are answered with a Status.
pub(crate) async fn serve<B>(
    state: Arc<State>,
    certificate: ClientCertificate,
    request: Request<B>,
) -> Result<Answer, Infallible>
where
    B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
    B::Error: Into<BodyError>,
{
    let started = Instant::now();
    let (mut parts, body) = request.into_parts();
    let mut labels = RequestLabels { verb: known_method(&parts.method).into(), ..RequestLabels::default() };
    let head = parts.method == Method::HEAD;
    let mut request = ApiRequest {
        method: parts.method,
        target: parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        path: decode(parts.uri.path(), false),
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        headers: with_host(&parts.uri, parts.headers),
        body: body.map_err(Into::into).boxed(),
        user: UserInfo::default(),
        flow: Flow::default(),
        now: state.clock.now(),
        deadline: Deadline::after(REQUEST_PATIENCE),
        read: None,
        client: parts
            .extensions
            .get::<Arc<AdmittedConnection>>()
            .map(|admitted| Arc::clone(admitted.client())),
        upgrade: Upgrade::of(&mut parts.extensions),
        is_multiplexed: parts.version == Version::HTTP_2,
        anonymous: None,
        is_refused: false,
    };
    // Dropped with this future when the client disconnects, which also ends work for it on other threads.
    let _driven = request.deadline.abandoned_by();
    let answered = answer(&state, &certificate, &mut request, &mut labels).await;
    let mut response = match answered {
        Ok(response) => response,
        Err(error) => {
            if !request.is_refused {
                request.drop_body().await;
            }
            error_answer(&error, &request)
        }
    };
    if request.is_refused {
        response.extensions_mut().insert(RefusedStream);
    }
    if let Some(stream) = request.anonymous.take() {
        // Held until the answer has been sent.
        response.extensions_mut().insert(Arc::new(stream));
    }
    let long_running = matches!(response.body(), AnswerBody::Watch(_) | AnswerBody::Stream(_));
    if head {
        if let Some(length) = http_body::Body::size_hint(response.body()).exact() {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        *response.body_mut() = AnswerBody::Whole(Bytes::new());
    }
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if let Ok(id) = HeaderValue::from_str(&state.uuid()) {
        headers.insert("audit-id", id);
    }
    for (name, uid) in request.flow.headers() {
        if let Ok(uid) = HeaderValue::from_str(uid) {
            headers.insert(name, uid);
        }
    }
    labels.code = response.status().as_u16();
    state.metrics.answered(&labels, started.elapsed(), long_running);
    tracing::debug!(
        verb = labels.verb,
        path = request.path,
        user = request.user.name,
        code = labels.code,
        micros = started.elapsed().as_micros(),
        "request"
    );
    Ok(response)
}

/// Adds `Host` to the headers; HTTP/2 has it in the request's address instead.
fn with_host(uri: &Uri, mut headers: HeaderMap) -> HeaderMap {
    if let Some(authority) = uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.entry(HOST).or_insert(host);
    }
    headers
}

/// Returns the name of a method in metrics; unknown methods share one.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

async fn answer(
    state: &Arc<State>,
    certificate: &ClientCertificate,
    request: &mut ApiRequest,
    labels: &mut RequestLabels,
) -> Result<Answer, ApiError> {
    refuse_unreadable(&request.headers)?;
    if certificate.identity().is_none() {
        move_token(&mut request.headers)?;
    }
    let audience = state.extension.as_ref().and_then(|extension| extension.audience(trimmed(&request.path)));
    let session = session(state, certificate, request).await?;
    // A session acts as the user that its link was made for. The headers of that original request name the user to impersonate.
    let (user, said) = match session {
        Some((user, said)) => (Ok(authentication::authenticated(user)), said),
        None => (authentication::authenticate(state, certificate, &request.headers).await, None),
    };
    take_stream(request, user.as_ref().ok(), audience)?;
    let user = user?;
    let origin = match (&said, audience) {
        (None, Some(_)) => Some(Origin::new(certificate, &request.headers, &user)),
        _ => None,
    };
    request.user = user;
    let route = path::route(&request.path);
    authorize(state, request, &route, audience, said.as_ref())?;
    if let (Some(extension), Some(audience)) = (&state.extension, audience) {
        // Handling such a path sends requests to this server with the user's own rights, and these take seats of their own.
        let _place = match audience {
            Audience::Permitted => Some(state.work.place(&state.metrics, &request.flow, 1).await?),
            Audience::Authenticated | Audience::Anyone => None,
        };
        return extension::answer(state, &Arc::clone(extension), request, origin).await;
    }
    let table = state.aggregator.table();
    if let Some((group, version)) = route.version()
        && let Some(service) = table.find(&state.registry.catalog(), group, version)
    {
        return forward::forward(state, request, service, &route).await;
    }
    match route {
        Route::Resource(target) => resource_request(state, request, target, labels).await,
        Route::Discovery(document) => {
            request.limit_time()?;
            let _place = state.work.place(&state.metrics, &request.flow, 1).await?;
            discovery::answer(state, request, &document)
        }
        Route::Other => {
            request.limit_time()?;
            let _place = state.work.place(&state.metrics, &request.flow, 1).await?;
            health::answer(state, request).await
        }
    }
}

/// Counts a request with its connection. A request without valid credentials takes one of few streams, and its connection accepts
/// no further requests: upstream's `UnauthenticatedHTTP2DOSMitigation`. An exception are paths open to everybody: a browser loads
/// the styles and scripts of a page over the page's connection, and gives up requests that it makes while that connection ends.
fn take_stream(
    request: &mut ApiRequest,
    user: Option<&UserInfo>,
    audience: Option<Audience>,
) -> Result<(), ApiError> {
    let Some(client) = &request.client else { return Ok(()) };
    match user {
        Some(user) if authentication::is_authenticated(user) => {
            client.authenticated(&user.name, authentication::standing(user));
        }
        _ if request.is_multiplexed => {
            if audience != Some(Audience::Anyone) {
                client.end(Ending::AfterRequests);
            }
            request.anonymous = client.anonymous_stream();
            request.is_refused = request.anonymous.is_none();
            if request.is_refused {
                return Err(work::too_many_requests());
            }
        }
        None => client.denied(),
        Some(_) => {}
    }
    Ok(())
}

/// Returns the user of a browser session and the headers that named that user, if no other credentials identify the requester. A
/// session is valid for the paths that the extension accepts it for, and as long as its source is valid, which is checked on each
/// request.
async fn session(
    state: &Arc<State>,
    certificate: &ClientCertificate,
    request: &ApiRequest,
) -> Result<Option<(UserInfo, Option<HeaderMap>)>, ApiError> {
    let headers = &request.headers;
    if !matches!(certificate, ClientCertificate::Absent) || headers.contains_key(AUTHORIZATION) {
        return Ok(None);
    }
    let accepts = |extension: &&Arc<dyn Extension>| extension.accepts_session(trimmed(&request.path));
    let Some(sessions) = state.extension.as_ref().filter(accepts).and_then(|extension| extension.sessions())
    else {
        return Ok(None);
    };
    let now = jiff::Timestamp::now().as_second();
    match sessions.session(headers, now) {
        None => Ok(None),
        Some((_, SessionSource::Request(origin))) => match original_user(state, &origin, now).await {
            Ok(user) => Ok(Some((user, Some(origin.headers().clone())))),
            Err(error) if error.code == 401 => {
                sessions.close(headers);
                Ok(None)
            }
            Err(error) => Err(error),
        },
        Some((user, _)) => Ok(Some((user, Some(HeaderMap::new())))),
    }
}

/// Returns the user whom a session's original credentials still identify, before any impersonation. Fails with a 401 if they are no
/// longer valid: a certificate or token has expired, or an account was deleted.
async fn original_user(state: &Arc<State>, origin: &Origin, now: i64) -> Result<UserInfo, ApiError> {
    let certificate = origin.certificate(now).ok_or_else(authentication::unauthorized)?;
    authentication::authenticate(state, certificate, origin.headers()).await
}

/// Checks whether the request is allowed: for the requester, or for the impersonated user if impersonation is allowed.
fn authorize(
    state: &State,
    request: &mut ApiRequest,
    route: &Route,
    audience: Option<Audience>,
    session: Option<&HeaderMap>,
) -> Result<(), ApiError> {
    let method = known_method(&request.method).to_ascii_lowercase();
    let (verb, name);
    let question = match route {
        Route::Resource(target) => {
            verb = path::resource_verb(&request.method, target, &request.query).unwrap_or_default();
            name = path::authorized_name(target, verb, &request.query);
            Question::Resource(Attributes {
                verb,
                group: &target.group,
                version: &target.version,
                resource: &target.resource,
                subresource: &target.subresource,
                namespace: &target.namespace,
                name: &name,
            })
        }
        Route::Discovery(_) | Route::Other => Question::Path { verb: &method, path: &request.path },
    };
    if let Some(wanted) = impersonation::wanted(session.unwrap_or(&request.headers))? {
        request.user = impersonation::impersonate(&state.access.rbac, &request.user, &wanted, &question)?;
    }
    request.flow = state.work.classify(&request.user, about(&question));
    let is_open = match audience {
        Some(Audience::Anyone) => true,
        Some(Audience::Authenticated) => authentication::is_authenticated(&request.user),
        Some(Audience::Permitted) | None => false,
    };
    let decision = state.access.rbac.decide(&request.user, &question);
    if is_open || decision.allowed {
        return Ok(());
    }
    Err(authentication::refused(&request.user, &question, &decision.reason))
}

/// Converts a question of authorization to the properties that priority and fairness matches on.
fn about<'a>(question: &Question<'a>) -> RequestProperties<'a> {
    match *question {
        Question::Resource(Attributes { verb, group, resource, subresource, namespace, .. }) => {
            RequestProperties::Resource { verb, group, resource, subresource, namespace }
        }
        Question::Path { verb, path } => RequestProperties::Path { verb, path },
    }
}

/// Returns a 405 like that of the router of custom resources, which names the resource that it refuses.
fn not_supported(target: &ResourcePath, verb: &str) -> ApiError {
    let (resource, group) = (&target.resource, &target.group);
    let why = format!("{verb} is not supported on resources of kind \"{resource}.{group}\"");
    let mut error = ApiError::new(405, "MethodNotAllowed", why);
    let details = Details { group: group.clone(), kind: resource.clone(), ..Details::default() };
    error.details = Some(Box::new(details));
    error
}

async fn resource_request(
    state: &Arc<State>,
    request: &mut ApiRequest,
    target: ResourcePath,
    labels: &mut RequestLabels,
) -> Result<Answer, ApiError> {
    let catalog = state.registry.catalog();
    let Some(definition) = catalog.find(&target.group, &target.version, &target.resource) else {
        return not_served(&catalog, &target.group);
    };
    let Some(verb) = path::resource_verb(&request.method, &target, &request.query) else {
        let found = find_verbs(definition, &target).is_some();
        return if found { Err(ApiError::method_not_allowed()) } else { not_served(&catalog, &target.group) };
    };
    labels.verb = verb.to_ascii_uppercase();
    labels.group = definition.group.to_string();
    labels.version = definition.version.to_string();
    labels.resource = definition.resource.to_string();
    labels.scope = scope_label(&target).into();
    let Some(found) = find_verbs(definition, &target) else {
        // The router of custom resources finds the object before it checks the subresource.
        return match definition.custom {
            Some(_) if !target.subresource.is_empty() => {
                Err(ApiError::not_found(&target.group, &target.resource, &target.name))
            }
            _ => not_served(&catalog, &target.group),
        };
    };
    labels.subresource.clone_from(&target.subresource);
    // The deprecated watch paths serve nothing but watches.
    if target.watch_path && !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let across_namespaces =
        definition.scope == Scope::Namespaced && !target.namespaced && !matches!(verb, "list" | "watch");
    // Objects are created in collections, and changed individually.
    let misplaced = match verb {
        "create" => !target.name.is_empty() && target.subresource.is_empty(),
        "update" | "patch" => target.name.is_empty(),
        _ => false,
    };
    let routed = request.method != Method::HEAD && found.iter().any(|known| **known == *verb);
    if definition.custom.is_some() && request.method != Method::HEAD {
        if matches!(verb, "update" | "patch") && target.name.is_empty() {
            return Err(ApiError::bad_request("name must be provided"));
        }
        if !routed {
            return Err(not_supported(&target, verb));
        }
    }
    if misplaced || across_namespaces || !routed {
        return Err(ApiError::method_not_allowed());
    }
    request.limit_time()?;
    let deprecated = deprecation(definition);
    let end = request.deadline.end();
    let dispatched = dispatch(state, request, Arc::clone(definition), target, verb);
    let answered = if verb == "watch" {
        dispatched.await
    } else {
        // If time runs out, dropping the future gives back its seats.
        let in_time = tokio::time::timeout_at(end.into(), dispatched).await;
        in_time.unwrap_or_else(|_| Err(ApiError::out_of_time()))
    };
    let Some(text) = deprecated else { return answered };
    // Requests that the router refuses never reach the kind's handler, so they get no warning.
    if matches!(&answered, Err(error) if matches!(error.code, 406 | 415) && error.details.is_some()) {
        return answered;
    }
    let mut answer = answered.unwrap_or_else(|error| error_answer(&error, request));
    warn_first(answer.headers_mut(), text);
    Ok(answer)
}

/// Answers with a 404 for a resource that is not served: a Status if its group is served, otherwise a page.
pub(crate) fn not_served(catalog: &Catalog, group: &str) -> Result<Answer, ApiError> {
    let builtin = catalog.group(group).is_some_and(|group| {
        group.versions.iter().flat_map(|version| &version.resources).any(|row| row.custom.is_none())
    });
    if !builtin {
        return Ok(page_not_found());
    }
    let mut error = ApiError::new(404, "NotFound", "the server could not find the requested resource");
    error.details = Some(Box::default());
    Err(error)
}

/// Returns the warning that every answer about a deprecated kind carries.
fn deprecation(definition: &ResourceDefinition) -> Option<&'static str> {
    match (&*definition.group, &*definition.resource) {
        ("", "endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

/// Inserts a warning before the existing ones.
fn warn_first(headers: &mut HeaderMap, text: &str) {
    let rest: Vec<HeaderValue> = headers.get_all("warning").iter().cloned().collect();
    headers.remove("warning");
    if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
        headers.append("warning", value);
    }
    for value in rest {
        if headers.get("warning") == Some(&value) {
            continue;
        }
        headers.append("warning", value);
    }
}

fn scope_label(target: &ResourcePath) -> &'static str {
    if !target.name.is_empty() {
        "resource"
    } else if target.namespace.is_empty() {
        "cluster"
    } else {
        "namespace"
    }
}

/// Returns the verbs for a path; `None` if it does not exist.
fn find_verbs<'a>(definition: &'a ResourceDefinition, target: &ResourcePath) -> Option<&'a [Arc<str>]> {
    let fits = match definition.scope {
        Scope::Cluster => !target.namespaced,
        // Without a namespace, there are only collections of listable resources.
        Scope::Namespaced => {
            let is_listed = definition.verbs.iter().any(|verb| **verb == *"list");
            target.namespaced || (target.name.is_empty() && is_listed)
        }
    };
    if !fits || (!target.rest.is_empty() && target.subresource != "proxy") {
        return None;
    }
    if target.subresource.is_empty() {
        return Some(&definition.verbs);
    }
    let subresource = definition.subresources.iter().find(|known| *known.name == *target.subresource)?;
    Some(&subresource.verbs)
}

async fn dispatch(
    state: &Arc<State>,
    request: &mut ApiRequest,
    definition: Arc<ResourceDefinition>,
    path: ResourcePath,
    verb: &'static str,
) -> Result<Answer, ApiError> {
    // Namespace objects are cluster-scoped; their "namespace" only matters for authorization.
    let namespace = if definition.scope == Scope::Cluster { String::new() } else { path.namespace };
    let target =
        RequestTarget { resource: definition, namespace, name: path.name, subresource: path.subresource };
    if verb == "watch" {
        return watch(state, request, target).await;
    }
    if verb == "create" && reviews::is_review(&target.resource) {
        let _place = place_after_body(state, request).await?;
        return reviews::answer(state, request, &target).await;
    }
    if NODE_SUBRESOURCES.contains(&target.subresource.as_str()) {
        return node_subresource(state, request, target).await;
    }
    if verb == "create" && target.subresource == "token" && *target.resource.resource == *"serviceaccounts" {
        let _place = place_after_body(state, request).await?;
        return token_request::answer(state, request, &target).await;
    }
    let purpose = purpose(&target, verb);
    let representation = request.representation(purpose)?;
    let wish = PendingOperation::read(request, &state.work.bodies, &target, verb).await?;
    let _place = state.work.place(&state.metrics, &request.flow, wish.width()).await?;
    let _decoded = request.charge(wish.decoded_bytes())?;
    if !matches!(verb, "get" | "list") {
        request.deadline.shorten_from_now(WRITE_PATIENCE);
    }
    let definition = Arc::clone(&target.resource);
    let task = Arc::new(Task { target, wish, caller: request.caller() });
    let mut tries = 0;
    let outcome = loop {
        let outcome = {
            let task = Arc::clone(&task);
            state.perform(task.wish.weight(&task.target), move |state| task.perform(state)).await
        };
        tries += 1;
        match outcome {
            Err(error) if error.is_awaited && tries < MAXIMUM_TRIES => {
                tokio::time::sleep(PAUSE_BETWEEN_TRIES).await;
            }
            outcome => break outcome?,
        }
    };
    write_answer(request, &definition, representation, outcome, &state.list_lengths)
}

/// A request that can be executed, and repeated if an object that it needs is about to be created.
struct Task {
    target: RequestTarget,
    wish: PendingOperation,
    caller: Caller,
}

impl Task {
    fn perform(&self, state: &State) -> Result<gc_registry::api::Response, ApiError> {
        let operation = self.wish.decode();
        state.with_context(&self.caller, |registry, context| match operation {
            Ok(operation) => registry.handle(&self.target, operation, context),
            Err(error) if self.wish.is_about_what_is_there() => {
                let look = Operation::Get { resource_version: String::new() };
                let found = registry.handle(&self.target, look, context);
                Err(found.err().filter(|missing| missing.code == 404).unwrap_or(error))
            }
            Err(error) => Err(error),
        })
    }
}

/// Waits for the body of a request, then takes seats for it and reserves memory for the decoded body.
async fn place_after_body(
    state: &State,
    request: &mut ApiRequest,
) -> Result<(Seat, Option<Charge>), ApiError> {
    let bytes = request.read_body(&state.work.bodies).await?;
    let content_type = request.header(&CONTENT_TYPE);
    let width = work::width(&bytes, content_type);
    let decoded = work::decoded_bytes(&bytes, content_type);
    let place = state.work.place(&state.metrics, &request.flow, width).await?;
    Ok((place, request.charge(decoded)?))
}

/// Returns the purpose of the answer. Built-in kinds can be written as protobuf, and so can the Status that a DELETE returns.
fn purpose(target: &RequestTarget, verb: &str) -> Purpose {
    match (target.resource.custom.is_some(), verb) {
        (true, "watch") => Purpose::Watch,
        (false, "watch") => Purpose::WatchBuiltin,
        (true, verb) if verb != "delete" => Purpose::Answer,
        (false, "list") => Purpose::List,
        _ => Purpose::Status,
    }
}

/// Subresources that lead to a kubelet or through a proxy, neither of which exists here.
const NODE_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Answers those subresources of a node that need no kubelet.
async fn node_subresource(
    state: &Arc<State>,
    request: &ApiRequest,
    target: RequestTarget,
) -> Result<Answer, ApiError> {
    if target.subresource == "log" {
        log_options::check(&request.query, &target.name)?;
    }
    let _place = state.work.place(&state.metrics, &request.flow, 1).await?;
    admit_connection(state, request, &target).await?;
    let whole = RequestTarget { subresource: String::new(), ..target.clone() };
    let caller = request.caller();
    let read = Operation::Get { resource_version: String::new() };
    let found = state
        .perform(Weight::Read, move |state| {
            state.with_context(&caller, |registry, context| registry.handle(&whole, read, context))
        })
        .await?;
    let ResponseBody::Object(object) = found.body else {
        return Err(ApiError::internal("a read answered no object"));
    };
    let whole = object.value()?;
    let spec = &whole["spec"];
    let scheduled = spec["nodeName"].as_str().is_some_and(|name| !name.is_empty());
    match &*target.subresource {
        "log" | "exec" | "attach" => check_container(spec, &request.query.text("container"), &target.name)?,
        "portforward" => check_ports(&request.query)?,
        _ => {}
    }
    match &*target.subresource {
        // Nothing was logged yet.
        "log" if !scheduled => {
            return Ok(text_answer(http::StatusCode::NO_CONTENT, "text/plain", Bytes::new()));
        }
        "log" | "proxy" => {}
        _ if !scheduled => {
            return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", target.name)));
        }
        _ => {}
    }
    Err(match &*target.subresource {
        "log" | "exec" | "attach" | "portforward" => ApiError::bad_request(format!(
            "pod {} has no running containers: {}",
            target.name,
            why_nothing_runs(whole)
        )),
        _ => ApiError::new(
            503,
            "ServiceUnavailable",
            format!(
                "no endpoints available for \"{}\": the embedded API server proxies nothing",
                target.name
            ),
        ),
    })
}

/// Runs admission for a connection, before anything is read.
async fn admit_connection(
    state: &Arc<State>,
    request: &ApiRequest,
    target: &RequestTarget,
) -> Result<(), ApiError> {
    let Some((kind, mut options)) = connections::options(target, &request.query) else { return Ok(()) };
    if !state.registry.admits() {
        return Ok(());
    }
    let (caller, target) = (request.caller(), target.clone());
    let admission = (Admission::Connect, Some(kind));
    state
        .perform(Weight::Write, move |state| {
            state.with_context(&caller, |registry, context| {
                registry.admit(&target, &mut options, admission, context)
            })
        })
        .await
        .map(drop)
}

/// Prefix of the container IDs of simulated nodes.
const SIMULATED: &str = "kubegc://";

/// Returns the reason why a pod on a node has no container that can be reached.
fn why_nothing_runs(pod: &Value) -> &'static str {
    let mut statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let is_simulated =
        statuses.any(|status| status["containerID"].as_str().is_some_and(|id| id.starts_with(SIMULATED)));
    if is_simulated {
        "its node is simulated; no container runs"
    } else {
        "the embedded API server reaches no kubelet"
    }
}

/// Checks that the container of a log or a command belongs to the pod, and is named if there are several.
fn check_container(spec: &Value, wanted: &str, pod: &str) -> Result<(), ApiError> {
    let names = |list: &str| -> Vec<&str> {
        spec[list].as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    let all = || containers.iter().chain(&init).copied().chain(names("ephemeralContainers"));
    if !wanted.is_empty() {
        if all().any(|name| name == wanted) {
            return Ok(());
        }
        return Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {pod}")));
    }
    if containers.len() == 1 {
        return Ok(());
    }
    let choice: Vec<&str> =
        init.iter().chain(&containers).copied().chain(names("ephemeralContainers")).collect();
    Err(ApiError::bad_request(format!(
        "a container name must be specified for pod {pod}, choose one of: [{}]",
        choice.join(" ")
    )))
}

/// Checks that the ports to forward are numbers.
fn check_ports(query: &Query) -> Result<(), ApiError> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match query.all("ports").find(|text| !is_number(text)) {
        Some(text) => Err(ApiError::bad_request(format!(
            "cannot convert to []int32: strconv.ParseUint: parsing {}: invalid syntax",
            quoted(text)
        ))),
        None => Ok(()),
    }
}

/// Returns the duration of a watch that its client asks for, computed as in Go: in nanoseconds that may overflow; a negative
/// duration has already passed.
fn wanted_timeout(seconds: Option<i64>) -> Option<Duration> {
    const NANOSECONDS: i64 = 1_000_000_000;
    let nanoseconds = seconds?.wrapping_mul(NANOSECONDS);
    (nanoseconds != 0).then(|| Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0)))
}

async fn watch(
    state: &Arc<State>,
    request: &ApiRequest,
    mut target: RequestTarget,
) -> Result<Answer, ApiError> {
    let representation = request.representation(purpose(&target, "watch"))?;
    let include = IncludeObject::parse(request.query.get("includeObject"))?;
    let options = request.query.list_options()?;
    let place = state.work.watch_place(&request.user.name, &request.flow)?;
    // Only the work before the first event takes a seat.
    let starting = state.work.place(&state.metrics, &request.flow, 1).await?;
    let definition = Arc::clone(&target.resource);
    let started: ListOptions = options.clone();
    target.subresource.clear();
    let weight = if definition.asks_webhook() { Weight::ReadConverted } else { Weight::ReadMany };
    let watch = state.perform(weight, move |state| Ok(state.registry.watch(&target, &started))).await?;
    drop(starting);
    // A compacted version is reported within the stream, as upstream's watch cache does; other errors refuse the request.
    let watch = match watch {
        Err(error) if error.code != 410 => return Err(error),
        other => other,
    };
    let timeout = wanted_timeout(options.timeout_seconds).unwrap_or_else(|| {
        let more = u64::try_from(state.entropy() % u128::from(WATCH_MINIMUM_SECONDS)).unwrap_or(0);
        Duration::from_secs(WATCH_MINIMUM_SECONDS + more)
    });
    let table =
        (representation.form == Form::Table).then(|| (Table::of(&definition, state.clock.now()), include));
    let stream = WatchStream::new(WatchSetup {
        watch,
        representation,
        api_version: definition.api_version(),
        kind: definition.kind.to_string(),
        table,
        timeout,
        bookmarks: options.allow_watch_bookmarks,
        cache: Arc::clone(&state.frames),
        stop: state.stop.clone(),
        _guard: state.metrics.watch(place),
    });
    let stream = match websocket::answer(request, Box::new(stream), representation.encoding) {
        Ok(answer) => return Ok(answer),
        Err(stream) => stream,
    };
    let mut response = Response::new(AnswerBody::Watch(stream));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(representation.stream_content_type()));
    Ok(response)
}
