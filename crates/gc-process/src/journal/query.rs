//! Queries of a journal, and reading of its files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::entry::{OUTCOMES, VERBS, collectors};
use super::file::numbered;
use crate::UsageError;
use crate::lines::{Line, Lines};

/// Maximum number of older files that are searched for.
const OLDER_FILES: u32 = 10_000;
/// Length above which a line cannot be a journal entry.
pub const LONGEST_LINE_BYTES: usize = 4 << 20;
/// Maximum number of returned entries unless another number is given.
pub(super) const DEFAULT_TAIL: usize = 1_000;

/// Selection of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only entries from this time on.
    pub since: Option<Timestamp>,
    /// Only entries about this object.
    pub object: Option<Object>,
    /// Only entries about objects in this namespace.
    pub namespace: Option<String>,
    /// Only entries about this resource, by its plural name.
    pub resource: Option<String>,
    /// Only entries with this outcome, a word of [`OUTCOMES`](super::OUTCOMES).
    pub outcome: Option<String>,
    /// Only entries with this verb, a word of [`VERBS`](super::VERBS).
    pub verb: Option<String>,
    /// Only entries of this collector.
    pub controller: Option<String>,
    /// Server that the entries are about, for a journal that several servers may share.
    pub server: Option<String>,
    /// Only entries before the one with this number.
    pub before: Option<u64>,
    /// True if barriers, which change nothing, are left out.
    pub without_barriers: bool,
}

/// Selection of entries, and their maximum number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Query that entries must match.
    pub query: Query,
    /// Maximum number of entries, the newest of all matches; 0 means all.
    pub tail: usize,
    /// Maximum total size of their lines, again of the newest.
    pub largest_bytes: usize,
}

impl Default for Selection {
    fn default() -> Self {
        Self { query: Query::default(), tail: DEFAULT_TAIL, largest_bytes: usize::MAX }
    }
}

/// kubectl's short names of built-in resources.
const SHORT_NAMES: [(&str, &str); 28] = [
    ("cj", "cronjobs.batch"),
    ("cm", "configmaps"),
    ("crd", "customresourcedefinitions.apiextensions.k8s.io"),
    ("crds", "customresourcedefinitions.apiextensions.k8s.io"),
    ("cs", "componentstatuses"),
    ("csr", "certificatesigningrequests.certificates.k8s.io"),
    ("deploy", "deployments.apps"),
    ("ds", "daemonsets.apps"),
    ("ep", "endpoints"),
    ("ev", "events"),
    ("hpa", "horizontalpodautoscalers.autoscaling"),
    ("ing", "ingresses.networking.k8s.io"),
    ("limits", "limitranges"),
    ("netpol", "networkpolicies.networking.k8s.io"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pc", "priorityclasses.scheduling.k8s.io"),
    ("pdb", "poddisruptionbudgets.policy"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("quota", "resourcequotas"),
    ("rc", "replicationcontrollers"),
    ("rs", "replicasets.apps"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses.storage.k8s.io"),
    ("sts", "statefulsets.apps"),
    ("svc", "services"),
];

/// Returns a resource's name in lower case, with kubectl's short names expanded.
#[must_use]
pub fn long_name(called: &str) -> String {
    let called = called.to_lowercase();
    let long = SHORT_NAMES.iter().find(|(short, _)| *short == called).map(|(_, long)| (*long).to_owned());
    long.unwrap_or(called)
}

/// An object as users name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// Named by kind and name.
    Named {
        /// Namespace, if one was given.
        namespace: Option<String>,
        /// Plural resource name if it is known, else the given word.
        kind: String,
        /// Name of the object.
        name: String,
    },
    /// Named by UID.
    Uid(String),
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uid(uid) => f.write_str(uid),
            Self::Named { namespace: None, kind, name } => write!(f, "{kind}/{name}"),
            Self::Named { namespace: Some(namespace), kind, name } => write!(f, "{namespace}/{kind}/{name}"),
        }
    }
}

