//! `/flagz` and `/statusz`: the flags that the server was started with, and its start time.

use std::fmt::Write as _;

use gc_registry::error::ApiError;
use gc_registry::kubernetes::KubernetesVersion;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use crate::encode::negotiate::{Encoding, MediaRange, Representation, media_ranges, not_acceptable};
use crate::encode::render;
use crate::exchange::{Answer, ApiRequest, PLAIN, text_answer};
use crate::state::facts::Facts;

/// Returns the Kubernetes version whose API this server implements, such as `v1.36.2+kubegc`.
pub(super) fn git_version() -> String {
    format!("v{}", binary_version())
}
/// Name of kube-apiserver on these pages.
const COMPONENT: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
/// Versions of the structured forms, and whether upstream warns about them.
const VERSIONS: [(&str, bool); 2] = [("v1beta1", false), ("v1alpha1", true)];
const AVAILABLE: &str = "application/json, application/yaml, text/plain";
/// Paths that `/statusz` lists.
const PATHS: [&str; 7] = ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"];

/// One of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Flags,
    Status,
}

/// Form of an answer: plain text, or a version of the structured form.
#[derive(Debug, PartialEq, Eq)]
enum Shape {
    Text,
    Structured { version: &'static str, is_deprecated: bool, representation: Representation },
}

impl Page {
    fn name(self) -> &'static str {
        match self {
            Self::Flags => "flagz",
            Self::Status => "statusz",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Flags => "Flagz",
            Self::Status => "Statusz",
        }
    }

