//! Difference of two values in the format of kube-apiserver's error messages: a unified diff of their printed forms, with the hunks
//! that Python's difflib finds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use crate::schema::shown::ShownValue;

/// Number of unchanged lines around each change.
const CONTEXT: usize = 3;
/// Maximum number of lines in a compared value, because a client determines its size. Larger ones are refused without a diff.
const LINES_MAX: usize = 2_000;
/// Number of lines from which frequent lines are not used as anchors.
const POPULAR_FROM: usize = 200;

/// Returns the unified diff of two values; empty if they print the same, or are too large.
pub(crate) fn unified(old: &ShownValue, new: &ShownValue) -> String {
    let (old, new) = (old.pretty(), new.pretty());
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    if old.len() > LINES_MAX || new.len() > LINES_MAX || old == new {
        return String::new();
    }
    let mut out = String::new();
    for hunk in hunks(&opcodes(&old, &new)) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let _ = writeln!(
            out,
            "@@ -{} +{} @@",
            range(&(first.old.start..last.old.end)),
            range(&(first.new.start..last.new.end))
        );
        for part in &hunk {
            if part.equal {
                part.old.clone().for_each(|line| write_line(&mut out, ' ', old[line]));
            } else {
                part.old.clone().for_each(|line| write_line(&mut out, '-', old[line]));
                part.new.clone().for_each(|line| write_line(&mut out, '+', new[line]));
            }
        }
    }
    out
}

fn write_line(out: &mut String, mark: char, line: &str) {
    out.push(mark);
    out.push_str(line);
    out.push('\n');
}

/// Formats a range of lines in the head of a hunk.
fn range(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        length => format!("{},{length}", lines.start + 1),
    }
}

/// Lines that are equal, or that replace each other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    equal: bool,
    old: Range<usize>,
    new: Range<usize>,
}

fn opcodes(old: &[&str], new: &[&str]) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (at_old, at_new, size) in matching_blocks(old, new) {
        if i < at_old || j < at_new {
            parts.push(Part { equal: false, old: i..at_old, new: j..at_new });
        }
        if size > 0 {
            parts.push(Part { equal: true, old: at_old..at_old + size, new: at_new..at_new + size });
        }
        (i, j) = (at_old + size, at_new + size);
    }
    parts
}

/// Groups the changes with their surrounding lines; nearby changes share a hunk.
fn hunks(parts: &[Part]) -> Vec<Vec<Part>> {
    let mut parts = parts.to_vec();
    if let Some(first) = parts.first_mut().filter(|part| part.equal) {
        first.old.start = first.old.start.max(first.old.end.saturating_sub(CONTEXT));
        first.new.start = first.new.start.max(first.new.end.saturating_sub(CONTEXT));
    }
    if let Some(last) = parts.last_mut().filter(|part| part.equal) {
        last.old.end = last.old.end.min(last.old.start + CONTEXT);
        last.new.end = last.new.end.min(last.new.start + CONTEXT);
    }
    let (mut hunks, mut hunk) = (Vec::new(), Vec::new());
    for part in parts {
        if part.equal && part.old.len() > 2 * CONTEXT {
            let (old, new) = (part.old.clone(), part.new.clone());
            hunk.push(Part {
                equal: true,
                old: old.start..old.start + CONTEXT,
                new: new.start..new.start + CONTEXT,
            });
            hunks.push(std::mem::take(&mut hunk));
            hunk.push(Part { equal: true, old: old.end - CONTEXT..old.end, new: new.end - CONTEXT..new.end });
        } else {
            hunk.push(part);
        }
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|part| !part.equal));
    hunks
}

/// Returns runs of equal lines, in order, followed by an empty one.
fn matching_blocks(old: &[&str], new: &[&str]) -> Vec<(usize, usize, usize)> {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if new.len() >= POPULAR_FROM {
        let most = new.len() / 100 + 1;
        places.retain(|_, lines| lines.len() <= most);
    }
    let mut blocks = Vec::new();
    let mut todo = vec![(0..old.len(), 0..new.len())];
    while let Some((in_old, in_new)) = todo.pop() {
        let (i, j, size) = longest_match(old, new, &places, &in_old, &in_new);
        if size == 0 {
            continue;
        }
        blocks.push((i, j, size));
        if in_old.start < i && in_new.start < j {
            todo.push((in_old.start..i, in_new.start..j));
        }
        if i + size < in_old.end && j + size < in_new.end {
            todo.push((i + size..in_old.end, j + size..in_new.end));
        }
    }
    blocks.sort_unstable();
    let mut merged: Vec<(usize, usize, usize)> = Vec::new();
    for (i, j, size) in blocks {
        match merged.last_mut() {
            Some(last) if last.0 + last.2 == i && last.1 + last.2 == j => last.2 += size,
            _ => merged.push((i, j, size)),
        }
    }
    merged.push((old.len(), new.len(), 0));
    merged
}