impl Object {
    /// Parses `[NAMESPACE/]KIND/NAME` or a UID.
    pub fn parse(text: &str) -> Result<Self, UsageError> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            _ if parts.iter().any(|part| part.is_empty()) => {}
            [uid] => return Ok(Self::Uid((*uid).to_owned())),
            [kind, name] => return Ok(Self::named(None, kind, name)),
            [namespace, kind, name] => return Ok(Self::named(Some(namespace), kind, name)),
            _ => {}
        }
        Err(UsageError::new(format!(
            "object {text:?}: expected [NAMESPACE/]KIND/NAME, such as shop/pod/web-1, or a UID"
        )))
    }

    /// Creates the object of a kind and name; short names of kinds are expanded.
    pub fn named(namespace: Option<&str>, kind: &str, name: &str) -> Self {
        let namespace = namespace.map(str::to_owned);
        Self::Named { namespace, kind: long_name(kind), name: name.to_owned() }
    }

    fn matches(&self, entry: &Value) -> bool {
        match self {
            Self::Uid(uid) => entry["uid"] == uid.as_str(),
            Self::Named { namespace, kind, name } => {
                entry["name"] == name.as_str()
                    && namespace.as_ref().is_none_or(|namespace| entry["namespace"] == namespace.as_str())
                    && is_called(kind, entry)
            }
        }
    }
}

/// Reports whether an entry's resource has this name: its plural name or its kind, with or without the group.
fn is_called(kind: &str, entry: &Value) -> bool {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_lowercase();
    let resource = text("resource");
    let (plural, group) = resource.split_once('.').unwrap_or((&resource, ""));
    let (name, asked_group) = match kind.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (kind, None),
    };
    asked_group.is_none_or(|asked| asked == group) && (name == plural || name == text("kind"))
}

impl Query {
    /// Sets one parameter of a request; `None` if none has this name.
    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), UsageError>> {
        let text = || Some(value.to_owned());
        let known: Vec<&str> = match name {
            "outcome" => OUTCOMES.to_vec(),
            "verb" => VERBS.to_vec(),
            "controller" => collectors().collect(),
            _ => Vec::new(),
        };
        if !known.is_empty() && !known.contains(&value) {
            let expected = known.join(", ");
            return Some(Err(UsageError::new(format!("{name}={value}: expected one of {expected}"))));
        }
        match name {
            "namespace" => self.namespace = text(),
            "resource" => self.resource = Some(long_name(value)),
            "outcome" => self.outcome = text(),
            "verb" => {
                self.without_barriers = false;
                self.verb = text();
            }
            "controller" => self.controller = text(),
            "server" => self.server = text(),
            "object" => match Object::parse(value) {
                Ok(object) => self.object = Some(object),
                Err(error) => return Some(Err(error)),
            },
            "since" => match value.parse() {
                Ok(since) => self.since = Some(since),
                Err(error) => return Some(Err(UsageError::new(format!("since={value}: {error}")))),
            },
            "before" => match value.parse() {
                Ok(number) => self.before = Some(number),
                Err(_) => {
                    let message = format!("before={value}: expected the number of an entry");
                    return Some(Err(UsageError::new(message)));
                }
            },
            "barriers" => match value.parse::<bool>() {
                Ok(shown) => self.without_barriers = !shown,
                Err(_) => {
                    return Some(Err(UsageError::new(format!("barriers={value}: expected true or false"))));
                }
            },
            _ => return None,
        }
        Some(Ok(()))
    }

    /// Returns the request parameters that express the same query.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("namespace", &self.namespace),
            ("resource", &self.resource),
            ("outcome", &self.outcome),
            ("verb", &self.verb),
            ("controller", &self.controller),
            ("server", &self.server),
        ];
        let mut all: Vec<(&'static str, String)> =
            texts.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        all.extend(self.object.as_ref().map(|object| ("object", object.to_string())));
        all.extend(self.since.map(|since| ("since", since.to_string())));
        all.extend(self.before.map(|number| ("before", number.to_string())));
        all.push(("barriers", (!self.without_barriers).to_string()));
        all
    }

    /// Returns the name of the requested resource, if the query has one.
    pub fn resource_name(&mut self) -> Option<&mut String> {
        match &mut self.object {
            Some(Object::Named { kind, .. }) => Some(kind),
            Some(Object::Uid(_)) | None => self.resource.as_mut(),
        }
    }

    /// Reports whether an entry matches the query.
    #[must_use]
    pub fn matches(&self, entry: &Value) -> bool {
        let is = |field: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| entry[field] == wanted.as_str())
        };
        let is_recent = |since: &Timestamp| {
            entry["time"]
                .as_str()
                .and_then(|text| text.parse::<Timestamp>().ok())
                .is_some_and(|at| at >= *since)
        };
        !(self.without_barriers && text(entry, "verb") == "barrier")
            && is("namespace", &self.namespace)
            && is("outcome", &self.outcome)
            && is("verb", &self.verb)
            && is("controller", &self.controller)
            && is("server", &self.server)
            && self.resource.as_ref().is_none_or(|resource| is_called(resource, entry))
            && self.object.as_ref().is_none_or(|object| object.matches(entry))
            && self.since.as_ref().is_none_or(is_recent)
            && self.before.is_none_or(|number| entry["number"].as_u64().is_some_and(|own| own < number))
    }

    /// Returns a text that is contained in every matching line, so other lines need not be parsed.
    fn needle(&self) -> Option<String> {
        let wanted = match self.object.as_ref()? {
            Object::Uid(uid) => uid,
            Object::Named { name, .. } => name,
        };
        let quoted = Value::String(wanted.clone()).to_string();
        // A name that is written with escapes could not be found by its text.
        (quoted.len() == wanted.len() + 2).then_some(quoted)
    }
}

