//! Passes that lack information: the age of an image after a boot, the space that a removal has freed, or the state of an image.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::*;

/// Flags to observe, and remove images that are too old.
const AGING: [&str; 8] = [
    "--once",
    "--collect",
    "images",
    "--image-gc-high-threshold=100",
    "--image-gc-low-threshold=99",
    "--minimum-image-ttl-duration=0s",
    "--maximum-image-unused-duration=150m",
    "--parallel-removals=1",
];
const HOUR: i64 = 3_600_000_000_000;

fn saved(fake: &Fake) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(fake.folder().join("state/images.json")).unwrap()).unwrap()
}

/// Changes the state that the last pass has saved.
fn resave(fake: &Fake, change: impl FnOnce(&mut serde_json::Value)) {
    let mut document = saved(fake);
    change(&mut document);
    std::fs::write(fake.folder().join("state/images.json"), document.to_string()).unwrap();
}

fn earlier(value: &mut serde_json::Value, by: i64) {
    *value = (value.as_i64().unwrap() - by).into();
}

/// A wall clock that is years ahead at boot makes no image old: each boot counts for at most an hour.
#[test]
fn a_clock_that_is_ahead_at_a_boot_ages_images_by_an_hour() {
    const YEARS: i64 = 3 * 365 * 24 * HOUR;
    let fake = Fake::start();
    fake.state().images = vec![image(1, 1)];
    said(&mut agent(&fake, &AGING));
    for (boot, left) in [("b1", 1), ("b2", 1), ("b3", 0)] {
        resave(&fake, |saved| {
            saved["clock"]["boot"] = boot.into();
            earlier(&mut saved["clock"]["wall"], YEARS);
        });
        let (exit, text) = said(&mut agent(&fake, &AGING));
        assert_eq!((exit, fake.state().images.len()), (Some(0), left), "{boot}: {text}");
    }
}

/// A state directory that is part of a machine's image says nothing about the machines created from it.
#[test]
fn ages_of_another_machine_are_not_continued() {
    let fake = Fake::start();
    fake.state().images = vec![image(1, 1)];
    said(&mut agent(&fake, &AGING));
    if saved(&fake)["clock"]["machine"].is_null() {
        eprintln!("SKIPPED: this machine has neither a machine-id nor a UUID");
        return;
    }
    let of_an_image = |saved: &mut serde_json::Value, machine: Option<&str>| {
        saved["clock"]["boot"] = "of the image".into();
        if let Some(machine) = machine {
            saved["clock"]["machine"] = machine.into();
        }
        for record in saved["images"].as_object_mut().unwrap().values_mut() {
            earlier(&mut record["firstSeen"], 24 * HOUR);
        }
    };
    resave(&fake, |saved| of_an_image(saved, Some("where the image was made")));
    let (exit, text) = said(&mut agent(&fake, &AGING));
    assert_eq!((exit, fake.state().images.len()), (Some(0), 1), "{text}");
    assert!(text.contains("the saved ages are those of another machine"), "{text}");
    // On the same machine, the ages count.
    resave(&fake, |saved| of_an_image(saved, None));
    let (exit, text) = said(&mut agent(&fake, &AGING));
    assert_eq!((exit, fake.state().images.len()), (Some(0), 0), "{text}");
}

/// While the images that pods name are unknown, none is removed for its age; removal for space continues.
#[test]
fn unknown_pods_keep_every_old_image() {
    let fake = Fake::start();
    fake.state().images = (1..=2).map(|n| image(n, n)).collect();
    let unreadable = fake.folder().join("no-folder");
    std::fs::write(&unreadable, "").unwrap();
    let kubeconfig = fake.folder().join("kubeconfig");
    let nowhere = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
    std::fs::write(&kubeconfig, nowhere.to_string()).unwrap();
    said(&mut agent(&fake, &AGING));
    resave(&fake, |saved| {
        for record in saved["images"].as_object_mut().unwrap().values_mut() {
            earlier(&mut record["firstSeen"], 24 * HOUR);
        }
    });
    let of_server = |arguments: &[&str]| {
        let mut command = cluster::with_cluster(&fake, kubeconfig.to_str().unwrap());
        said(command.args(["--node-name=n", "--request-timeout=2s"]).args(arguments))
    };
    let of_manifests = |arguments: &[&str]| {
        said(agent(&fake, arguments).args(["--pod-manifest-path", unreadable.to_str().unwrap()]))
    };
    for (_, text) in [of_server(&AGING), of_manifests(&AGING)] {
        assert_eq!(fake.state().images.len(), 2, "{text}");
    }
    let (_, text) = of_manifests(&[&ALL[..], &["--minimum-image-ttl-duration=0s"]].concat());
    assert_eq!(fake.state().images.len(), 0, "{text}");
}

/// A runtime that reports one image as unavailable is not itself unavailable: the others are removed.
#[test]
fn an_unavailable_image_does_not_end_the_pass() {
    for method in ["RemoveImage", "ImageStatus"] {
        let fake = Fake::start();
        fake.state().images = (1..=3).map(|n| image(n, n)).collect();
        fake.state().rule(move |_, called, id| {
            let fails = called == method && id == image_id(2);
            fails.then(|| Answer::failure(code::UNAVAILABLE, "its content is busy"))
        });
        let (exit, text) = said(agent(&fake, &ALL).arg("--minimum-image-ttl-duration=0s"));
        let left: Vec<String> = fake.state().images.iter().map(|one| one.id.clone()).collect();
        assert_eq!((exit, left), (Some(1), vec![image_id(2)]), "{method}: {text}");
        assert!(text.contains("its content is busy"), "{method}: {text}");
    }
}