/// Returns the longest run of equal lines in two ranges; of several, the first in the old lines, then in the new ones.
fn longest_match(
    old: &[&str],
    new: &[&str],
    places: &BTreeMap<&str, Vec<usize>>,
    in_old: &Range<usize>,
    in_new: &Range<usize>,
) -> (usize, usize, usize) {
    let (mut i, mut j, mut size) = (in_old.start, in_new.start, 0);
    // Length of the run ending at each line of the new value and the last visited line of the old one.
    let mut runs: BTreeMap<usize, usize> = BTreeMap::new();
    for (offset, line) in old[in_old.clone()].iter().enumerate() {
        let here = in_old.start + offset;
        let mut next = BTreeMap::new();
        for &place in places.get(line).into_iter().flatten() {
            if !in_new.contains(&place) {
                continue;
            }
            let length = place.checked_sub(1).and_then(|before| runs.get(&before)).copied().unwrap_or(0) + 1;
            next.insert(place, length);
            if length > size {
                (i, j, size) = (here + 1 - length, place + 1 - length, length);
            }
        }
        runs = next;
    }
    // Lines that are not anchors extend an adjacent run.
    while i > in_old.start && j > in_new.start && old[i - 1] == new[j - 1] {
        (i, j, size) = (i - 1, j - 1, size + 1);
    }
    while i + size < in_old.end && j + size < in_new.end && old[i + size] == new[j + size] {
        size += 1;
    }
    (i, j, size)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::unified;
    use crate::schema::shown::{VOLUME_SOURCE, internal, internal_part};

    #[test]
    fn a_changed_line_is_shown_with_what_is_around_it() {
        let source = |path: &str| {
            internal_part(
                "api.core.v1.PersistentVolumeSpec",
                VOLUME_SOURCE,
                &json!({"hostPath": {"path": path, "type": ""}, "capacity": {"storage": "1Gi"}}),
            )
        };
        assert_eq!(
            unified(&source("/a"), &source("/a2")),
            "@@ -2,7 +2,7 @@\n  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n  \"HostPath\": {\n\
             -  \"Path\": \"/a\",\n+  \"Path\": \"/a2\",\n   \"Type\": \"\"\n  },\n  \"Glusterfs\": null,\n"
        );
        assert_eq!(unified(&source("/a"), &source("/a")), "");
    }

    #[test]
    fn added_lines_and_distant_changes_have_their_places() {
        let spec = |limits: serde_json::Value, node: &str| {
            internal(
                "api.core.v1.PodSpec",
                &json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}], "nodeName": node}),
            )
        };
        let shown = unified(&spec(json!(null), ""), &spec(json!({"cpu": "1"}), "n"));
        assert!(
            shown.starts_with(
                "@@ -12,7 +12,9 @@\n    \"EnvFrom\": null,\n    \"Env\": null,\n    \"Resources\": {\n-    \"Limits\": null,\n\
                 +    \"Limits\": {\n+     \"cpu\": \"1\"\n+    },\n     \"Requests\": null,\n"
            ),
            "{shown}"
        );
        assert_eq!(shown.matches("@@ -").count(), 2, "{shown}");
    }

    /// A hostile pair of values must take bounded time, and beyond the limit there is no diff.
    #[test]
    fn many_equal_lines_are_compared_within_bounds() {
        let list = |count: usize, last: &str| {
            let mut items = vec![json!({"name": "c", "image": "i"}); count];
            items.push(json!({"name": last}));
            internal("api.core.v1.PodSpec", &json!({"containers": items}))
        };
        assert!(
            unified(&list(40, "a"), &list(40, "b")).contains("-   \"Name\": \"a\",\n+   \"Name\": \"b\",\n")
        );
        assert_eq!(unified(&list(4_000, "a"), &list(4_000, "b")), "");
    }
}
