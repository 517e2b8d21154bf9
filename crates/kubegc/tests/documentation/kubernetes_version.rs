//! `scripts/kubernetes-version`, on sources as small as possible. The real ones are in no registry.

use std::process::Command;

/// Two runs give the same bytes, a check detects changes by hand, and anything but data is reported in one line.
#[test]
fn what_is_data_about_a_version_is_written_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("python3")
        .arg(super::repository().join("crates/kubegc/tests/documentation/kubernetes_version.py"))
        .arg(super::repository().join("scripts/kubernetes-version"))
        .arg(folder.path().join("work"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
