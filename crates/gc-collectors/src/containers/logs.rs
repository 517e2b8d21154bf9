//! Pod log directories, container logs and dead links (spec `node-gc.md`, sections 11 and 12.1).
//!
//! Decides by names only; the adapter never follows a link, and deletes only what is named here.

use std::collections::BTreeSet;

use gc_types::{GoDuration, UnixNanoseconds};

use super::pods::{PodStanding, PodView, RunningContainers};
use super::{ContainerState, PodUid};

/// Maximum length of a link's file name.
pub const MAX_FILE_NAME_BYTES: usize = 255;
/// Minimum length of a (truncated) container identifier in the name of a link.
const MIN_CONTAINER_ID_LENGTH: usize = 6;

/// One entry of the pod log root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// File name.
    pub name: String,
    /// True if it is a real directory (not a file, not a link).
    pub is_directory: bool,
    /// Time of the last change.
    pub modified_at: UnixNanoseconds,
}

/// Returns the pod that a directory of the log root belongs to: `<namespace>_<pod>_<uid>` or `<uid>`, where the UID has a valid
/// form (RFC 4122 text, or the 32 hexadecimal digits of a static pod). Anything else belongs to no pod.
#[must_use]
pub fn pod_of_log_directory(name: &str) -> Option<PodUid> {
    let uid = match *name.split('_').collect::<Vec<_>>() {
        [uid] => uid,
        [namespace, pod, uid] if !namespace.is_empty() && !pod.is_empty() => uid,
        _ => return None,
    };
    looks_like_a_uid(uid).then(|| PodUid::new(uid)).flatten()
}

fn looks_like_a_uid(text: &str) -> bool {
    let hexadecimal = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    (lengths == [32] || lengths == [8, 4, 4, 4, 12]) && text.split('-').all(hexadecimal)
}

/// Returns the entries of the pod log root to remove: directories of deleted pods to which nothing listed belongs, and which have
/// not changed for `minimum_age`.
#[must_use]
pub fn plan_directories<'a>(
    entries: &'a [LogEntry],
    pods: &PodView,
    running: &RunningContainers,
    listed: &BTreeSet<PodUid>,
    minimum_age: GoDuration,
    now: UnixNanoseconds,
) -> Vec<&'a str> {
    let is_removed = |entry: &&LogEntry| {
        entry.is_directory
            && now.since(entry.modified_at) >= minimum_age
            && pod_of_log_directory(&entry.name).is_some_and(|pod| {
                !listed.contains(&pod) && pods.standing(&pod, running, now) == PodStanding::Gone
            })
    };
    entries.iter().filter(is_removed).map(|entry| entry.name.as_str()).collect()
}

/// Returns the (possibly truncated) container identifier in the name of a legacy link.
#[must_use]
pub fn container_of_link(file_name: &str) -> Option<&str> {
    let (_, id) = file_name.strip_suffix(".log")?.rsplit_once('-')?;
    (id.len() >= MIN_CONTAINER_ID_LENGTH).then_some(id)
}

/// Returns the name of the legacy link of a container, with a truncated identifier if it would be too long.
#[must_use]
pub fn link_name(pod: &str, namespace: &str, container: &str, container_id: &str) -> String {
    let mut name = format!("{pod}_{namespace}_{container}-{container_id}");
    let mut end = name.len().min(MAX_FILE_NAME_BYTES - ".log".len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name + ".log"
}

/// The runtime's answer about the container of a dead link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Does not know the container.
    NotFound,
    /// Knows the container.
    Found(ContainerState),
    /// Could not tell (unreachable, an ambiguous identifier, …).
    Failed,
}

/// Reports whether to remove a link whose target does not exist. Only a definite answer removes it: log rotation leaves a moment
/// without a target, and a runtime that does not answer proves nothing.
#[must_use]
pub fn removes_dead_link(lookup: Lookup) -> bool {
    matches!(lookup, Lookup::NotFound | Lookup::Found(ContainerState::Exited))
}

