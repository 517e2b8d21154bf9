//! Requests of a device claim.

use std::collections::BTreeSet;

use gc_cel::{Environment, Program, Type};

use crate::kinds::expressions::type_name;
use crate::kinds::prelude::*;
use crate::kinds::shared::names::{
    NOT_A_C_IDENTIFIER, csi_driver_name, dns_label, dns_subdomain, is_c_identifier, label, label_value,
    qualified,
};

const LIST_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const TOLERATIONS_MAX: usize = 16;
const EXPRESSION_MAX_BYTES: usize = 10 * 1024;
const PARAMETERS_MAX_BYTES: usize = 10 * 1024;
const IDENTIFIER_MAX_BYTES: usize = 32;
const NOT_A_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest \
    separated by '/'";

/// Names of requests, and of their alternatives.
pub(crate) struct Names<'v> {
    requests: BTreeSet<&'v str>,
    alternatives: BTreeSet<(&'v str, &'v str)>,
}

impl<'v> Names<'v> {
    pub(crate) fn of(spec: &Field<'v, '_>) -> Self {
        let (mut requests, mut alternatives) = (BTreeSet::new(), BTreeSet::new());
        let devices = spec.get("devices");
        for request in devices.get("requests").list() {
            let name = request.get("name").and_then(Value::as_str).unwrap_or_default();
            requests.insert(name);
            for alternative in request.get("firstAvailable").and_then(Value::as_array).into_iter().flatten() {
                let inner = alternative.get("name").and_then(Value::as_str).unwrap_or_default();
                alternatives.insert((name, inner));
            }
        }
        Self { requests, alternatives }
    }

    /// Validates a text that names a request, or one of its alternatives after a slash.
    pub(crate) fn reference(&self, field: &Field<'_, '_>, report: &mut Report) {
        let text = field.text();
        if text.matches('/').count() < 2 {
            for part in text.split('/') {
                report.each_of(field, part, dns_label(part));
            }
        }
        let known = match text.split_once('/') {
            None => self.requests.contains(text),
            Some((request, alternative)) => self.alternatives.contains(&(request, alternative)),
        };
        if !known {
            report.invalid(field, NOT_A_REQUEST);
        }
    }
}

/// Validates the spec of a claim.
pub(crate) fn spec(field: &Field<'_, '_>, report: &mut Report) {
    let devices = field.get("devices");
    let (requests, names) = (devices.get("requests"), Names::of(field));
    let mut seen = BTreeSet::new();
    for item in limited(&requests, LIST_MAX, report) {
        if !seen.insert(item.text_of("name")) {
            report.duplicate_text(&item, item.text_of("name"));
        }
        request(&item, report);
    }
    for item in limited(&devices.get("constraints"), LIST_MAX, report) {
        constraint(&item, &names, report);
    }
    for item in limited(&devices.get("config"), LIST_MAX, report) {
        references(&item.get("requests"), &names, report);
        opaque(&item.get("opaque"), report);
    }
}

/// Returns the items of a list, or none if there are too many, in which case this is the only error reported for the list.
pub(super) fn limited<'s, 'v, 'p>(
    field: &'s Field<'v, 'p>,
    max: usize,
    report: &mut Report,
) -> impl Iterator<Item = Field<'v, 's>> + use<'s, 'v, 'p> {
    let fits = field.list().len() <= max;
    if !fits {
        report.too_many(field, field.list().len(), max);
    }
    field.items().filter(move |_| fits)
}

/// Validates references to requests, which must be unique.
pub(crate) fn references(field: &Field<'_, '_>, names: &Names<'_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for item in limited(field, LIST_MAX, report) {
        names.reference(&item, report);
        if !seen.insert(item.text()) {
            report.duplicate(&item);
        }
    }
}

fn request(field: &Field<'_, '_>, report: &mut Report) {
    label(&field.get("name"), report);
    let (exactly, alternatives) = (field.get("exactly"), field.get("firstAvailable"));
    let count = usize::from(exactly.is_set()) + usize::from(!alternatives.list().is_empty());
    match count {
        0 => return report.required(field, "exactly one of `exactly` or `firstAvailable` is required"),
        1 => {}
        _ => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            return report.invalid_shown(field, &"null", why);
        }
    }
    let mut seen = BTreeSet::new();
    for item in limited(&alternatives, ALTERNATIVES_MAX, report) {
        if !seen.insert(item.text_of("name")) {
            report.duplicate_text(&item, item.text_of("name"));
        }
        label(&item.get("name"), report);
        wanted(&item, report);
    }
    if exactly.is_set() {
        wanted(&exactly, report);
    }
}

/// Validates a request, or one of its alternatives.
fn wanted(field: &Field<'_, '_>, report: &mut Report) {
    let class = field.get("deviceClassName");
    if class.text().is_empty() {
        report.required(&class, "");
    } else {
        report.each(&class, dns_subdomain(class.text()));
    }
    selectors(&field.get("selectors"), report);
    let (mode, count) = (field.get("allocationMode"), field.get("count"));
    match mode.text() {
        "All" => {
            if count.number() != 0 {
                let why = "must not be specified when allocationMode is 'All'";
                report.invalid(&count, why);
            }
        }
        "ExactCount" => {
            if count.number() <= 0 {
                report.invalid_number(&count, "must be greater than zero");
            }
        }
        _ => report.not_supported(&mode, &["All", "ExactCount"]),
    }
    tolerations(&field.get("tolerations"), report);
}

