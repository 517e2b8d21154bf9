//! Query strings: parsed once, read by name, with upstream's rules for integers and booleans.

use gc_registry::api::{
    DeleteOptions, FieldValidation, ListOptions, UNSAFE_DELETION, VersionMatch, WriteOptions,
};
use gc_registry::error::{ApiError, CauseReason, FieldError};
use gc_registry::names;

/// A parsed query string: names and values in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(pub(crate) Vec<(String, String)>);

/// Returns the names and values of a query string, decoded like those of a request.
#[must_use]
pub fn query_pairs(text: &str) -> Vec<(String, String)> {
    Query::parse(text).0
}

impl Query {
    /// Parses `application/x-www-form-urlencoded` text. Invalid UTF-8 after decoding is replaced.
    pub(crate) fn parse(text: &str) -> Self {
        Self(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name, true), decode(value, true))
                })
                .collect(),
        )
    }

    /// Returns the first value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a name, or the empty text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_owned()
    }

    /// Reads a boolean: `0` and `false` in any letter case are false; everything else, including the empty text, is true.
    pub(crate) fn boolean(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Reads an integer; an absent or empty one is `None`.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match value.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(ApiError::bad_request(format!(
                    "strconv.ParseInt: parsing \"{value}\": invalid syntax"
                ))),
            },
        }
    }

    /// Reads the options of list, watch and deletecollection.
    pub(crate) fn list_options(&self) -> Result<ListOptions, ApiError> {
        let resource_version_match = match self.get("resourceVersionMatch") {
            None | Some("") => None,
            Some("Exact") => Some(VersionMatch::Exact),
            Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
            Some(other) => {
                let field = "resourceVersionMatch".to_owned();
                let detail = format!(
                    "Unsupported value: \"{other}\": supported values: \"Exact\", \"NotOlderThan\", \"\""
                );
                let mut errors = vec![FieldError { field, reason: CauseReason::NotSupported, detail }];
                if self.get("resourceVersion").unwrap_or_default().is_empty() {
                    let field = "resourceVersionMatch".to_owned();
                    let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                    let detail = format!("Forbidden: {why}");
                    errors.insert(0, FieldError { field, reason: CauseReason::Forbidden, detail });
                }
                return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
            }
        };
        // A client that asks for a shard of the objects must not receive all of them.
        if self.get("shardSelector").is_some_and(|text| !text.is_empty()) {
            return Err(invalid_options(
                "ListOptions",
                "shardSelector",
                CauseReason::Forbidden,
                "Forbidden: sharded lists and watches are not served".into(),
            ));
        }
        Ok(ListOptions {
            in_pages: false,
            label_selector: self.text("labelSelector"),
            field_selector: self.text("fieldSelector"),
            limit: self.integer("limit")?.unwrap_or(0),
            continue_token: self.text("continue"),
            resource_version: self.text("resourceVersion"),
            resource_version_match,
            allow_watch_bookmarks: self.boolean("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: self.boolean("sendInitialEvents"),
            timeout_seconds: self.integer("timeoutSeconds")?,
        })
    }

    /// Reads the options of create, update and patch; `kind` names the options object in messages.
    pub(crate) fn write_options(&self, kind: &'static str) -> Result<WriteOptions, ApiError> {
        let dry_run: Vec<&str> = self.all("dryRun").collect();
        if dry_run.iter().any(|value| *value != "All") {
            let shown: Vec<String> = dry_run.iter().map(|value| format!("\"{value}\"")).collect();
            return Err(invalid_options(
                kind,
                "dryRun",
                CauseReason::NotSupported,
                format!("Unsupported value: [{}]: supported values: \"All\"", shown.join(",")),
            ));
        }
        let dry_run = !dry_run.is_empty();
        let field_validation = match self.get("fieldValidation") {
            None | Some("") => None,
            Some("Warn") => Some(FieldValidation::Warn),
            Some("Ignore") => Some(FieldValidation::Ignore),
            Some("Strict") => Some(FieldValidation::Strict),
            Some(other) => {
                return Err(invalid_options(
                    kind,
                    "fieldValidation",
                    CauseReason::NotSupported,
                    format!(
                        "Unsupported value: \"{other}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
                    ),
                ));
            }
        };
        let field_manager = self.text("fieldManager");
        validate_field_manager(kind, &field_manager)?;
        Ok(WriteOptions { dry_run, field_manager, field_validation, force: self.boolean("force") })
    }

    /// Reads delete options from the query (used when the body is empty).
    pub(crate) fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        let not_empty = |name: &str| self.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
        Ok(DeleteOptions {
            grace_period_seconds: self.integer("gracePeriodSeconds")?,
            precondition_uid: not_empty("uid"),
            precondition_resource_version: not_empty("resourceVersion"),
            orphan_dependents: self.boolean("orphanDependents"),
            propagation_policy: self.get("propagationPolicy").map(str::to_owned),
            dry_run: self.all("dryRun").map(str::to_owned).collect(),
            ignore_store_read_error: self.boolean(UNSAFE_DELETION).unwrap_or_default(),
        })
    }
}

