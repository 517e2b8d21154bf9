//! Authentication by client certificates and bearer tokens.

use std::sync::Arc;

use futures::FutureExt as _;
use gc_registry::api::{
    Attributes, ListOptions, Operation, RequestTarget, ResponseBody, UserInfo, VersionMatch, WatchEvent,
};
use gc_registry::error::ApiError;
use gc_registry::names::{self, quoted};
use gc_registry::object::Object;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::task::JoinSet;

use crate::auth::aggregation;
use crate::auth::client_certificates::ClientCertificate;
use crate::auth::pki::MASTERS_GROUP;
use crate::auth::rbac::{self, Grant, Question, SERVICE_ACCOUNT_PREFIX};
use crate::auth::tokens::Claims;
use crate::exchange::header_text;
use crate::state::State;
use crate::transport::account::ClientStanding;
use crate::work::Weight;

/// User name of a client without credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// Group of clients without credentials.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group of clients with credentials.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// Returns a 401.
pub(crate) fn unauthorized() -> ApiError {
    ApiError::new(401, "Unauthorized", "Unauthorized")
}

/// Returns the user behind a request, before any impersonation.
pub(crate) async fn authenticate(
    state: &Arc<State>,
    certificate: &ClientCertificate,
    headers: &HeaderMap,
) -> Result<UserInfo, ApiError> {
    if let ClientCertificate::FrontProxy(_) = certificate
        && let Some(user) = state.access.front_proxy.as_ref().and_then(|names| names.user(headers))
    {
        return Ok(authenticated(user));
    }
    if let Some(identity) = certificate.identity()
        && !identity.name.is_empty()
    {
        let user =
            UserInfo { name: identity.name.clone(), groups: identity.groups.clone(), ..UserInfo::default() };
        return Ok(authenticated(user));
    }
    let header = headers.get(AUTHORIZATION).map(header_text).unwrap_or_default();
    let mut parts = header.trim().splitn(3, ' ');
    let bearer = parts.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
    let token = parts.next().filter(|_| bearer).unwrap_or_default();
    // A client that presents a certificate wants to be identified, so an invalid one is an error.
    if token.is_empty() && (certificate.proves_nothing() || !state.access.admits_anonymous) {
        return Err(unauthorized());
    }
    if token.is_empty() {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        return Ok(UserInfo { name: ANONYMOUS.into(), groups, ..UserInfo::default() });
    }
    match user_of_token(state, token, state.access.signer.audiences()).await? {
        Some((user, _)) => Ok(user),
        None => Err(unauthorized()),
    }
}

/// Returns the user of a bearer token and the audiences that it is valid for, or `None` if the token is invalid.
pub(crate) async fn user_of_token(
    state: &Arc<State>,
    token: &str,
    audiences: &[String],
) -> Result<Option<(UserInfo, Vec<String>)>, ApiError> {
    if let Some(user) = state.access.static_tokens.user(token) {
        // Static tokens are valid for this server only.
        let own = state.access.signer.audiences();
        let shared: Vec<String> =
            audiences.iter().filter(|audience| own.contains(audience)).cloned().collect();
        return Ok((!shared.is_empty()).then(|| (authenticated(user.clone()), shared)));
    }
    let now = jiff::Timestamp::now().as_second();
    let claims = match state.access.signer.verify(token, now, audiences) {
        Ok(claims) => claims,
        Err(error) => {
            tracing::debug!(%error, "a bearer token was refused");
            return Ok(None);
        }
    };
    let wanted = audiences.to_vec();
    state
        .perform(Weight::Read, move |state| {
            if !still_bound(state, &claims)? {
                return Ok(None);
            }
            let shared = claims.aud.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
            Ok(Some((user_of_claims(&claims), shared)))
        })
        .await
}

/// Time for which a token outlives the deletion of its account, or of the object that it is bound to; the same as upstream, to
/// allow for clock skew.
const LEEWAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Reports whether an object was deleted so long ago that its tokens have ended, even though finalizers or a grace period keep it.
fn is_long_deleted(object: &serde_json::Value, now: jiff::Timestamp) -> bool {
    let deleted = object.pointer("/metadata/deletionTimestamp").filter(|time| !time.is_null());
    deleted.is_some_and(|time| {
        let time = time.as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        time.is_none_or(|time| now.duration_since(time) > LEEWAY)
    })
}

