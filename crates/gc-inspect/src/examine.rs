//! Collects the facts that `kubegc doctor` judges. Something that cannot be read never ends the examination.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_collectors::permissions::{self, Controller};
use gc_collectors::policies::{Policy, unused};
use gc_explain::protect::Status;
use gc_kube::{ApiClient, push_segment};
use gc_process::access::Access;
use gc_process::lease::control::{self, Held};
use gc_process::lease::orders::Orders;
use gc_process::lease::{LeaseName, shards};
use gc_process::{admission, preflight};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::attached::{self, AttachFlags, Query, QueryRequest};
use super::collector::{self, GUESS_PATIENCE, LeaderPages};
use super::doctor::{self, Facts, FoundLease, LeaseReport, RecorderFacts, StorageFacts, TheirCollector};
use super::gather::{self, Gatherer, Scope};
use super::sources::JournalFlags;
use super::surveyed::{self, Survey};
use crate::output::{Answer as _, Output};
use crate::stuck;

/// Name of kube-controller-manager's Lease.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// Names under which its garbage collector is switched off.
const SWITCHED_OFF: [&str; 2] = ["-garbage-collector-controller", "-garbagecollector"];
/// Account that the manifests create.
const ACCOUNT: &str = "system:serviceaccount:kube-system:kubegc";
/// API path of that account.
const ACCOUNT_PATH: &str = "/api/v1/namespaces/kube-system/serviceaccounts/kubegc";
/// Timeout for the page of a named collector.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Scope and subject of an examination.
pub struct Examination<'a> {
    /// Only the objects in this namespace; empty for all.
    pub namespace: &'a str,
    /// User whose permissions are checked, or `self`; `None` for the account of the leading pod, or that of the manifests.
    pub subject: Option<&'a str>,
    /// Collectors whose permissions are checked.
    pub enabled: &'a [Controller],
    /// Choice of the collector to query.
    pub attach: &'a AttachFlags,
    /// Lease of the collectors.
    pub lease: LeaseName,
    /// Access to servers.
    pub access: &'a Access,
}

/// Collects everything that [`doctor::diagnose`] judges.
pub async fn examine(
    client: &ApiClient,
    options: &Examination<'_>,
    patience: Duration,
) -> anyhow::Result<Facts> {
    let (surveyed, has_answered) = survey(client, options, patience).await?;
    let version = get(client, "/version").await.unwrap_or_default();
    let git_version = version["gitVersion"].as_str().unwrap_or("of unknown version");
    let lease = options.lease.clone();
    let own = control::read(client, &lease).await;
    let mut facts = Facts {
        now: jiff::Timestamp::now(),
        server: format!("{git_version} at {}", client.address()),
        version: preflight::doubtful_version(&version),
        lease: (format!("{}/{}", lease.namespace, lease.name), None),
        surveyed,
        unavailable: unavailable(client).await,
        storage: storage(client, git_version).await,
        is_up: preflight::has_collectors(client).await,
        ..Facts::default()
    };
    match own {
        Ok(Some(own)) => {
            facts.orders = Orders::of_lease(&own);
            let shards = shards::of_lease(&own);
            match shards::holders(client, &lease, &shards).await {
                Ok(holders) => facts.shards = shards.into_iter().zip(holders).collect(),
                Err(error) => facts.lease_unread = Some(unread(&lease, &error)),
            }
            let first = facts.shards.first().map(|(_, held)| held.clone());
            facts.lease.1 = first.or_else(|| Some(Held::of(&own)).filter(Held::was_ever_held));
        }
        Ok(None) => facts.orders.tripped = Some(BTreeMap::new()),
        Err(error) => {
            facts.orders.tripped = Some(BTreeMap::new());
            facts.lease_unread = Some(unread(&lease, &error));
        }
    }
    let theirs = LeaseName { namespace: "kube-system".into(), name: CONTROLLER_MANAGER.into() };
    match control::read(client, &theirs).await {
        Ok(lease) => facts.controller_manager = lease.map(|lease| Held::of(&lease)),
        Err(error) => facts.controller_manager_unread = Some(unread(&theirs, &error)),
    }
    facts.their_collector = their_collector(client).await;
    facts.protection = protection(client).await;
    facts.recorders = recorders(client).await;
    if !facts.is_up {
        facts.unguarded = admission::unguarded(client, options.enabled).await;
        check_permissions(client, options, &lease, &mut facts).await;
    }
    if let Some(collector) = options.attach.collector.connect(options.access, &lease).await? {
        match read_page(&collector, PAGE_TIMEOUT).await {
            Ok(page) => facts.collector = Some(page),
            // It has answered at its --ui-bind-address, which does not serve this page.
            Err(Some(_)) if has_answered => {}
            Err(why) => facts.collector_error = Some(silence(collector.address(), why)),
        }
    } else if !options.attach.no_collector
        && let Ok(Some(leader)) = LeaderPages::find(client, options.access, &lease).await
    {
        match read_page(&leader.client, GUESS_PATIENCE).await {
            Ok(page) => facts.collector = Some(page),
            // It may be unreachable from elsewhere, or refuse this user.
            Err(_) if !leader.are_here() => {}
            Err(why) => facts.collector_error = Some(silence(leader.client.address(), why)),
        }
    }
    Ok(facts)
}

