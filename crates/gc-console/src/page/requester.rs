//! Users of the page, and the connection on behalf of each: to the server in this process as that user, or to an API server
//! elsewhere with the user's own token. Either way, answers reflect the user's permissions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use gc_apiserver::InProcess;
use gc_explain::{Catalog, GroupResource, Resource};
use gc_inspect::resident::Lists;
use gc_inspect::view;
use gc_kube::ApiClient;
use gc_kube::connection::Token;
use gc_process::reviews::{ReviewError, Reviews};
use gc_registry::api::{Attributes, UserInfo};

use super::feed::ChangeSubject;
use super::ttl_cache::TtlCache;

/// Maximum number of namespaces that are shown to a user without permissions everywhere.
const MAXIMUM_NAMESPACES: usize = 64;
/// Maximum number of namespaces that are checked for what such a user may list there.
const MAXIMUM_NAMESPACES_ASKED: usize = 1_024;
/// Maximum number of reviews of single resources if the API server does not report what a user may list in a namespace.
const MAXIMUM_REVIEWS: usize = 2_048;
/// Maximum number of concurrent queries about namespaces and resources.
const ASKED_AT_ONCE: usize = 8;
/// Maximum number of users whose permissions are cached.
const KEPT_RIGHTS: usize = 64;
/// Validity of the permissions of another API server's user.
const RIGHTS_VALID: Duration = Duration::from_secs(30);
/// Maximum time to read these permissions.
const RIGHTS_PATIENCE: Duration = Duration::from_secs(30);
/// Stands for every group and every resource.
const STAR: &str = "*";

/// Key of a user: everything that determines permissions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserKey {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: Vec<(String, Vec<String>)>,
}

/// Returns the [`UserKey`] of a user.
pub(crate) fn who(user: &UserInfo) -> UserKey {
    let UserInfo { name, uid, groups, extra } = user.clone();
    UserKey { name, uid, groups, extra }
}

impl Rights {
    /// Reports whether the user may list namespaces.
    pub(super) fn has_namespaces(&self) -> bool {
        let is_it = |resource: &Resource| resource.name == GroupResource::new("", "namespaces");
        self.lists.iter().any(|(within, resources)| within.is_empty() && resources.iter().any(is_it))
    }
}

/// Permissions of a user to list.
#[derive(Clone)]
pub(super) struct Rights {
    /// Lists by namespace; the empty one is for lists of everything.
    pub(crate) lists: Lists,
    /// True if that is everything served.
    pub(crate) all: bool,
    /// True if that includes resources that are served later.
    everything: bool,
    /// Number of namespaces that were not checked, or are too many to show.
    pub(super) namespaces_omitted: usize,
    names: BTreeSet<(String, GroupResource)>,
}

impl Rights {
    fn new(lists: Lists, all: bool, everything: bool, namespaces_omitted: usize) -> Self {
        let names = lists
            .iter()
            .flat_map(|(namespace, inside)| {
                inside.iter().map(|resource| (namespace.clone(), resource.name.clone()))
            })
            .collect();
        Self { lists, all, everything, namespaces_omitted, names }
    }

    /// Reports whether the user may list the subject of a change. Only users who may list everything see changes of unknown
    /// resources.
    fn may_see(&self, about: &ChangeSubject) -> bool {
        let name = GroupResource::new(&about.group, &about.resource);
        let is_listed = |namespace: &str| self.names.contains(&(namespace.to_owned(), name.clone()));
        self.everything || is_listed("") || (!about.namespace.is_empty() && is_listed(&about.namespace))
    }
}

/// A requesting user.
#[derive(Clone)]
pub(crate) enum Requester {
    /// A user of the server in this process.
    Embedded(InProcess),
    /// A user of an API server elsewhere.
    Remote(Arc<Remote>),
}

/// An API server elsewhere, which authenticates users by their tokens.
pub struct Cluster {
    /// Reviews of tokens and permissions.
    reviews: Reviews,
    /// Client with the permissions of the collectors, used only for the names of namespaces.
    own: ApiClient,
    /// Client without credentials.
    anonymous: ApiClient,
    rights: TtlCache<UserKey, Arc<Rights>>,
}

/// A user of an API server elsewhere.
pub(crate) struct Remote {
    user: UserInfo,
    token: Token,
    /// Client with the user's token.
    client: ApiClient,
    cluster: Arc<Cluster>,
}

impl Cluster {
    /// Creates access to the API server of this client, whose user may create reviews.
    pub fn new(own: ApiClient) -> anyhow::Result<Self> {
        let anonymous = own.without_credentials()?;
        let rights = TtlCache::new(KEPT_RIGHTS);
        Ok(Self { reviews: Reviews::new(own.clone()), own, anonymous, rights })
    }

