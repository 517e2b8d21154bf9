//! Resources that an API server serves (spec `ownership-gc.md`, 2.1 and 2.2).
//!
//! Aggregated discovery is tried first, then the older form. A group that fails, or that is marked stale, only affects itself: it
//! is listed in [`Discovery::failed`], and nothing is concluded about its resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use gc_types::{FailedGroup, Gvr, ResourceId, ResourceInfo, Scope, api_path};
use http::header::ACCEPT;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;

use crate::connection::{ApiClient, RequestError};

const JSON_ACCEPT: &str = "application/json";
const AGGREGATED_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Stands for every group except the core group, if none of them could be seen.
pub const ALL_NAMED_GROUPS: &str = "*";
/// Timeout for one group's answer. A dead aggregated API only delays itself.
pub const GROUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of groups requested at a time.
const GROUPS_AT_ONCE: usize = 16;

/// Reason why discovery failed.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// There was no answer.
    #[error("GET {path}: {source}")]
    Request {
        /// Requested path.
        path: String,
        /// Cause.
        source: RequestError,
    },
    /// The answer was an error.
    #[error("GET {path} was answered with {code}: {message}")]
    Refused {
        /// Requested path.
        path: String,
        /// HTTP status code.
        code: u16,
        /// Message of the server.
        message: String,
    },
    /// No group could be seen.
    #[error("nothing could be discovered: {message}")]
    Nothing {
        /// Error of the core group.
        message: String,
    },
    /// An answer that is not a discovery document.
    #[error("GET {path} is not a discovery document: {message}")]
    Malformed {
        /// Requested path.
        path: String,
        /// Description of the error.
        message: String,
    },
}

/// One resource in one version, as discovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// Group; empty for core.
    pub group: Arc<str>,
    /// Version for watches.
    pub version: Arc<str>,
    /// Plural name.
    pub resource: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Scope.
    pub scope: Scope,
    /// All apiVersions under which this resource is served, the preferred one first.
    pub served_api_versions: Vec<Arc<str>>,
    /// Verbs in the watched version.
    pub verbs: BTreeSet<String>,
    /// True if its resourceVersions are comparable with those of built-in resources.
    pub comparable_versions: bool,
}

impl ServedResource {
    /// Reports whether objects of the resource can be collected: listed, watched and deleted.
    #[must_use]
    pub fn is_collectable(&self) -> bool {
        ["list", "watch", "delete"].iter().all(|verb| self.verbs.contains(*verb))
    }

    /// Returns the engine's description of the resource, under this number.
    #[must_use]
    pub fn info(&self, id: ResourceId, watched: bool) -> ResourceInfo {
        ResourceInfo {
            id,
            gvr: Gvr {
                group: Arc::clone(&self.group),
                version: Arc::clone(&self.version),
                resource: Arc::clone(&self.resource),
            },
            kind: Arc::clone(&self.kind),
            scope: self.scope,
            served_api_versions: self.served_api_versions.clone(),
            watched,
            comparable_versions: self.comparable_versions,
        }
    }
}

/// Outcome of one discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Resources by group and plural name, each in its preferred version.
    pub resources: BTreeMap<(Arc<str>, Arc<str>), ServedResource>,
    /// Groups that failed.
    pub failed: Vec<FailedGroup>,
}

impl Discovery {
    /// Reports whether nothing can be concluded from the absence of a resource of this group.
    #[must_use]
    pub fn is_unclear(&self, group: &str) -> bool {
        let covers = |failed: &FailedGroup| {
            failed.group == group || (failed.group == ALL_NAMED_GROUPS && !group.is_empty())
        };
        self.failed.iter().any(covers)
    }
}