/// Reads the collector's own report, or the reason why it could not be read; a missing reason means a timeout. Either becomes a
/// finding and does not stop the examination.
async fn read_page(collector: &ApiClient, patience: Duration) -> Result<Value, Option<anyhow::Error>> {
    let page = collector::page(collector, "/debug/kubegc/resources");
    tokio::time::timeout(patience, page).await.map_err(|_| None)?.map_err(Some)
}

fn silence(address: &str, why: Option<anyhow::Error>) -> String {
    match why {
        Some(error) => format!("{address}: {error:#}"),
        None => format!("{address} does not answer"),
    }
}

/// Explains why a Lease is not known. A permission error concerns the requesting user; the collectors' account is checked
/// elsewhere.
fn unread(lease: &LeaseName, error: &anyhow::Error) -> String {
    match error.downcast_ref::<preflight::ForbiddenRequest>() {
        Some(_) => format!("this user may not read lease {lease}"),
        None => format!("lease {lease} cannot be read: {error:#}"),
    }
}

/// Queries a server or collector with a graph about the objects, or reads them here. Also returns whether it was such an answer.
async fn survey(
    client: &ApiClient,
    options: &Examination<'_>,
    patience: Duration,
) -> anyhow::Result<(Survey, bool)> {
    let AttachFlags { collector, no_collector } = options.attach;
    let scope = Scope { namespace: options.namespace.to_owned(), ..Scope::default() };
    let question = Query::Doctor { namespace: scope.namespace.clone() };
    let mut has_answered = false;
    if let Some(inquiry) = QueryRequest::new(&Output::Json, question).filter(|_| !no_collector) {
        let lease = options.lease.clone();
        let answer =
            attached::of_whoever_answers((collector, &lease), options.access, client, &inquiry).await;
        // Another version may return findings that this one does not know.
        let surveyed = answer.and_then(|answer| serde_json::from_value::<Survey>(answer.value()).ok());
        has_answered = surveyed.is_some();
        // A graph does not know which requests of its collector the server refused.
        if let Some(surveyed) = surveyed.filter(|surveyed| !surveyed.blames_a_collector()) {
            return Ok((surveyed, true));
        }
    }
    let gatherer = Gatherer::new(client.clone(), gather::clock(client).await).await?;
    let surveyed = surveyed::ask(&gatherer, &scope, patience).await?;
    if !surveyed.blames_a_collector() {
        return Ok((surveyed, has_answered));
    }
    let journal = JournalFlags { collector: collector.clone(), ..JournalFlags::default() };
    let refused = stuck::refusals(&journal, options.access, client).await;
    let gatherer = gatherer.knowing_refusals(refused);
    Ok((surveyed::ask(&gatherer, &scope, patience).await?, has_answered))
}

/// Returns the rules of `kubegc protect`; none if they cannot be read.
async fn protection(client: &ApiClient) -> Vec<Status> {
    let Ok(gatherer) = Gatherer::new(client.clone(), gather::clock(client).await).await else {
        return Vec::new();
    };
    crate::protect::rules(&gatherer, gatherer.now).await.unwrap_or_default()
}

