//! A proxy between the collectors and their server lies: a list is replaced by something that is not a list, by another one, or by
//! an incomplete one; a live read by an answer that does not come from a store; a watch by events that no store made. Whatever one
//! answer says, nothing that a living owner owns is lost.
//!
//! Each liar lies about owners of its own kind, so all of them can lie to one process at the same time.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::Kubegc;
use crate::support_cluster::{Admin, Run, privileged_for_all, uid, until};
use crate::support_proxy::{Fault, Proxy};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A kind of owners.
#[derive(Clone, Copy)]
struct Subject {
    /// Group and version, as in a path.
    root: &'static str,
    plural: &'static str,
    kind: &'static str,
    /// Content of an object other than its metadata.
    content: &'static str,
}

const fn subject(
    root: &'static str,
    plural: &'static str,
    kind: &'static str,
    content: &'static str,
) -> Subject {
    Subject { root, plural, kind, content }
}

const SUBJECTS: [Subject; 17] = [
    subject("api/v1", "configmaps", "ConfigMap", "{}"),
    subject("api/v1", "serviceaccounts", "ServiceAccount", "{}"),
    subject("api/v1", "endpoints", "Endpoints", "{}"),
    subject("api/v1", "limitranges", "LimitRange", r#"{"spec":{"limits":[]}}"#),
    subject(
        "api/v1",
        "podtemplates",
        "PodTemplate",
        r#"{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}"#,
    ),
    subject("api/v1", "services", "Service", r#"{"spec":{"ports":[{"port":80}]}}"#),
    subject(
        "api/v1",
        "replicationcontrollers",
        "ReplicationController",
        r#"{"spec":{"replicas":0,"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
    ),
    subject("apis/coordination.k8s.io/v1", "leases", "Lease", "{}"),
    subject("apis/rbac.authorization.k8s.io/v1", "roles", "Role", "{}"),
    subject(
        "apis/networking.k8s.io/v1",
        "networkpolicies",
        "NetworkPolicy",
        r#"{"spec":{"podSelector":{}}}"#,
    ),
    subject("apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", r#"{"spec":{"selector":{}}}"#),
    subject("apis/apps/v1", "controllerrevisions", "ControllerRevision", r#"{"revision":1,"data":{}}"#),
    subject(
        "apis/apps/v1",
        "replicasets",
        "ReplicaSet",
        r#"{"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
    ),
    subject(
        "apis/apps/v1",
        "deployments",
        "Deployment",
        r#"{"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
    ),
    subject(
        "apis/discovery.k8s.io/v1",
        "endpointslices",
        "EndpointSlice",
        r#"{"addressType":"IPv4","endpoints":[]}"#,
    ),
    subject(
        "apis/autoscaling/v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        r#"{"spec":{"maxReplicas":1,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}"#,
    ),
    subject(
        "apis/batch/v1",
        "cronjobs",
        "CronJob",
        r#"{"spec":{"suspend":true,"schedule":"0 0 1 1 *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}"#,
    ),
];

impl Subject {
    fn api_version(self) -> &'static str {
        self.root.trim_start_matches("apis/").trim_start_matches("api/")
    }

    fn collection(self) -> String {
        format!("/{}/namespaces/default/{}", self.root, self.plural)
    }

    fn object(self, name: &str) -> Value {
        let mut object: Value = serde_json::from_str(self.content).unwrap();
        object["metadata"] = json!({"name": name});
        object
    }

    /// Reports whether a request reads all objects of the kind with this parameter.
    fn is_asked(self, method: &Method, path: &str, parameter: &str) -> bool {
        let all = path.strip_prefix(&format!("/{}/{}?", self.root, self.plural));
        *method == Method::GET && all.is_some_and(|query| query.contains(parameter))
    }
}

/// A lie in the lists of one resource, or in live reads of its objects.
struct Liar {
    name: &'static str,
    list: Fault,
    read: Option<Fault>,
    /// True if only the first live read gets the lie.
    once: bool,
}

/// Returns a liar that answers the list with this, which is not a list.
fn none(name: &'static str, content_type: &'static str, body: impl Into<Bytes>) -> Liar {
    let list = Fault::Body { code: 200, content_type, body: body.into() };
    Liar { name, list, read: None, once: false }
}

fn same(path: &str) -> String {
    path.to_owned()
}

/// Returns a liar that changes the server's list, so only live reads show the truth.
fn lacking(name: &'static str, change: fn(&mut Value)) -> Liar {
    let honest = Fault::Delay(std::time::Duration::ZERO);
    Liar { name, list: Fault::Other { path: same, change }, read: Some(honest), once: false }
}

/// Returns a liar that omits the owner from the list, and answers a live read of it with this.
fn not_found(name: &'static str, content_type: &'static str, body: impl Into<Bytes>) -> Liar {
    read(name, Fault::Body { code: 404, content_type, body: body.into() })
}

/// Returns the same liar with a Status as its answer.
fn status(name: &'static str, reason: &str, details: &Value) -> Liar {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "reason": reason, "code": 404, "details": details});
    not_found(name, JSON, status.to_string())
}

fn read(name: &'static str, fault: Fault) -> Liar {
    Liar {
        name,
        list: Fault::Other { path: same, change: without_the_owner },
        read: Some(fault),
        once: false,
    }
}

/// Returns a liar whose list is empty and who lies only to the first live read: if every object of a kind has vanished at once, one
/// answer proves nothing.
fn once(liar: Liar) -> Liar {
    Liar { list: Fault::Other { path: same, change: empty }, once: true, ..liar }
}

/// Removes the owner from a list. The sibling stays, so the kind has not vanished: one live read decides, and the breaker withholds
/// nothing.
fn without_the_owner(list: &mut Value) {
    list["items"].as_array_mut().unwrap().retain(|item| item["metadata"]["name"] != "owner");
}

fn empty(list: &mut Value) {
    list["items"] = json!([]);
}

fn as_it_is(_: &mut Value) {}

/// Owned objects that must stay, with all running processes.
struct OwnedObjects {
    _server: Kubegc,
    admin: Admin,
    proxy: Proxy,
    run: Run,
    living: Vec<(String, String)>,
}

impl OwnedObjects {
    /// Creates owners of as many kinds as there are liars, each with a namesake in another resource, a sibling, and a dependent.
    fn begin(kinds: usize) -> Self {
        let server = Kubegc::start("apiserver");
        let admin = Admin::of(&server);
        let proxy = Proxy::start(&privileged_for_all(&server));
        let namesake = json!({"metadata": {"name": "owner"}});
        let mut living = vec![(format!("{SECRETS}/owner"), uid(&admin.create(SECRETS, &namesake)))];
        for subject in &SUBJECTS[..kinds] {
            let collection = subject.collection();
            let mut owner = String::new();
            for name in ["other", "owner"] {
                owner = uid(&admin.create(&collection, &subject.object(name)));
                living.push((format!("{collection}/{name}"), owner.clone()));
            }
            let reference = json!({"apiVersion": subject.api_version(), "kind": subject.kind, "name": "owner", "uid": owner});
            let secret = json!({"metadata": {"name": subject.plural, "ownerReferences": [reference]}});
            living.push((format!("{SECRETS}/{}", subject.plural), uid(&admin.create(SECRETS, &secret))));
        }
        let run = Run::with(&proxy.kubeconfig(), &["--controllers=*"]);
        until("the graph is complete", || run.is_ready() && run.is_synced() && run.leads());
        Self { _server: server, admin, proxy, run, living }
    }

    /// Lets every liar lie about a kind until it was asked; then checks that all living objects exist.
    fn suffer(&self, liars: Vec<Liar>) {
        let mut rules = Vec::new();
        for (subject, liar) in SUBJECTS.into_iter().zip(liars) {
            self.proxy.inject(move |method, path| subject.is_asked(method, path, "limit="), liar.list);
            // After one refusal, streamed lists are not requested again.
            let refused = Fault::Answer { code: 422, retry_after: None };
            self.proxy
                .inject(move |method, path| subject.is_asked(method, path, "sendInitialEvents"), refused);
            let expired = Fault::Answer { code: 410, retry_after: None };
            self.proxy
                .inject(move |method, path| subject.is_asked(method, path, "resourceVersion="), expired);
            let has_read = liar.read.is_some();
            if let Some(fault) = liar.read {
                let (owner, asked) = (format!("{}/owner", subject.collection()), AtomicBool::new(false));
                let is_read = move |method: &Method, path: &str| {
                    *method == Method::GET
                        && *path == owner
                        && !(liar.once && asked.swap(true, Ordering::Relaxed))
                };
                self.proxy.inject(is_read, fault);
            }
            rules.push((
                liar.name,
                if has_read { vec![0, 3] } else { vec![0] },
                if has_read { 4 } else { 3 },
            ));
        }
        self.proxy.cut();
        let mut first = 0;
        for (name, needed, rules) in rules {
            until(name, || needed.iter().all(|rule| self.proxy.hits()[first + rule] > 0));
            first += rules;
        }
        self.proxy.heal();
        until("everything is decided", || self.run.is_synced() && self.run.is_idle());
        self.lives();
    }

    fn lives(&self) {
        let is_lost = |path: &str, uid: &str| {
            let (code, object) = self.admin.get(path);
            (code, object["metadata"]["uid"].as_str()) != (200, Some(uid))
        };
        let lost: Vec<&String> =
            self.living.iter().filter(|(path, uid)| is_lost(path, uid)).map(|(path, _)| path).collect();
        assert!(lost.is_empty(), "{lost:#?}\n{}", self.run.log());
    }

    /// Checks that the collector still deletes, and was not merely idle.
    fn ends(&self) {
        let owner = format!("{}/owner", SUBJECTS[0].collection());
        self.admin.delete_at(&owner, "Background");
        let dependent = format!("{SECRETS}/{}", SUBJECTS[0].plural);
        until("the dependent is gone", || self.admin.get(&dependent).0 == 404);
        assert_eq!(self.admin.get(&format!("{SECRETS}/owner")).0, 200);
    }
}

#[test]
fn what_is_not_the_list_deletes_nothing() {
    let version = json!({"resourceVersion": "9"});
    let of_kind = |index: usize| format!("{}List", SUBJECTS[index].kind);
    let liars = vec![
        none("an object without members", JSON, "{}"),
        none("null", JSON, "null"),
        none("a page of a gateway", "text/html", "<html><body>maintenance</body></html>"),
        none(
            "another kind",
            JSON,
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": version, "items": []}).to_string(),
        ),
        none(
            "an empty list of another kind",
            JSON,
            json!({"kind": "SecretList", "apiVersion": "v1", "metadata": version, "items": []}).to_string(),
        ),
        none(
            "no version",
            JSON,
            json!({"kind": of_kind(5), "apiVersion": "v1", "metadata": {}, "items": []}).to_string(),
        ),
        none(
            "truncated where it still parses",
            JSON,
            json!({"kind": of_kind(6), "apiVersion": "v1", "metadata": version}).to_string(),
        ),
        none("an empty body", PROTOBUF, ""),
        none(
            "an empty message",
            PROTOBUF,
            &b"k8s\0\n+\n\x0emeta.k8s.io/v1\x12\x19PartialObjectMetadataList"[..],
        ),
        none("something compressed", JSON, &b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"[..]),
    ];
    let owned = OwnedObjects::begin(liars.len());
    owned.suffer(liars);
    owned.ends();
}

#[test]
fn a_list_that_lacks_what_is_there_deletes_nothing() {
    let honest = || Some(Fault::Delay(std::time::Duration::ZERO));
    let liars = vec![
        lacking("no items", empty),
        lacking("no items, as of long ago", |list| {
            empty(list);
            list["metadata"]["resourceVersion"] = "1".into();
        }),
        lacking("no items, as of later", |list| {
            empty(list);
            let version: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            list["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        }),
        lacking("other UIDs", |list| {
            for item in list["items"].as_array_mut().unwrap() {
                let uid =
                    item["metadata"]["uid"].as_str().unwrap().replace(|c: char| c.is_ascii_digit(), "a");
                item["metadata"]["uid"] = uid.into();
            }
        }),
        lacking("pages that end early", without_the_owner),
        Liar {
            name: "a page that comes again and again",
            list: Fault::Other {
                path: |path| path.split("&continue=").next().unwrap_or_default().to_owned(),
                change: |list| list["metadata"]["continue"] = "again".into(),
            },
            read: None,
            once: false,
        },
        Liar {
            name: "the list of another resource",
            list: Fault::Other { path: |_| "/api/v1/secrets?limit=1000".to_owned(), change: as_it_is },
            read: honest(),
            once: false,
        },
    ];
    let owned = OwnedObjects::begin(liars.len());
    owned.suffer(liars);
    owned.ends();
}

#[test]
fn a_live_read_is_believed_only_from_a_store() {
    let details = |index: usize| json!({"name": "owner", "kind": SUBJECTS[index].plural, "group": ""});
    let changed = |index: usize, member: &str, value: &str| {
        let mut details = details(index);
        details[member] = value.into();
        details
    };
    let body = |content_type, body: &'static [u8]| Fault::Body { code: 200, content_type, body: body.into() };
    let liars = vec![
        not_found("a 404 of a proxy", "text/plain", "404 page not found"),
        not_found("a page", "text/html", "<html></html>"),
        not_found("nothing", JSON, ""),
        not_found("no Status", JSON, "{}"),
        status("a Status without details", "NotFound", &Value::Null),
        status("a Status about another object", "NotFound", &changed(5, "name", "other")),
        status("a Status about another resource", "NotFound", &changed(6, "kind", "secrets")),
        status("a Status about another group", "NotFound", &changed(7, "group", "example.com")),
        status("a Status with another reason", "Gone", &changed(8, "group", "rbac.authorization.k8s.io")),
        read("an empty object", body(JSON, b"{}")),
        read(
            "another object",
            Fault::Other { path: |path| path.replace("/owner", "/other"), change: as_it_is },
        ),
        read(
            "an object of another resource with the same name",
            Fault::Other { path: |_| format!("{SECRETS}/owner"), change: as_it_is },
        ),
        once(status("one answer of a store", "NotFound", &changed(12, "group", "apps"))),
        read("410", Fault::Answer { code: 410, retry_after: None }),
        read(
            "an object that breaks off where it still parses",
            body(JSON, br#"{"metadata":{"name":"owner"}}"#),
        ),
        read(
            "an empty message",
            body(PROTOBUF, b"k8s\0\n'\n\x0emeta.k8s.io/v1\x12\x15PartialObjectMetadata"),
        ),
        once(read(
            "another UID, once",
            Fault::Other {
                path: same,
                change: |object| object["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into(),
            },
        )),
    ];
    let owned = OwnedObjects::begin(liars.len());
    owned.suffer(liars);
    owned.ends();
}

/// Returns a line of a watch with the metadata of an object in the subjects' namespace.
fn line(event: &str, name: &str, uid: &str, version: &str) -> String {
    let metadata = json!({"name": name, "namespace": "default", "uid": uid, "resourceVersion": version});
    let object =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
    json!({"type": event, "object": object}).to_string() + "\n"
}

/// Returns a watch that begins with this, and continues as the server's.
fn watch(name: &'static str, before: impl Into<Bytes>) -> (&'static str, Fault) {
    (name, Fault::Watch { path: same, before: before.into(), ends: false })
}

/// Returns a liar that answers the watch with this, which is not a watch.
fn no_watch(name: &'static str, content_type: &'static str, body: impl Into<Bytes>) -> (&'static str, Fault) {
    (name, Fault::Body { code: 200, content_type, body: body.into() })
}

/// Owner of each kind, a UID that no object has, and a version later than all of theirs.
struct Owners {
    uids: Vec<String>,
    versions: Vec<String>,
    gone: String,
    later: String,
}

/// Position of the liar whose watch never shows its own resource.
const CROSSED: usize = 13;

fn watch_of_secrets(_: &str) -> String {
    "/api/v1/secrets?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
        .to_owned()
}

fn lies_of_watches(owners: &Owners) -> Vec<(&'static str, Fault)> {
    let Owners { uids, versions, gone, later } = owners;
    let deleted = |index: usize, version: &str| line("DELETED", "owner", &uids[index], version);
    let status = json!({"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404,
        "details": {"name": "owner", "uid": uids[12]}});
    vec![
        watch("DELETED at the version of the object", deleted(0, &versions[0])),
        watch("DELETED at an earlier version", deleted(1, "1")),
        watch("DELETED at no version", deleted(2, "")),
        watch("DELETED at a version that is none", deleted(3, "later")),
        watch("DELETED of another resource", deleted(5, later)),
        watch("DELETED under another name", line("DELETED", "other", &uids[5], later)),
        watch("DELETED without a UID", line("DELETED", "owner", "", later)),
        watch("DELETED of another UID", line("DELETED", "owner", gone, later)),
        watch("ADDED for what was deleted long ago", line("ADDED", "owner", gone, &versions[8])),
        watch("a bookmark of the future", line("BOOKMARK", "", "", "999999999")),
        watch(
            "a frame that breaks off",
            "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"owner\"\n",
        ),
        (
            "a removal that breaks off with the stream",
            Fault::Watch { path: same, before: deleted(11, later)[..40].to_owned().into(), ends: true },
        ),
        watch("DELETED with a Status", json!({"type": "DELETED", "object": status}).to_string() + "\n"),
        (
            "the watch of another resource",
            Fault::Watch { path: watch_of_secrets, before: Bytes::new(), ends: false },
        ),
        no_watch("a page of a gateway", "text/html", "<html><body>maintenance</body></html>\n"),
        no_watch("something compressed", JSON, &b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"[..]),
        no_watch("an object without members", JSON, "{}\n"),
    ]
}

/// Every watch lies about the owners of its kind when it begins again. In each collection, the deletion of a later stray object
/// shows that the watch was read beyond the lie.
#[test]
fn a_watch_that_says_what_no_store_did_deletes_nothing() {
    let owned = OwnedObjects::begin(SUBJECTS.len());
    let metadata = |subject: Subject| owned.admin.get(&format!("{}/owner", subject.collection())).1;
    let metadata: Vec<Value> =
        SUBJECTS.into_iter().map(|subject| metadata(subject)["metadata"].take()).collect();
    let text = |member: &str| -> Vec<String> {
        metadata.iter().map(|metadata| metadata[member].as_str().unwrap().to_owned()).collect()
    };
    let versions = text("resourceVersion");
    let newest: u64 = versions.iter().map(|version| version.parse().unwrap()).max().unwrap();
    let gone = "00000000-0000-4000-8000-000000000000".to_owned();
    let lies =
        lies_of_watches(&Owners { uids: text("uid"), versions, gone, later: (newest + 1_000).to_string() });
    assert_eq!((lies.len(), lies[CROSSED].0), (SUBJECTS.len(), "the watch of another resource"));
    let names: Vec<&str> = lies.iter().map(|(name, _)| *name).collect();
    for (subject, (_, fault)) in SUBJECTS.into_iter().zip(lies) {
        owned.proxy.inject(move |method, path| subject.is_asked(method, path, "resourceVersion="), fault);
    }
    owned.proxy.cut();
    for (position, name) in names.into_iter().enumerate() {
        until(name, || owned.proxy.hits()[position] > 0);
    }
    owned.proxy.heal();
    let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent",
        "uid": "00000000-0000-4000-8000-00000000000f"});
    for subject in SUBJECTS {
        let mut marker = subject.object("marker");
        marker["metadata"]["ownerReferences"] = json!([absent]);
        owned.admin.create(&subject.collection(), &marker);
    }
    let is_gone = |subject: Subject| owned.admin.get(&format!("{}/marker", subject.collection())).0 == 404;
    let own = SUBJECTS.into_iter().enumerate().filter(|(position, _)| *position != CROSSED);
    for (_, subject) in own {
        until(subject.plural, || is_gone(subject));
    }
    until("everything is decided", || owned.run.is_idle());
    owned.lives();
    // The watch of another resource is still open, so it is cut.
    owned.proxy.cut();
    until("the crossed watch is over", || is_gone(SUBJECTS[CROSSED]));
    until("everything is decided", || owned.run.is_synced() && owned.run.is_idle());
    owned.lives();
    owned.ends();
}