    /// Returns the user of a token; `None` if it belongs to no user.
    pub(crate) async fn visitor(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<Option<(UserInfo, Requester)>, ReviewError> {
        let Some(user) = self.reviews.user(token).await? else { return Ok(None) };
        let Ok(token) = token.parse::<Token>();
        // A token that the API server has authenticated is a valid header.
        let Ok(client) = self.anonymous.with_token(&token) else { return Ok(None) };
        let remote = Remote { user: user.clone(), token, client, cluster: Arc::clone(self) };
        Ok(Some((user, Requester::Remote(Arc::new(remote)))))
    }
}

impl Requester {
    /// Returns a client with the credentials of this user.
    pub(crate) fn client(&self) -> ApiClient {
        match self {
            Self::Embedded(server) => {
                let server = server.clone();
                ApiClient::in_process(move |request| server.call(request))
            }
            Self::Remote(remote) => remote.client.clone(),
        }
    }

    /// Returns the user's bearer token, if the cluster is queried with it.
    pub(crate) fn bearer(&self) -> Option<&str> {
        match self {
            Self::Embedded(_) => None,
            Self::Remote(remote) => Some(remote.token.reveal()),
        }
    }

    /// Reports whether the user may do something with a path that is not a resource; the verb is a method in lower case.
    pub(super) async fn may_path(&self, verb: &str, path: &str) -> Result<bool, ReviewError> {
        match self {
            Self::Embedded(server) => Ok(server.may_path(verb, path)),
            Self::Remote(remote) => remote.cluster.reviews.allows_path(&remote.user, verb, path).await,
        }
    }

    /// Returns the served resources that the user may list.
    pub(super) async fn rights(&self) -> anyhow::Result<Arc<Rights>> {
        match self {
            Self::Embedded(server) => {
                let catalog = view::catalog(&self.client()).await?;
                Ok(Arc::new(of_embedded(server, &catalog)))
            }
            Self::Remote(remote) => remote.rights().await,
        }
    }
}

fn may_list(server: &InProcess, (group, resource): (&str, &str), namespace: &str) -> bool {
    server.may(&Attributes { verb: "list", group, resource, namespace, ..Attributes::default() })
}

fn of_embedded(server: &InProcess, catalog: &Catalog) -> Rights {
    let served: Vec<&Resource> = catalog.all().iter().filter(|resource| resource.is_collectable()).collect();
    let may = |resource: &Resource, namespace: &str| {
        may_list(server, (&resource.name.group, &resource.name.resource), namespace)
    };
    let (everywhere, others): (Vec<&Resource>, Vec<&Resource>) =
        served.into_iter().partition(|resource| may(resource, ""));
    let (all, everything) = (others.is_empty(), may_list(server, (STAR, STAR), ""));
    let mut lists = listed_everywhere(everywhere);
    let mut omitted = 0;
    if !all {
        for namespace in server.namespaces() {
            let inside: Vec<Resource> = others
                .iter()
                .filter(|resource| resource.is_namespaced() && may(resource, &namespace))
                .map(|resource| (*resource).clone())
                .collect();
            if inside.is_empty() {
                continue;
            }
            if lists.len() > MAXIMUM_NAMESPACES {
                omitted += 1;
            } else {
                lists.push((namespace, inside));
            }
        }
    }
    Rights::new(lists, all, everything, omitted)
}

fn listed_everywhere(resources: Vec<&Resource>) -> Lists {
    let resources: Vec<Resource> = resources.into_iter().cloned().collect();
    if resources.is_empty() { Vec::new() } else { vec![(String::new(), resources)] }
}

/// A reader's permissions to see changes, cached for a while.
pub(super) struct Sight {
    visitor: Requester,
    known: std::collections::BTreeMap<ChangeSubject, bool>,
    /// Permissions of a user of another API server.
    rights: Option<Arc<Rights>>,
    until: tokio::time::Instant,
}

/// Validity of a reader's permissions.
const SIGHT_PERIOD: Duration = Duration::from_secs(5);

impl Sight {
    /// Creates the permissions of this user, who sees nothing before they are refreshed.
    pub(crate) fn new(visitor: Requester) -> Self {
        let until = tokio::time::Instant::now();
        Self { visitor, known: std::collections::BTreeMap::new(), rights: None, until }
    }

    /// Replaces the credentials with others of the same user.
    pub(crate) fn renew(&mut self, visitor: Requester) {
        self.visitor = visitor;
    }

    /// Checks the user's permissions again if it is time. A user who has none any more sees nothing.
    pub(crate) async fn refresh(&mut self) {
        if tokio::time::Instant::now() < self.until {
            return;
        }
        self.known.clear();
        if let Requester::Remote(remote) = &self.visitor {
            self.rights = match remote.rights().await {
                Ok(rights) => Some(rights),
                Err(error) => {
                    tracing::debug!("a reader of the feed sees nothing: {error:#}");
                    None
                }
            };
        }
        self.until = tokio::time::Instant::now() + SIGHT_PERIOD;
    }

    /// Reports whether the user may list the subject of a change.
    pub(super) fn may_see(&mut self, about: &ChangeSubject) -> bool {
        if let Some(known) = self.known.get(about) {
            return *known;
        }
        let may = match &self.visitor {
            Requester::Embedded(server) => {
                // Only users who may list everything see counts without a resource.
                let is_counted_alone = about.resource.is_empty();
                let name = if is_counted_alone { (STAR, STAR) } else { (&*about.group, &*about.resource) };
                may_list(server, name, &about.namespace)
            }
            Requester::Remote(_) => self.rights.as_ref().is_some_and(|rights| rights.may_see(about)),
        };
        self.known.insert(about.clone(), may);
        may
    }