/// Returns the recorders whose Leases can be found, and those that policies need.
async fn recorders(client: &ApiClient) -> Vec<RecorderFacts> {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/leases?labelSelector=\
                          app.kubernetes.io%2Fname%3Dkubegc,app.kubernetes.io%2Fcomponent%3Drecorder";
    let mut needed: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let policies = get(client, "/apis/kubegc.io/v1alpha1/retentionpolicies").await.unwrap_or_default();
    for policy in policies["items"].as_array().into_iter().flatten() {
        let name = policy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let Ok(compiled) = Policy::compile(&policy["spec"]) else { continue };
        if let Some(lease) = compiled.recorder() {
            let kind = unused::kind_name(&compiled.api_version, &compiled.kind);
            needed.entry(lease.to_string()).or_default().push((name, kind));
        }
    }
    let mut found = BTreeMap::new();
    let listed = get(client, LEASES).await.unwrap_or_default();
    for lease in listed["items"].as_array().into_iter().flatten() {
        let text = |field: &str| lease["metadata"][field].as_str().unwrap_or_default();
        let name = format!("{}/{}", text("namespace"), text("name"));
        found.insert(name, FoundLease::Present(LeaseReport::of(lease)));
    }
    for name in needed.keys().map(String::as_str).chain([unused::RECORDER]) {
        let Some((namespace, lease)) = unused::lease_name(name).filter(|_| !found.contains_key(name)) else {
            continue;
        };
        let place = LeaseName { namespace: namespace.to_owned(), name: lease.to_owned() };
        let lease = match control::read(client, &place).await {
            Ok(Some(lease)) => FoundLease::Present(LeaseReport::of(&lease)),
            Ok(None) => FoundLease::Absent,
            Err(error) => FoundLease::Unread(unread(&place, &error)),
        };
        found.insert(name.to_owned(), lease);
    }
    let of = |(lease, found): (String, FoundLease)| {
        let needed = needed.get(&lease).cloned().unwrap_or_default();
        RecorderFacts { lease, found, needed }
    };
    found.into_iter().map(of).collect()
}

/// Returns a response if it is successful and JSON.
async fn get(client: &ApiClient, path: &str) -> Option<Value> {
    let answer = client.call(preflight::request(Method::GET, path, None)).await.ok()?;
    if answer.head.status.is_success() { serde_json::from_slice(&answer.body).ok() } else { None }
}

/// Reads the metrics of an embedded server. Those of other servers are large, and do not show how much of etcd is in use.
async fn storage(client: &ApiClient, git_version: &str) -> Option<StorageFacts> {
    if !git_version.contains("kubegc") {
        return None;
    }
    let mut request = preflight::request(Method::GET, "/metrics", None);
    request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static("text/plain"));
    let answer = client.call(request).await.ok()?;
    let metrics = std::str::from_utf8(&answer.body).ok().filter(|_| answer.head.status.is_success())?;
    StorageFacts::of(metrics)
}

/// Returns the APIServices that report themselves unavailable.
async fn unavailable(client: &ApiClient) -> BTreeMap<String, String> {
    let list = get(client, "/apis/apiregistration.k8s.io/v1/apiservices").await.unwrap_or_default();
    let mut found = BTreeMap::new();
    for service in list["items"].as_array().into_iter().flatten() {
        let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
        let broken =
            conditions.filter(|condition| condition["type"] == "Available" && condition["status"] != "True");
        for condition in broken {
            let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            found.insert(name, format!("{}: {}", text("reason"), text("message")));
        }
    }
    found
}

/// Looks for kube-controller-manager's flags in its pods, if it runs in pods.
async fn their_collector(client: &ApiClient) -> TheirCollector {
    let path = "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dkube-controller-manager";
    let list = get(client, path).await.unwrap_or_default();
    let containers = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten());
    let words: Vec<&str> = containers
        .flat_map(|container| [&container["command"], &container["args"]])
        .flat_map(|list| list.as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    if words.is_empty() {
        return TheirCollector::Unseen;
    }
    let mut switched = words.iter().flat_map(|word| {
        word.trim_start_matches("--controllers=").split(',').map(str::trim).collect::<Vec<_>>()
    });
    let disabled = words.contains(&"--enable-garbage-collector=false");
    if disabled || switched.any(|word| SWITCHED_OFF.contains(&word)) {
        TheirCollector::Off
    } else {
        TheirCollector::On
    }
}

/// Returns the permissions that collectors need: group, resource, namespace (for a Role), name of the only object, verbs.
fn rules(
    enabled: &[Controller],
    lease: &LeaseName,
) -> Vec<(&'static str, &'static str, String, String, Vec<&'static str>)> {
    let mut rules: Vec<_> = permissions::needed(enabled, true)
        .into_iter()
        .map(|rule| {
            let name = rule.names.first().copied().unwrap_or_default().to_owned();
            (rule.group, rule.resource, String::new(), name, rule.verbs)
        })
        .collect();
    let verbs = vec!["get", "create", "update"];
    rules.push(("coordination.k8s.io", "leases", lease.namespace.clone(), lease.name.clone(), verbs));
    rules
}

