//! Policies and webhooks that refuse requests, as shown by the commands `plan`, `delete`, `stuck`, `why` and `doctor`.

use http::Method;
use serde_json::{Value, json};

use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, kubegc, until};
use crate::webhook::{SentRequest, Webhook};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const NAMESPACES: &str = "/api/v1/namespaces";

/// Creates a policy about deletions, or changes, of these resources of the core group, and its binding.
pub(super) fn keep(admin: &Admin, name: &str, (operation, resource): (&str, &str), more: &Value) {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}]);
    let mut spec = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}});
    let mut binding = json!({"policyName": name, "validationActions": ["Deny"]});
    for (field, value) in more.as_object().unwrap() {
        let place = if field == "paramRef" { &mut binding } else { &mut spec };
        place[field] = value.clone();
    }
    let named = |spec: &Value| json!({"metadata": {"name": name}, "spec": spec});
    admin.create(&format!("{ADMISSION}/validatingadmissionpolicies"), &named(&spec));
    admin.create(&format!("{ADMISSION}/validatingadmissionpolicybindings"), &named(&binding));
}

/// Returns one validation of a policy.
fn unless(expression: &str, message: &str) -> Value {
    json!({"validations": [{"expression": expression, "message": message}]})
}

/// Waits until the server refuses to delete the object at this path.
fn until_refused(admin: &Admin, path: &str) {
    until("the refusal of a deletion", || {
        admin.send(Method::DELETE, &format!("{path}?dryRun=All"), &Value::Null).0 >= 400
    });
}

/// Runs a command as the administrator; returns its exit code and its whole output.
fn asked(server: &Kubegc, arguments: &[&str]) -> (Option<i32>, String) {
    let (code, out, error) = kubegc(arguments, &server.kubeconfig);
    (code, out + &error)
}

/// Returns the rows of `kubegc stuck` about objects of this name: code and message.
pub(super) fn stuck(server: &Kubegc, name: &str) -> Vec<(String, String)> {
    let (_, out, error) = kubegc(&["stuck", "-o", "json"], &server.kubeconfig);
    let answer: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    let rows = answer["items"].as_array().unwrap().iter();
    let is_about =
        |row: &&Value| row["objects"].as_array().unwrap().iter().any(|object| object["name"] == name);
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    rows.filter(is_about).map(|row| (text(row, "code"), text(row, "message"))).collect()
}

/// Returns the only cause of an object of this name, once its collectors have had their time.
fn cause(server: &Kubegc, name: &str) -> (String, String) {
    assert_eq!(Admin::of(server).send(Method::POST, "/kubegc/v1/clock?advance=15s", &Value::Null).0, 200);
    let mut rows = Vec::new();
    until("the cause", || {
        rows = stuck(server, name);
        rows.iter().any(|(code, _)| !code.contains("NotDeleted") && code != "CollectorAbsent")
    });
    assert_eq!(rows.len(), 1, "one object has one root cause: {rows:?}");
    rows.remove(0)
}

/// Creates `owner`, and `leaf`, which blocks its deletion, with this prefix in their names.
fn family(admin: &Admin, prefix: &str) {
    let owner = format!("{prefix}-owner");
    let uid = admin.map(&owner, None);
    admin.map(&format!("{prefix}-leaf"), Some((&owner, &uid)));
}

