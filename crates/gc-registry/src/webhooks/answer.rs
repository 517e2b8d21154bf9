//! Decodes the answer of a webhook into the expected review, as client-go does.

use serde_json::Value;

use crate::schema::{self, Schema};

/// Name of the table of types, as it appears in messages of Go's decoder.
const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:71";
/// Kinds in every table of types.
const UNVERSIONED: [&str; 5] = ["Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"];

/// The review expected as an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedReview<'a> {
    /// `AdmissionReview` or `ConversionReview`.
    pub(crate) kind: &'a str,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
}

impl ExpectedReview<'_> {
    /// Checks that an answer can be decoded into the review. An error has Go's wording, and means that the call has failed.
    pub(crate) fn check(&self, answer: &Value, schema: &Schema) -> Result<(), String> {
        let text = |key: &str| answer[key].as_str().filter(|text| !text.is_empty());
        let wanted = gc_types::api_version(self.group, self.version);
        let (kind, given) = (text("kind").unwrap_or(self.kind), text("apiVersion").unwrap_or(&wanted));
        let (group, version) = given.split_once('/').unwrap_or(("", given));
        if version.contains('/') {
            return Err(format!("unexpected GroupVersion string: {given}"));
        }
        if kind == self.kind && given == wanted {
            return schema::check_types(schema, answer);
        }
        let is_review = kind == self.kind && group == self.group && matches!(version, "v1" | "v1beta1");
        if is_review || given == "v1" && UNVERSIONED.contains(&kind) {
            let to = format!("{}.{}", self.version, self.kind);
            return Err(format!("converting ({version}.{kind}) to ({to}): unknown conversion"));
        }
        Err(format!("no kind {kind:?} is registered for version {given:?} in scheme {SCHEME:?}"))
    }
}

/// Formats `group/version, Kind=kind` of a document.
pub(crate) fn shown_kind(document: &Value) -> String {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", text("kind"))
}
