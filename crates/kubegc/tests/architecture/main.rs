//! Keeps the pure crates pure by checking their dependencies with `cargo metadata`, and keeps files free of dependency cycles.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod circles;

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// Crates that make decisions. None may reach a runtime, a client, a server or a disk, directly or through others.
const PURE: [&str; 9] = [
    "gc-types",
    "gc-cel",
    "gc-ownership",
    "gc-collectors",
    "gc-controller",
    "gc-store-api",
    "gc-registry",
    "gc-workloads",
    "gc-explain",
];

/// Dependencies that would make a pure crate able to act.
const FORBIDDEN: [&str; 16] = [
    "tokio",
    "async-std",
    "smol",
    "kube",
    "kube-client",
    "hyper",
    "reqwest",
    "tonic",
    "axum",
    "redb",
    "etcd-client",
    "rand",
    "getrandom",
    "chrono",
    "rustix",
    "mio",
];

/// Permitted dependencies among our crates (ARCHITECTURE.md, "Rooms"); development dependencies are free.
const MAY_USE: &[(&str, &[&str])] = &[
    ("gc-types", &[]),
    ("gc-ownership", &["gc-types"]),
    ("gc-controller", &["gc-types", "gc-ownership", "gc-collectors"]),
    ("gc-cel", &["gc-types"]),
    ("gc-collectors", &["gc-types", "gc-cel"]),
    ("gc-host", &[]),
    ("gc-metrics", &[]),
    ("gc-store-api", &[]),
    ("gc-registry", &["gc-types", "gc-cel", "gc-store-api"]),
    ("gc-workloads", &["gc-types"]),
    ("gc-explain", &["gc-types", "gc-cel", "gc-ownership", "gc-collectors"]),
    ("gc-store", &["gc-host", "gc-store-api"]),
    ("gc-apiserver", &["gc-host", "gc-metrics", "gc-registry", "gc-types"]),
    ("gc-kube", &["gc-types", "gc-controller", "gc-ownership", "gc-collectors"]),
    ("gc-cri", &["gc-types", "gc-collectors"]),
    ("gc-node", &["gc-metrics", "gc-types", "gc-collectors", "gc-kube", "gc-cri"]),
    ("gc-external", &["gc-host", "gc-types", "gc-collectors", "gc-kube"]),
    (
        "gc-embedded",
        &[
            "gc-host",
            "gc-apiserver",
            "gc-inspect",
            "gc-kube",
            "gc-process",
            "gc-registry",
            "gc-collectors",
            "gc-store",
            "gc-types",
            "gc-workloads",
        ],
    ),
    (
        "gc-inspect",
        &[
            "gc-host",
            "gc-explain",
            "gc-kube",
            "gc-metrics",
            "gc-ownership",
            "gc-process",
            "gc-collectors",
            "gc-registry",
            "gc-types",
        ],
    ),
    (
        "gc-console",
        &[
            "gc-apiserver",
            "gc-collectors",
            "gc-embedded",
            "gc-explain",
            "gc-inspect",
            "gc-kube",
            "gc-process",
            "gc-registry",
            "gc-types",
        ],
    ),
    (
        "gc-recovery",
        &[
            "gc-host",
            "gc-apiserver",
            "gc-collectors",
            "gc-embedded",
            "gc-explain",
            "gc-external",
            "gc-inspect",
            "gc-kube",
            "gc-metrics",
            "gc-process",
            "gc-registry",
            "gc-store",
            "gc-types",
        ],
    ),
    (
        "gc-process",
        &[
            "gc-host",
            "gc-explain",
            "gc-apiserver",
            "gc-kube",
            "gc-metrics",
            "gc-external",
            "gc-ownership",
            "gc-registry",
            "gc-collectors",
            "gc-types",
            "gc-workloads",
        ],
    ),
    ("gc-fuzz-replay", &[]),
    (
        "gc-sim",
        &[
            "gc-types",
            "gc-controller",
            "gc-ownership",
            "gc-collectors",
            "gc-registry",
            "gc-store",
            "gc-workloads",
        ],
    ),
    ("kubegc-bench", &["gc-kube", "gc-types"]),
    ("kubegc-testing", &["gc-embedded", "gc-apiserver"]),
];

/// Returns the names of the packages that a package needs, directly or through others, including itself.
fn reached_by(metadata: &Metadata, root: &str) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let name_of: BTreeMap<_, _> = metadata.packages.iter().map(|p| (&p.id, p.name.to_string())).collect();
    let normal: BTreeMap<_, Vec<_>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let edges = node.deps.iter().filter(|dep| {
                dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal && kind.target.is_none())
            });
            (&node.id, edges.map(|dep| &dep.pkg).collect())
        })
        .collect();
    let start = name_of.iter().find(|(_, name)| name.as_str() == root).unwrap().0;
    let (mut seen, mut queue) = (BTreeSet::new(), vec![*start]);
    while let Some(id) = queue.pop() {
        if seen.insert(name_of[id].clone()) {
            queue.extend(&normal[id]);
        }
    }
    seen
}