/// A policy that refuses is named for the object, for its dependents, and for namespaces; nothing waits for an object that it
/// keeps.
#[test]
fn every_answer_names_the_policy_that_refuses() {
    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    for name in ["shop", "vault"] {
        admin.create(NAMESPACES, &json!({"metadata": {"name": name}}));
    }
    admin.create(&format!("{NAMESPACES}/shop/configmaps"), &json!({"metadata": {"name": "kept-leaf"}}));
    family(&admin, "kept");
    keep(
        &admin,
        "keeps-leaves",
        ("DELETE", "configmaps"),
        &unless("oldObject.metadata.name != 'kept-leaf'", "leaves stay"),
    );
    keep(
        &admin,
        "keeps-vault",
        ("DELETE", "namespaces"),
        &unless("request.name != 'vault'", "the vault stays"),
    );
    until_refused(&admin, &format!("{MAPS}/kept-leaf"));
    until_refused(&admin, &format!("{NAMESPACES}/vault"));
    let leaf = "refused by policy keeps-leaves: leaves stay";
    for (line, expected) in [
        (&["plan", "delete", "cm/kept-leaf"][..], leaf),
        (&["plan", "delete", "cm/kept-owner", "--cascade=foreground"], leaf),
        (&["plan", "delete", "cm/kept-owner"], leaf),
        (&["plan", "delete", "ns/shop"], leaf),
        (&["plan", "delete", "ns/vault"], "refused by policy keeps-vault: the vault stays"),
        (&["delete", "ns/vault", "--yes"], "refused by policy keeps-vault: the vault stays"),
        (&["delete", "cm/kept-leaf", "--yes"], leaf),
        (&["delete", "cm/kept-owner", "--cascade=foreground", "--yes"], leaf),
        (&["delete", "ns/shop", "--yes"], leaf),
    ] {
        let (code, said) = asked(&server, line);
        let headline = said.lines().next().unwrap_or_default();
        assert!(code == Some(3) && said.contains(expected), "{line:?}: {code:?} {said}");
        assert!(!headline.contains("nothing gets stuck"), "{line:?}: {headline}");
    }
    assert!(admin.exists("kept-leaf") && admin.exists("kept-owner"));
    let expected =
        |name: &str| ("AdmissionPolicyRefuses".to_owned(), format!("{name} cannot be deleted: {leaf}"));
    assert_eq!(cause(&server, "kept-owner"), expected("ConfigMap/kept-leaf"));
    let (code, message) = cause(&server, "shop");
    assert!(code == "AdmissionPolicyRefuses" && message.contains(leaf), "{code}: {message}");
    for line in [&["why", "cm/kept-owner"][..], &["why", "ns/shop"], &["stuck"], &["doctor"]] {
        let (_, said) = asked(&server, line);
        assert!(said.contains("AdmissionPolicyRefuses") && said.contains("keeps-leaves"), "{line:?}: {said}");
        assert!(!said.contains("is a garbage collector at work?"), "{line:?}: {said}");
    }
}

/// A policy that cannot be evaluated here is named as one that may refuse; once a collector was refused, the journal is the
/// evidence.
#[test]
fn what_cannot_be_evaluated_is_named_and_the_journal_is_evidence() {
    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    family(&admin, "asked");
    family(&admin, "tuned");
    let by_authorizer = json!({
        "matchConditions": [{"name": "leaf", "expression": "oldObject.metadata.name == 'asked-leaf'"}],
        "validations": [{"expression": "authorizer.group('acme.dev').resource('widgets').check('bless').allowed()", "message": "administrators alone"}]});
    keep(&admin, "asks", ("DELETE", "configmaps"), &by_authorizer);
    let by_params = json!({
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "paramRef": {"namespace": "kube-system", "name": "limits", "parameterNotFoundAction": "Deny"},
        "matchConditions": [{"name": "leaf", "expression": "oldObject.metadata.name == 'tuned-leaf'"}],
        "validations": [{"expression": "!has(params.data.keep)", "message": "the limits keep it"}]});
    admin.create(
        "/api/v1/namespaces/kube-system/secrets",
        &json!({"metadata": {"name": "limits"}, "data": {"keep": "eWVz"}}),
    );
    keep(&admin, "tunes", ("DELETE", "configmaps"), &by_params);
    until_refused(&admin, &format!("{MAPS}/tuned-leaf"));

    // The administrator can read the parameters, and no test here asks the authorizer about another user.
    let (code, said) = asked(&server, &["plan", "delete", "cm/tuned-owner"]);
    assert!(code == Some(3) && said.contains("refused by policy tunes: the limits keep it"), "{said}");
    let (code, said) = asked(&server, &["plan", "delete", "cm/asked-owner"]);
    let named = "ValidatingAdmissionPolicy asks, which cannot be evaluated from here";
    assert!(code == Some(0) && said.contains(named), "{code:?} {said}");
    // This user may not read them.
    permit(&admin, "ann");
    let as_ann = ["plan", "delete", "cm/tuned-owner", "--as=ann"];
    let named = "ValidatingAdmissionPolicy tunes, which cannot be evaluated from here";
    until("her rights", || asked(&server, &as_ann).1.contains(named));

    for name in ["asked-owner", "tuned-owner"] {
        admin.delete(name, "Foreground");
    }
    let (code, message) = cause(&server, "asked-owner");
    let expected = "ConfigMap/asked-leaf cannot be deleted: refused by policy asks: administrators alone";
    assert_eq!((&*code, &*message), ("AdmissionPolicyRefuses", expected));
    for line in [
        &["why", "cm/asked-owner"][..],
        &["why", "cm/asked-owner", "--no-collector"],
        &["stuck", "--no-collector"],
    ] {
        let (_, said) = asked(&server, line);
        assert!(said.contains("refused by policy asks: administrators alone"), "{line:?}: {said}");
    }
    let (_, said) = asked(&server, &["journal", "--outcome=refused", "-o", "json"]);
    assert!(said.contains("administrators alone"), "{said}");
    // A policy without its parameters refuses everything.
    let lost = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "paramRef": {"namespace": "kube-system", "name": "none", "parameterNotFoundAction": "Deny"},
        "validations": [{"expression": "true"}]});
    keep(&admin, "lacks", ("DELETE", "podtemplates"), &lost);
    let (_, said) = asked(&server, &["doctor"]);
    for expected in [
        "AdmissionPolicyRefuses asks",
        "FailingPolicy",
        "policy lacks fails every deletion that it is asked about → its parameters, ConfigMap/none in kube-system, do not exist",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let (_, said) = asked(&server, &["delete", "cm/asked-owner", "--cascade=foreground", "--yes"]);
    assert!(said.contains("refused by policy asks: administrators alone"), "{said}");
}

