//! Paths that are not resources: health, version, metrics, the key set of service-account tokens.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use gc_registry::error::ApiError;
use gc_registry::kubernetes::KubernetesVersion;
use gc_registry::storage::StorageError;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, StatusCode};
use serde_json::json;

use crate::encode::negotiate::{self, Representation};
use crate::encode::render;
use crate::exchange::{Answer, ApiRequest, PLAIN, gzipped, packed_answer, page_not_found, text_answer};
use crate::serve::zpages::{Page, git_version};
use crate::state::State;
use crate::work::Weight;

/// Health checks by name.
const CHECKS: [&str; 4] = ["ping", "log", "loopback-serving-certificate", "etcd"];
/// Checks that only readiness includes.
const READINESS_CHECKS: [&str; 2] = ["informer-sync", "shutdown"];
/// Names of the checks for kube-apiserver's post-start hooks. This server finishes that work before its first answer.
const HOOKS: [&str; 31] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-wait-for-first-sync",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// Paths that do not exist with a trailing slash.
const UNSLASHED: [&str; 6] = ["/healthz", "/livez", "/readyz", "/metrics", "/flagz", "/statusz"];

/// Returns the names of an endpoint's checks.
fn checks(endpoint: &str) -> impl Iterator<Item = &'static str> {
    let readiness: &[&str] = if endpoint == "readyz" { &READINESS_CHECKS } else { &[] };
    CHECKS.iter().chain(readiness).chain(&HOOKS).copied()
}

/// Runs all checks once, so that their metrics exist before the first health request.
pub(crate) fn check_once(state: &State) {
    let problem = state.registry.storage_health().err();
    for endpoint in ["livez", "readyz"] {
        for name in checks(endpoint) {
            state.metrics.checked(name, endpoint, name != "etcd" || problem.is_none());
        }
    }
}

/// Answers a request for one of these paths.
pub(crate) async fn answer(state: &Arc<State>, request: &ApiRequest) -> Result<Answer, ApiError> {
    let trimmed = request.path.trim_end_matches('/');
    // Other paths may end in a slash.
    if trimmed != request.path && UNSLASHED.iter().any(|path| trimmed.starts_with(path)) {
        return Ok(page_not_found());
    }
    let parts: Vec<&str> = trimmed.split('/').skip(1).collect();
    if let Some(answer) = crate::serve::openapi::answer(state, request, trimmed).await? {
        return Ok(answer);
    }
    let reading = matches!(request.method, Method::GET | Method::HEAD);
    match parts.as_slice() {
        // Health checks accept any method.
        ["healthz" | "livez" | "readyz", ..] => {
            // A restart frees no space, so a full disk ends readiness but not liveness.
            let is_readiness = parts.first() == Some(&"readyz");
            let storage = state
                .perform(Weight::Read, move |state| {
                    let error = state.registry.storage_health().err();
                    let problem = error
                        .filter(|error| is_readiness || *error != StorageError::Full)
                        .map(|error| error.to_string());
                    // A restart could not read the configuration either.
                    Ok(problem.or_else(|| state.registry.configuration_problem().filter(|_| is_readiness)))
                })
                .await?;
            Ok(health(state, storage.as_deref(), request, &parts))
        }
        ["flagz"] => Page::Flags.answer(&state.facts, request),
        ["statusz"] => Page::Status.answer(&state.facts, request),
        // Upstream resets these counters on a DELETE.
        ["metrics", "slis"] if request.method != Method::DELETE => {
            Ok(metrics(state, request, state.metrics.service_levels(request.header(&ACCEPT))))
        }
        ["metrics"] if request.method != Method::DELETE => {
            let (waiting, limits) = (state.work.waiting(), state.work.limits());
            state.metrics.set_held(state.clients.account());
            Ok(metrics(state, request, state.metrics.shown(request.header(&ACCEPT), waiting, limits)))
        }
        [] | [""] => Ok(root(state, request)),
        ["version", _, ..] => {
            let why = "the server could not find the requested resource";
            let mut error = ApiError::new(404, "NotFound", why);
            error.details = Some(Box::default());
            Err(error)
        }
        ["version"] | [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"]
            if request.method == Method::HEAD =>
        {
            Err(ApiError::method_not_allowed())
        }
        _ if !reading => match parts.as_slice() {
            ["version"]
            | ["metrics", ..]
            | [".well-known", "openid-configuration"]
            | ["openid", "v1", "jwks"] => Err(ApiError::method_not_allowed()),
            _ => Ok(page_not_found()),
        },
        ["version"] => {
            refuse_other_types(request, "application/json")?;
            Ok(version(request))
        }
        [".well-known", "openid-configuration"] => {
            let own = || format!("https://{}/openid/v1/jwks", state.advertised());
            let document = json!({
                "issuer": state.access.signer.issuer(),
                "jwks_uri": state.access.signer.key_set_uri().map_or_else(own, str::to_owned),
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": state.access.signer.algorithms(),
            });
            Ok(for_an_hour(request.document(document.to_string().into(), "application/json")))
        }
        ["openid", "v1", "jwks"] => {
            refuse_other_types(request, "application/jwk-set+json")?;
            let keys = state.access.signer.key_set().to_string();
            Ok(for_an_hour(request.document(keys.into(), "application/jwk-set+json")))
        }
        _ => Ok(page_not_found()),
    }
}

/// Refuses requests for other media types: routes of upstream's router have a single representation, and accept no body of another.
fn refuse_other_types(request: &ApiRequest, produced: &str) -> Result<(), ApiError> {
    let content_type = request.header(&CONTENT_TYPE).unwrap_or_default();
    let given = content_type.split(';').next().unwrap_or_default().trim();
    if !content_type.is_empty() && given != "application/json" {
        return Err(negotiate::unsupported_by_router());
    }
    let accept = request.header(&ACCEPT).unwrap_or_default();
    if accept.is_empty() || negotiate::media_ranges(accept).iter().any(|range| range.is_routed_to(produced)) {
        return Ok(());
    }
    Err(negotiate::not_acceptable_to_router(produced))
}

/// Answers with metrics, compressed regardless of their size if the client accepts that.
fn metrics(state: &State, request: &ApiRequest, (content_type, text): (&'static str, String)) -> Answer {
    let packed = request.takes_gzip().then(|| gzipped(text.as_bytes())).flatten();
    let mut answer = match packed {
        Some(packed) => packed_answer(packed, content_type),
        None => text_answer(StatusCode::OK, content_type, text),
    };
    answer.headers_mut().insert("process-start-time-unix", HeaderValue::from(state.facts.started_seconds()));
    answer
}

/// Marks an answer as cacheable for an hour, as upstream does for documents that verify tokens.
fn for_an_hour(mut answer: Answer) -> Answer {
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    answer
}

/// Answers `/` with the list of paths.
fn root(state: &State, request: &ApiRequest) -> Answer {
    let catalog = state.registry.catalog();
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis", "/apis/"].map(str::to_owned).to_vec();
    for group in catalog.groups().iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths
            .extend(group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.version)));
    }
    for path in [
        "/flagz",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/statusz",
        "/version",
    ] {
        paths.push(path.into());
    }
    paths.sort();
    request.document(render::value(&json!({"paths": paths}), Representation::JSON).into(), "application/json")
}

