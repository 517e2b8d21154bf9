//! An etcd that identifies its users by the names in their certificates, and restricts each to the permissions of its role.

use std::process::Command;

use gc_store::{ConnectError, EtcdOptions, EtcdStorage};

use crate::authority::Authority;
use crate::faults::{Cluster, suffer};
use crate::process::{EtcdServer, ServerTls};
use crate::server::patient;

/// Users, roles and permissions, as an administrator creates them. The keys are `/kubegc/` and `/kubegc0`, the end of that prefix.
const SETUP: [(&str, &str); 9] = [
    ("user/add", r#"{"name":"root","options":{"no_password":true}}"#),
    ("role/add", r#"{"name":"root"}"#),
    ("user/grant", r#"{"user":"root","role":"root"}"#),
    ("user/add", r#"{"name":"kubegc","options":{"no_password":true}}"#),
    ("role/add", r#"{"name":"kubegc"}"#),
    (
        "role/grant",
        r#"{"name":"kubegc","perm":{"permType":"READWRITE","key":"L2t1YmVnYy8=","range_end":"L2t1YmVnYzA="}}"#,
    ),
    ("user/grant", r#"{"user":"kubegc","role":"kubegc"}"#),
    ("user/add", r#"{"name":"stranger","options":{"no_password":true}}"#),
    ("enable", "{}"),
];

/// Creates the users of an etcd, and enables its access control.
fn restrict(member: &EtcdServer, files: &ServerTls) {
    for (path, body) in SETUP {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--retry", "20", "--retry-delay", "1", "--cacert"])
            .arg(&files.authority)
            .arg("--cert")
            .arg(&files.certificate)
            .arg("--key")
            .arg(&files.key)
            .args(["--data", body, &format!("{}/v3/auth/{path}", member.endpoint())])
            .output()
            .unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn options(authority: &Authority, user: &str) -> EtcdOptions {
    EtcdOptions { tls: Some(authority.client(user)), ..patient() }
}

fn refusal(endpoints: &[String], options: &EtcdOptions) -> String {
    match EtcdStorage::connect(endpoints, options).unwrap_err() {
        ConnectError::Options { reason, .. } => reason,
        error => panic!("{error}"),
    }
}

/// The permission for the prefix must suffice, even while members fail; a user without it is refused with the reason, and another
/// cluster is recognized.
#[test]
fn a_killed_member_of_a_cluster_with_users() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = authority.server(folder.path());
    let start = |count| EtcdServer::start_cluster_with(count, Some(&files), &[]);
    let (Some(members), Some(others)) = (start(3), start(1)) else { return };
    for first in [&members[0], &others[0]] {
        restrict(first, &files);
    }
    let endpoints = [members[0].endpoint(), members[1].endpoint()];
    for user in ["stranger", "unknown"] {
        let reason = refusal(&endpoints, &options(&authority, user));
        assert!(reason.contains("permission denied") || reason.contains("user name not found"), "{reason}");
    }
    let mixed = [members[0].endpoint(), others[0].endpoint()];
    let reason = refusal(&mixed, &options(&authority, "kubegc"));
    assert!(reason.contains("different etcd clusters"), "{reason}");
    let cluster = Cluster::new(members, options(&authority, "kubegc"));
    suffer("killed, with users", cluster, |cluster, member, is_on| {
        let member = &mut cluster.members[member];
        if is_on { member.kill() } else { member.restart() }
    });
}
