//! Selectors, verbs and tokens.

use serde_json::{Value, json};

use crate::world::{APPLY, CONFIG_MAPS, MERGE_PATCH, World, rule, status_of};

/// An escaped comma belongs to the value, both for authorization and for the list.
const ESCAPED: &str = "metadata.name!=x%5C,metadata.name%5C=a";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test]
async fn a_name_in_a_selector_gives_no_more_than_that_object() {
    let world = World::start().await;
    for name in ["a", "b"] {
        world.admin().create(CONFIG_MAPS, &config_map(name)).await;
    }
    let mut one = rule("", &["configmaps"], &["get", "list", "watch", "delete", "deletecollection"]);
    one["resourceNames"] = json!(["a"]);
    let eve = world.grant("eve", json!([one])).await;
    let pinned = format!("{CONFIG_MAPS}?fieldSelector=metadata.name=a");
    let listed = eve.get(&pinned).await;
    let names: Vec<Value> = listed.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].clone())
        .collect();
    assert_eq!((listed.code, names), (200, vec![json!("a")]));

    let list = |selector: &str| format!("{CONFIG_MAPS}?fieldSelector={selector}");
    let table = [
        ("GET", list(ESCAPED)),
        ("GET", list("metadata.name!=x%5C,metadata.name=a")),
        ("GET", format!("{}&watch=1", list(ESCAPED))),
        ("GET", format!("{pinned}&limit=bogus")),
        ("GET", list("metadata.name=b")),
        ("GET", CONFIG_MAPS.to_owned()),
        ("DELETE", pinned.clone()),
        ("DELETE", list(ESCAPED)),
        ("DELETE", CONFIG_MAPS.to_owned()),
    ];
    for (method, path) in table {
        assert_eq!(eve.send(method, &path, &[], "").await.code, 403, "{method} {path}");
    }
    assert_eq!(world.admin().get(CONFIG_MAPS).await.json()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_creates_needs_the_right_to_create() {
    let world = World::start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let changer = json!([
        rule("", &["configmaps", "endpoints"], &["get", "patch", "update"]),
        rule("coordination.k8s.io", &["leases"], &["get", "patch", "update"]),
    ]);
    let eve = world.grant("eve", changer).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "new"}});
    let refused = eve.apply(&format!("{CONFIG_MAPS}/new"), &config_map("new")).await;
    assert_eq!(
        status_of(&refused),
        (
            403,
            r#"configmaps "new" is forbidden: User "eve" cannot create resource "configmaps" in API group "" in the namespace "default""#
                .to_owned()
        )
    );
    for (path, body) in [
        (format!("{CONFIG_MAPS}/new?dryRun=All"), config_map("new")),
        (format!("{leases}/new"), lease.clone()),
    ] {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}fieldManager=test");
        assert_eq!(eve.patch(&path, APPLY, &body).await.code, 403, "{path}");
    }
    assert_eq!(eve.put(&format!("{leases}/new"), &lease).await.code, 403, "a PUT that would create");
    let both = world
        .grant(
            "ann",
            json!([
                rule("", &["configmaps"], &["create", "patch"]),
                rule("coordination.k8s.io", &["leases"], &["create", "update"])
            ]),
        )
        .await;
    assert_eq!(both.apply(&format!("{CONFIG_MAPS}/new"), &config_map("new")).await.code, 201);
    assert_eq!(both.put(&format!("{leases}/new"), &lease).await.code, 201);
    // Changing an existing field needs no such right.
    let change = json!({"data": {"k": "w"}});
    assert_eq!(eve.patch(&format!("{CONFIG_MAPS}/new"), MERGE_PATCH, &change).await.code, 200);
}

#[tokio::test]
async fn tokens_are_good_for_their_audiences_alone() {
    let world = World::start().await;
    let admin = world.admin();
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let review = async |token: &str, audiences: Value| {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        let status =
            admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.json()["status"].clone();
        (status["authenticated"].clone(), status["audiences"].clone())
    };
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.create(accounts, &json!({"metadata": {"name": "robot"}})).await;
    let request = json!({"spec": {"audiences": ["vault"]}});
    let issued = admin.create(&format!("{accounts}/robot/token"), &request).await;
    let for_vault = issued["status"]["token"].as_str().unwrap();
    let good = |audience: &str| (json!(true), json!([audience]));
    let bad = (Value::Null, Value::Null);
    let table = [
        (crate::support::TOKEN, json!([]), good(issuer)),
        (crate::support::TOKEN, json!([issuer, "vault"]), good(issuer)),
        (crate::support::TOKEN, json!(["vault"]), bad.clone()),
        (for_vault, json!(["vault", "other"]), good("vault")),
        (for_vault, json!([]), bad.clone()),
        (for_vault, json!([issuer]), bad),
    ];
    for (token, audiences, want) in table {
        assert_eq!(review(token, audiences.clone()).await, want, "{audiences}");
    }
    let bearer = format!("Bearer {for_vault}");
    let answer = world.server.send("GET", CONFIG_MAPS, &[("authorization", &bearer)], "").await;
    assert_eq!(answer.code, 401, "a token for another audience");
}

