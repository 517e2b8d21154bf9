//! Deletions in the audit log of kube-apiserver: JSON lines, `Event` of `audit.k8s.io/v1`. Reads the file once from beginning to
//! end, holding one line in memory.

mod history;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context as _;
use gc_process::lines::{Line, Lines};
use jiff::Timestamp;
use serde::Deserialize;

use crate::removed_type as gone_type;
use crate::removed_type::Ambiguous;
use history::{Deletion, History, Relation};

/// Maximum length of a line. A request body is at most 3 MiB, and a line contains it and the response.
const LONGEST_LINE_BYTES: usize = 16 << 20;
/// Maximum number of resources with a matching name whose deletions are kept.
const RESOURCES: usize = 100;
/// Resource of namespaces, whose deletion is the cause when their contents are deleted.
const NAMESPACES: (&str, &str) = ("", "namespaces");

/// Prefix of a line about a request that deleted the object only if it existed.
pub(crate) const DOUBTFUL: &str = "if it existed then: ";

/// Resource of an object, as the user named it.
#[derive(Clone, Debug)]
pub(crate) enum CalledResource {
    /// Group and plural name.
    Exactly(String, String),
    /// A word typed by the user that the server does not serve.
    Word(String),
}

/// The object whose deletion is searched for.
#[derive(Clone, Debug)]
pub(crate) struct WantedObject {
    pub(crate) resource: CalledResource,
    /// Namespace; empty at cluster scope, `None` for any.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// Earlier deletions were of another object with the same name.
    pub(crate) created: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Event {
    kind: String,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(rename = "sourceIPs")]
    source_ips: Vec<String>,
    user_agent: String,
    object_ref: ObjectRef,
    response_status: Status,
    request_object: Option<RequestObject>,
    response_object: Option<ResponseObject>,
    request_received_timestamp: Option<Timestamp>,
    stage_timestamp: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
    /// `Success` without an object means that it is gone.
    status: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RequestObject {
    dry_run: Vec<String>,
    propagation_policy: String,
}

/// Objects in a response: the deleted one, or those of a list.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseObject {
    metadata: Metadata,
    items: Option<Vec<ResponseItem>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseItem {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    owner_references: Vec<Owner>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Owner {
    kind: String,
    name: String,
}

/// Findings about each object.
#[derive(Debug, Default)]
pub(crate) struct SearchResult {
    /// Human-readable lines about each object: its own deletion, and that of its namespace. An error if the object's type is
    /// ambiguous.
    pub(crate) lines: Vec<Result<Vec<String>, Ambiguous>>,
    /// Number of lines that are not events of an audit log.
    pub(crate) malformed: u64,
}

/// Last events about one object.
#[derive(Default)]
struct Last {
    /// Histories by resource, because the name of the object's type may match several.
    own: BTreeMap<String, History>,
    of_namespace: Option<(Timestamp, String)>,
}

/// Searches the log for these objects.
pub(crate) fn search(file: &Path, wanted: &[WantedObject]) -> anyhow::Result<SearchResult> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    read(BufReader::new(opened), wanted).with_context(|| format!("cannot read {}", file.display()))
}

/// Reads lines from any source.
pub(crate) fn read(lines: impl BufRead, wanted: &[WantedObject]) -> std::io::Result<SearchResult> {
    let mut last: Vec<Last> = wanted.iter().map(|_| Last::default()).collect();
    let mut malformed = 0;
    let mut lines = Lines::new(lines, LONGEST_LINE_BYTES);
    while let Some(line) = lines.next()? {
        if line.text().is_some_and(|text| text.trim_ascii().is_empty()) {
            continue;
        }
        match serde_json::from_slice::<Event>(line.text().unwrap_or_default()) {
            Ok(event) if event.kind == "Event" => {
                wanted.iter().zip(&mut last).for_each(|(wanted, last)| event.note(wanted, last));
            }
            // The server is still writing its last line.
            Err(_) if matches!(line, Line::Torn(_)) => {}
            Ok(_) | Err(_) => malformed += 1,
        }
    }
    let lines = wanted.iter().zip(last).map(|(wanted, last)| last.lines(wanted)).collect();
    Ok(SearchResult { lines, malformed })
}

impl Last {
    /// Returns the history for the resource of an event; `None` if there are too many resources already.
    fn own(&mut self, event: &Event) -> Option<&mut History> {
        let ObjectRef { api_group, resource, .. } = &event.object_ref;
        let resource = gc_types::group_resource(api_group, resource);
        let has_room = self.own.len() < RESOURCES || self.own.contains_key(&resource);
        has_room.then(|| self.own.entry(resource).or_default())
    }

