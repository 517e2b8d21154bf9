//! Flags for limits and sources: each changes which items are removed.

use super::*;

/// Returns the names of the containers that a pass would remove.
fn removed(fake: &Fake, flags: &[&str]) -> BTreeSet<String> {
    let all = [&CONTAINERS[1..], &["--dry-run", "-o", "json"], flags].concat();
    let output = agent(fake, &all).output().unwrap();
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let containers = document["containers"].as_array().unwrap().iter();
    containers.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// Of three dead containers in a live pod, one is kept for each name, and the newest even if no limit keeps it.
#[test]
fn the_dead_containers_of_a_pod_are_limited() {
    let fake = Fake::start();
    std::fs::create_dir_all(fake.folder().join("logs")).unwrap();
    fake.state().sandboxes = vec![sandbox("pod", 0)];
    fake.state().containers = (0..3).map(|n| container("pod", "c", n, EXITED, 1)).collect();
    let named = |numbers: &[u32]| {
        numbers.iter().map(|number| format!("container-pod-c-{number}")).collect::<BTreeSet<_>>()
    };
    assert_eq!(removed(&fake, &[]), named(&[0, 1]));
    assert_eq!(removed(&fake, &["--maximum-dead-containers-per-container", "2"]), named(&[0]));
    assert_eq!(removed(&fake, &["--maximum-dead-containers-per-container=-1"]), named(&[]));
    // A limit of zero for each container keeps none; a limit of the node keeps the newest of a live pod, unless that is declared
    // unsafe.
    assert_eq!(removed(&fake, &["--maximum-dead-containers-per-container", "0"]), named(&[0, 1, 2]));
    let none = ["--maximum-dead-containers", "0"];
    assert_eq!(removed(&fake, &none), named(&[0, 1]), "the newest of a live pod stays");
    let all = [&none[..], &["--unsafe-remove-newest-of-live-pods"]].concat();
    assert_eq!(removed(&fake, &all), named(&[0, 1, 2]));
}

/// Without a cluster, manifests of static pods determine which images are used.
#[test]
fn images_of_static_pods_are_kept() {
    let fake = Fake::start();
    fake.state().images = (1..=2).map(|n| image(n, n << 20)).collect();
    let folder = fake.folder().join("manifests");
    std::fs::create_dir(&folder).unwrap();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\n\
               spec: {containers: [{name: etcd, image: 'registry.example/image-1:v1'}]}\n";
    std::fs::write(folder.join("etcd.yaml"), pod).unwrap();
    let pass = |flags: &[&str]| {
        let all =
            [&ALL[3..], &["--collect", "images", "--minimum-image-ttl-duration=0s", "--dry-run"], flags]
                .concat();
        said(&mut agent(&fake, &all)).1
    };
    let manifests = ["--pod-manifest-path", folder.to_str().unwrap()];
    assert!(pass(&[]).contains("2 images would be removed"), "{}", pass(&[]));
    let text = pass(&manifests);
    assert!(text.contains("1 image") && !text.contains("image-1"), "{text}");
}

/// An agent knows the ages that the last one has saved, unless it is asked to forget them.
#[test]
fn ages_are_counted_from_the_start_if_they_are_to_be_forgotten() {
    let fake = Fake::start();
    fake.state().images = vec![image(1, 1)];
    // The first pass sees the image, and saves the time.
    let (_, text) = said(&mut agent(&fake, &ALL));
    assert_eq!(fake.state().images.len(), 1, "too young: {text}");
    let saved = fake.folder().join("state/images.json");
    let ages: serde_json::Value = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    assert!(ages.to_string().contains(&image_id(1)), "{ages}");
    let remembers = |flags: &[&str]| {
        let all = [&["images", "-o", "json"], flags].concat();
        let output = agent(&fake, &all).output().unwrap();
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        document["images"][0]["firstSeenUnixNanoseconds"].clone()
    };
    let first = remembers(&[]);
    assert!(first.is_number(), "{first}");
    // A pass that forgets replaces the saved time by its own start.
    let (_, text) = said(agent(&fake, &ALL).arg("--forget-ages"));
    assert!(fake.state().images.len() == 1 && remembers(&[]) != first, "{text}");
}

/// Checkpoint archives are removed by age and by number, and stay without limits.
#[test]
fn archives_of_checkpoints_are_limited() {
    let fake = Fake::start();
    let folder = fake.folder().join("checkpoints");
    std::fs::create_dir(&folder).unwrap();
    for days in 1..=3_u64 {
        let name = format!("checkpoint-web_default-app-2026-11-{:02}T10:00:00Z.tar", 20 - days);
        let file = std::fs::File::create(folder.join(name)).unwrap();
        let age = std::time::Duration::from_secs(days * 86_400);
        file.set_modified(std::time::SystemTime::now() - age).unwrap();
    }
    let left = |flags: &[&str]| {
        let directory = ["--once", "--collect", "images", "--checkpoint-dir", folder.to_str().unwrap()];
        said(&mut agent(&fake, &[&directory[..], flags].concat()));
        std::fs::read_dir(&folder).unwrap().count()
    };
    assert_eq!(left(&[]), 3);
    assert_eq!(left(&["--maximum-checkpoint-age", "60h"]), 2);
    assert_eq!(left(&["--maximum-checkpoints-per-container", "1"]), 1);
}
