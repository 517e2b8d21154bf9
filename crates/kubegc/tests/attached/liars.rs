//! A proxy between the collectors and their server lies: a list is answered with something that is none, that is another one, or
//! that lacks what is there. Whatever one answer says, nothing is lost that a living owner owns.

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
    // Each costs a backoff of the list. The unit tests of the decoders have the others.
    for liar in [
        body("an object without members", JSON, b"{}"),
        body(
            "an empty list of another kind",
            JSON,
            br#"{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}"#,
        ),
        body("an empty body", PROTOBUF, b""),
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