/// Returns operating system and architecture under the names that Kubernetes uses.
fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

fn version(request: &ApiRequest) -> Answer {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let written = || {
        let minor = KubernetesVersion::chosen().number();
        let document = json!({
            "major": "1", "minor": minor.to_string(), "emulationMajor": "1", "emulationMinor": minor.to_string(),
            "minCompatibilityMajor": "1", "minCompatibilityMinor": (minor - 1).to_string(),
            "gitVersion": git_version(), "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
            "platform": platform(),
        });
        render::value(&document, Representation { pretty: true, ..Representation::JSON }).into()
    };
    request.document(DOCUMENT.get_or_init(written).clone(), "application/json")
}

/// Answers with plain text that browsers must not interpret as anything else.
fn checked(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = text_answer(code, PLAIN, text);
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Returns the report of an endpoint whose checks all pass. It is shared, so slow clients cost no memory.
fn passed(endpoint: &str) -> Bytes {
    static REPORTS: [OnceLock<Bytes>; 3] = [const { OnceLock::new() }; 3];
    let [health, life, readiness] = &REPORTS;
    let report = match endpoint {
        "readyz" => readiness,
        "livez" => life,
        _ => health,
    };
    let written = || {
        let mut report = String::new();
        for name in checks(endpoint) {
            let _ = writeln!(report, "[+]{name} ok");
        }
        let _ = writeln!(report, "{endpoint} check passed");
        Bytes::from(report)
    };
    report.get_or_init(written).clone()
}

fn health(state: &State, storage: Option<&str>, request: &ApiRequest, parts: &[&str]) -> Answer {
    let endpoint = parts.first().copied().unwrap_or_default();
    let reason = |name: &str| if name == "etcd" { storage } else { None };
    let wanted = parts.get(1..).unwrap_or_default().join("/");
    let named: Vec<&str> = checks(endpoint).filter(|name| wanted.is_empty() || *name == wanted).collect();
    if named.is_empty() {
        return page_not_found();
    }
    let excluded: Vec<&str> = request.query.all("exclude").collect();
    let verbose = request.query.get("verbose").is_some();
    if storage.is_none() && excluded.is_empty() && wanted.is_empty() {
        for name in named {
            state.metrics.checked(name, endpoint, true);
        }
        return checked(StatusCode::OK, if verbose { passed(endpoint) } else { Bytes::from_static(b"ok") });
    }
    let mut report = String::new();
    let mut failed = false;
    for name in named {
        if excluded.contains(&name) {
            let _ = writeln!(report, "[+]{name} excluded: ok");
            continue;
        }
        let reason = reason(name);
        state.metrics.checked(name, endpoint, reason.is_none());
        match reason {
            None => {
                let _ = writeln!(report, "[+]{name} ok");
            }
            Some(why) => {
                failed = true;
                let _ = writeln!(report, "[-]{name} failed: {why}");
            }
        }
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| !checks(endpoint).any(|known| known == **name))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        let _ = writeln!(report, "warn: some health checks cannot be excluded: no matches for {names}");
    }
    if failed {
        let _ = writeln!(report, "{endpoint} check failed");
        return checked(StatusCode::INTERNAL_SERVER_ERROR, report);
    }
    if verbose && wanted.is_empty() {
        let _ = writeln!(report, "{endpoint} check passed");
        return checked(StatusCode::OK, report);
    }
    if wanted.is_empty() { checked(StatusCode::OK, "ok") } else { text_answer(StatusCode::OK, PLAIN, "ok") }
}
