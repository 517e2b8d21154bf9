//! Encodes the registry's answers in the form that the client accepts.

use std::collections::BTreeSet;
use std::sync::Arc;

use gc_registry::api::{Response as RegistryResponse, ResponseBody};
use gc_registry::error::{ApiError, Details};
use gc_registry::object::TypeMeta;
use gc_registry::resource::ResourceDefinition;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY};
use http::{HeaderMap, Response, StatusCode};

use crate::encode::list::{ItemForm, ListAnswer, ListStart};
use crate::encode::list_lengths::ListLengths;
use crate::encode::negotiate::{Encoding, Form, Purpose, Representation};
use crate::encode::table::{IncludeObject, Table};
use crate::encode::{protobuf_answer, render};
use crate::exchange::body::AnswerBody;
use crate::exchange::{Answer, ApiRequest, whole};

/// Writes the registry's answer in a representation.
pub(crate) fn write_answer(
    request: &ApiRequest,
    definition: &Arc<ResourceDefinition>,
    representation: Representation,
    answer: RegistryResponse,
    lengths: &Arc<ListLengths>,
) -> Result<Answer, ApiError> {
    let include = IncludeObject::parse(request.query.get("includeObject"))?;
    let gzip = request.takes_gzip();
    let kind = match &answer.body {
        ResponseBody::Object(object) => object.type_meta().kind.clone(),
        ResponseBody::Status(_) | ResponseBody::List(_) => Arc::clone(&definition.kind),
    };
    let table = || Arc::new(Table::of(definition, request.now).for_kind(&kind));
    let mut response = match answer.body {
        ResponseBody::Status(status) => {
            let form = Representation { form: Form::Object, ..representation };
            whole(render::value(&status, form), form, gzip)
        }
        ResponseBody::Object(object) => {
            expect_form(representation, false, definition)?;
            let representation = json_if_impossible(representation, object.type_meta());
            whole(render::object(&object, representation, table, include)?, representation, gzip)
        }
        ResponseBody::List(list) => {
            expect_form(representation, true, definition)?;
            let list_form = match representation.form {
                Form::Object => ItemForm::Object { with_type: definition.custom.is_some() },
                Form::Metadata => ItemForm::Metadata,
                Form::Table => ItemForm::Row(table(), include),
            };
            let answer = ListAnswer {
                kind: &definition.list_kind,
                item_kind: &definition.kind,
                api_version: &definition.api_version(),
                form: list_form,
                representation,
                lengths,
            };
            write_list(&answer, list, gzip)?
        }
    };
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
    append_warnings(response.headers_mut(), &answer.warnings);
    Ok(response)
}

fn append_warnings(headers: &mut HeaderMap, warnings: &[String]) {
    for warning in bounded_warnings(warnings) {
        if let Ok(value) = HeaderValue::from_str(&warning_header(&warning)) {
            headers.append("warning", value);
        }
    }
}

/// Maximum number of characters in all warnings of an answer; beyond it, each is truncated, and the rest dropped.
const MAXIMUM_WARNINGS_LENGTH: usize = 4096;
/// Number of characters that remain of each truncated warning.
const CUT_WARNING_LENGTH: usize = 256;

/// Returns the warnings for an answer, without duplicates: all of them if they are short, otherwise the beginnings of the first
/// ones.
fn bounded_warnings(warnings: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    // Go does not send a header with a control character.
    let fits = |text: &&String| !text.is_empty() && !text.chars().any(char::is_control);
    let warnings: Vec<&String> =
        warnings.iter().filter(fits).filter(|text| seen.insert(text.as_str())).collect();
    let total: usize = warnings.iter().map(|text| text.chars().count()).sum();
    if total <= MAXIMUM_WARNINGS_LENGTH {
        return warnings.into_iter().cloned().collect();
    }
    let mut written = 0;
    warnings
        .into_iter()
        .map(|text| text.chars().take(CUT_WARNING_LENGTH).collect::<String>())
        .take_while(|text| {
            let room = written < MAXIMUM_WARNINGS_LENGTH;
            written += text.chars().count();
            room
        })
        .collect()
}