/// Lets a user read and delete ConfigMaps everywhere, and read the configuration of admission.
fn permit(admin: &Admin, user: &str) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let rules = json!([
        rule("", &["configmaps"], &["get", "list"]),
        rule("", &["namespaces"], &["get"]),
        rule("admissionregistration.k8s.io", &["*"], &["get", "list"]),
    ]);
    admin.create(&format!("{rbac}/clusterroles"), &json!({"metadata": {"name": user}, "rules": rules}));
    let binding = json!({"metadata": {"name": user}, "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}});
    admin.create(&format!("{rbac}/clusterrolebindings"), &binding);
}

/// Returns a configuration with one webhook about ConfigMaps.
fn hook(admin: &Admin, name: &str, operation: &str, client: &Value) {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["configmaps"]}]);
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    let hook = json!({"name": format!("{name}.acme.dev"), "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"], "clientConfig": client, "namespaceSelector": selector, "rules": rules});
    let path = format!("{ADMISSION}/validatingwebhookconfigurations");
    admin.create(&path, &json!({"metadata": {"name": name}, "webhooks": [hook]}));
}

/// Acts as a webhook that only keeps objects from losing references to owners.
fn keeps_references(request: &SentRequest) -> (u16, bytes::Bytes) {
    let review = request.body();
    let asked = &review["request"];
    let count = |object: &str| asked[object]["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
    let response = json!({"uid": asked["uid"], "allowed": count("object") >= count("oldObject"),
        "status": {"message": "references stay"}});
    let answer =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (200, answer.to_string().into())
}

/// If a webhook refuses to release dependents, the webhook is the cause, and not a missing collector.
#[test]
fn a_webhook_that_refuses_changes_while_dependents_are_orphaned_is_the_cause() {
    use base64::Engine as _;

    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    family(&admin, "hooked");
    let webhook = Webhook::start(keeps_references);
    let authority = std::fs::read(webhook.authority()).unwrap();
    let authority = base64::engine::general_purpose::STANDARD.encode(authority);
    hook(&admin, "references", "UPDATE", &json!({"url": webhook.url("/"), "caBundle": authority}));
    until("the webhook is asked", || {
        let path = format!("{MAPS}/hooked-leaf?dryRun=All");
        admin.send(Method::PATCH, &path, &json!({"metadata": {"ownerReferences": null}})).0 >= 400
    });
    admin.delete("hooked-owner", "Orphan");
    let (code, message) = cause(&server, "hooked-owner");
    assert!(
        code == "AdmissionWebhookFails"
            && message.starts_with("ConfigMap/hooked-leaf cannot be released from it: ")
            && message.contains("references.acme.dev"),
        "{code}: {message}"
    );
    let (_, said) = asked(&server, &["why", "cm/hooked-owner"]);
    assert!(said.contains("AdmissionWebhookFails") && !said.contains("CollectorAbsent"), "{said}");
}

/// A webhook behind a URL that does not answer, or answers nothing useful, refuses the deletion: the plan tries it.
#[test]
fn a_webhook_behind_a_url_that_does_not_answer_is_no_deletion() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}/", silent.local_addr().unwrap());
    for (name, url) in [("dead", "https://127.0.0.1:1/"), ("silent", &*silent)] {
        admin.map(name, None);
        hook(&admin, name, "DELETE", &json!({"url": url}));
        until_refused(&admin, &format!("{MAPS}/{name}"));
        let (code, said) = asked(&server, &["plan", "delete", &format!("cm/{name}")]);
        assert!(code == Some(3) && said.contains(&format!("{name}.acme.dev")), "{code:?} {said}");
        assert!(!said.contains("Deleted"), "{said}");
        let path = format!("{ADMISSION}/validatingwebhookconfigurations/{name}");
        assert_eq!(admin.send(Method::DELETE, &path, &Value::Null).0, 200);
    }
}