/// Checks that an expression can select devices.
fn device_expression(text: &str) -> Result<(), String> {
    let environment = Environment::default().with("device", Type::Dyn);
    let checked =
        Program::check(text, &environment, None).map_err(|error| format!("compilation failed: {error}"))?;
    if matches!(checked.result, Type::Bool | Type::Dyn) {
        Ok(())
    } else {
        Err(format!("must evaluate to bool or the unknown type, not {}", type_name(&checked.result)))
    }
}

/// Validates selectors of devices.
pub(crate) fn selectors(field: &Field<'_, '_>, report: &mut Report) {
    for item in limited(field, LIST_MAX, report) {
        let cel = item.get("cel");
        if !cel.is_set() {
            report.required(&cel, "");
            continue;
        }
        let expression = cel.get("expression");
        if expression.text().len() > EXPRESSION_MAX_BYTES {
            report.too_long(&expression, EXPRESSION_MAX_BYTES);
        } else if let Err(why) = device_expression(expression.text()) {
            report.invalid_text(&expression, expression.text(), &why);
        }
    }
}

fn tolerations(field: &Field<'_, '_>, report: &mut Report) {
    for item in limited(field, TOLERATIONS_MAX, report) {
        let (key, operator, value) = (item.get("key"), item.get("operator"), item.get("value"));
        if !key.text().is_empty() {
            qualified(&key, report);
        }
        match operator.text() {
            "Exists" => {
                if !value.text().is_empty() {
                    report.invalid(&value, "must be empty for operator `Exists`");
                }
            }
            "Equal" => report.each_of(&value, value.text(), label_value(value.text())),
            "" => report.required(&operator, ""),
            _ => report.not_supported(&operator, &["Equal", "Exists"]),
        }
        let effect = item.get("effect");
        if !matches!(effect.text(), "" | "NoExecute" | "NoSchedule" | "None") {
            report.not_supported(&effect, &["NoExecute", "NoSchedule", "None"]);
        }
    }
}

fn constraint(field: &Field<'_, '_>, names: &Names<'_>, report: &mut Report) {
    references(&field.get("requests"), names, report);
    let (same, distinct) = (field.get("matchAttribute"), field.get("distinctAttribute"));
    match (same.is_set(), distinct.is_set()) {
        (false, false) => {
            // Upstream has the same message whether there are none or several.
            let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
                are set";
            report.required(field, why);
        }
        // Upstream ignores the other one.
        (true, _) => full_attribute_name(&same, report),
        (false, true) => full_attribute_name(&distinct, report),
    }
}

fn full_attribute_name(field: &Field<'_, '_>, report: &mut Report) {
    attribute_name(field, field.text(), report);
    if !field.text().contains('/') {
        report.invalid(field, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// Validates an identifier, preceded by the name of a driver if it is not the slice's.
pub(crate) fn attribute_name(field: &Field<'_, '_>, name: &str, report: &mut Report) {
    let (domain, id) = match name.split_once('/') {
        None => (None, name),
        // Upstream does not check names with more than one slash.
        Some((_, rest)) if rest.contains('/') => return,
        Some((domain, id)) => (Some(domain), id),
    };
    match domain {
        None => {}
        Some("") => report.invalid_text(field, "", "the domain must not be empty"),
        Some(domain) => driver_name(&field.with(&Value::from(domain)), report),
    }
    if id.is_empty() && domain.is_some() {
        report.invalid_text(field, "", "the name must not be empty");
        return;
    }
    if id.len() > IDENTIFIER_MAX_BYTES {
        report.too_long(field, IDENTIFIER_MAX_BYTES);
    }
    if !is_c_identifier(id) {
        report.invalid_text(field, id, NOT_A_C_IDENTIFIER);
    }
}

/// Validates the name of a driver.
pub(super) fn driver_name(field: &Field<'_, '_>, report: &mut Report) {
    if field.text().is_empty() {
        report.required(field, "");
    } else {
        csi_driver_name(field, report);
    }
}

/// Validates configuration for a driver.
pub(crate) fn opaque(field: &Field<'_, '_>, report: &mut Report) {
    if !field.is_set() {
        report.required(field, "");
        return;
    }
    driver_name(&field.get("driver"), report);
    let parameters = field.get("parameters");
    match parameters.value() {
        Value::Null => report.required(&parameters, ""),
        Value::Object(_) => {
            if parameters.value().to_string().len() > PARAMETERS_MAX_BYTES {
                report.too_long(&parameters, PARAMETERS_MAX_BYTES);
            }
        }
        _ => report.invalid_shown(&parameters, &quoted("<value omitted>"), "must be a valid JSON object"),
    }
}

/// Sets the defaults of the requests in a claim's spec.
pub(super) fn default_requests(spec: &mut Members) {
    let Some(devices) = existing(spec, "devices") else { return };
    for request in items(devices, "requests") {
        if let Some(exactly) = existing(request, "exactly") {
            default_request(exactly);
        }
        items(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut Members) {
    fill(request, "allocationMode", "ExactCount");
    if request.get("allocationMode").is_some_and(|mode| mode == "ExactCount") {
        fill_zero(request, "count", 1);
    }
    for toleration in items(request, "tolerations") {
        fill(toleration, "operator", "Equal");
    }
}
