//! PodSecurity: labels of a namespace determine how privileged its pods may be, by the Pod Security Standards.

mod checks;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use self::checks::violations;
use crate::admission::Request;
use crate::error::{ApiError, CauseReason, FieldError};
use crate::kinds;
use crate::kinds::access::{at, list, text};
use crate::metadata::meta;
use crate::metadata::names::quoted;

/// Prefix of the labels.
const PREFIX: &str = "pod-security.kubernetes.io/";
/// Maximum number of pods in a namespace that are checked when its level is raised.
const MAX_PODS: usize = 3000;
/// Subresources of pods that change nothing relevant here.
const IGNORED: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Pod Security level, from the least strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "privileged" => Self::Privileged,
            "baseline" => Self::Baseline,
            "restricted" => Self::Restricted,
            _ => return None,
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// Minor version of Kubernetes whose standard applies; `None` for the latest.
type Version = Option<u32>;

/// A level in the version of a standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Standard {
    level: Level,
    version: Version,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            None => write!(f, "{}:latest", self.level),
            Some(minor) => write!(f, "{}:v1.{minor}", self.level),
        }
    }
}

/// Pod Security settings of a namespace. There is no audit log here, so `audit` is only validated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Policy {
    enforce: Standard,
    warn: Standard,
}

/// Reads the policy of a namespace, with errors in its labels: invalid labels enforce the strictest level, and warn about nothing.
fn policy(namespace: &Value) -> (Policy, Vec<FieldError>) {
    let label = |name: &str| {
        at(namespace, &["metadata", "labels", &format!("{PREFIX}{name}")]).and_then(Value::as_str)
    };
    let mut errors = Vec::new();
    let mut refuse = |name: &str, value: &str, why: &str| {
        errors.push(FieldError {
            field: format!("metadata.labels[{PREFIX}{name}]"),
            reason: CauseReason::Invalid,
            detail: format!("Invalid value: {}: {why}", quoted(value)),
        });
    };
    let mut standard = |mode: &str, wrong: Level| {
        let mut found = Standard::default();
        let level = label(mode);
        if let Some(value) = level {
            found.level = Level::read(value).unwrap_or_else(|| {
                refuse(mode, value, "must be one of privileged, baseline, restricted");
                wrong
            });
        }
        let name = format!("{mode}-version");
        if let Some(value) = label(&name).filter(|value| *value != "latest") {
            found.version = minor(value);
            if found.version.is_none() {
                refuse(&name, value, "must be \"latest\" or \"v1.x\"");
            }
        }
        (found, level)
    };
    let (enforce, enforced) = standard("enforce", Level::Restricted);
    standard("audit", Level::Privileged);
    let (mut warn, warned) = standard("warn", Level::Privileged);
    let is_valid = enforced.is_some_and(|level| Level::read(level).is_some());
    if warned.is_none() && is_valid && enforce.level > warn.level {
        warn.level = enforce.level;
        if label("warn-version").is_none() {
            warn.version = enforce.version;
        }
    }
    (Policy { enforce, warn }, errors)
}

/// Parses the number in `v1.NUMBER`.
fn minor(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("v1.")?;
    let is_number =
        digits == "0" || !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// Implements the plugin.
pub(crate) fn check(request: &Request<'_>, new: &Value, warnings: &mut Vec<String>) -> Result<(), ApiError> {
    let resource = request.call.resource();
    if request.writes("", "namespaces") {
        return check_namespace(request, new, warnings);
    }
    if resource.is("", "pods") {
        let ignored = IGNORED.contains(&request.call.target.subresource.as_str());
        if ignored || request.old.is_some_and(|old| !changes_images(new, old)) {
            return Ok(());
        }
        return judge(request, new, Some((at(new, &["metadata"]), at(new, &["spec"]))), true, warnings);
    }
    if !request.call.target.subresource.is_empty() {
        return Ok(());
    }
    let template = kinds::pods(resource.target()).and_then(|path| at(new, path));
    let parts = template.map(|template| (at(template, &["metadata"]), at(template, &["spec"])));
    judge(request, new, parts, false, warnings)
}

/// Metadata and spec of a pod or a template.
type Parts<'a> = (Option<&'a Value>, Option<&'a Value>);

fn judge(
    request: &Request<'_>,
    new: &Value,
    parts: Option<Parts<'_>>,
    enforce: bool,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let Some((metadata, spec)) = parts else { return Ok(()) };
    let Some(namespace) = request.read("", "namespaces", "", request.namespace())? else { return Ok(()) };
    let (policy, _) = policy(&namespace);
    let (metadata, spec) = (metadata.unwrap_or(&Value::Null), spec.unwrap_or(&Value::Null));
    let details = |standard: Standard| {
        let found = violations(standard.level, standard.version, metadata, spec);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    };
    if enforce && let Some(why) = details(policy.enforce) {
        let why = format!("violates PodSecurity \"{}\": {why}", policy.enforce);
        return Err(request.forbidden(new, &why));
    }
    if let Some(why) = details(policy.warn) {
        warnings.push(format!("would violate PodSecurity \"{}\": {why}", policy.warn));
    }
    Ok(())
}

/// Reports whether an update of a pod changes its containers or images.
fn changes_images(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value, kind: &str| -> Vec<String> {
        list(pod, &["spec", kind]).iter().map(|container| text(container, &["image"]).to_owned()).collect()
    };
    if ["containers", "initContainers"].iter().any(|kind| images(new, kind) != images(old, kind)) {
        return true;
    }
    let before = list(old, &["spec", "ephemeralContainers"]);
    list(new, &["spec", "ephemeralContainers"]).iter().any(|container| {
        let same = before.iter().find(|old| old.get("name") == container.get("name"));
        same.is_none_or(|old| old.get("image") != container.get("image"))
    })
}

fn check_namespace(request: &Request<'_>, new: &Value, warnings: &mut Vec<String>) -> Result<(), ApiError> {
    let (wanted, errors) = policy(new);
    let Some(old) = request.old else {
        return if errors.is_empty() { Ok(()) } else { Err(request.call.invalid(meta::name(new), &errors)) };
    };
    let (before, old_errors) = policy(old);
    if !errors.is_empty() && errors != old_errors {
        return Err(request.call.invalid(meta::name(new), &errors));
    }
    let (now, was) = (wanted.enforce, before.enforce);
    let is_weaker = now.version == was.version && now.level <= was.level;
    if now == was || now.level == Level::Privileged || is_weaker {
        return Ok(());
    }
    warn_of_pods(request, meta::name(new), now, warnings)
}

/// Warns about existing pods of a namespace that violate its new level; they are kept.
fn warn_of_pods(
    request: &Request<'_>,
    namespace: &str,
    standard: Standard,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let pods = request.all("", "pods", namespace)?;
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in pods.iter().take(MAX_PODS) {
        let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
        let reasons: Vec<&str> = violations(standard.level, standard.version, metadata, spec)
            .iter()
            .map(|violation| violation.reason)
            .collect();
        if !reasons.is_empty() {
            let (_, count) =
                found.entry(reasons.join(", ")).or_insert_with(|| (meta::name(pod).to_owned(), 0));
            *count += 1;
        }
    }
    if pods.len() > MAX_PODS {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS} of {} existing pods",
            pods.len()
        ));
    }
    if found.is_empty() {
        return Ok(());
    }
    warnings.push(format!(
        "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{standard}\""
    ));
    let mut texts: Vec<String> = found
        .into_iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            _ => format!("{name} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    texts.sort();
    warnings.extend(texts);
    Ok(())
}
