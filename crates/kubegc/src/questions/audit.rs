//! Who deleted an object by the audit log of kube-apiserver: JSON lines, `Event` of `audit.k8s.io/v1`. The file is read once,
//! from beginning to end, with one line in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Deserialize;

use super::gone_type::{self, Ambiguous};
use crate::lines::{Line, Lines};

/// Longest line that is understood. A request body is at most 3 MiB, and a line has it and the answer.
const LONGEST_LINE_BYTES: usize = 16 << 20;
/// Resources that a word may mean of which deletions are remembered.
const RESOURCES: usize = 100;
/// Who empties namespaces: of its deletions, the deletion of the namespace is the cause.
const NAMESPACES: (&str, &str) = ("", "namespaces");

/// The resource of an object.
#[derive(Clone, Debug)]
pub(super) enum Called {
    /// Group and plural name.
    Exactly(String, String),
    /// As somebody has typed it, where the server does not serve it.
    Word(String),
}

/// The object whose deletion is looked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) resource: Called,
    /// Empty at cluster scope; `None` for any.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// Deletions before this time were of another object with the name.
    pub(super) created: Option<Timestamp>,
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
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RequestObject {
    dry_run: Vec<String>,
    propagation_policy: String,
}

/// What was found about each object.
#[derive(Debug, Default)]
pub(super) struct Searched {
    /// For each object, what people should know: its own deletion, and that of its namespace. An error if it is not clear
    /// which object is meant.
    pub(super) lines: Vec<Result<Vec<String>, Ambiguous>>,
    /// Lines that are no events of an audit log.
    pub(super) malformed: u64,
}

/// The last deletions of one object.
#[derive(Default)]
struct Last {
    /// By resource: what the type of the object is called may fit several.
    own: BTreeMap<String, (Timestamp, String)>,
    of_namespace: Option<(Timestamp, String)>,
}

/// Reads the log for these objects.
pub(super) fn search(file: &Path, wanted: &[Wanted]) -> anyhow::Result<Searched> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    read(BufReader::new(opened), wanted).with_context(|| format!("cannot read {}", file.display()))
}

/// The same for lines from anywhere.
pub(super) fn read(lines: impl BufRead, wanted: &[Wanted]) -> std::io::Result<Searched> {
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
            // The server is in the middle of its last line.
            Err(_) if matches!(line, Line::Torn(_)) => {}
            Ok(_) | Err(_) => malformed += 1,
        }
    }
    let lines = wanted.iter().zip(last).map(|(wanted, last)| last.lines(wanted)).collect();
    Ok(Searched { lines, malformed })
}

impl Last {
    /// The deletion of the namespace is the cause of what happened after it.
    fn lines(mut self, wanted: &Wanted) -> Result<Vec<String>, Ambiguous> {
        let (own, guess) = match &wanted.resource {
            Called::Exactly(..) => (self.own.pop_first().map(|(_, own)| own), None),
            Called::Word(word) => {
                match gone_type::meant(word, self.own.keys().map(|resource| (resource.as_str(), "")))? {
                    Some(meant) => (self.own.remove(&meant.resource), meant.guess),
                    None => (None, None),
                }
            }
        };
        let of_namespace = self.of_namespace.filter(|(at, _)| own.as_ref().is_none_or(|(own, _)| at <= own));
        let lines = own.into_iter().chain(of_namespace).map(|(_, line)| line);
        Ok(lines.chain(guess.map(|guess| format!("({guess})"))).collect())
    }
}