#[test]
fn pure_crates_reach_nothing_that_acts() {
    let metadata = MetadataCommand::new().exec().unwrap();
    for root in PURE {
        let seen = reached_by(&metadata, root);
        let reached: Vec<_> = FORBIDDEN.iter().filter(|name| seen.contains(**name)).collect();
        assert!(reached.is_empty(), "{root} reaches {reached:?}");
    }
}

#[test]
fn crates_use_only_the_rooms_below_them() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let ours: BTreeSet<_> = metadata.packages.iter().map(|p| p.name.to_string()).collect();
    // Only the binary may use every room.
    let rooms: BTreeSet<_> = MAY_USE.iter().map(|(name, _)| *name).chain(["kubegc"]).collect();
    let without: Vec<_> = ours.iter().filter(|name| !rooms.contains(name.as_str())).collect();
    assert!(without.is_empty(), "MAY_USE does not say what {without:?} may use");
    for &(name, allowed) in MAY_USE {
        let package = metadata.packages.iter().find(|p| p.name.as_str() == name).unwrap();
        let used: Vec<_> = package
            .dependencies
            .iter()
            .filter(|dep| dep.kind == DependencyKind::Normal && ours.contains(&dep.name))
            .map(|dep| dep.name.as_str())
            .filter(|dep| !allowed.contains(dep))
            .collect();
        assert!(used.is_empty(), "{name} may not use {used:?}");
    }
}

/// Two files may use each other; a larger cycle can only be understood as a whole.
#[test]
fn no_more_than_two_files_of_a_crate_use_one_another() {
    const FILES: usize = 2;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut found, mut errors) = (0, Vec::new());
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let sources = circles::Sources::read(&folder.join("src"));
        let uses = sources.uses();
        found += uses.values().filter(|used| !used.is_empty()).count();
        for circle in circles::circles(&uses).iter().filter(|circle| circle.len() > FILES) {
            let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            errors.push(format!("{name}: {} files use one another: {}", files.len(), files.join(", ")));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    // A scanner that finds nothing would find no cycle, either.
    assert!(found > 500, "only {found} files use others");
}

/// Two modules of a crate's root may use each other, as two files may; a larger cycle is one room with many doors.
#[test]
fn no_more_than_two_folders_of_a_crate_use_one_another() {
    const FOLDERS: usize = 2;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut found, mut errors) = (0, Vec::new());
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let sources = circles::Sources::read(&folder.join("src"));
        let uses = circles::between_folders(&sources.uses());
        found += uses.values().filter(|used| !used.is_empty()).count();
        for circle in circles::circles(&uses).iter().filter(|circle| circle.len() > FOLDERS) {
            let folders: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            errors.push(format!("{name}: {} folders use one another: {}", folders.len(), folders.join(", ")));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(found > 100, "only {found} folders use others");
}

/// Libraries that a user's tests must not have to build: those of terminals, encryption and man pages.
const NOT_FOR_TESTS: [&str; 5] = ["ratatui", "termion", "age", "clap_mangen", "tar"];

#[test]
fn tests_of_users_build_no_terminal_no_encryption_and_no_man_pages() {
    let metadata = MetadataCommand::new().exec().unwrap();
    let reached = reached_by(&metadata, "kubegc-testing");
    let found: Vec<_> = NOT_FOR_TESTS.iter().filter(|name| reached.contains(**name)).collect();
    assert!(found.is_empty(), "kubegc-testing builds {found:?}");
    assert!(reached.contains("gc-embedded"), "it builds what it is about");
}

/// CONTRIBUTING.md: `x.rs` stands beside the directory `x`, and no file is included from elsewhere unless tests share it.
#[test]
fn modules_are_written_in_one_way() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    let crates = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let (mut folders, mut read, mut errors): (Vec<_>, _, _) = (crates.collect(), 0, Vec::new());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                read += 1;
                if path.ends_with("mod.rs") {
                    errors.push(format!("{} is to be {}.rs", path.display(), folder.display()));
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for (before, _) in text.match_indices("#[path").map(|(at, _)| text.split_at(at)) {
                    if !before.trim_end().ends_with("#[cfg(test)]") {
                        errors.push(format!("{} includes a file by #[path]", path.display()));
                    }
                }
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(read > 500, "only {read} files were read");
}

