//! Reads what answers need from a cluster. Every request here is a GET.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use gc_collectors::node_report;
use gc_explain::stuck::Place;
use gc_explain::survey::Page;
use gc_explain::{
    Catalog, Facts, GroupResource, Knowledge, Metadata, Need, Resource, Survey, UnlistedReason, Unread,
    UnreadCode,
};
use gc_kube::connection::RequestError;
use gc_kube::{ApiClient, push_segment};
use gc_types::{ObjectKey, Outcome, ResourceVersion, Timestamp, Uid};
use http::header::{ACCEPT, HeaderValue};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::listable::{Listable, listable};
use crate::resident::{READ_SINGLY, Resident};
use crate::unanswered::UnansweredReason;
use gc_process::endpoints::CLOCK;
use gc_process::preflight;

/// Maximum number of concurrent requests.
pub const IN_FLIGHT: usize = 16;
/// Number of whole objects per page of a list.
const PAGE_OBJECTS: usize = 500;
/// Number of objects per page of a list of metadata.
const PAGE_METADATA: usize = 2_000;
/// Maximum number of node reports that are read.
const MAX_NODE_REPORTS: usize = 10_000;
/// Maximum number of rounds in which an answer requests more facts.
const MAX_ROUNDS: usize = 16;
/// From this number of objects of one resource in one namespace, a list replaces single reads …
const LIST_FROM: usize = 20;
/// … unless its pages cost more: this many single reads cost as much as one page of whole objects.
const READS_PER_PAGE: usize = 10;

/// Message for a user who may not list anything everywhere.
pub const NOTHING_TO_LIST: &str =
    "this user may list nothing in the whole cluster; -n NAMESPACE asks about one namespace";

/// A name that no namespace can have: the permissions in it are those for the whole cluster.
const NO_NAMESPACE: &str = "no.namespace";

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Objects in scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only this namespace and its contents; empty for everything.
    pub namespace: String,
    /// Only objects with these labels.
    pub selector: String,
}

/// Reader of one cluster.
pub struct Gatherer {
    client: ApiClient,
    /// Resources of the server.
    pub catalog: Catalog,
    /// Time of the answer.
    pub now: Timestamp,
    /// Graph of a collector in this process.
    resident: Option<Arc<dyn Resident>>,
    /// Resources that this user may list in one namespace, and so at most everywhere, if the server has reported them.
    rules: OnceLock<Listable>,
    /// Server errors for refused collector requests, by the UID of the object.
    refused: BTreeMap<Uid, String>,
}

/// Part of an object that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The whole object.
    Whole,
    /// The metadata only.
    Metadata,
}

/// Filter of listed objects: the part to keep, if any.
type Keep = fn(&GroupResource, Value) -> Option<Value>;

/// Removes field managers, often half of an object, which matter only for terminating objects.
#[expect(clippy::unnecessary_wraps, reason = "others keep less")]
fn without_writers(_: &GroupResource, mut object: Value) -> Option<Value> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && !metadata.contains_key("deletionTimestamp")
    {
        metadata.remove("managedFields");
    }
    Some(object)
}

/// Result of a GET.
enum GetResult {
    Body(bytes::Bytes),
    /// The server reports that the object does not exist.
    NoObject,
    /// Nothing is served at this path.
    NotServed,
    Refused(Unread),
    Failed(UnlistedReason),
}

impl GetResult {
    /// Returns the body of a list, or the reason why there is none.
    fn listed(self) -> Result<bytes::Bytes, UnlistedReason> {
        match self {
            Self::Body(body) => Ok(body),
            Self::NoObject | Self::NotServed => Err(UnlistedReason::NotServed),
            Self::Refused(_) => Err(UnlistedReason::Forbidden),
            Self::Failed(why) => Err(why),
        }
    }
}

