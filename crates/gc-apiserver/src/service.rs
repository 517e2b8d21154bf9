//! One request, from its header to its answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use gc_registry::api::{
    Attributes, ListOptions, Operation, PatchType, RequestTarget, Response as RegistryResponse, ResponseBody,
    UserInfo,
};
use gc_registry::error::{ApiError, Details};
use gc_registry::resource::ResourceDefinition;
use gc_types::Scope;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER,
    USER_AGENT, VARY,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;

use crate::authentication::{self, CertificateIdentity};
use crate::body::AnswerBody;
use crate::list::{Begun, GZIP_FROM, ItemForm, ListStream, list_meta};
use crate::metrics::RequestLabels;
use crate::negotiate::{self, Encoding, Form, Purpose, Representation};
use crate::path::{self, ResourcePath, Route};
use crate::query::{Query, decode};
use crate::rbac::Question;
use crate::render::{self, IncludeObject};
use crate::state::State;
use crate::table::Table;
use crate::watching::{WatchSetup, WatchStream};
use crate::work::{self, Weight};
use crate::{decode as bodies, discovery, escalation, health, reviews, token_request};

/// Longest request body (upstream's limit).
pub(crate) const MAXIMUM_BODY: usize = 3 * 1024 * 1024;
/// How much of a body beyond that is read and dropped, so that the client gets to see the answer.
const MAXIMUM_DRAINED: usize = 64 * 1024 * 1024;
/// How long a body may take.
const BODY_PATIENCE: Duration = Duration::from_mins(1);
/// How long the dropped rest of a body may take.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// A watch without timeoutSeconds lasts between this and twice this.
const WATCH_MINIMUM_SECONDS: u64 = 1800;
/// Longest default field manager.
const MAXIMUM_MANAGER: usize = 128;

/// Why the body of a request broke off.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a request, from a connection or from this process.
pub(crate) type RequestBytes = BoxBody<Bytes, BodyError>;
/// An answer.
pub(crate) type Answer = Response<AnswerBody>;

/// What is known of a request before its body is read.
pub(crate) struct ApiRequest {
    /// Method.
    pub(crate) method: Method,
    /// Decoded path.
    pub(crate) path: String,
    /// Query.
    pub(crate) query: Query,
    /// Headers.
    pub(crate) headers: HeaderMap,
    /// The body, until somebody reads it.
    pub(crate) body: RequestBytes,
    /// Who asks.
    pub(crate) user: UserInfo,
}

