//! Query parameters of a pod's log.

use gc_registry::error::{ApiError, CauseReason, FieldError};

use crate::transport::query::Query;

/// Refuses invalid options, before checking whether the pod exists.
pub(crate) fn check(query: &Query, pod: &str) -> Result<(), ApiError> {
    let (tail, limit, since) =
        (query.integer("tailLines")?, query.integer("limitBytes")?, query.integer("sinceSeconds")?);
    let time = query.text("sinceTime");
    if !time.is_empty() && time.parse::<jiff::Timestamp>().is_err() {
        let why = format!(
            "parsing time {time:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {time:?} as \"2006\""
        );
        return Err(ApiError::bad_request(why));
    }
    let mut errors = Vec::new();
    let mut refuse = |field: &str, reason: CauseReason, detail: String| {
        errors.push(FieldError { field: field.into(), reason, detail });
    };
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        let why = format!("Invalid value: {lines}: must be greater than or equal to 0");
        refuse("tailLines", CauseReason::Invalid, why);
    }
    let mut positive = |field: &str, number: Option<i64>| {
        if let Some(number) = number.filter(|number| *number < 1) {
            let why = format!("Invalid value: {number}: must be greater than 0");
            refuse(field, CauseReason::Invalid, why);
        }
    };
    positive("limitBytes", limit);
    if since.is_none() || time.is_empty() {
        positive("sinceSeconds", since);
    } else {
        // Upstream attributes this error to the options as a whole.
        let why = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
        refuse("[]", CauseReason::Forbidden, why.into());
    }
    if query.get("stream").is_some() {
        refuse("stream", CauseReason::Forbidden, "Forbidden: may not be specified".into());
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("", "PodLogOptions", pod, &errors)) }
}
