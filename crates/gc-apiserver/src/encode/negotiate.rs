//! Content negotiation: chooses the representation of an answer and determines the type of a request body.

use gc_registry::error::ApiError;

/// Encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`; for custom resources, only metadata and Status.
    Protobuf,
}

/// Form of the returned objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Form {
    /// Unchanged.
    Object,
    /// `as=Table`; the flag is set for `v1beta1`.
    Table,
    /// `as=PartialObjectMetadata` or `PartialObjectMetadataList`.
    Metadata,
}

/// Representation of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Representation {
    /// Encoding in bytes.
    pub(crate) encoding: Encoding,
    /// Form of the objects.
    pub(crate) form: Form,
    /// True if JSON is indented.
    pub(crate) pretty: bool,
    /// `meta.k8s.io/v1beta1` instead of `v1`, for tables and metadata.
    pub(crate) beta: bool,
    /// Metadata of a list (`PartialObjectMetadataList`) rather than of one object.
    pub(crate) of_list: bool,
}

impl Representation {
    /// Plain JSON.
    pub(crate) const JSON: Self =
        Self { encoding: Encoding::Json, form: Form::Object, pretty: false, beta: false, of_list: false };

    /// Returns the `apiVersion` of tables and metadata objects.
    pub(crate) fn meta_version(self) -> &'static str {
        if self.beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
    }

    /// Returns the `Content-Type` of a complete answer.
    pub(crate) fn content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns the `Content-Type` of a watch.
    pub(crate) fn stream_content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Json | Encoding::Yaml => "application/json",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// One range of an Accept header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MediaRange<'a> {
    /// For example `application/json`, `application/*` or `*/*`.
    pub(crate) media_type: &'a str,
    /// Parameters other than `q`.
    pub(crate) parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> MediaRange<'a> {
    /// Returns the value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// Reports whether this range names a media type without wildcards.
    pub(crate) fn names(&self, media_type: &str) -> bool {
        self.media_type.eq_ignore_ascii_case(media_type) && self.quality > 0.0
    }

    /// Reports whether this range accepts a media type. Case matters, as upstream.
    pub(crate) fn takes(&self, media_type: &str) -> bool {
        let (main, _) = media_type.split_once('/').unwrap_or((media_type, ""));
        matches!(self.media_type, "*/*" | "*")
            || self.media_type == media_type
            || self.media_type.split_once('/').is_some_and(|(m, sub)| sub == "*" && m == main)
    }

    /// Reports whether upstream's router finds one of these media types in this range; it does not understand `application/*`.
    pub(crate) fn is_routed_to(&self, media_types: &str) -> bool {
        self.media_type == "*/*" || media_types.split(", ").any(|media_type| self.media_type == media_type)
    }
}

/// Parses an Accept header into ranges by falling quality; those of equal quality keep their order.
pub(crate) fn media_ranges(accept: &str) -> Vec<MediaRange<'_>> {
    let mut ranges: Vec<MediaRange<'_>> = accept
        .split(',')
        .filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().filter(|part| !part.is_empty())?;
            let mut quality = 1.0;
            let mut parameters = Vec::new();
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                let (name, value) = (name.trim(), value.trim());
                if name.eq_ignore_ascii_case("q") {
                    quality = value.parse().unwrap_or(0.0);
                } else {
                    parameters.push((name, value));
                }
            }
            Some(MediaRange { media_type, parameters, quality })
        })
        .collect();
    ranges.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    ranges
}

/// Purpose of the answer: not every encoding can express everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Objects and lists of custom resources, for which only the metadata has a protobuf form.
    Answer,
    /// A watch stream of custom resources.
    Watch,
    /// Anything with a protobuf form: built-in kinds, Status.
    Status,
    /// A list of a built-in kind, whose route also serves watches upstream.
    List,
    /// Reviews and token requests, which have no table form.
    Review,
    /// A watch stream of a built-in kind.
    WatchBuiltin,
    /// A discovery document served outside the router, so without the router's error messages.
    Discovery,
    /// A discovery document served by the router.
    Document,
}

const AVAILABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// Chooses a representation, or fails with a 406.
pub(crate) fn negotiate(
    accept: Option<&str>,
    pretty: bool,
    purpose: Purpose,
) -> Result<Representation, ApiError> {
    let plain = Representation { pretty, ..Representation::JSON };
    let Some(accept) = accept.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(plain) };
    let ranges = media_ranges(accept);
    let nameable = is_nameable(&ranges);
    for range in ranges {
        let pretty = pretty || range.parameter("pretty") == Some("1");
        let Some((form, beta)) = form_of(&range).filter(|_| takes_parameters(&range, purpose)) else {
            continue;
        };
        let takes_form = match purpose {
            Purpose::Review => form != Form::Table,
            // Discovery documents have no other form.
            Purpose::Discovery | Purpose::Document => form == Form::Object,
            _ => true,
        };
        if !takes_form {
            continue;
        }
        let of_list = range.parameter("as") == Some("PartialObjectMetadataList");
        for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf] {
            let offered = Representation { encoding, form, pretty, beta, of_list };
            let possible = match encoding {
                Encoding::Json => true,
                Encoding::Yaml => !matches!(purpose, Purpose::Watch | Purpose::WatchBuiltin),
                Encoding::Protobuf => match form {
                    Form::Metadata => true,
                    Form::Table => false,
                    Form::Object => !matches!(purpose, Purpose::Answer | Purpose::Watch),
                },
            };
            let named = range.takes(offered.content_type());
            // Upstream selects the encoding before it checks whether that encoding can be streamed.
            let is_watch = matches!(purpose, Purpose::Watch | Purpose::WatchBuiltin);
            if named && nameable && is_watch && encoding == Encoding::Yaml {
                return Err(not_acceptable(STREAMS));
            }
            let by_name_alone =
                matches!(purpose, Purpose::Status | Purpose::Document | Purpose::List | Purpose::Review);
            if possible && named && (nameable || !by_name_alone) {
                return Ok(offered);
            }
        }
    }
    // Custom resources are served outside the router, as discovery is.
    if !nameable && !matches!(purpose, Purpose::Discovery | Purpose::Answer) {
        let streams = match purpose {
            Purpose::Watch | Purpose::WatchBuiltin | Purpose::List => format!(", {STREAMS}"),
            _ => String::new(),
        };
        // The wording is that of upstream's router, which answers before the parameters are read.
        return Err(not_acceptable_to_router(&format!("{AVAILABLE}{streams}")));
    }
    Err(not_acceptable(AVAILABLE))
}

/// Returns a 406 that names the available media types.
pub(crate) fn not_acceptable(available: &str) -> ApiError {
    ApiError::new(406, "NotAcceptable", format!("only the following media types are accepted: {available}"))
}

/// Reports whether the router finds a media type that it knows among the ranges; it does not understand `application/*`.
pub(crate) fn is_nameable(ranges: &[MediaRange<'_>]) -> bool {
    ranges.iter().any(|range| range.is_routed_to(AVAILABLE))
}

/// Reports whether upstream accepts a range with these values of the parameters `stream` and `sv` (the version of the server).
fn takes_parameters(range: &MediaRange<'_>, purpose: Purpose) -> bool {
    let given = |name| range.parameter(name).filter(|text| !text.is_empty());
    let is_discovery = matches!(purpose, Purpose::Discovery | Purpose::Document);
    given("stream").is_none_or(|text| text == "watch")
        && given("sv").is_none_or(|text| !is_discovery && text == "v1")
}

/// Returns the `as=`, `g=` and `v=` of a range; `None` for an unknown form.
fn form_of(range: &MediaRange<'_>) -> Option<(Form, bool)> {
    let Some(kind) = range.parameter("as") else {
        let is_plain = ["g", "v"].iter().all(|name| range.parameter(name).is_none());
        return is_plain.then_some((Form::Object, false));
    };
    let beta = match (range.parameter("g"), range.parameter("v")) {
        (Some("meta.k8s.io"), Some("v1")) => false,
        (Some("meta.k8s.io"), Some("v1beta1")) => true,
        _ => return None,
    };
    match kind {
        "Table" => Some((Form::Table, beta)),
        "PartialObjectMetadata" | "PartialObjectMetadataList" => Some((Form::Metadata, beta)),
        _ => None,
    }
}

/// Media type of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes protobuf.
    Protobuf,
}

/// Returns the body type of a write; a missing header counts as JSON.
pub(crate) fn body_type(content_type: Option<&str>) -> Result<BodyType, ApiError> {
    let full = content_type.unwrap_or("application/json");
    let mut parts = full.trim_end().split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let parameters: Vec<&str> = parts.collect();
    // Only the last parameter may be empty.
    let is_broken = |(index, part): (usize, &&str)| {
        !(part.contains('=') || part.is_empty() && index + 1 == parameters.len())
    };
    if parameters.iter().enumerate().any(is_broken) {
        return Err(unsupported_media_type(AVAILABLE));
    }
    match media_type.to_ascii_lowercase().as_str() {
        "" | "application/json" => Ok(BodyType::Json),
        "application/yaml" => Ok(BodyType::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyType::Protobuf),
        _ => Err(unsupported_media_type(AVAILABLE)),
    }
}

/// Returns a 406 with the wording of upstream's router.
pub(crate) fn not_acceptable_to_router(available: &str) -> ApiError {
    let why = format!("406: Not Acceptable\n\nAvailable representations: {available}");
    let mut error = ApiError::new(406, "NotAcceptable", why);
    error.details = Some(Box::default());
    error
}

/// Returns a 415 with the wording of upstream's router.
pub(crate) fn unsupported_by_router() -> ApiError {
    let mut error = ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    error.details = Some(Box::default());
    error
}