/// Fails with a 406 if the client asked for the metadata of a list and there is a single object, or the reverse.
fn expect_form(
    representation: Representation,
    is_list: bool,
    definition: &ResourceDefinition,
) -> Result<(), ApiError> {
    if representation.form != Form::Metadata || representation.of_list == is_list {
        return Ok(());
    }
    let package = match (&*definition.group, definition.custom.is_some()) {
        (_, true) => "unstructured",
        ("" | "events.k8s.io", _) => "core",
        (group, _) => group.split('.').next().unwrap_or_default(),
    };
    let kind = match (definition.custom.is_some(), is_list) {
        (true, false) => "Unstructured",
        (true, true) => "UnstructuredList",
        (false, false) => &*definition.kind,
        (false, true) => &*definition.list_kind,
    };
    let message = if is_list {
        format!("you requested PartialObjectMetadata, but the requested object is a list (*{package}.{kind})")
    } else {
        format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.{kind})"
        )
    };
    Err(ApiError::new(406, "NotAcceptable", message))
}

/// Falls back to JSON, with the matching content type, if the answer has no protobuf form: for example when a DELETE of a custom
/// resource asked for a Status in protobuf and the object is returned.
fn json_if_impossible(representation: Representation, type_meta: &TypeMeta) -> Representation {
    if representation.encoding == Encoding::Protobuf
        && representation.form == Form::Object
        && !protobuf_answer::is_known(&type_meta.api_version, &type_meta.kind)
    {
        Representation { encoding: Encoding::Json, ..representation }
    } else {
        representation
    }
}

/// Formats `299 - "text"`.
fn warning_header(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    format!("299 - \"{quoted}\"")
}

fn write_list(
    answer: &ListAnswer<'_>,
    list: gc_registry::api::ObjectList,
    gzip: bool,
) -> Result<Answer, ApiError> {
    Ok(match answer.begin(list, gzip)? {
        ListStart::Whole(bytes) => whole(bytes, answer.representation, gzip),
        ListStart::Stream(stream, compressed) => {
            let mut response = Response::new(AnswerBody::List(stream));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.representation.content_type()));
            if compressed {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            }
            response
        }
    })
}

/// Answers with a Status of failure.
pub(crate) fn error_answer(error: &ApiError, request: &ApiRequest) -> Answer {
    // If the requested representation is impossible, the error is sent as JSON.
    let representation = request.representation(Purpose::Status).unwrap_or(Representation::JSON);
    let representation = Representation { form: Form::Object, ..representation };
    let mut response = whole(render::value(&error.to_status(), representation), representation, false);
    *response.status_mut() = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let retry = error.details.as_deref().and_then(|details: &Details| details.retry_after_seconds);
    if let Some(seconds) = retry {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    append_warnings(response.headers_mut(), &error.warnings);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_bounded() {
        let texts = |list: &[(&str, usize)]| -> Vec<String> {
            list.iter().map(|(text, times)| text.repeat(*times)).collect()
        };
        let table = [
            (texts(&[]), texts(&[])),
            (texts(&[("a", 1), ("b", 1), ("a", 1)]), texts(&[("a", 1), ("b", 1)])),
            (texts(&[("", 1), ("a\nb", 1), ("a\0", 1), ("\u{85}", 1), ("a", 1)]), texts(&[("a", 1)])),
            (texts(&[("a", 4096)]), texts(&[("a", 4096)])),
            (texts(&[("a", 4096), ("ü", 1)]), texts(&[("a", 256), ("ü", 1)])),
            (texts(&[("ü", 5000)]), texts(&[("ü", 256)])),
        ];
        for (warnings, want) in table {
            assert_eq!(bounded_warnings(&warnings), want);
        }
        let many: Vec<String> = (0..10_000).map(|n| format!("{n}{}", "x".repeat(300))).collect();
        let bounded = bounded_warnings(&many);
        assert_eq!((bounded.len(), bounded.iter().map(String::len).sum::<usize>()), (16, 4096));
    }
}
