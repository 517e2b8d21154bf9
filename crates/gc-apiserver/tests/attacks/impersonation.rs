//! A user who may not be impersonated is not, and the request is not answered on their behalf.

use serde_json::{Value, json};

use crate::world::{CONFIG_MAPS, JSON, World, rule, status_of};

const ME: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

#[tokio::test]
async fn a_name_outside_of_ascii_is_a_name_like_any_other() {
    let world = World::start().await;
    let admin = world.admin();
    let as_user =
        |user: &'static str| [("impersonate-user", user.as_bytes()), ("content-type", JSON.as_bytes())];
    let answer = admin.send("POST", ME, &as_user("jürgen"), "{}").await;
    let user = answer.json()["status"]["userInfo"].clone();
    assert_eq!(user, json!({"username": "jürgen", "groups": ["system:authenticated"]}));
    let refused = admin.send("GET", CONFIG_MAPS, &as_user("jürgen"), "").await;
    assert_eq!(
        status_of(&refused),
        (
            403,
            r#"configmaps is forbidden: User "jürgen" cannot list resource "configmaps" in API group "" in the namespace "default""#
                .to_owned()
        )
    );
    world.grant("jürgen", json!([rule("", &["configmaps"], &["list"])])).await;
    assert_eq!(admin.send("GET", CONFIG_MAPS, &as_user("jürgen"), "").await.code, 200);
}

#[tokio::test]
async fn a_header_that_cannot_be_read_refuses_the_request() {
    let world = World::start().await;
    let bad = b"j\xfcrgen".as_slice();
    for name in [
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-a",
        "authorization",
        "accept",
    ] {
        let headers = [(name, bad), ("impersonate-user", b"ann".as_slice())];
        let headers = if name == "impersonate-user" { &headers[..1] } else { &headers[..] };
        let answer = world.admin().send("GET", CONFIG_MAPS, headers, "").await;
        assert_eq!(status_of(&answer), (400, format!("the header {name} is not valid UTF-8")));
    }
}

#[tokio::test]
async fn groups_and_extra_are_checked_and_need_a_user() {
    let world = World::start().await;
    let rules = json!([
        rule("", &["users"], &["impersonate"]),
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["readers"], "verbs": ["impersonate"]},
    ]);
    let eve = world.grant("eve", rules).await;
    let table: [(&[(&str, &[u8])], u16, &str); 6] = [
        (&[("impersonate-user", b"ann"), ("impersonate-group", b"readers")], 201, ""),
        (
            &[
                ("impersonate-user", b"ann"),
                ("impersonate-group", b"readers"),
                ("impersonate-group", "büro".as_bytes()),
            ],
            403,
            "",
        ),
        (&[("impersonate-user", b"ann"), ("impersonate-group", b"system:masters")], 403, ""),
        (&[("impersonate-user", b"ann"), ("impersonate-extra-acme.io%2fa", b"x")], 403, ""),
        (
            &[("impersonate-group", b"readers")],
            400,
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"readers"}, Extra:map[string][]string(nil)} without impersonating a user name"#,
        ),
        (
            &[("impersonate-uid", b"7")],
            400,
            r#"requested &user.DefaultInfo{Name:"", UID:"7", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name"#,
        ),
    ];
    for (headers, code, message) in table {
        let mut all = headers.to_vec();
        all.push(("content-type", JSON.as_bytes()));
        let answer = eve.send("POST", ME, &all, "{}").await;
        let (got, text) = status_of(&answer);
        assert_eq!((got, message.is_empty() || text == message), (code, true), "{headers:?}: {text}");
        if code == 201 {
            let groups: Value = answer.json()["status"]["userInfo"]["groups"].clone();
            assert_eq!(groups, json!(["readers", "system:authenticated"]));
        }
    }
}