/// Returns a 415 that names the supported media types.
pub(crate) fn unsupported_media_type(supported: &str) -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: {supported}"
        ),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    fn representation(encoding: Encoding, form: Form) -> Representation {
        Representation { encoding, form, pretty: false, beta: false, of_list: false }
    }

    #[test]
    fn representations_are_chosen_by_weight_order_and_ability() {
        use Encoding::{Json, Protobuf, Yaml};
        use Form::{Metadata, Object, Table};
        let as_table = "application/json;as=Table;g=meta.k8s.io;v=v1";
        let metadata_protobuf =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let metadata_list = Representation { of_list: true, ..representation(Protobuf, Metadata) };
        let table = [
            ("", Purpose::Answer, Some(representation(Json, Object))),
            ("*/*", Purpose::Answer, Some(representation(Json, Object))),
            ("application/*", Purpose::Answer, Some(representation(Json, Object))),
            ("text/html, application/json;q=0.5", Purpose::Answer, Some(representation(Json, Object))),
            ("application/yaml", Purpose::Answer, Some(representation(Yaml, Object))),
            ("application/json;q=0.1,application/yaml", Purpose::Answer, Some(representation(Yaml, Object))),
            ("application/yaml", Purpose::Watch, None),
            ("application/yaml,application/json", Purpose::WatchBuiltin, None),
            ("application/json,application/yaml", Purpose::WatchBuiltin, Some(representation(Json, Object))),
            ("application/json;stream=watch", Purpose::List, Some(representation(Json, Object))),
            ("application/json;stream=x", Purpose::List, None),
            ("application/json;sv=v1", Purpose::Status, Some(representation(Json, Object))),
            ("application/json;sv=v2", Purpose::Status, None),
            ("application/json;sv=v1", Purpose::Discovery, None),
            ("application/json;g=meta.k8s.io", Purpose::Status, None),
            ("application/json;v=v1", Purpose::Discovery, None),
            ("application/json;AS=Table;g=meta.k8s.io;v=v1", Purpose::Status, None),
            ("application/json;as=\"Table\";g=\"meta.k8s.io\";v=\"v1\"", Purpose::Status, None),
            ("APPLICATION/JSON", Purpose::Status, None),
            ("application/x-yaml", Purpose::Discovery, None),
            ("*", Purpose::Discovery, Some(representation(Json, Object))),
            ("*", Purpose::Status, None),
            ("text/html", Purpose::Answer, None),
            (as_table, Purpose::Answer, Some(representation(Json, Table))),
            (as_table, Purpose::Review, None),
            (as_table, Purpose::Discovery, None),
            (as_table, Purpose::Document, None),
            ("application/json", Purpose::Document, Some(representation(Json, Object))),
            ("application/*", Purpose::Document, None),
            (
                "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
                Purpose::Review,
                Some(representation(Json, Object)),
            ),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Purpose::Review,
                Some(representation(Json, Metadata)),
            ),
            ("application/*", Purpose::Review, None),
            (
                "application/json;as=Something;v=v1;g=meta.k8s.io, application/json",
                Purpose::Answer,
                Some(representation(Json, Object)),
            ),
            ("application/json;as=Something;v=v1;g=meta.k8s.io", Purpose::Answer, None),
            ("application/json;as=Table;v=v9;g=meta.k8s.io", Purpose::Answer, None),
            ("application/*", Purpose::Status, None),
            (metadata_protobuf, Purpose::Answer, Some(metadata_list)),
            (metadata_protobuf, Purpose::Watch, Some(metadata_list)),
            ("application/vnd.kubernetes.protobuf", Purpose::Answer, None),
            ("application/vnd.kubernetes.protobuf", Purpose::Status, Some(representation(Protobuf, Object))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Purpose::Answer,
                Some(representation(Json, Object)),
            ),
        ];
        for (accept, purpose, want) in table {
            assert_eq!(negotiate(Some(accept), false, purpose).ok(), want, "{accept} for {purpose:?}");
        }
        let refused = |purpose| negotiate(Some("text/html"), false, purpose).unwrap_err().message;
        assert_eq!(
            refused(Purpose::Answer),
            format!("only the following media types are accepted: {AVAILABLE}")
        );
        assert_eq!(
            refused(Purpose::Status),
            format!("406: Not Acceptable\n\nAvailable representations: {AVAILABLE}")
        );
        let watched = negotiate(Some("application/yaml"), false, Purpose::WatchBuiltin).unwrap_err().message;
        assert_eq!(watched, format!("only the following media types are accepted: {STREAMS}"));
    }

    #[test]
    fn bodies_are_json_yaml_or_protobuf() {
        let table = [
            (None, Some(BodyType::Json)),
            (Some("application/json; charset=utf-8"), Some(BodyType::Json)),
            (Some("application/yaml"), Some(BodyType::Yaml)),
            (Some("application/vnd.kubernetes.protobuf"), Some(BodyType::Protobuf)),
            (Some("application/json;"), Some(BodyType::Json)),
            (Some("application/json;;"), None),
            (Some("application/json;x"), None),
            (Some("application/x-yaml"), None),
            (Some("text/plain"), None),
        ];
        for (content_type, want) in table {
            assert_eq!(body_type(content_type).ok(), want, "{content_type:?}");
        }
    }
}