/// Returns the JSON of a list.
fn json_list(body: &[u8]) -> Result<Value, UnlistedReason> {
    serde_json::from_slice(body).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> UnlistedReason {
    UnlistedReason::Unread(Unread::new(UnreadCode::Malformed, format!("the list cannot be read: {error}")))
}

/// Returns an error for a server that does not report its resources.
fn silent(client: &ApiClient, why: Unread) -> anyhow::Error {
    UnansweredReason::Unread { what: format!("{} cannot say what it serves", client.address()), why }.into()
}

impl Gatherer {
    /// Creates a gatherer from the server's discovery documents.
    pub async fn new(client: ApiClient, now: Timestamp) -> anyhow::Result<Self> {
        let document = async |path: &str| match get(&client, path, AGGREGATED).await {
            GetResult::Body(body) => Ok(body),
            GetResult::NoObject | GetResult::NotServed => bail!("{} does not serve {path}", client.address()),
            GetResult::Refused(why) => Err(silent(&client, why)),
            GetResult::Failed(why) => Err(silent(&client, why.into())),
        };
        let (core, named) = futures::join!(document("/api"), document("/apis"));
        let catalog = Catalog::read(&core?, &named?)?;
        Ok(Self { client, catalog, now, resident: None, rules: OnceLock::new(), refused: BTreeMap::new() })
    }

    /// Adds server errors for refused collector requests, by the UID of the object.
    #[must_use]
    pub fn knowing_refusals(mut self, refused: impl IntoIterator<Item = (Uid, String)>) -> Self {
        self.refused.extend(refused);
        self
    }

    /// Creates facts that contain only these refusals.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::at(self.now);
        for (uid, message) in &self.refused {
            facts.tell_refused(uid.clone(), message.clone());
        }
        facts
    }

    /// Uses this graph, as far as it goes, in place of lists.
    #[must_use]
    pub fn beside(mut self, resident: Option<Arc<dyn Resident>>) -> Self {
        self.resident = resident;
        self
    }

    /// Returns the body of a successful response in this representation.
    pub async fn body(&self, path: &str, accept: &'static str) -> Option<bytes::Bytes> {
        match get(&self.client, path, accept).await {
            GetResult::Body(body) => Some(body),
            GetResult::NoObject | GetResult::NotServed | GetResult::Refused(_) | GetResult::Failed(_) => None,
        }
    }

    /// Reads the minor version of the server; `None` if it does not report one.
    pub async fn server_minor(&self) -> Option<u32> {
        let answer = self.client.call(preflight::request(Method::GET, "/version", None)).await.ok()?;
        let version: Value = serde_json::from_slice(&answer.body).ok()?;
        let digits: String = version["minor"].as_str()?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    /// Returns the client.
    pub fn client(&self) -> &ApiClient {
        &self.client
    }

    /// Returns the namespace of the kubeconfig's context.
    pub fn default_namespace(&self) -> &str {
        self.client.namespace()
    }

    /// Creates a survey before anything is listed.
    pub fn empty_survey(&self) -> Survey {
        Survey::new(self.catalog.clone(), self.now)
    }

    /// Returns the metadata of everything in scope, and reads owners that were in no list.
    pub async fn survey(&self, scope: &Scope, patience: Duration) -> anyhow::Result<Survey> {
        let mut survey = self.contents(scope, patience).await?;
        if !scope.namespace.is_empty() {
            self.observe(&mut survey, &GroupResource::new("", "namespaces"), "", &scope.namespace).await;
        }
        self.complete(&mut survey).await;
        Ok(survey)
    }

    /// Returns the metadata of everything in scope, except for the namespace itself and owners in no list.
    pub async fn contents(&self, scope: &Scope, patience: Duration) -> anyhow::Result<Survey> {
        let mut survey = self.empty_survey();
        let resources: Vec<Resource> = self.examined(scope).cloned().collect();
        let place = if scope.namespace.is_empty() { NO_NAMESPACE } else { &scope.namespace };
        let listable = listable(&self.client, place).await;
        if let Some(rules) = &listable {
            self.rules.get_or_init(|| rules.clone());
        }
        let may_list =
            |resource: &Resource| listable.as_ref().is_none_or(|rules| rules.contain(&resource.name));
        let (resources, refused): (Vec<Resource>, Vec<Resource>) = resources.into_iter().partition(may_list);
        for resource in refused {
            survey.not_listed(resource.id, UnlistedReason::Forbidden);
        }
        self.list_all(&mut survey, &[(scope.clone(), resources)], patience).await?;
        Ok(survey)
    }

    /// Returns the resources that may have objects in scope.
    pub fn examined(&self, scope: &Scope) -> impl Iterator<Item = &Resource> {
        let collectable = self.catalog.all().iter().filter(|resource| resource.is_collectable());
        collectable.filter(|resource| scope.namespace.is_empty() || resource.is_namespaced())
    }

    /// Lists the metadata of these resources, each in its scope.
    pub async fn list_all(
        &self,
        survey: &mut Survey,
        wanted: &[(Scope, Vec<Resource>)],
        patience: Duration,
    ) -> anyhow::Result<()> {
        let unknown = tokio::time::timeout(patience, self.take_known(survey, wanted)).await;
        self.list_live(survey, &unknown.unwrap_or_else(|_| wanted.to_vec()), patience).await
    }

    /// Lists the metadata without a graph.
    async fn list_live(
        &self,
        survey: &mut Survey,
        wanted: &[(Scope, Vec<Resource>)],
        patience: Duration,
    ) -> anyhow::Result<()> {
        let listed = async {
            let wanted = wanted.iter().flat_map(|(scope, resources)| {
                resources.iter().map(move |resource| self.pages(resource, scope))
            });
            // Each page is added to the graph before the next one is requested, so that no list is ever held as a whole.
            let mut pages = futures::stream::iter(wanted).flatten_unordered(IN_FLIGHT);
            while let Some((resource, page)) = pages.next().await {
                match page {
                    Ok(page) => {
                        let (version, is_last) = (page.version(), page.next().is_none());
                        for item in page.into_items() {
                            survey.observe(resource.id, item);
                        }
                        if is_last {
                            survey.listed(resource.id, version);
                        }
                    }
                    Err(UnlistedReason::NotServed) => {}
                    Err(why) => survey.not_listed(resource.id, why),
                }
            }
        };
        if tokio::time::timeout(patience, listed).await.is_err() {
            bail!(
                "the lists of all resources did not end within {patience:?}; --request-timeout allows more"
            );
        }
        Ok(())
    }

    /// Takes from the graph in this process what it knows of these lists, and returns the other lists.
    async fn take_known(
        &self,
        survey: &mut Survey,
        wanted: &[(Scope, Vec<Resource>)],
    ) -> Vec<(Scope, Vec<Resource>)> {
        let Some(resident) = &self.resident else { return wanted.to_vec() };
        let lists: BTreeSet<(&GroupResource, &str)> = wanted
            .iter()
            .filter(|(scope, _)| scope.selector.is_empty())
            .flat_map(|(scope, resources)| {
                resources.iter().map(|resource| (&resource.name, scope.namespace.as_str()))
            })
            .collect();
        let is_everywhere = |resource: &GroupResource| lists.contains(&(resource, ""));
        let contents = resident.contents(&|resource, namespace| {
            is_everywhere(resource) || lists.contains(&(resource, namespace))
        });
        let current: BTreeSet<GroupResource> = contents.resources.values().cloned().collect();
        let mut known = contents.by_list(is_everywhere);
        let (mut left, mut listed, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (scope, resources)) in wanted.iter().enumerate() {
            let mut unknown = Vec::new();
            for resource in resources {
                let is_current = current.contains(&resource.name)
                    && scope.selector.is_empty()
                    && resident.permits(&resource.name, &scope.namespace);
                let list =
                    known.remove(&(resource.name.clone(), scope.namespace.clone())).unwrap_or_default();
                let pages = list.plain.len() / PAGE_METADATA;
                if !is_current || list.to_read.len() > READ_SINGLY.max(pages * READS_PER_PAGE) {
                    unknown.push(resource.clone());
                    continue;
                }
                for object in list.plain {
                    survey.observe_known(resource.id, object);
                }
                reads.extend(list.to_read.into_iter().map(|key| (place, resource, key)));
                listed.push(resource.id);
            }
            left.push((scope.clone(), unknown));
        }
        let reads = reads.into_iter().map(|(place, resource, key)| async move {
            let path = object_path(resource, &key.namespace, &key.name);
            (place, resource, get(&self.client, &path, METADATA).await)
        });
        let mut reads = futures::stream::iter(reads).buffer_unordered(IN_FLIGHT);
        while let Some((place, resource, got)) = reads.next().await {
            let metadata = match &got {
                GetResult::Body(body) => serde_json::from_slice::<Metadata>(body).ok(),
                // The owner is gone.
                GetResult::NoObject => continue,
                // A user who may list may still lack the permission to get.
                GetResult::NotServed | GetResult::Refused(_) | GetResult::Failed(_) => None,
            };
            match metadata {
                Some(metadata) => survey.observe(resource.id, metadata),
                None if left[place].1.contains(resource) => {}
                None => left[place].1.push(resource.clone()),
            }
        }
        for id in listed {
            survey.listed(id, ResourceVersion::UNKNOWN);
        }
        left
    }

    /// Reads owners that are in no list.
    pub async fn complete(&self, survey: &mut Survey) {
        survey.complete();
        loop {
            let reads: Vec<_> = std::iter::from_fn(|| survey.next_read()).collect();
            if reads.is_empty() {
                return;
            }
            let answers = reads.into_iter().map(|(id, key)| async move { (id, self.read_owner(&key).await) });
            let answers: Vec<_> = futures::stream::iter(answers).buffer_unordered(IN_FLIGHT).collect().await;
            for (id, outcome) in answers {
                survey.answer_read(id, outcome);
            }
        }
    }

    /// Returns an error if the requested namespace does not exist.
    pub async fn check_namespace(&self, scope: &Scope) -> anyhow::Result<()> {
        let namespaces = GroupResource::new("", "namespaces");
        if !scope.namespace.is_empty()
            && let Knowledge::Absent = self.object(&namespaces, "", &scope.namespace).await
        {
            return Err(
                UnansweredReason::NotFound(format!("namespace {:?} not found", scope.namespace)).into()
            );
        }
        Ok(())
    }

    /// Reads one object's metadata into a survey, and reports whether the object exists.
    pub async fn observe(
        &self,
        survey: &mut Survey,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Option<Uid> {
        let resource = self.catalog.named(resource)?;
        let GetResult::Body(body) =
            get(&self.client, &object_path(resource, namespace, name), METADATA).await
        else {
            return None;
        };
        let metadata = serde_json::from_slice::<Metadata>(&body).ok()?;
        let uid = metadata.uid.clone();
        survey.observe(resource.id, metadata);
        Some(uid)
    }

    /// Reports whether the same object still exists. An object that cannot be read counts as existing.
    pub async fn is_there(&self, place: &Place) -> bool {
        let Some(resource) = self.catalog.of_kind(&place.api_version, &place.kind) else { return false };
        match get(&self.client, &object_path(resource, &place.namespace, &place.name), METADATA).await {
            GetResult::Body(body) => serde_json::from_slice::<Metadata>(&body)
                .is_ok_and(|metadata| metadata.uid.to_string() == place.uid),
            GetResult::NoObject | GetResult::NotServed => false,
            GetResult::Refused(_) | GetResult::Failed(_) => true,
        }
    }

    /// Returns namespace and name of the objects of a resource with these labels.
    pub async fn names(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &str,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let scope = Scope { namespace: namespace.to_owned(), selector: selector.to_owned() };
        let items = self.listed(resource, &scope).await?;
        Ok(items.into_iter().map(|item| (item.namespace.to_string(), item.name.to_string())).collect())
    }

    /// Returns the metadata of all objects of a resource in a namespace, or everywhere if it is empty.
    pub async fn objects(&self, resource: &Resource, namespace: &str) -> anyhow::Result<Vec<Metadata>> {
        self.listed(resource, &Scope { namespace: namespace.to_owned(), ..Scope::default() }).await
    }

    async fn listed(&self, resource: &Resource, scope: &Scope) -> anyhow::Result<Vec<Metadata>> {
        let mut items = Vec::new();
        let mut pages = self.pages(resource, scope);
        while let Some((_, page)) = pages.next().await {
            match page {
                Ok(page) => items.extend(page.into_items()),
                Err(why) => {
                    let what = format!("{} cannot be listed", resource.name);
                    return Err(UnansweredReason::Unread { what, why: why.into() }.into());
                }
            }
        }
        Ok(items)
    }

    async fn read_owner(&self, key: &ObjectKey) -> Outcome {
        let Some(resource) = self.catalog.get(key.resource) else { return Outcome::NotServed };
        match get(&self.client, &object_path(resource, &key.namespace, &key.name), METADATA).await {
            GetResult::Body(body) => match serde_json::from_slice::<Metadata>(&body) {
                Ok(metadata) => Outcome::Found(metadata.observed(key.resource)),
                Err(error) => failed(error.to_string()),
            },
            GetResult::NoObject => Outcome::Absent,
            GetResult::NotServed => Outcome::NotServed,
            GetResult::Refused(why) => Outcome::Refused { code: 403, message: why.message },
            GetResult::Failed(why) => failed(why.to_string()),
        }
    }

    /// Returns the pages of a list of metadata; the last item is the page without a continue token, or an error.
    fn pages<'a>(
        &'a self,
        resource: &'a Resource,
        scope: &'a Scope,
    ) -> BoxStream<'a, (&'a Resource, Result<Page, UnlistedReason>)> {
        let pages = futures::stream::unfold(Some(String::new()), move |token| async move {
            let path = list_path(resource, &scope.namespace, &scope.selector, &token?, PAGE_METADATA);
            let body = get(&self.client, &path, METADATA_LIST).await.listed();
            let page = body.and_then(|body| Page::read(&body).map_err(|error| unreadable(&error)));
            let next = page.as_ref().ok().and_then(|page| page.next().map(str::to_owned));
            Some(((resource, page), next))
        });
        pages.boxed()
    }

    /// Repeats a question until the answer needs nothing that has not been gathered.
    pub async fn answer<T>(&self, facts: &mut Facts, ask: impl Fn(&Facts) -> T) -> T {
        self.answer_keeping(facts, without_writers, ask).await
    }

    /// Answers like [`Self::answer`], but passes listed objects through `keep`.
    pub async fn answer_keeping<T>(&self, facts: &mut Facts, keep: Keep, ask: impl Fn(&Facts) -> T) -> T {
        for _ in 0..MAX_ROUNDS {
            let answer = ask(facts);
            let needs = facts.take_needs();
            if needs.is_empty() {
                return answer;
            }
            self.read_needs(facts, needs.into_iter().collect(), keep).await;
        }
        facts.give_up();
        ask(facts)
    }

    async fn read_needs(&self, facts: &mut Facts, needs: Vec<Need>, keep: Keep) {
        let mut objects: BTreeMap<(GroupResource, String), Vec<String>> = BTreeMap::new();
        let mut lists = Vec::new();
        for need in needs {
            match need {
                Need::Object(resource, namespace, name) => {
                    objects.entry((resource, namespace)).or_default().push(name);
                }
                Need::List(resource, namespace) => lists.push((resource, namespace)),
            }
        }
        let mut single = Vec::new();
        for ((resource, namespace), names) in objects {
            let left = if names.len() >= LIST_FROM {
                self.read_named(facts, &resource, &namespace, names).await
            } else {
                names
            };
            single.extend(left.into_iter().map(|name| (resource.clone(), namespace.clone(), name)));
        }
        let lists = lists.into_iter().map(|(resource, namespace)| async move {
            let known = self.list(&resource, &namespace, keep).await;
            (resource, namespace, known)
        });
        let lists: Vec<_> = futures::stream::iter(lists).buffer_unordered(IN_FLIGHT).collect().await;
        for (resource, namespace, known) in lists {
            facts.tell_list(resource, &namespace, known);
        }
        let objects = single.into_iter().map(|(resource, namespace, name)| async move {
            let known = self.object(&resource, &namespace, &name).await;
            (resource, namespace, name, known)
        });
        let objects: Vec<_> = futures::stream::iter(objects).buffer_unordered(IN_FLIGHT).collect().await;
        for (resource, namespace, name, known) in objects {
            facts.tell_object(resource, &namespace, &name, known);
        }
    }

    /// Reads objects from a list, without keeping the rest, while that is cheaper than single reads. Returns those that are left.
    async fn read_named(
        &self,
        facts: &mut Facts,
        name: &GroupResource,
        namespace: &str,
        names: Vec<String>,
    ) -> Vec<String> {
        let Some(resource) = self.catalog.named(name) else { return names };
        let mut left: BTreeSet<String> = names.into_iter().collect();
        let mut token = String::new();
        loop {
            let path = list_path(resource, namespace, "", &token, PAGE_OBJECTS);
            let GetResult::Body(body) = get(&self.client, &path, "application/json").await else { break };
            let Ok(mut page) = serde_json::from_slice::<Value>(&body) else { break };
            for mut object in page["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
                let own = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if left.remove(&own) {
                    // Objects in lists lack their kind.
                    object["apiVersion"] = resource.api_version().into();
                    object["kind"] = (&*resource.kind).into();
                    facts.tell_object(name.clone(), namespace, &own, Knowledge::Present(object));
                }
            }
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                for name_of in std::mem::take(&mut left) {
                    facts.tell_object(name.clone(), namespace, &name_of, Knowledge::Absent);
                }
                break;
            }
            let remaining = page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
            let pages = usize::try_from(remaining).unwrap_or(usize::MAX).div_ceil(PAGE_OBJECTS);
            if left.is_empty() || pages.saturating_mul(READS_PER_PAGE) > left.len() {
                break;
            }
        }
        left.into_iter().collect()
    }

    /// Reads one whole object.
    pub async fn object(&self, resource: &GroupResource, namespace: &str, name: &str) -> Knowledge<Value> {
        let Some(resource) = self.catalog.named(resource) else { return Knowledge::Absent };
        match get(&self.client, &object_path(resource, namespace, name), "application/json").await {
            GetResult::Body(body) => match serde_json::from_slice(&body) {
                Ok(value) => Knowledge::Present(value),
                Err(error) => {
                    let message = format!("the answer cannot be read: {error}");
                    Knowledge::Unreadable(Unread::new(UnreadCode::Malformed, message))
                }
            },
            GetResult::NoObject => Knowledge::Absent,
            GetResult::NotServed => {
                Knowledge::Unreadable(Unread::new(UnreadCode::NotServed, "its resource is not served"))
            }
            GetResult::Refused(why) => Knowledge::Unreadable(why),
            GetResult::Failed(why) => Knowledge::Unreadable(why.into()),
        }
    }

    /// Passes on each object of a resource, in one namespace or, if that is empty, in all, holding one page at a time. A resource
    /// that is not served has no objects.
    pub async fn each(
        &self,
        resource: &Resource,
        namespace: &str,
        reading: Reading,
        mut take: impl FnMut(&Value),
    ) -> Result<(), UnlistedReason> {
        let (accept, limit) = match reading {
            Reading::Whole => ("application/json", PAGE_OBJECTS),
            Reading::Metadata => (METADATA_LIST, PAGE_METADATA),
        };
        let mut token = String::new();
        loop {
            let path = list_path(resource, namespace, "", &token, limit);
            let page = match get(&self.client, &path, accept).await.listed() {
                Ok(body) => json_list(&body)?,
                Err(UnlistedReason::NotServed) => return Ok(()),
                Err(why) => return Err(why),
            };
            page["items"].as_array().into_iter().flatten().for_each(&mut take);
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                return Ok(());
            }
        }
    }

    /// Returns the metadata of the Leases among these lists in which node agents report. Leases that cannot be read are skipped.
    pub async fn node_reports(&self, lists: &[(Scope, Vec<Resource>)]) -> Vec<Value> {
        let is_lease = |resource: &&Resource| {
            (&*resource.name.group, &*resource.name.resource) == ("coordination.k8s.io", "leases")
        };
        let selector = format!("{}={}", node_report::LABEL.0, node_report::LABEL.1);
        let mut leases = Vec::new();
        for (scope, resources) in lists {
            let Some(resource) = resources.iter().find(is_lease) else { continue };
            let mut token = String::new();
            while leases.len() < MAX_NODE_REPORTS {
                let path = list_path(resource, &scope.namespace, &selector, &token, PAGE_OBJECTS);
                let GetResult::Body(body) = get(&self.client, &path, METADATA_LIST).await else { break };
                let Ok(mut page) = serde_json::from_slice::<Value>(&body) else { break };
                leases.extend(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default());
                page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
                if token.is_empty() {
                    break;
                }
            }
        }
        leases
    }

    async fn list(&self, name: &GroupResource, namespace: &str, keep: Keep) -> Knowledge<Vec<Value>> {
        let Some(resource) = self.catalog.named(name) else { return Knowledge::Absent };
        if namespace.is_empty() && self.rules.get().is_some_and(|rules| !rules.contain(name)) {
            return Knowledge::Unreadable(UnlistedReason::Forbidden.into());
        }
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let path = list_path(resource, namespace, "", &token, PAGE_OBJECTS);
            let body = get(&self.client, &path, "application/json").await.listed();
            let mut page = match body.and_then(|body| json_list(&body)) {
                Ok(page) => page,
                Err(UnlistedReason::NotServed) => return Knowledge::Absent,
                Err(why) => return Knowledge::Unreadable(why.into()),
            };
            let next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if let Some(found) = page["items"].as_array_mut() {
                items.extend(std::mem::take(found).into_iter().filter_map(|object| keep(name, object)));
            }
            if next.is_empty() {
                // Objects in lists lack their kind.
                for item in &mut items {
                    item["apiVersion"] = resource.api_version().into();
                    item["kind"] = (&*resource.kind).into();
                }
                return Knowledge::Present(items);
            }
            token = next;
        }
    }
}