    /// Returns the lines about the object. The deletion of its namespace is the cause of everything that happened after it.
    fn lines(mut self, wanted: &WantedObject) -> Result<Vec<String>, Ambiguous> {
        self.own.retain(|_, history| history.has_deletion());
        let (own, guess) = match &wanted.resource {
            CalledResource::Exactly(..) => (self.own.pop_first().map(|(_, own)| own), None),
            CalledResource::Word(word) => {
                match gone_type::meant(word, self.own.keys().map(|resource| (resource.as_str(), "")))? {
                    Some(meant) => (self.own.remove(&meant.resource), meant.guess),
                    None => (None, None),
                }
            }
        };
        let (began, own) = own.and_then(History::end).unzip();
        let of_namespace = self.of_namespace.filter(|(at, _)| began.is_none_or(|began| *at <= began));
        // The namespace's deletion is certainly the cause of later deletions; otherwise only if the object still existed.
        let of_namespace = of_namespace.map(|(_, line)| match &own {
            Some(_) => line,
            None => format!("{DOUBTFUL}{line}"),
        });
        let lines = own.into_iter().flatten().chain(of_namespace);
        Ok(lines.chain(guess.map(|guess| format!("({guess})"))).collect())
    }
}

impl Event {
    /// Records the event if it is about the object, or deletes its namespace.
    fn note(&self, wanted: &WantedObject, last: &mut Last) {
        let Some(at) = self.request_received_timestamp.or(self.stage_timestamp) else { return };
        // The time is written in seconds.
        if !self.is_done() || wanted.created.is_some_and(|created| at < created) {
            return;
        }
        let object = &self.object_ref;
        if self.verb == "create" && object.subresource.is_empty() {
            if self.is_of_type(wanted)
                && let Some(history) = last.own(self)
            {
                history.created(at, object.name == wanted.name);
            }
            return;
        }
        if !self.deletes() {
            return;
        }
        if let Some(about) = self.about(wanted) {
            let (user, line) = (self.user.username.clone(), self.line(at));
            let has_ended = self.verb == "delete" && self.response_status.status == "Success";
            if let Some(history) = last.own(self) {
                history.deleted(at, Deletion { about, user, has_ended, line });
            }
        } else if self.is_about_namespace()
            && wanted.namespace.as_ref() == Some(&object.name)
            && last.of_namespace.as_ref().is_none_or(|(known, _)| *known <= at)
        {
            last.of_namespace = Some((at, self.line(at)));
        }
    }

    /// Reports whether the server carried out the request, which must not be a dry run.
    fn is_done(&self) -> bool {
        let is_dry = self.request_uri.contains("dryRun=")
            || self.request_object.as_ref().is_some_and(|options| !options.dry_run.is_empty());
        !is_dry && self.stage == "ResponseComplete" && (200..300).contains(&self.response_status.code)
    }

    /// Reports whether it deleted something.
    fn deletes(&self) -> bool {
        let object = &self.object_ref;
        match self.verb.as_str() {
            "delete" | "deletecollection" => object.subresource.is_empty(),
            "create" => object.resource == "pods" && object.subresource == "eviction",
            _ => false,
        }
    }

    fn is_about_namespace(&self) -> bool {
        (self.object_ref.api_group.as_str(), self.object_ref.resource.as_str()) == NAMESPACES
    }

    /// Returns the namespace of the object. kube-apiserver records a namespace as being in itself.
    fn namespace(&self) -> &str {
        if self.is_about_namespace() { "" } else { &self.object_ref.namespace }
    }

    /// Reports whether it is about the type and the namespace of the wanted object.
    fn is_of_type(&self, wanted: &WantedObject) -> bool {
        let ObjectRef { resource, api_group, .. } = &self.object_ref;
        let is_called = match &wanted.resource {
            CalledResource::Exactly(group, plural) => group == api_group && plural == resource,
            CalledResource::Word(word) => {
                gone_type::may_mean(word, &gc_types::group_resource(api_group, resource))
            }
        };
        is_called && wanted.namespace.as_ref().is_none_or(|wanted| wanted == self.namespace())
    }