impl Selection {
    /// Reads the parameters of a request, and passes those that do not concern entries to `other`.
    pub fn of_parameters(
        parameters: &[(String, String)],
        mut other: impl FnMut(&str, &str) -> Option<Result<(), UsageError>>,
    ) -> Result<Self, UsageError> {
        let mut selection =
            Self { query: Query { without_barriers: true, ..Query::default() }, ..Self::default() };
        for (name, value) in parameters {
            let set = match name.as_str() {
                "tail" => Some(match value.parse() {
                    Ok(tail) => {
                        selection.tail = tail;
                        Ok(())
                    }
                    Err(_) => Err(UsageError::new(format!("tail={value}: expected a number of entries"))),
                }),
                name => selection.query.set(name, value).or_else(|| other(name, value)),
            };
            set.unwrap_or_else(|| {
                Err(UsageError::new(format!(
                    "{name} is not known; expected namespace, resource, object, outcome, verb, controller, since, \
                     server, barriers, tail, before, follow or after"
                )))
            })?;
        }
        Ok(selection)
    }

    /// Returns the query string that expresses the same selection.
    #[must_use]
    pub fn query_string(&self) -> String {
        let mut text = format!("tail={}", self.tail);
        for (name, value) in self.query.parameters() {
            text.push('&');
            text.push_str(name);
            text.push('=');
            gc_kube::push_segment(&mut text, &value);
        }
        text
    }
}

/// Result of a query.
#[derive(Debug, Default)]
pub struct Found {
    /// Entries, oldest first.
    pub entries: VecDeque<Value>,
    /// Number of older matches that were left out.
    pub left_out: usize,
    /// Number of entries, matching or not, that were only in memory and have made room for newer ones.
    pub no_longer_kept: u64,
    /// Number of lines that are not entries, apart from the torn last lines of files.
    pub unreadable: usize,
    /// Reasons why files could not be read.
    pub failures: Vec<String>,
    /// Lengths of the entries' lines, and their sum.
    lengths: VecDeque<usize>,
    bytes: usize,
}

impl Found {
    /// Creates the result with these entries.
    #[must_use]
    pub fn of(entries: VecDeque<Value>) -> Self {
        Self { entries, ..Self::default() }
    }

