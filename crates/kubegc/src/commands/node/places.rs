//! Locates errors in the text of a configuration file.

use std::path::Path;

use serde_json::Value;

use super::config::{ConfigErrors, NodeFlags, READ};

/// Maximum edit distance between a known name and a misspelling of it.
const MAX_MISSPELLING: usize = 2;

/// Reports whether a name is probably a misspelling of another one.
pub(super) fn is_misspelling(name: &str, meant: &str) -> bool {
    strsim::levenshtein(&name.to_lowercase(), &meant.to_lowercase()) <= MAX_MISSPELLING
}

/// Returns the fields of a file that are probably misspellings of known fields, each with its line and column. Other unknown fields
/// concern other parts of the kubelet, or another release of it.
pub(super) fn misspelled(file: &Value, text: &str) -> Vec<String> {
    let names = file.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    names
        .filter(|name| !READ.contains(name))
        .filter_map(|name| {
            let meant = READ.iter().find(|meant| is_misspelling(name, meant))?;
            let at = place(text, name, 0).map(TextPosition::shown).unwrap_or_default();
            Some(format!("{at}unknown field {name:?}; did you mean {meant:?}?"))
        })
        .collect()
}

impl ConfigErrors {
    /// Prefixes each error about a field of the file with the file, line and column.
    pub(super) fn located(self, path: &Path, text: &str, flags: &NodeFlags) -> Self {
        let locate = |error: String| {
            let end = error.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(error.len());
            let (field, rest) = error.split_at(end);
            if !READ.contains(&field) || is_overridden(field, flags) {
                return error;
            }
            let key = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(key, _)| key);
            let of_field = place(text, field, 0);
            let found = match (of_field, key) {
                (Some(of_field), Some(key)) => place(text, key, of_field.line).or(Some(of_field)),
                (of_field, _) => of_field,
            };
            match found {
                Some(place) => format!("{}: {}{error}", path.display(), place.shown()),
                None => format!("{}: {error}", path.display()),
            }
        };
        Self(self.0.into_iter().map(locate).collect())
    }
}

/// Reports whether a flag overrides a field of the file.
fn is_overridden(field: &str, flags: &NodeFlags) -> bool {
    match field {
        "imageGCHighThresholdPercent" => flags.image_gc_high_threshold.is_some(),
        "imageGCLowThresholdPercent" => flags.image_gc_low_threshold.is_some(),
        "imageMinimumGCAge" => flags.minimum_image_ttl_duration.is_some(),
        "imageMaximumGCAge" => flags.maximum_image_unused_duration.is_some(),
        "containerRuntimeEndpoint" => flags.container_runtime_endpoint.is_some(),
        "runtimeRequestTimeout" => flags.runtime_request_timeout.is_some(),
        "evictionHard" => flags.eviction_hard.is_some(),
        "podLogsDir" => flags.pod_logs_dir.is_some(),
        _ => false,
    }
}

/// A line and a column, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextPosition {
    line: usize,
    column: usize,
}

impl TextPosition {
    fn shown(self) -> String {
        format!("line {}, column {}: ", self.line + 1, self.column + 1)
    }
}

/// Finds the first use of a name as a key, starting at a line.
fn place(text: &str, name: &str, from: usize) -> Option<TextPosition> {
    text.lines().enumerate().skip(from).find_map(|(line, content)| {
        let comment = content.trim_start().starts_with('#');
        let is_key = |at: &usize| {
            let is_start = !content[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '.');
            let after = content[at + name.len()..].trim_start_matches(['"', '\'']).trim_start();
            is_start && after.starts_with(':')
        };
        let column = content.match_indices(name).map(|(at, _)| at).find(is_key).filter(|_| !comment)?;
        Some(TextPosition { line, column })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that resembles a known one is an error; fields of other parts or releases of the kubelet are not.
    #[test]
    fn misspelled_fields_are_named_with_their_places() {
        let text = "apiVersion: v1\nimagegcHighThresholdPercent: 1\nclusterDNS: []\nanythingElse: 1\n  evictionhard: {}\n";
        let value = serde_json::json!({
            "apiVersion": "v1", "imagegcHighThresholdPercent": 1, "clusterDNS": [], "anythingElse": 1, "evictionhard": {},
        });
        let expected = [
            "line 5, column 3: unknown field \"evictionhard\"; did you mean \"evictionHard\"?",
            "line 2, column 1: unknown field \"imagegcHighThresholdPercent\"; did you mean \"imageGCHighThresholdPercent\"?",
        ];
        let mut found = misspelled(&value, text);
        found.sort_by_key(|line| !line.starts_with("line 5"));
        assert_eq!(found, expected);
    }

    #[test]
    fn errors_name_the_place_of_their_field() {
        let text = "# imageMinimumGCAge: is below\nkind: K\n\"imageMinimumGCAge\" : 1d\nevictionHard:\n  nodefs.available: 1\n  \
                    imagefs.available: 2\n";
        let flags = NodeFlags { image_gc_high_threshold: Some(101), ..NodeFlags::default() };
        for (error, place) in [
            ("imageMinimumGCAge: no", "k.yaml: line 3, column 2: "),
            ("evictionHard[imagefs.available]: no", "k.yaml: line 6, column 3: "),
            ("evictionHard[memory.available]: no", "k.yaml: line 4, column 1: "),
            ("apiVersion: expected one", "k.yaml: "),
            ("imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be less", ""),
            ("--protect-image: no", ""),
        ] {
            let located = ConfigErrors(vec![error.to_owned()]).located(Path::new("k.yaml"), text, &flags);
            assert_eq!(located.0, [format!("{place}{error}")]);
        }
    }
}