/// Reports whether the account of a token, and the object it is bound to, still exist with their UIDs.
fn still_bound(state: &State, claims: &Claims) -> Result<bool, ApiError> {
    let bound = &claims.kubernetes;
    let namespace = bound.namespace.as_str();
    let mut wanted = vec![("serviceaccounts", namespace, &bound.serviceaccount)];
    wanted.extend(bound.pod.as_ref().map(|pod| ("pods", namespace, pod)));
    wanted.extend(bound.secret.as_ref().map(|secret| ("secrets", namespace, secret)));
    wanted.extend(bound.node.as_ref().map(|node| ("nodes", "", node)));
    for (resource, namespace, reference) in wanted {
        // A pod's token names the node only for information; only tokens bound directly to a node depend on it.
        if resource == "nodes" && bound.pod.is_some() {
            continue;
        }
        let found = get(state, "", resource, namespace, &reference.name)?;
        let uid =
            found.as_ref().and_then(|value| value.pointer("/metadata/uid")).and_then(|uid| uid.as_str());
        if uid != Some(reference.uid.as_str()) {
            return Ok(false);
        }
        if found.is_some_and(|object| is_long_deleted(&object, state.clock.now())) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads one object with the server's own rights; returns `None` if it does not exist.
pub(crate) fn get(
    state: &State,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<serde_json::Value>>, ApiError> {
    let catalog = state.registry.catalog();
    let Some(definition) = catalog.find(group, "v1", resource) else { return Ok(None) };
    let target = RequestTarget {
        namespace: namespace.into(),
        name: name.into(),
        ..RequestTarget::collection(definition)
    };
    let answer = state.as_server("kubegc", |registry, context| {
        registry.handle(&target, Operation::Get { resource_version: String::new() }, context)
    });
    match answer {
        Ok(response) => match response.body {
            ResponseBody::Object(object) => Ok(Some(Arc::clone(object.value()?))),
            _ => Ok(None),
        },
        Err(error) if error.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

fn user_of_claims(claims: &Claims) -> UserInfo {
    let bound = &claims.kubernetes;
    let mut extra =
        vec![("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={}", claims.jti)])];
    if let Some(node) = &bound.node {
        extra.push(("authentication.kubernetes.io/node-name".into(), vec![node.name.clone()]));
        extra.push(("authentication.kubernetes.io/node-uid".into(), vec![node.uid.clone()]));
    }
    if let Some(pod) = &bound.pod {
        extra.push(("authentication.kubernetes.io/pod-name".into(), vec![pod.name.clone()]));
        extra.push(("authentication.kubernetes.io/pod-uid".into(), vec![pod.uid.clone()]));
    }
    authenticated(UserInfo {
        name: claims.sub.clone(),
        uid: bound.serviceaccount.uid.clone(),
        groups: service_account_groups(&bound.namespace),
        extra,
    })
}

/// Returns the groups that every service account of a namespace belongs to.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

/// Reports whether a user has presented credentials.
pub(crate) fn is_authenticated(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == AUTHENTICATED)
}

/// Returns the standing of a user, based on the credentials presented.
pub(crate) fn standing(user: &UserInfo) -> ClientStanding {
    if !is_authenticated(user) {
        ClientStanding::Anonymous
    } else if user.groups.iter().any(|group| group == MASTERS_GROUP) {
        ClientStanding::Privileged
    } else {
        ClientStanding::Authenticated
    }
}

/// Marks a user as one who has presented credentials.
pub(crate) fn authenticated(mut user: UserInfo) -> UserInfo {
    if !user.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.into());
    }
    user
}

/// Returns the namespace and name in the user name of a service account; `None` for any other name.
pub(crate) fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let valid = names::dns_label(namespace).is_empty() && names::dns_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

/// Returns a 403 with upstream's wording.
pub(crate) fn forbidden(user: &UserInfo, wanted: &Attributes<'_>, reason: &str) -> ApiError {
    let resource = if wanted.subresource.is_empty() {
        wanted.resource.to_owned()
    } else {
        format!("{}/{}", wanted.resource, wanted.subresource)
    };
    let place = if wanted.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quoted(wanted.namespace))
    };
    let message = format!(
        "User {} cannot {} resource {} in API group {} {place}",
        quoted(&user.name),
        wanted.verb,
        quoted(&resource),
        quoted(wanted.group)
    );
    ApiError::forbidden(wanted.group, wanted.resource, wanted.name, &with_reason(&message, reason))
}