#[tokio::test]
async fn certificates_are_approved_and_signed_for_permitted_signers_alone() {
    let world = World::start().await;
    let group = "certificates.k8s.io";
    let requests = format!("/apis/{group}/v1/certificatesigningrequests");
    let parts = ["certificatesigningrequests/approval", "certificatesigningrequests/status"];
    let signers = |names: &[&str], verb: &str| json!({"apiGroups": [group], "resources": ["signers"], "resourceNames": names, "verbs": [verb]});
    let writer = || rule(group, &parts, &["update", "patch"]);
    let clients = [
        ("eve", json!([writer()])),
        ("ann", json!([writer(), signers(&["example.com/a"], "approve")])),
        ("bob", json!([writer(), signers(&["example.com/*"], "sign")])),
    ];
    let key = include_str!("csr.pem");
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, key);
    let request = json!({"apiVersion": format!("{group}/v1"), "kind": "CertificateSigningRequest",
        "metadata": {"name": "c"},
        "spec": {"request": encoded, "signerName": "example.com/a", "usages": ["client auth"]}});
    world.admin().create(&requests, &request).await;
    let approval =
        json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "test"}]}});
    let failure = json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "test"}]}});
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let wants = [("eve", [403, 403, 200]), ("ann", [200, 403, 200]), ("bob", [403, 200, 200])];
    for ((user, rules), (_, want)) in clients.into_iter().zip(wants) {
        let client = world.grant(user, rules).await;
        for ((part, patch), want) in
            [("approval", &approval), ("status", &failure), ("status", &labels)].into_iter().zip(want)
        {
            let path = format!("{requests}/c/{part}?dryRun=All");
            let answer = client.patch(&path, MERGE_PATCH, patch).await;
            assert_eq!(answer.code, want, "{user} {part}: {answer:?}");
        }
    }
}

/// Like kube-apiserver, the server must verify the signature whenever it validates a request.
#[tokio::test]
async fn a_certificate_request_is_signed_with_the_key_that_it_names() {
    let world = World::start().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let engine = base64::engine::general_purpose::STANDARD;
    let encode = |bytes: &[u8]| base64::Engine::encode(&engine, bytes);
    let pem = include_str!("csr.pem");
    let block: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = base64::Engine::decode(&engine, block).unwrap();
    let asked = |der: &[u8], name: &str| {
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            encode(der)
        );
        json!({"metadata": {"name": name}, "spec": {"request": encode(pem.as_bytes()),
            "signerName": "example.com/a", "usages": ["client auth"]}})
    };
    world.admin().create(requests, &asked(&der, "whole")).await;
    // Change a byte of the signature, and one of the signed name.
    let name = der.windows(4).position(|part| part == b"test").unwrap();
    for at in [der.len() - 1, name] {
        let mut changed = der.clone();
        changed[at] ^= 1;
        let (code, message) = status_of(&world.admin().post(requests, &asked(&changed, "changed")).await);
        assert_eq!(code, 422, "{at}: {message}");
        assert!(message.contains("spec.request: Invalid value"), "{at}: {message}");
        assert!(message.ends_with(": x509: ECDSA verification failure"), "{at}: {message}");
    }
}

/// CertificateSubjectRestriction: no signer of client certificates may turn anybody into an administrator, whoever requests it.
#[tokio::test]
async fn no_client_certificate_is_asked_for_the_administrators() {
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
    let world = World::start().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let key = rcgen::KeyPair::generate().unwrap();
    let asked = |name: &str, groups: &[&str], signer: &str| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "eve");
        for group in groups {
            params.distinguished_name.push(rcgen::DnType::OrganizationName, *group);
        }
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
        json!({"metadata": {"name": name},
            "spec": {"request": encoded, "signerName": signer, "usages": ["client auth"]}})
    };
    let (code, message) =
        status_of(&world.admin().post(requests, &asked("masters", &["system:masters"], CLIENT)).await);
    assert_eq!(code, 403, "{message}");
    let expected = format!("use of {CLIENT} signer with system:masters group is not allowed");
    assert!(message.contains(&expected), "{message}");
    // Other groups may be requested, and other signers decide for themselves.
    for (name, groups, signer) in [
        ("another", &["system:masters-not"][..], CLIENT),
        ("none", &[], CLIENT),
        ("elsewhere", &["system:masters"], "example.com/a"),
    ] {
        let (code, message) = status_of(&world.admin().post(requests, &asked(name, groups, signer)).await);
        assert_eq!(code, 201, "{name}: {message}");
    }
}