    /// Reports whether the user sees everything.
    pub(super) fn sees_all(&mut self) -> bool {
        self.may_see(&ChangeSubject::default())
    }
}

impl Remote {
    async fn rights(&self) -> anyhow::Result<Arc<Rights>> {
        let make = async {
            let found = tokio::time::timeout(RIGHTS_PATIENCE, self.find_rights()).await;
            let rights = found.context("the API server takes too long to say what the user may list")??;
            anyhow::Ok((Arc::new(rights), RIGHTS_VALID))
        };
        // A token that was revoked, or has expired, must not benefit from what is cached about its user.
        let user = self.cluster.reviews.user(self.token.reveal()).await?;
        anyhow::ensure!(
            user.is_some_and(|user| who(&user) == who(&self.user)),
            "the token of {:?} is not valid any more",
            self.user.name
        );
        Ok(self.cluster.rights.of(who(&self.user), make).await?.0)
    }

    async fn may_list(&self, name: (&str, &str), namespace: &str) -> Result<bool, ReviewError> {
        self.cluster.reviews.allows_list(&self.user, name, namespace).await
    }

    /// Returns those of these resources that the user may list in a namespace (everywhere, if empty).
    async fn reviewed(&self, resources: Vec<Resource>, namespace: &str) -> anyhow::Result<Vec<Resource>> {
        let reviews = resources.into_iter().map(|resource| async move {
            let may = self.may_list((&resource.name.group, &resource.name.resource), namespace).await?;
            anyhow::Ok(may.then_some(resource))
        });
        let reviewed: Vec<_> = futures::stream::iter(reviews).buffered(ASKED_AT_ONCE).collect().await;
        reviewed.into_iter().filter_map(Result::transpose).collect()
    }

    async fn find_rights(&self) -> anyhow::Result<Rights> {
        let catalog = view::catalog(&self.client).await?;
        let served: Vec<Resource> =
            catalog.all().iter().filter(|resource| resource.is_collectable()).cloned().collect();
        if self.may_list((STAR, STAR), "").await? {
            return Ok(Rights::new(vec![(String::new(), served)], true, true, 0));
        }
        let mut namespaces: Vec<String> = view::objects(&self.cluster.own, "namespaces", "")
            .await?
            .into_iter()
            .map(|(_, metadata)| metadata.name.to_string())
            .collect();
        let mut omitted = namespaces.len().saturating_sub(MAXIMUM_NAMESPACES_ASKED);
        namespaces.truncate(MAXIMUM_NAMESPACES_ASKED);
        // Resources that may be listed everywhere may be listed in any namespace, so only others need a review.
        let anywhere = match namespaces.first() {
            Some(namespace) => view::listable(&self.client, namespace).await,
            None => None,
        };
        let candidates =
            served.iter().filter(|one| anywhere.as_ref().is_none_or(|rules| rules.contain(&one.name)));
        let everywhere = self.reviewed(candidates.cloned().collect(), "").await?;
        let others: Vec<Resource> =
            served.into_iter().filter(|one| !everywhere.iter().any(|known| known.name == one.name)).collect();
        let all = others.is_empty();
        let mut lists = listed_everywhere(everywhere.iter().collect());
        if !all {
            let others: Vec<Resource> = others.into_iter().filter(Resource::is_namespaced).collect();
            let budget = AtomicUsize::new(MAXIMUM_REVIEWS);
            let asked = namespaces.into_iter().map(|namespace| async {
                let inside = self.inside(&namespace, &others, &budget).await;
                (namespace, inside)
            });
            let asked: Vec<_> = futures::stream::iter(asked).buffered(ASKED_AT_ONCE).collect().await;
            let first = lists.len();
            for (namespace, inside) in asked {
                match inside? {
                    Some(inside) if inside.is_empty() => {}
                    Some(inside) if lists.len() - first < MAXIMUM_NAMESPACES => {
                        lists.push((namespace, inside));
                    }
                    Some(_) | None => omitted += 1,
                }
            }
        }
        Ok(Rights::new(lists, all, false, omitted))
    }

    /// Returns those of these resources that the user may list in a namespace; `None` if finding out would take more reviews than
    /// are left.
    async fn inside(
        &self,
        namespace: &str,
        resources: &[Resource],
        budget: &AtomicUsize,
    ) -> anyhow::Result<Option<Vec<Resource>>> {
        if let Some(rules) = view::listable(&self.client, namespace).await {
            let inside = resources.iter().filter(|resource| rules.contain(&resource.name));
            return Ok(Some(inside.cloned().collect()));
        }
        let take = |left: usize| left.checked_sub(resources.len());
        if budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Ok(None);
        }
        Ok(Some(self.reviewed(resources.to_vec(), namespace).await?))
    }
}