    /// Returns how the event relates to the object, if at all.
    fn about(&self, wanted: &WantedObject) -> Option<Relation> {
        if !self.is_of_type(wanted) {
            return None;
        }
        if self.verb != "deletecollection" {
            return (self.object_ref.name == wanted.name).then_some(Relation::Name);
        }
        let items = self.response_object.as_ref().and_then(|answer| answer.items.as_ref());
        match items {
            Some(items) => {
                items.iter().any(|item| item.metadata.name == wanted.name).then_some(Relation::List)
            }
            None if self.selectors().is_some() => Some(Relation::Selection),
            None => Some(Relation::All),
        }
    }

    fn line(&self, at: Timestamp) -> String {
        let ObjectRef { resource, name, .. } = &self.object_ref;
        let who = match &self.impersonated_user {
            Some(other) => format!("{} (impersonated by {})", other.username, self.user.username),
            None => self.user.username.clone(),
        };
        let place = match self.namespace() {
            "" => String::new(),
            namespace => format!(" in {namespace}"),
        };
        let is_listed = self.response_object.as_ref().is_some_and(|answer| answer.items.is_some());
        let doubt = if is_listed { "" } else { ", if it was one of them" };
        let what = match (self.verb.as_str(), self.selectors()) {
            ("deletecollection", Some(selectors)) => {
                format!("DELETE of all {resource} with {selectors}{place}{doubt}")
            }
            ("deletecollection", None) => format!("DELETE of all {resource}{place}"),
            ("create", _) => format!("eviction of {resource}/{name}{place}"),
            _ => format!("DELETE of {resource}/{name}{place}"),
        };
        let owners = self.response_object.as_ref().map(|answer| &answer.metadata.owner_references[..]);
        let owners = owners.unwrap_or_default().iter().map(|owner| format!("{}/{}", owner.kind, owner.name));
        let owners: Vec<String> = owners.collect();
        let owned =
            if owners.is_empty() { String::new() } else { format!(", owned by {}", owners.join(", ")) };
        let policy = self.policy().map_or(String::new(), |policy| format!(", propagationPolicy {policy}"));
        let program = match self.user_agent.split_whitespace().next() {
            Some(program) => format!(" with {program}"),
            None => String::new(),
        };
        let from = self.source_ips.first().map_or(String::new(), |address| format!(" from {address}"));
        let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
        format!("{who} at {at}: {what}{owned}{program}{from}{policy} (audit log)")
    }

    /// Returns the propagation policy from the options or the request's parameters.
    fn policy(&self) -> Option<&str> {
        let of_options = self.request_object.as_ref().map(|options| options.propagation_policy.as_str());
        let of_request = self.parameters().find(|(name, _)| *name == "propagationPolicy");
        of_options.filter(|policy| !policy.is_empty()).or(of_request.map(|(_, policy)| policy))
    }

    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.request_uri.split_once('?').map_or("", |(_, query)| query);
        query.split('&').filter_map(|pair| pair.split_once('='))
    }

    /// Returns the selectors of a collection's deletion.
    fn selectors(&self) -> Option<String> {
        let selectors: Vec<String> = self
            .parameters()
            .filter(|(name, selector)| {
                matches!(*name, "labelSelector" | "fieldSelector") && !selector.is_empty()
            })
            .map(|(name, selector)| format!("{name}={}", unescaped(selector)))
            .collect();
        (!selectors.is_empty()).then(|| selectors.join(" and "))
    }
}

