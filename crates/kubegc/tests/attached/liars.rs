//! A proxy between the collectors and their server lies: a list is answered with something that is none, that is another one, or
//! that lacks what is there; a live read with a 404 that does not come from a store. Whatever one answer says, nothing is lost that a
//! living owner owns.

use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::{Value, json};

use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, Run, privileged_for_all, uid, until};
use crate::support_proxy::{Fault, Proxy};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const OWNER: &str = "/api/v1/namespaces/default/configmaps/owner";
/// Number of times that an answer is refused before the server answers again: each costs a backoff.
const REFUSED_ANSWERS: usize = 1;
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn is_list(method: &Method, path: &str) -> bool {
    *method == Method::GET && path.starts_with("/api/v1/configmaps?limit=1000")
}

fn is_streamed_list(_: &Method, path: &str) -> bool {
    path.starts_with("/api/v1/configmaps?watch=true") && path.contains("sendInitialEvents")
}

fn is_watch(_: &Method, path: &str) -> bool {
    path.starts_with("/api/v1/configmaps?watch=true") && path.contains("resourceVersion=")
}

fn is_read(method: &Method, path: &str) -> bool {
    *method == Method::GET && path == OWNER
}

/// The first of two reads.
fn is_first_read(method: &Method, path: &str) -> bool {
    static SEEN: AtomicBool = AtomicBool::new(false);
    is_read(method, path) && !SEEN.swap(true, Ordering::Relaxed)
}

/// A lie in the lists of one resource, or in live reads of its objects.
struct Liar {
    name: &'static str,
    list: Fault,
    read: Option<(fn(&Method, &str) -> bool, Fault)>,
}

/// The list is answered with this.
fn body(name: &'static str, content_type: &'static str, body: &'static [u8]) -> Liar {
    Liar { name, list: Fault::Body { code: 200, content_type, body }, read: None }
}

fn same(path: &str) -> String {
    path.to_owned()
}

/// The list is answered with the server's, changed, so that only live reads show what is there.
fn changed(name: &'static str, change: fn(&mut Value)) -> Liar {
    Liar {
        name,
        list: Fault::Other { path: same, change },
        read: Some((is_read, Fault::Delay(std::time::Duration::ZERO))),
    }
}

/// The list is empty, and a live read is answered so.
fn not_found(name: &'static str, content_type: &'static str, body: &'static [u8]) -> Liar {
    read(name, is_read, Fault::Body { code: 404, content_type, body })
}

fn read(name: &'static str, matches: fn(&Method, &str) -> bool, fault: Fault) -> Liar {
    Liar { name, list: Fault::Other { path: same, change: empty }, read: Some((matches, fault)) }
}

fn empty(list: &mut Value) {
    list["items"] = json!([]);
}

fn as_it_is(_: &mut Value) {}

/// Owned objects that must stay, with everything that runs.
struct Owned {
    _server: Kubegc,
    admin: Admin,
    proxy: Proxy,
    run: Run,
    living: Vec<(String, String)>,
}

impl Owned {
    fn begin() -> Self {
        let server = Kubegc::start("apiserver");
        let admin = Admin::of(&server);
        let proxy = Proxy::start(&privileged_for_all(&server));
        let owner = admin.map("owner", None);
        let other = admin.map("other", None);
        let mut living = vec![(OWNER.to_owned(), owner.clone()), (format!("{MAPS}/other"), other)];
        let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}]);
        for name in ["one", "two", "three", "owner"] {
            let references = if name == "owner" { Value::Null } else { reference.clone() };
            let secret = json!({"metadata": {"name": name, "ownerReferences": references}});
            living.push((format!("{SECRETS}/{name}"), uid(&admin.create(SECRETS, &secret))));
        }
        let run = Run::with(&proxy.kubeconfig(), &["--controllers=*"]);
        until("the graph is complete", || run.is_ready() && run.is_synced() && run.leads());
        Self { _server: server, admin, proxy, run, living }
    }

    fn suffers(&self, liar: Liar) {
        let name = liar.name;
        let needed = if liar.read.is_none() { REFUSED_ANSWERS } else { 1 };
        self.proxy.inject(is_list, liar.list);
        // Refused once, streamed lists are not asked for again.
        self.proxy.inject(is_streamed_list, Fault::Answer { code: 422, retry_after: None });
        self.proxy.inject(is_watch, Fault::Answer { code: 410, retry_after: None });
        let has_read = liar.read.is_some();
        if let Some((matches, fault)) = liar.read {
            self.proxy.inject(matches, fault);
        }
        self.proxy.cut();
        until(name, || self.proxy.hits()[0] >= needed);
        until(name, || !has_read || self.proxy.hits().last().is_some_and(|reads| *reads > 0));
        self.proxy.heal();
        until(name, || self.run.is_synced() && self.run.is_idle());
        for (path, uid) in &self.living {
            let (code, object) = self.admin.get(path);
            let found = (code, object["metadata"]["uid"].as_str());
            assert_eq!(found, (200, Some(uid.as_str())), "{name}: {path}\n{}", self.run.log());
        }
    }

    /// Checks that the collector still deletes: it was not merely idle.
    fn ends(&self) {
        self.admin.delete_at(OWNER, "Background");
        until("the dependents are gone", || {
            ["one", "two", "three"].iter().all(|name| self.admin.get(&format!("{SECRETS}/{name}")).0 == 404)
        });
        assert_eq!(self.admin.get(&format!("{SECRETS}/owner")).0, 200);
    }
}