impl ApiRequest {
    /// A header as text.
    pub(crate) fn header(&self, name: &http::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The representation of the answer.
    pub(crate) fn representation(&self, purpose: Purpose) -> Result<Representation, ApiError> {
        let pretty = self.query.boolean("pretty").unwrap_or(false);
        negotiate::negotiate(self.header(&ACCEPT), pretty, purpose)
    }

    fn takes_gzip(&self) -> bool {
        self.header(&ACCEPT_ENCODING).is_some_and(|text| {
            text.split(',').any(|one| one.split(';').next().unwrap_or_default().trim() == "gzip")
        })
    }

    /// The default field manager: the user agent up to its first slash.
    fn manager(&self) -> String {
        let agent = self.header(&USER_AGENT).unwrap_or_default();
        let name = agent.split('/').next().unwrap_or_default();
        name.chars().filter(|c| !c.is_control()).take(MAXIMUM_MANAGER).collect()
    }

    /// Reads the whole body: 413 beyond the limit, 504 if it takes too long, 400 if it breaks off.
    pub(crate) async fn read_body(&mut self) -> Result<Bytes, ApiError> {
        match tokio::time::timeout(BODY_PATIENCE, collect(&mut self.body, MAXIMUM_BODY)).await {
            Ok(Ok(Some(bytes))) => Ok(bytes),
            Ok(Ok(None)) => {
                let _ = tokio::time::timeout(DRAIN_PATIENCE, drain(&mut self.body)).await;
                Err(ApiError::new(
                    413,
                    "RequestEntityTooLarge",
                    format!("Request entity too large: limit is {MAXIMUM_BODY}"),
                ))
            }
            Ok(Err(error)) => {
                Err(ApiError::bad_request(format!("the body of the request broke off: {error}")))
            }
            Err(_) => Err(ApiError::new(
                504,
                "Timeout",
                format!(
                    "Timeout: the body of the request did not arrive within {} s",
                    BODY_PATIENCE.as_secs()
                ),
            )),
        }
    }
}

async fn collect(body: &mut RequestBytes, limit: usize) -> Result<Option<Bytes>, BodyError> {
    let mut all = BytesMut::new();
    let mut first: Option<Bytes> = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if all.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > limit {
            return Ok(None);
        }
        match first.take() {
            None if all.is_empty() => first = Some(data),
            None => all.extend_from_slice(&data),
            Some(begun) => {
                all.extend_from_slice(&begun);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(Some(first.unwrap_or_else(|| all.freeze())))
}

async fn drain(body: &mut RequestBytes) {
    let mut dropped = 0;
    while let Some(Ok(frame)) = body.frame().await {
        dropped += frame.data_ref().map_or(0, Bytes::len);
        if dropped > MAXIMUM_DRAINED {
            return;
        }
    }
}

/// Answers a request. Never fails: what goes wrong becomes a Status.
pub(crate) async fn serve<B>(
    state: Arc<State>,
    certificate: Option<CertificateIdentity>,
    request: Request<B>,
) -> Result<Answer, Infallible>
where
    B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
    B::Error: Into<BodyError>,
{
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let mut labels = RequestLabels { verb: known_method(&parts.method).into(), ..RequestLabels::default() };
    let head = parts.method == Method::HEAD;
    let mut request = ApiRequest {
        method: parts.method,
        path: decode(parts.uri.path(), false),
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        headers: parts.headers,
        body: body.map_err(Into::into).boxed(),
        user: UserInfo::default(),
    };
    let answered = answer(&state, certificate.as_ref(), &mut request, &mut labels).await;
    let mut response = answered.unwrap_or_else(|error| error_answer(&error, &request));
    let long_running = matches!(response.body(), AnswerBody::Watch(_));
    if head {
        *response.body_mut() = AnswerBody::Whole(Bytes::new());
    }
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if let Ok(id) = HeaderValue::from_str(&state.uuid()) {
        headers.insert("audit-id", id);
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

/// Methods as metrics name them; unknown ones share a name.
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
    certificate: Option<&CertificateIdentity>,
    request: &mut ApiRequest,
    labels: &mut RequestLabels,
) -> Result<Answer, ApiError> {
    let user = authentication::authenticate(state, certificate, &request.headers).await?;
    request.user = user;
    request.user = authentication::impersonate(state, request.user.clone(), &request.headers)?;
    match path::route(&request.path) {
        Route::Resource(target) => resource_request(state, request, target, labels).await,
        Route::Discovery(document) => {
            authorize_path(state, request)?;
            discovery::answer(state, request, &document)
        }
        Route::Other => {
            authorize_path(state, request)?;
            health::answer(state, request).await
        }
    }
}

fn authorize_path(state: &State, request: &ApiRequest) -> Result<(), ApiError> {
    let verb = known_method(&request.method).to_ascii_lowercase();
    let question = Question::Path { verb: &verb, path: &request.path };
    if state.rbac.decide(&request.user, &question).allowed {
        return Ok(());
    }
    let mut error = ApiError::new(
        403,
        "Forbidden",
        format!("forbidden: User \"{}\" cannot {verb} path \"{}\"", request.user.name, request.path),
    );
    error.details = Some(Box::default());
    Err(error)
}

/// 405 in upstream's words.
pub(crate) fn method_not_allowed() -> ApiError {
    let mut error = ApiError::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    error.details = Some(Box::default());
    error
}

/// What a path that leads nowhere is answered with.
pub(crate) fn page_not_found() -> Answer {
    text_answer(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n")
}

/// A text as an answer.
pub(crate) fn text_answer(code: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(AnswerBody::Whole(text.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

async fn resource_request(
    state: &Arc<State>,
    request: &mut ApiRequest,
    target: ResourcePath,
    labels: &mut RequestLabels,
) -> Result<Answer, ApiError> {
    let Some(verb) = path::resource_verb(&request.method, &target, &request.query) else {
        return Err(method_not_allowed());
    };
    let field_selector = request.query.text("fieldSelector");
    let name = if target.name.is_empty() && matches!(verb, "list" | "watch" | "deletecollection") {
        path::name_from_field_selector(&field_selector).unwrap_or_default()
    } else {
        &target.name
    };
    let wanted = Attributes {
        verb,
        group: &target.group,
        version: &target.version,
        resource: &target.resource,
        subresource: &target.subresource,
        namespace: &target.namespace,
        name,
    };
    if !state.rbac.decide(&request.user, &Question::Resource(wanted)).allowed {
        return Err(authentication::forbidden(&request.user, &wanted));
    }
    let catalog = state.registry.catalog();
    let Some(definition) = catalog.find(&target.group, &target.version, &target.resource) else {
        return Ok(page_not_found());
    };
    labels.verb = verb.to_ascii_uppercase();
    labels.group = definition.group.to_string();
    labels.version = definition.version.to_string();
    labels.resource = definition.resource.to_string();
    labels.scope = scope_label(&target).into();
    let Some(found) = find_verbs(definition, &target) else {
        // The router of custom resources knows the object before it knows the subresource.
        return match definition.custom {
            Some(_) if !target.subresource.is_empty() => {
                Err(ApiError::not_found(&target.group, &target.resource, &target.name))
            }
            _ => Ok(page_not_found()),
        };
    };
    labels.subresource.clone_from(&target.subresource);
    let across_namespaces =
        definition.scope == Scope::Namespaced && !target.namespaced && !matches!(verb, "list" | "watch");
    // Objects are created in collections, and changed one by one.
    let misplaced = match verb {
        "create" => !target.name.is_empty() && target.subresource.is_empty(),
        "update" | "patch" => target.name.is_empty(),
        _ => false,
    };
    if misplaced || across_namespaces || !found.iter().any(|known| **known == *verb) {
        return Err(method_not_allowed());
    }
    dispatch(state, request, Arc::clone(definition), target, verb).await
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

/// The verbs of what a path leads to; `None` if it leads nowhere.
fn find_verbs<'a>(definition: &'a ResourceDefinition, target: &ResourcePath) -> Option<&'a [Arc<str>]> {
    let fits = match definition.scope {
        Scope::Cluster => !target.namespaced,
        // Without a namespace there are only collections.
        Scope::Namespaced => target.namespaced || target.name.is_empty(),
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
    // Namespace objects are cluster-scoped: their "namespace" is only for authorization.
    let namespace = if definition.scope == Scope::Cluster { String::new() } else { path.namespace };
    let target =
        RequestTarget { resource: definition, namespace, name: path.name, subresource: path.subresource };
    if verb == "watch" {
        return watch(state, request, target).await;
    }
    if verb == "create" && reviews::is_review(&target.resource) {
        let _place = state.work.place(&state.metrics).await?;
        return reviews::answer(state, request, &target).await;
    }
    if let Some(refusal) = node_subresource(&target) {
        return Err(refusal);
    }
    if verb == "create" && target.subresource == "token" && *target.resource.resource == *"serviceaccounts" {
        let _place = state.work.place(&state.metrics).await?;
        return token_request::answer(state, request, &target).await;
    }
    let purpose = if matches!(verb, "delete") { Purpose::Status } else { Purpose::Answer };
    let representation = request.representation(purpose)?;
    let (operation, weight) = operation(request, &target, verb).await?;
    let _place = state.work.place(&state.metrics).await?;
    let (user, manager) = (request.user.clone(), request.manager());
    let definition = Arc::clone(&target.resource);
    let outcome = work::perform(state, weight, move |state| {
        escalation::check(state, &user, &manager, &target, &operation)?;
        state.with_context(&user, &manager, |registry, context| registry.handle(&target, operation, context))
    })
    .await;
    write_answer(request, &definition, representation, outcome?)
}

/// Subresources that lead to a kubelet or through a proxy, neither of which is there.
fn node_subresource(target: &RequestTarget) -> Option<ApiError> {
    match &*target.subresource {
        "log" | "exec" | "attach" | "portforward" => Some(ApiError::bad_request(format!(
            "pod {} has no running containers: the embedded API server has no nodes",
            target.name
        ))),
        "proxy" => Some(ApiError::new(
            503,
            "ServiceUnavailable",
            format!(
                "no endpoints available for \"{}\": the embedded API server proxies nothing",
                target.name
            ),
        )),
        _ => None,
    }
}

async fn operation(
    request: &mut ApiRequest,
    target: &RequestTarget,
    verb: &str,
) -> Result<(Operation, Weight), ApiError> {
    let content_type = request.header(&CONTENT_TYPE).map(str::to_owned);
    let content_type = content_type.as_deref();
    let subresource = target.resource.subresources.iter().find(|known| *known.name == *target.subresource);
    let kind =
        subresource.map_or(&target.resource.kind, |subresource| &subresource.response_kind.2).to_string();
    Ok(match verb {
        "get" => (Operation::Get { resource_version: request.query.text("resourceVersion") }, Weight::Read),
        "list" => (Operation::List(request.query.list_options()?), Weight::ReadMany),
        "create" => {
            let options = request.query.write_options("CreateOptions")?;
            let bytes = request.read_body().await?;
            (Operation::Create(bodies::object(&bytes, content_type, &kind)?, options), Weight::Write)
        }
        "update" => {
            let options = request.query.write_options("UpdateOptions")?;
            let bytes = request.read_body().await?;
            (Operation::Update(bodies::object(&bytes, content_type, &kind)?, options), Weight::Write)
        }
        "patch" => {
            let patch_type = patch_type(content_type, target.resource.custom.is_some())?;
            let options = request.query.write_options("PatchOptions")?;
            let bytes = request.read_body().await?;
            let body = bodies::patch(&bytes, patch_type == PatchType::Apply)?;
            (Operation::Patch(patch_type, body, options), Weight::Write)
        }
        "delete" => (Operation::Delete(delete_options(request, content_type).await?), Weight::Write),
        "deletecollection" => {
            let list = request.query.list_options()?;
            let options = delete_options(request, content_type).await?;
            (Operation::DeleteCollection(list, options), Weight::WriteMany)
        }
        _ => return Err(method_not_allowed()),
    })
}

async fn delete_options(
    request: &mut ApiRequest,
    content_type: Option<&str>,
) -> Result<gc_registry::api::DeleteOptions, ApiError> {
    let bytes = request.read_body().await?;
    if bytes.is_empty() {
        return request.query.delete_options();
    }
    bodies::delete_options(&bytes, content_type)
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
        _ => Err(negotiate::unsupported_media_type(
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml",
        )),
    }
}

async fn watch(
    state: &Arc<State>,
    request: &ApiRequest,
    mut target: RequestTarget,
) -> Result<Answer, ApiError> {
    let representation = request.representation(Purpose::Watch)?;
    let include = IncludeObject::parse(request.query.get("includeObject"))?;
    let options = request.query.list_options()?;
    let place = state.work.watch_place()?;
    let definition = Arc::clone(&target.resource);
    let started: ListOptions = options.clone();
    target.subresource.clear();
    let watch =
        work::perform(state, Weight::ReadMany, move |state| Ok(state.registry.watch(&target, &started)))
            .await?;
    // A version that is gone is told within the stream, as upstream's watch cache does; the rest is refused.
    let watch = match watch {
        Err(error) if error.code != 410 => return Err(error),
        other => other,
    };
    let seconds = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => seconds,
        _ => {
            WATCH_MINIMUM_SECONDS
                + u64::try_from(state.entropy() % u128::from(WATCH_MINIMUM_SECONDS)).unwrap_or(0)
        }
    };
    let table = (representation.form == Form::Table)
        .then(|| (Table::of(&definition, jiff::Timestamp::now()), include));
    let stream = WatchStream::new(WatchSetup {
        watch,
        representation,
        api_version: api_version(&definition.group, &definition.version),
        kind: definition.kind.to_string(),
        table,
        timeout: Duration::from_secs(seconds),
        bookmarks: options.allow_watch_bookmarks,
        cache: Arc::clone(&state.frames),
        stop: state.stop.clone(),
        _guard: state.metrics.watch(place),
    });
    let mut response = Response::new(AnswerBody::Watch(Box::new(stream)));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(representation.stream_content_type()));
    Ok(response)
}

/// `group/version`, or `version` for core.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Writes the registry's answer in a representation.
pub(crate) fn write_answer(
    request: &ApiRequest,
    definition: &Arc<ResourceDefinition>,
    representation: Representation,
    answer: RegistryResponse,
) -> Result<Answer, ApiError> {
    let include = IncludeObject::parse(request.query.get("includeObject"))?;
    let gzip = request.takes_gzip();
    let table = || Arc::new(Table::of(definition, jiff::Timestamp::now()));
    let mut response = match answer.body {
        ResponseBody::Status(status) => {
            let form = Representation { form: Form::Object, ..representation };
            whole(render::value(&status, form), form, gzip)
        }
        ResponseBody::Object(object) => {
            let representation = json_if_impossible(representation);
            whole(render::object(&object, representation, table, include)?, representation, gzip)
        }
        ResponseBody::List(list) => {
            let representation = json_if_impossible(representation);
            let list_form = match representation.form {
                Form::Object => ItemForm::Object { with_type: definition.custom.is_some() },
                Form::Metadata => ItemForm::Metadata,
                Form::Table => ItemForm::Row(table(), include),
            };
            if representation.encoding == Encoding::Protobuf {
                whole(protobuf_list(&list, representation)?, representation, gzip)
            } else {
                let api_version = api_version(&definition.group, &definition.version);
                let kind = definition.list_kind.to_string();
                write_list(&kind, &api_version, list, list_form, representation, gzip)?
            }
        }
    };
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
    for warning in &answer.warnings {
        if let Ok(value) = HeaderValue::from_str(&warning_header(warning)) {
            response.headers_mut().append("warning", value);
        }
    }
    Ok(response)
}

/// Protobuf of whole objects is not ours: a DELETE that asked for it (and got an object instead of a Status)
/// is answered in JSON, which says so in its content type.
fn json_if_impossible(representation: Representation) -> Representation {
    if representation.encoding == Encoding::Protobuf && representation.form == Form::Object {
        Representation { encoding: Encoding::Json, ..representation }
    } else {
        representation
    }
}

/// `299 - "text"`, without what a header cannot hold.
fn warning_header(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 8);
    for c in text.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    format!("299 - \"{quoted}\"")
}

fn protobuf_list(
    list: &gc_registry::api::ObjectList,
    representation: Representation,
) -> Result<Vec<u8>, ApiError> {
    let meta = crate::protobuf::ListMeta {
        resource_version: &list.resource_version,
        continue_token: &list.continue_token,
        remaining_item_count: list.remaining_item_count,
    };
    crate::protobuf::metadata_list(
        representation.meta_version(),
        &meta,
        list.items.iter().map(|item| item.metadata().cloned()),
    )
}

fn write_list(
    kind: &str,
    api_version: &str,
    list: gc_registry::api::ObjectList,
    form: ItemForm,
    representation: Representation,
    gzip: bool,
) -> Result<Answer, ApiError> {
    if representation.pretty || representation.encoding == Encoding::Yaml {
        // For people, not for machines: put together whole.
        let plain = Representation { pretty: false, encoding: Encoding::Json, ..representation };
        let mut items = Vec::with_capacity(list.items.len());
        if let ItemForm::Object { .. } = form {
            for item in &list.items {
                items.push((**item.value()?).clone());
            }
            let value = serde_json::json!({
                "kind": kind, "apiVersion": api_version, "metadata": list_meta(&list), "items": items,
            });
            return Ok(whole(render::value(&value, representation), representation, gzip));
        }
        let text = match ListStream::begin(kind, api_version, list, form, plain, false) {
            Begun::Whole(bytes) => bytes.to_vec(),
            Begun::Stream(mut stream, _) => {
                let mut all = Vec::new();
                while let Some(piece) = stream.next_piece() {
                    all.extend_from_slice(&piece);
                }
                all
            }
        };
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(ApiError::internal)?;
        return Ok(whole(render::value(&value, representation), representation, gzip));
    }
    Ok(match ListStream::begin(kind, api_version, list, form, representation, gzip) {
        Begun::Whole(bytes) => whole(bytes, representation, false),
        Begun::Stream(stream, compressed) => {
            let mut response = Response::new(AnswerBody::List(stream));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(representation.content_type()));
            if compressed {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            }
            response
        }
    })
}

/// A whole answer, compressed if it is large and the client takes that.
fn whole(bytes: impl Into<Bytes>, representation: Representation, gzip: bool) -> Answer {
    compressible(bytes.into(), representation.content_type(), gzip)
}

/// The same with any content type.
pub(crate) fn compressible(bytes: Bytes, content_type: &'static str, gzip: bool) -> Answer {
    if gzip && bytes.len() > GZIP_FROM {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
        if let Ok(packed) = encoder.write_all(&bytes).and_then(|()| encoder.finish()) {
            let mut response = text_answer(StatusCode::OK, content_type, packed);
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            return response;
        }
    }
    text_answer(StatusCode::OK, content_type, bytes)
}

impl ApiRequest {
    /// A document as an answer, compressed where that pays.
    pub(crate) fn document(&self, bytes: Bytes, content_type: &'static str) -> Answer {
        compressible(bytes, content_type, self.takes_gzip())
    }
}

/// A Status of failure as an answer.
fn error_answer(error: &ApiError, request: &ApiRequest) -> Answer {
    // An answer that cannot be what was asked for is JSON.
    let representation = request.representation(Purpose::Status).unwrap_or(Representation::JSON);
    let representation = Representation { form: Form::Object, ..representation };
    let mut response = whole(render::value(&error.to_status(), representation), representation, false);
    *response.status_mut() = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let retry = error.details.as_deref().and_then(|details: &Details| details.retry_after_seconds);
    if let Some(seconds) = retry {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
