//! Validation of a webhook's address.

use gc_cel::Url;

use crate::kinds::prelude::*;
use crate::kinds::shared::names::dns_subdomain;

const FORM: &str = "; desired format: https://host[/path]";

/// Validates `clientConfig`: a URL or a service.
pub(crate) fn client_config(field: &Field<'_, '_>, report: &mut Report) {
    let (address, service) = (field.get("url"), field.get("service"));
    match (address.is_set(), service.is_set()) {
        (true, false) => url(&address, report),
        (false, true) => service_reference(&service, report),
        _ => report.required(field, "exactly one of url or service is required"),
    }
}

fn url(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    if let Some(why) = Url::reference_problem(text) {
        report.required(field, &format!("url must be a valid URL: {why}{FORM}"));
        return;
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None => {
            let segment = text.split(['/', '?', '#']).next().unwrap_or_default();
            (segment.split_once(':').map_or("", |(scheme, _)| scheme), text.strip_prefix("//").unwrap_or(""))
        }
    };
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        report.invalid_text(field, scheme, &why);
    }
    if host.is_empty() {
        report.invalid_text(field, host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        report.invalid_text(field, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        report.invalid_text(field, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        report.invalid_text(field, query, "query parameters are not permitted in the URL");
    }
}

fn service_reference(field: &Field<'_, '_>, report: &mut Report) {
    // Upstream mixes up the two names.
    for (member, named) in [("namespace", "name"), ("name", "namespace")] {
        if field.text_of(member).is_empty() {
            report.required(&field.get(named), "");
        }
    }
    let port = field.get("port");
    if port.integer().is_some_and(|port| !(1..=65_535).contains(&port)) {
        report.invalid(&port, "port is not valid: must be between 1 and 65535, inclusive");
    }
    let path = field.get("path");
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        report.invalid(&path, "segment[0] may not be empty");
        return;
    }
    if !text.starts_with('/') {
        report.invalid(&path, "must start with a '/'");
    }
    // Upstream drops the first character, whatever it is.
    let mut rest = text.chars();
    rest.next();
    let rest = rest.as_str();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (index, step) in rest.split('/').enumerate() {
        if step.is_empty() {
            report.invalid(&path, &format!("segment[{index}] may not be empty"));
        }
        if !step.is_empty() {
            for problem in dns_subdomain(step) {
                report.invalid_shown(&path, &quoted(text), &format!("segment[{index}]: {problem}"));
            }
        }
    }
}