/// Discovers the resources that a server serves.
pub async fn discover(client: &ApiClient) -> Result<Discovery, DiscoveryError> {
    let mut versions = Vec::new();
    let mut failed = Vec::new();
    let read = async |path: &'static str| {
        let document = get(client, path, AGGREGATED_ACCEPT).await?;
        let (mut versions, mut failed) = (Vec::new(), Vec::new());
        match parse_aggregated(path, &document)? {
            Some(groups) => add_aggregated(groups, &mut versions, &mut failed),
            None => add_legacy(client, path, &document, &mut versions, &mut failed).await?,
        }
        Ok::<_, DiscoveryError>((versions, failed))
    };
    let (core, named, aggregated) = futures::join!(read("/api"), read("/apis"), aggregated_apis(client));
    for (group, result) in [("", core), (ALL_NAMED_GROUPS, named)] {
        match result {
            Ok((more, missing)) => {
                versions.extend(more);
                failed.extend(missing);
            }
            // One half of the served resources is better than none; without either, nothing can be concluded.
            Err(error) if group.is_empty() || !versions.is_empty() => {
                failed.push(FailedGroup { group: group.into(), version: None, message: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    if versions.is_empty()
        && let Some(nothing) = failed.iter().find(|failed| failed.group.is_empty())
    {
        return Err(DiscoveryError::Nothing { message: nothing.message.clone() });
    }
    Ok(Discovery { resources: choose(versions, &aggregated), failed })
}

/// A resource in one version, before a version is chosen; ordered by preference.
struct Candidate {
    group: String,
    version: String,
    resource: String,
    kind: String,
    scope: Scope,
    verbs: BTreeSet<String>,
}

fn choose(
    candidates: Vec<Candidate>,
    aggregated: &AggregatedApis,
) -> BTreeMap<(Arc<str>, Arc<str>), ServedResource> {
    let mut chosen: BTreeMap<(Arc<str>, Arc<str>), ServedResource> = BTreeMap::new();
    for candidate in candidates {
        let group: Arc<str> = candidate.group.as_str().into();
        let resource: Arc<str> = candidate.resource.as_str().into();
        let api_version: Arc<str> = gc_types::api_version(&group, &candidate.version).into();
        chosen
            .entry((Arc::clone(&group), Arc::clone(&resource)))
            .and_modify(|known| {
                if *known.kind == *candidate.kind {
                    known.served_api_versions.push(Arc::clone(&api_version));
                }
            })
            .or_insert_with(|| ServedResource {
                comparable_versions: aggregated.shares_store(&candidate.group, &candidate.version),
                group,
                version: candidate.version.into(),
                resource,
                kind: candidate.kind.into(),
                scope: candidate.scope,
                served_api_versions: vec![api_version],
                verbs: candidate.verbs,
            });
    }
    chosen
}

async fn get(client: &ApiClient, path: &str, accept: &str) -> Result<Bytes, DiscoveryError> {
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(ACCEPT, accept)
        .body(Full::default())
        .map_err(|error| malformed(path, error))?;
    let answer = client
        .call(request)
        .await
        .map_err(|source| DiscoveryError::Request { path: path.to_owned(), source })?;
    if answer.head.status != StatusCode::OK {
        let text = String::from_utf8_lossy(&answer.body);
        let message =
            crate::wire::metadata::decode_status(crate::wire::metadata::Encoding::Json, &answer.body)
                .map_or_else(|| text.chars().take(200).collect(), |status| status.message);
        return Err(DiscoveryError::Refused {
            path: path.to_owned(),
            code: answer.head.status.as_u16(),
            message,
        });
    }
    Ok(answer.body)
}

fn malformed(path: &str, message: impl std::fmt::Display) -> DiscoveryError {
    DiscoveryError::Malformed { path: path.to_owned(), message: message.to_string() }
}

/// Checks that a document is of the expected kind, if it states one: nothing may be concluded from what is missing in another
/// document.
fn check_kind(path: &str, kind: &str, expected: &str) -> Result<(), DiscoveryError> {
    let is_expected = kind.is_empty() || kind == expected;
    if is_expected { Ok(()) } else { Err(malformed(path, format!("expected {expected}, not {kind:?}"))) }
}

fn parse<'a, T: Deserialize<'a>>(path: &str, body: &'a [u8]) -> Result<T, DiscoveryError> {
    serde_json::from_slice(body).map_err(|error| malformed(path, error))
}

#[derive(Deserialize)]
struct KindOnly {
    kind: String,
}

#[derive(Deserialize)]
struct AggregatedList {
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: GroupMetadata,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
struct GroupMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    response_kind: Option<KindOnly>,
    scope: String,
    #[serde(default)]
    verbs: BTreeSet<String>,
}

fn parse_aggregated(path: &str, body: &[u8]) -> Result<Option<AggregatedList>, DiscoveryError> {
    let kind: KindOnly = parse(path, body)?;
    if kind.kind == "APIGroupDiscoveryList" { parse(path, body).map(Some) } else { Ok(None) }
}

fn add_aggregated(list: AggregatedList, candidates: &mut Vec<Candidate>, failed: &mut Vec<FailedGroup>) {
    for group in list.items {
        let name = group.metadata.name;
        for version in group.versions {
            if version.freshness == "Stale" {
                failed.push(FailedGroup {
                    group: name.clone(),
                    version: Some(version.version),
                    message: "the server could not refresh it".into(),
                });
                continue;
            }
            for resource in version.resources {
                let Some(kind) = resource.response_kind else { continue };
                candidates.push(Candidate {
                    group: name.clone(),
                    version: version.version.clone(),
                    resource: resource.resource,
                    kind: kind.kind,
                    scope: if resource.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
                    verbs: resource.verbs,
                });
            }
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LegacyRoot {
    versions: Vec<String>,
    groups: Vec<LegacyGroup>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LegacyGroup {
    name: String,
    versions: Vec<LegacyVersion>,
    preferred_version: Option<LegacyVersion>,
}

#[derive(Deserialize)]
struct LegacyVersion {
    version: String,
}

#[derive(Deserialize)]
struct LegacyResources {
    #[serde(default)]
    kind: String,
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize)]
struct LegacyResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: BTreeSet<String>,
}

async fn add_legacy(
    client: &ApiClient,
    path: &str,
    document: &[u8],
    candidates: &mut Vec<Candidate>,
    failed: &mut Vec<FailedGroup>,
) -> Result<(), DiscoveryError> {
    let expected = if path == "/api" { "APIVersions" } else { "APIGroupList" };
    check_kind(path, &parse::<KindOnly>(path, document)?.kind, expected)?;
    let root: LegacyRoot = parse(path, document)?;
    let mut wanted: Vec<(String, String)> =
        root.versions.into_iter().map(|version| (String::new(), version)).collect();
    for group in root.groups {
        let mut versions: Vec<String> = group.versions.into_iter().map(|v| v.version).collect();
        if let Some(preferred) = group.preferred_version {
            // A stable sort: the preferred version first, the others as listed.
            versions.sort_by_key(|version| *version != preferred.version);
        }
        wanted.extend(versions.into_iter().map(|version| (group.name.clone(), version)));
    }
    let asked = futures::stream::iter(wanted).map(async |(group, version)| {
        let path = api_path(&group, &version);
        let answer = tokio::time::timeout(GROUP_TIMEOUT, get(client, &path, JSON_ACCEPT)).await;
        let answer = answer.unwrap_or_else(|_| {
            let source = RequestError::Timeout(GROUP_TIMEOUT);
            Err(DiscoveryError::Request { path: path.clone(), source })
        });
        let resources = answer.and_then(|body| {
            let resources: LegacyResources = parse(&path, &body)?;
            check_kind(&path, &resources.kind, "APIResourceList")?;
            Ok(resources)
        });
        (group, version, resources)
    });
    // Kept in the order of preference, regardless of the order of answers.
    let answers: Vec<_> = asked.buffered(GROUPS_AT_ONCE).collect().await;
    for (group, version, resources) in answers {
        match resources {
            Ok(resources) => {
                let known = resources.resources.into_iter().filter(|resource| !resource.name.contains('/'));
                candidates.extend(known.map(|resource| Candidate {
                    group: group.clone(),
                    version: version.clone(),
                    resource: resource.name,
                    kind: resource.kind,
                    scope: if resource.namespaced { Scope::Namespaced } else { Scope::Cluster },
                    verbs: resource.verbs,
                }));
            }
            Err(error) => {
                failed.push(FailedGroup { group, version: Some(version), message: error.to_string() });
            }
        }
    }
    Ok(())
}

/// Group versions of extension servers, which may have their own sequence of resourceVersions.
#[derive(Default)]
struct AggregatedApis {
    /// `None` if unknown; then only built-in groups are assumed to share the store.
    by_service: Option<BTreeSet<(String, String)>>,
}

impl AggregatedApis {
    fn shares_store(&self, group: &str, version: &str) -> bool {
        match &self.by_service {
            Some(by_service) => !by_service.contains(&(group.to_owned(), version.to_owned())),
            None => !group.contains('.') || group.ends_with(".k8s.io"),
        }
    }
}

#[derive(Deserialize)]
struct ApiServiceList {
    #[serde(default)]
    kind: String,
    items: Vec<ApiService>,
}

#[derive(Deserialize)]
struct ApiService {
    spec: ApiServiceSpec,
}

#[derive(Deserialize)]
struct ApiServiceSpec {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    service: Option<serde::de::IgnoredAny>,
}

async fn aggregated_apis(client: &ApiClient) -> AggregatedApis {
    const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    let list = get(client, PATH, JSON_ACCEPT).await.and_then(|body| {
        let list: ApiServiceList = parse(PATH, &body)?;
        check_kind(PATH, &list.kind, "APIServiceList")?;
        Ok(list)
    });
    let by_service = match list {
        Ok(list) => Some(
            list.items
                .into_iter()
                .filter(|api| api.spec.service.is_some())
                .map(|api| (api.spec.group, api.spec.version))
                .collect(),
        ),
        Err(error) => {
            tracing::debug!(%error, "cannot find out which APIs are served by extension servers");
            None
        }
    };
    AggregatedApis { by_service }
}

#[cfg(test)]
mod tests;