impl Event {
    /// Takes the event if it is a deletion of the object or of its namespace, and the last one so far.
    fn note(&self, wanted: &Wanted, last: &mut Last) {
        let Some(at) = self.request_received_timestamp.or(self.stage_timestamp) else { return };
        // The moment is written in seconds.
        if !self.deletes() || wanted.created.is_some_and(|created| at < created) {
            return;
        }
        let object = &self.object_ref;
        let namespaces_own = (object.api_group.as_str(), object.resource.as_str()) == NAMESPACES;
        if self.is_about(wanted) {
            let resource = gc_types::group_resource(&object.api_group, &object.resource);
            let has_room = last.own.len() < RESOURCES;
            match last.own.entry(resource) {
                Entry::Occupied(mut known) if known.get().0 <= at => {
                    known.insert((at, self.line(at)));
                }
                Entry::Vacant(vacant) if has_room => {
                    vacant.insert((at, self.line(at)));
                }
                Entry::Occupied(_) | Entry::Vacant(_) => {}
            }
        } else if namespaces_own
            && wanted.namespace.as_ref() == Some(&object.name)
            && last.of_namespace.as_ref().is_none_or(|(known, _)| *known <= at)
        {
            last.of_namespace = Some((at, self.line(at)));
        }
    }

    /// Whether it deleted something.
    fn deletes(&self) -> bool {
        let object = &self.object_ref;
        let is_deletion = match self.verb.as_str() {
            "delete" | "deletecollection" => object.subresource.is_empty(),
            "create" => object.resource == "pods" && object.subresource == "eviction",
            _ => false,
        };
        let is_dry = self.request_uri.contains("dryRun=")
            || self.request_object.as_ref().is_some_and(|options| !options.dry_run.is_empty());
        is_deletion
            && !is_dry
            && self.stage == "ResponseComplete"
            && (200..300).contains(&self.response_status.code)
    }

    fn is_about(&self, wanted: &Wanted) -> bool {
        let ObjectRef { resource, namespace, name, api_group, .. } = &self.object_ref;
        let is_called = match &wanted.resource {
            Called::Exactly(group, plural) => group == api_group && plural == resource,
            Called::Word(word) => gone_type::may_mean(word, &gc_types::group_resource(api_group, resource)),
        };
        let is_there = wanted.namespace.as_ref().is_none_or(|wanted| wanted == namespace);
        // A collection has no name.
        let is_named = if self.verb == "deletecollection" { name.is_empty() } else { *name == wanted.name };
        is_called && is_there && is_named
    }

    fn line(&self, at: Timestamp) -> String {
        let ObjectRef { resource, namespace, name, .. } = &self.object_ref;
        let who = match &self.impersonated_user {
            Some(other) => format!("{} (impersonated by {})", other.username, self.user.username),
            None => self.user.username.clone(),
        };
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        let what = match (self.verb.as_str(), self.labels()) {
            ("deletecollection", Some(labels)) => {
                format!("DELETE of all {resource} with {labels}{place}, if it was one of them")
            }
            ("deletecollection", None) => format!("DELETE of all {resource}{place}"),
            ("create", _) => format!("eviction of {resource}/{name}{place}"),
            _ => format!("DELETE of {resource}/{name}{place}"),
        };
        let policy = self.request_object.as_ref().map(|options| options.propagation_policy.as_str());
        let policy = policy.filter(|policy| !policy.is_empty());
        let policy = policy.map_or(String::new(), |policy| format!(", propagationPolicy {policy}"));
        let program = match self.user_agent.split_whitespace().next() {
            Some(program) => format!(" with {program}"),
            None => String::new(),
        };
        let from = self.source_ips.first().map_or(String::new(), |address| format!(" from {address}"));
        let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
        format!("{who} at {at}: {what}{program}{from}{policy} (audit log)")
    }

    /// What a deletion of a collection selects, as the request says it.
    fn labels(&self) -> Option<String> {
        let (_, query) = self.request_uri.split_once('?')?;
        let selectors: Vec<&str> = query
            .split('&')
            .filter(|pair| pair.starts_with("labelSelector=") || pair.starts_with("fieldSelector="))
            .collect();
        (!selectors.is_empty()).then(|| selectors.join(" and "))
    }
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

    fn pod() -> Wanted {
        Wanted {
            resource: Called::Exactly(String::new(), "pods".to_owned()),
            namespace: Some("shop".to_owned()),
            name: "web".to_owned(),
            created: None,
        }
    }