fn failed(message: String) -> Outcome {
    Outcome::Failed { message, retry_after_milliseconds: None }
}

/// Returns the path of one object.
#[must_use]
pub fn object_path(resource: &Resource, namespace: &str, name: &str) -> String {
    let mut path = escaped(resource, namespace);
    path.push('/');
    push_segment(&mut path, name);
    path
}

fn escaped(resource: &Resource, namespace: &str) -> String {
    let mut escaped = String::new();
    push_segment(&mut escaped, namespace);
    resource.path(&escaped)
}

/// Returns path and query of one page of a list; omits an empty selector or token.
#[must_use]
pub fn list_path(resource: &Resource, namespace: &str, selector: &str, token: &str, limit: usize) -> String {
    let mut path = escaped(resource, namespace);
    let _ = write!(path, "?limit={limit}"); // writing to a String cannot fail, here and below
    for (name, value) in [("labelSelector", selector), ("continue", token)] {
        if !value.is_empty() {
            let _ = write!(path, "&{name}=");
            push_segment(&mut path, value);
        }
    }
    path
}

async fn get(client: &ApiClient, path: &str, accept: &'static str) -> GetResult {
    let mut request = preflight::request(Method::GET, path, None);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
    let answer = match client.call(request).await {
        Ok(answer) => answer,
        Err(error) => return GetResult::Failed(UnlistedReason::Unread(no_answer(&error))),
    };
    match answer.head.status {
        status if status.is_success() => GetResult::Body(answer.body),
        StatusCode::NOT_FOUND => {
            // A 404 proves something only if it names an object.
            let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let names = status["details"]["name"].as_str().is_some_and(|name| !name.is_empty());
            if status["reason"] == "NotFound" && names { GetResult::NoObject } else { GetResult::NotServed }
        }
        status @ (StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED) => GetResult::Refused(Unread::new(
            UnreadCode::of_status(status.as_u16()),
            preflight::message(&answer),
        )),
        status => {
            let message = preflight::message(&answer);
            GetResult::Failed(UnlistedReason::Failed { code: status.as_u16(), message })
        }
    }
}