/// Selects from the names in a directory the files of one container log: the log and its rotations. `log_path` must be absolute,
/// normalized and below `root`; otherwise nothing is removed.
#[must_use]
pub fn files_of_log<'a>(log_path: &str, root: &str, names: &'a [String]) -> Vec<&'a str> {
    let Some(below) =
        log_path.strip_prefix(root.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'))
    else {
        return Vec::new();
    };
    let normal = below.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let Some((_, file)) = below.rsplit_once('/').filter(|_| normal && root.starts_with('/')) else {
        return Vec::new();
    };
    let belongs =
        |name: &str| name.strip_prefix(file).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    names.iter().map(String::as_str).filter(|name| belongs(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pods::OracleState;
    use super::super::pods::testing::{uid, view};
    use super::*;
    use proptest::prelude::*;

    const GONE: &str = "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6";
    const STATIC: &str = "0123456789abcdef0123456789abcdef";
    const LIVE: &str = "11111111-2222-3333-4444-555555555555";

    fn entry(name: &str) -> LogEntry {
        LogEntry { name: name.into(), is_directory: true, modified_at: UnixNanoseconds(0) }
    }

    /// T93, T94, T97 and T98.
    #[test]
    fn only_directories_of_deleted_pods_are_removed() {
        let (current, old_style) = (format!("ns_pod_{GONE}"), GONE);
        let hashed = format!("kube-system_etcd_{STATIC}");
        let mut entries: Vec<_> = [
            &current,
            old_style,
            &hashed,
            &format!("ns_pod_{LIVE}"),
            LIVE,
            "README",
            "backup",
            "ns_pod_..",
            "ns_pod_123",
            "",
            &format!("_pod_{GONE}"),
            &format!("a_b_c_{GONE}"),
            &GONE.to_uppercase(),
        ]
        .iter()
        .map(|name| entry(name))
        .collect();
        entries.push(LogEntry { is_directory: false, ..entry(&format!("ns_link_{GONE}")) });
        entries.push(LogEntry { modified_at: UnixNanoseconds(95), ..entry(&format!("ns_young_{GONE}")) });
        let strangers = ["README", "backup", "..", "123", &GONE.to_uppercase()];
        let mut pods = view(&[LIVE], &[], &[&[GONE, STATIC][..], &strangers].concat());
        let plan = |pods: &PodView, listed: &[&str]| -> Vec<String> {
            let listed = listed.iter().map(|name| uid(name)).collect();
            let (running, now) = (RunningContainers::default(), UnixNanoseconds(100));
            plan_directories(&entries, pods, &running, &listed, GoDuration(10), now)
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(plan(&pods, &[]), [&current, old_style, &hashed]);
        assert_eq!(plan(&pods, &[GONE]), [&*hashed], "a sandbox or container of it is still listed");
        pods.state = OracleState::Standalone;
        assert!(plan(&pods, &[]).is_empty());
    }

    /// T100 to T103.
    #[test]
    fn a_dead_link_is_removed_only_when_its_container_is_surely_dead() {
        for (lookup, is_removed) in [
            (Lookup::NotFound, true),
            (Lookup::Found(ContainerState::Exited), true),
            (Lookup::Found(ContainerState::Running), false),
            (Lookup::Found(ContainerState::Created), false),
            (Lookup::Found(ContainerState::Unknown), false),
            (Lookup::Failed, false),
        ] {
            assert_eq!(removes_dead_link(lookup), is_removed, "{lookup:?}");
        }
        for (name, id) in [
            ("dummy.log", None),
            ("pod_ns_c-abcdef.txt", None),
            ("pod_ns_c-abcde.log", None),
            ("pod_ns_my-app-abcdef.log", Some("abcdef")),
            ("", None),
        ] {
            assert_eq!(container_of_link(name), id, "{name}");
        }
    }

    /// T105 and the last case of T103: the identifier is truncated to fit.
    #[test]
    fn a_link_name_fits() {
        let id = "f".repeat(64);
        assert_eq!(link_name("p", "n", "c", &id), format!("p_n_c-{id}.log"));
        let long = link_name(&"p".repeat(100), &"n".repeat(63), &"c".repeat(45), &id);
        assert_eq!(long.len(), MAX_FILE_NAME_BYTES);
        assert_eq!(container_of_link(&long).map(str::len), Some(40));
        // It does not end within a letter.
        let letters = link_name(&"ä".repeat(125), "n", "c", &"é".repeat(64));
        assert_eq!((letters.len(), letters.ends_with("éé.log")), (MAX_FILE_NAME_BYTES, false));
        let shorter = link_name(&format!("x{}", "ä".repeat(120)), "n", "c", &"é".repeat(64));
        assert_eq!((shorter.len(), shorter.ends_with("éé.log")), (MAX_FILE_NAME_BYTES - 1, true));
    }

    /// T106 to T109.
    #[test]
    fn the_files_of_a_log_are_the_log_and_its_rotations() {
        let names: Vec<String> =
            ["0.log", "0.log.20260101-000000", "0.log.20260101-000000.gz", "0.logs", "10.log", "1.log"]
                .map(String::from)
                .into();
        let root = "/var/log/pods";
        let of = |path: &str| files_of_log(path, root, &names);
        assert_eq!(of("/var/log/pods/n_p_u/c/0.log"), names[..3].iter().collect::<Vec<_>>());
        for path in [
            "",
            "0.log",
            "/0.log",
            "/var/log/pods",
            "/var/log/pods/0.log",
            "/var/log/podsx/c/0.log",
            "/var/log/pods/../c/0.log",
            "/var/log/pods/c/./0.log",
            "/var/log/pods/c//0.log",
            "/etc/c/0.log",
            "/var/log/pods/c/",
        ] {
            assert!(of(path).is_empty(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_name_panics_and_a_link_name_reads_back(
            pod in "[a-z0-9.-]{1,120}", name in "\\PC{0,40}", container in "[a-z0-9-]{1,63}", id in "[0-9a-f]{64}",
        ) {
            let _ = (pod_of_log_directory(&name), container_of_link(&name));
            let link = link_name(&pod, "ns", &container, &id);
            prop_assert!(link.len() <= MAX_FILE_NAME_BYTES);
            if let Some(found) = container_of_link(&link) { prop_assert!(id.starts_with(found)); }
        }
    }
}
