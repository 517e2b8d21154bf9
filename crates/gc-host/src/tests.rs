#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{File, OpenOptions};

use super::*;

#[test]
fn a_private_file_is_for_its_owner_and_an_open_one_can_be_closed() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("a/b");
    create_private_directory(&below).unwrap();
    assert!(!is_open_to_others(&below.metadata().unwrap()));
    // Only the function for a new directory refuses one that exists.
    create_private_directory(&below).unwrap();
    assert!(new_private_directory(&below).is_err());
    let path = below.join("key");
    let file = private(OpenOptions::new().create(true).append(true)).open(&path).unwrap();
    assert!(!is_open_to_others(&file.metadata().unwrap()));
    drop(file);
    sync_directory(&below).unwrap();

    let other = below.join("other");
    let file = executable(OpenOptions::new().create(true).append(true)).open(&other).unwrap();
    // Windows has no modes.
    assert_eq!(is_open_to_others(&file.metadata().unwrap()), cfg!(unix));
    make_private(&file).unwrap();
    assert!(!is_open_to_others(&file.metadata().unwrap()));
}

#[test]
fn a_file_differs_from_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let (path, next) = (folder.path().join("journal"), folder.path().join("next"));
    let first = File::create(&path).unwrap();
    assert_eq!(file_identity(&first.metadata().unwrap()), file_identity(&path.metadata().unwrap()));
    File::create(&next).unwrap();
    std::fs::rename(&next, &path).unwrap();
    assert_ne!(file_identity(&first.metadata().unwrap()), file_identity(&path.metadata().unwrap()));
}

#[test]
fn the_host_has_a_name() {
    assert!(!host_name().is_empty());
}