/// A small filesystem, unmounted when dropped; `None`, with a clear message, if it cannot be mounted.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(folder: std::path::PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir(&folder).unwrap();
        let mut mounting = Command::new("mount");
        mounting.args(["-t", "tmpfs", "-o", &format!("size={size}"), "kubegc-test"]).arg(&folder);
        if mounting.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs root");
        eprintln!("SKIPPED: cannot mount a small filesystem; needs root");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A pass waits for space that appears some time after a removal, and removes no further images meanwhile.
#[test]
fn space_that_appears_later_is_waited_for() {
    const MIB: usize = 1 << 20;
    let fake = Fake::start();
    let Some(disk) = SmallDisk::mount(fake.folder().join("disk"), "64m") else { return };
    let file = |id: &str| disk.0.join(id.trim_start_matches("sha256:"));
    let images: Vec<_> = (1..=12).map(|n| image(n, 4 << 20)).collect();
    for image in &images {
        std::fs::write(file(&image.id), vec![1_u8; 4 * MIB]).unwrap();
    }
    {
        let mut state = fake.state();
        state.filesystem = disk.0.display().to_string();
        state.images = images;
        // The space freed by a removal appears at the second measurement after it.
        let (folder, mut pending) = (disk.0.clone(), VecDeque::<(String, u32)>::new());
        state.rule(move |_, method, id| {
            match method {
                "RemoveImage" => pending.push_back((id.trim_start_matches("sha256:").to_owned(), 0)),
                "ImageFsInfo" => {
                    for (_, asked) in &mut pending {
                        *asked += 1;
                    }
                    while pending.front().is_some_and(|(_, asked)| *asked >= 2) {
                        let (name, _) = pending.pop_front().unwrap();
                        std::fs::remove_file(folder.join(name)).unwrap();
                    }
                }
                _ => {}
            }
            None
        });
    }
    // Three quarters are used, and three images make up 12 of the 10 MiB that are missing.
    let limits =
        ["--image-gc-high-threshold=70", "--image-gc-low-threshold=60", "--minimum-image-ttl-duration=0s"];
    let (exit, text) = said(agent(&fake, &ALL[..3]).args(limits));
    assert_eq!(exit, Some(0), "{text}");
    assert_eq!(fake.state().called("RemoveImage").len(), 3, "{text}");
}

/// The next pass asks for the layers of an image whose status could not be read; once they are known, they are not requested again.
#[test]
fn layers_that_could_not_be_read_are_read_by_a_later_pass_of_the_daemon() {
    let fake = Fake::start();
    std::fs::create_dir(fake.folder().join("logs")).unwrap();
    fake.state().images = vec![image(1, 1)];
    fake.state().layers.insert(image_id(1), vec![format!("sha256:{:064x}", 7)]);
    let fails = Arc::new(Mutex::new(true));
    let failing = Arc::clone(&fails);
    fake.state().rule(move |_, method, _| {
        (method == "ImageStatus" && *failing.lock().unwrap())
            .then(|| Answer::failure(code::UNKNOWN, "not now"))
    });
    let limits = ["--collect", "images", "--image-gc-high-threshold=100", "--image-gc-low-threshold=99"];
    let daemon = Daemon::start(agent(&fake, &limits).arg("--test-clock"));
    let pass = |number: usize| {
        let began = std::time::Instant::now();
        let ended = format!("kubegc_node_pass_duration_seconds_count{{collector=\"images\"}} {number}");
        while !daemon.ask("GET", "/metrics").lines().any(|line| line == ended) {
            assert!(began.elapsed() < Duration::from_mins(1), "pass {number} does not come");
            std::thread::sleep(Duration::from_millis(20));
        }
        fake.state().called("ImageStatus").len()
    };
    let mut asked = Vec::new();
    for number in 1..=4 {
        asked.push(pass(number));
        if number == 2 {
            *fails.lock().unwrap() = false;
        }
        daemon.ask("POST", "/kubegc/v1/clock?advance=6m");
    }
    daemon.stop();
    assert!(asked[0] < asked[1] && asked[1] < asked[2], "a failure is not the end: {asked:?}");
    assert_eq!(asked[2], asked[3], "what is known is not asked for again: {asked:?}");
}

/// An image that the runtime lists once for each runtime handler is pinned if any of them pins it, in whatever order.
#[test]
fn a_pin_of_one_runtime_handler_holds_for_all() {
    let fake = Fake::start();
    let pinned = messages::Image { pinned: true, ..image(1, 1) };
    for listed in [vec![pinned.clone(), image(1, 1), image(2, 2)], vec![image(1, 1), pinned, image(2, 2)]] {
        fake.state().images = listed;
        let dry = [&ALL[3..], &["--dry-run", "--minimum-image-ttl-duration=0s", "-o", "json"]].concat();
        let answer = agent(&fake, &dry).output().unwrap();
        let plan: serde_json::Value =
            serde_json::from_slice(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"));
        let going = plan["images"].as_array().unwrap().iter().map(|one| one["id"].clone());
        assert_eq!(going.collect::<serde_json::Value>(), serde_json::json!([image_id(2)]), "{plan}");
        let (_, text) = said(agent(&fake, &ALL).arg("--minimum-image-ttl-duration=0s"));
        assert!(fake.state().images.iter().any(|one| one.id == image_id(1)), "{text}");
    }
}