/// Returns a 403 for any kind of question.
pub(crate) fn refused(user: &UserInfo, question: &Question<'_>, reason: &str) -> ApiError {
    match question {
        Question::Resource(wanted) => forbidden(user, wanted, reason),
        Question::Path { verb, path } => {
            let message = format!("User {} cannot {verb} path {}", quoted(&user.name), quoted(path));
            let mut error =
                ApiError::new(403, "Forbidden", format!("forbidden: {}", with_reason(&message, reason)));
            error.details = Some(Box::default());
            error
        }
    }
}

/// Builds a message that no client mistakes for HTML, with the authorizer's reason.
fn with_reason(message: &str, reason: &str) -> String {
    let message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if reason.is_empty() { message } else { format!("{message}: {reason}") }
}

/// Reads roles and bindings, and keeps following them in the background.
pub(crate) async fn follow_roles(state: &Arc<State>, background: &mut JoinSet<()>) -> Result<(), ApiError> {
    for resource in rbac::RESOURCES {
        // No request is answered yet, so nothing is read on another thread.
        let watch = start_watch(state, resource, Weight::Read).await?;
        let Some(mut watch) = watch else { continue };
        initial_rules(state, resource, &mut watch).await?;
        background.spawn(keep_following(Arc::clone(state), resource, watch).boxed());
    }
    if state.registry.config().aggregates_roles {
        background.spawn(aggregation::keep(Arc::clone(state)).boxed());
    }
    Ok(())
}

async fn start_watch(
    state: &Arc<State>,
    resource: &'static str,
    weight: Weight,
) -> Result<Option<gc_registry::watch::Watch>, ApiError> {
    state
        .perform(weight, move |state| {
            let catalog = state.registry.catalog();
            let Some(definition) = catalog.find(rbac::GROUP, "v1", resource) else { return Ok(None) };
            let target = RequestTarget::collection(definition);
            let options = ListOptions {
                allow_watch_bookmarks: true,
                send_initial_events: Some(true),
                resource_version_match: Some(VersionMatch::NotOlderThan),
                ..ListOptions::default()
            };
            state.registry.watch(&target, &options).map(Some)
        })
        .await
}

/// Collects events up to the bookmark that ends the initial ones, and only then puts the rules into force, so that no request is
/// refused while rules are read again.
async fn initial_rules(
    state: &State,
    resource: &str,
    watch: &mut gc_registry::watch::Watch,
) -> Result<(), ApiError> {
    let mut grants = Vec::new();
    loop {
        match std::future::poll_fn(|cx| watch.poll_next(cx)).await {
            Some(WatchEvent::Bookmark { initial_events_end: true, .. }) => break,
            Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                let read = |object: &Object| Ok(Grant::read(resource, &object.to_value()?));
                grants.push(match &state.readings {
                    Some(readings) => readings.grant(&object, read)?,
                    None => Arc::new(read(&object)?),
                });
            }
            // What is gone is not among the initial events.
            Some(WatchEvent::Bookmark { .. } | WatchEvent::Deleted(_)) => {}
            Some(WatchEvent::Error(error)) => return Err(error),
            None => return Err(ApiError::internal("the watch of roles ended")),
        }
    }
    state.access.rbac.change(|rules| {
        rules.clear(resource);
        for grant in grants {
            rules.insert(resource, &grant);
        }
    });
    Ok(())
}

async fn keep_following(state: Arc<State>, resource: &'static str, mut watch: gc_registry::watch::Watch) {
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);
    loop {
        while let Some(event) = std::future::poll_fn(|cx| watch.poll_next(cx)).await {
            let (object, present) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
                WatchEvent::Deleted(object) => (object, false),
                WatchEvent::Bookmark { .. } => continue,
                WatchEvent::Error(error) => {
                    tracing::debug!(%error, resource, "the watch of roles is taken up again");
                    break;
                }
            };
            match object.value() {
                Ok(value) => state.access.rbac.change(|rules| rules.apply(resource, value, present)),
                Err(error) => tracing::error!(%error, resource, "a role or binding cannot be read"),
            }
        }
        loop {
            tokio::time::sleep(PAUSE).await;
            let taken_up = async {
                let mut fresh = start_watch(&state, resource, Weight::ReadMany)
                    .await?
                    .ok_or_else(|| ApiError::internal("the resource is not served"))?;
                initial_rules(&state, resource, &mut fresh).await?;
                Ok::<_, ApiError>(fresh)
            };
            match taken_up.await {
                Ok(fresh) => {
                    watch = fresh;
                    break;
                }
                Err(error) => tracing::warn!(%error, resource, "roles and bindings cannot be read"),
            }
        }
    }
}