/// Returns the account whose permissions count: the named one, that of the leading pod, or that of the manifests unless it is known
/// not to exist.
async fn account(client: &ApiClient, options: &Examination<'_>, facts: &Facts) -> Option<String> {
    if let Some(named) = options.subject {
        return Some(named.to_owned());
    }
    if let Some(held) = facts.lease.1.as_ref().filter(|held| held.is_held(facts.now)) {
        let namespace = &options.lease.namespace;
        let mut path = format!("/api/v1/namespaces/{namespace}/pods/");
        // The part after the pod name is different after each start.
        push_segment(&mut path, held.holder.split('_').next().unwrap_or_default());
        let pod = get(client, &path).await.unwrap_or_default();
        if let Some(name) = pod["spec"]["serviceAccountName"].as_str() {
            return Some(format!("system:serviceaccount:{namespace}:{name}"));
        }
    }
    let of_manifests = client.call(preflight::request(Method::GET, ACCOUNT_PATH, None)).await;
    let is_absent = of_manifests.is_ok_and(|answer| answer.head.status == StatusCode::NOT_FOUND);
    (!is_absent).then(|| ACCOUNT.to_owned())
}

/// Asks the server what the collectors' account may do.
async fn check_permissions(
    client: &ApiClient,
    options: &Examination<'_>,
    lease: &LeaseName,
    facts: &mut Facts,
) {
    facts.is_installed = facts.lease.1.is_some() || options.subject.is_some();
    let Some(subject) = account(client, options, facts).await else {
        ACCOUNT.clone_into(&mut facts.permissions.0);
        facts.unchecked.push(format!(
            "the permissions cannot be checked: no collector leads in a pod that can be read, and there is no {ACCOUNT}; \
             --subject names the account"
        ));
        return;
    };
    let is_self = subject == "self";
    facts.permissions.0 = if is_self { "this user".into() } else { subject.clone() };
    for (group, resource, namespace, name, verbs) in rules(options.enabled, lease) {
        let (plain, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let mut missing = Vec::new();
        for verb in verbs {
            let mut attributes =
                json!({"verb": verb, "group": group, "resource": plain, "subresource": subresource});
            if !namespace.is_empty() {
                attributes["namespace"] = namespace.as_str().into();
            }
            // A create request has no name yet.
            if !name.is_empty() && verb != "create" {
                attributes["name"] = name.as_str().into();
            }
            let (kind, plural) = if is_self {
                ("SelfSubjectAccessReview", "selfsubjectaccessreviews")
            } else {
                ("SubjectAccessReview", "subjectaccessreviews")
            };
            let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind,
                                    "spec": {"resourceAttributes": attributes}});
            if !is_self {
                review["spec"]["user"] = subject.as_str().into();
                review["spec"]["groups"] = groups(&subject).into();
            }
            let path = format!("/apis/authorization.k8s.io/v1/{plural}");
            let answer = client.call(preflight::request(Method::POST, &path, Some(&review))).await;
            let answer = match answer {
                Ok(answer) if answer.head.status.is_success() => answer,
                Ok(answer) => {
                    let said = preflight::message(&answer);
                    facts.is_installed = true;
                    facts.unchecked.push(format!("the permissions cannot be checked: {said}"));
                    return;
                }
                Err(error) => {
                    facts.is_installed = true;
                    facts.unchecked.push(format!("the permissions cannot be checked: {error}"));
                    return;
                }
            };
            let review: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            if review["status"]["allowed"] == true {
                facts.is_installed = true;
            } else {
                missing.push(verb.to_owned());
            }
        }
        if !missing.is_empty() {
            let is_needed = (group, resource) != ("", "events");
            let (group, resource) = (group.to_owned(), resource.to_owned());
            let forbidden = preflight::ForbiddenRequest { verbs: missing, group, resource, namespace };
            let (role, rule) = (forbidden.role(), forbidden.rule());
            facts.permissions.1.push(doctor::MissingRule { role, rule, is_needed });
        }
    }
}

/// Returns the groups of a service account; those of other users are not known.
fn groups(subject: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) =
        subject.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'))
    {
        groups.extend(["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]);
    }
    groups
}