    /// Takes a match, and drops the oldest entries if there are too many.
    fn take(&mut self, entry: Value, length: usize, selection: &Selection) {
        self.entries.push_back(entry);
        self.lengths.push_back(length);
        self.bytes += length;
        let Selection { tail, largest_bytes, .. } = *selection;
        let is_too_much =
            |found: &Self| (tail > 0 && found.entries.len() > tail) || found.bytes > largest_bytes;
        while self.entries.len() > 1 && is_too_much(self) {
            self.entries.pop_front();
            self.bytes -= self.lengths.pop_front().unwrap_or_default();
            self.left_out += 1;
        }
    }

    /// Adds the result of a query for entries older than the oldest.
    pub fn extend_back(&mut self, older: Self) {
        self.left_out = older.left_out;
        self.unreadable = older.unreadable;
        let newer = std::mem::replace(&mut self.entries, older.entries);
        self.entries.extend(newer);
    }

    /// Adds those of these lines that match and are not in the result yet.
    pub(super) fn complete(&mut self, lines: &[Arc<str>], selection: &Selection) {
        for line in lines {
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            let is_new = self.entries.iter().rev().all(|known| known["number"] != entry["number"]);
            if is_new && selection.query.matches(&entry) {
                self.take(entry, line.len(), selection);
            }
        }
    }
}