    /// Answers requests with any method, as upstream does.
    pub(crate) fn answer(self, facts: &Facts, request: &ApiRequest) -> Result<Answer, ApiError> {
        let accept = request.header(&ACCEPT).unwrap_or_default();
        let shape = self.shape(accept, request.is_pretty()).ok_or_else(|| not_acceptable(AVAILABLE))?;
        let Shape::Structured { version, is_deprecated, representation } = shape else {
            return Ok(text_answer(StatusCode::OK, PLAIN, self.text(facts)));
        };
        let bytes = render::value(&self.document(facts, version), representation);
        let mut answer = request.document(bytes.into(), representation.content_type());
        let content_type =
            format!("{};g={GROUP};v={version};as={}", representation.content_type(), self.kind());
        if let Ok(content_type) = HeaderValue::from_str(&content_type) {
            answer.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        let warning = format!(
            "299 - \"This version of the {} endpoint is deprecated. Please use a newer version.\"",
            self.name()
        );
        if let Some(warning) = HeaderValue::from_str(&warning).ok().filter(|_| is_deprecated) {
            answer.headers_mut().insert("warning", warning);
        }
        Ok(answer)
    }

    /// Returns the first shape that an Accept header names, if any.
    fn shape(self, accept: &str, pretty: bool) -> Option<Shape> {
        if accept.trim().is_empty() {
            return Some(Shape::Text);
        }
        media_ranges(accept).iter().find_map(|range| {
            let is_stream =
                ["stream", "sv"].iter().any(|name| range.parameter(name).is_some_and(|v| !v.is_empty()));
            if is_stream {
                return None;
            }
            self.structured(range, pretty).or_else(|| {
                let is_plain = ["as", "g", "v"].iter().all(|name| range.parameter(name).is_none());
                (is_plain && range.takes("text/plain")).then_some(Shape::Text)
            })
        })
    }

    fn structured(self, range: &MediaRange<'_>, pretty: bool) -> Option<Shape> {
        if range.parameter("as") != Some(self.kind()) || range.parameter("g") != Some(GROUP) {
            return None;
        }
        let wanted = range.parameter("v")?;
        let (version, is_deprecated) = VERSIONS.into_iter().find(|(version, _)| *version == wanted)?;
        let pretty = pretty || range.parameter("pretty") == Some("1");
        [Encoding::Json, Encoding::Yaml]
            .map(|encoding| Representation { encoding, pretty, ..Representation::JSON })
            .into_iter()
            .find(|offered| range.takes(offered.content_type()))
            .map(|representation| Shape::Structured { version, is_deprecated, representation })
    }

    fn document(self, facts: &Facts, version: &str) -> Value {
        let mut document = match self {
            Self::Flags => json!({"flags": facts.flags}),
            Self::Status => json!({
                "startTime": facts.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "uptimeSeconds": facts.running.elapsed().as_secs(),
                "goVersion": "", "binaryVersion": binary_version(),
                "emulationVersion": emulation_version(), "paths": PATHS,
            }),
        };
        document["kind"] = self.kind().into();
        document["apiVersion"] = gc_types::api_version(GROUP, version).into();
        document["metadata"] = json!({"name": COMPONENT});
        document
    }

    fn text(self, facts: &Facts) -> String {
        let mut text = format!(
            "\n{COMPONENT} {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
             guarantees and is for debugging purposes only.\n",
            self.name()
        );
        // Writing to a String does not fail.
        let _ = match self {
            Self::Flags => facts.flags.iter().try_for_each(|(name, value)| writeln!(text, "{name}:{value}")),
            Self::Status => {
                let minutes = facts.running.elapsed().as_secs() / 60;
                writeln!(
                    text,
                    "\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: \nBinary version: {}\n\
                     Emulation version: {}\nPaths: {}",
                    facts.started.strftime("%a %b %e %H:%M:%S UTC %Y"),
                    minutes / 60,
                    minutes % 60,
                    facts.running.elapsed().as_secs() % 60,
                    binary_version(),
                    emulation_version(),
                    PATHS.join(" "),
                )
            }
        };
        text
    }
}

fn binary_version() -> String {
    format!("{}+kubegc", KubernetesVersion::chosen().release())
}

/// Returns the major and minor version of the API.
fn emulation_version() -> &'static str {
    KubernetesVersion::chosen().minor()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same choices as kube-apiserver 1.36.2 makes.
    #[test]
    fn accept_headers_choose_a_shape() {
        let structured = |version, is_deprecated, encoding| {
            let representation = Representation { encoding, ..Representation::JSON };
            Some(Shape::Structured { version, is_deprecated, representation })
        };
        let form = "g=config.k8s.io;v=v1beta1;as=Flagz";
        for (accept, wanted) in [
            ("", Some(Shape::Text)),
            ("*/*", Some(Shape::Text)),
            ("text/*", Some(Shape::Text)),
            ("text/plain;charset=utf-8", Some(Shape::Text)),
            ("application/json,text/plain", Some(Shape::Text)),
            ("application/json", None),
            ("application/yaml", None),
            ("text/html", None),
            (&format!("text/plain;{form}"), None),
            (&format!("application/vnd.kubernetes.protobuf;{form}"), None),
            (&format!("application/cbor;{form}"), None),
            (&format!("application/json;{form}"), structured("v1beta1", false, Encoding::Json)),
            (&format!("application/yaml;{form}"), structured("v1beta1", false, Encoding::Yaml)),
            (&format!("*/*;{form}"), structured("v1beta1", false, Encoding::Json)),
            (
                &format!("text/plain;q=0.5,application/json;{form}"),
                structured("v1beta1", false, Encoding::Json),
            ),
            (&format!("application/json;{form};stream=watch"), None),
            (
                "application/json;as=Flagz;v=v1alpha1;g=config.k8s.io",
                structured("v1alpha1", true, Encoding::Json),
            ),
            ("application/json;as=Flagz;v=v1;g=config.k8s.io", None),
            ("application/json;as=Statusz;v=v1beta1;g=config.k8s.io", None),
        ] {
            assert_eq!(Page::Flags.shape(accept, false), wanted, "{accept}");
        }
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!((&*binary_version(), emulation_version()), ("1.36.2+kubegc", "1.36"));
    }
}