/// Explains why a request got no response.
fn no_answer(error: &RequestError) -> Unread {
    let code = match error {
        RequestError::Timeout(_) => UnreadCode::TimedOut,
        RequestError::TooLarge => UnreadCode::Malformed,
        RequestError::Connection(_) | RequestError::Body(_) | RequestError::Gated | RequestError::GivenUp => {
            UnreadCode::Unreachable
        }
    };
    Unread::new(code, preflight::one_line(error))
}

/// Returns one line about what could not be listed, if anything.
#[must_use]
pub fn unlisted_summary(survey: &Survey) -> Option<String> {
    let unlisted = survey.unlisted();
    let first = unlisted.iter().next()?;
    let name = |id| survey.catalog.get(id).map(|resource| resource.name.to_string()).unwrap_or_default();
    let names: Vec<String> = unlisted.keys().map(|id| name(*id)).collect();
    Some(format!(
        "{} could not be listed, so that the answer may be incomplete: {} ({})",
        gc_explain::text::count(names.len(), "resource"),
        gc_explain::text::some_of(&names, 3),
        first.1
    ))
}

/// Warns about what could not be read.
pub fn warn(unseen: &[String]) {
    for what in unseen {
        gc_process::screen::complain!("warning: {what}");
    }
}

/// Fails with these errors, one per line, after everything else was answered.
pub fn fail(mut failures: Vec<anyhow::Error>) -> anyhow::Result<()> {
    let Some(last) = failures.pop() else { return Ok(()) };
    for failure in failures {
        gc_process::screen::complain!("error: {failure:#}");
    }
    Err(last)
}

/// Returns the current time of the collectors: the server's, which may be ahead, if they run in it; otherwise the local time.
pub async fn clock(client: &ApiClient) -> Timestamp {
    let answer = client.call(preflight::request(Method::GET, CLOCK, None)).await;
    let document = answer.ok().filter(|answer| answer.head.status.is_success());
    let document = document.and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
    // Another server may answer every path with a page of its own.
    let now = document.filter(|document| document["ahead"].is_string());
    let now = now.and_then(|document| document["now"].as_str()?.parse::<jiff::Timestamp>().ok());
    now.map_or_else(self::now, |now| Timestamp(now.as_millisecond()))
}

/// Returns the current time.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}