/// Decodes a value of a query string; a result that is not text is left encoded.
fn unescaped(value: &str) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (mut bytes, mut rest) = (Vec::new(), value.as_bytes());
    while let [first, more @ ..] = rest {
        let escaped =
            (*first == b'%').then(|| Some(digit(more.first())? * 16 + digit(more.get(1))?)).flatten();
        match escaped.and_then(|code| u8::try_from(code).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::{Value, json};

    use super::*;

    fn event(minute: u32, user: &str, more: &Value) -> String {
        let mut event = json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete",
            "requestURI": "/api/v1/namespaces/shop/pods/web", "verb": "delete", "user": {"username": user},
            "sourceIPs": ["10.0.0.1"], "userAgent": "kubectl/v1.36.2 (linux/amd64)",
            "objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "apiVersion": "v1"},
            "responseStatus": {"code": 200}, "requestReceivedTimestamp": format!("2026-09-21T14:{minute:02}:00.5Z")});
        for (field, value) in more.as_object().unwrap() {
            event[field] = value.clone();
        }
        event.to_string()
    }

    fn pod() -> WantedObject {
        WantedObject {
            resource: CalledResource::Exactly(String::new(), "pods".to_owned()),
            namespace: Some("shop".to_owned()),
            name: "web".to_owned(),
            created: None,
        }
    }

    fn found(lines: &[String], wanted: WantedObject) -> (Vec<String>, u64) {
        let mut searched = read(lines.join("\n").as_bytes(), &[wanted]).unwrap();
        (searched.lines.remove(0).unwrap(), searched.malformed)
    }

    /// Later events must not hide alice's deletion, whether or not it removed the object immediately.
    #[test]
    fn the_deletion_that_began_the_end_counts() {
        let other = |resource: &str, namespace: &str, name: &str| json!({"objectRef": {"resource": resource, "namespace": namespace, "name": name}});
        let all = json!({"resource": "pods", "namespace": "shop"});
        let asked = "DELETE of pods/web in shop with kubectl/v1.36.2 from 10.0.0.1";
        let alone = ["", ""];
        let bob = |what: &str| format!("bob at 2026-09-21 14:02:00Z: {what} (audit log)");
        let later = |line: &str| format!("later, if it was created again: {}", bob(line));
        let of_all = "DELETE of all pods in shop from 10.0.0.1";
        let of_some =
            "DELETE of all pods with labelSelector=app=web in shop, if it was one of them from 10.0.0.1";
        let evicted = "eviction of pods/web in shop with kubectl/v1.36.2 from 10.0.0.1";
        let by_eve = "eve (impersonated by bob) at 2026-09-21 14:02:00Z: DELETE of pods/web in shop with kubectl/v1.36.2, \
                      propagationPolicy Foreground (audit log)";
        // Each event with the lines that it adds to alice's request, or that replace it if her request removed the object
        // immediately.
        for (event, [besides, in_place]) in [
            (event(2, "bob", &json!({})), [format!("again: {}", bob(asked)), bob(asked)]),
            (event(2, "alice", &json!({})), [String::new(), bob(asked).replace("bob", "alice")]),
            (event(2, "bob", &other("pods", "shop", "web-2")), alone.map(str::to_owned)),
            (event(2, "bob", &other("pods", "blog", "web")), alone.map(str::to_owned)),
            (event(2, "bob", &other("services", "shop", "web")), alone.map(str::to_owned)),
            (event(2, "bob", &json!({"responseStatus": {"code": 404}})), alone.map(str::to_owned)),
            (event(2, "bob", &json!({"stage": "RequestReceived"})), alone.map(str::to_owned)),
            (event(2, "bob", &json!({"verb": "patch"})), alone.map(str::to_owned)),
            (
                event(2, "bob", &json!({"requestURI": "/api/v1/namespaces/shop/pods/web?dryRun=All"})),
                alone.map(str::to_owned),
            ),
            (event(2, "bob", &json!({"requestObject": {"dryRun": ["All"]}})), alone.map(str::to_owned)),
            (
                event(
                    2,
                    "bob",
                    &json!({"impersonatedUser": {"username": "eve"}, "sourceIPs": [],
                    "requestObject": {"propagationPolicy": "Foreground"}}),
                ),
                [format!("again: {by_eve}"), by_eve.to_owned()],
            ),
            (
                event(
                    2,
                    "bob",
                    &json!({"impersonatedUser": {"username": "eve"}, "sourceIPs": [],
                    "requestURI": "/api/v1/namespaces/shop/pods/web?gracePeriodSeconds=0&propagationPolicy=Foreground"}),
                ),
                [format!("again: {by_eve}"), by_eve.to_owned()],
            ),
            (
                event(
                    2,
                    "bob",
                    &json!({"verb": "deletecollection", "objectRef": all, "userAgent": "", "requestURI": "/p"}),
                ),
                [later(of_all), later(of_all)],
            ),
            (
                event(
                    2,
                    "bob",
                    &json!({"verb": "deletecollection", "objectRef": all, "userAgent": "",
                    "requestURI": "/p?labelSelector=app%3Dweb&limit=5"}),
                ),
                [later(of_some), later(of_some)],
            ),
            (
                event(
                    2,
                    "bob",
                    &json!({"verb": "create", "objectRef": {"resource": "pods", "namespace": "shop", "name": "web",
                    "subresource": "eviction"}, "responseStatus": {"code": 201, "status": "Success"}}),
                ),
                [format!("again: {}", bob(evicted)), bob(evicted)],
            ),
        ] {
            let of_alice = format!("alice at 2026-09-21 14:01:00Z: {asked} (audit log)");
            let first = self::event(1, "alice", &json!({}));
            let expected = [of_alice.clone(), besides].into_iter().filter(|line| !line.is_empty());
            assert_eq!(found(&[first, event.clone()], pod()), (expected.collect(), 0), "{event}");
            let gone =
                self::event(1, "alice", &json!({"responseStatus": {"code": 200, "status": "Success"}}));
            let expected = match in_place {
                line if line.is_empty() => vec![of_alice],
                line if line.starts_with("later") => vec![of_alice, line],
                line => vec![line],
            };
            assert_eq!(found(&[gone, event.clone()], pod()), (expected, 0), "{event}");
        }
    }

    /// Lines from the log of a real kube-apiserver with kube-controller-manager: `meta` has level Metadata, `rr` has
    /// RequestResponse. Users and addresses were replaced.
    #[test]
    fn a_real_log_names_who_when_and_with_what() {
        let log = include_str!("audit/kube-apiserver-1.36.jsonl");
        let wanted = |(object, namespace): (&str, &str)| {
            let (resource, name) = object.split_once('/').unwrap();
            let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
            let resource = CalledResource::Exactly(group.to_owned(), plural.to_owned());
            WantedObject {
                resource,
                namespace: Some(namespace.to_owned()),
                name: name.to_owned(),
                created: None,
            }
        };
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        let emptier = "system:serviceaccount:kube-system:namespace-controller";
        let (kubectl, curl) = ("with kubectl/v1.36.2 from 10.0.0.7", "with curl/7.88.1 from 10.0.0.7");
        let manager = "with kube-controller-manager/v1.36.2 from 10.0.0.7";
        let of_namespace = |name: &str| {
            format!(
                "alice at 2026-11-25 15:17:15Z: DELETE of namespaces/{name} {kubectl}, propagationPolicy Background"
            )
        };
        let selected = |namespace: &str| {
            format!(
                "alice at 2026-11-25 15:15:0{}: DELETE of all configmaps with labelSelector=app=coll,x!=1 in {namespace}",
                if namespace == "meta" { "4Z" } else { "5Z" }
            )
        };
        let emptied = |second: u32, resource: &str, namespace: &str| {
            format!(
                "{emptier} at 2026-11-25 15:17:{second}Z: DELETE of all {resource} in {namespace} {manager}"
            )
        };
        let table = [
            (
                ("deployments.apps/bg", "meta"),
                vec![format!("alice at 2026-11-25 15:15:04Z: DELETE of deployments/bg in meta {kubectl}")],
            ),
            (
                ("deployments.apps/fg", "rr"),
                vec![format!(
                    "alice at 2026-11-25 15:15:05Z: DELETE of deployments/fg in rr {kubectl}, propagationPolicy Foreground"
                )],
            ),
            (
                ("deployments.apps/orph", "rr"),
                vec![format!(
                    "alice at 2026-11-25 15:15:05Z: DELETE of deployments/orph in rr {kubectl}, propagationPolicy Orphan"
                )],
            ),
            (
                ("deployments.apps/imp", "meta"),
                vec![format!(
                    "alice at 2026-11-25 15:15:05Z: DELETE of deployments/imp in meta {curl}, propagationPolicy Foreground"
                )],
            ),
            (
                ("replicasets.apps/bg-86bcd9bc6f", "meta"),
                vec![format!(
                    "{collector} at 2026-11-25 15:15:04Z: DELETE of replicasets/bg-86bcd9bc6f in meta {manager}"
                )],
            ),
            (
                ("pods/bg-86bcd9bc6f-jdzl2", "rr"),
                vec![format!(
                    "{collector} at 2026-11-25 15:15:05Z: DELETE of pods/bg-86bcd9bc6f-jdzl2 in rr, owned by \
                     ReplicaSet/bg-86bcd9bc6f {manager}, propagationPolicy Background"
                )],
            ),
            // The namespace was emptied later; this object was gone by then.
            (
                ("configmaps/plain", "meta"),
                vec![format!(
                    "eve (impersonated by alice) at 2026-11-25 15:15:04Z: DELETE of configmaps/plain in meta {kubectl}"
                )],
            ),
            (
                ("configmaps/coll-2", "meta"),
                vec![
                    format!("{}, if it was one of them {curl}", selected("meta")),
                    emptied(25, "configmaps", "meta"),
                    of_namespace("meta"),
                ],
            ),
            // Here the response lists the deleted objects.
            (("configmaps/coll-2", "rr"), vec![format!("{} {curl}", selected("rr"))]),
            (
                ("configmaps/script", "rr"),
                vec![format!(
                    "system:serviceaccount:rr:robot at 2026-11-25 15:15:06Z: DELETE of configmaps/script in rr {curl}, \
                     propagationPolicy Foreground"
                )],
            ),
            (
                ("pods/ev", "meta"),
                vec![format!("alice at 2026-11-25 15:15:05Z: eviction of pods/ev in meta {curl}")],
            ),
            // The first of several attempts counts.
            (("pods/j-t8t4b", "meta"), vec![emptied(20, "pods", "meta"), of_namespace("meta")]),
            (
                ("configmaps/kept", "rr"),
                vec![
                    format!("{}, propagationPolicy Background", emptied(26, "configmaps", "rr")),
                    of_namespace("rr"),
                ],
            ),
            (("namespaces/rr", ""), vec![of_namespace("rr")]),
            // Nothing shows that it existed.
            (("configmaps/never", "rr"), vec![format!("{DOUBTFUL}{}", of_namespace("rr"))]),
        ];
        let all: Vec<WantedObject> = table.iter().map(|(object, _)| wanted(*object)).collect();
        let searched = read(log.as_bytes(), &all).unwrap();
        assert_eq!(searched.malformed, 0);
        for ((object, expected), found) in table.into_iter().zip(searched.lines) {
            let expected: Vec<String> =
                expected.into_iter().map(|line| format!("{line} (audit log)")).collect();
            assert_eq!(found.unwrap(), expected, "{object:?}");
        }
    }

    #[test]
    fn what_was_deleted_before_the_object_was_created_is_another_one() {
        let lines = [event(1, "alice", &json!({}))];
        let younger = WantedObject { created: Some("2026-09-21T14:02:00Z".parse().unwrap()), ..pod() };
        assert_eq!(found(&lines, younger), (Vec::new(), 0));
    }

    #[test]
    fn the_deletion_of_the_namespace_is_the_cause() {
        let controller = "system:serviceaccount:kube-system:namespace-controller";
        let all = json!({"verb": "deletecollection", "objectRef": {"resource": "pods", "namespace": "shop"}});
        let namespace = json!({"objectRef": {"resource": "namespaces", "namespace": "shop", "name": "shop"}});
        let lines = [event(1, "alice", &namespace), event(2, controller, &all), event(3, "bob", &namespace)];
        let (found, _) = found(&lines[..2], pod());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with(controller) && found[1].starts_with("alice at"), "{found:?}");
        // A later namespace of the same name is unrelated.
        assert_eq!(self::found(&lines[1..], pod()).0.len(), 1);
    }

    #[test]
    fn lines_that_are_no_events_are_counted_and_not_kept() {
        let long = "x".repeat(LONGEST_LINE_BYTES + 10);
        let lines = [
            "{".to_owned(),
            String::new(),
            long,
            r#"{"kind":"Pod"}"#.to_owned(),
            event(1, "alice", &json!({})),
        ];
        let (found, malformed) = found(&lines, pod());
        assert_eq!((found.len(), malformed), (1, 3));
        let torn = [event(1, "alice", &json!({})), "{\"kind\":\"Ev".to_owned()];
        let (found, malformed) = self::found(&torn, pod());
        assert_eq!((found.len(), malformed), (1, 0));
    }

    #[test]
    fn what_is_no_longer_served_is_found_by_what_it_was_called() {
        let object = json!({"objectRef": {"resource": "widgets", "apiGroup": "example.com", "namespace": "shop", "name": "x"}});
        let lines = [event(1, "alice", &object)];
        let wanted = |word: &str| WantedObject {
            resource: CalledResource::Word(word.to_owned()),
            namespace: None,
            name: "x".to_owned(),
            created: None,
        };
        for (word, expected) in
            [("wg", 2), ("widget", 1), ("widgets.example.com", 1), ("gadget", 0), ("dg", 0)]
        {
            // A guess is reported as such.
            assert_eq!(found(&lines, wanted(word)).0.len(), expected, "{word}");
        }
        let other = json!({"objectRef": {"resource": "wagons", "apiGroup": "example.com", "namespace": "shop", "name": "x"}});
        let lines = [lines[0].clone(), event(2, "bob", &other)].join("\n");
        let found = read(lines.as_bytes(), &[wanted("wg"), wanted("wagon")]).unwrap().lines;
        let ambiguous = found[0].as_ref().unwrap_err().to_string();
        assert_eq!(ambiguous, "\"wg\" may be wagons.example.com or widgets.example.com: name one of them");
        assert!(found[1].as_ref().unwrap()[0].starts_with("bob at "));
    }
}