/// Reads a journal and its older files, oldest first, and keeps the newest matches.
pub fn search(journal: &Path, selection: &Selection) -> Result<Found> {
    let older = (1..=OLDER_FILES).map(|number| numbered(journal, number));
    let mut files: Vec<PathBuf> = older.take_while(|file| file.exists()).collect();
    files.reverse();
    files.push(journal.to_owned());
    let mut found = Found::default();
    for file in files {
        let opened = match File::open(&file) {
            Ok(opened) => opened,
            // The file was rotated between the listing and the opening; its content is now in the next file.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file != journal => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        scan(BufReader::new(opened), selection, &mut found)
            .with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(found)
}

/// Reads the lines of one file.
pub fn scan(lines: impl std::io::BufRead, selection: &Selection, found: &mut Found) -> Result<()> {
    let needle = selection.query.needle();
    let mut lines = Lines::new(lines, LONGEST_LINE_BYTES);
    while let Some(line) = lines.next()? {
        let is_torn = matches!(line, Line::Torn(_));
        let text = line.text().unwrap_or_default();
        // A line that cannot match need not be parsed, unless it may not be an entry at all.
        if !is_torn && text.starts_with(b"{") && needle.as_ref().is_some_and(|needle| !contains(text, needle))
        {
            continue;
        }
        match serde_json::from_slice::<Value>(text) {
            Ok(entry) if entry.is_object() => {
                if selection.query.matches(&entry) {
                    found.take(entry, text.len(), selection);
                }
            }
            // The writer was killed in the middle of its last line.
            _ if is_torn => {}
            _ => found.unreadable += 1,
        }
    }
    Ok(())
}

fn contains(line: &[u8], needle: &str) -> bool {
    std::str::from_utf8(line).is_ok_and(|line| line.contains(needle))
}

/// Returns the text of a field; empty if it is missing.
#[must_use]
pub fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use serde_json::json;

    use super::*;

    fn entry(number: u32, name: &str, verb: &str, outcome: &str) -> Value {
        json!({
            "time": format!("2026-09-21T14:0{number}:00.000000Z"), "verb": verb, "resource": "replicasets.apps",
            "kind": "ReplicaSet", "namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "outcome": outcome, "verdict": "OwnersAbsent", "message": "every owner is absent", "durationSeconds": 0.0021, "requests": 1,
            "owners": [{"kind": "Deployment", "name": "web", "uid": "u"}], "evidence": ["owner u: removal seen"],
        })
    }

    fn journal() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let lines = |entries: &[Value]| {
            entries.iter().flat_map(|entry| [entry.to_string(), "\n".to_owned()]).collect::<String>()
        };
        std::fs::write(folder.path().join("journal.2"), lines(&[entry(1, "a", "delete", "conflict")]))
            .unwrap();
        // A rotated file can also end with a torn line: the process was killed and another one rotated the file.
        let torn = lines(&[entry(2, "a", "delete", "applied")]) + "{\"time\":\"2026-";
        std::fs::write(folder.path().join("journal.1"), torn).unwrap();
        let last = lines(&[entry(3, "b", "set-owners", "applied")])
            + "not json\n[]\n"
            + &lines(&[entry(4, "b", "delete", "refused")])
            + "{\"torn";
        std::fs::write(&file, last).unwrap();
        (folder, file)
    }

    fn found(file: &Path, query: &Query, tail: usize) -> Vec<String> {
        let selection = Selection { query: query.clone(), tail, ..Selection::default() };
        let found = search(file, &selection).unwrap();
        found
            .entries
            .iter()
            .map(|entry| format!("{} {}", text(entry, "name"), text(entry, "outcome")))
            .collect()
    }

    #[test]
    fn entries_are_found_by_what_they_are_about() {
        let (_folder, file) = journal();
        let all = ["a conflict", "a applied", "b applied", "b refused"];
        let of = |text: &str| Query { object: Some(Object::parse(text).unwrap()), ..Query::default() };
        let time = |text: &str| Query { since: Some(text.parse().unwrap()), ..Query::default() };
        for (query, expected) in [
            (Query::default(), &all[..]),
            (of("shop/replicaset/a"), &all[..2]),
            (of("rs/a"), &all[..2]),
            (of("ReplicaSet/a"), &all[..2]),
            (of("replicasets.apps/a"), &all[..2]),
            (of("replicasets.extensions/a"), &[]),
            (of("other/rs/a"), &[]),
            (of("pod/a"), &[]),
            (of("uid-b"), &all[2..]),
            (Query { outcome: Some("applied".into()), ..Query::default() }, &all[1..3]),
            (
                Query { verb: Some("delete".into()), outcome: Some("applied".into()), ..Query::default() },
                &all[1..2],
            ),
            (Query { resource: Some("replicasets".into()), ..Query::default() }, &all),
            (Query { resource: Some("pods".into()), ..Query::default() }, &[]),
            (Query { namespace: Some("shop".into()), ..Query::default() }, &all),
            (Query { namespace: Some("x".into()), ..Query::default() }, &[]),
            (time("2026-09-21T14:03:00Z"), &all[2..]),
            (time("2026-09-21T16:04:00+02:00"), &all[3..]),
        ] {
            assert_eq!(found(&file, &query, 0), expected, "{query:?}");
        }
        let of_tail = |tail| Selection { tail, ..Selection::default() };
        assert_eq!(found(&file, &Query::default(), 1), ["b refused"]);
        let search = search(&file, &of_tail(1)).unwrap();
        assert_eq!((search.left_out, search.unreadable), (3, 2));
        assert!(super::search(Path::new("/nowhere/journal"), &of_tail(0)).is_err());
    }

    #[test]
    fn short_names_are_sorted_and_listed_once() {
        assert!(SHORT_NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn objects_are_named_in_three_ways() {
        for text in ["", "/", "a//b", "a/b/c/d", "shop/"] {
            assert!(Object::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn barriers_are_left_out_unless_they_are_asked_for() {
        let barrier = entry(1, "a", "barrier", "applied");
        let without = Query { without_barriers: true, ..Query::default() };
        assert!(Query::default().matches(&barrier) && !without.matches(&barrier));
        assert!(without.matches(&entry(1, "a", "delete", "applied")));
    }

    #[test]
    fn a_line_that_is_too_long_is_counted_once() {
        let whole = entry(1, "a", "delete", "applied").to_string();
        let lines = format!("{}\n{whole}\n", "x".repeat(2 * LONGEST_LINE_BYTES + 10));
        let mut found = Found::default();
        scan(lines.as_bytes(), &Selection::default(), &mut found).unwrap();
        assert_eq!((found.entries.len(), found.unreadable), (1, 1));
    }

    #[test]
    fn answers_are_bounded_by_their_size() {
        let mut found = Found::default();
        let line = entry(1, "a", "delete", "applied").to_string() + "\n";
        let lines = line.repeat(5);
        let selection = Selection { largest_bytes: 2 * line.len(), tail: 0, ..Selection::default() };
        scan(lines.as_bytes(), &selection, &mut found).unwrap();
        assert_eq!((found.entries.len(), found.left_out), (2, 3));
    }
}