fn validate_field_manager(kind: &str, manager: &str) -> Result<(), ApiError> {
    let problem = |(reason, detail)| FieldError { field: "fieldManager".into(), reason, detail };
    let problems: Vec<_> = names::field_manager(manager).into_iter().map(problem).collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", kind, "", &problems))
}

fn invalid_options(kind: &str, field: &str, reason: CauseReason, detail: String) -> ApiError {
    ApiError::invalid("meta.k8s.io", kind, "", &[FieldError { field: field.into(), reason, detail }])
}

/// Decodes percent escapes (and `+`, in queries). A broken escape is kept as it is; broken UTF-8 is replaced.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    String::from_utf8(decode_bytes(text, plus_is_space))
        .unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned())
}

/// Decodes percent escapes of names that decide on rights: a text with a broken escape is kept as it is, and broken UTF-8 results
/// in `None`.
pub(crate) fn decode_exactly(text: &str) -> Option<String> {
    let broken = text.split('%').skip(1).any(|rest| {
        let digits = rest.as_bytes().get(..2);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if broken { Some(text.to_owned()) } else { String::from_utf8(decode_bytes(text, false)).ok() }
}

fn decode_bytes(text: &str, plus_is_space: bool) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        let escape = bytes.get(index + 1..index + 3).and_then(|digits| {
            Some(char::from(digits[0]).to_digit(16)? * 16 + char::from(digits[1]).to_digit(16)?)
        });
        match (byte, escape.and_then(|value| u8::try_from(value).ok())) {
            (b'%', Some(value)) => {
                decoded.push(value);
                index += 3;
                continue;
            }
            (b'+', _) if plus_is_space => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        index += 1;
    }
    decoded
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        let table = [
            ("a+b", true, "a b"),
            ("a+b", false, "a+b"),
            ("%21none", true, "!none"),
            ("%2", true, "%2"),
            ("%zz", true, "%zz"),
            ("%ff", true, "\u{fffd}"),
            ("%e2%82%ac", true, "€"),
        ];
        for (text, plus, want) in table {
            assert_eq!(decode(text, plus), want, "{text}");
        }
    }

    #[test]
    fn names_in_headers_are_decoded_whole_or_not_at_all() {
        let table = [
            ("acme.io%2fp", Some("acme.io/p")),
            ("a%2fb%zz", Some("a%2fb%zz")),
            ("a%2", Some("a%2")),
            ("%c3%bc", Some("ü")),
            ("%ff", None),
        ];
        for (text, want) in table {
            assert_eq!(decode_exactly(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn query_booleans_are_true_unless_0_or_false() {
        let table = [
            ("b=", Some(true)),
            ("b=FALSE", Some(false)),
            ("b=0", Some(false)),
            ("b=no", Some(true)),
            ("", None),
        ];
        for (text, want) in table {
            assert_eq!(Query::parse(text).boolean("b"), want, "{text}");
        }
    }

    #[test]
    fn delete_options_come_from_the_query() {
        assert_eq!(
            Query::parse(
                "gracePeriodSeconds=300&uid=u&resourceVersion=7&propagationPolicy=&dryRun=All&dryRun=x"
            )
            .delete_options()
            .unwrap(),
            DeleteOptions {
                grace_period_seconds: Some(300),
                precondition_uid: Some("u".into()),
                precondition_resource_version: Some("7".into()),
                orphan_dependents: None,
                propagation_policy: Some(String::new()),
                dry_run: vec!["All".into(), "x".into()],
                ignore_store_read_error: false,
            }
        );
        assert_eq!(Query::parse("gracePeriodSeconds=abc").delete_options().unwrap_err().code, 400);
        assert_eq!(Query::parse("uid=&resourceVersion=").delete_options().unwrap(), DeleteOptions::default());
    }

    #[test]
    fn bad_options_are_refused() {
        let table = [("dryRun=Some", 422), ("fieldValidation=Perhaps", 422), ("fieldManager=%07", 422)];
        for (text, code) in table {
            let error = Query::parse(text).write_options("CreateOptions").unwrap_err();
            assert_eq!((error.code, &*error.reason), (code, "Invalid"), "{text}");
        }
        assert_eq!(Query::parse("limit=many").list_options().unwrap_err().code, 400);
    }
}
