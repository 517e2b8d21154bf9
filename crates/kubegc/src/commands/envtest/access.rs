//! Keys, certificates and access, as the flags of kube-apiserver configure them.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gc_apiserver::{AccessConfig, AuthorizationMode, GivenKeys, RequestHeaders, TlsSettings, TokenSettings};
use gc_process::UsageError;
use gc_types::GoDuration;

use super::flags::GivenFlags;

/// The bounds of `--service-account-max-token-expiration`, in seconds.
const LIFE_SECONDS: std::ops::RangeInclusive<i64> = 3600..=1 << 32;

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn file(given: &GivenFlags, name: &str) -> Option<PathBuf> {
    given.last(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns a certificate and its key. Both must be given, or neither.
fn pair(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    flags: &str,
) -> anyhow::Result<Option<(Vec<u8>, Vec<u8>)>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((read(&certificate)?, read(&key)?))),
        (None, None) => Ok(None),
        _ => Err(UsageError::new(format!("a certificate and a key belong together: {flags}")).into()),
    }
}

/// Reads the keys from the files that were given.
pub(super) fn keys(given: &GivenFlags) -> anyhow::Result<GivenKeys> {
    let one = |name: &str| file(given, name).map(|path| read(&path)).transpose();
    let in_folder = |name: &str| Some(file(given, "cert-dir")?.join(name)).filter(|path| path.exists());
    let serving = pair(
        file(given, "tls-cert-file").or_else(|| in_folder("apiserver.crt")),
        file(given, "tls-private-key-file").or_else(|| in_folder("apiserver.key")),
        "--tls-cert-file, --tls-private-key-file",
    )?;
    let proxy_client = pair(
        file(given, "proxy-client-cert-file"),
        file(given, "proxy-client-key-file"),
        "--proxy-client-cert-file, --proxy-client-key-file",
    )?;
    let files = given.all("service-account-key-file").filter(|path| !path.is_empty());
    let suites: Vec<&str> = given.words("tls-cipher-suites").collect();
    let oldest = given.last("tls-min-version").filter(|version| !version.is_empty());
    let mut tls = TlsSettings::new(oldest, &suites).map_err(|error| UsageError::new(error.to_string()))?;
    tls.only_http1 = given.switch("disable-http2-serving")?.unwrap_or(false);
    Ok(GivenKeys {
        serving,
        client_authorities: one("client-ca-file")?,
        token_key: one("service-account-signing-key-file")?,
        token_verification_keys: files.map(|path| read(Path::new(path))).collect::<Result<_, _>>()?,
        proxy_client,
        tls,
    })
}

/// Returns a Go duration in seconds; `None` if it was not given.
fn seconds(given: &GivenFlags, name: &str) -> anyhow::Result<Option<i64>> {
    let Some(text) = given.last(name) else { return Ok(None) };
    let duration: GoDuration =
        text.parse().map_err(|error| UsageError::new(format!("--{name} {text}: {error}")))?;
    i64::try_from(duration.to_std().as_secs())
        .map(Some)
        .with_context(|| format!("--{name} {text} is too long"))
}

/// Returns the lifetime of Events; `None` for the default.
pub(super) fn event_seconds(given: &GivenFlags) -> anyhow::Result<Option<u32>> {
    let found = seconds(given, "event-ttl")?;
    found.map(|found| u32::try_from(found).context("--event-ttl is too long")).transpose()
}

/// Returns the settings for authentication and authorization.
pub(super) fn access(given: &GivenFlags) -> anyhow::Result<AccessConfig> {
    let authorization = modes(given)?;
    let mut anonymous = given.switch("anonymous-auth")?.unwrap_or(true);
    if anonymous && authorization.contains(&AuthorizationMode::AlwaysAllow) {
        eprintln!(
            "kube-apiserver (kubegc): requests without credentials are refused, as everything else is allowed (AlwaysAllow)"
        );
        anonymous = false;
    }
    Ok(AccessConfig {
        tokens: tokens(given)?,
        request_headers: request_headers(given)?,
        refuses_anonymous: !anonymous,
        authorization,
    })
}

/// Returns the authorizers; everything is allowed by default, as in the real program.
fn modes(given: &GivenFlags) -> anyhow::Result<Vec<AuthorizationMode>> {
    const FLAG: &str = "authorization-mode";
    let words: Vec<&str> = given.words(FLAG).collect();
    let mut found = Vec::new();
    for word in &words {
        if words.iter().filter(|other| *other == word).count() > 1 {
            let why = format!("{FLAG} {words:?} has mode specified more than once");
            return Err(UsageError::new(why).into());
        }
        found.push(match *word {
            "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
            "AlwaysDeny" => AuthorizationMode::AlwaysDeny,
            "RBAC" => AuthorizationMode::Rbac,
            "Node" => {
                eprintln!("kube-apiserver (kubegc): --{FLAG}: Node allows nothing here");
                continue;
            }
            "ABAC" | "Webhook" => {
                return Err(UsageError::new(format!("--{FLAG} {word} is not supported")).into());
            }
            _ => return Err(UsageError::new(format!("{FLAG} {word:?} is not a valid mode")).into()),
        });
    }
    if words.is_empty() {
        found.push(AuthorizationMode::AlwaysAllow);
    } else if found.is_empty() {
        // Node was the only authorizer, and this server does not have it, so nothing is allowed.
        found.push(AuthorizationMode::AlwaysDeny);
    }
    Ok(found)
}

fn tokens(given: &GivenFlags) -> anyhow::Result<TokenSettings> {
    let mut settings = TokenSettings::default();
    let issuers: Vec<String> = given.all("service-account-issuer").map(str::to_owned).collect();
    if issuers.iter().any(String::is_empty) {
        return Err(UsageError::new("service-account-issuer should not be an empty string").into());
    }
    if !issuers.is_empty() {
        settings.issuers = issuers;
    }
    settings.audiences = given.words("api-audiences").map(str::to_owned).collect();
    settings.key_set_uri =
        given.last("service-account-jwks-uri").filter(|uri| !uri.is_empty()).map(str::to_owned);
    if let Some(uri) = settings.key_set_uri.as_ref().filter(|uri| !uri.starts_with("https://")) {
        let why = format!("service-account-jwks-uri requires https scheme, parsed as: {uri}");
        return Err(UsageError::new(why).into());
    }
    settings.longest_life_seconds =
        seconds(given, "service-account-max-token-expiration")?.filter(|longest| *longest != 0);
    if settings.longest_life_seconds.is_some_and(|longest| !LIFE_SECONDS.contains(&longest)) {
        let why = "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds";
        return Err(UsageError::new(why).into());
    }
    Ok(settings)
}

/// Returns the proxies to trust, if an authority for them is given.
fn request_headers(given: &GivenFlags) -> anyhow::Result<Option<RequestHeaders>> {
    let Some(authorities) = file(given, "requestheader-client-ca-file") else { return Ok(None) };
    let words = |name: &str| given.words(name).map(str::to_owned).collect();
    Ok(Some(RequestHeaders {
        authorities: read(&authorities)?,
        allowed_names: words("requestheader-allowed-names"),
        user: words("requestheader-username-headers"),
        uid: words("requestheader-uid-headers"),
        groups: words("requestheader-group-headers"),
        extra_prefixes: words("requestheader-extra-headers-prefix"),
    }))
}