#[test]
fn what_is_not_the_list_deletes_nothing() {
    let owned = Owned::begin();
    for liar in [
        body("an object without members", JSON, b"{}"),
        body("null", JSON, b"null"),
        body("a page of a gateway", "text/html", b"<html><body>maintenance</body></html>"),
        body(
            "another kind",
            JSON,
            br#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}"#,
        ),
        body(
            "an empty list of another kind",
            JSON,
            br#"{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}"#,
        ),
        body("no version", JSON, br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}"#),
        body(
            "truncated where it still parses",
            JSON,
            br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"}}"#,
        ),
        body("an empty body", PROTOBUF, b""),
        body("an empty message", PROTOBUF, b"k8s\0\n+\n\x0emeta.k8s.io/v1\x12\x19PartialObjectMetadataList"),
        body("something compressed", JSON, b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"),
    ] {
        owned.suffers(liar);
    }
    owned.ends();
}

#[test]
fn a_list_that_lacks_what_is_there_deletes_nothing() {
    let owned = Owned::begin();
    for liar in [
        changed("no items", empty),
        changed("no items, as of long ago", |list| {
            empty(list);
            list["metadata"]["resourceVersion"] = "1".into();
        }),
        changed("no items, as of later", |list| {
            empty(list);
            let version: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            list["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        }),
        changed("other UIDs", |list| {
            for item in list["items"].as_array_mut().unwrap() {
                let uid =
                    item["metadata"]["uid"].as_str().unwrap().replace(|c: char| c.is_ascii_digit(), "a");
                item["metadata"]["uid"] = uid.into();
            }
        }),
        changed("pages that end early", |list| {
            let items = list["items"].as_array_mut().unwrap();
            items.retain(|item| item["metadata"]["name"] != "owner");
        }),
        Liar {
            name: "a page that comes again and again",
            list: Fault::Other {
                path: |path| path.split("&continue=").next().unwrap_or_default().to_owned(),
                change: |list| list["metadata"]["continue"] = "again".into(),
            },
            read: None,
        },
        Liar {
            name: "the list of another resource",
            list: Fault::Other { path: |path| path.replace("/configmaps", "/secrets"), change: as_it_is },
            read: Some((is_read, Fault::Delay(std::time::Duration::ZERO))),
        },
    ] {
        owned.suffers(liar);
    }
    owned.ends();
}

#[test]
fn a_live_read_is_believed_only_from_a_store() {
    let owned = Owned::begin();
    for liar in [
        not_found("a 404 of a proxy", "text/plain", b"404 page not found"),
        not_found("a page", "text/html", b"<html></html>"),
        not_found("nothing", JSON, b""),
        not_found("no Status", JSON, b"{}"),
        not_found("a Status without details", JSON, br#"{"kind":"Status","reason":"NotFound","code":404}"#),
        not_found(
            "a Status about another object",
            JSON,
            br#"{"kind":"Status","reason":"NotFound","code":404,"details":{"name":"other","kind":"configmaps"}}"#,
        ),
        not_found(
            "a Status about another resource",
            JSON,
            br#"{"kind":"Status","reason":"NotFound","code":404,"details":{"name":"owner","kind":"secrets"}}"#,
        ),
        not_found(
            "a Status about another group",
            JSON,
            br#"{"kind":"Status","reason":"NotFound","code":404,"details":{"name":"owner","kind":"configmaps","group":"x"}}"#,
        ),
        not_found(
            "a Status with another reason",
            JSON,
            br#"{"kind":"Status","reason":"Gone","code":404,"details":{"name":"owner","kind":"configmaps"}}"#,
        ),
        read("an empty object", is_read, Fault::Body { code: 200, content_type: JSON, body: b"{}" }),
        read(
            "another object",
            is_read,
            Fault::Other { path: |_| format!("{MAPS}/other"), change: as_it_is },
        ),
        read(
            "an object of another resource with the same name",
            is_read,
            Fault::Other { path: |_| format!("{SECRETS}/owner"), change: as_it_is },
        ),
        // Every object of the kind has vanished in the list: one such answer alone proves nothing.
        read(
            "one answer of a store",
            is_first_read,
            Fault::Body {
                code: 404,
                content_type: JSON,
                body: br#"{"kind":"Status","reason":"NotFound","code":404,"details":{"name":"owner","kind":"configmaps"}}"#,
            },
        ),
    ] {
        owned.suffers(liar);
    }
    owned.ends();
}