/// Runs the scanner on a crate whose files use one another in every way that it must understand.
#[test]
fn circles_are_found_in_text() {
    let folder = std::env::temp_dir().join(format!("kubegc-circles-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    for (file, text) in [
        (
            "lib.rs",
            "mod deep; mod first; mod second; mod third; mod alone; mod names; mod last; pub use deep::leaf::Leaf;",
        ),
        ("first.rs", "use crate::{second::Two as Number, third};\nfn f(n: Number) { third::g(n) }"),
        ("second.rs", "pub use crate::alone::One;\npub struct Two;\nfn f() { crate::third::g() }"),
        (
            "third.rs",
            "// use crate::alone;\npub fn g() { let text = \"crate::alone::One\"; super::deep::h() }",
        ),
        (
            "deep.rs",
            "pub mod leaf;\nuse crate::second::Two;\npub fn h() { let quote = '\"'; crate::first::f() }",
        ),
        (
            "deep/leaf.rs",
            "use super::{Two, h};\npub struct Leaf;\n#[cfg(test)]\nmod tests { use crate::alone::One; }",
        ),
        ("alone.rs", "use crate::Leaf;\npub struct One<'a>(&'a Leaf);"),
        ("names.rs", "pub use crate::{alone::One, second::Two as Number, third::g};"),
        ("last.rs", "use super::names::*;\nfn f(n: Number) { g(n) }"),
    ] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let sources = circles::Sources::read(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
    let uses = sources.uses();
    let listed: Vec<String> = uses
        .iter()
        .flat_map(|(module, used)| {
            used.iter().map(|other| format!("{} {}", module.join("::"), other.join("::")))
        })
        .collect();
    let expected = [
        "alone deep::leaf",
        "deep first",
        "deep second",
        "deep::leaf second",
        "first second",
        "first third",
        "last names",
        "last second",
        "last third",
        "second third",
        "third deep",
    ];
    assert_eq!(listed, expected);
    let circles: Vec<Vec<String>> = circles::circles(&uses)
        .iter()
        .map(|circle| circle.iter().map(|module| module.join("::")).collect())
        .collect();
    assert_eq!(circles, [["deep", "first", "second", "third"]]);
}

/// Returns a label such as `L01`, `S14` or `CSI-7`.
fn is_label(text: &str) -> bool {
    let letters = text.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    letters.len() < text.len() && !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// docs/defects.md lists each limit of upstream once, in order, with an existing test or with the reason why it remains.
#[test]
fn every_known_limit_of_upstream_has_its_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/defects.md")).unwrap();
    let mut limits = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let labels = cells[0].split(", ").filter(|label| is_label(label)).map(str::to_owned);
        limits.extend(labels);
        match cells.as_slice() {
            [limit, _, _, test] if is_label(limit) => {
                let (file, name) = test.trim_matches('`').split_once("`: `").unwrap();
                let source = std::fs::read_to_string(root.join("crates").join(file)).unwrap();
                assert!(source.contains(name), "{limit}: {file} has no {name}");
            }
            [_, why] => assert!(!why.is_empty(), "{row}"),
            cells => assert!(!is_label(cells[0]), "{row}"),
        }
    }
    let known = [
        ("AL-", 3),
        ("CJ-", 5),
        ("CNL-", 7),
        ("CSI-", 8),
        ("CSR-", 7),
        ("DEP-", 2),
        ("EPS-", 2),
        ("EV-", 1),
        ("NL-", 2),
        ("NS-", 10),
        ("PCR-", 2),
        ("POD-", 10),
        ("PV-", 12),
        ("PVC-", 4),
        ("PVP-", 1),
        ("SAT-", 6),
        ("SV-", 4),
        ("TTL-", 7),
    ];
    let mut expected: Vec<String> = (1..=31).map(|number| format!("L{number:02}")).collect();
    expected.extend((1..=20).map(|number| format!("S{number:02}")));
    expected.extend(
        known.iter().flat_map(|(name, count)| (1..=*count).map(move |number| format!("{name}{number}"))),
    );
    limits.sort();
    expected.sort();
    assert_eq!(limits, expected);
}

/// docs/reasons.md lists every code with its message, and nothing else.
#[test]
fn every_reason_is_documented() {
    use std::fmt::Write as _;
    let mut tables = [String::new(), String::new(), String::new()];
    for verdict in gc_types::Verdict::OWNERSHIP {
        writeln!(tables[0], "| `{}` | {} |", verdict.code(), verdict.message()).unwrap();
    }
    for (code, message) in gc_types::codes::RETENTION {
        writeln!(tables[1], "| `{code}` | {message} |").unwrap();
    }
    for code in gc_explain::stuck::Code::ALL {
        writeln!(tables[2], "| `{}` | {} |", code.name(), code.meaning()).unwrap();
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/reasons.md")).unwrap();
    let documented: Vec<&str> =
        text.split("|---|---|\n").skip(1).map(|rest| rest.split("\n\n").next().unwrap()).collect();
    let documented: Vec<String> = documented.iter().map(|table| format!("{}\n", table.trim_end())).collect();
    assert_eq!(documented, tables);
}