    fn found(lines: &[String], wanted: Wanted) -> (Vec<String>, u64) {
        let mut searched = read(lines.join("\n").as_bytes(), &[wanted]).unwrap();
        (searched.lines.remove(0).unwrap(), searched.malformed)
    }

    #[test]
    fn the_last_deletion_of_the_object_counts() {
        let other = |resource: &str, namespace: &str, name: &str| json!({"objectRef": {"resource": resource, "namespace": namespace, "name": name}});
        let all = json!({"resource": "pods", "namespace": "shop"});
        let asked = "DELETE of pods/web in shop with kubectl/v1.36.2 from 10.0.0.1";
        for (event, expected) in [
            (event(2, "bob", &json!({})), format!("bob at 2026-09-21 14:02:00Z: {asked} (audit log)")),
            (event(2, "bob", &other("pods", "shop", "web-2")), String::new()),
            (event(2, "bob", &other("pods", "blog", "web")), String::new()),
            (event(2, "bob", &other("services", "shop", "web")), String::new()),
            (event(2, "bob", &json!({"responseStatus": {"code": 404}})), String::new()),
            (event(2, "bob", &json!({"stage": "RequestReceived"})), String::new()),
            (event(2, "bob", &json!({"verb": "patch"})), String::new()),
            (event(2, "bob", &json!({"requestURI": "/api/v1/namespaces/shop/pods/web?dryRun=All"})), String::new()),
            (event(2, "bob", &json!({"requestObject": {"dryRun": ["All"]}})), String::new()),
            (event(0, "bob", &json!({})), String::new()),
            (
                event(2, "bob", &json!({"impersonatedUser": {"username": "eve"}, "sourceIPs": [],
                    "requestObject": {"propagationPolicy": "Foreground"}})),
                "eve (impersonated by bob) at 2026-09-21 14:02:00Z: DELETE of pods/web in shop with kubectl/v1.36.2, \
                 propagationPolicy Foreground (audit log)".to_owned(),
            ),
            (
                event(2, "bob", &json!({"verb": "deletecollection", "objectRef": all, "userAgent": "", "requestURI": "/p"})),
                "bob at 2026-09-21 14:02:00Z: DELETE of all pods in shop from 10.0.0.1 (audit log)".to_owned(),
            ),
            (
                event(2, "bob", &json!({"verb": "deletecollection", "objectRef": all, "userAgent": "",
                    "requestURI": "/p?labelSelector=app%3Dweb&limit=5"})),
                "bob at 2026-09-21 14:02:00Z: DELETE of all pods with labelSelector=app%3Dweb in shop, if it was one of them \
                 from 10.0.0.1 (audit log)".to_owned(),
            ),
            (
                event(2, "bob", &json!({"verb": "create", "objectRef": {"resource": "pods", "namespace": "shop", "name": "web",
                    "subresource": "eviction"}})),
                "bob at 2026-09-21 14:02:00Z: eviction of pods/web in shop with kubectl/v1.36.2 from 10.0.0.1 (audit log)".to_owned(),
            ),
        ] {
            let first = self::event(1, "alice", &json!({}));
            let expected =
                if expected.is_empty() { format!("alice at 2026-09-21 14:01:00Z: {asked} (audit log)") } else { expected };
            assert_eq!(found(&[first, event.clone()], pod()), (vec![expected], 0), "{event}");
        }
    }

    #[test]
    fn what_was_deleted_before_the_object_was_created_is_another_one() {
        let lines = [event(1, "alice", &json!({}))];
        let younger = Wanted { created: Some("2026-09-21T14:02:00Z".parse().unwrap()), ..pod() };
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
        // That of a later namespace with the name is not.
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
        let wanted = |word: &str| Wanted {
            resource: Called::Word(word.to_owned()),
            namespace: None,
            name: "x".to_owned(),
            created: None,
        };
        for (word, expected) in
            [("wg", 2), ("widget", 1), ("widgets.example.com", 1), ("gadget", 0), ("dg", 0)]
        {
            // A guess is said.
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
